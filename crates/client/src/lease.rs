//! Lease of a session, the time for which it is known to live: its arithmetic
//! (`docs/internals/hazards.md` §2.8).
//!
//! Owns which evidence counts, and for how long. It must never count a received byte as evidence
//! (`H27`), only the instant at which a request was *sent* that was later answered; and never read
//! a clock: instants come from the caller.
//!
//! The leader ends a session no earlier than `T`, the session timeout, after it has counted a
//! request of ours. So every rule finds an instant `p`, the send instant of a request that the
//! leader has certainly counted, and the lease ends at `p + T`:
//! - *An answer of Baton's server that stands alone*: it means that the leader has counted the
//!   request. `p` is when the request was sent.
//! - *An answer to a ping, a write or a sync of Baton's ensemble*: the leader has counted the
//!   request and then asked a majority whether it still leads, or a majority has the write. `p` is
//!   when the request was sent. A leader elected later was elected after that, and gives each
//!   session its full timeout. Reads are answered by one server by itself, and prove nothing.
//! - *Two acknowledged writes, on any ensemble*: the server that we are connected to counts our
//!   requests by itself, and reports them when its leader pings it, each `tick/2`. A first write,
//!   sent at `S1`, came back behind a ping that the leader had sent after `S1 − tick/2`. So before
//!   its answer reached us, our server had reported all that it had **answered to us** by
//!   `S1 − tick/2`. A second write, sent after that answer, reached the leader behind the report:
//!   once it is acknowledged, the leader has counted them. `p` is the newest of them. However long
//!   a message takes on any link, this holds. A leader elected later starts its clocks after the
//!   second write, hence later than `p`.
//! - *An answer to anything, on an ensemble whose timing is stated*: our server goes on without its
//!   leader for `syncLimit` ticks, and where the two directions of their link fail one after the
//!   other, for twice as long. `p` is the newest request that had been answered `2·syncLimit + 2`
//!   ticks before the answered one was sent.
//!
//! The bound on the clocks' rates and the slack of [`LeaseOptions`] shorten each of them. `model`
//! checks the rules.

mod book;
#[cfg(test)]
mod model;
mod options;

pub(crate) use book::{AnswerKind, CountedAnswers, Evidence, LeaseBook, WriteProof};
pub use options::{LeaseMode, LeaseOptions};
