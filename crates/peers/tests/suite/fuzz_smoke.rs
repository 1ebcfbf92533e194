//! The fuzz targets of `fuzz/src/peers_targets.rs`, on a stable toolchain, for a bounded number of
//! rounds from fixed seeds: bytes at random, and frames of each type, mutated. What fails here
//! fails again.

use baton_peers::codec::{Frame, FrameType, HEAD_BYTES, PREFACE, Pieces, Stage};

use crate::examples;

#[path = "../../../../fuzz/src/peers_targets.rs"]
mod peers_targets;

/// Numbers at the edges of lengths and counts.
const EDGES: [u32; 8] = [0, 1, 2, 0xff, 0xffff, 0x1_0000, 0x7fff_ffff, u32::MAX];

fn mutated(seed: &[u8], rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=rng.u64(..6) {
        let at = rng.usize(..bytes.len().max(1));
        match rng.u64(..6) {
            0 => bytes.truncate(at),
            1 => {
                let piece = bytes[at..(at + 90).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
            2 | 3 => {
                let edge = EDGES[rng.usize(..EDGES.len())].to_le_bytes();
                for (to, from) in bytes.iter_mut().skip(at).zip(edge) {
                    *to = from;
                }
            }
            _ => bytes
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|byte| *byte = rng.u8(..)),
        }
    }
    bytes
}

fn rounds(target: fn(&[u8]), seeds: &[Vec<u8>], count: u64) {
    let mut rng = fastrand::Rng::with_seed(count);
    for seed in seeds {
        target(seed);
        for _ in 0..count {
            target(&mutated(seed, &mut rng));
        }
    }
    for _ in 0..count {
        let noise: Vec<u8> = (0..rng.u64(..300)).map(|_| rng.u8(..)).collect();
        target(&noise);
    }
}

fn encoded(frame: &Frame) -> Vec<u8> {
    let mut pieces = Pieces::new();
    frame.encode(&mut pieces).unwrap();
    pieces.take().concat()
}

fn frames() -> Vec<Frame> {
    let refusals = examples::refusals().into_iter().map(Frame::Refused);
    let frames = examples::all().into_iter().map(|(_, frame)| frame);
    frames.chain(refusals).collect()
}

#[test]
fn any_bytes_as_the_body_of_a_frame() {
    let seeds: Vec<Vec<u8>> = frames()
        .iter()
        .map(|frame| {
            let kind = FrameType::all().position(|kind| kind == frame.kind());
            let mut seed = vec![u8::try_from(kind.unwrap()).unwrap()];
            seed.extend(&encoded(frame)[HEAD_BYTES..]);
            seed
        })
        .collect();
    rounds(peers_targets::frame, &seeds, 400);
}

#[test]
fn any_bytes_as_a_stream() {
    let seeds: Vec<Vec<u8>> = (0..4_u8)
        .map(|stage| {
            let mut seed = vec![stage + 28];
            for frame in frames() {
                let admits = match stage {
                    0 => Stage::Handshake.admits(frame.kind()),
                    _ => Stage::Lane(baton_peers::codec::Lane::ALL[usize::from(stage) - 1])
                        .admits(frame.kind()),
                };
                if admits {
                    seed.extend(encoded(&frame));
                }
            }
            seed
        })
        .collect();
    rounds(peers_targets::stream, &seeds, 500);
}

#[test]
fn any_bytes_as_a_preface() {
    let seeds = [PREFACE.to_vec(), vec![0xff; 8], b"GET / HTTP/1.1".to_vec()];
    rounds(peers_targets::preface, &seeds, 500);
}
