//! Connections between servers: what travels on them, how they end, which are stale, what is
//! dropped when too much waits.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use baton_consensus::{Entry, EntryKind, MessageKind, PeerMessage};
use baton_peers::codec::{
    CloseReason, Confirmation, Forward, Frame, FrameError, Hello, Lane, LivenessFrame, PREFACE,
    ProtocolRange, Refusal, SnapshotDone, Touch,
};
use baton_peers::handshake::{KnownMember, LocalServer};
use baton_peers::net::{
    DialFailure, Direction, EndCause, Link, PeerEvent, RefusedBy, SendError, Timing, Unsent,
    WallClock,
};
use bytes::Bytes;
use tokio::time::{Instant, sleep};

use crate::examples;
use crate::memory::{Network, Server, incarnation, link_of, name, options, pair};
use crate::raw::{RawConnection, encoded};

pub fn heartbeat(from: u64, to: u64, commit: u64) -> PeerMessage {
    PeerMessage {
        from,
        to,
        commit,
        ..examples::message(MessageKind::Heartbeat)
    }
}

pub fn append(from: u64, to: u64, payload_bytes: usize) -> PeerMessage {
    PeerMessage {
        from,
        to,
        entries: vec![Entry {
            index: 42,
            term: 7,
            kind: EntryKind::Command,
            payload: vec![7; payload_bytes].into(),
        }],
        ..examples::message(MessageKind::Append)
    }
}

pub fn frame(event: PeerEvent) -> Option<(Link, Frame)> {
    match event {
        PeerEvent::Frame { link, frame, .. } => Some((link, frame)),
        _ => None,
    }
}

pub fn disconnected(event: PeerEvent) -> Option<(Link, EndCause)> {
    match event {
        PeerEvent::Disconnected { link, cause, .. } => Some((link, cause)),
        _ => None,
    }
}

fn refused(event: PeerEvent) -> Option<(RefusedBy, Refusal)> {
    match event {
        PeerEvent::Refused { by, refusal, .. } => Some((by, refusal)),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn frames_travel_on_their_lanes_in_order() {
    let network = Network::default();
    let (one, mut two) = pair(&network).await;
    assert_eq!(one.peers.open_lanes(2), BTreeSet::from(Lane::ALL));
    for sequence in 1..=100 {
        let forward = Frame::Forward(Forward {
            run: 1,
            first: sequence,
            count: 1,
            body: Bytes::from(vec![7; 5000]),
        });
        one.peers.send(2, forward).unwrap();
        let touch = Frame::Touch(Touch {
            batch: sequence,
            sessions: vec![5],
        });
        one.peers.send(2, touch).unwrap();
    }
    let done = Frame::SnapshotDone(SnapshotDone { transfer: 1 });
    one.peers.send(2, done).unwrap();
    let (mut forwards, mut touches, mut dones) = (0, 0, 0);
    while forwards < 100 || touches < 100 || dones < 1 {
        let (link, frame) = two.until(frame).await;
        assert_eq!(link.peer, 1);
        assert_eq!(link.direction, Direction::Inbound);
        match (link.lane, frame) {
            (Lane::Log, Frame::Forward(forward)) => {
                forwards += 1;
                assert_eq!(forward.first, forwards);
            }
            (Lane::Urgent, Frame::Touch(touch)) => {
                touches += 1;
                assert_eq!(touch.batch, touches);
            }
            (Lane::Snapshot, Frame::SnapshotDone(_)) => dones += 1,
            other => panic!("{other:?}"),
        }
    }
    let sent = one.peers.peer_counters(2).unwrap();
    assert_eq!(sent.frames_out.load(Relaxed), 201);
    assert_eq!(sent.queued_bytes.load(Relaxed), 0);
    let received = two.peers.peer_counters(1).unwrap();
    assert_eq!(received.frames_in.load(Relaxed), 201);
    assert!(received.bytes_in.load(Relaxed) > 500_000);
}

/// A log keeps the entries of many small frames; each would hold a whole buffer.
#[tokio::test(start_paused = true)]
async fn small_frames_that_are_kept_share_their_memory() {
    let network = Network::default();
    let (one, mut two) = pair(&network).await;
    let mut kept: Vec<Bytes> = Vec::new();
    for first in 1..=500 {
        let forward = Forward {
            run: 1,
            first,
            count: 1,
            body: Bytes::from(vec![7; 200]),
        };
        one.peers.send(2, Frame::Forward(forward)).unwrap();
        match two.until(frame).await {
            (_, Frame::Forward(forward)) => kept.push(forward.body),
            other => panic!("{other:?}"),
        }
    }
    let begins: Vec<usize> = kept.iter().map(|body| body.as_ptr().addr()).collect();
    let are_neighbours = |pair: &&[usize]| pair[1].wrapping_sub(pair[0]) < 400;
    let neighbours = begins.windows(2).filter(are_neighbours).count();
    assert!(neighbours > 480, "{neighbours} of 499");
}

#[tokio::test(start_paused = true)]
async fn messages_of_the_consensus_for_one_lane_travel_in_one_frame() {
    let network = Network::default();
    let (one, mut two) = pair(&network).await;
    let messages = vec![
        heartbeat(1, 2, 1),
        append(1, 2, 10),
        heartbeat(1, 2, 2),
        append(1, 2, 20),
        heartbeat(1, 3, 3),
    ];
    let unsent = one.peers.send_raft(messages.clone());
    let error = SendError::NotConnected;
    let kind = MessageKind::Heartbeat;
    assert_eq!(unsent, [Unsent { to: 3, kind, error }]);
    let mut found = BTreeSet::new();
    for _ in 0..2 {
        let (link, frame) = two.until(frame).await;
        let expected = match link.lane {
            Lane::Urgent => vec![messages[0].clone(), messages[2].clone()],
            _ => vec![messages[1].clone(), messages[3].clone()],
        };
        assert_eq!(frame, Frame::Raft(expected));
        found.insert(link.lane);
    }
    assert_eq!(found, BTreeSet::from([Lane::Urgent, Lane::Log]));
}

#[tokio::test(start_paused = true)]
async fn the_round_trip_and_the_clock_of_a_peer_are_measured() {
    let network = Network::default();
    let (one, mut two) = pair(&network).await;
    sleep(Timing::default().alive_interval * 3).await;
    let counters = one.peers.peer_counters(2).unwrap();
    assert!(counters.round_trip_us.load(Relaxed) > 0);
    assert_eq!(counters.clock_offset_ms.load(Relaxed), 0);
    let mut ahead = options(3);
    ahead.wall_clock = WallClock::new(|| 1_795_000_060_000);
    let local = LocalServer::new(3, incarnation(3), 1);
    let _three = Server::start_as(&network, local, ahead, 3);
    let offset = two
        .until(|event| match event {
            PeerEvent::Connected {
                link,
                clock_offset_ms,
                ..
            } if link.peer == 3 => Some(clock_offset_ms),
            _ => None,
        })
        .await;
    assert_eq!(offset, 60_000);
}

/// A newer connection of the same server and lane takes the place of the older one. What the older
/// one still delivers is dropped.
#[tokio::test(start_paused = true)]
async fn r11_what_a_superseded_connection_delivers_is_dropped() {
    let network = Network::default();
    let mut one = Server::start(&network, 1, 0);
    let mut older = RawConnection::connect(&network, 2, 1, Lane::Urgent).await;
    older.send(&Frame::Raft(vec![heartbeat(2, 1, 1)])).await;
    let (first, _) = one.until(frame).await;
    let mut newer = RawConnection::connect(&network, 2, 1, Lane::Urgent).await;
    // Written before the older connection knows of its end.
    older.send(&Frame::Raft(vec![heartbeat(2, 1, 2)])).await;
    newer.send(&Frame::Raft(vec![heartbeat(2, 1, 3)])).await;
    let mut commits = Vec::new();
    let mut ended = Vec::new();
    while commits != [3] {
        match one.event().await {
            PeerEvent::Frame {
                link,
                frame: Frame::Raft(messages),
                ..
            } => {
                assert!(link.generation > first.generation);
                commits.extend(messages.iter().map(|message| message.commit));
            }
            PeerEvent::Disconnected { link, cause, .. } => {
                assert!(commits.is_empty(), "first the end, then what is newer");
                ended.push((link, cause));
            }
            _ => {}
        }
    }
    assert_eq!(ended, [(first, EndCause::Superseded)]);
    assert_eq!(
        older.frame().await,
        Some(Frame::Bye(CloseReason::Superseded))
    );
    assert_eq!(older.frame().await, None);
    assert!(one.so_far().into_iter().filter_map(frame).next().is_none());
}

/// The other lanes and the other direction are not touched by a new connection.
#[tokio::test(start_paused = true)]
async fn r11_a_new_connection_supersedes_its_own_lane_only() {
    let network = Network::default();
    let mut one = Server::start(&network, 1, 0);
    let mut log = RawConnection::connect(&network, 2, 1, Lane::Log).await;
    let mut urgent = RawConnection::connect(&network, 2, 1, Lane::Urgent).await;
    let mut other = RawConnection::connect(&network, 3, 1, Lane::Urgent).await;
    let _newer = RawConnection::connect(&network, 2, 1, Lane::Urgent).await;
    assert_eq!(
        urgent.frame().await,
        Some(Frame::Bye(CloseReason::Superseded))
    );
    log.send(&Frame::Raft(vec![append(2, 1, 5)])).await;
    other.send(&Frame::Raft(vec![heartbeat(3, 1, 1)])).await;
    let mut from = BTreeSet::new();
    while from.len() < 2 {
        let (link, _) = one.until(frame).await;
        from.insert((link.peer, link.lane));
    }
    let expected = BTreeSet::from([(2, Lane::Log), (3, Lane::Urgent)]);
    assert_eq!(from, expected);
}

/// The later one of two processes with one id stays connected. The earlier one is refused, and both
/// logs say so.
#[tokio::test(start_paused = true)]
async fn r11_an_earlier_process_of_a_server_does_not_come_back() {
    let network = Network::default();
    let mut one = Server::start(&network, 1, 0);
    let mut earlier = Vec::new();
    for lane in [Lane::Urgent, Lane::Log] {
        earlier.push(RawConnection::connect(&network, 2, 1, lane).await);
    }
    let mut later = crate::raw::hello(2, 1, Lane::Urgent);
    later.run += 1;
    let mut process = RawConnection::connect_as(&network, &later).await;
    process.send(&Frame::Raft(vec![heartbeat(2, 1, 7)])).await;
    for mut raw in earlier {
        assert_eq!(raw.frame().await, Some(Frame::Bye(CloseReason::Superseded)));
    }
    let mut again = RawConnection::open(&network, 1);
    again.write(&PREFACE).await;
    let hello = crate::raw::hello(2, 1, Lane::Urgent);
    again.send(&Frame::Hello(hello)).await;
    let refusal = Refusal::RunsTwice { id: 2 };
    assert_eq!(again.frame().await, Some(Frame::Refused(refusal.clone())));
    assert_eq!(one.until(refused).await, (RefusedBy::Us, refusal));
    process.send(&Frame::Raft(vec![heartbeat(2, 1, 8)])).await;
    one.until(frame).await;
    assert!(
        one.so_far()
            .into_iter()
            .filter_map(disconnected)
            .next()
            .is_none()
    );
}

/// A copy of a server's folder runs elsewhere for a moment, or another server has its id until that
/// is corrected: when the connections of that process have ended, the server's own is admitted.
#[tokio::test(start_paused = true)]
async fn an_earlier_process_is_admitted_again_when_the_later_one_is_gone() {
    let network = Network::default();
    let mut one = Server::start(&network, 1, 0);
    let own = crate::raw::hello(2, 1, Lane::Urgent);
    let mut raw = RawConnection::connect_as(&network, &own).await;
    let mut copy = own.clone();
    (copy.run, copy.term, copy.last_index) = (own.run + 1, 3, 20);
    let other = RawConnection::connect_as(&network, &copy).await;
    assert_eq!(raw.frame().await, Some(Frame::Bye(CloseReason::Superseded)));
    let (_, cause) = one.until(disconnected).await;
    assert_eq!(cause, EndCause::Superseded);
    let refused_with = async |hello: &Hello| {
        let mut again = RawConnection::open(&network, 1);
        again.write(&PREFACE).await;
        again.send(&Frame::Hello(hello.clone())).await;
        again.frame().await
    };
    let refusal = Some(Frame::Refused(Refusal::RunsTwice { id: 2 }));
    assert_eq!(refused_with(&own).await, refusal);
    drop(other);
    one.until(disconnected).await;
    // What the copy had, the folder has to have: its log went on under this id.
    for (term, last_index) in [(2, 30), (3, 19)] {
        let older = Hello {
            term,
            last_index,
            ..own.clone()
        };
        assert_eq!(refused_with(&older).await, refusal);
    }
    let newer = Hello {
        term: 3,
        last_index: 20,
        ..own.clone()
    };
    let mut raw = RawConnection::connect_as(&network, &newer).await;
    raw.send(&Frame::Raft(vec![heartbeat(2, 1, 8)])).await;
    one.until(frame).await;
    // Now the copy is the earlier one.
    assert_eq!(refused_with(&copy).await, refusal);
}

/// A server whose process ends is known to be gone at once: its system ends the connections and
/// refuses new ones.
#[tokio::test(start_paused = true)]
async fn a_server_whose_process_has_ended_is_reported_as_gone() {
    let network = Network::default();
    let (mut one, two) = pair(&network).await;
    sleep(Duration::from_secs(5)).await;
    let before = Instant::now();
    network.close(&name(2));
    drop(two);
    let peer = one
        .until(|event| match event {
            PeerEvent::Gone { peer } => Some(peer),
            _ => None,
        })
        .await;
    assert_eq!(peer, 2);
    assert!(before.elapsed() < Duration::from_millis(50));
    // Reported once, although it is dialled again and again.
    sleep(Duration::from_secs(30)).await;
    for event in one.so_far() {
        assert!(!matches!(event, PeerEvent::Gone { .. }));
    }
    // And again when it has been there again.
    let mut two = Server::start(&network, 2, 2);
    one.connected(2).await;
    two.connected(1).await;
    network.close(&name(2));
    two.peers.stop().await;
    one.until(|event| matches!(event, PeerEvent::Gone { peer: 2 }).then_some(()))
        .await;
}

/// A server that is paused or cut off may still act: it is not reported as gone.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_silent_is_not_reported_as_gone() {
    let network = Network::default();
    let (mut one, _two) = pair(&network).await;
    let before = Instant::now();
    network.freeze(&name(1));
    network.freeze(&name(2));
    let mut ended = Vec::new();
    while ended.len() < 6 {
        match one.event().await {
            PeerEvent::Disconnected { link, cause, .. } => {
                assert_eq!(cause, EndCause::Silent);
                ended.push(link);
            }
            PeerEvent::Gone { .. } => panic!("it may still act"),
            _ => {}
        }
    }
    assert!(before.elapsed() <= Duration::from_secs(5));
    network.close(&name(2));
    sleep(Duration::from_secs(30)).await;
    for event in one.so_far() {
        assert!(!matches!(event, PeerEvent::Gone { .. }));
    }
}

#[tokio::test(start_paused = true)]
async fn names_are_resolved_at_each_attempt_and_pauses_grow_to_a_second() {
    let network = Network::default();
    let mut one = Server::start(&network, 1, 2);
    let failure = one
        .until(|event| match event {
            PeerEvent::DialFailed { failure, .. } => Some(failure),
            _ => None,
        })
        .await;
    assert_eq!(failure, DialFailure::Refused);
    sleep(Duration::from_secs(60)).await;
    let attempts = network.dialled(&name(2)).len();
    assert!((3 * 60..3 * 130).contains(&attempts), "{attempts}");
    // One event for each lane, not for each attempt.
    assert!(one.so_far().len() <= 2);
    // Once it is there, it is found within the longest pause.
    let before = Instant::now();
    let mut two = Server::start(&network, 2, 0);
    two.until(|event| matches!(event, PeerEvent::Connected { .. }).then_some(()))
        .await;
    assert!(before.elapsed() <= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn an_address_that_does_not_answer_is_given_up_after_300_ms() {
    let network = Network::default();
    let acceptor = network.listen(&name(2));
    network.freeze(&name(2));
    let before = Instant::now();
    let mut one = Server::start(&network, 1, 2);
    let failure = one
        .until(|event| match event {
            PeerEvent::DialFailed { failure, .. } => Some(failure),
            _ => None,
        })
        .await;
    assert_eq!(failure, DialFailure::TimedOut);
    assert_eq!(before.elapsed().as_millis(), 300);
    drop(acceptor);
}

/// A server that restarts is connected to at once, not after the pause that has grown meanwhile.
#[tokio::test(start_paused = true)]
async fn a_server_that_connects_is_dialled_at_once() {
    let network = Network::default();
    let mut one = Server::start(&network, 1, 2);
    sleep(Duration::from_secs(60)).await;
    let before = Instant::now();
    let _two = Server::start(&network, 2, 2);
    one.connected(2).await;
    assert!(before.elapsed() < Duration::from_millis(20));
}

/// Appends that find no room are dropped, and the caller is notified; what is small still goes.
#[tokio::test(start_paused = true)]
async fn too_much_that_waits_is_dropped_and_reported() {
    let network = Network::default();
    let (one, mut two) = pair(&network).await;
    network.freeze(&name(2));
    let mut sent = 0;
    let unsent = loop {
        let unsent = one.peers.send_raft([append(1, 2, 100_000)]);
        if !unsent.is_empty() {
            break unsent;
        }
        sent += 1;
        assert!(sent < 1000);
    };
    let (kind, error) = (MessageKind::Append, SendError::Full);
    assert_eq!(unsent, [Unsent { to: 2, kind, error }]);
    assert_eq!(sent, (8 << 20) / 100_200, "8 MiB");
    assert_eq!(one.peers.send_raft([heartbeat(1, 2, 9)]), []);
    let counters = one.peers.peer_counters(2).unwrap();
    assert_eq!(counters.dropped.load(Relaxed), 1);
    assert!(counters.queued_bytes.load(Relaxed) > 8_000_000);
    // With the connection all that waits is dropped, and there is room again.
    sleep(Duration::from_secs(20)).await;
    assert_eq!(counters.queued_bytes.load(Relaxed), 0);
    assert!(counters.dropped.load(Relaxed) > 50);
    assert!(two.so_far().into_iter().filter_map(frame).next().is_none());
}

/// The urgent lane has a limit of its own.
#[tokio::test(start_paused = true)]
async fn too_much_on_the_urgent_lane_is_refused() {
    let network = Network::default();
    let (one, _two) = pair(&network).await;
    network.freeze(&name(2));
    let touch = || {
        let sessions = vec![1; 1000];
        Frame::Touch(Touch { batch: 1, sessions })
    };
    let mut sent = 0;
    while one.peers.send(2, touch()).is_ok() {
        sent += 1;
    }
    assert_eq!(one.peers.send(2, touch()), Err(SendError::Full));
    assert_eq!(sent, (1 << 20) / touch().wire_bytes(), "1 MiB");
    assert_eq!(one.peers.send_raft([append(1, 2, 100)]), []);
}

/// A single entry may be larger than the queue.
#[tokio::test(start_paused = true)]
async fn a_frame_larger_than_the_queue_is_sent_when_nothing_waits() {
    let network = Network::default();
    let (one, mut two) = pair(&network).await;
    assert_eq!(one.peers.send_raft([append(1, 2, 40 << 20)]), []);
    assert_eq!(one.peers.send_raft([append(1, 2, 1)]).len(), 1, "full");
    let (_, received) = two.until(frame).await;
    assert_eq!(received, Frame::Raft(vec![append(1, 2, 40 << 20)]));
    assert_eq!(one.peers.send_raft([append(1, 2, 1)]), []);
    let (_, received) = two.until(frame).await;
    assert_eq!(received, Frame::Raft(vec![append(1, 2, 1)]));
    let too_large = Frame::Raft(vec![append(1, 2, 69 << 20)]);
    assert_eq!(one.peers.send(2, too_large), Err(SendError::TooLarge));
}

/// On a slow link the other side's signs of life come behind all else that it sends.
#[tokio::test(start_paused = true)]
async fn signs_of_life_do_not_wait_for_those_of_the_other_side() {
    let network = Network::default();
    let acceptor = network.listen(&name(2));
    let mut one = Server::start(&network, 1, 2);
    let opened = RawConnection::accept(&acceptor, 2).await;
    let lane = one
        .until(|event| match event {
            PeerEvent::Connected { link, .. } => Some(link.lane),
            _ => None,
        })
        .await;
    let accepted = RawConnection::connect(&network, 2, 1, lane).await;
    let interval = Timing::default().alive_interval;
    // A frame of which a byte arrives now and then. Nothing else may come to who opened.
    let large = encoded(&Frame::Raft(vec![append(2, 1, 1 << 10)]));
    let alive = encoded(&Frame::Alive(LivenessFrame { stamp: 0, echo: 0 }));
    let mut both = [(opened, alive), (accepted, large)];
    for at in 0..20 {
        let before = Instant::now();
        for (raw, slow) in &mut both {
            raw.write(&slow[at..=at]).await;
            let sign = raw.any_frame().await;
            assert!(matches!(sign, Some(Frame::Alive(_))), "{sign:?}");
        }
        assert!(before.elapsed() <= interval);
    }
    let ended = one.so_far().into_iter().filter_map(disconnected).count();
    assert_eq!(ended, 0);
}

/// A server that answers a sign of life with its own next one says how long the former has waited.
#[tokio::test(start_paused = true)]
async fn the_round_trip_does_not_count_how_long_an_answer_waits() {
    let network = Network::default();
    let one = Server::start(&network, 1, 1);
    let mut raw = RawConnection::connect(&network, 2, 1, Lane::Urgent).await;
    for _ in 0..2 {
        let sign = raw.any_frame().await;
        let Some(Frame::Alive(LivenessFrame { stamp, echo: 0 })) = sign else {
            panic!("{sign:?}");
        };
        sleep(Duration::from_millis(30)).await;
        raw.send(&Frame::Alive(LivenessFrame {
            stamp: 1000,
            echo: stamp,
        }))
        .await;
        let sign = raw.any_frame().await;
        let waited = Timing::default().alive_interval - Duration::from_millis(30);
        let echo = 1000 + u64::try_from(waited.as_micros()).unwrap();
        assert!(
            matches!(sign, Some(Frame::Alive(sign)) if sign.echo == echo),
            "{sign:?}"
        );
    }
    let counters = one.peers.peer_counters(2).unwrap();
    assert_eq!(counters.round_trip_us.load(Relaxed), 30_000);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_sends_what_waits_and_says_so() {
    let network = Network::default();
    let (one, mut two) = pair(&network).await;
    for batch in 1..=100 {
        let sessions = vec![1];
        one.peers
            .send(2, Frame::Touch(Touch { batch, sessions }))
            .unwrap();
    }
    one.peers.stop().await;
    let mut batches = 0;
    let mut ended = 0;
    while ended < 6 {
        match two.event().await {
            PeerEvent::Frame { .. } => batches += 1,
            PeerEvent::Disconnected { cause, .. } => {
                assert!(cause.is_end_of_process(), "{cause}");
                ended += 1;
            }
            _ => {}
        }
    }
    assert_eq!(batches, 100);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_frame_ends_the_connection_and_another_one_is_opened() {
    let network = Network::default();
    let mut one = Server::start(&network, 1, 0);
    let mut raw = RawConnection::connect(&network, 2, 1, Lane::Urgent).await;
    let mut bytes = crate::raw::encoded(&Frame::Raft(vec![heartbeat(2, 1, 1)]));
    bytes[40] ^= 1;
    raw.write(&bytes).await;
    let (_, cause) = one.until(disconnected).await;
    assert!(matches!(
        cause,
        EndCause::BadFrame(FrameError::Checksum { .. })
    ));
    assert_eq!(raw.frame().await, Some(Frame::Bye(CloseReason::BadFrame)));
    assert_eq!(raw.frame().await, None);
    let counters = one.peers.peer_counters(2).unwrap();
    assert_eq!(counters.bad_frames.load(Relaxed), 1);
    let mut raw = RawConnection::connect(&network, 2, 1, Lane::Urgent).await;
    raw.send(&Frame::Raft(vec![heartbeat(2, 1, 1)])).await;
    one.until(frame).await;
}

/// A server sends messages of its own only.
#[tokio::test(start_paused = true)]
async fn messages_that_name_another_sender_or_receiver_are_refused() {
    let network = Network::default();
    let mut one = Server::start(&network, 1, 0);
    for message in [heartbeat(3, 1, 1), heartbeat(2, 3, 1)] {
        let mut raw = RawConnection::connect(&network, 2, 1, Lane::Urgent).await;
        raw.send(&Frame::Raft(vec![heartbeat(2, 1, 1), message]))
            .await;
        let (_, cause) = one.until(disconnected).await;
        assert!(matches!(cause, EndCause::BadFrame(_)), "{cause}");
        assert_eq!(raw.frame().await, Some(Frame::Bye(CloseReason::BadFrame)));
    }
    // Nor does a frame come on a lane that is not its own.
    let mut raw = RawConnection::connect(&network, 2, 1, Lane::Log).await;
    raw.send(&Frame::Touch(Touch {
        batch: 1,
        sessions: vec![],
    }))
    .await;
    let (_, cause) = one.until(disconnected).await;
    assert!(matches!(
        cause,
        EndCause::BadFrame(FrameError::Unexpected { .. })
    ));
}

/// Members 1 to 3 of a cluster.
fn member(id: u64) -> LocalServer {
    LocalServer {
        cluster: 0xc1,
        membership_index: 1,
        last_index: 10,
        members: (1..=3)
            .map(|id| KnownMember {
                id,
                incarnation: incarnation(id),
                acknowledged_index: 0,
            })
            .collect(),
        ..LocalServer::new(id, incarnation(id), 1)
    }
}

/// Both sides say the same.
async fn both_refuse(network: &Network, one: LocalServer, other: LocalServer) -> Refusal {
    let (id, other_id) = (one.id, other.id);
    let mut one = Server::start_as(network, one, options(id), 2);
    let mut other = Server::start_as(network, other, options(other_id), 0);
    let (by, here) = one.until(refused).await;
    let (by_other, there) = other.until(refused).await;
    assert_ne!(by, by_other);
    assert_eq!(here.to_string(), there.to_string());
    assert_eq!(one.peers.open_lanes(2).len(), 0);
    here
}

#[tokio::test(start_paused = true)]
async fn r17_an_emptied_folder_is_refused_with_the_same_text_on_both_sides() {
    let network = Network::default();
    let emptied = LocalServer::new(2, 0xdead, 1);
    let refusal = both_refuse(&network, member(1), emptied.clone()).await;
    assert!(matches!(refusal, Refusal::OtherIncarnation { id: 2, .. }));
    // And when it is the one that connects.
    let network = Network::default();
    let mut one = Server::start_as(&network, member(1), options(1), 0);
    let mut two = Server::start_as(&network, emptied, options(2), 1);
    let (by, refusal) = two.until(refused).await;
    assert_eq!(by, RefusedBy::Them);
    assert!(refusal.to_string().contains("baton server replace 2"));
    assert_eq!(one.until(refused).await, (RefusedBy::Us, refusal));
    sleep(Duration::from_secs(60)).await;
    for event in one.so_far() {
        assert!(matches!(event, PeerEvent::Refused { .. }), "{event:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn r19_an_older_copy_of_a_folder_is_refused_with_the_same_text_on_both_sides() {
    let network = Network::default();
    let mut here = member(1);
    here.members[1].acknowledged_index = 11;
    let refusal = both_refuse(&network, here, member(2)).await;
    assert!(matches!(refusal, Refusal::OlderCopy { id: 2, .. }));
}

#[tokio::test(start_paused = true)]
async fn servers_of_two_clusters_or_at_a_wrong_address_refuse_each_other() {
    let network = Network::default();
    let mut other = member(2);
    other.cluster = 0xc2;
    let refusal = both_refuse(&network, member(1), other).await;
    assert!(matches!(refusal, Refusal::OtherCluster { .. }));
    let network = Network::default();
    let mut protocol = member(2);
    protocol.protocol.oldest = ProtocolRange::THIS.newest + 1;
    protocol.protocol.newest = ProtocolRange::THIS.newest + 2;
    let refusal = both_refuse(&network, member(1), protocol).await;
    assert!(matches!(refusal, Refusal::Protocol { .. }));
    // Server 3 listens where server 2 is expected.
    let network = Network::default();
    let mut one = Server::start_as(&network, member(1), options(1), 0);
    let mut three = Server::start_as(&network, member(3), options(3), 0);
    one.peers.set_addresses(&[(2, name(3))].into());
    let expected = Refusal::WrongServer {
        expected: 2,
        found: 3,
    };
    assert_eq!(
        one.until(refused).await,
        (RefusedBy::Them, expected.clone())
    );
    assert_eq!(three.until(refused).await, (RefusedBy::Us, expected));
    // A server that finds itself.
    one.peers.set_addresses(&[(2, name(1))].into());
    let itself = Refusal::WrongServer {
        expected: 2,
        found: 1,
    };
    one.until(|event| refused(event).filter(|(_, refusal)| *refusal == itself))
        .await;
}

/// Returns when the membership changes, connections that it does not admit end, the others stay.
#[tokio::test(start_paused = true)]
async fn r17_a_replaced_member_loses_its_connections() {
    let network = Network::default();
    let mut one = Server::start_as(&network, member(1), options(1), 2);
    let mut two = Server::start_as(&network, member(2), options(2), 2);
    one.connected(2).await;
    two.connected(1).await;
    one.peers.update_local(|local| {
        local.last_index = 20;
        local.term = 8;
    });
    sleep(Duration::from_secs(2)).await;
    assert!(one.so_far().is_empty());
    one.peers.update_local(|local| {
        local.membership_index = 15;
        local.members[1].incarnation = 0xbeef;
    });
    for _ in 0..6 {
        let (_, cause) = one.until(disconnected).await;
        let by_peer = cause == EndCause::Bye(CloseReason::Removed);
        assert!(
            by_peer || cause == EndCause::Ended(CloseReason::Removed),
            "{cause}"
        );
    }
    let (_, refusal) = two.until(refused).await;
    assert!(matches!(refusal, Refusal::OtherIncarnation { id: 2, .. }));
}

/// A server that lags behind its addition does not know who leads, and has to answer it.
#[tokio::test(start_paused = true)]
async fn r41_a_server_that_knows_of_newer_members_is_called_back_until_the_members_are_known() {
    let network = Network::default();
    let mut lagging = Server::start_as(&network, member(1), options(1), 0);
    let mut leader = member(4);
    leader.membership_index = 9;
    leader.address = name(4);
    leader.members.push(KnownMember {
        id: 4,
        incarnation: incarnation(4),
        acknowledged_index: 0,
    });
    let mut leader = Server::start_as(&network, leader, options(4), 1);
    lagging.connected(4).await;
    leader.connected(1).await;
    // What the owner names meanwhile does not end it.
    lagging.peers.set_addresses(&[(2, name(2))].into());
    sleep(Duration::from_secs(2)).await;
    assert_eq!(lagging.peers.open_lanes(4), BTreeSet::from(Lane::ALL));
    // It has caught up, and the other one is not a member any more.
    lagging
        .peers
        .update_local(|local| local.membership_index = 9);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(lagging.peers.open_lanes(4), BTreeSet::new());
}

/// A folder was exchanged: the member with that id is another one now, at another address.
#[tokio::test(start_paused = true)]
async fn r41_a_replaced_member_is_called_back_at_its_new_address() {
    let network = Network::default();
    let mut lagging = Server::start_as(&network, member(1), options(1), 0);
    lagging.peers.set_addresses(&[(3, name(7))].into());
    let mut replaced = member(3);
    replaced.membership_index = 9;
    replaced.incarnation = 0xbeef;
    replaced.address = name(3);
    replaced.members[2].incarnation = 0xbeef;
    let mut replaced = Server::start_as(&network, replaced, options(3), 1);
    lagging.connected(3).await;
    replaced.connected(1).await;
}

#[test]
fn r41_only_who_knows_of_newer_members_is_called_back() {
    let local = member(1);
    let said = |id: u64, incarnation: u128, index: u64, address: &str| {
        let mut other = LocalServer::new(id, incarnation, 1);
        other.cluster = local.cluster;
        other.membership_index = index;
        address.clone_into(&mut other.address);
        local.calls_back(&other.hello(1, Lane::Log, 7, 0))
    };
    assert!(said(4, 44, 2, "four:1"));
    assert!(!said(4, 44, 1, "four:1"), "no newer membership");
    assert!(!said(4, 44, 2, ""), "no address");
    assert!(said(3, 44, 2, "three:1"), "of another folder");
    assert!(!said(3, incarnation(3), 2, "three:1"), "a member");
}

/// Also when the membership changes in the middle of a handshake.
#[tokio::test(start_paused = true)]
async fn r17_a_member_that_is_replaced_during_its_handshake_does_not_stay() {
    let network = Network::default();
    let mut one = Server::start_as(&network, member(1), options(1), 0);
    let mut raw = RawConnection::open(&network, 1);
    let welcome = raw.greet(&member(2).hello(1, Lane::Urgent, 77, 0)).await;
    one.peers.update_local(|local| {
        local.membership_index = 15;
        local.members[1].incarnation = 0xbeef;
    });
    let echo = welcome.hello.nonce;
    raw.send(&Frame::Confirm(Confirmation { echo })).await;
    let (_, cause) = one.until(disconnected).await;
    assert_eq!(cause, EndCause::Ended(CloseReason::Removed));
    assert_eq!(
        raw.lane_frame(Lane::Urgent).await,
        Some(Frame::Bye(CloseReason::Removed))
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_taken_off_the_list_is_no_longer_connected_to() {
    let network = Network::default();
    let (mut one, _two) = pair(&network).await;
    one.peers.set_addresses(&Default::default());
    for _ in 0..3 {
        let (link, cause) = one.until(disconnected).await;
        assert_eq!(link.direction, Direction::Outbound);
        assert_eq!(cause, EndCause::Ended(CloseReason::Removed));
    }
    let before = network.dialled(&name(2)).len();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(network.dialled(&name(2)).len(), before);
    assert_eq!(one.peers.open_lanes(2).len(), 0);
    // And again.
    one.peers.set_addresses(&[(2, name(2))].into());
    for _ in 0..3 {
        one.until(|event| matches!(event, PeerEvent::Connected { .. }).then_some(()))
            .await;
    }
}

/// The connections that there are stay, and the next ones are made where the server is.
#[tokio::test(start_paused = true)]
async fn a_server_that_moves_is_reached_at_either_address_until_it_has_moved() {
    const ELSEWHERE: &str = "elsewhere:2888";
    let network = Network::default();
    let (mut one, two) = pair(&network).await;
    one.peers.set_addresses(&[(2, ELSEWHERE.to_owned())].into());
    sleep(Duration::from_secs(2)).await;
    assert!(one.so_far().is_empty());
    // It ends, which who looks for it at its old address notices, and starts again there.
    two.peers.stop().await;
    one.until(|event| matches!(event, PeerEvent::Gone { peer: 2 }).then_some(()))
        .await;
    let two = Server::start(&network, 2, 2);
    one.connected(2).await;
    // Another server listens where it is to be.
    let three = LocalServer::new(3, incarnation(3), 1);
    let mut stranger = Server::start_at(&network, ELSEWHERE, three, options(3), 0);
    two.peers.stop().await;
    let expected = Refusal::WrongServer {
        expected: 2,
        found: 3,
    };
    assert_eq!(stranger.until(refused).await, (RefusedBy::Us, expected));
    stranger.peers.stop().await;
    // It moves, and nobody looks for it at its old address any more.
    network.close(&name(2));
    let start = || {
        let local = LocalServer::new(2, incarnation(2), 1);
        Server::start_at(&network, ELSEWHERE, local, options(2), 2)
    };
    let two = start();
    one.connected(2).await;
    let dialled = network.dialled(&name(2)).len();
    two.peers.stop().await;
    sleep(Duration::from_secs(2)).await;
    let _two = start();
    one.connected(2).await;
    assert_eq!(network.dialled(&name(2)).len(), dialled);
}

/// Generations grow, so the owner can order what it has received of two connections.
#[tokio::test(start_paused = true)]
async fn r11_generations_grow_with_each_connection() {
    let network = Network::default();
    let mut one = Server::start(&network, 1, 2);
    let mut two = Server::start(&network, 2, 2);
    let mut newest = 0;
    for _ in 0..3 {
        let links = one.connected(2).await;
        two.connected(1).await;
        let urgent = link_of(&links, Lane::Urgent, Direction::Inbound);
        assert!(urgent.generation > newest);
        newest = links.iter().map(|link| link.generation).max().unwrap();
        drop(two);
        two = Server::start(&network, 2, 2);
    }
}
