//! Messages of the consensus. One frame carries all messages that wait for a peer; payloads of
//! entries share the memory of the frame.

use baton_consensus::{Entry, EntryKind, Membership, MessageKind, PeerMessage, SnapshotPoint};

use crate::codec::fields::Field;
use crate::codec::input::{Input, Malformed};
use crate::codec::lane::Lane;
use crate::codec::pieces::FrameBody;

/// The most messages in one frame.
pub const MAX_MESSAGES: usize = 4096;
/// The most entries in one message.
pub const MAX_ENTRIES: usize = 65_536;

/// Bytes of a message without its context, its entries and its snapshot.
const MESSAGE_BYTES: usize = 88;
/// Bytes of an entry without its payload.
const ENTRY_BYTES: usize = 24;

const KINDS: [(MessageKind, u8); 10] = [
    (MessageKind::Append, 1),
    (MessageKind::AppendResponse, 2),
    (MessageKind::Vote, 3),
    (MessageKind::VoteResponse, 4),
    (MessageKind::Snapshot, 5),
    (MessageKind::Heartbeat, 6),
    (MessageKind::HeartbeatResponse, 7),
    (MessageKind::TimeoutNow, 8),
    (MessageKind::PreVote, 9),
    (MessageKind::PreVoteResponse, 10),
];

const REJECT: u8 = 1;
const HAS_SNAPSHOT: u8 = 2;

/// The lane on which a message travels.
pub(crate) fn lane_of(kind: MessageKind) -> Lane {
    match kind {
        MessageKind::Append => Lane::Log,
        MessageKind::Snapshot => Lane::Snapshot,
        _ => Lane::Urgent,
    }
}

/// Bytes of the message in a frame, or a little more.
pub(crate) fn message_bytes(message: &PeerMessage) -> usize {
    let entries: usize = message
        .entries
        .iter()
        .map(|entry| ENTRY_BYTES + entry.payload.len())
        .sum();
    let snapshot = message
        .snapshot
        .as_ref()
        .map_or(0, |point| 16 + point.membership.encode().len());
    MESSAGE_BYTES + message.context.len() + entries + snapshot
}

impl Field for Vec<PeerMessage> {
    fn write(&self, out: &mut FrameBody) {
        out.u32(u32::try_from(self.len()).unwrap_or(u32::MAX));
        for message in self {
            write_message(out, message);
        }
    }

    fn read(input: &mut Input) -> Result<Self, Malformed> {
        let count = input.u32()?;
        if usize::try_from(count).map_or(true, |count| count > MAX_MESSAGES) {
            return Err("it has too many messages");
        }
        let mut messages = Vec::new();
        for _ in 0..count {
            messages.push(read_message(input)?);
        }
        Ok(messages)
    }
}

fn write_message(out: &mut FrameBody, message: &PeerMessage) {
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let code = KINDS
        .iter()
        .find(|(kind, _)| *kind == message.kind)
        .map_or(0, |(_, code)| *code);
    let snapshot = message.snapshot.as_ref();
    let membership = snapshot.map(|point| point.membership.encode());
    let mut bits = 0;
    if message.reject {
        bits |= REJECT;
    }
    if snapshot.is_some() {
        bits |= HAS_SNAPSHOT;
    }
    out.u8(code);
    out.u8(bits);
    out.zeros(2);
    out.u32(count(message.context.len()));
    out.u32(count(message.entries.len()));
    out.u32(membership.as_ref().map_or(0, |bytes| count(bytes.len())));
    for field in [
        message.from,
        message.to,
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.request_snapshot,
        message.reject_hint,
    ] {
        out.u64(field);
    }
    out.payload(&message.context);
    for entry in &message.entries {
        out.u64(entry.index);
        out.u64(entry.term);
        out.u32(count(entry.payload.len()));
        out.u8(entry.kind.as_byte());
        out.zeros(3);
        out.payload(&entry.payload);
    }
    if let (Some(point), Some(membership)) = (snapshot, membership) {
        out.u64(point.index);
        out.u64(point.term);
        out.payload(&membership);
    }
}

fn read_message(input: &mut Input) -> Result<PeerMessage, Malformed> {
    let code = input.u8()?;
    let kind = KINDS
        .iter()
        .find(|(_, known)| *known == code)
        .map(|(kind, _)| *kind)
        .ok_or("a message is of an unknown kind; upgrade this server")?;
    let bits = input.u8()?;
    if bits & !(REJECT | HAS_SNAPSHOT) != 0 {
        return Err("a message has an unknown bit; upgrade this server");
    }
    input.zeros(2)?;
    let (context_bytes, entry_count) = (input.u32()?, input.u32()?);
    let membership_bytes = input.u32()?;
    if usize::try_from(entry_count).map_or(true, |count| count > MAX_ENTRIES) {
        return Err("a message has too many entries");
    }
    let has_snapshot = bits & HAS_SNAPSHOT != 0;
    if !has_snapshot && membership_bytes != 0 {
        return Err("a message has a membership and no snapshot");
    }
    let mut message = PeerMessage {
        kind,
        from: input.u64()?,
        to: input.u64()?,
        term: input.u64()?,
        log_term: input.u64()?,
        index: input.u64()?,
        commit: input.u64()?,
        commit_term: input.u64()?,
        request_snapshot: input.u64()?,
        reject_hint: input.u64()?,
        reject: bits & REJECT != 0,
        context: input.bytes(context_bytes)?,
        entries: Vec::new(),
        snapshot: None,
    };
    for _ in 0..entry_count {
        message.entries.push(read_entry(input)?);
    }
    if has_snapshot {
        let (index, term) = (input.u64()?, input.u64()?);
        let membership = Membership::decode(&input.bytes(membership_bytes)?)
            .map_err(|_| "the membership of a snapshot cannot be read")?;
        message.snapshot = Some(SnapshotPoint {
            index,
            term,
            membership,
        });
    }
    Ok(message)
}

fn read_entry(input: &mut Input) -> Result<Entry, Malformed> {
    let (index, term, payload_bytes) = (input.u64()?, input.u64()?, input.u32()?);
    let kind = EntryKind::from_byte(input.u8()?)
        .ok_or("an entry is of an unknown kind; upgrade this server")?;
    input.zeros(3)?;
    Ok(Entry {
        index,
        term,
        kind,
        payload: input.bytes(payload_bytes)?,
    })
}
