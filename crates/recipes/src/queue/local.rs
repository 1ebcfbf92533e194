//! What one process knows of a queue, and the tasks that go on when their caller does not.
//!
//! Owns the changes under way and the items that they brought for callers who had gone by then.
//! Must never drop an item that was deleted from the tree (H65).

use crate::receipt::{self, Outcome, Receipts};
use baton_client::{Error, Op, Session};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};

/// An item that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// The name that its node had.
    pub name: String,
    pub data: Bytes,
}

/// What the clones of one handle share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    receipts: Arc<Receipts>,
    local: Mutex<Local>,
    pub(super) returned: Notify,
    /// How many claims are under way, and the news that one has ended.
    claiming: AtomicUsize,
    claimed: Notify,
}

/// An item taken from the tree for a caller that had gone by then.
#[derive(Clone, Debug)]
pub(super) struct Returned {
    pub item: Item,
    /// Why it is not known whether it was taken: it may still be in the tree.
    pub doubt: Option<Error>,
}

#[derive(Debug, Default)]
pub(super) struct Local {
    pub returned: VecDeque<Returned>,
    /// The head of the queue as last listed. Where items come out as they went in, later ones come
    /// behind these.
    pub heads: VecDeque<String>,
}

impl Shared {
    pub(super) fn local(&self) -> MutexGuard<'_, Local> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a change in a task of its own, which goes on if the caller goes away.
    pub(super) async fn apply(
        &self,
        session: &Session,
        queue: &Arc<str>,
        parts: Vec<Op>,
    ) -> Outcome {
        self.receipts.apply(session, queue, parts).await
    }

    /// Applies the change that takes `item`. Whoever goes away meanwhile leaves it to the next
    /// caller.
    pub(super) async fn claim(
        self: &Arc<Self>,
        session: &Session,
        queue: &Arc<str>,
        parts: Vec<Op>,
        item: &Item,
    ) -> Outcome {
        let (shared, session, path) = (Arc::clone(self), session.clone(), Arc::clone(queue));
        let (report, reported) = oneshot::channel();
        let taken = item.clone();
        self.claiming.fetch_add(1, Ordering::AcqRel);
        let under_way = UnderWay(Arc::clone(self));
        tokio::spawn(async move {
            let outcome = shared.receipts.change(&session, &path, parts).await;
            if let Err((outcome, taken)) = report.send((outcome, taken)) {
                shared.settle_for_nobody(outcome, taken);
            }
            drop(under_way);
        });
        let mut waiting = Waiting {
            shared: self,
            reported,
        };
        match (&mut waiting.reported).await {
            Ok((outcome, _)) => outcome,
            Err(_) => Outcome::Unknown(receipt::task_gone(queue)),
        }
    }

    /// What a claim has brought whose caller had gone, once no claim is under way any more.
    pub(super) async fn recover(&self) -> Option<Returned> {
        loop {
            let mut claimed = std::pin::pin!(self.claimed.notified());
            claimed.as_mut().enable();
            if let Some(returned) = self.local().returned.pop_front() {
                return Some(returned);
            }
            if self.claiming.load(Ordering::Acquire) == 0 {
                return None;
            }
            claimed.await;
        }
    }

    /// The caller of a claim has gone: keeps what was taken, or perhaps taken, for the next one.
    fn settle_for_nobody(&self, outcome: Outcome, item: Item) {
        let doubt = match outcome {
            Outcome::Applied => None,
            Outcome::Unknown(error) => {
                tracing::warn!(%error, item = item.name, "item perhaps taken, and its taker gone: the next one is told");
                Some(error)
            }
            _ => return,
        };
        self.local().returned.push_back(Returned { item, doubt });
        self.returned.notify_one();
    }
}

/// A claim whose task runs.
struct UnderWay(Arc<Shared>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.claiming.fetch_sub(1, Ordering::AcqRel);
        self.0.claimed.notify_waiters();
    }
}

/// A caller that waits for the outcome of its claim, and may be dropped after it was sent and
/// before it was read.
struct Waiting<'a> {
    shared: &'a Shared,
    reported: oneshot::Receiver<(Outcome, Item)>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.reported.close();
        if let Ok((outcome, item)) = self.reported.try_recv() {
            self.shared.settle_for_nobody(outcome, item);
        }
    }
}

/// Forgets the listed heads when dropped: whatever ends an attempt early, the next one lists the
/// queue anew, so that no item is passed over.
pub(super) struct Relist<'a>(pub &'a Shared);

impl Relist<'_> {
    pub(super) fn not_needed(self) {
        std::mem::forget(self);
    }
}

impl Drop for Relist<'_> {
    fn drop(&mut self) {
        self.0.local().heads.clear();
    }
}
