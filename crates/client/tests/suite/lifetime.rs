//! When a session is alive, when it is not, and who is notified: lease, states, pauses, half-open
//! links, the death of its task.

use std::time::Duration;

use baton_client::{
    Client, Clock, Config, ConnectError, EndReason, EventKind, LeaseMode, LeaseOptions, OpCode,
    Session, State,
};
use baton_proto::{ErrorCode, MultiOp, MultiResult, Request, Response};

use crate::support::{FakeServers, Peer, SESSION, T, TICK, settle, stat};

/// Serves a connection: every request is answered, heartbeats among them; other requests are
/// refused.
async fn serve(mut peer: Peer) -> Vec<OpCode> {
    let mut seen = Vec::new();
    while let Some(asked) = peer.any().await {
        seen.push(asked.op);
        match asked.op {
            OpCode::Ping | OpCode::CloseSession => peer.ok(&asked, None).await,
            OpCode::Multi => {
                peer.ok(&asked, Some(Response::Multi(vec![MultiResult::Check])))
                    .await
            }
            OpCode::GetData => peer.answer_probe(&asked).await,
            _ => peer.refuse(&asked, ErrorCode::NoNode).await,
        }
    }
    seen
}

fn strict(world: &FakeServers) -> baton_client::Config {
    world.config().lease(LeaseOptions {
        tick: Some(TICK),
        mode: LeaseMode::Strict,
        ..LeaseOptions::default()
    })
}

#[tokio::test(start_paused = true)]
async fn a_held_lease_costs_two_no_effect_quorum_writes_each_quarter_of_the_timeout_and_stays_valid()
 {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session_with(strict(&world)).await;
    peer.answer_next_probe().await;
    let hold = s.hold_lease().await.unwrap();
    let second = hold.clone();
    let clock = s.clock();
    let begun = clock.now();
    for round in 0..40 {
        let asked = peer.expect(OpCode::Multi).await;
        assert!(s.lease().is_valid());
        let Request::Multi(parts) = asked.request() else {
            unreachable!()
        };
        assert_eq!(
            parts,
            [MultiOp::Check {
                path: "/",
                version: -1
            }]
        );
        let before = s.lease().deadline;
        peer.ok(&asked, Some(Response::Multi(vec![MultiResult::Check])))
            .await;
        settle().await;
        assert!(s.lease().deadline >= before);
        // Just before the second write of a pair is answered the lease has T - T/4 - T/16 - tick/2
        // left, or more.
        let least = T - T / 4 - T / 16 - TICK / 2 - Duration::from_millis(250);
        if round >= 2 {
            assert!(s.lease().remaining() >= least, "{:?}", s.lease());
        }
    }
    let took = clock.now().saturating_duration_since(begun);
    assert!(
        took >= T * 19 / 4,
        "40 writes take 19 quarters at least, these took {took:?}"
    );
    drop((hold, second));
    let served = tokio::spawn(serve(peer));
    tokio::time::sleep(T * 3).await;
    assert_eq!(s.state(), State::Connected { epoch: 1 });
    assert!(!s.lease().is_valid(), "pings alone prove nothing here");
    s.close().await.unwrap();
    let seen = served.await.unwrap();
    assert!(
        seen.contains(&OpCode::Ping) && !seen.contains(&OpCode::Multi),
        "nobody holds it any more: {seen:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn on_batons_server_pings_are_enough_and_the_lease_is_the_whole_timeout() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    peer.baton = true;
    peer.answer_next_probe().await;
    let _hold = s.hold_lease().await.unwrap();
    assert!(s.lease().remaining() > T * 9 / 10, "{:?}", s.lease());
    let served = tokio::spawn(serve(peer));
    for _ in 0..40 {
        tokio::time::sleep(T / 5).await;
        assert!(s.lease().remaining() > T * 6 / 10, "{:?}", s.lease());
    }
    s.close_timeout(T).await.unwrap();
    assert!(!s.lease().is_valid());
    assert!(!served.await.unwrap().contains(&OpCode::Multi));
}

#[tokio::test(start_paused = true)]
async fn r33_on_batons_ensemble_pings_keep_the_lease_of_a_client_that_goes_on_reading() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    peer.member = true;
    peer.answer_next_probe().await;
    let _hold = s.hold_lease().await.unwrap();
    let served = tokio::spawn(serve(peer));
    for _ in 0..200 {
        tokio::time::sleep(T / 25).await;
        s.exists("/x").await.unwrap();
        assert!(s.lease().remaining() > T * 6 / 10, "{:?}", s.lease());
    }
    s.close_timeout(T).await.unwrap();
    let seen = served.await.unwrap();
    assert!(!seen.contains(&OpCode::Multi), "no writes are needed");
}

#[tokio::test(start_paused = true)]
async fn r33_a_server_of_batons_ensemble_that_answers_reads_only_keeps_no_lease_and_is_left() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    peer.member = true;
    peer.answer_next_probe().await;
    let _hold = s.hold_lease().await.unwrap();
    world.transport.refuse(true);
    let served = tokio::spawn(async move {
        let mut pings = 0;
        while let Some(asked) = peer.any().await {
            match asked.op {
                OpCode::Ping => pings += 1,
                _ => peer.ok(&asked, Some(Response::Stat(stat(1, 0)))).await,
            }
        }
        pings
    });
    let (deadline, begun) = (s.lease().deadline, s.clock().now());
    while s.state() == (State::Connected { epoch: 1 }) {
        s.exists("/x").await.unwrap();
        tokio::time::sleep(T / 25).await;
    }
    assert_eq!(s.lease().deadline, deadline, "reads prove nothing");
    let left = s.clock().now().saturating_duration_since(begun);
    assert!(left < T * 3 / 4, "in time for another server: {left:?}");
    assert!(served.await.unwrap() > 0, "it was asked");
}

#[tokio::test(start_paused = true)]
async fn h91_an_answer_that_only_a_follower_can_have_given_extends_no_strict_lease() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session_with(strict(&world)).await;
    peer.answer_next_probe().await;
    let _hold = s.hold_lease().await.unwrap();
    let asked = peer.expect(OpCode::Multi).await;
    peer.ok(&asked, Some(Response::Multi(vec![MultiResult::Check])))
        .await;
    settle().await;
    let deadline = s.lease().deadline;
    // From now on the follower answers reads and pings by itself, and gets no write through.
    tokio::time::sleep(T / 10).await;
    let read = s.exists("/x");
    let asked = peer.expect(OpCode::Exists).await;
    peer.ok(&asked, Some(Response::Stat(stat(1, 0)))).await;
    read.await.unwrap();
    assert_eq!(s.lease().deadline, deadline, "a read proves nothing");
    let mut writes = 0;
    while s.lease().is_valid() {
        tokio::select! {
            () = s.lease_ended() => break,
            asked = peer.any() => match asked {
                Some(asked) if asked.op == OpCode::Ping => peer.ok(&asked, None).await,
                Some(_) => writes += 1,
                None => break,
            },
        }
    }
    s.lease_ended().await;
    assert_eq!(s.lease().deadline, deadline);
    assert!(writes > 0, "it has tried");
}

#[tokio::test(start_paused = true)]
async fn h91_a_refused_write_extends_no_strict_lease() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session_with(strict(&world)).await;
    peer.answer_next_probe().await;
    let _hold = s.hold_lease().await.unwrap();
    let deadline = s.lease().deadline;
    assert!(s.lease().is_valid(), "the session was created just now");
    // A follower may refuse a write by itself, and a leader that has been deposed knows no better.
    let refusals = [ErrorCode::BadVersion, ErrorCode::NoNode, ErrorCode::NoAuth];
    let mut refused = 0;
    let mut writing = s.set_data("/n", b"", Some(3));
    while s.lease().is_valid() {
        let asked = tokio::select! {
            biased;
            asked = peer.any() => asked.expect("the client is there"),
            () = s.lease_ended() => break,
        };
        if asked.op == OpCode::Ping {
            peer.ok(&asked, None).await;
            continue;
        }
        assert!(asked.op.is_write(), "{asked:?}");
        peer.refuse(&asked, refusals[refused % 3]).await;
        refused += 1;
        if asked.op == OpCode::SetData {
            writing.await.unwrap_err();
            writing = s.set_data("/n", b"", Some(3));
        }
        tokio::time::sleep(T / 16).await;
        assert_eq!(s.lease().deadline, deadline);
    }
    assert!(refused > 8, "{refused}");
}

/// Its answer never comes, and those to later pings are no answers to it.
#[tokio::test(start_paused = true)]
async fn h27_a_ping_that_was_lost_with_its_connection_is_not_awaited_on_the_next() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    peer.answer_next_probe().await;
    peer.ping().await;
    drop(peer);
    let mut peer = world.accept(SESSION).await;
    peer.answer_next_probe().await;
    for _ in 0..6 {
        let ping = peer.ping().await;
        peer.ok(&ping, None).await;
    }
    settle().await;
    assert_eq!(s.epoch(), 2, "the connection lasts");
    assert_eq!(s.unanswered_for(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn h91_an_answer_counts_from_when_it_was_read_for_the_writes_behind_it() {
    for by_ping in [false, true] {
        let mut world = FakeServers::new();
        let (s, mut peer) = world.session_with(strict(&world)).await;
        peer.answer_next_probe().await;
        let created = s.lease().deadline;
        if by_ping {
            let ping = peer.ping().await;
            tokio::time::sleep(T / 10).await;
            peer.ok(&ping, None).await;
        } else {
            tokio::time::sleep(T / 4).await;
            let read = s.exists("/x");
            let asked = peer.expect(OpCode::Exists).await;
            tokio::time::sleep(T / 10).await;
            peer.ok(&asked, Some(Response::Stat(stat(1, 0)))).await;
            read.await.unwrap();
        }
        // Within half a tick of that answer, but not of its request: our server need not have
        // reported it yet.
        for _ in 0..2 {
            tokio::time::sleep(TICK / 5).await;
            let write = s.delete("/x", None);
            let asked = peer.expect(OpCode::Delete).await;
            peer.ok(&asked, None).await;
            write.await.unwrap();
            assert_eq!(s.lease().deadline, created);
        }
    }
}

/// Time that each answer takes in the next test.
const SLOW: Duration = Duration::from_millis(900);

#[tokio::test(start_paused = true)]
async fn h26_whatever_is_answered_counts_from_its_request() {
    let mut world = FakeServers::new();
    let clock = world.clock.clone();
    let connect = tokio::spawn(Session::connect(world.config()));
    let mut peer = world.accept_raw().await;
    peer.frame().await.expect("a handshake");
    let sent = clock.now();
    tokio::time::sleep(SLOW).await;
    peer.answer_hello(SESSION).await;
    let s = connect.await.unwrap().unwrap();
    // Less one percent and 50 ms.
    let span = T - T / 100 - Duration::from_millis(50);
    assert_eq!(s.lease().deadline, sent + span, "the handshake");

    peer.baton = true;
    let probe = peer.any().await.unwrap();
    tokio::time::sleep(SLOW).await;
    peer.answer_probe(&probe).await;
    settle().await;
    let counts = |what: &str, sent| {
        assert_eq!(s.lease().deadline, sent + span, "{what}");
    };
    let (sent, read) = (clock.now(), s.exists("/x"));
    let asked = peer.expect(OpCode::Exists).await;
    tokio::time::sleep(SLOW).await;
    peer.ok(&asked, Some(Response::Stat(stat(1, 0)))).await;
    read.await.unwrap();
    counts("a read", sent);

    let (sent, write) = (clock.now(), s.delete("/x", None));
    let asked = peer.expect(OpCode::Delete).await;
    tokio::time::sleep(SLOW).await;
    peer.ok(&asked, None).await;
    write.await.unwrap();
    counts("a write", sent);

    let ping = peer.ping().await;
    let sent = clock.now();
    tokio::time::sleep(SLOW).await;
    peer.ok(&ping, None).await;
    settle().await;
    counts("a ping", sent);
    let proved = s.lease().deadline;

    // What waited for the connection counts from when it left.
    world.transport.refuse(true);
    drop(peer);
    settle().await;
    let waiting = s.delete("/x", None);
    world.transport.refuse(false);
    let mut peer = world.accept_raw().await;
    peer.frame().await.expect("a handshake");
    let begun = clock.now();
    tokio::time::sleep(SLOW).await;
    peer.answer_hello(SESSION).await;
    settle().await;
    assert_eq!(s.lease().deadline, proved, "it proves nothing by itself");
    peer.baton = true;
    peer.answer_next_probe().await;
    let asked = peer.expect(OpCode::Delete).await;
    tokio::time::sleep(SLOW).await;
    peer.ok(&asked, None).await;
    waiting.await.unwrap();
    counts("what waited", begun + SLOW);
}

#[tokio::test(start_paused = true)]
async fn h26_the_time_of_a_session_that_was_attached_late_is_over_when_the_servers_is() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    peer.answer_next_probe().await;
    drop(peer);
    let mut peer = world.accept_raw().await;
    peer.frame().await.expect("a handshake");
    let sent = s.clock().now();
    tokio::time::sleep(SLOW).await;
    peer.answer_hello(SESSION).await;
    settle().await;
    assert_eq!(s.state(), State::Connected { epoch: 2 });
    // The server counts from when it met the request; nothing that follows is answered.
    world.transport.refuse(true);
    assert_eq!(s.ended().await, EndReason::ExpiredLocally);
    assert_eq!(s.clock().now(), sent + T);
}

#[tokio::test(start_paused = true)]
async fn h25_after_a_pause_the_first_check_says_lost_whatever_was_delivered() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    peer.baton = true;
    peer.answer_next_probe().await;
    let _hold = s.hold_lease().await.unwrap();
    assert!(s.lease().is_valid());
    // The answers that would prove the session alive lie in the socket when the process wakes up.
    let ping = s.exists("/x");
    settle().await;
    let asked = peer.expect(OpCode::Exists).await;
    world.clock.jump(T * 2);
    peer.ok(&asked, Some(Response::Stat(stat(1, 0)))).await;
    // No task has run since the jump but this one.
    assert!(!s.lease().is_valid());
    assert_eq!(s.lease().remaining(), Duration::ZERO);
    assert_eq!(s.state(), State::Expired);
    let e = s.set_data("/guarded", b"", None).await.unwrap_err();
    assert!(e.is_session_ended() && e.had_no_effect(), "{e}");
    settle().await;
    assert_eq!(s.state(), State::Expired, "and it stays so");
    let _ = ping.await;
    assert!(
        peer.until_gone().await.is_empty(),
        "no side effect was sent"
    );
}

#[tokio::test(start_paused = true)]
async fn h25_a_lease_is_over_at_its_end_not_after_it() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    peer.baton = true;
    peer.answer_next_probe().await;
    let left = s.lease().remaining();
    world.clock.jump(left - Duration::from_nanos(1));
    assert!(s.lease().is_valid());
    world.clock.jump(Duration::from_nanos(1));
    assert_eq!(s.lease().remaining(), Duration::ZERO);
    assert!(!s.lease().is_valid());
}

#[tokio::test(start_paused = true)]
async fn h27_bytes_from_the_server_do_not_keep_a_session_alive_whose_requests_are_not_answered() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    peer.answer_next_probe().await;
    let mut states = s.states();
    let started = s.clock().now();
    world.transport.refuse(true);
    let chatter = tokio::spawn(async move {
        loop {
            peer.event(EventKind::NodeDataChanged, "/noise").await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let noticed = tokio::time::timeout(T * 2, states.next()).await;
    assert_eq!(noticed.expect("it is noticed"), Some(State::Suspended));
    let after = s.clock().now().saturating_duration_since(started);
    assert!(after >= T * 2 / 3 && after < T, "{after:?}");
    assert_eq!(states.next().await, Some(State::Expired));
    assert_eq!(s.end_reason(), Some(EndReason::ExpiredLocally));
    let after = s.clock().now().saturating_duration_since(started);
    assert!(after <= T, "{after:?}");
    chatter.abort();
}

#[tokio::test(start_paused = true)]
async fn h28_a_suspended_machine_counts_the_time_that_it_slept() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    peer.baton = true;
    peer.answer_next_probe().await;
    let served = tokio::spawn(serve(peer));
    let _hold = s.hold_lease().await.unwrap();
    world.clock.jump(T / 2);
    assert!(s.lease().is_valid(), "a short sleep is within the lease");
    settle().await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(s.state(), State::Connected { epoch: 1 });
    assert!(
        s.lease().remaining() > T * 9 / 10,
        "renewed at once: {:?}",
        s.lease()
    );
    world.clock.jump(T);
    assert!(!s.lease().is_valid());
    assert_eq!(s.ended().await, EndReason::ExpiredLocally);
    served.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn h29_a_grant_that_arrives_after_the_deadline_is_a_loss() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    peer.answer_next_probe().await;
    let watching = s.get_data_watch("/predecessor");
    let asked = peer.expect(OpCode::GetData).await;
    peer.no_data(&asked, stat(1, 0)).await;
    let (_, watch) = watching.await.unwrap();
    world.clock.jump(T + Duration::from_millis(1));
    peer.event(EventKind::NodeDeleted, "/predecessor").await;
    let lost = watch.await.unwrap_err();
    assert_eq!(lost.0, EndReason::ExpiredLocally);
}

#[tokio::test(start_paused = true)]
async fn h35_a_thousand_flaps_reach_a_slow_listener_in_order_and_the_end_too() {
    let mut world = FakeServers::new();
    let (s, peer) = world.session().await;
    let mut slow = s.states();
    let mut peer = Some(peer);
    for _ in 0..1000 {
        drop(peer.take());
        peer = Some(world.accept(SESSION).await);
    }
    world.transport.refuse(true);
    drop(peer);
    assert_eq!(s.ended().await, EndReason::ExpiredLocally);
    for epoch in 2..=1001 {
        assert_eq!(slow.next().await, Some(State::Suspended));
        assert_eq!(slow.next().await, Some(State::Connected { epoch }));
    }
    assert_eq!(slow.next().await, Some(State::Suspended));
    assert_eq!(slow.next().await, Some(State::Expired));
    assert_eq!(slow.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn h36_an_answer_that_is_read_after_the_loss_finds_the_loss_already_reported() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    peer.baton = true;
    peer.answer_next_probe().await;
    let mut states = s.states();
    let election = s.exists("/own");
    let asked = peer.expect(OpCode::Exists).await;
    peer.ok(&asked, Some(Response::Stat(stat(1, SESSION))))
        .await;
    world.transport.refuse(true);
    drop(peer);
    assert_eq!(s.ended().await, EndReason::ExpiredLocally);
    // The success was true once; anyone who acts on it now is stopped by the state of the session
    // itself.
    assert!(election.await.unwrap().is_some());
    assert_eq!(s.state(), State::Expired);
    assert!(!s.lease().is_valid());
    assert_eq!(states.try_next(), Some(State::Suspended));
    assert_eq!(states.try_next(), Some(State::Expired));
}

#[tokio::test(start_paused = true)]
async fn h37_a_server_that_hands_out_another_session_ends_ours() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let create = s.create("/mine", b"", baton_client::CreateMode::Ephemeral);
    peer.expect(OpCode::Create2).await;
    drop(peer);
    let mut peer = world.accept_raw().await;
    peer.frame().await.unwrap();
    peer.answer_hello(SESSION + 5).await;
    assert_eq!(s.ended().await, EndReason::ExpiredByServer);
    assert!(!s.lease().is_valid(), "though its time is not over");
    assert_eq!(s.id(), SESSION);
    assert!(create.await.unwrap_err().is_maybe_applied());
    assert!(
        peer.until_gone().await.is_empty(),
        "nothing was sent in the other session's name"
    );
}

#[tokio::test(start_paused = true)]
async fn reconnects_are_tried_at_least_each_tenth_of_the_timeout_or_second() {
    let mut world = FakeServers::new();
    let (s, peer) = world.session().await;
    world.transport.refuse(true);
    let before = world.transport.attempts();
    drop(peer);
    s.ended().await;
    let attempts = world.transport.attempts() - before;
    // At least T / (T/10); jitter makes it about twice as many; it must not spin either.
    assert!((10..200).contains(&attempts), "{attempts}");
}

/// Each handshake is an answer, so the session lives for as long as it goes on.
#[tokio::test(start_paused = true)]
async fn a_server_that_takes_the_session_and_closes_each_time_is_asked_with_pauses() {
    let mut world = FakeServers::new();
    let (s, peer) = world.session().await;
    drop(peer);
    let before = world.transport.attempts();
    let closing = async {
        loop {
            drop(world.accept(s.id()).await);
        }
    };
    let closed = tokio::time::timeout(Duration::from_secs(20), closing).await;
    assert!(closed.is_err());
    let attempts = world.transport.attempts() - before;
    assert!((20..200).contains(&attempts), "{attempts}");
    // Then it stays: the next loss is not one of those.
    let peer = world.accept(s.id()).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = world.transport.attempts();
    drop(peer);
    let at = tokio::time::Instant::now();
    let _peer = world.accept(s.id()).await;
    assert_eq!(
        (at.elapsed(), world.transport.attempts() - before),
        (Duration::ZERO, 1)
    );
}

#[test]
fn h88_the_end_of_the_runtime_is_the_end_of_the_session_and_nothing_panics() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let (s, op, watch, cleanup, peer) = runtime.block_on(async {
        let mut world = FakeServers::new();
        let (s, mut peer) = world.session().await;
        let watching = s.exists_watch("/w");
        let asked = peer.expect(OpCode::Exists).await;
        peer.refuse(&asked, ErrorCode::NoNode).await;
        let (_, watch) = watching.await.unwrap();
        let op = s.delete("/x", None);
        let cleanup = s.delete_eventually("/y", 1);
        settle().await;
        (s, op, watch, cleanup, peer)
    });
    let mut states = s.states();
    drop(runtime);
    assert_eq!(s.state(), State::Expired);
    assert_eq!(s.end_reason(), Some(EndReason::DriverGone));
    assert_eq!(states.try_next(), Some(State::Expired));
    assert!(!s.lease().is_valid());
    let again = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    again.block_on(async {
        assert!(op.await.unwrap_err().is_maybe_applied());
        assert_eq!(watch.await.unwrap_err().0, EndReason::DriverGone);
        cleanup.await.unwrap_err();
    });
    drop(s.delete_eventually("/z", 1));
    drop((s, peer));
}

#[test]
fn h88_without_a_runtime_connecting_tries_the_servers_and_does_not_panic() {
    // Nothing listens there: the attempt fails on the client's own thread.
    let config = baton_client::Config::new("127.0.0.1:1")
        .unwrap()
        .connect_within(Duration::from_millis(50));
    let outcome = baton_client::block_on(Session::connect(config));
    assert!(matches!(outcome, Err(ConnectError::Unreachable { .. })));
}

#[test]
fn h88_a_runtime_that_has_ended_is_an_error_and_not_a_panic() {
    let ended = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let config = baton_client::Config::new("127.0.0.1:1")
        .unwrap()
        .runtime(ended.handle().clone());
    drop(ended);
    let outcome = baton_client::block_on(Session::connect(config));
    assert!(matches!(outcome, Err(ConnectError::NoRuntime)));
}

#[tokio::test(start_paused = true)]
async fn close_waits_for_the_servers_answer_and_says_so_when_it_does_not_come() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let queued = s.delete("/before", None);
    let closing = tokio::spawn({
        let s = s.clone();
        async move { s.close_timeout(T).await }
    });
    let asked = peer.expect(OpCode::Delete).await;
    peer.ok(&asked, None).await;
    queued.await.unwrap();
    let asked = peer.expect(OpCode::CloseSession).await;
    let refused = s.delete("/after", None).await.unwrap_err();
    assert!(refused.had_no_effect(), "{refused}");
    assert!(!closing.is_finished());
    peer.ok(&asked, None).await;
    closing.await.unwrap().unwrap();
    assert_eq!(s.state(), State::Closed);

    let (s, _silent) = world.session().await;
    let asked = s.clock().now();
    let e = s
        .close_timeout(Duration::from_millis(100))
        .await
        .unwrap_err()
        .to_string();
    assert!(e.contains("0x77") && e.contains("not acknowledged"), "{e}");
    assert_eq!(s.clock().now(), asked + Duration::from_millis(100));
    assert_eq!(s.state(), State::Closed);
}

#[tokio::test(start_paused = true)]
async fn the_supervisor_makes_one_new_session_after_a_loss_for_all_who_ask() {
    let mut world = FakeServers::new();
    let client = Client::lazy(world.config());
    let ask = |client: &Client| {
        let client = client.clone();
        tokio::spawn(async move { client.session().await.unwrap() })
    };
    let (a, b) = (ask(&client), ask(&client));
    let peer = world.accept(SESSION).await;
    let (a, b) = (a.await.unwrap(), b.await.unwrap());
    assert!(a.is_same(&b));
    world.transport.refuse(true);
    drop(peer);
    a.ended().await;
    world.transport.refuse(false);
    let c = ask(&client);
    let _peer = world.accept(SESSION + 1).await;
    let c = c.await.unwrap();
    assert!(!c.is_same(&a));
    assert_eq!((a.id(), c.id()), (SESSION, SESSION + 1));
    let _ = client.close_timeout(Duration::from_millis(1)).await;
    assert!(matches!(client.session().await, Err(ConnectError::Closed)));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_expired_here_is_ended_on_a_server_that_comes_back() {
    let mut world = FakeServers::new();
    let (s, peer) = world.session().await;
    world.transport.refuse(true);
    drop(peer);
    assert_eq!(s.ended().await, EndReason::ExpiredLocally);
    world.transport.refuse(false);
    let mut peer = world.accept(SESSION).await;
    peer.expect(OpCode::CloseSession).await;
    assert_eq!(s.state(), State::Expired, "it stays dead here");
}

#[tokio::test(start_paused = true)]
async fn a_session_handed_over_is_not_closed_and_can_be_taken_up() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let export = s.hand_over();
    assert_eq!(s.state(), State::Closed);
    drop(s);
    assert!(peer.until_gone().await.is_empty(), "no close was sent");
    let config = world.config();
    let heir = tokio::spawn(async move { Session::resume(config, &export).await });
    let _peer = world.accept(SESSION).await;
    assert_eq!(heir.await.unwrap().unwrap().id(), SESSION);
}

#[tokio::test(start_paused = true)]
async fn credentials_that_are_refused_fail_the_connect() {
    let mut world = FakeServers::new();
    let connect = tokio::spawn(Session::connect(
        world.config().auth("digest", b"user:secret"),
    ));
    let mut peer = world.accept(SESSION).await;
    let asked = peer.expect(OpCode::Auth).await;
    peer.refuse(&asked, ErrorCode::AuthFailed).await;
    let e = connect.await.unwrap().unwrap_err();
    assert!(matches!(e, ConnectError::AuthFailed { .. }), "{e}");
}

#[tokio::test(start_paused = true)]
async fn h32_a_silent_address_does_not_use_up_the_time_that_is_left() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    peer.answer_next_probe().await;
    // The link dies without a word; the first attempt to reconnect meets silence too, the second is
    // answered.
    let silent = world.accept_raw().await;
    let _peer = world.accept(SESSION).await;
    settle().await;
    assert_eq!(s.state(), State::Connected { epoch: 2 });
    drop((peer, silent));
}

#[tokio::test(start_paused = true)]
async fn h32_silent_servers_do_not_use_up_the_time_before_the_last_one_is_tried() {
    let mut world = FakeServers::new();
    // Less than the session timeout, which three servers would share otherwise.
    let config = Config::new("server:1,server:2,server:3").unwrap();
    let config = world.configured(config).connect_within(T / 2);
    let connect = tokio::spawn(Session::connect(config));
    let silent = [world.accept_raw().await, world.accept_raw().await];
    let _peer = world.accept(SESSION).await;
    connect.await.unwrap().unwrap();
    drop(silent);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_opens_while_its_caller_goes_away_is_closed() {
    let mut world = FakeServers::new();
    let config = world.config();
    let mut connect = Box::pin(Session::connect(config));
    // Sends the task on its way; the answer then finds a caller that is there, but is never polled
    // again.
    assert!(poll_once(&mut connect).await.is_none());
    let mut peer = world.accept(SESSION).await;
    peer.answer_next_probe().await;
    drop(connect);
    let closing = tokio::time::timeout(T, peer.expect(OpCode::CloseSession));
    closing.await.expect("nobody else would ever close it");
}

/// Polls once.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|cx| match std::pin::Pin::new(&mut *future).poll(cx) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}
