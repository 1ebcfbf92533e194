//! The spans that recipes open, for programs that record them with `tracing`.
//!
//! Owns their names and fields, which docs/operate/monitor.md lists. There is one for each step of
//! a recipe and none for a single operation of the client, so that they cost nothing that can be
//! measured; without a subscriber they are not made at all.

use tracing::field::Empty;
use tracing::{Span, info_span};

use crate::lost_reason::LostReason;

/// One acquisition, from its call to its outcome. [`granted`] adds the token.
pub(crate) fn acquire(path: &str) -> Span {
    info_span!(target: "baton", "acquire", path, token = Empty)
}

/// Span of a grant, for as long as it is held. [`lost`] adds how it ended.
pub(crate) fn hold(path: &str, token: u64, acquired_by: &Span) -> Span {
    let span = info_span!(target: "baton", "hold", path, token, lost = Empty);
    span.follows_from(acquired_by);
    span
}

/// Work that a guard drives.
pub(crate) fn run(path: &str, token: u64) -> Span {
    info_span!(target: "baton", "run", path, token)
}

/// One release, from its call until its outcome was fetched or given up.
pub(crate) fn release(path: &str, token: u64) -> Span {
    info_span!(target: "baton", "release", path, token)
}

/// One search for items to claim. [`granted`] adds the token.
pub(crate) fn claim(path: &str) -> Span {
    info_span!(target: "baton", "claim", path, token = Empty)
}

/// The settlement of one item.
pub(crate) fn settle(path: &str, token: u64) -> Span {
    info_span!(target: "baton", "settle", path, token)
}

/// One campaign, from its call to its outcome. [`granted`] adds the token.
pub(crate) fn campaign(path: &str) -> Span {
    info_span!(target: "baton", "campaign", path, token = Empty, epoch = Empty)
}

/// Notes the grant under this fencing token.
pub(crate) fn granted(span: &Span, token: u64) {
    span.record("token", token);
}

/// Notes the loss, which is not a release.
pub(crate) fn lost(span: &Span, reason: LostReason) {
    span.record("lost", tracing::field::display(reason));
}

/// The campaign has led to this term.
pub(crate) fn elected(span: &Span, epoch: u64) {
    span.record("epoch", epoch);
}
