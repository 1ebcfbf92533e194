//! Snapshots between servers: the file of one server's snapshot travels to another one in chunks,
//! over the lane of snapshots (`docs/internals/peers.md`, "Bodies").
//!
//! Neither side reads a clock or a socket: the core passes frames and the time in, and sends what
//! [`Outgoing::poll`] and [`Incoming::poll`] give to their `send`. Files are read and written by a
//! [`DiskWorker`], so the core never waits for the disk (R05).
//!
//! The sender, from the core's turn:
//!
//! 1. A message of kind *snapshot* among the effects' messages goes to [`Outgoing::begin`], not to
//!    the wire. `Outgoing` sends the file, then the message.
//! 2. [`Outgoing::frame`] takes *ack* and *reject*; [`Outgoing::gone`] is called when a connection
//!    of the snapshot lane with that peer ends, in either direction.
//! 3. [`Outgoing::poll`] is called in each turn, and at [`Outgoing::next_poll`] at the latest. Each
//!    [`EndedTransfer`] that it returns goes to `Consensus::report_snapshot` (R26). After
//!    [`SendFailure::wants_fresh`] the leader makes a new snapshot and announces it by
//!    `Consensus::snapshot_saved`.
//! 4. [`Outgoing::release_matched`] with `Consensus::progress` ends the pins of snapshots whose
//!    receivers have installed them and caught up, and [`Outgoing::oldest`] goes to
//!    `Consensus::keep_after` (R22).
//! 5. A server that leads no more calls [`Outgoing::abandon`].
//!
//! The receiver, from the core's turn:
//!
//! 1. [`Incoming::frame`] takes *offer*, *chunk* and *done*; [`Incoming::gone`] is called as on the
//!    sender; [`Incoming::poll`] is called in each turn, and at [`Incoming::next_poll`] at the
//!    latest.
//! 2. A raft message of kind *snapshot* is dropped unless [`Incoming::admits`] its point. Otherwise
//!    it goes to `Consensus::step`, and `drain` follows before the next frame and the next `poll`.
//! 3. If the effects have a `snapshot`, the core calls [`Incoming::take`]: the verified, durable
//!    file and the tree that was restored from it. If they have none, the consensus has refused
//!    the message, and nothing is to be done: the file is removed when it is outdated.
//! 4. The log thread writes term and vote of the effects, calls `Wal::append_received`, appends the
//!    entries of the effects, and calls `Wal::sync`.
//! 5. Only after that sync it calls `Wal::finish_received`. A crash between 4 and 5 is finished by
//!    the next start; before 4, the next start discards the file (R23).
//! 6. After the sync the core calls `Consensus::persisted`, closes the connections of this server's
//!    clients (R25), puts the tree in the place of its own, gives the old one to
//!    [`Incoming::dispose`], and calls `Consensus::applied`. From 3 to here nothing else may be
//!    applied, and no own snapshot may be begun.
//!
//! A module uses only those below it:
//!
//! | module | owns |
//! |---|---|
//! | `transfers` | both sides, and the received snapshot that is being installed |
//! | `outgoing` | the snapshots that this server sends: one to each peer at a time |
//! | `incoming` | the snapshot that this server receives: one at a time |
//! | `limits` | sizes and times of both |
//! | `pace` | how fast bytes may leave |

mod incoming;
mod limits;
mod outgoing;
mod pace;
#[cfg(test)]
mod tests;
mod transfers;

#[cfg(test)]
pub(crate) use incoming::Incoming;
pub(crate) use incoming::Received;
#[cfg(test)]
pub(crate) use limits::TransferLimits;
#[cfg(test)]
pub(crate) use outgoing::{EndedTransfer, Outgoing, SendFailure};
pub(crate) use pace::Pace;
pub(crate) use transfers::Transfers;
