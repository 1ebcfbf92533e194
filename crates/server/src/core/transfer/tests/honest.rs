//! Servers that do what they should, on links that do not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_consensus::PeerProgress;
use baton_peers::codec::{Frame, SnapshotAck, SnapshotReject, SnapshotRejectReason};
use baton_peers::net::SendError;
use baton_tree::Tree;
use baton_wal::Wal;
use baton_wal::testing::FaultStorage;

use super::pair::{
    FOLLOWER, LEADER, Pair, TERM, fill, incoming, install, limits, members, message, open,
    over_the_wire, run_to_frame, save, wal_options,
};
use crate::core::disk_worker::InlineWorker;
use crate::core::transfer::{EndedTransfer, Incoming, Outgoing, SendFailure, TransferLimits};

#[test]
fn a_snapshot_arrives_whole_and_its_message_after_it() {
    let (mut pair, point) = Pair::new();
    pair.begin(&point);
    pair.settle();
    assert_eq!(pair.outcome().outcome, Ok(()));
    assert_eq!(pair.left_behind(), ["recv-0000000000000020-0000000003"]);
    let received = pair.take().unwrap();
    assert_eq!(received.point, point);
    assert_eq!(received.tree.digest(), Tree::new().digest());
    assert_eq!(pair.chunk_bytes, received.info.file_bytes);
    let sent = pair.leader_disk.content("snap-0000000000000020-0000000003");
    assert_eq!(pair.follower_disk.content(&received.info.name), sent);
    assert!(
        pair.incoming.take(&point).is_none(),
        "it is handed out once"
    );
    drop(pair.incoming);
    let mut wal = open(&pair.follower_disk.kill()).unwrap();
    assert_eq!(
        wal.last_index(),
        5,
        "without its mark it counts for nothing"
    );
    fill(&mut wal, 6);
}

#[test]
fn an_installed_snapshot_takes_the_place_of_the_log() {
    let (mut pair, point) = Pair::new();
    pair.begin(&point);
    pair.settle();
    let received = pair.take().unwrap();
    let installed = install(&mut pair.follower, &received.info).unwrap();
    assert_eq!(installed.name, "snap-0000000000000020-0000000003");
    fill(&mut pair.follower, 22);
    let disk = pair.follower_disk.kill();
    let (_, found) = Wal::open(Arc::new(disk), wal_options()).unwrap();
    assert_eq!(found.snapshot.unwrap().meta.index, 20);
    assert_eq!(found.entries.len(), 2);
}

#[test]
fn r26_a_connection_that_ends_at_any_frame_has_one_outcome_and_the_next_goes_on_at_a_chunk() {
    let mut resumed = 0;
    let mut at = 0;
    loop {
        let (mut pair, point) = Pair::new();
        pair.begin(&point);
        if !run_to_frame(&mut pair, at) {
            break;
        }
        pair.poll_sender();
        let sent_at_first = pair.chunk_bytes;
        pair.disconnect();
        pair.poll_receiver();
        pair.settle();
        let first = pair.outcome();
        if first.outcome == Ok(()) {
            // The message was on its way: the leader's consensus sends another one.
            assert!(pair.messages.is_empty());
        } else {
            assert_eq!(first.outcome, Err(SendFailure::Disconnected), "frame {at}");
        }
        pair.begin(&point);
        pair.settle();
        assert_eq!(pair.outcome().outcome, Ok(()), "frame {at}");
        let received = pair.take().unwrap();
        let bytes = received.info.file_bytes;
        // What was on its way is sent again, nothing else.
        assert!(pair.chunk_bytes <= bytes + limits().window_bytes as u64);
        if sent_at_first > limits().window_bytes as u64 {
            assert!(pair.chunk_bytes - sent_at_first < bytes, "frame {at}");
            resumed += 1;
        }
        at += 1;
    }
    assert!(at > 10 && resumed > 5, "{at} frames, {resumed} resumed");
}

#[test]
fn a_restart_of_the_sender_goes_on_where_the_receiver_stopped() {
    let (mut pair, point) = Pair::new();
    pair.begin(&point);
    run_to_frame(&mut pair, 8);
    let before = pair.chunk_bytes;
    pair.disconnect();
    pair.outgoing = Outgoing::new(pair.leader.snapshots(), limits(), Box::new(InlineWorker));
    pair.begin(&point);
    pair.settle();
    assert_eq!(pair.outcome().outcome, Ok(()));
    let received = pair.take().unwrap();
    assert!(pair.chunk_bytes - before < received.info.file_bytes);
}

#[test]
fn r26_each_refusal_has_one_outcome_and_only_some_are_followed_by_a_pause() {
    for code in 1..=8 {
        let reason = SnapshotRejectReason::from_code(code);
        let (mut pair, point) = Pair::new();
        pair.begin(&point);
        pair.poll_sender();
        let transfer = 1;
        let reject = Frame::SnapshotReject(SnapshotReject { transfer, reason });
        pair.down.clear();
        pair.outgoing.frame(FOLLOWER, &reject, pair.now);
        pair.outgoing.frame(FOLLOWER, &reject, pair.now);
        pair.poll_sender();
        let ended = pair.outcome();
        if reason == SnapshotRejectReason::Outdated {
            // The message alone notifies the leader of how far the receiver is.
            assert_eq!(ended.outcome, Ok(()));
            assert!(matches!(pair.down.pop_front(), Some(Frame::Raft(_))));
            continue;
        }
        assert_eq!(ended.outcome, Err(SendFailure::Rejected(reason)));
        let wants_fresh = reason == SnapshotRejectReason::NotMember;
        assert_eq!(ended.outcome.unwrap_err().wants_fresh(), wants_fresh);
        let has_pause = !matches!(
            reason,
            SnapshotRejectReason::Busy | SnapshotRejectReason::Gap
        );
        pair.begin(&point);
        pair.poll_sender();
        assert_eq!(pair.down.is_empty(), has_pause, "{reason}");
        pair.wait(limits().first_pause);
        pair.settle();
        assert_eq!(pair.outcome().outcome, Ok(()), "{reason}");
    }
}

#[test]
fn the_pause_doubles_with_each_failure_up_to_a_minute_and_an_arrival_ends_it() {
    let (mut pair, point) = Pair::new();
    for seconds in [0, 1, 2, 4, 8, 16, 32, 60, 60] {
        pair.begin(&point);
        pair.poll_sender();
        if seconds > 0 {
            assert!(pair.down.is_empty());
            let due = pair.outgoing.next_poll(pair.now).unwrap();
            assert_eq!(due - pair.now, Duration::from_secs(seconds));
            pair.now = due;
            pair.poll_sender();
        }
        let Some(Frame::SnapshotOffer(offer)) = pair.down.pop_front() else {
            panic!("no offer after {seconds} s");
        };
        let reject = Frame::SnapshotReject(SnapshotReject {
            transfer: offer.transfer,
            reason: SnapshotRejectReason::NoRoom,
        });
        pair.outgoing.frame(FOLLOWER, &reject, pair.now);
        pair.poll_sender();
        assert!(pair.outcome().outcome.is_err());
    }
    pair.begin(&point);
    pair.wait(Duration::from_secs(60));
    pair.settle();
    assert_eq!(pair.outcome().outcome, Ok(()));
    pair.begin(&point);
    pair.poll_sender();
    assert!(matches!(pair.down[0], Frame::SnapshotOffer(_)));
}

#[test]
fn r24_a_slow_receiver_counts_while_it_advances_and_a_silent_one_has_an_outcome() {
    let (mut pair, point) = Pair::new();
    let nearly = limits().stall_limit - Duration::from_secs(1);
    pair.begin(&point);
    while pair.messages.is_empty() {
        pair.poll_sender();
        pair.deliver(FOLLOWER);
        pair.poll_receiver();
        if pair.deliver(LEADER) {
            pair.wait(nearly);
        }
        assert_eq!(
            pair.ended
                .iter()
                .filter(|ended| ended.outcome.is_err())
                .count(),
            0
        );
    }
    assert_eq!(pair.outcome().outcome, Ok(()));
    // Each frame after which the receiver may fall silent.
    let mut at = 0;
    loop {
        let (mut pair, point) = Pair::new();
        pair.begin(&point);
        if !run_to_frame(&mut pair, at) {
            break;
        }
        pair.poll_sender();
        pair.up.clear();
        if pair.ended.is_empty() {
            let due = pair.outgoing.next_poll(pair.now).unwrap();
            assert!(due <= pair.now + limits().stall_limit);
            pair.wait(limits().stall_limit);
            pair.poll_sender();
            let stalled = SendFailure::Stalled(limits().stall_limit);
            assert_eq!(pair.outcome().outcome, Err(stalled), "frame {at}");
            assert_eq!(pair.outgoing.oldest(), None, "nothing is kept");
        }
        at += 1;
    }
    assert!(at > 10);
}

#[test]
fn r24_a_receiver_gives_up_what_nobody_sends_on() {
    let (mut pair, point) = Pair::new();
    pair.begin(&point);
    run_to_frame(&mut pair, 6);
    pair.disconnect();
    pair.poll_receiver();
    assert_eq!(pair.left_behind().len(), 1);
    let due = pair.incoming.next_poll(pair.now).unwrap();
    assert_eq!(due, pair.now + limits().stall_limit);
    pair.now = due;
    pair.poll_receiver();
    assert_eq!(pair.left_behind(), [] as [&str; 0]);
    assert_eq!(pair.incoming.next_poll(pair.now), None);
}

#[test]
fn r22_file_and_log_stay_while_a_snapshot_travels_and_until_its_receiver_has_caught_up() {
    let (mut pair, point) = Pair::new();
    let another = members(&[1, 2, 3]);
    let more = |pair: &mut Pair, count: u64| {
        for _ in 0..count {
            let last = pair.leader.last_index();
            fill(&mut pair.leader, last + 100);
            save(&mut pair.leader, &another, 0);
        }
    };
    pair.begin(&point);
    run_to_frame(&mut pair, 5);
    more(&mut pair, 3);
    assert_eq!(pair.outgoing.oldest(), Some(20));
    pair.settle();
    assert_eq!(pair.outcome().outcome, Ok(()));
    let is_kept = |pair: &Pair| {
        let names = pair.leader.snapshots().names().unwrap();
        let kept = names
            .iter()
            .any(|name| name.starts_with("snap-0000000000000020"));
        assert_eq!(kept, pair.leader.first_index() <= 21);
        kept
    };
    let progress = |matched| PeerProgress {
        id: FOLLOWER,
        matched,
        active: true,
        snapshot: 0,
    };
    let release = |pair: &mut Pair, matched| {
        let last = pair.leader.last_index();
        let progress = [progress(matched)];
        pair.outgoing.release_matched(&progress, last, pair.now);
    };
    release(&mut pair, 19);
    more(&mut pair, 1);
    assert!(is_kept(&pair));
    assert_eq!(pair.outgoing.oldest(), Some(20));
    // It is installed; what came meanwhile is to go to it as entries.
    release(&mut pair, 20);
    assert_eq!(pair.outgoing.oldest(), Some(20));
    let due = pair.leader.last_index();
    more(&mut pair, 1);
    pair.wait(limits().stall_limit - Duration::from_millis(1));
    release(&mut pair, due - 1);
    pair.wait(limits().stall_limit - Duration::from_millis(1));
    pair.settle();
    assert!(is_kept(&pair), "it catches up");
    assert_eq!(pair.outgoing.oldest(), Some(due - 1));
    release(&mut pair, due);
    assert_eq!(pair.outgoing.oldest(), None);
    more(&mut pair, 1);
    assert!(!is_kept(&pair));
    // Another ends by time, and one by the end of its leadership.
    for by_time in [true, false] {
        let point = save(&mut pair.leader, &another, 1);
        pair.incoming = incoming(open(&FaultStorage::new()).unwrap().snapshots());
        pair.begin(&point);
        pair.settle();
        assert_eq!(pair.outcome().outcome, Ok(()));
        assert_eq!(pair.outgoing.oldest(), Some(point.index));
        if by_time {
            pair.wait(limits().stall_limit);
            pair.settle();
        } else {
            pair.outgoing.abandon();
        }
        assert_eq!(pair.outgoing.oldest(), None);
        more(&mut pair, 1);
    }
}

#[test]
fn r21_a_snapshot_that_lacks_its_receiver_is_neither_sent_nor_taken() {
    let (mut pair, mut point) = Pair::new();
    point.membership = members(&[1, 3]);
    pair.begin(&point);
    pair.settle();
    let ended = pair.outcome();
    assert_eq!(ended.outcome, Err(SendFailure::LacksReceiver));
    assert!(ended.outcome.unwrap_err().wants_fresh());
    assert_eq!(pair.chunk_bytes, 0);
    // The file says something else than the message.
    let mut point = save(&mut pair.leader, &members(&[1, 3]), 0);
    point.membership = members(&[1, 2, 3]);
    pair.begin(&point);
    pair.settle();
    let refused = SendFailure::Rejected(SnapshotRejectReason::NotMember);
    assert_eq!(pair.outcome().outcome, Err(refused));
    assert_eq!(pair.left_behind(), [] as [&str; 0]);
    assert!(pair.messages.is_empty());
}

#[test]
fn a_message_of_another_membership_than_the_files_is_not_admitted() {
    let (mut pair, mut point) = Pair::new();
    point.membership = members(&[1, 2]);
    pair.begin(&point);
    pair.settle();
    assert_eq!(pair.outcome().outcome, Ok(()));
    assert_eq!(pair.messages.len(), 1);
    assert!(pair.take().is_none());
}

#[test]
fn what_the_receiver_has_by_itself_needs_no_file_and_the_message_still_goes() {
    let (mut pair, point) = Pair::new();
    pair.committed = 20;
    pair.begin(&point);
    pair.settle();
    assert_eq!(pair.outcome().outcome, Ok(()));
    assert_eq!((pair.chunk_bytes, pair.messages.len()), (0, 1));
    assert!(pair.incoming.admits(&point, pair.committed));
    assert!(pair.take().is_none(), "nothing to install");
    // It commits as much only while the file comes, or when it has come.
    for at in [6, usize::MAX] {
        let (mut pair, point) = Pair::new();
        pair.begin(&point);
        run_to_frame(&mut pair, at.min(60));
        pair.committed = 20;
        pair.settle();
        assert_eq!(pair.outcome().outcome, Ok(()));
        assert_eq!(pair.messages.len(), 1);
        assert_eq!(pair.left_behind(), [] as [&str; 0]);
    }
}

#[test]
fn a_newer_snapshot_takes_the_place_of_an_older_one() {
    let (mut pair, point) = Pair::new();
    pair.begin(&point);
    run_to_frame(&mut pair, 6);
    fill(&mut pair.leader, 30);
    let newer = save(&mut pair.leader, &members(&[1, 2, 3]), 0);
    pair.begin(&newer);
    pair.settle();
    let ended = pair.outcome();
    assert_eq!((ended.index, ended.outcome), (30, Ok(())));
    assert_eq!(pair.left_behind(), ["recv-0000000000000030-0000000003"]);
    // A message of the older one comes too late.
    assert!(!pair.incoming.admits(&point, pair.committed));
    assert_eq!(pair.take().unwrap().point, newer);
}

#[test]
fn the_same_snapshot_asked_for_again_is_one_transfer_with_the_newest_message() {
    let (mut pair, point) = Pair::new();
    pair.begin(&point);
    run_to_frame(&mut pair, 6);
    let mut again = message(FOLLOWER, &point);
    again.commit = 99;
    pair.outgoing.begin(again, pair.now);
    pair.settle();
    assert_eq!(pair.outcome().outcome, Ok(()));
    let commits: Vec<_> = pair.messages.iter().map(|message| message.commit).collect();
    assert_eq!(commits, [99]);
}

#[test]
fn a_second_sender_waits_unless_it_has_a_newer_snapshot_or_the_first_is_idle() {
    let other = 3;
    let offer = |index, transfer| {
        Frame::SnapshotOffer(baton_peers::codec::SnapshotOffer {
            transfer,
            index,
            term: TERM,
            bytes: 500,
            crc: 1,
        })
    };
    let answers = |pair: &mut Pair| {
        let mut answers = Vec::new();
        pair.incoming
            .poll(pair.now, pair.committed, &mut |to, frame| {
                answers.push((to, frame));
                Ok(())
            });
        answers
    };
    let busy = |to, transfer| {
        let reason = SnapshotRejectReason::Busy;
        (
            to,
            Frame::SnapshotReject(SnapshotReject { transfer, reason }),
        )
    };
    let wants = |to, transfer| {
        let ack = SnapshotAck {
            transfer,
            offset: 0,
        };
        (to, Frame::SnapshotAck(ack))
    };
    let begun = || {
        let (mut pair, _) = Pair::new();
        let now = pair.now;
        pair.incoming.frame(LEADER, offer(20, 8), 5, now);
        assert_eq!(answers(&mut pair), [wants(LEADER, 8)]);
        (pair, now)
    };
    for index in [19, 20] {
        let (mut pair, now) = begun();
        pair.incoming.frame(other, offer(index, 9), 5, now);
        assert_eq!(answers(&mut pair), [busy(other, 9)]);
        let idle = now + limits().idle_limit;
        pair.now = idle;
        pair.incoming.frame(other, offer(index, 10), 5, idle);
        let expected = [wants(other, 10), busy(LEADER, 8)];
        assert_eq!(answers(&mut pair), expected, "after a while");
    }
    let (mut pair, now) = begun();
    pair.incoming.frame(other, offer(21, 9), 5, now);
    assert_eq!(answers(&mut pair), [wants(other, 9), busy(LEADER, 8)]);
    let (mut pair, now) = begun();
    pair.incoming.gone(LEADER);
    pair.incoming.frame(other, offer(19, 9), 5, now);
    assert_eq!(answers(&mut pair), [wants(other, 9)]);
}

#[test]
fn bytes_leave_at_the_pace_and_to_all_peers_in_turn() {
    let disk = FaultStorage::new();
    let mut wal = open(&disk).unwrap();
    fill(&mut wal, 20);
    let point = save(&mut wal, &members(&[1, 2, 3]), 0);
    let limits = TransferLimits {
        bytes_per_second: 3200,
        window_bytes: 1 << 20,
        ..limits()
    };
    let mut outgoing = Outgoing::new(wal.snapshots(), limits, Box::new(InlineWorker));
    let begun = Instant::now();
    let mut now = begun;
    outgoing.begin(message(2, &point), now);
    outgoing.begin(message(3, &point), now);
    let mut sent = Vec::new();
    let mut offers = Vec::new();
    loop {
        outgoing.poll(now, &mut |to, frame| {
            match frame {
                Frame::SnapshotOffer(offer) => offers.push((to, offer)),
                Frame::SnapshotChunk(chunk) => sent.push((to, now, chunk.data.len())),
                _ => {}
            }
            Ok(())
        });
        for (to, offer) in offers.drain(..) {
            let ack = SnapshotAck {
                transfer: offer.transfer,
                offset: 0,
            };
            outgoing.frame(to, &Frame::SnapshotAck(ack), now);
        }
        let next = outgoing.next_poll(now).unwrap();
        if next > now + Duration::from_secs(5) {
            break;
        }
        now = next.max(now + Duration::from_nanos(1));
    }
    let bytes: usize = sent.iter().map(|(_, _, bytes)| bytes).sum();
    let file_bytes = disk
        .content("snap-0000000000000020-0000000003")
        .unwrap()
        .len();
    assert_eq!(bytes, 2 * file_bytes);
    // 32 bytes at 3200 a second: one chunk in 10 ms.
    for pair in sent.windows(2) {
        let pause = pair[1].1 - pair[0].1;
        assert!(
            pause >= Duration::from_secs(pair[0].2 as u64) / 3200,
            "{pause:?}"
        );
    }
    let turns: Vec<u64> = sent.iter().map(|(to, _, _)| *to).collect();
    assert!(turns.windows(2).all(|pair| pair[0] != pair[1]), "{turns:?}");
}

#[test]
fn a_queue_without_room_delays_and_loses_nothing() {
    let (mut pair, point) = Pair::new();
    pair.room = 1;
    pair.begin(&point);
    for _ in 0..200 {
        pair.poll_sender();
        pair.poll_receiver();
        pair.deliver(FOLLOWER);
        pair.deliver(LEADER);
        let soon = pair.now + limits().send_again;
        pair.now = soon;
    }
    assert_eq!(pair.outcome().outcome, Ok(()));
    assert!(pair.take().is_some());
}

#[test]
fn an_answer_that_cannot_be_sent_yet_is_sent_later() {
    let (mut pair, point) = Pair::new();
    pair.begin(&point);
    pair.poll_sender();
    pair.deliver(FOLLOWER);
    pair.is_connected = false;
    pair.poll_receiver();
    assert!(pair.up.is_empty());
    let again = pair.incoming.next_poll(pair.now).unwrap();
    assert_eq!(again, pair.now + limits().send_again);
    pair.is_connected = true;
    pair.settle();
    assert_eq!(pair.outcome().outcome, Ok(()));
}

#[test]
fn a_sender_that_is_not_connected_has_its_outcome_at_once() {
    let (mut pair, point) = Pair::new();
    pair.is_connected = false;
    pair.begin(&point);
    pair.poll_sender();
    assert_eq!(pair.outcome().outcome, Err(SendFailure::Disconnected));
}

#[test]
fn snapshots_of_several_peers_travel_at_once_and_each_has_its_outcome() {
    let disk = FaultStorage::new();
    let mut wal = open(&disk).unwrap();
    fill(&mut wal, 20);
    let ids: Vec<u64> = (1..=7).collect();
    let point = save(&mut wal, &members(&ids), 0);
    let mut outgoing = Outgoing::new(wal.snapshots(), limits(), Box::new(InlineWorker));
    let mut receivers: Vec<(u64, Incoming)> = (2..=7)
        .map(|id| {
            let store = open(&FaultStorage::new()).unwrap().snapshots();
            (
                id,
                Incoming::new(id, store, limits(), Box::new(InlineWorker)),
            )
        })
        .collect();
    let now = Instant::now();
    for id in 2..=7 {
        outgoing.begin(message(id, &point), now);
    }
    let mut ended: Vec<EndedTransfer> = Vec::new();
    for _ in 0..200 {
        let mut down = Vec::new();
        ended.extend(outgoing.poll(now, &mut |to, frame| {
            if to == 4 {
                return Err(SendError::NotConnected);
            }
            down.push((to, over_the_wire(&frame).unwrap()));
            Ok(())
        }));
        for (to, frame) in down {
            let receiver = receivers.iter_mut().find(|(id, _)| *id == to).unwrap();
            receiver.1.frame(LEADER, frame, 0, now);
        }
        for (id, receiver) in &mut receivers {
            let mut up = Vec::new();
            receiver.poll(now, 0, &mut |_, frame| {
                up.push(frame);
                Ok(())
            });
            for frame in up {
                outgoing.frame(*id, &frame, now);
            }
        }
    }
    ended.sort_by_key(|ended| ended.to);
    let outcomes: Vec<_> = ended
        .iter()
        .map(|ended| (ended.to, ended.outcome.is_ok()))
        .collect();
    let expected: Vec<_> = (2..=7).map(|id| (id, id != 4)).collect();
    assert_eq!(outcomes, expected);
    for (id, receiver) in &mut receivers {
        assert_eq!(receiver.take(&point).is_some(), *id != 4);
    }
}
