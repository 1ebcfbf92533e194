//! A folder of items: what the at-most-once queues of all layouts have in common.
//!
//! Owns listing, offering and taking, under the names of one [`QueueKind`]. Must never offer an
//! item twice because an outcome was unknown (H66), nor lose one that it has deleted (H65), nor
//! delete one that it cannot read (H72).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use baton_client::{Client, CreateMode, Error, Op, Session, Watch};
use bytes::Bytes;

use super::error::QueueError;
use super::folder_state::{FolderState, Item, RelistOnDrop, ReturnedItem};
use super::layout::{Key, QueueKind, QueueLayout};
use crate::kind::{FolderMarks, Kind};
use crate::parents::{ParentKind, ensure_parents};
use crate::receipt::{Outcome, folder_of_receipts};
use crate::recipe_path;
use crate::retry;
use crate::server_clock::ServerClock;
use crate::time_limit::at_most;
use crate::wait_queue::order::{self, SequentialChild};

/// The longest sleep before the server's clock is read again.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// A queue's path, and the format of the names below it.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    pub(super) client: Client,
    path: Arc<str>,
    format: QueueKind,
    /// The queue's own path, where that is above the folder.
    above: Option<Arc<str>>,
    /// Reason why the options of this handle cannot be.
    refusal: Option<Arc<QueueError>>,
    state: Arc<FolderState>,
    clock: Arc<ServerClock>,
}

/// Outcome of a search for the first item.
pub(super) enum SearchOutcome<T> {
    Item(T),
    /// No item can be taken now. The names of items that cannot be read, with the reason.
    Nothing(HashMap<String, String>),
}

impl Folder {
    pub(super) fn new(client: &Client, path: &str, format: QueueKind) -> Result<Self, QueueError> {
        check_path(path)?;
        Ok(Self {
            client: client.clone(),
            path: Arc::from(path),
            format,
            above: None,
            refusal: None,
            state: Arc::default(),
            clock: Arc::default(),
        })
    }

    /// The same folder under other names.
    pub(super) fn with_format(self, format: QueueKind) -> Self {
        let path = Arc::clone(&self.path);
        self.moved(&path, format)
    }

    /// Another folder of the same server. Items that were taken for cancelled callers stay with the
    /// old handle.
    pub(super) fn moved(self, path: &Arc<str>, format: QueueKind) -> Self {
        Self {
            path: Arc::clone(path),
            format,
            above: None,
            refusal: None,
            state: Arc::default(),
            ..self
        }
    }

    /// The same folder, whose operations are refused.
    pub(super) fn refusing(self, refusal: QueueError) -> Self {
        Self {
            refusal: Some(Arc::new(refusal)),
            ..self
        }
    }

    /// The same folder, as one below the queue's own path.
    pub(super) fn below(self, above: &str) -> Self {
        Self {
            above: Some(Arc::from(above)),
            ..self
        }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn format(&self) -> QueueKind {
        self.format
    }

    /// Creates one node for each of `nodes` (the start of its name, and its data), all or none.
    pub(super) async fn offer(&self, nodes: &[(String, Bytes)]) -> Result<(), QueueError> {
        self.refuse_offer_to_others().await?;
        loop {
            let session = self.session().await?;
            let create = |(stem, data): &(String, Bytes)| {
                let path = baton_proto::path::join(&self.path, stem);
                Op::create(path, data.clone(), CreateMode::PersistentSequential)
            };
            let parts = nodes.iter().map(create).collect();
            match self.apply(&session, parts).await {
                Outcome::Applied => return Ok(()),
                Outcome::NotApplied => {}
                Outcome::Refused(error) if error.is_no_node() => self.make(&session).await?,
                Outcome::Refused(error) => return Err(self.client_error(error)),
                Outcome::Failed(error) => {
                    self.or_retry(&session, Err::<(), _>(error)).await?;
                }
                Outcome::Unknown(source) => {
                    return Err(QueueError::OfferUnknown {
                        path: self.path.to_string(),
                        source,
                    });
                }
            }
        }
    }

    /// The first item that could be taken now, left where it is.
    pub(super) async fn peek(&self) -> Result<Option<Item>, QueueError> {
        'again: loop {
            let returned = {
                let known = self.state.known();
                let certain = known.returned.iter().find(|one| one.doubt.is_none());
                certain.map(|one| one.item.clone())
            };
            if returned.is_some() {
                return Ok(returned);
            }
            let session = self.session().await?;
            let listed = self.due(&session).await;
            let Some(names) = self.or_retry(&session, listed).await? else {
                continue;
            };
            let mut unreadable = None;
            for name in names {
                let node = baton_proto::path::join(&self.path, &name);
                let read = match session.get_data(&node).await {
                    Ok(read) => read,
                    // Another consumer has taken it.
                    Err(error) if error.is_no_node() => continue,
                    Err(error) => {
                        self.or_retry(&session, Err::<(), _>(error)).await?;
                        continue 'again;
                    }
                };
                match self.format.decode(read.data) {
                    Ok(items) => {
                        if let Some(data) = items.into_iter().next() {
                            return Ok(Some(Item { name, data }));
                        }
                    }
                    Err(why) => {
                        tracing::warn!(
                            node,
                            why,
                            "item cannot be read: passed over, left in place"
                        );
                        unreadable.get_or_insert(QueueError::Undecodable { node, why });
                    }
                }
            }
            if let Some(error) = unreadable {
                return Err(error);
            }
            self.refuse_others().await?;
            return Ok(None);
        }
    }

    /// Takes the first item that can be taken now.
    pub(super) async fn poll(&self) -> Result<Option<Item>, QueueError> {
        let found = self.search().await?;
        self.polled(found).await
    }

    /// The item that a search has found, or the error of an item that it could not read.
    pub(super) async fn polled<T>(&self, found: SearchOutcome<T>) -> Result<Option<T>, QueueError> {
        match found {
            SearchOutcome::Item(item) => Ok(Some(item)),
            SearchOutcome::Nothing(unreadable) => match unreadable.into_iter().min() {
                None => {
                    self.refuse_others().await?;
                    Ok(None)
                }
                Some((name, why)) => Err(QueueError::Undecodable {
                    node: baton_proto::path::join(&self.path, &name),
                    why,
                }),
            },
        }
    }

    /// Takes the first item; waits while there is none.
    pub(super) async fn take(&self) -> Result<Item, QueueError> {
        loop {
            let passed = match self.search().await? {
                SearchOutcome::Item(item) => return Ok(item),
                SearchOutcome::Nothing(passed) => passed,
            };
            self.refuse_others().await?;
            let session = self.session().await?;
            let (children, watch) = match session.children_watch(&self.path).await {
                Ok(read) => read,
                Err(error) if error.is_no_node() => {
                    self.make(&session).await?;
                    continue;
                }
                Err(error) => {
                    self.or_retry(&session, Err::<(), _>(error)).await?;
                    continue;
                }
            };
            let next = children
                .names
                .iter()
                .filter(|name| !passed.contains_key(*name))
                .filter_map(|name| self.format.key(name))
                .map(|key| key.class)
                .min();
            self.until_changed(&session, watch, next).await?;
        }
    }

    /// Like [`Folder::take`], for at most `limit`.
    pub(super) async fn take_timeout(&self, limit: Duration) -> Result<Item, QueueError> {
        let timed_out = |waited_for| QueueError::timed_out(&self.path, limit, waited_for);
        at_most(limit, &self.client, self.take(), timed_out).await
    }

    /// An item that was taken for a cancelled caller; `None` once no take is under way any more.
    pub(super) async fn recover(&self) -> Result<Option<Item>, QueueError> {
        let returned = self.state.recover().await;
        returned.map(|one| self.certain(one)).transpose()
    }

    /// The item of a cancelled caller, or the error that contains it.
    fn certain(&self, returned: ReturnedItem) -> Result<Item, QueueError> {
        let ReturnedItem { item, doubt } = returned;
        match doubt {
            None => Ok(item),
            Some(source) => Err(QueueError::TakeUnknown {
                node: baton_proto::path::join(&self.path, &item.name),
                item: item.data,
                source,
            }),
        }
    }

    /// Waits until the folder has changed, there is an item of a cancelled caller, or an item of
    /// class `next` can be taken.
    async fn until_changed(
        &self,
        session: &Session,
        watch: Watch,
        next: Option<i64>,
    ) -> Result<(), QueueError> {
        let now = self.now(session).await;
        let Some(now) = self.or_retry(session, now).await? else {
            return Ok(());
        };
        let clock = session.clock();
        let due = async {
            match (next, now) {
                (None, _) => std::future::pending().await,
                (Some(next), Some(now)) => {
                    let millis = u64::try_from(next.saturating_sub(now)).unwrap_or(0);
                    let wait = Duration::from_millis(millis).min(LONGEST_SLEEP);
                    clock.sleep_until(clock.now() + wait).await;
                }
                // The item came between the search and the watch.
                (Some(_), None) => {}
            }
        };
        tokio::select! {
            biased;
            // The folder has changed, or the session was lost.
            _ = watch => {}
            () = self.state.returned.notified() => {}
            () = due => {}
        }
        Ok(())
    }

    /// The names of all items in order, with those that are not due.
    pub(super) async fn names(&self) -> Result<Vec<String>, QueueError> {
        loop {
            let session = self.session().await?;
            let listed = self.list(&session).await;
            if let Some(items) = self.or_retry(&session, listed).await? {
                return Ok(items.into_iter().map(|(name, _)| name).collect());
            }
        }
    }

    /// Number of children of the folder.
    pub(super) async fn depth(&self) -> Result<usize, QueueError> {
        loop {
            let session = self.session().await?;
            let stat = session.exists(&self.path).await;
            if let Some(stat) = self.or_retry(&session, stat).await? {
                let children = stat.map_or(0, |stat| stat.num_children);
                return Ok(usize::try_from(children).unwrap_or(0));
            }
        }
    }

    /// Deletes the node of an item, whatever it holds; `false` if it was gone.
    pub(super) async fn delete(&self, name: &str) -> Result<bool, QueueError> {
        let node = baton_proto::path::join(&self.path, name);
        loop {
            let session = self.session().await?;
            let parts = vec![Op::delete(&node, None)];
            match self.apply(&session, parts).await {
                Outcome::Applied => return Ok(true),
                Outcome::NotApplied => {}
                Outcome::Refused(error) if error.is_no_node() => return Ok(false),
                Outcome::Refused(error) => return Err(self.client_error(error)),
                Outcome::Failed(error) => {
                    self.or_retry(&session, Err::<(), _>(error)).await?;
                }
                Outcome::Unknown(source) => return Err(QueueError::Unknown { node, source }),
            }
        }
    }

    /// Applies a change whole or not at all, in a task of its own, which goes on if the caller is
    /// cancelled.
    pub(super) async fn apply(&self, session: &Session, parts: Vec<Op>) -> Outcome {
        self.state.apply(session, &self.path, parts).await
    }

    #[cfg(test)]
    pub(super) fn clock(&self) -> &ServerClock {
        &self.clock
    }

    /// The server's time, by which delays are measured. It is never ahead, so no item is delivered
    /// before it is due.
    pub(super) async fn server_ms(&self) -> Result<i64, QueueError> {
        loop {
            let session = self.session().await?;
            let now = self
                .clock
                .now_ms(&session, &folder_of_receipts(&self.path))
                .await;
            if let Some(now) = self.or_retry(&session, now).await? {
                return Ok(now);
            }
        }
    }

    pub(super) async fn session(&self) -> Result<Session, QueueError> {
        if let Some(refusal) = &self.refusal {
            return Err((**refusal).clone());
        }
        self.client
            .session()
            .await
            .map_err(|source| QueueError::connect(&self.path, source))
    }

    pub(super) fn client_error(&self, source: Error) -> QueueError {
        QueueError::client(&self.path, source)
    }

    /// The result; `None` once a connection or a new session allows another attempt.
    ///
    /// # Errors
    /// An error that another attempt would meet again.
    pub(super) async fn or_retry<T>(
        &self,
        session: &Session,
        result: Result<T, Error>,
    ) -> Result<Option<T>, QueueError> {
        match result {
            Ok(done) => Ok(Some(done)),
            Err(error) => match retry::until_next_attempt(session, error).await {
                Ok(()) => Ok(None),
                Err(error) => Err(self.client_error(error)),
            },
        }
    }

    /// Makes the folder.
    pub(super) async fn make(&self, session: &Session) -> Result<(), QueueError> {
        self.refuse_others_above().await?;
        let made = ensure_parents(session, &self.path, ParentKind::Persistent).await;
        self.or_retry(session, made).await.map(drop)
    }

    /// The items in order. Other children are skipped with a warning, as in the original recipe.
    pub(super) async fn list(&self, session: &Session) -> Result<Vec<(String, Key)>, Error> {
        let children = match session.children(&self.path).await {
            Ok(children) => children.names,
            Err(error) if error.is_no_node() => {
                self.state.known().strangers = None;
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        let has_items = children.iter().any(|name| self.format.key(name).is_some());
        if has_items {
            self.state.is_own.store(true, Ordering::Relaxed);
        }
        self.state.known().strangers = Some(match has_items {
            true => Vec::new(),
            false => children.clone(),
        });
        let mut classes: BTreeMap<i64, Vec<SequentialChild>> = BTreeMap::new();
        for name in children {
            match self.format.key(&name) {
                Some(Key { class, number }) => {
                    classes.entry(class).or_default().push(SequentialChild {
                        name,
                        number,
                        czxid: None,
                    })
                }
                None => tracing::warn!(
                    queue = &*self.path,
                    child = name,
                    "not a queue item: skipped"
                ),
            }
        }
        let mut items = Vec::new();
        for (class, waiting) in classes {
            let ordered = order::arrange_with(session, &self.path, waiting).await?;
            items.extend(ordered.into_iter().map(|child| {
                let number = child.number;
                (child.name, Key { class, number })
            }));
        }
        Ok(items)
    }

    /// Refuses a folder that was just listed and whose children are another recipe's, which a
    /// reader would take for an empty queue. One that has had items of this queue is not refused:
    /// other children are skipped there.
    ///
    /// # Errors
    /// [`QueueError::Foreign`].
    pub(super) async fn refuse_others(&self) -> Result<(), QueueError> {
        if self.state.is_own.load(Ordering::Relaxed) {
            return Ok(());
        }
        let strangers = self.state.known().strangers.clone();
        let Some(strangers) = strangers else {
            return self.refuse_others_above().await;
        };
        if strangers.is_empty() {
            return Ok(());
        }
        loop {
            let session = self.session().await?;
            let data = match session.get_data(&self.path).await {
                Ok(read) => read.data,
                Err(error) if error.is_no_node() => return Ok(()),
                Err(error) => {
                    self.or_retry(&session, Err::<(), _>(error)).await?;
                    continue;
                }
            };
            return self.refuse_marks(&self.path, &data, &strangers);
        }
    }

    /// Refuses the first offer of a handle to a folder that is another recipe's.
    async fn refuse_offer_to_others(&self) -> Result<(), QueueError> {
        if self.state.is_own.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.refuse_if_others(&self.path).await?;
        self.state.is_own.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The same for the queue's own path, where the folder below it is missing.
    async fn refuse_others_above(&self) -> Result<(), QueueError> {
        match &self.above {
            Some(above) => self.refuse_if_others(above).await,
            None => Ok(()),
        }
    }

    /// Reads the folder at `path`, and refuses one that is another recipe's.
    async fn refuse_if_others(&self, path: &str) -> Result<(), QueueError> {
        loop {
            let session = self.session().await?;
            let marks = FolderMarks::read(&session, path).await;
            if let Some(FolderMarks { data, names }) = self.or_retry(&session, marks).await? {
                return self.refuse_marks(path, &data, &names);
            }
        }
    }

    fn refuse_marks(&self, path: &str, data: &[u8], names: &[String]) -> Result<(), QueueError> {
        if names.iter().any(|name| self.format.key(name).is_some()) && path == self.path() {
            return Ok(());
        }
        let what = match names.iter().find_map(|name| QueueLayout::of_item(name)) {
            Some(layout) => format!("a queue in the layout {layout}"),
            None => match Kind::of_folder(data, names) {
                Some(Kind::LockingQueue) if self.above.is_some() => return Ok(()),
                Some(kind) => kind.to_string(),
                None => return Ok(()),
            },
        };
        Err(QueueError::Foreign {
            path: path.to_owned(),
            what,
        })
    }

    /// The server's time where the format needs it.
    async fn now(&self, session: &Session) -> Result<Option<i64>, Error> {
        if self.format != QueueKind::CuratorDelay {
            return Ok(None);
        }
        let dir = folder_of_receipts(&self.path);
        self.clock.now_ms(session, &dir).await.map(Some)
    }

    /// The names of the items that can be taken now, in order.
    async fn due(&self, session: &Session) -> Result<Vec<String>, Error> {
        let mut items = self.list(session).await?;
        if !items.is_empty()
            && let Some(now) = self.now(session).await?
        {
            items.retain(|(_, key)| key.class <= now);
        }
        Ok(items.into_iter().map(|(name, _)| name).collect())
    }

    /// Takes the first item that can be taken now, and collects those that cannot be read.
    async fn search(&self) -> Result<SearchOutcome<Item>, QueueError> {
        let mut unreadable = HashMap::new();
        if !self.format.is_fifo() {
            // A newer item may come first.
            self.state.known().heads.clear();
        }
        loop {
            let returned = self.state.known().returned.pop_front();
            if let Some(returned) = returned {
                return self.certain(returned).map(SearchOutcome::Item);
            }
            let session = self.session().await?;
            let head = self.state.known().heads.pop_front();
            let Some(name) = head else {
                let listed = self.due(&session).await;
                if let Some(mut names) = self.or_retry(&session, listed).await? {
                    names.retain(|name| !unreadable.contains_key(name));
                    if names.is_empty() {
                        return Ok(SearchOutcome::Nothing(unreadable));
                    }
                    self.state.known().heads = names.into();
                }
                continue;
            };
            let relist = RelistOnDrop(&self.state);
            let node = baton_proto::path::join(&self.path, &name);
            let read = match session.get_data(&node).await {
                Ok(read) => read,
                Err(error) if error.is_no_node() => {
                    relist.not_needed();
                    continue;
                }
                Err(error) => {
                    self.or_retry(&session, Err::<(), _>(error)).await?;
                    continue;
                }
            };
            let items = match self.format.decode(read.data) {
                Ok(items) => items,
                Err(why) => {
                    tracing::warn!(node, why, "item cannot be read: passed over, left in place");
                    unreadable.insert(name, why);
                    relist.not_needed();
                    continue;
                }
            };
            match self
                .take_from(&session, name, items, read.stat.version)
                .await?
            {
                TakeOutcome::Item(item) => {
                    relist.not_needed();
                    return Ok(SearchOutcome::Item(item));
                }
                TakeOutcome::TakenByAnother => relist.not_needed(),
                TakeOutcome::Again => {}
            }
        }
    }

    /// Takes the first of the items that were read at `version` from the node `name`; with the last
    /// of them, deletes the node.
    async fn take_from(
        &self,
        session: &Session,
        name: String,
        items: Vec<Bytes>,
        version: i32,
    ) -> Result<TakeOutcome, QueueError> {
        let node = baton_proto::path::join(&self.path, &name);
        let mut rest = items;
        let first = (!rest.is_empty()).then(|| rest.remove(0));
        let more = !rest.is_empty();
        let part = if more {
            Op::set_data(&node, self.format.encode(&rest), Some(version))
        } else {
            Op::delete(&node, Some(version))
        };
        let outcome = match &first {
            Some(data) => {
                let item = Item {
                    name: name.clone(),
                    data: data.clone(),
                };
                self.state
                    .apply_take(session, &self.path, vec![part], &item)
                    .await
            }
            // An envelope without items: no item can be lost.
            None => self.state.apply(session, &self.path, vec![part]).await,
        };
        match (outcome, first) {
            (Outcome::Applied, Some(data)) => {
                if more {
                    self.state.known().heads.push_front(name.clone());
                }
                Ok(TakeOutcome::Item(Item { name, data }))
            }
            (Outcome::Applied, None) => Ok(TakeOutcome::TakenByAnother),
            (Outcome::Refused(error), _) if error.is_no_node() => Ok(TakeOutcome::TakenByAnother),
            (Outcome::NotApplied, _) => Ok(TakeOutcome::Again),
            (Outcome::Refused(error), _) if error.is_bad_version() => Ok(TakeOutcome::Again),
            (Outcome::Refused(error), _) => Err(self.client_error(error)),
            (Outcome::Failed(error), _) => {
                self.or_retry(session, Err::<(), _>(error)).await?;
                Ok(TakeOutcome::Again)
            }
            (Outcome::Unknown(source), Some(item)) => {
                Err(QueueError::TakeUnknown { node, item, source })
            }
            (Outcome::Unknown(_), None) => Ok(TakeOutcome::Again),
        }
    }
}

/// Outcome of an attempt to take an item.
enum TakeOutcome {
    Item(Item),
    TakenByAnother,
    Again,
}

/// Returns whether a queue can be at `path`.
pub(super) fn check_path(path: &str) -> Result<(), QueueError> {
    recipe_path::check(path, "cannot be a queue").map_err(|why| QueueError::bad_path(path, why))
}
