//! Frames: round trips in any pieces, limits, damage, no copy of payloads.

use baton_consensus::MessageKind;
use baton_peers::codec::{
    Frame, FrameError, FrameType, HEAD_BYTES, Hello, Lane, MAX_CHUNK_BYTES, MAX_MESSAGES,
    MAX_SESSIONS, Pieces, ProtocolRange, Refusal, SnapshotChunk, Stage, Touch, take_frame,
};
use bytes::{Bytes, BytesMut};

use crate::examples;

fn encoded(frame: &Frame) -> Vec<u8> {
    let mut pieces = Pieces::new();
    frame.encode(&mut pieces).unwrap();
    pieces.take().concat()
}

fn stage_of(frame: &Frame) -> Stage {
    match frame.kind() {
        FrameType::Hello | FrameType::Welcome | FrameType::Confirm | FrameType::Refused => {
            Stage::Handshake
        }
        _ => Stage::Lane(frame.lane()),
    }
}

/// The frame that the bytes are, and that they all belong to it.
fn decoded(bytes: &[u8], stage: Stage) -> Result<Frame, FrameError> {
    let mut buffer = BytesMut::from(bytes);
    let (kind, body) = take_frame(&mut buffer, stage)?.unwrap();
    assert!(buffer.is_empty());
    Frame::decode(kind, body)
}

#[test]
fn each_frame_is_read_back_as_it_was_written() {
    let refusals = examples::refusals().into_iter().map(Frame::Refused);
    let frames = examples::all().into_iter().map(|(_, frame)| frame);
    for frame in frames.chain(refusals) {
        let bytes = encoded(&frame);
        assert_eq!(decoded(&bytes, stage_of(&frame)), Ok(frame.clone()));
        assert!(frame.wire_bytes() >= bytes.len(), "{frame:?}");
    }
}

#[test]
fn each_type_of_frame_has_an_example() {
    for kind in FrameType::all() {
        let known = examples::all()
            .iter()
            .any(|(_, frame)| frame.kind() == kind);
        assert!(known, "{kind}");
        assert_eq!(FrameType::from_code(kind.code()), Some(kind));
    }
}

#[test]
fn frames_arrive_in_any_pieces() {
    let frames: Vec<Frame> = examples::all()
        .into_iter()
        .map(|(_, frame)| frame)
        .filter(|frame| stage_of(frame) == Stage::Lane(Lane::Urgent))
        .collect();
    assert!(frames.len() > 5);
    let mut pieces = Pieces::new();
    for frame in &frames {
        frame.encode(&mut pieces).unwrap();
    }
    let stream = pieces.take().concat();
    for size in 1..stream.len() {
        let mut buffer = BytesMut::new();
        let mut found = Vec::new();
        for piece in stream.chunks(size) {
            buffer.extend_from_slice(piece);
            while let Some((kind, body)) =
                take_frame(&mut buffer, Stage::Lane(Lane::Urgent)).unwrap()
            {
                found.push(Frame::decode(kind, body).unwrap());
            }
        }
        assert_eq!(found, frames);
    }
}

#[test]
fn large_payloads_are_not_copied_in_either_direction() {
    let payload = Bytes::from(vec![7; 100_000]);
    let frame = Frame::Raft(vec![
        examples::append(payload.clone()),
        examples::append(payload.clone()),
        examples::message(MessageKind::Heartbeat),
    ]);
    let mut pieces = Pieces::new();
    examples::all()[4].1.encode(&mut pieces).unwrap();
    frame.encode(&mut pieces).unwrap();
    examples::all()[5].1.encode(&mut pieces).unwrap();
    let total = pieces.len();
    let taken = pieces.take();
    assert!(pieces.is_empty());
    let shared = taken
        .iter()
        .filter(|piece| piece.as_ptr() == payload.as_ptr());
    assert_eq!(shared.count(), 2);
    let stream = taken.concat();
    assert_eq!(stream.len(), total);
    let mut buffer = BytesMut::from(&stream[..]);
    let start = buffer.as_ptr() as usize;
    let memory = start..start + stream.len();
    let mut found = Vec::new();
    while let Some((kind, body)) = take_frame(&mut buffer, Stage::Lane(Lane::Log)).unwrap() {
        found.push(Frame::decode(kind, body).unwrap());
    }
    assert_eq!(found.len(), 3);
    assert_eq!(found[1], frame);
    let Frame::Raft(messages) = &found[1] else {
        panic!("{found:?}");
    };
    for message in &messages[..2] {
        let at = message.entries[1].payload.as_ptr() as usize;
        assert!(memory.contains(&at), "copied");
    }
}

#[test]
fn each_damaged_byte_is_noticed() {
    for (name, frame) in examples::all() {
        let bytes = encoded(&frame);
        for at in 0..bytes.len() {
            for bit in [1, 0x80] {
                let mut damaged = bytes.clone();
                damaged[at] ^= bit;
                let mut buffer = BytesMut::from(&damaged[..]);
                match take_frame(&mut buffer, stage_of(&frame)) {
                    // The length has grown: the rest of the frame is waited for.
                    Ok(None) => assert!(at < 4, "{name} {at}"),
                    Ok(Some(_)) => panic!("{name}: byte {at} was changed, and nobody noticed"),
                    Err(error) => assert!(!error.to_string().contains('\n')),
                }
            }
        }
    }
}

#[test]
fn a_length_beyond_the_limit_is_refused_before_the_body_arrives() {
    for kind in FrameType::all() {
        let limit = u32::try_from(kind.max_body_bytes()).unwrap();
        for (length, refused) in [(limit, false), (limit + 1, true), (u32::MAX, true)] {
            let mut head = length.to_le_bytes().to_vec();
            head.extend([kind.code(), 0, 0, 0, 1, 2, 3, 4]);
            assert_eq!(head.len(), HEAD_BYTES);
            let stage = [Stage::Handshake]
                .into_iter()
                .chain(Lane::ALL.map(Stage::Lane))
                .find(|stage| stage.admits(kind))
                .unwrap();
            let mut buffer = BytesMut::from(&head[..]);
            let outcome = take_frame(&mut buffer, stage);
            match outcome {
                Err(FrameError::TooLarge { bytes, .. }) => {
                    assert!(refused);
                    assert_eq!(bytes, u64::from(length));
                }
                Ok(None) => assert!(!refused && buffer.capacity() < 4096),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Before a server has shown who it is, it cannot make this one wait for a large frame.
#[test]
fn only_small_frames_pass_before_the_handshake_is_complete() {
    for (name, frame) in examples::all() {
        let mut buffer = BytesMut::from(&encoded(&frame)[..]);
        let outcome = take_frame(&mut buffer, Stage::Handshake);
        if stage_of(&frame) == Stage::Handshake {
            assert!(outcome.unwrap().is_some(), "{name}");
            assert!(frame.kind().max_body_bytes() <= 4096);
            for lane in Lane::ALL {
                assert!(!Stage::Lane(lane).admits(frame.kind()));
            }
        } else {
            let kind = frame.kind();
            let stage = Stage::Handshake;
            assert_eq!(outcome, Err(FrameError::Unexpected { kind, stage }));
        }
    }
}

#[test]
fn what_exceeds_a_limit_is_not_encoded() {
    let mut pieces = Pieces::new();
    let too_large = [
        Frame::Touch(Touch {
            batch: 1,
            sessions: vec![1; MAX_SESSIONS + 1],
        }),
        Frame::SnapshotChunk(SnapshotChunk {
            transfer: 1,
            offset: 0,
            data: vec![0; MAX_CHUNK_BYTES + 1].into(),
        }),
        Frame::Raft(vec![
            examples::message(MessageKind::Heartbeat);
            MAX_MESSAGES + 1
        ]),
        Frame::Raft(vec![examples::append(vec![0; 69 << 20].into())]),
    ];
    for frame in too_large {
        frame.encode(&mut pieces).unwrap_err();
        assert!(pieces.is_empty());
    }
    let largest = [
        Frame::Touch(Touch {
            batch: 1,
            sessions: vec![1; MAX_SESSIONS],
        }),
        Frame::SnapshotChunk(SnapshotChunk {
            transfer: 1,
            offset: 0,
            data: vec![0; MAX_CHUNK_BYTES].into(),
        }),
        Frame::Raft(vec![
            examples::message(MessageKind::Heartbeat);
            MAX_MESSAGES
        ]),
        // The largest entry that the log takes.
        Frame::Raft(vec![examples::append(vec![0; 64 << 20].into())]),
    ];
    for frame in largest {
        let bytes = encoded(&frame);
        assert_eq!(decoded(&bytes, stage_of(&frame)), Ok(frame));
    }
}

/// A count takes no memory by itself.
#[test]
fn counts_that_lie_are_refused() {
    let mut body = vec![0; 12];
    body.extend([0xff; 4]);
    let touch = |count: u32| {
        let mut body = 12_u64.to_le_bytes().to_vec();
        body.extend(count.to_le_bytes());
        body.extend([0; 4]);
        Frame::decode(FrameType::Touch, body.into())
    };
    assert!(touch(0).is_ok());
    for count in [1, 65_536, 65_537, u32::MAX] {
        assert!(touch(count).is_err(), "{count}");
    }
    let mut body = 12_u64.to_le_bytes().to_vec();
    body.extend(65_537_u32.to_le_bytes());
    body.resize(16 + 8 * 65_537, 0);
    let error = Frame::decode(FrameType::Touch, body.into()).unwrap_err();
    assert!(error.to_string().contains("too many sessions"), "{error}");
    for count in [1, 4096, 4097, u32::MAX] {
        let body = count.to_le_bytes().to_vec();
        assert!(Frame::decode(FrameType::Raft, body.into()).is_err());
    }
}

#[test]
fn a_hello_without_an_incarnation_or_a_process_is_refused() {
    let decoded = |hello: Hello| decoded(&encoded(&Frame::Hello(hello)), Stage::Handshake);
    let hello = examples::hello();
    assert!(decoded(hello.clone()).is_ok());
    let incarnation = 0;
    assert!(
        decoded(Hello {
            incarnation,
            ..hello.clone()
        })
        .is_err()
    );
    assert!(
        decoded(Hello {
            run: 0,
            ..hello.clone()
        })
        .is_err()
    );
    for (oldest, newest) in [(0, 1), (2, 1)] {
        let protocol = ProtocolRange { oldest, newest };
        assert!(
            decoded(Hello {
                protocol,
                ..hello.clone()
            })
            .is_err()
        );
    }
}

#[test]
fn an_address_that_no_server_can_have_is_refused_or_left_out() {
    let whole = encoded(&Frame::Hello(Hello {
        address: String::new(),
        ..examples::hello()
    }));
    // The address is the last part of version 1.
    let address_at = whole.len() - 2 - 24;
    let with_address = |length: u16, address: &[u8]| {
        let mut body = whole[HEAD_BYTES..address_at].to_vec();
        body.extend(length.to_le_bytes());
        body.extend(address);
        Frame::decode(FrameType::Hello, body.into())
    };
    assert!(with_address(3, b"a:1").is_ok());
    for (length, address, what) in [
        (3, b"a:".as_slice(), "a length goes beyond its end"),
        (2, b"a:1", "it ends within a field"),
        (2, b"\xff\xfe", "its address is not UTF-8"),
        (2, b"a\n", "its address has a control character"),
        (1025, &[b'a'; 1025], "its address is too long"),
    ] {
        let error = with_address(length, address).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    let long = Hello {
        address: "a".repeat(1025),
        ..examples::hello()
    };
    assert_eq!(encoded(&Frame::Hello(long)), whole);
}

#[test]
fn a_hello_of_a_later_version_may_have_more_fields() {
    let mut hello = examples::hello();
    let mut body = encoded(&Frame::Hello(hello.clone()))[HEAD_BYTES..].to_vec();
    body.extend(b"new");
    assert!(Frame::decode(FrameType::Hello, body.clone().into()).is_err());
    hello.protocol.newest = 3;
    body[2] = 3;
    let body = Bytes::from(body);
    assert_eq!(
        Frame::decode(FrameType::Hello, body.clone()),
        Ok(Frame::Hello(hello))
    );
    assert_eq!(
        Frame::peek_protocol(FrameType::Hello, &body),
        Some(ProtocolRange {
            oldest: 1,
            newest: 3
        })
    );
}

/// A text of a peer cannot write lines of its own into a log.
#[test]
fn texts_of_peers_are_short_and_on_one_line() {
    let text = "a\nb\x1b[31m".to_owned() + &"x".repeat(5000);
    let frame = Frame::Refused(Refusal::BadFrame(text));
    let read = decoded(&encoded(&frame), Stage::Handshake).unwrap();
    let Frame::Refused(Refusal::BadFrame(text)) = read else {
        panic!("{read:?}");
    };
    assert!(text.starts_with("a b [31mxx"), "{text}");
    assert_eq!(text.len(), 512);
}

#[test]
fn each_refusal_is_one_line() {
    for refusal in examples::refusals() {
        let text = refusal.to_string();
        assert!(!text.contains('\n') && !text.contains("  "), "{text}");
    }
}
