//! Every kind of frame in one type: encoding, decoding, and taking a whole frame out of the bytes
//! that have arrived.

use baton_consensus::PeerMessage;
use bytes::{Buf, Bytes, BytesMut};

use crate::codec::birth::{BootstrapReport, InitialMembership};
use crate::codec::clock::Clock;
use crate::codec::control::{CloseReason, LivenessFrame};
use crate::codec::digest::StateDigest;
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

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
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
    /// The frame's type.
    pub fn kind(&self) -> FrameType {
        match self {
            Frame::Hello(_) => FrameType::Hello,
            Frame::Welcome(_) => FrameType::Welcome,
            Frame::Confirm(_) => FrameType::Confirm,
            Frame::Refused(_) => FrameType::Refused,
            Frame::Alive(_) => FrameType::Alive,
            Frame::Bye(_) => FrameType::Bye,
            Frame::Raft(_) => FrameType::Raft,
            Frame::Forward(_) => FrameType::Forward,
            Frame::ForwardAnswer(_) => FrameType::ForwardAnswer,
            Frame::Credit(_) => FrameType::Credit,
            Frame::Touch(_) => FrameType::Touch,
            Frame::Counted(_) => FrameType::Counted,
            Frame::Digest(_) => FrameType::Digest,
            Frame::Contradiction(_) => FrameType::Contradiction,
            Frame::Clock(_) => FrameType::Clock,
            Frame::SnapshotOffer(_) => FrameType::SnapshotOffer,
            Frame::SnapshotChunk(_) => FrameType::SnapshotChunk,
            Frame::SnapshotAck(_) => FrameType::SnapshotAck,
            Frame::SnapshotDone(_) => FrameType::SnapshotDone,
            Frame::SnapshotReject(_) => FrameType::SnapshotReject,
            Frame::BirthReport(_) => FrameType::BirthReport,
            Frame::Birth(_) => FrameType::Birth,
        }
    }

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

    fn write(&self, out: &mut FrameBody) {
        match self {
            Frame::Hello(hello) => {
                hello.write(out);
                hello.write_end(out);
            }
            Frame::Welcome(welcome) => welcome.write(out),
            Frame::Confirm(confirm) => confirm.write(out),
            Frame::Refused(refusal) => refusal.write(out),
            Frame::Alive(alive) => alive.write(out),
            Frame::Bye(bye) => bye.write(out),
            Frame::Raft(messages) => raft::write(out, messages),
            Frame::Forward(forward) => forward.write(out),
            Frame::ForwardAnswer(answer) => answer.write(out),
            Frame::Credit(credit) => credit.write(out),
            Frame::Touch(touch) => touch.write(out),
            Frame::Counted(counted) => counted.write(out),
            Frame::Digest(state) | Frame::Contradiction(state) => state.write(out),
            Frame::Clock(clock) => clock.write(out),
            Frame::SnapshotOffer(offer) => offer.write(out),
            Frame::SnapshotChunk(chunk) => chunk.write(out),
            Frame::SnapshotAck(ack) => ack.write(out),
            Frame::SnapshotDone(done) => done.write(out),
            Frame::SnapshotReject(reject) => reject.write(out),
            Frame::BirthReport(report) => report.write(out),
            Frame::Birth(birth) => birth.write(out),
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

    fn read(kind: FrameType, input: &mut Input) -> Result<Frame, Malformed> {
        Ok(match kind {
            FrameType::Hello => Frame::Hello(Hello::read_whole(input)?),
            FrameType::Welcome => Frame::Welcome(Welcome::read(input)?),
            FrameType::Confirm => Frame::Confirm(Confirmation::read(input)?),
            FrameType::Refused => Frame::Refused(Refusal::read(input)?),
            FrameType::Alive => Frame::Alive(LivenessFrame::read(input)?),
            FrameType::Bye => Frame::Bye(CloseReason::read(input)?),
            FrameType::Raft => Frame::Raft(raft::read(input)?),
            FrameType::Forward => Frame::Forward(Forward::read(input)?),
            FrameType::ForwardAnswer => Frame::ForwardAnswer(ForwardAnswer::read(input)?),
            FrameType::Credit => Frame::Credit(Credit::read(input)?),
            FrameType::Touch => Frame::Touch(Touch::read(input)?),
            FrameType::Counted => Frame::Counted(Counted::read(input)?),
            FrameType::Digest => Frame::Digest(StateDigest::read(input)?),
            FrameType::Contradiction => Frame::Contradiction(StateDigest::read(input)?),
            FrameType::Clock => Frame::Clock(Clock::read(input)?),
            FrameType::SnapshotOffer => Frame::SnapshotOffer(SnapshotOffer::read(input)?),
            FrameType::SnapshotChunk => Frame::SnapshotChunk(SnapshotChunk::read(input)?),
            FrameType::SnapshotAck => Frame::SnapshotAck(SnapshotAck::read(input)?),
            FrameType::SnapshotDone => Frame::SnapshotDone(SnapshotDone::read(input)?),
            FrameType::SnapshotReject => Frame::SnapshotReject(SnapshotReject::read(input)?),
            FrameType::BirthReport => Frame::BirthReport(BootstrapReport::read(input)?),
            FrameType::Birth => Frame::Birth(InitialMembership::read(input)?),
        })
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
