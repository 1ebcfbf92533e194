//! The state of a guard: whether it has ended, and how.
//!
//! Owns the one-way switch from held to ended, and who deletes the guard's nodes then: exactly one
//! of the switch itself, for a guard that was lost, and the guard's owner, for one that is released
//! or whose owner keeps the nodes. The lease is asked each time, never remembered.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use baton_client::{Session, State};
use tokio::sync::Notify;
use tracing::Span;

use crate::background;
use crate::lost_reason::LostReason;
use crate::receipt::Receipts;
use crate::spans;
use crate::wait_queue::NodeDeletion;

#[derive(Debug)]
pub(crate) struct GuardState {
    /// Does not keep the session open: the guard does.
    session: Session,
    /// The nodes of the guard: at least one.
    nodes: Vec<NodeDeletion>,
    token: u64,
    /// Resolve the outcome of transactions.
    receipts: Arc<Receipts>,
    ended: AtomicU8,
    /// Whether a loss leaves the nodes to the guard's owner.
    keeps_nodes: AtomicBool,
    /// Whether somebody has taken over deleting the nodes.
    removing: AtomicBool,
    asked_back: AtomicBool,
    changed: Notify,
    /// Open while it is held.
    hold: Mutex<Span>,
}

impl GuardState {
    pub(crate) fn new(session: &Session, nodes: Vec<NodeDeletion>, token: u64) -> Self {
        Self {
            session: session.detached(),
            nodes,
            token,
            receipts: Arc::default(),
            ended: AtomicU8::new(LostReason::HELD),
            keeps_nodes: AtomicBool::new(false),
            removing: AtomicBool::new(false),
            asked_back: AtomicBool::new(false),
            changed: Notify::new(),
            hold: Mutex::new(Span::none()),
        }
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// The first of the nodes.
    pub(crate) fn path(&self) -> &str {
        self.nodes.first().map_or("", NodeDeletion::path)
    }

    /// The paths of the nodes.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(NodeDeletion::path)
    }

    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    pub(super) fn receipts(&self) -> &Arc<Receipts> {
        &self.receipts
    }

    pub(super) fn ask_back(&self) {
        self.asked_back.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    pub(super) fn is_asked_back(&self) -> bool {
        self.asked_back.load(Ordering::Acquire)
    }

    /// Ends the guard for `reason`, unless it has ended already.
    pub(crate) fn end(&self, reason: LostReason) {
        let _ = self.end_and_see(reason);
    }

    /// Ends the guard; an error where it had ended before.
    pub(super) fn end_and_see(&self, reason: LostReason) -> Result<(), LostReason> {
        self.check()?;
        self.set(reason)
    }

    fn set(&self, reason: LostReason) -> Result<(), LostReason> {
        let switched = self.ended.compare_exchange(
            LostReason::HELD,
            reason.code(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        match switched {
            Ok(_) => {
                self.end_hold(reason);
                self.changed.notify_waiters();
                self.give_away(reason);
                Ok(())
            }
            Err(before) => Err(LostReason::from_code(before).unwrap_or(LostReason::SessionLost)),
        }
    }

    /// Notes that the acquire that `acquiring` describes has led to this guard: from here on it is
    /// held.
    pub(crate) fn begin_hold(&self, acquiring: &Span) {
        let span = spans::hold(self.path(), self.token, acquiring);
        if span.is_disabled() {
            return;
        }
        *self.hold() = span;
        // It may have ended meanwhile.
        if let Some(reason) = LostReason::from_code(self.ended.load(Ordering::Acquire)) {
            self.end_hold(reason);
        }
    }

    fn end_hold(&self, reason: LostReason) {
        let span = std::mem::replace(&mut *self.hold(), Span::none());
        if reason != LostReason::Released {
            spans::lost(&span, reason);
        }
    }

    fn hold(&self) -> std::sync::MutexGuard<'_, Span> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on a loss leaves the nodes to the guard's owner.
    pub(crate) fn keep_nodes(&self) {
        self.keeps_nodes.store(true, Ordering::Release);
    }

    /// Returns whether it is the caller's to delete the nodes: of all who ask, the first.
    pub(crate) fn take_over_removal(&self) -> bool {
        !self.removing.swap(true, Ordering::AcqRel)
    }

    /// Deletes the nodes of a guard that was lost while its session may live: nobody else would,
    /// and nobody else would ever be granted. Without a release marker: what was held was not
    /// released in order.
    fn give_away(&self, reason: LostReason) {
        let left = match reason {
            LostReason::LeaseEnded => !self.keeps_nodes.load(Ordering::Acquire),
            // All but the node that is gone.
            LostReason::NodeGone => {
                self.nodes.len() > 1 && !self.keeps_nodes.load(Ordering::Acquire)
            }
            LostReason::NotAlive => true,
            // The owner deletes what it has released; the end of the session deletes all.
            LostReason::Released | LostReason::SessionLost | LostReason::ClaimTimedOut => false,
        };
        let deletes = left && self.take_over_removal();
        // A session that this process has closed took its guards with it; a single node that is
        // gone is news of its deletion.
        let is_news = match reason {
            LostReason::SessionLost => self.session.state() != State::Closed,
            LostReason::LeaseEnded | LostReason::NotAlive => true,
            LostReason::NodeGone => deletes,
            LostReason::Released | LostReason::ClaimTimedOut => false,
        };
        if is_news {
            tracing::warn!(
                path = self.path(),
                token = self.token,
                session = format_args!("0x{:x}", self.session.id()),
                %reason,
                deletes_nodes = deletes,
                "guard lost"
            );
        }
        if !deletes {
            return;
        }
        for node in &self.nodes {
            drop(node.begin(&self.session));
        }
    }

    pub(crate) fn check(&self) -> Result<(), LostReason> {
        if let Some(reason) = LostReason::from_code(self.ended.load(Ordering::Acquire)) {
            return Err(reason);
        }
        if self.session.lease().remaining().is_zero() {
            let reason = if self.session.state().is_final() {
                LostReason::SessionLost
            } else {
                LostReason::LeaseEnded
            };
            return self.set(reason).and(Err(reason));
        }
        Ok(())
    }

    pub(crate) fn remaining(&self) -> Duration {
        match self.check() {
            Ok(()) => self.session.lease().remaining(),
            Err(_) => Duration::ZERO,
        }
    }

    pub(crate) async fn ended(&self) -> LostReason {
        self.until(|| self.check().err()).await
    }

    /// Resolves when somebody asks for the lock back, or the guard has ended.
    pub(super) async fn asked_back(&self) -> Result<(), LostReason> {
        self.until(|| match self.check() {
            Ok(()) => self.is_asked_back().then_some(Ok(())),
            Err(reason) => Some(Err(reason)),
        })
        .await
    }

    async fn until<T>(&self, seen_now: impl Fn() -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(seen) = seen_now() {
                return seen;
            }
            // The lease moves on while servers answer, so its end is computed again, not waited for
            // once.
            let lease = self.session.lease().remaining();
            background::timeout(&self.session, lease, changed).await;
        }
    }
}
