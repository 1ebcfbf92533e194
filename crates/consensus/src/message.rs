//! Messages between nodes, as plain data, and their translation from and to the engine's messages.
//!
//! Owns the list of kinds that may cross the wire. The engine's own `step` also takes proposals and
//! requests for a read index from a peer; those never come from here.

use bytes::Bytes;
use raft::eraftpb::{self, MessageType};

use crate::entry::{Entry, from_raft, to_raft};
use crate::error::StepError;
use crate::snapshot::{SnapshotPoint, point_of, snapshot_of};

/// Kind of a [`PeerMessage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// A leader's entries, and the position before them.
    Append,
    /// Up to where the sender's log now matches, or where it does not.
    AppendResponse,
    /// A candidate asks for a vote.
    Vote,
    /// The answer to that.
    VoteResponse,
    /// A snapshot is on its way in place of entries that the leader has no more.
    Snapshot,
    /// A leader is there; carries the round of a read index.
    Heartbeat,
    /// The answer to that.
    HeartbeatResponse,
    /// The receiver is to campaign at once: leadership is handed over to it.
    TimeoutNow,
    /// Would the receiver vote for the sender? Nothing changes by the answer.
    PreVote,
    /// The answer to that.
    PreVoteResponse,
}

/// One message between two nodes. Which fields have a meaning depends on its kind; the others are
/// 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerMessage {
    /// Kind of the message.
    pub kind: MessageKind,
    /// The sender's id.
    pub from: u64,
    /// The receiver's id.
    pub to: u64,
    /// The sender's term; of a pre-vote, the term that it would campaign for.
    pub term: u64,
    /// Term of the entry at `index`.
    pub log_term: u64,
    /// The position before `entries`, the one that matches, or the end of the sender's log.
    pub index: u64,
    /// The sender's commit index.
    pub commit: u64,
    /// Term of the entry at `commit`.
    pub commit_term: u64,
    /// The index from which a follower asks for a snapshot; 0 for none.
    pub request_snapshot: u64,
    /// The request is refused.
    pub reject: bool,
    /// With a refused append, where the sender's log may match.
    pub reject_hint: u64,
    /// The round of a read index; the reason of a campaign.
    pub context: Bytes,
    /// Entries after `index`, without a gap.
    pub entries: Vec<Entry>,
    /// The point of a [`MessageKind::Snapshot`].
    pub snapshot: Option<SnapshotPoint>,
}

const KINDS: [(MessageKind, MessageType); 10] = [
    (MessageKind::Append, MessageType::MsgAppend),
    (MessageKind::AppendResponse, MessageType::MsgAppendResponse),
    (MessageKind::Vote, MessageType::MsgRequestVote),
    (
        MessageKind::VoteResponse,
        MessageType::MsgRequestVoteResponse,
    ),
    (MessageKind::Snapshot, MessageType::MsgSnapshot),
    (MessageKind::Heartbeat, MessageType::MsgHeartbeat),
    (
        MessageKind::HeartbeatResponse,
        MessageType::MsgHeartbeatResponse,
    ),
    (MessageKind::TimeoutNow, MessageType::MsgTimeoutNow),
    (MessageKind::PreVote, MessageType::MsgRequestPreVote),
    (
        MessageKind::PreVoteResponse,
        MessageType::MsgRequestPreVoteResponse,
    ),
];

impl PeerMessage {
    /// Returns the message of the engine; `None` for a kind that never crosses the wire.
    pub(crate) fn from_engine(message: eraftpb::Message) -> Option<PeerMessage> {
        let kind = KINDS
            .iter()
            .find(|(_, theirs)| *theirs == message.get_msg_type())?
            .0;
        let snapshot = match kind {
            MessageKind::Snapshot => Some(point_of(message.get_snapshot()).ok()?),
            _ => None,
        };
        Some(PeerMessage {
            kind,
            from: message.from,
            to: message.to,
            term: message.term,
            log_term: message.log_term,
            index: message.index,
            commit: message.commit,
            commit_term: message.commit_term,
            request_snapshot: message.request_snapshot,
            reject: message.reject,
            reject_hint: message.reject_hint,
            context: message.context,
            entries: message.entries.into_iter().map(from_raft).collect(),
            snapshot,
        })
    }

    /// The engine's form of a message that came from a peer, once its parts fit together: the
    /// engine itself trusts them and may panic.
    pub(crate) fn into_engine(self) -> Result<eraftpb::Message, StepError> {
        let malformed = |what| StepError::Malformed { what };
        if self.term == 0 {
            return Err(malformed("its term is 0"));
        }
        let mut next = self.index;
        let mut term = self.log_term;
        for entry in &self.entries {
            next += 1;
            if entry.index != next {
                return Err(malformed("its entries have a gap"));
            }
            if entry.term < term || entry.term > self.term {
                return Err(malformed("the terms of its entries are out of order"));
            }
            term = entry.term;
        }
        if !self.entries.is_empty() && self.kind != MessageKind::Append {
            return Err(malformed("it carries entries and is not an append"));
        }
        let mut message = eraftpb::Message::default();
        let theirs = KINDS.iter().find(|(ours, _)| *ours == self.kind);
        if let Some((_, theirs)) = theirs {
            message.set_msg_type(*theirs);
        }
        match (self.kind, self.snapshot) {
            (MessageKind::Snapshot, Some(point)) => {
                if point.index == 0 || point.term == 0 || point.membership.voters.is_empty() {
                    return Err(malformed("its snapshot names no point or no voter"));
                }
                message.set_snapshot(snapshot_of(&point));
            }
            (MessageKind::Snapshot, None) => return Err(malformed("it has no snapshot")),
            (_, Some(_)) => return Err(malformed("it has a snapshot and does not install one")),
            (_, None) => {}
        }
        message.from = self.from;
        message.to = self.to;
        message.term = self.term;
        message.log_term = self.log_term;
        message.index = self.index;
        message.commit = self.commit;
        message.commit_term = self.commit_term;
        message.request_snapshot = self.request_snapshot;
        message.reject = self.reject;
        message.reject_hint = self.reject_hint;
        message.context = self.context;
        for entry in self.entries {
            let entry =
                to_raft(entry).map_err(|_| malformed("a configuration entry cannot be read"))?;
            message.mut_entries().push(entry);
        }
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::entry::{Entry, EntryKind};
    use crate::membership::Membership;

    fn message(kind: MessageKind) -> PeerMessage {
        PeerMessage {
            kind,
            from: 2,
            to: 1,
            term: 5,
            log_term: 3,
            index: 7,
            commit: 0,
            commit_term: 0,
            request_snapshot: 0,
            reject: false,
            reject_hint: 0,
            context: Bytes::new(),
            entries: Vec::new(),
            snapshot: None,
        }
    }

    fn append(entries: &[(u64, u64)]) -> PeerMessage {
        let entries = entries.iter().map(|(index, term)| Entry {
            index: *index,
            term: *term,
            kind: EntryKind::Command,
            payload: Bytes::from_static(b"x"),
        });
        PeerMessage {
            entries: entries.collect(),
            ..message(MessageKind::Append)
        }
    }

    fn snapshot(index: u64, term: u64, voters: &[u64]) -> PeerMessage {
        let membership = Membership {
            voters: voters.to_vec(),
            ..Membership::default()
        };
        PeerMessage {
            snapshot: Some(SnapshotPoint {
                index,
                term,
                membership,
            }),
            ..message(MessageKind::Snapshot)
        }
    }

    #[test]
    fn a_message_whose_parts_fit_together_reaches_the_engine() {
        for good in [
            message(MessageKind::Heartbeat),
            append(&[]),
            append(&[(8, 3), (9, 3), (10, 5)]),
            snapshot(1, 1, &[1]),
        ] {
            assert!(good.clone().into_engine().is_ok(), "{good:?}");
        }
    }

    #[test]
    fn a_message_whose_parts_do_not_fit_together_is_refused() {
        let no_term = PeerMessage {
            term: 0,
            ..message(MessageKind::Heartbeat)
        };
        let entries_of_a_vote = PeerMessage {
            kind: MessageKind::Vote,
            ..append(&[(8, 3)])
        };
        let snapshot_of_an_append = PeerMessage {
            kind: MessageKind::Append,
            ..snapshot(1, 1, &[1])
        };
        let mut no_configuration = append(&[(8, 3)]);
        no_configuration.entries[0].kind = EntryKind::Configuration;
        let order = "the terms of its entries are out of order";
        let point = "its snapshot names no point or no voter";
        for (bad, why) in [
            (no_term, "its term is 0"),
            (append(&[(9, 3)]), "its entries have a gap"),
            (append(&[(8, 3), (8, 3)]), "its entries have a gap"),
            (append(&[(8, 2)]), order),
            (append(&[(8, 4), (9, 3)]), order),
            (append(&[(8, 6)]), order),
            (entries_of_a_vote, "it carries entries and is not an append"),
            (snapshot(0, 1, &[1]), point),
            (snapshot(1, 0, &[1]), point),
            (snapshot(1, 1, &[]), point),
            (message(MessageKind::Snapshot), "it has no snapshot"),
            (
                snapshot_of_an_append,
                "it has a snapshot and does not install one",
            ),
            (no_configuration, "a configuration entry cannot be read"),
        ] {
            let refused = bad.clone().into_engine().err();
            assert_eq!(refused, Some(StepError::Malformed { what: why }), "{bad:?}");
        }
    }
}
