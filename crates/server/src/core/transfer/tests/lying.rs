//! Peers that send anything: nothing panics, nothing is lost, nothing grows, and an honest transfer
//! arrives afterwards.

use std::time::Duration;

use baton_peers::codec::{
    Frame, SnapshotAck, SnapshotChunk, SnapshotDone, SnapshotOffer, SnapshotReject,
    SnapshotRejectReason,
};
use bytes::Bytes;

use super::pair::{FOLLOWER, HeldWorker, LEADER, Pair, TERM, limits, open, over_the_wire};
use crate::core::transfer::{Incoming, SendFailure};

fn offer(transfer: u64, bytes: u64) -> Frame {
    Frame::SnapshotOffer(SnapshotOffer {
        transfer,
        index: 20,
        term: TERM,
        bytes,
        crc: 5,
    })
}

fn chunk(transfer: u64, offset: u64, length: usize) -> Frame {
    Frame::SnapshotChunk(SnapshotChunk {
        transfer,
        offset,
        data: Bytes::from(vec![0; length]),
    })
}

/// Feeds frames to the follower; returns its answers.
fn answers(pair: &mut Pair, frames: &[Frame]) -> Vec<Frame> {
    for frame in frames {
        let frame = over_the_wire(frame).unwrap();
        pair.incoming.frame(LEADER, frame, pair.committed, pair.now);
    }
    pair.poll_receiver();
    pair.up.drain(..).collect()
}

fn reject(transfer: u64, reason: SnapshotRejectReason) -> Frame {
    Frame::SnapshotReject(SnapshotReject { transfer, reason })
}

fn ack(transfer: u64, offset: u64) -> Frame {
    Frame::SnapshotAck(SnapshotAck { transfer, offset })
}

#[test]
fn wrong_offsets_and_sizes_are_refused() {
    use SnapshotRejectReason::{Damaged, Gap};
    let cases: [(&[Frame], SnapshotRejectReason); 7] = [
        (&[chunk(1, 8, 8)], Gap),
        (&[chunk(1, u64::MAX, 8)], Gap),
        (&[chunk(1, 0, 8), chunk(1, 4, 8)], Gap),
        (
            &[
                chunk(1, 0, 8),
                Frame::SnapshotDone(SnapshotDone { transfer: 1 }),
            ],
            Gap,
        ),
        // More than is acknowledged.
        (&[chunk(1, 0, 60), chunk(1, 60, 5)], Gap),
        // Not a snapshot.
        (&[chunk(1, 0, 64)], Damaged),
        (&[chunk(9, 0, 8)], Gap),
    ];
    for (frames, reason) in cases {
        let (mut pair, _) = Pair::new();
        assert_eq!(answers(&mut pair, &[offer(1, 500)]), [ack(1, 0)]);
        let transfer = match &frames[0] {
            Frame::SnapshotChunk(chunk) => chunk.transfer,
            _ => 1,
        };
        let refused = answers(&mut pair, frames);
        assert_eq!(refused, [reject(transfer, reason)], "{frames:?}");
        // What is still on its way needs no answer.
        let rest = [chunk(transfer, 96, 32), chunk(transfer, 128, 32)];
        assert_eq!(answers(&mut pair, &rest), []);
    }
    for bytes in [0, 1, 63, 64] {
        let (mut pair, _) = Pair::new();
        let mut frames = vec![offer(1, bytes)];
        frames.extend((bytes > 0).then(|| chunk(1, 0, bytes as usize)));
        // It is only created in the first turn.
        let mut refused = answers(&mut pair, &frames);
        refused.retain(|frame| !matches!(frame, Frame::SnapshotAck(_)));
        assert_eq!(refused, [reject(1, Damaged)], "{bytes} bytes");
        assert_eq!(pair.left_behind(), [] as [&str; 0]);
    }
    let (mut pair, _) = Pair::new();
    assert_eq!(answers(&mut pair, &[offer(1, 40)]), [ack(1, 0)]);
    assert_eq!(answers(&mut pair, &[chunk(1, 0, 48)]), [reject(1, Damaged)]);
    assert_eq!(pair.left_behind(), [] as [&str; 0]);
}

#[test]
fn endless_chunks_take_no_memory() {
    let (mut pair, _) = Pair::new();
    let writes = HeldWorker::default();
    let store = open(&pair.follower_disk.kill()).unwrap().snapshots();
    pair.incoming = Incoming::new(FOLLOWER, store, limits(), Box::new(writes.clone()));
    answers(&mut pair, &[offer(1, u64::MAX)]);
    let mut refused = 0;
    for number in 0..1_000 {
        let frames = [chunk(1, number * 32, 32)];
        refused += answers(&mut pair, &frames).len();
        assert!(writes.waiting() <= 2, "a creation, and a removal");
    }
    assert_eq!(refused, 1, "the window is exceeded once");
    // Nor do endless offers make endless jobs.
    for number in 2..1_000 {
        let index = number + 20;
        let frame = Frame::SnapshotOffer(SnapshotOffer {
            transfer: number,
            index,
            term: TERM,
            bytes: 500,
            crc: 5,
        });
        answers(&mut pair, &[frame]);
        assert!(writes.waiting() <= 12, "{}", writes.waiting());
    }
    while writes.run_one() {}
    pair.disconnect();
    answers(&mut pair, &[offer(5_000, 500)]);
    writes.run_one();
    writes.run_one();
    assert_eq!(answers(&mut pair, &[]), [ack(5_000, 0)]);
}

#[test]
fn answers_that_do_not_fit_end_the_transfer() {
    let (mut pair, point) = Pair::new();
    for offset in [u64::MAX, 100_000] {
        pair.begin(&point);
        pair.wait(limits().longest_pause);
        pair.poll_sender();
        let Some(Frame::SnapshotOffer(offer)) = pair.down.pop_front() else {
            panic!("no offer");
        };
        let answer = ack(offer.transfer, offset);
        pair.outgoing.frame(FOLLOWER, &answer, pair.now);
        pair.poll_sender();
        let failure = pair.outcome().outcome.unwrap_err();
        assert!(matches!(failure, SendFailure::Confused { .. }), "{failure}");
    }
    // More than was sent.
    pair.begin(&point);
    pair.wait(limits().longest_pause);
    pair.poll_sender();
    let Some(Frame::SnapshotOffer(offer)) = pair.down.pop_front() else {
        panic!("no offer");
    };
    pair.outgoing
        .frame(FOLLOWER, &ack(offer.transfer, 0), pair.now);
    pair.poll_sender();
    pair.outgoing
        .frame(FOLLOWER, &ack(offer.transfer, 65), pair.now);
    pair.poll_sender();
    let confused = SendFailure::Confused {
        offset: 65,
        sent: 64,
    };
    assert_eq!(pair.outcome().outcome, Err(confused));
    // An answer to another transfer, and one of a peer that is sent nothing, mean nothing.
    pair.down.clear();
    pair.begin(&point);
    pair.outgoing.frame(FOLLOWER, &ack(77, 0), pair.now);
    pair.outgoing
        .frame(9, &ack(offer.transfer + 1, 0), pair.now);
    pair.wait(limits().longest_pause);
    pair.settle();
    assert_eq!(pair.outcome().outcome, Ok(()));
}

/// The frames of an honest transfer, in order.
fn honest_frames() -> Vec<Frame> {
    let (mut pair, point) = Pair::new();
    pair.begin(&point);
    let mut frames = Vec::new();
    while pair.ended.is_empty() {
        pair.poll_sender();
        while let Some(frame) = pair.down.front() {
            frames.push(frame.clone());
            pair.deliver(FOLLOWER);
        }
        pair.poll_receiver();
        while pair.deliver(LEADER) {}
    }
    frames.retain(|frame| !matches!(frame, Frame::Raft(_)));
    frames
}

#[test]
fn frames_in_any_order_duplicated_cut_or_invented_do_no_harm() {
    let honest = honest_frames();
    let mut rng = fastrand::Rng::with_seed(22);
    let mut came = 0;
    for round in 0..600 {
        let (mut pair, point) = Pair::new();
        let mut frames = honest.clone();
        for _ in 0..rng.u8(..8) {
            let at = rng.usize(..frames.len());
            match rng.u8(..7) {
                0 => {
                    let other = rng.usize(..frames.len());
                    frames.swap(at, other);
                }
                1 => frames.insert(at, frames[rng.usize(..frames.len())].clone()),
                2 if frames.len() > 1 => drop(frames.remove(at)),
                3 => {
                    if let Frame::SnapshotChunk(chunk) = &mut frames[at] {
                        chunk.data.truncate(rng.usize(1..=chunk.data.len()));
                    }
                }
                4 => {
                    if let Frame::SnapshotChunk(chunk) = &mut frames[at] {
                        let mut data = chunk.data.to_vec();
                        let byte = rng.usize(..data.len());
                        data[byte] ^= 1 << rng.u8(..8);
                        chunk.data = Bytes::from(data);
                    }
                }
                5 => frames.insert(at, chunk(rng.u64(..3), rng.u64(..400), rng.usize(1..70))),
                _ => frames.insert(
                    at,
                    Frame::SnapshotOffer(SnapshotOffer {
                        transfer: rng.u64(..3),
                        index: 18 + rng.u64(..4),
                        term: TERM,
                        bytes: rng.u64(..500),
                        crc: rng.u32(..),
                    }),
                ),
            }
        }
        for frame in &frames {
            let frame = over_the_wire(frame).unwrap();
            pair.incoming.frame(LEADER, frame, pair.committed, pair.now);
            if rng.u8(..16) > 0 {
                pair.poll_receiver();
            }
            if rng.u8(..200) == 0 {
                pair.incoming.gone(LEADER);
            }
            assert!(pair.left_behind().len() <= 1, "round {round}");
        }
        pair.poll_receiver();
        pair.up.clear();
        if let Some(received) = pair.incoming.take(&point) {
            // Whatever has come, it is the file that was offered.
            let sent = pair.leader_disk.content("snap-0000000000000020-0000000003");
            assert_eq!(pair.follower_disk.content(&received.info.name), sent);
            came += 1;
        }
        pair.disconnect();
        pair.begin(&point);
        for _ in 0..4 {
            pair.settle();
            pair.wait(Duration::from_secs(10));
            if pair.ended.iter().any(|ended| ended.outcome.is_ok()) {
                break;
            }
            // A file whose bytes were changed is refused once, and then comes again.
            pair.ended.clear();
            pair.begin(&point);
        }
        assert!(pair.take().is_some(), "round {round}");
    }
    assert!((60..560).contains(&came), "{came}");
}

#[test]
fn answers_in_any_order_do_no_harm_to_the_sender() {
    let mut rng = fastrand::Rng::with_seed(26);
    for round in 0..600 {
        let (mut pair, point) = Pair::new();
        pair.begin(&point);
        let mut outcomes = 0;
        for _ in 0..60 {
            pair.poll_sender();
            for frame in pair.down.drain(..) {
                if let Frame::SnapshotChunk(chunk) = &frame {
                    assert!(chunk.data.len() <= limits().chunk_bytes);
                }
            }
            outcomes += pair.ended.drain(..).count();
            let transfer = rng.u64(..3);
            let answer = match rng.u8(..8) {
                0 => reject(transfer, SnapshotRejectReason::from_code(rng.u8(..9))),
                _ => ack(transfer, rng.u64(..300)),
            };
            pair.outgoing.frame(FOLLOWER, &answer, pair.now);
            if rng.u8(..30) == 0 {
                pair.outgoing.gone(FOLLOWER);
            }
        }
        pair.wait(limits().stall_limit);
        pair.poll_sender();
        outcomes += pair.ended.drain(..).count();
        assert_eq!(outcomes, 1, "round {round}");
        pair.disconnect();
        pair.begin(&point);
        pair.wait(limits().longest_pause);
        pair.settle();
        assert_eq!(pair.outcome().outcome, Ok(()), "round {round}");
    }
}
