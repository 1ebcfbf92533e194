//! The task that keeps the view equal to the tree.
//!
//! Owns the order of watching and reading. One recursive watch reports what changes; it is set
//! before anything is read, and a report arrives before any answer that shows its change. So once
//! every node that was reported has been read again, and no report came meanwhile, the view is the
//! tree as of the last answer. Must never show a state in between, nor trust that it was notified
//! of everything: after each gap in the connection the whole subtree is read and compared (H82).

use std::collections::BTreeSet;
use std::sync::Arc;

use baton_client::{
    AddWatchMode, Client, ConnectError, Error, EventKind, PersistentEvent, PersistentWatch,
    Session, State, StateStream, WithZxid, path,
};
use tokio::sync::{mpsc, oneshot};

use super::draft::ViewDraft;
use super::error::CacheError;
use super::state::{CacheState, CacheStatus};
use super::view::CachedNode;
use crate::background;
use crate::backoff::Backoff;
use crate::retry;

/// Number of reads under way at once.
const WINDOW: usize = 128;

/// After this number of rounds of reading what changed during the one before, the view is shown
/// although it is not of one instant.
const ROUNDS: u32 = 32;

/// Asks for a view not older than this instant; answered with the zxid that it is of.
pub(super) type CatchUp = oneshot::Sender<i64>;

/// Ends the cache when its task does, however it does.
struct StopOnDrop(Arc<CacheState>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Reason why an attempt came to an end.
enum FollowError {
    /// Another session goes on.
    SessionOver,
    /// The connection came back: read everything again.
    Restored,
    Refused(CacheError),
}

pub(super) async fn run(state: Arc<CacheState>, client: Client, mut asks: mpsc::Receiver<CatchUp>) {
    let _ending = StopOnDrop(Arc::clone(&state));
    let mut backoff = Backoff::default();
    let mut attempts = 0;
    let mut waiting = Vec::new();
    loop {
        let error = match client.session().await {
            Ok(session) => {
                let mut follower = Follower {
                    state: &state,
                    session: &session,
                    states: session.states(),
                    asks: &mut asks,
                    waiting: &mut waiting,
                    shown: false,
                };
                let error = follower.follow().await;
                if follower.shown {
                    backoff.reset();
                    attempts = 0;
                }
                match error {
                    FollowError::SessionOver | FollowError::Restored => {
                        interrupted(&state);
                        continue;
                    }
                    FollowError::Refused(error) => error,
                }
            }
            Err(ConnectError::Closed) => return,
            Err(source) => CacheError::connect(&state.path, source),
        };
        attempts += 1;
        let pause = backoff.pause();
        state.set_status(CacheStatus::Retrying {
            error,
            attempts,
            pause,
        });
        background::sleep(&client, pause).await;
    }
}

fn interrupted(state: &CacheState) {
    if *state.status.borrow() == CacheStatus::Live {
        state.set_status(CacheStatus::Interrupted);
    }
}

struct Follower<'a> {
    state: &'a CacheState,
    session: &'a Session,
    states: StateStream,
    asks: &'a mut mpsc::Receiver<CatchUp>,
    /// Callers that wait for the next view to be shown.
    waiting: &'a mut Vec<CatchUp>,
    /// Whether this session has shown a view.
    shown: bool,
}

type ChangedPaths = BTreeSet<Arc<str>>;

impl Follower<'_> {
    async fn follow(&mut self) -> FollowError {
        let mut watch = loop {
            let mode = AddWatchMode::PersistentRecursive;
            let watching = self.session.watch_persistent(&self.state.path, mode);
            match self.answer(watching).await {
                Ok(watch) => break watch,
                Err(FollowError::Restored) => {}
                Err(error) => return error,
            }
        };
        let mut whole = true;
        let mut dirty = ChangedPaths::new();
        loop {
            let step = async {
                whole = self.read_until_quiet(whole, &mut watch, &mut dirty).await?;
                if !whole && dirty.is_empty() {
                    whole = self.wait(&mut watch, &mut dirty).await?;
                }
                Ok(())
            };
            match step.await {
                Ok(()) => {}
                Err(FollowError::Restored) => whole = true,
                Err(error) => return error,
            }
        }
    }

    /// Reads what is dirty until nothing is, and shows it. `true` where reports were missed
    /// meanwhile: nothing is shown then.
    async fn read_until_quiet(
        &mut self,
        whole: bool,
        watch: &mut PersistentWatch,
        dirty: &mut ChangedPaths,
    ) -> Result<bool, FollowError> {
        let mut draft = ViewDraft::default();
        // Every change up to `latest` is read or dirty; every one up to `settled` is read.
        let mut latest = self.state.snapshot().as_of();
        let mut settled = latest;
        if whole || !self.waiting.is_empty() {
            // A new session may have come to a server that is behind the one before.
            let sync = self.session.sync(&self.state.path).applied();
            latest = self.answer(sync).await?.zxid;
        }
        if whole {
            dirty.clear();
            draft = ViewDraft::whole();
            latest = self.read_subtree(&mut draft).await?.max(latest);
        }
        for round in 0.. {
            if self.drain(watch, dirty) {
                return Ok(true);
            }
            if dirty.is_empty() || round == ROUNDS {
                break;
            }
            settled = latest;
            let paths: Vec<_> = std::mem::take(dirty).into_iter().collect();
            latest = self.read(&paths, &mut draft).await?.0;
        }
        let exact = dirty.is_empty();
        let as_of = if exact { latest } else { settled };
        self.state.show(draft, as_of, exact);
        self.shown = true;
        for ask in self.waiting.drain(..) {
            // Who asked may have gone.
            let _ = ask.send(as_of);
        }
        Ok(false)
    }

    /// Waits for something to do. `true` where reports were missed.
    async fn wait(
        &mut self,
        watch: &mut PersistentWatch,
        dirty: &mut ChangedPaths,
    ) -> Result<bool, FollowError> {
        loop {
            tokio::select! {
                biased;
                event = watch.next() => {
                    let event = event.map_err(|_| FollowError::SessionOver)?;
                    if self.note(event, dirty) {
                        return Ok(true);
                    }
                    if !dirty.is_empty() {
                        return Ok(false);
                    }
                }
                state = self.states.next() => self.note_state(state)?,
                Some(ask) = self.asks.recv() => {
                    self.waiting.retain(|ask| !ask.is_closed());
                    self.waiting.push(ask);
                    return Ok(false);
                }
            }
        }
    }

    fn note_state(&self, state: Option<State>) -> Result<(), FollowError> {
        if state.is_none_or(State::is_final) {
            return Err(FollowError::SessionOver);
        }
        // The state now, not the one read late: where the connection is back, everything may be
        // read and shown already.
        if !self.session.state().is_connected() {
            interrupted(self.state);
        }
        Ok(())
    }

    /// Takes what has been reported. `true` where reports were missed.
    fn drain(&self, watch: &mut PersistentWatch, dirty: &mut ChangedPaths) -> bool {
        let mut missed = false;
        while let Some(event) = watch.try_next() {
            missed |= self.note(event, dirty);
        }
        missed
    }

    fn note(&self, event: PersistentEvent, dirty: &mut ChangedPaths) -> bool {
        let PersistentEvent::Change(event) = event else {
            return true;
        };
        let mut changed = vec![&*event.path];
        // The parent's record counts its children too.
        if event.kind != EventKind::NodeDataChanged && event.path != "/" {
            changed.push(path::parent(&event.path));
        }
        for path in changed {
            if self
                .depth(path)
                .is_some_and(|depth| depth <= self.state.limits.depth)
            {
                dirty.insert(Arc::from(path));
            }
        }
        false
    }

    /// Depth below the root of the subtree.
    fn depth(&self, path: &str) -> Option<usize> {
        let root = &*self.state.path;
        let depth = |path: &str| baton_client::path::names(path).count();
        path::is_at_or_below(path, root).then(|| depth(path).saturating_sub(depth(root)))
    }

    /// Reads the whole subtree, level by level. Returns the zxid of the last answer.
    async fn read_subtree(&mut self, draft: &mut ViewDraft) -> Result<i64, FollowError> {
        let mut zxid = 0;
        let mut level = vec![Arc::clone(&self.state.path)];
        for depth in 0.. {
            let (read_at, with_children) = self.read(&level, draft).await?;
            zxid = zxid.max(read_at);
            if depth == self.state.limits.depth || with_children.is_empty() {
                break;
            }
            level = self.list(&with_children).await?;
        }
        Ok(zxid)
    }

    /// Reads nodes. Returns the zxid of the last answer, and which of the nodes have children.
    async fn read(
        &mut self,
        paths: &[Arc<str>],
        draft: &mut ViewDraft,
    ) -> Result<(i64, Vec<Arc<str>>), FollowError> {
        let mut zxid = 0;
        let mut with_children = Vec::new();
        for window in paths.chunks(WINDOW) {
            let reads: Vec<_> = window
                .iter()
                .map(|path| (path, self.session.get_data(path).applied()))
                .collect();
            for (path, read) in reads {
                match read_or_absent(self.answer_as_is(read).await) {
                    Ok((Some(data), at)) => {
                        zxid = zxid.max(at).max(data.stat.mzxid).max(data.stat.pzxid);
                        if data.stat.num_children > 0 {
                            with_children.push(Arc::clone(path));
                        }
                        let (data, stat) = (data.data, data.stat);
                        draft.put(path, Some(CachedNode { data, stat }));
                    }
                    Ok((None, at)) => {
                        zxid = zxid.max(at);
                        draft.put(path, None);
                    }
                    Err(error) if error.is_no_auth() && self.passes_over(path) => {
                        zxid = zxid.max(error.zxid().unwrap_or(0));
                        draft.refuse(path);
                    }
                    Err(error) => return Err(self.follow_error(error).await),
                }
            }
            self.state.check_size(draft).map_err(FollowError::Refused)?;
        }
        Ok((zxid, with_children))
    }

    /// The paths of the children of these nodes.
    async fn list(&mut self, parents: &[Arc<str>]) -> Result<Vec<Arc<str>>, FollowError> {
        let mut found = Vec::new();
        for window in parents.chunks(WINDOW) {
            let reads: Vec<_> = window
                .iter()
                .map(|path| (path, self.session.children(path).applied()))
                .collect();
            for (parent, read) in reads {
                match read_or_absent(self.answer_as_is(read).await) {
                    Ok((Some(children), _)) => {
                        let below = |name: &String| Arc::from(path::join(parent, name));
                        found.extend(children.names.iter().map(below));
                    }
                    // Gone meanwhile, which will be reported too.
                    Ok((None, _)) => {}
                    Err(error) if error.is_no_auth() && self.passes_over(parent) => {}
                    Err(error) => return Err(self.follow_error(error).await),
                }
            }
            if found.len() > self.state.limits.nodes {
                return Err(FollowError::Refused(self.state.too_large()));
            }
        }
        Ok(found)
    }

    /// Returns whether this node may stay unread.
    fn passes_over(&self, path: &str) -> bool {
        self.state.limits.passes_over && *path != *self.state.path
    }

    async fn answer<T>(
        &mut self,
        operation: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, FollowError> {
        match self.answer_as_is(operation).await {
            Ok(value) => Ok(value),
            Err(error) => Err(self.follow_error(error).await),
        }
    }

    /// Awaits an operation, and shows meanwhile if the connection is lost.
    async fn answer_as_is<T>(
        &mut self,
        operation: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        tokio::pin!(operation);
        loop {
            tokio::select! {
                biased;
                answer = &mut operation => return answer,
                // At the end of the session the operation ends as well.
                Some(state) = self.states.next() => drop(self.note_state(Some(state))),
            }
        }
    }

    async fn follow_error(&self, error: Error) -> FollowError {
        let source = match retry::until_retryable(self.session, error).await {
            Ok(()) => return FollowError::Restored,
            Err(_) if self.session.state().is_final() => return FollowError::SessionOver,
            Err(source) => source,
        };
        FollowError::Refused(CacheError::client(&self.state.path, source))
    }
}

/// An answer with its zxid, "no such node" being one.
fn read_or_absent<T>(answer: Result<WithZxid<T>, Error>) -> Result<(Option<T>, i64), Error> {
    match answer {
        Ok(applied) => Ok((Some(applied.value), applied.zxid)),
        Err(error) if error.is_no_node() => Ok((None, error.zxid().unwrap_or(0))),
        Err(error) => Err(error),
    }
}
