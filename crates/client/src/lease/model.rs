//! The lease's rules as an executable model: every schedule of a small world, and every cut of a
//! large one.
//!
//! `world` has one client, the server that it is connected to, that server's leader, and the four
//! streams between them; the servers are ZooKeeper's or Baton's. Time goes by in quanta; between
//! two of them an adversary delivers what it likes, in the order of each stream, or holds it back
//! for ever, elects another leader, breaks the connection. The client sends what the adversary
//! wants it to send. `LeaseBook` itself is in the model. The invariant: no deadline is later than
//! the earliest instant at which a leader may end the session, and so give its locks away.
//!
//! `grid` runs the client's real schedule against real timing: session timeouts from two ticks to
//! 60 s, `tickTime` and `syncLimit` varied, clocks at ±1 %, cuts at every phase of the ping
//! interval.
//!
//! The former rules are in both, and must be found wrong: a model that does not find them proves
//! nothing.
//!
//! `cargo test -p baton-locks-client --lib lease::model` runs the bounded form,
//! `BATON_LEASE_MODEL=whole` with `--release` the whole.

mod former;
mod grid;
mod world;

use std::time::Duration;

use super::{AnswerKind, LeaseBook, WriteProof};
use crate::clock::BootInstant;

/// Returns whether the whole model is to run: some minutes in a release build.
fn whole() -> bool {
    std::env::var("BATON_LEASE_MODEL").is_ok_and(|value| value == "whole")
}

/// A lease's rules, as the model sees them: the book's, or former ones.
trait Rules: Clone {
    /// A connection begins.
    fn connected(&mut self, sent: BootInstant, timeout: Duration, created: bool);
    /// A write is sent.
    fn write_sent(&mut self, now: BootInstant) -> WriteProof;
    /// An answer is read.
    fn acknowledged(&mut self, now: BootInstant, sent: BootInstant, answered: AnswerKind);
    /// The lease's end.
    fn deadline(&self) -> BootInstant;
    /// The book behind the rules, whose instants the model moves.
    fn book(&mut self) -> &mut LeaseBook;
}

impl Rules for LeaseBook {
    fn connected(&mut self, sent: BootInstant, timeout: Duration, created: bool) {
        Self::connected(self, sent, timeout, created);
    }
    fn write_sent(&mut self, now: BootInstant) -> WriteProof {
        Self::write_sent(self, now)
    }
    fn acknowledged(&mut self, now: BootInstant, sent: BootInstant, answered: AnswerKind) {
        Self::acknowledged(self, now, sent, answered);
    }
    fn deadline(&self) -> BootInstant {
        Self::deadline(self)
    }
    fn book(&mut self) -> &mut LeaseBook {
        self
    }
}
