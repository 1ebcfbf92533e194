//! The fuzz targets of `fuzz/src/zkdata_targets.rs`, on a stable toolchain, for a bounded number of
//! rounds from fixed seeds: bytes at random, and files that ZooKeeper wrote, mutated. What fails
//! here fails again. And lengths that lie.

#[path = "../../../../fuzz/src/zkdata_targets.rs"]
mod zkdata_targets;

const SNAPSHOT: &[u8] = include_bytes!("../golden/snapshot.0");
const LOG: &[u8] = include_bytes!("../golden/log.1");
/// Numbers at the edges of lengths and counts.
const EDGES: [i32; 9] = [i32::MIN, -2, -1, 0, 1, 64, 0xf_ffff, 0xfff_ffff, i32::MAX];

/// The transactions of the log, as the target takes them.
fn transactions() -> Vec<u8> {
    let kinds = [1, 2, 5, 7, 13, 14, 15, 16, 19, 20, 21, -1, -10, -11, 99];
    let mut out = Vec::new();
    let mut at = 16;
    while LOG.len() > at + 12 {
        let length = u32::from_be_bytes(LOG[at + 8..at + 12].try_into().unwrap()) as usize;
        if length == 0 {
            break;
        }
        let txn = &LOG[at + 12..at + 12 + length];
        let kind = i32::from_be_bytes(txn[28..32].try_into().unwrap());
        let kind = kinds.iter().position(|known| *known == kind).unwrap();
        let body = &txn[32..32 + (length - 32).min(255)];
        out.extend_from_slice(&[0x40 | kind as u8, body.len() as u8]);
        out.extend_from_slice(body);
        at += 12 + length + 1;
    }
    out
}

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
                let edge = EDGES[rng.usize(..EDGES.len())].to_be_bytes();
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

fn rounds(target: fn(&[u8]), seeds: &[&[u8]], count: u64) {
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

#[test]
fn any_bytes_as_a_snapshot() {
    // Without header and seals, from which the target makes a whole file.
    let tree = &SNAPSHOT[16..SNAPSHOT.len() - 13 - 33];
    rounds(zkdata_targets::snapshot, &[SNAPSHOT, tree], 500);
}

#[test]
fn any_bytes_as_a_log() {
    let transactions = transactions();
    rounds(zkdata_targets::log, &[&LOG[..1200], &transactions], 500);
}
