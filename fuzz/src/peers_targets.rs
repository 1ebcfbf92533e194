//! Fuzz targets of the wire between servers: each function takes any bytes at all and fails if a
//! promise of the codec does not hold for them. Decoding never panics; what decodes encodes to
//! something that decodes to the same.

use baton_peers::codec::{
    Frame, FrameType, HEAD_BYTES, Lane, Pieces, Preface, Stage, check_preface, take_frame,
};
use baton_peers::handshake::{KnownMember, LocalServer};
use bytes::{Bytes, BytesMut};

const STAGES: [Stage; 4] = [
    Stage::Handshake,
    Stage::Lane(Lane::Urgent),
    Stage::Lane(Lane::Log),
    Stage::Lane(Lane::Snapshot),
];

/// The body of a frame, whose type the first byte selects.
pub fn frame(bytes: &[u8]) {
    let Some((selector, body)) = bytes.split_first() else {
        return;
    };
    let kinds: Vec<FrameType> = FrameType::all().collect();
    let kind = kinds[usize::from(*selector) % kinds.len()];
    let Ok(frame) = Frame::decode(kind, Bytes::copy_from_slice(body)) else {
        return;
    };
    assert_eq!(frame.kind(), kind);
    if let Frame::Hello(hello) = &frame {
        let mut here = LocalServer::new(hello.to, 1, 1);
        let _ = here.check(hello);
        here.cluster = hello.cluster;
        here.members.push(KnownMember {
            id: hello.from,
            incarnation: hello.incarnation,
            acknowledged_index: hello.last_index,
        });
        let _ = here.check(hello);
    }
    let mut pieces = Pieces::new();
    assert_eq!(frame.encode(&mut pieces), Ok(()));
    let encoded = pieces.take().concat();
    assert!(encoded.len() <= frame.wire_bytes(), "{frame:?}");
    let mut buffer = BytesMut::from(&encoded[..]);
    let stage = STAGES.into_iter().find(|stage| stage.admits(kind));
    let again = stage.map(|stage| take_frame(&mut buffer, stage));
    let Some(Ok(Some((again, body)))) = again else {
        panic!("{frame:?} is not taken out again: {again:?}");
    };
    assert_eq!(again, kind);
    assert_eq!(Frame::decode(kind, body), Ok(frame));
}

/// A stream of frames, whose checksums are put right: the first byte says in which pieces it
/// arrives, which must make no difference, and what the connection is for.
pub fn stream(bytes: &[u8]) {
    let Some((selector, rest)) = bytes.split_first() else {
        return;
    };
    let _ = check_preface(rest);
    let stage = STAGES[usize::from(*selector) % STAGES.len()];
    let mut stream = rest.to_vec();
    let mut at = 0;
    while stream.len() >= at + HEAD_BYTES {
        let length = u32::from_le_bytes([stream[at], stream[at + 1], 0, 0]);
        stream[at + 2..at + 4].fill(0);
        stream[at + 5..at + 8].fill(0);
        let body = at + HEAD_BYTES;
        let end = body + length as usize;
        if end > stream.len() {
            break;
        }
        let crc = crc32c::crc32c(&stream[at..at + 8]);
        let crc = crc32c::crc32c_append(crc, &stream[body..end]);
        stream[at + 8..body].copy_from_slice(&crc.to_le_bytes());
        at = end;
    }
    let split = |piece: usize| {
        let mut buffer = BytesMut::new();
        let mut found = Vec::new();
        for piece in stream.chunks(piece) {
            buffer.extend_from_slice(piece);
            loop {
                let taken = take_frame(&mut buffer, stage).and_then(|taken| {
                    taken
                        .map(|(kind, body)| Frame::decode(kind, body))
                        .transpose()
                });
                match taken {
                    Ok(Some(frame)) => found.push(frame),
                    Ok(None) => break,
                    Err(error) => {
                        assert!(!error.to_string().contains('\n'), "{error}");
                        return (found, Some(error));
                    }
                }
            }
        }
        (found, None)
    };
    let piece = usize::from(*selector / 4).max(1);
    assert_eq!(split(piece), split(stream.len().max(1)));
}

/// The first bytes of a connection: what more of them says never contradicts what fewer said.
pub fn preface(bytes: &[u8]) {
    let whole = check_preface(bytes);
    for length in 0..bytes.len() {
        match (check_preface(&bytes[..length]), whole) {
            (Preface::Incomplete, _) => {}
            (Preface::Baton, Preface::Baton) => {}
            (Preface::Foreign(_), Preface::Foreign(_)) => {}
            (part, whole) => panic!("{part:?}, then {whole:?}"),
        }
    }
}
