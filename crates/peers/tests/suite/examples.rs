//! One frame of each type, with a value of its own in each field.

use baton_consensus::{
    Entry, EntryKind, Member, Membership, MessageKind, PeerMessage, SnapshotPoint,
};
use baton_peers::codec::{
    BootstrapReport, Clock, CloseReason, Confirmation, Counted, Credit, Forward, ForwardAnswer,
    Frame, Hello, InitialMembership, Lane, ListFingerprint, LivenessFrame, LogProof, ProtocolRange,
    Refusal, SnapshotAck, SnapshotChunk, SnapshotDone, SnapshotOffer, SnapshotReject,
    SnapshotRejectReason, StateDigest, Touch, Welcome,
};
use bytes::Bytes;

pub fn hello() -> Hello {
    Hello {
        protocol: ProtocolRange::THIS,
        lane: Lane::Log,
        nonce: 0x1112_1314_1516_1718,
        run: 0x8182_8384_8586_8788,
        cluster: 0x0123_4567_89ab_cdef,
        from: 1,
        to: 2,
        incarnation: 0x2122_2324_2526_2728_292a_2b2c_2d2e_2f30,
        to_incarnation: 0x3132_3334_3536_3738_393a_3b3c_3d3e_3f40,
        term: 7,
        membership_index: 5,
        last_index: 99,
        wall_ms: 1_795_000_000_000,
        level: 1,
        address: "server1:2888".to_owned(),
        proof: LogProof {
            commit_index: 98,
            commit_term: 6,
            acknowledged_index: 120,
        },
    }
}

pub fn membership() -> Membership {
    let member = |id: u64| Member {
        id,
        incarnation: u128::from(id) << 64,
        address: format!("server{id}:2888"),
    };
    Membership {
        voters: vec![1, 2, 3],
        members: (1..=3).map(member).collect(),
        ..Membership::default()
    }
}

pub fn message(kind: MessageKind) -> PeerMessage {
    PeerMessage {
        kind,
        from: 1,
        to: 2,
        term: 7,
        log_term: 6,
        index: 41,
        commit: 40,
        commit_term: 5,
        request_snapshot: 0,
        reject: false,
        reject_hint: 0,
        context: Bytes::new(),
        entries: Vec::new(),
        snapshot: None,
    }
}

pub fn append(payload: Bytes) -> PeerMessage {
    let entry = |index, kind, payload| Entry {
        index,
        term: 7,
        kind,
        payload,
    };
    PeerMessage {
        entries: vec![
            entry(42, EntryKind::Noop, Bytes::new()),
            entry(43, EntryKind::Command, payload),
        ],
        ..message(MessageKind::Append)
    }
}

/// Each with the name that `docs/internals/peers.md` gives it.
pub fn all() -> Vec<(&'static str, Frame)> {
    vec![
        ("hello", Frame::Hello(hello())),
        (
            "welcome",
            Frame::Welcome(Welcome {
                hello: Hello {
                    from: 2,
                    to: 1,
                    nonce: 0x4142_4344_4546_4748,
                    address: String::new(),
                    ..hello()
                },
                echo: 0x1112_1314_1516_1718,
            }),
        ),
        (
            "confirm",
            Frame::Confirm(Confirmation {
                echo: 0x4142_4344_4546_4748,
            }),
        ),
        (
            "refused",
            Frame::Refused(Refusal::OtherIncarnation {
                id: 3,
                cluster: 0x0123_4567_89ab_cdef,
                member: 0x51,
                found: 0x52,
            }),
        ),
        ("alive", Frame::Alive(LivenessFrame { stamp: 9, echo: 8 })),
        ("bye", Frame::Bye(CloseReason::Stopping)),
        (
            "raft",
            Frame::Raft(vec![
                append(Bytes::from_static(b"a batch")),
                PeerMessage {
                    reject: true,
                    reject_hint: 30,
                    context: Bytes::from_static(b"ctx"),
                    ..message(MessageKind::AppendResponse)
                },
            ]),
        ),
        (
            "raft with a snapshot",
            Frame::Raft(vec![PeerMessage {
                snapshot: Some(SnapshotPoint {
                    index: 41,
                    term: 6,
                    membership: membership(),
                }),
                ..message(MessageKind::Snapshot)
            }]),
        ),
        (
            "forward",
            Frame::Forward(Forward {
                run: 3,
                first: 100,
                count: 2,
                body: Bytes::from_static(b"requests"),
            }),
        ),
        (
            "forward answer",
            Frame::ForwardAnswer(ForwardAnswer {
                run: 3,
                first: 100,
                body: Bytes::from_static(b"answer"),
            }),
        ),
        (
            "credit",
            Frame::Credit(Credit {
                run: 3,
                taken_bytes: 8,
            }),
        ),
        (
            "touch",
            Frame::Touch(Touch {
                batch: 12,
                sessions: vec![0x0100_0000_0000_0001, 0x0100_0000_0000_0002],
            }),
        ),
        (
            "counted",
            Frame::Counted(Counted {
                batch: 12,
                refused: vec![0x0100_0000_0000_0002],
            }),
        ),
        (
            "digest",
            Frame::Digest(StateDigest {
                index: 42,
                digest: 0x0123_4567_89ab_cdef,
            }),
        ),
        (
            "contradiction",
            Frame::Contradiction(StateDigest {
                index: 42,
                digest: 0x0123_4567_89ab_cdef,
            }),
        ),
        (
            "clock",
            Frame::Clock(Clock {
                wall_ms: 1_795_000_000_000,
            }),
        ),
        (
            "snapshot offer",
            Frame::SnapshotOffer(SnapshotOffer {
                transfer: 4,
                index: 41,
                term: 6,
                bytes: 5,
                crc: 0x6162_6364,
            }),
        ),
        (
            "snapshot chunk",
            Frame::SnapshotChunk(SnapshotChunk {
                transfer: 4,
                offset: 0,
                data: Bytes::from_static(b"chunk"),
            }),
        ),
        (
            "snapshot ack",
            Frame::SnapshotAck(SnapshotAck {
                transfer: 4,
                offset: 5,
            }),
        ),
        (
            "snapshot done",
            Frame::SnapshotDone(SnapshotDone { transfer: 4 }),
        ),
        (
            "snapshot reject",
            Frame::SnapshotReject(SnapshotReject {
                transfer: 4,
                reason: SnapshotRejectReason::NoRoom,
            }),
        ),
        (
            "birth report",
            Frame::BirthReport(BootstrapReport {
                list: ListFingerprint(0x7172_7374_7576_7778),
                cluster: 0,
                incarnation: 0x52,
                promised: 0x53,
            }),
        ),
        (
            "birth",
            Frame::Birth(InitialMembership {
                cluster: 0x0123_4567_89ab_cdef,
                membership: membership(),
            }),
        ),
    ]
}

/// Each refusal.
pub fn refusals() -> Vec<Refusal> {
    let range = |oldest, newest| ProtocolRange { oldest, newest };
    vec![
        Refusal::Protocol {
            this: range(1, 2),
            other: range(3, 4),
        },
        Refusal::OtherCluster { this: 1, other: 2 },
        Refusal::WrongServer {
            expected: 1,
            found: 2,
        },
        Refusal::SameId { id: 1 },
        Refusal::BadId { id: 200 },
        Refusal::OtherIncarnation {
            id: 1,
            cluster: 2,
            member: 3,
            found: 4,
        },
        Refusal::OlderCopy {
            id: 1,
            acknowledged: 5,
            last: 4,
        },
        Refusal::NotAMember {
            id: 1,
            cluster: 2,
            membership_index: 3,
        },
        Refusal::NotConfirmed,
        Refusal::Late { after_ms: 1000 },
        Refusal::Busy { limit: 64 },
        Refusal::Stopping,
        Refusal::RunsTwice { id: 3 },
        Refusal::TlsRequired,
        Refusal::OtherHost {
            id: 3,
            names: "zk3.example, but for zk2.example".to_owned(),
        },
        Refusal::BadFrame("why".to_owned()),
        Refusal::Other {
            code: 99,
            text: "later".to_owned(),
        },
    ]
}
