//! State that the clones of one queue handle share, and the tasks that go on when their caller is
//! cancelled.
//!
//! Owns the takes under way, and the items that they took for cancelled callers. Must never lose an
//! item that was deleted from the tree (H65).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use baton_client::{Error, Op, Session};
use bytes::Bytes;
use tokio::sync::{Notify, oneshot};

use crate::receipt::{self, Outcome, Receipts};

/// An item that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// The name that its node had.
    pub name: String,
    pub data: Bytes,
}

/// State that the clones of one handle share.
#[derive(Debug, Default)]
pub(super) struct FolderState {
    receipts: Arc<Receipts>,
    known: Mutex<KnownItems>,
    pub(super) returned: Notify,
    /// Number of takes under way. `take_ended` is notified at the end of each.
    takes_under_way: AtomicUsize,
    take_ended: Notify,
    /// Whether the folder is this queue's: it had items, or an offer has found nothing else there.
    pub(super) is_own: AtomicBool,
}

/// An item that was taken from the tree for a cancelled caller.
#[derive(Clone, Debug)]
pub(super) struct ReturnedItem {
    pub item: Item,
    /// Reason why it is unknown whether the item was taken; it may still be in the tree.
    pub doubt: Option<Error>,
}

#[derive(Debug, Default)]
pub(super) struct KnownItems {
    pub returned: VecDeque<ReturnedItem>,
    /// The first names of the queue as it was listed last. In a first-in-first-out queue, items
    /// that are offered later come behind them.
    pub heads: VecDeque<String>,
    /// The children as they were listed last, where none of them is an item; `None` where there was
    /// no folder.
    pub strangers: Option<Vec<String>>,
}

impl FolderState {
    pub(super) fn known(&self) -> MutexGuard<'_, KnownItems> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a change in a task of its own, which goes on if the caller is cancelled.
    pub(super) async fn apply(
        &self,
        session: &Session,
        queue: &Arc<str>,
        parts: Vec<Op>,
    ) -> Outcome {
        self.receipts.apply(session, queue, parts).await
    }

    /// Applies the change that takes `item`. If the caller is cancelled meanwhile, the next caller
    /// gets the item.
    pub(super) async fn apply_take(
        self: &Arc<Self>,
        session: &Session,
        queue: &Arc<str>,
        parts: Vec<Op>,
        item: &Item,
    ) -> Outcome {
        let runtime = session.runtime();
        let (state, session, path) = (Arc::clone(self), session.clone(), Arc::clone(queue));
        let (report, reported) = oneshot::channel();
        let taken = item.clone();
        self.takes_under_way.fetch_add(1, Ordering::AcqRel);
        let under_way = RunningTake(Arc::clone(self));
        runtime.spawn(async move {
            let outcome = state.receipts.change(&session, &path, parts).await;
            if let Err((outcome, taken)) = report.send((outcome, taken)) {
                state.keep_for_next_caller(outcome, taken);
            }
            drop(under_way);
        });
        let mut waiting = WaitingCaller {
            state: self,
            reported,
        };
        match (&mut waiting.reported).await {
            Ok((outcome, _)) => outcome,
            Err(_) => Outcome::Unknown(receipt::task_gone(queue)),
        }
    }

    /// An item that was taken for a cancelled caller; `None` once no take is under way any more.
    pub(super) async fn recover(&self) -> Option<ReturnedItem> {
        loop {
            let mut take_ended = std::pin::pin!(self.take_ended.notified());
            take_ended.as_mut().enable();
            if let Some(returned) = self.known().returned.pop_front() {
                return Some(returned);
            }
            if self.takes_under_way.load(Ordering::Acquire) == 0 {
                return None;
            }
            take_ended.await;
        }
    }

    /// The caller of a take was cancelled: keeps the item for the next caller if it was taken, or
    /// if that is unknown.
    fn keep_for_next_caller(&self, outcome: Outcome, item: Item) {
        let doubt = match outcome {
            Outcome::Applied => None,
            Outcome::Unknown(error) => {
                tracing::warn!(%error, item = item.name, "outcome of a take is unknown and its caller is gone; reported to the next caller");
                Some(error)
            }
            _ => return,
        };
        self.known()
            .returned
            .push_back(ReturnedItem { item, doubt });
        self.returned.notify_one();
    }
}

/// A take whose task runs.
struct RunningTake(Arc<FolderState>);

impl Drop for RunningTake {
    fn drop(&mut self) {
        self.0.takes_under_way.fetch_sub(1, Ordering::AcqRel);
        self.0.take_ended.notify_waiters();
    }
}

/// A caller that waits for the outcome of its take. It may be dropped after the outcome was sent
/// and before it was received.
struct WaitingCaller<'a> {
    state: &'a FolderState,
    reported: oneshot::Receiver<(Outcome, Item)>,
}

impl Drop for WaitingCaller<'_> {
    fn drop(&mut self) {
        self.reported.close();
        if let Ok((outcome, item)) = self.reported.try_recv() {
            self.state.keep_for_next_caller(outcome, item);
        }
    }
}

/// Forgets the listed names when dropped. If an attempt ends early, the next one lists the queue
/// again, so that no item is passed over.
pub(super) struct RelistOnDrop<'a>(pub &'a FolderState);

impl RelistOnDrop<'_> {
    pub(super) fn not_needed(self) {
        std::mem::forget(self);
    }
}

impl Drop for RelistOnDrop<'_> {
    fn drop(&mut self) {
        self.0.known().heads.clear();
    }
}
