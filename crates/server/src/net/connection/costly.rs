//! Requests of a connection that cost more than their bytes: reads that are answered in slices, and
//! multis that are refused because of their size.

use std::sync::atomic::Ordering::Relaxed;

use baton_proto::{OpCode, Request};
use baton_tree::{Identity, MultiBounds};

use super::exchange::{Exchange, WaitReason};
use crate::connections::conn::CloseReason;
use crate::read::sliced::{SliceOutcome, SliceSource};
use crate::report::notice::Notice;
use crate::stats::requests::Tally;
use crate::watch::access::WatchAccess;

impl Exchange {
    /// Does the next slice of the request that is answered in slices. Returns what is needed before
    /// anything else is done: [`WaitReason::Input`] if the request has been answered.
    pub(super) fn next_slice(
        &mut self,
        identity: &Identity,
        tally: &mut Tally,
    ) -> Option<WaitReason> {
        let sliced = self.sliced.as_mut()?;
        let state = &self.state;
        let tree = state.tree.read();
        // The events up to the state that the slice shows go first.
        let taken = self.conn.take(self.replies.out(), usize::MAX);
        let source = SliceSource {
            tree: &tree,
            state,
            conn: &self.conn,
            identity,
        };
        let before = self.replies.len();
        let mut watches = WatchAccess::Lock(&state.watches);
        let (steps, progress) = match taken.closing {
            None => sliced.slice(&source, &mut watches, self.replies.out()),
            Some(_) => (0, SliceOutcome::More),
        };
        drop(tree);
        state.stats.steps_under_lock(steps);
        let bytes = self.replies.len() - before;
        self.unanswered.answered(taken);
        if taken.closing.is_some() {
            return Some(WaitReason::Room);
        }
        self.turn.count(bytes);
        if progress != SliceOutcome::More {
            self.sliced = None;
            tally.answer(bytes);
        }
        if progress == SliceOutcome::Close {
            self.close_after = Some(CloseReason::BadRequest);
        }
        let is_over = self.turn.is_over(self.state.time.now());
        match progress {
            SliceOutcome::More => is_over.then_some(WaitReason::Turn),
            _ => Some(WaitReason::Input),
        }
    }

    /// Whether a multi has more operations than one may have. Says so in the log.
    pub(super) fn is_over_bounds(&self, body: &[u8], identity: &Identity) -> bool {
        if !MultiBounds::could_be_exceeded(body.len(), identity) {
            return false;
        }
        let request = Request::decode(OpCode::Multi, body, &self.state.limits);
        let operations = match &request {
            Ok(Request::Multi(operations)) => operations.len(),
            _ => return false,
        };
        if MultiBounds::admit(operations, identity) {
            return false;
        }
        self.state.stats.large_requests.fetch_add(1, Relaxed);
        self.state.notice(
            Notice::LargeRequest,
            Some(&self.conn.peer),
            format_args!(
                "refused a multi of {operations} operations by a client of {} names: the limits are {} operations, and {} of both multiplied; use fewer",
                identity.ids().len(),
                MultiBounds::OPERATIONS,
                MultiBounds::CHECKS,
            ),
        );
        true
    }
}
