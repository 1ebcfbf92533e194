//! The capacity of a bounded queue.
//!
//! Owns the promise that puts never take the queue over its capacity. Each put to a bounded queue
//! is one multi that also raises the capacity counter, conditioned on the version that the count
//! was read at. So puts have an order, and each sees what those before it added.

use baton_client::{Op, Session};

use super::capacity_counter::{CapacityCounter, LockedCounter};
use super::context::{QueueContext, Terms};
use super::error::{StepError, WorkError};
use super::queue::{NO_CAPACITY, WorkQueue};
use crate::retry;

impl WorkQueue {
    /// Changes the capacity agreed in the tree; `None`: no limit. Items that are in the queue stay,
    /// even if they are more.
    ///
    /// # Errors
    /// [`WorkError::BadOption`] for 0; else [`WorkError`].
    pub async fn set_capacity(&self, capacity: Option<u64>) -> Result<(), WorkError> {
        let context = &self.context;
        if capacity == Some(0) {
            return Err(context.bad_option("capacity", 0, NO_CAPACITY));
        }
        loop {
            let session = context.session().await?;
            context.known().agreed = None;
            let set = async {
                let agreed = context.agreed(&session, None).await?;
                if agreed.terms.capacity == capacity {
                    return Ok(());
                }
                let data = Terms::new(capacity).to_bytes();
                // While there was no limit nobody raised the counter. A counter above any capacity
                // makes the next put count the items.
                let parts = [
                    Op::set_data(&*context.layout.root, data, Some(agreed.version)),
                    Op::set_data(&*context.layout.counter, CapacityCounter::unknown(), None),
                ];
                context.known().agreed = None;
                session.multi(&parts).await?;
                Ok(())
            };
            match set.await {
                Ok(()) => return Ok(()),
                // The next round reads the terms, and sets them again where that is needed.
                Err(StepError::Client(error))
                    if error.is_bad_version()
                        || (error.is_maybe_applied() && retry::until_connected(&session).await) => {
                }
                Err(error) => context.await_retry(&session, error).await?,
            }
        }
    }
}

impl QueueContext {
    /// Makes room for `more` items under `capacity`: the counter that a put of them leaves, and the
    /// parts of the put that raise it. `locked` forgets the counter, which is unknown until the
    /// put's outcome is known.
    ///
    /// # Errors
    /// [`WorkError::Full`] where there is no room.
    pub(super) async fn reserve(
        &self,
        session: &Session,
        locked: &mut LockedCounter,
        more: u64,
        capacity: u64,
    ) -> Result<(CapacityCounter, Vec<Op>), StepError> {
        let counter = self.room(session, locked.take(), more, capacity).await?;
        Ok(counter.raise(&self.layout.counter, more))
    }

    /// A counter that leaves room for `more` items under `capacity`. `known` is the counter as this
    /// process wrote it last.
    ///
    /// # Errors
    /// [`WorkError::Full`] where there is no room.
    async fn room(
        &self,
        session: &Session,
        known: Option<CapacityCounter>,
        more: u64,
        capacity: u64,
    ) -> Result<CapacityCounter, StepError> {
        let fits = |items: u64| items.saturating_add(more) <= capacity;
        if let Some(counter) = known
            && fits(counter.items)
        {
            return Ok(counter);
        }
        let read = session.get_data(&self.layout.counter).await?;
        let version = read.stat.version;
        if let Some(items) = CapacityCounter::items_in(&read.data)
            && fits(items)
        {
            return Ok(CapacityCounter { version, items });
        }
        // Counted after the counter's version was read: a put in between raises that version, so
        // the count can only be too large.
        let items = self.count(session).await?;
        if fits(items) {
            Ok(CapacityCounter { version, items })
        } else {
            Err(WorkError::Full {
                path: self.path(),
                capacity,
            }
            .into())
        }
    }
}
