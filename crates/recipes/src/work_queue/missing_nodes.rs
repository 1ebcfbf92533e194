//! Nodes of a queue's layout that are missing, because somebody deleted them by hand.
//!
//! Owns the rule of which nodes are made again automatically, and which are only reported. Each
//! repair is one multi that also writes the queue's own node. A change of another process that
//! rests on an earlier read then fails on the version of that node: the numbers below a folder that
//! was made again begin at 0 (H09). Must never report a damaged queue as complete, nor treat an id
//! as free that an item may have.

use baton_client::{CreateMode, Error, Op, Session};

use super::capacity_counter::CapacityCounter;
use super::context::{AgreedTerms, QueueContext};
use super::error::{StepError, WorkError};
use crate::retry;

impl QueueContext {
    /// The nodes of the layout that do not exist. Nodes that the queue itself makes and deletes
    /// while it is used are not counted.
    pub(super) async fn missing(&self, session: &Session) -> Result<Vec<&str>, Error> {
        let layout = &self.layout;
        let nodes = [&layout.items, &layout.dead, &layout.ids, &layout.counter];
        let asked = nodes.map(|path| (path.as_str(), session.exists(path)));
        let mut missing = Vec::new();
        for (path, stat) in asked {
            if stat.await?.is_none() {
                missing.push(path);
            }
        }
        Ok(missing)
    }

    pub(super) fn damaged(&self, node: &str) -> StepError {
        WorkError::Damaged {
            path: self.path(),
            node: node.to_owned(),
        }
        .into()
    }

    /// Checks that no node of the layout is missing; `false` where the queue itself is gone.
    ///
    /// # Errors
    /// [`WorkError::Damaged`].
    pub(super) async fn check_whole(
        &self,
        session: &Session,
        agreed: AgreedTerms,
    ) -> Result<bool, StepError> {
        let mut missing = self.missing(session).await?;
        if agreed.terms.capacity.is_none() {
            // Nobody reads the counter of a queue without a limit.
            missing.retain(|node| *node != self.layout.counter);
        }
        match missing.first() {
            None => Ok(true),
            Some(_) if self.read_terms(session).await?.is_none() => Ok(false),
            Some(node) => Err(self.damaged(node)),
        }
    }

    /// Checks that one node of the layout exists, or that there is no queue at all.
    ///
    /// # Errors
    /// [`WorkError::Damaged`].
    pub(super) async fn check_node(&self, session: &Session, node: &str) -> Result<(), StepError> {
        if session.exists(node).await?.is_none() && self.read_terms(session).await?.is_some() {
            return Err(self.damaged(node));
        }
        Ok(())
    }

    /// Makes missing nodes of the layout again where that is safe. `true` where the caller should
    /// try again, `false` where no node of the layout is missing.
    pub(super) async fn repair_missing(&self, session: &Session) -> Result<bool, StepError> {
        let known = {
            let mut known = self.known();
            known.shards.clear();
            known.read_ahead.clear();
            known.agreed.take()
        };
        let Some(agreed) = self.read_terms(session).await? else {
            // The whole queue was deleted: the next attempt makes it again.
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
            // Another process has repaired it.
            (true, _) => Ok(true),
            (false, Some(_)) => Err(self.damaged(&self.layout.ids)),
            (false, None) => Ok(false),
        }
    }

    /// Makes these nodes, all or none; `false` where the queue has changed meanwhile, or the
    /// outcome is unknown.
    pub(super) async fn make_again(
        &self,
        session: &Session,
        agreed: AgreedTerms,
        missing: &[&str],
    ) -> Result<bool, StepError> {
        let data = agreed.terms.to_bytes();
        let mut parts = vec![Op::set_data(&*self.layout.root, data, Some(agreed.version))];
        parts.extend(missing.iter().map(|node| {
            let data = if *node == self.layout.counter {
                // The next put counts the items.
                CapacityCounter::unknown()
            } else {
                Vec::new()
            };
            Op::create(*node, data, CreateMode::Persistent)
        }));
        self.known().agreed = None;
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

    /// Returns whether there is neither an item nor a dead letter. The dead letters are read before
    /// and after the items, because an item may move to them meanwhile.
    async fn nobody_has_an_id(&self, session: &Session) -> Result<bool, StepError> {
        let dead = async || -> Result<bool, Error> {
            let stat = session.exists(&self.layout.dead).await?;
            Ok(stat.is_some_and(|stat| stat.num_children > 0))
        };
        Ok(!dead().await? && self.count(session).await? == 0 && !dead().await?)
    }
}
