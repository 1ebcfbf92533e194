//! The bytes of frames between servers (`docs/internals/peers.md`). Pure: no I/O, no clock.
//!
//! A length or a count that a peer sent is never trusted: memory is taken for what has arrived, and
//! each count has a limit. Payloads are neither copied when they are decoded nor, from a size on,
//! when they are encoded.
//!
//! A module uses only those below it:
//!
//! | module | owns |
//! |---|---|
//! | `frame` | every kind of frame in one type; taking a frame out of received bytes |
//! | `refusal` | why a server refuses another one, with the text for both logs |
//! | `hello` | the first frames of a connection |
//! | `control` | signs of life, and the end of a connection |
//! | `raft` | messages of the consensus |
//! | `forward` | client requests that a follower passes on, and their credit |
//! | `touch` | sessions whose clients were heard |
//! | `digest` | what a server's state is after an entry |
//! | `clock` | a reading of a server's wall clock |
//! | `snapshot` | a snapshot in chunks |
//! | `birth` | the start of a cluster from a static list |
//! | `preface` | the first bytes of a connection, and which foreign protocol others resemble |
//! | `fields` | fields whose bytes follow from their types; reasons that are sent as a byte |
//! | `pieces` | encoded frames as pieces of memory |
//! | `input` | fields, read from the front of a body |
//! | `head` | types of frames, their limits, the twelve bytes before each body |
//! | `lane` | the three connections in each direction |

mod birth;
mod clock;
mod control;
mod digest;
mod fields;
mod forward;
mod frame;
mod head;
mod hello;
mod input;
mod lane;
mod pieces;
mod preface;
mod raft;
mod refusal;
mod snapshot;
mod touch;

pub use birth::{BootstrapReport, InitialMembership, ListFingerprint};
pub use clock::Clock;
pub use control::{CloseReason, LivenessFrame};
pub use digest::StateDigest;
pub use forward::{Credit, Forward, ForwardAnswer};
pub use frame::{Frame, take_frame};
pub use head::{FrameError, FrameType, HEAD_BYTES, Stage};
pub use hello::{Confirmation, Hello, LogProof, ProtocolRange, Welcome};
pub use lane::Lane;
pub use pieces::Pieces;
pub use preface::{ForeignProtocol, PREFACE, Preface, check_preface};
pub use raft::{MAX_ENTRIES, MAX_MESSAGES};
pub use refusal::Refusal;
pub use snapshot::{
    MAX_CHUNK_BYTES, MAX_UNACKED_BYTES, SnapshotAck, SnapshotChunk, SnapshotDone, SnapshotOffer,
    SnapshotReject, SnapshotRejectReason,
};
pub use touch::{Counted, MAX_SESSIONS, Touch};
