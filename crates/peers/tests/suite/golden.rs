//! The frames of earlier builds, byte by byte, as their page of the protocol showed them. They are
//! kept in `golden/`, one file for each build at which a frame changed, and are never edited: this
//! build reads all of them, and writes the same but for the frames that say which versions it
//! speaks.

use std::fs;
use std::path::Path;

use baton_peers::codec::{Frame, FrameType, Hello, Lane, Pieces, Stage, Welcome, take_frame};
use bytes::BytesMut;

use crate::examples;

/// The frames of a build, each with its name and its bytes.
fn frames_of(build: &str) -> Vec<(String, Vec<u8>)> {
    let name = format!("tests/golden/frames-{build}.txt");
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
    let mut frames: Vec<(String, Vec<u8>)> = Vec::new();
    for line in text.lines() {
        let Some(row) = line.strip_prefix("  ") else {
            frames.push((line.to_owned(), Vec::new()));
            continue;
        };
        let digits: String = row.split_whitespace().collect();
        let bytes = (0..digits.len()).step_by(2);
        let bytes = bytes.map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap());
        frames.last_mut().unwrap().1.extend(bytes);
    }
    frames
}

fn read(name: &str, bytes: &[u8]) -> Frame {
    let stages = Lane::ALL.map(Stage::Lane).into_iter();
    let taken = stages.chain([Stage::Handshake]).find_map(|stage| {
        let mut buffer = BytesMut::from(bytes);
        take_frame(&mut buffer, stage).ok().flatten()
    });
    let (kind, body) = taken.unwrap_or_else(|| panic!("{name}: no frame of this build"));
    Frame::decode(kind, body).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn the_frames_of_earlier_builds_are_read() {
    for build in ["d4fd26b", "7e0eac3"] {
        let frames = frames_of(build);
        assert_eq!(frames.len(), 22, "{build}");
        for (name, bytes) in frames {
            let name = format!("{name} of {build}");
            let frame = read(&name, &bytes);
            let (Frame::Hello(hello) | Frame::Welcome(Welcome { hello, .. })) = &frame else {
                let mut pieces = Pieces::new();
                frame.encode(&mut pieces).unwrap();
                assert_eq!(pieces.take().concat(), bytes, "{name}");
                continue;
            };
            assert_eq!((hello.protocol.oldest, hello.protocol.newest), (1, 1));
            let has_address = build == "7e0eac3" && frame.kind() == FrameType::Hello;
            assert_eq!(!hello.address.is_empty(), has_address, "{name}");
        }
    }
}

/// A build that knows version 1 alone reads further fields only behind a hello that names a later
/// version.
#[test]
fn a_hello_of_this_build_is_readable_by_builds_before_addresses() {
    let hello = Hello {
        address: "server1:2888".to_owned(),
        ..examples::hello()
    };
    assert!(hello.protocol.oldest == 1 && hello.protocol.newest > 1);
    let mut pieces = Pieces::new();
    Frame::Hello(hello).encode(&mut pieces).unwrap();
    let written = pieces.take().concat();
    let (_, before) = frames_of("d4fd26b").swap_remove(0);
    let fields = |bytes: &[u8]| bytes[16..132].to_vec();
    assert_eq!(fields(&written), fields(&before));
}
