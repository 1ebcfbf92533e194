//! A queue whose layout has lost a node, because somebody deleted it by hand: what is made again,
//! and what is only named.
//!
//! Owns the rule of what may be made again without a word. Each repair is one multi that also
//! writes the queue's own node, so that whatever another process read before it fails on the
//! version of that node: numbers below a folder that was made anew begin anew (H09). Must never say
//! of a queue that it is whole when it is not, nor take an id for free that an item may have.

use super::WorkQueue;
use super::capacity::Count;
use super::context::{Agreed, Fault, Inner};
use super::error::WorkError;
use super::take::Idling;
use crate::retry;
use baton_client::{CreateMode, Error, Op, Session};

impl WorkQueue {
    /// Makes again what somebody has deleted of the queue's layout, and returns the paths of the
    /// nodes that it made; none where the queue is whole, or where there is no queue.
    ///
    /// Offers and consumers do the same by themselves, with one exception: while there are items or
    /// dead letters, only this call makes the node of the ids again. It cannot know which ids they
    /// have, so another item with such an id can then be put.
    ///
    /// # Errors
    /// [`WorkError`].
    pub async fn repair(&self) -> Result<Vec<String>, WorkError> {
        let inner = &self.inner;
        loop {
            let session = inner.session().await?;
            let repair = async {
                session.sync(&inner.layout.root).await?;
                let Some(agreed) = inner.read_terms(&session).await? else {
                    return Ok(Some(Vec::new()));
                };
                let missing = inner.missing(&session).await?;
                if missing.is_empty() {
                    return Ok(Some(Vec::new()));
                }
                let made = inner.make_again(&session, agreed, &missing).await?;
                let paths = missing.into_iter().map(str::to_owned).collect();
                Ok(made.then_some(paths))
            };
            match repair.await {
                Ok(Some(made)) => return Ok(made),
                Ok(None) => {}
                Err(fault) => inner.after(&session, fault).await?,
            }
        }
    }
}

impl Inner {
    /// The nodes of the layout that are not there. Those that come and go by themselves are none of
    /// them.
    async fn missing(&self, session: &Session) -> Result<Vec<&str>, Error> {
        let layout = &self.layout;
        let nodes = [&layout.items, &layout.dead, &layout.ids, &layout.gate];
        let asked = nodes.map(|path| (path.as_str(), session.exists(path)));
        let mut missing = Vec::new();
        for (path, stat) in asked {
            if stat.await?.is_none() {
                missing.push(path);
            }
        }
        Ok(missing)
    }

    pub(super) fn damaged(&self, node: &str) -> Fault {
        WorkError::Damaged {
            path: self.path(),
            node: node.to_owned(),
        }
        .into()
    }

    /// Refuses to tell what is in a queue that has lost a node; `false` where the queue itself is
    /// gone.
    pub(super) async fn whole(&self, session: &Session, agreed: Agreed) -> Result<bool, Fault> {
        let mut missing = self.missing(session).await?;
        if agreed.terms.capacity.is_none() {
            // Nobody looks at the count of a queue without a limit.
            missing.retain(|node| *node != self.layout.gate);
        }
        match missing.first() {
            None => Ok(true),
            Some(_) if self.read_terms(session).await?.is_none() => Ok(false),
            Some(node) => Err(self.damaged(node)),
        }
    }

    /// Refuses to tell what is below a node of the layout that is missing, unless there is no queue
    /// at all.
    pub(super) async fn has(&self, session: &Session, node: &str) -> Result<(), Fault> {
        if session.exists(node).await?.is_none() && self.read_terms(session).await?.is_some() {
            return Err(self.damaged(node));
        }
        Ok(())
    }

    /// After a node was found missing: makes again what may be made again. `true` where the caller
    /// is to try once more, `false` where nothing of the layout is missing.
    pub(super) async fn mend(&self, session: &Session) -> Result<bool, Fault> {
        let known = {
            let mut local = self.local();
            local.lanes.clear();
            local.ahead.clear();
            local.agreed.take()
        };
        let Some(agreed) = self.read_terms(session).await? else {
            // The whole queue was deleted: whoever needs it makes it anew.
            return Ok(known.is_some());
        };
        let others = known.is_some_and(|known| known.version != agreed.version);
        let mut missing = self.missing(session).await?;
        let ids = missing.iter().position(|node| *node == self.layout.ids);
        if let Some(at) = ids
            && !self.nobody_has_an_id(session).await?
        {
            missing.remove(at);
        }
        if !missing.is_empty() {
            self.make_again(session, agreed, &missing).await?;
            return Ok(true);
        }
        match (others, ids) {
            // Another process was quicker.
            (true, _) => Ok(true),
            (false, Some(_)) => Err(self.damaged(&self.layout.ids)),
            (false, None) => Ok(false),
        }
    }

    /// Makes these nodes, all or none; `false` where the queue has changed meanwhile, or the answer
    /// was lost.
    async fn make_again(
        &self,
        session: &Session,
        agreed: Agreed,
        missing: &[&str],
    ) -> Result<bool, Fault> {
        let data = agreed.terms.to_bytes();
        let mut parts = vec![Op::set_data(&*self.layout.root, data, Some(agreed.version))];
        parts.extend(missing.iter().map(|node| {
            let data = if *node == self.layout.gate {
                // Whoever puts next counts.
                Count::unknown()
            } else {
                Vec::new()
            };
            Op::create(*node, data, CreateMode::Persistent)
        }));
        self.local().agreed = None;
        match session.multi(&parts).await {
            Ok(_) => {
                tracing::warn!(
                    queue = &*self.layout.root,
                    nodes = missing.join(" "),
                    "nodes of the queue's layout had been deleted: made again"
                );
                Ok(true)
            }
            Err(error)
                if error.is_bad_version() || error.is_node_exists() || error.is_no_node() =>
            {
                Ok(false)
            }
            Err(error) if error.is_maybe_applied() && retry::until_connected(session).await => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether there is neither an item nor a dead letter. An item that moves to the dead letters
    /// meanwhile is seen there.
    async fn nobody_has_an_id(&self, session: &Session) -> Result<bool, Fault> {
        let dead = async || -> Result<bool, Error> {
            let stat = session.exists(&self.layout.dead).await?;
            Ok(stat.is_some_and(|stat| stat.num_children > 0))
        };
        Ok(!dead().await? && self.count(session).await? == 0 && !dead().await?)
    }

    /// Waits while the folder of items is not there. Whoever puts something makes it again; whoever
    /// only waits does not, because it would make it under the hands of somebody who is deleting
    /// the queue.
    pub(super) async fn until_items(&self, session: &Session) -> Result<(), Fault> {
        let _idling = Idling::new(self);
        let (stat, made) = session.exists_watch(&self.layout.items).await?;
        if stat.is_none() {
            tracing::warn!(
                queue = &*self.layout.root,
                "the queue's items were deleted: waiting for somebody to put one"
            );
            tokio::select! {
                biased;
                // Made, or the connection lost: the next look tells.
                _ = made => {}
                // Another of this process has claimed something.
                () = self.handed.notified() => {}
            }
        }
        Ok(())
    }
}
