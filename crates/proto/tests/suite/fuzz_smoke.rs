//! The fuzz targets of `fuzz/`, on a stable toolchain, for a bounded time: recorded frames and
//! hand-made ones, mutated from a fixed seed. What fails here fails again.

#[path = "../../../../fuzz/src/targets.rs"]
mod targets;

const ROUNDS: usize = 30_000;

/// Numbers that sit at the edges of lengths, counts and op codes.
const EDGES: [i32; 12] = [
    i32::MIN,
    -2,
    -1,
    0,
    1,
    4,
    14,
    105,
    0xffff,
    0xf_ffff,
    0x20_0000,
    i32::MAX,
];

fn corpus() -> Vec<Vec<u8>> {
    let recordings = [
        include_str!("../golden/java-3.8.0.hex"),
        include_str!("../golden/kazoo-2.11.0.hex"),
    ];
    let hex = recordings
        .into_iter()
        .flat_map(str::lines)
        .filter_map(|line| line.rsplit(' ').next());
    let bytes = |hex: &str| {
        let digit = |index| u8::from_str_radix(&hex[index..index + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digit).collect()
    };
    hex.map(bytes).collect()
}

fn mutate(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], rng: &mut fastrand::Rng) {
    for _ in 0..=rng.usize(..4) {
        let at = rng.usize(..bytes.len().max(1));
        match rng.usize(..7) {
            0 => bytes.truncate(at),
            1 => bytes.extend_from_slice(&rng.u64(..).to_be_bytes()),
            2 => {
                let other = &corpus[rng.usize(..corpus.len())];
                let from = rng.usize(..other.len().max(1));
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            3 | 4 => {
                let edge = EDGES[rng.usize(..EDGES.len())].to_be_bytes();
                for (to, from) in bytes.iter_mut().skip(at).zip(edge) {
                    *to = from;
                }
            }
            5 if !bytes.is_empty() => {
                bytes.remove(at);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.usize(..8);
                }
            }
        }
    }
}

fn smoke(seed: u64, target: fn(&[u8])) {
    smoke_on(&corpus(), seed, target);
}

fn smoke_on(corpus: &[Vec<u8>], seed: u64, target: fn(&[u8])) {
    for bytes in corpus {
        target(bytes);
    }
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..ROUNDS {
        let mut bytes = corpus[rng.usize(..corpus.len())].clone();
        mutate(&mut bytes, corpus, &mut rng);
        target(&bytes);
    }
}

#[test]
fn requests_hold_up() {
    smoke(0x1d87_2b41_9c5e_0001, targets::request);
}

#[test]
fn responses_hold_up() {
    smoke(0x1d87_2b41_9c5e_0002, targets::response);
}

#[test]
fn handshakes_hold_up() {
    smoke(0x1d87_2b41_9c5e_0003, targets::connect);
}

#[test]
fn frame_streams_hold_up() {
    smoke(0x1d87_2b41_9c5e_0004, targets::frames);
}

/// Texts that hold each part of a line.
const MEMBERSHIPS: [&str; 5] = [
    "server.1=localhost:2780:2783:participant;127.0.0.1:2181\nserver.2=localhost:2781:2784:participant;localhost:2182\nversion=100000000",
    "server.3=[::1]:2888:3888:observer;[fe80::1]:2181;2281\r\nserver.127=zk7.example:2888:3888\n\nversion=ffffffffffffffff\n",
    "server.1=a:2888:3888|b:2889:3889:observer;;2281\nversion=0",
    "group.1=1:2\nweight.1=1\nserver.0=0.0.0.0:1:65535;0.0.0.0:2181\n",
    "",
];

#[test]
fn texts_of_members_hold_up() {
    let corpus = MEMBERSHIPS.map(|text| text.as_bytes().to_vec());
    smoke_on(&corpus, 0x1d87_2b41_9c5e_0005, targets::ensemble_config);
}
