//! The fuzz targets of `fuzz/`, on a stable toolchain, for a bounded time: real messages, mutated
//! from a fixed seed. What fails here fails again.

#[path = "../../../../fuzz/src/sasl_targets.rs"]
mod targets;

use super::{response, server};

const ROUNDS: usize = 20_000;

/// Bytes that mean something in a message.
const MARKS: &[u8] = b"\"\\,= \t\0\xffaz0";

fn mutate(random: &mut fastrand::Rng, message: &mut Vec<u8>) {
    for _ in 0..random.usize(1..6) {
        let at = random.usize(0..=message.len());
        match random.u8(0..4) {
            0 if at < message.len() => message[at] = random.choice(MARKS.iter().copied()).unwrap(),
            1 => message.insert(at, random.choice(MARKS.iter().copied()).unwrap()),
            2 => message.truncate(at),
            _ => {
                let from = random.usize(0..=at);
                message.extend_from_within(from..at);
            }
        }
    }
}

#[test]
fn a63_mutated_messages_let_nobody_in() {
    let mut random = fastrand::Rng::with_seed(7);
    let seeds = [
        response("bob", "secret"),
        server().challenge().into_bytes(),
        b"rspauth=ea40f60335c427b5527b84dbabcdfffd".to_vec(),
    ];
    for round in 0..ROUNDS {
        let mut message = seeds[round % seeds.len()].clone();
        mutate(&mut random, &mut message);
        targets::response(&message);
        targets::challenge(&message);
    }
}
