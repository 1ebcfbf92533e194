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

/// xorshift64*: small, fixed, good enough to shuffle bytes.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 16) as usize % bound.max(1)
    }
}

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

fn mutate(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    for _ in 0..=random.below(4) {
        let place = random.below(bytes.len());
        match random.below(7) {
            0 => bytes.truncate(place),
            1 => bytes.extend_from_slice(&random.next().to_be_bytes()),
            2 => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len());
                bytes.truncate(place);
                bytes.extend_from_slice(&other[from..]);
            }
            3 | 4 => {
                let edge = EDGES[random.below(EDGES.len())].to_be_bytes();
                for (to, from) in bytes.iter_mut().skip(place).zip(edge) {
                    *to = from;
                }
            }
            5 if !bytes.is_empty() => {
                bytes.remove(place);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(place) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }
}

fn smoke(seed: u64, target: fn(&[u8])) {
    let corpus = corpus();
    for bytes in &corpus {
        target(bytes);
    }
    let mut random = Random(seed);
    for _ in 0..ROUNDS {
        let mut bytes = corpus[random.below(corpus.len())].clone();
        mutate(&mut bytes, &corpus, &mut random);
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
