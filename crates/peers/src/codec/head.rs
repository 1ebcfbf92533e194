//! Types of frames, the limit of each, the twelve bytes before a body, and what is wrong with a
//! frame that is refused.

use crate::codec::lane::Lane;

/// Bytes before the body of each frame.
pub const HEAD_BYTES: usize = 12;
/// Bytes of the head that its checksum covers.
pub(crate) const CHECKED_HEAD_BYTES: usize = 8;

/// Declares the types: a row is `/// Documentation`, `Variant = CODE, LARGEST BODY, "text";`.
macro_rules! frame_types {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $limit:expr, $text:literal;)*) => {
        /// Type of a frame.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum FrameType {
            $($(#[$doc])* $name,)*
        }

        impl FrameType {
            /// Every type, in the order of their codes.
            pub fn all() -> impl Iterator<Item = FrameType> {
                [$(FrameType::$name),*].into_iter()
            }

            /// The byte in the head.
            pub fn code(self) -> u8 {
                match self {
                    $(FrameType::$name => $code,)*
                }
            }

            /// The type that a byte stands for; `None` when a later version sent it.
            pub fn from_code(code: u8) -> Option<FrameType> {
                match code {
                    $($code => Some(FrameType::$name),)*
                    _ => None,
                }
            }

            /// The largest body in bytes.
            pub fn max_body_bytes(self) -> usize {
                match self {
                    $(FrameType::$name => $limit,)*
                }
            }
        }

        impl std::fmt::Display for FrameType {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self {
                    $(FrameType::$name => $text,)*
                })
            }
        }
    };
}

frame_types! {
    /// The connecting server says who it is.
    Hello = 1, 4 << 10, "hello";
    /// The accepting server says who it is.
    Welcome = 2, 4 << 10, "welcome";
    /// The connecting server repeats the number that the welcome had.
    Confirm = 3, 64, "confirm";
    /// The connection is refused.
    Refused = 4, 4 << 10, "refused";
    /// A sign of life.
    Alive = 5, 64, "alive";
    /// The sender ends the connection.
    Bye = 6, 1 << 10, "bye";
    /// Messages of the consensus.
    Raft = 16, 68 << 20, "raft";
    /// A group of client requests.
    Forward = 32, 68 << 20, "forward";
    /// The answer to a group.
    ForwardAnswer = 33, 1 << 20, "forward answer";
    /// Amount of forwarded requests that the receiver has taken.
    Credit = 34, 64, "credit";
    /// Sessions whose clients were heard.
    Touch = 48, 1 << 20, "touch";
    /// The answer to a touch.
    Counted = 49, 1 << 20, "counted";
    /// State of the sender.
    Digest = 50, 64, "digest";
    /// The receiver's state is another one than that of a majority.
    Contradiction = 51, 64, "contradiction";
    /// A reading of the sender's wall clock.
    Clock = 52, 64, "clock";
    /// A snapshot is to be sent.
    SnapshotOffer = 64, 64, "snapshot offer";
    /// A part of it.
    SnapshotChunk = 65, (1 << 20) + 64, "snapshot chunk";
    /// The receiver has stored it up to an offset.
    SnapshotAck = 66, 64, "snapshot ack";
    /// All parts were sent.
    SnapshotDone = 67, 64, "snapshot done";
    /// The receiver does not take it.
    SnapshotReject = 68, 64, "snapshot reject";
    /// Knowledge of a server without a cluster.
    BirthReport = 80, 256, "birth report";
    /// The first membership of a cluster.
    Birth = 81, 1 << 20, "birth";
}

impl FrameType {
    /// The lane on which frames of this type travel; `None`: on each of them.
    pub fn lane(self) -> Option<Lane> {
        match self {
            FrameType::Hello
            | FrameType::Welcome
            | FrameType::Confirm
            | FrameType::Refused
            | FrameType::Alive
            | FrameType::Bye
            | FrameType::Raft => None,
            FrameType::Forward => Some(Lane::Log),
            FrameType::ForwardAnswer
            | FrameType::Credit
            | FrameType::Touch
            | FrameType::Counted
            | FrameType::Digest
            | FrameType::Contradiction
            | FrameType::Clock
            | FrameType::BirthReport
            | FrameType::Birth => Some(Lane::Urgent),
            FrameType::SnapshotOffer
            | FrameType::SnapshotChunk
            | FrameType::SnapshotAck
            | FrameType::SnapshotDone
            | FrameType::SnapshotReject => Some(Lane::Snapshot),
        }
    }
}

/// Stage of a connection: which frames may arrive now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The peer has not shown yet who it is: only the small frames of the handshake.
    Handshake,
    /// After the handshake.
    Lane(Lane),
}

impl Stage {
    /// Returns whether a frame of this type may arrive.
    pub fn admits(self, kind: FrameType) -> bool {
        let is_of_handshake = matches!(
            kind,
            FrameType::Hello | FrameType::Welcome | FrameType::Confirm | FrameType::Refused
        );
        match self {
            Stage::Handshake => is_of_handshake,
            Stage::Lane(lane) => {
                !is_of_handshake && kind.lane().is_none_or(|expected| expected == lane)
            }
        }
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stage::Handshake => f.write_str("during the handshake"),
            Stage::Lane(lane) => write!(f, "on lane {lane}"),
        }
    }
}

/// Error in a frame. The connection cannot be used further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A type that this version does not know.
    #[error(
        "a frame has the unknown type {code}: a later version of Baton sent it; upgrade this server"
    )]
    UnknownType {
        /// The byte.
        code: u8,
    },
    /// A flag that this version does not know.
    #[error(
        "a {kind} frame has the unknown flags {flags:#04x}: a later version of Baton sent it; upgrade this server"
    )]
    UnknownFlags {
        /// The frame's type.
        kind: FrameType,
        /// The byte.
        flags: u8,
    },
    /// A frame that must not come now.
    #[error("a {kind} frame came {stage}, where it must not")]
    Unexpected {
        /// The frame's type.
        kind: FrameType,
        /// Time at which it came.
        stage: Stage,
    },
    /// The body is longer than frames of this type may be.
    #[error("a {kind} frame of {bytes} bytes exceeds the limit of {limit} bytes")]
    TooLarge {
        /// The frame's type.
        kind: FrameType,
        /// Its length in bytes, as its head says.
        bytes: u64,
        /// The limit in bytes.
        limit: usize,
    },
    /// The bytes are not those that were sent.
    #[error("the checksum of a {kind} frame does not match: its bytes were changed on the way")]
    Checksum {
        /// The frame's type.
        kind: FrameType,
    },
    /// The body does not have the form of its type.
    #[error("a {kind} frame is malformed: {what}")]
    Malformed {
        /// The frame's type.
        kind: FrameType,
        /// The error.
        what: &'static str,
    },
}

/// The fields of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: FrameType,
    pub(crate) body_bytes: usize,
    pub(crate) crc: u32,
}

impl Head {
    /// Checks everything that can be checked before the body has arrived.
    pub(crate) fn read(bytes: &[u8; HEAD_BYTES], stage: Stage) -> Result<Head, FrameError> {
        let [l0, l1, l2, l3, code, flags, z0, z1, c0, c1, c2, c3] = *bytes;
        let kind = FrameType::from_code(code).ok_or(FrameError::UnknownType { code })?;
        if !stage.admits(kind) {
            return Err(FrameError::Unexpected { kind, stage });
        }
        if flags != 0 {
            return Err(FrameError::UnknownFlags { kind, flags });
        }
        if (z0, z1) != (0, 0) {
            return Err(FrameError::Malformed {
                kind,
                what: "its head has a byte that must be 0",
            });
        }
        let claimed = u32::from_le_bytes([l0, l1, l2, l3]);
        let limit = kind.max_body_bytes();
        let body_bytes = usize::try_from(claimed).unwrap_or(usize::MAX);
        if body_bytes > limit {
            return Err(FrameError::TooLarge {
                kind,
                bytes: u64::from(claimed),
                limit,
            });
        }
        Ok(Head {
            kind,
            body_bytes,
            crc: u32::from_le_bytes([c0, c1, c2, c3]),
        })
    }

    /// The bytes that the checksum covers.
    pub(crate) fn checked_bytes(kind: FrameType, body_bytes: usize) -> [u8; CHECKED_HEAD_BYTES] {
        let length = u32::try_from(body_bytes).unwrap_or(u32::MAX);
        let [l0, l1, l2, l3] = length.to_le_bytes();
        [l0, l1, l2, l3, kind.code(), 0, 0, 0]
    }
}
