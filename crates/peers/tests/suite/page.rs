//! `docs/internals/peers.md` is kept true: its table of types is that of the code, and each of the
//! examples to which it leads is what this build writes and reads.
//!
//! `BATON_WRITE_FIXTURE=1 cargo test -p baton-locks-peers --test suite page::` prints the examples.
//! Those of a protocol version that was released do not change.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use baton_peers::codec::{Frame, FrameType, HEAD_BYTES, Lane, PREFACE, Pieces, Stage, take_frame};
use bytes::BytesMut;

use crate::examples;

const EXAMPLES: &str = include_str!("../examples.txt");

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/peers.md");
    fs::read_to_string(path).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        write!(out, "{byte:02x}").unwrap();
        out
    })
}

/// A frame as the page shows it: the head's fields and the body, in rows of 32 bytes.
fn shown(name: &str, frame: &Frame) -> String {
    let mut pieces = Pieces::new();
    frame.encode(&mut pieces).unwrap();
    let bytes = pieces.take().concat();
    let mut out = format!(
        "{name}\n  {} {} {} {} {}\n",
        hex(&bytes[..4]),
        hex(&bytes[4..5]),
        hex(&bytes[5..6]),
        hex(&bytes[6..8]),
        hex(&bytes[8..HEAD_BYTES])
    );
    for row in bytes[HEAD_BYTES..].chunks(32) {
        let words: Vec<String> = row.chunks(8).map(hex).collect();
        writeln!(out, "  {}", words.join(" ")).unwrap();
    }
    out
}

#[test]
fn the_examples_are_what_this_build_writes_and_reads() {
    let mut expected = String::new();
    for (name, frame) in examples::all() {
        expected += &shown(name, &frame);
    }
    if std::env::var_os("BATON_WRITE_FIXTURE").is_some() {
        println!("{expected}");
    }
    assert_eq!(EXAMPLES, expected);
    let names = examples::all().into_iter();
    let mut shown = EXAMPLES
        .split('\n')
        .filter(|line| !line.is_empty())
        .peekable();
    for (name, frame) in names {
        assert_eq!(shown.next(), Some(name));
        let mut bytes = Vec::new();
        while let Some(row) = shown.next_if(|line| line.starts_with("  ")) {
            let digits: String = row.split_whitespace().collect();
            for at in (0..digits.len()).step_by(2) {
                bytes.push(u8::from_str_radix(&digits[at..at + 2], 16).unwrap());
            }
        }
        let stages = Lane::ALL
            .map(Stage::Lane)
            .into_iter()
            .chain([Stage::Handshake]);
        let stage = stages
            .into_iter()
            .find(|stage| stage.admits(frame.kind()))
            .unwrap();
        let mut buffer = BytesMut::from(&bytes[..]);
        let (kind, body) = take_frame(&mut buffer, stage).unwrap().unwrap();
        assert_eq!(Frame::decode(kind, body).unwrap(), frame);
    }
}

#[test]
fn the_table_of_types_is_that_of_the_code() {
    let page = page();
    for (lane, number) in Lane::ALL.into_iter().zip(0..) {
        assert!(page.contains(&format!("| {lane} | {number} |")));
        assert_eq!(lane.as_byte(), number);
    }
    for kind in FrameType::all() {
        let lane = match kind.lane() {
            None if Stage::Handshake.admits(kind) => "handshake".to_owned(),
            None => "each".to_owned(),
            Some(lane) => lane.to_string(),
        };
        let limit = kind.max_body_bytes();
        let row = format!("| {} | {kind} | {lane} | {limit} |", kind.code());
        assert!(page.contains(&row), "the page lacks {row}");
    }
    assert!(page.contains(std::str::from_utf8(&PREFACE).unwrap()));
}

#[test]
fn each_refusal_has_its_row() {
    let page = page();
    for refusal in examples::refusals() {
        if refusal.code() < 99 {
            let row = format!("| {} | ", refusal.code());
            let table = page.split_once("## Refusals").unwrap().1;
            assert!(table.contains(&row), "the page lacks {refusal:?}");
        }
    }
}
