//! The shards of a queue: folders of bounded size that hold the items. On the tree they are the
//! children of `items`.
//!
//! Owns how shards are listed and counted, which one a new item goes to, and when an empty one is
//! removed. Must never lose count of an item that moves while items are counted.

use baton_client::{CreateMode, Session};
use baton_proto::path;

use super::context::QueueContext;
use super::error::StepError;
use super::layout::{ItemName, SHARD_ITEMS, Shard};
use crate::retry;

/// Number of nodes that are read at once.
pub(super) const AT_ONCE: usize = 1000;

/// Number of items that are put into a shard before its size is read again.
const ASK_AFTER: usize = 128;

/// Time after its minute has begun at which an empty shard of delayed items is removed.
const GONE_BY_MS: i64 = 120_000;

impl QueueContext {
    /// Number of items, with those that are claimed or delayed. The count is never too small, if
    /// nobody puts an item meanwhile.
    pub(super) async fn count(&self, session: &Session) -> Result<u64, StepError> {
        let mut shards = self.shards_to_count(session).await?;
        loop {
            let asked: Vec<_> = shards
                .iter()
                .map(|(_, name)| session.exists(&self.layout.shard(name)))
                .collect();
            let mut items = 0;
            for stat in asked {
                let children = stat.await?.map_or(0, |stat| stat.num_children);
                items += u64::try_from(children).unwrap_or(0);
            }
            // Shards change each minute and with each thousandth item, so this ends.
            let again = self.shards_to_count(session).await?;
            if again == shards {
                return Ok(items);
            }
            shards = again;
        }
    }

    /// The shards in the order in which they are counted. An item that moves meanwhile moves to a
    /// shard that is counted later: from ready to delayed, or to a later due time. A shard that is
    /// new shows in the next listing.
    async fn shards_to_count(&self, session: &Session) -> Result<Vec<(Shard, String)>, StepError> {
        let mut shards = self.shards(session).await?;
        shards.sort_by_key(|(shard, _)| (matches!(shard, Shard::Later { .. }), *shard));
        Ok(shards)
    }

    /// Lists the shards.
    pub(super) async fn shards(
        &self,
        session: &Session,
    ) -> Result<Vec<(Shard, String)>, StepError> {
        let names = match session.children(&self.layout.items).await {
            Ok(children) => children.names,
            Err(error) if error.is_no_node() => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        Ok(self.known_shards(names))
    }

    /// Those of `names` that are shards; others are skipped with a warning.
    pub(super) fn known_shards(&self, names: Vec<String>) -> Vec<(Shard, String)> {
        let mut shards = Vec::with_capacity(names.len());
        for name in names {
            match Shard::parse(&name) {
                Some(shard) => shards.push((shard, name)),
                None => {
                    tracing::warn!(
                        queue = &*self.layout.root,
                        child = name,
                        "not a shard: skipped"
                    );
                }
            }
        }
        shards
    }

    /// The names of a folder's children; none where the folder does not exist.
    pub(super) async fn names(
        &self,
        session: &Session,
        folder: &str,
    ) -> Result<Vec<String>, StepError> {
        match session.children(folder).await {
            Ok(children) => Ok(children.names),
            Err(error) if error.is_no_node() => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether an item of this queue can have this path.
    pub(super) fn is_item(&self, entry: &str) -> bool {
        let shard = path::parent(entry);
        let folder = path::parent(shard);
        path::validate(entry).is_ok()
            && folder == self.layout.items
            && Shard::parse(path::name(shard)).is_some()
            && ItemName::parse(path::name(entry)).is_some()
    }

    /// The shard for a new ready item: the newest of its priority, or a new one where that is full.
    pub(super) async fn shard_for(
        &self,
        session: &Session,
        priority: u16,
    ) -> Result<String, StepError> {
        loop {
            if let Some((shard, room)) = self.known().shards.get_mut(&priority)
                && *room > 0
            {
                *room -= 1;
                return Ok(shard.clone());
            }
            let mut newest = None;
            for (shard, name) in self.shards(session).await? {
                if let Shard::Ready {
                    priority: p,
                    number,
                } = shard
                    && p == priority
                {
                    newest = newest.max(Some((number, name)));
                }
            }
            let mut found = None;
            if let Some((_, name)) = newest {
                let path = self.layout.shard(&name);
                if let Some(stat) = session.exists(&path).await? {
                    // `cversion` counts creates and deletes; the children that exist were not
                    // deleted.
                    let made = (i64::from(stat.cversion) + i64::from(stat.num_children)) / 2;
                    let made = usize::try_from(made).unwrap_or(SHARD_ITEMS);
                    found = Some((path, SHARD_ITEMS.saturating_sub(made).min(ASK_AFTER)));
                }
            }
            let shard = match found {
                Some((path, room)) if room > 0 => (path, room),
                _ => {
                    let prefix = Shard::Ready {
                        priority,
                        number: 0,
                    }
                    .name();
                    let path = self.layout.shard(&prefix);
                    match session
                        .create(&path, &[], CreateMode::PersistentSequential)
                        .await
                    {
                        Ok(created) => (created.path, ASK_AFTER),
                        // A second new shard does no harm: it is used, or it is removed once there
                        // is a newer one.
                        Err(error) if error.is_maybe_applied() => {
                            if retry::until_connected(session).await {
                                continue;
                            }
                            return Err(error.into());
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
            };
            self.known().shards.insert(priority, shard);
        }
    }

    /// Removes a shard in the background if no item will be put into it any more. The server
    /// refuses if it is not empty.
    pub(super) fn remove_finished(
        &self,
        session: &Session,
        shard: Shard,
        path: &str,
        shards: &[(Shard, String)],
        now_ms: Option<i64>,
    ) {
        let done = match shard {
            Shard::Ready { priority, number } => shards.iter().any(|(other, _)| {
                matches!(other, Shard::Ready { priority: p, number: n } if *p == priority && *n > number)
            }),
            Shard::Later { .. } => {
                let over = shard.begins_ms().saturating_add(GONE_BY_MS);
                now_ms.is_some_and(|now_ms| over < now_ms)
            }
        };
        if done {
            drop(session.delete(path, None));
        }
    }
}
