//! Every kind of frame in one type: encoding, decoding, and taking a whole frame out of the bytes
//! that have arrived.

use baton_consensus::PeerMessage;
use bytes::{Buf, Bytes, BytesMut};

use crate::codec::birth::{BootstrapReport, InitialMembership};
use crate::codec::clock::Clock;
use crate::codec::control::{CloseReason, LivenessFrame};
use crate::codec::digest::StateDigest;
use crate::codec::fields::Field;
use crate::codec::forward::{Credit, Forward, ForwardAnswer};
use crate::codec::head::{FrameError, FrameType, HEAD_BYTES, Head, Stage};
use crate::codec::hello::{Confirmation, Hello, ProtocolRange, Welcome};
use crate::codec::input::{Input, Malformed};
use crate::codec::lane::Lane;
use crate::codec::pieces::{FrameBody, Pieces};
use crate::codec::raft;
use crate::codec::refusal::Refusal;
use crate::codec::snapshot::{
    MAX_CHUNK_BYTES, SnapshotAck, SnapshotChunk, SnapshotDone, SnapshotOffer, SnapshotReject,
};
use crate::codec::touch::{self, Counted, MAX_SESSIONS, Touch};

/// Bytes of a frame without a payload, at most.
const SMALL_BYTES: usize = 1 << 10;

/// Declares the frames: a type of frame, and its body.
macro_rules! frames {
    ($($(#[$doc:meta])* $name:ident($body:ty),)*) => {
        /// One frame.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Frame {
            $($(#[$doc])* $name($body),)*
        }

        impl Frame {
            /// The frame's type.
            pub fn kind(&self) -> FrameType {
                match self {
                    $(Frame::$name(_) => FrameType::$name,)*
                }
            }

            fn write(&self, out: &mut FrameBody) {
                match self {
                    $(Frame::$name(body) => body.write(out),)*
                }
            }

            fn read(kind: FrameType, input: &mut Input) -> Result<Frame, Malformed> {
                Ok(match kind {
                    $(FrameType::$name => Frame::$name(<$body>::read(input)?),)*
                })
            }
        }
    };
}

frames! {
    /// The connecting server says who it is.
    Hello(Hello),
    /// The accepting server says who it is.
    Welcome(Welcome),
    /// The handshake is complete.
    Confirm(Confirmation),
    /// The connection is refused.
    Refused(Refusal),
    /// A sign of life.
    Alive(LivenessFrame),
    /// The sender ends the connection.
    Bye(CloseReason),
    /// Messages of the consensus; at most [`MAX_MESSAGES`](crate::codec::MAX_MESSAGES).
    Raft(Vec<PeerMessage>),
    /// Client requests.
    Forward(Forward),
    /// The answer to client requests.
    ForwardAnswer(ForwardAnswer),
    /// Credit for more.
    Credit(Credit),
    /// Sessions whose clients were heard.
    Touch(Touch),
    /// The answer to that.
    Counted(Counted),
    /// The state of the sender.
    Digest(StateDigest),
    /// The leader's state, which a majority has and the receiver has not.
    Contradiction(StateDigest),
    /// The wall clock of the sender.
    Clock(Clock),
    /// A snapshot is to be sent.
    SnapshotOffer(SnapshotOffer),
    /// A part of it.
    SnapshotChunk(SnapshotChunk),
    /// Everything before an offset is stored.
    SnapshotAck(SnapshotAck),
    /// All parts were sent.
    SnapshotDone(SnapshotDone),
    /// The snapshot is not taken.
    SnapshotReject(SnapshotReject),
    /// Knowledge of a server without a cluster.
    BirthReport(BootstrapReport),
    /// The first membership of a cluster.
    Birth(InitialMembership),
}

impl Frame {
    /// The lane on which the frame travels. Messages of the consensus in one frame are for one
    /// lane: that of the first.
    pub fn lane(&self) -> Lane {
        match self {
            Frame::Raft(messages) => messages
                .first()
                .map_or(Lane::Urgent, |message| raft::lane_of(message.kind)),
            frame => frame.kind().lane().unwrap_or(Lane::Urgent),
        }
    }

    /// The lane on which a message of the consensus travels.
    pub fn lane_of(message: &PeerMessage) -> Lane {
        raft::lane_of(message.kind)
    }

    /// Bytes of a message of the consensus in a frame.
    pub fn bytes_of(message: &PeerMessage) -> usize {
        raft::message_bytes(message)
    }

    /// Bytes of the frame on the wire, or a little more: for the limits of queues.
    pub fn wire_bytes(&self) -> usize {
        HEAD_BYTES + self.variable_bytes().unwrap_or(SMALL_BYTES)
    }

    /// Bytes of the body, where they depend on what it carries.
    fn variable_bytes(&self) -> Option<usize> {
        match self {
            Frame::Raft(messages) => {
                Some(4 + messages.iter().map(raft::message_bytes).sum::<usize>())
            }
            Frame::Forward(forward) => Some(Forward::FIXED_BYTES + forward.body.len()),
            Frame::ForwardAnswer(answer) => Some(ForwardAnswer::FIXED_BYTES + answer.body.len()),
            Frame::Touch(touch) => Some(touch::body_bytes(touch.sessions.len())),
            Frame::Counted(counted) => Some(touch::body_bytes(counted.refused.len())),
            Frame::SnapshotChunk(chunk) => Some(SnapshotChunk::FIXED_BYTES + chunk.data.len()),
            Frame::Birth(birth) => Some(8 + birth.membership.encode().len()),
            _ => None,
        }
    }

    /// Adds the frame to `out`.
    ///
    /// # Errors
    /// [`FrameError`] when the frame exceeds a limit of its type; `out` is as it was then.
    pub fn encode(&self, out: &mut Pieces) -> Result<(), FrameError> {
        self.check_limits()?;
        out.frame(self.kind(), |body| self.write(body));
        Ok(())
    }

    /// Returns whether the frame is within the limits of its type. The receiver would refuse it
    /// otherwise, and end the connection.
    ///
    /// # Errors
    /// [`FrameError`] names the limit.
    pub fn check_limits(&self) -> Result<(), FrameError> {
        let kind = self.kind();
        let malformed = |what| Err(FrameError::Malformed { kind, what });
        match self {
            Frame::Raft(messages) if messages.len() > raft::MAX_MESSAGES => {
                return malformed("it has too many messages");
            }
            Frame::Raft(messages)
                if messages
                    .iter()
                    .any(|message| message.entries.len() > raft::MAX_ENTRIES) =>
            {
                return malformed("a message has too many entries");
            }
            Frame::Touch(Touch { sessions, .. }) if sessions.len() > MAX_SESSIONS => {
                return malformed("it has too many sessions");
            }
            Frame::Counted(Counted { refused, .. }) if refused.len() > MAX_SESSIONS => {
                return malformed("it has too many sessions");
            }
            Frame::SnapshotChunk(SnapshotChunk { data, .. })
                if data.is_empty() || data.len() > MAX_CHUNK_BYTES =>
            {
                return malformed("its part is empty or too large");
            }
            _ => {}
        }
        let limit = kind.max_body_bytes();
        match self.variable_bytes() {
            Some(bytes) if bytes > limit => Err(FrameError::TooLarge {
                kind,
                bytes: u64::try_from(bytes).unwrap_or(u64::MAX),
                limit,
            }),
            _ => Ok(()),
        }
    }

    /// Reads the body of a frame whose checksum fits.
    ///
    /// # Errors
    /// [`FrameError::Malformed`]. A hello or a welcome of a later version, which may have further
    /// fields, is read up to the fields known here.
    pub fn decode(kind: FrameType, body: Bytes) -> Result<Frame, FrameError> {
        let mut input = Input::new(body);
        let frame =
            Self::read(kind, &mut input).map_err(|what| FrameError::Malformed { kind, what })?;
        let may_have_more = match &frame {
            Frame::Hello(hello) | Frame::Welcome(Welcome { hello, .. }) => {
                hello.protocol.newest > ProtocolRange::THIS.newest
            }
            _ => false,
        };
        if input.is_empty() || may_have_more {
            Ok(frame)
        } else {
            Err(FrameError::Malformed {
                kind,
                what: "bytes follow its last field",
            })
        }
    }

    /// The protocol versions in the body of a hello or a welcome, whose place no version changes.
    /// To be compared before the rest is read, which another version may have changed.
    pub fn peek_protocol(kind: FrameType, body: &Bytes) -> Option<ProtocolRange> {
        match kind {
            FrameType::Hello | FrameType::Welcome => {
                Hello::peek_protocol(&mut Input::new(body.clone())).ok()
            }
            _ => None,
        }
    }
}

/// Takes the first whole frame out of `buffer`: its type and its body, whose checksum fits. `None`
/// if it has not all arrived. Shares the buffer's memory, and reserves nothing.
///
/// # Errors
/// [`FrameError`]; what is wrong with a head is known before the body has arrived.
pub fn take_frame(
    buffer: &mut BytesMut,
    stage: Stage,
) -> Result<Option<(FrameType, Bytes)>, FrameError> {
    let Some((bytes, _)) = buffer.split_first_chunk::<HEAD_BYTES>() else {
        return Ok(None);
    };
    let head = Head::read(bytes, stage)?;
    if buffer.len() - HEAD_BYTES < head.body_bytes {
        return Ok(None);
    }
    buffer.advance(HEAD_BYTES);
    let body = buffer.split_to(head.body_bytes).freeze();
    let checked = Head::checked_bytes(head.kind, head.body_bytes);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&checked), &body);
    if crc != head.crc {
        return Err(FrameError::Checksum { kind: head.kind });
    }
    Ok(Some((head.kind, body)))
}
