//! Outcomes of operations: not sent, maybe applied, unanswered; their order, deadlines and bounds;
//! and lost answers to creates.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use baton_client::{
    Acl, BoxFuture, BoxStream, Cleanup, CleanupError, Client, CreateMode, DeleteOptions, EndReason,
    Endpoint, Error, Host, Op, OpCode, Reason, Session, State, Transport,
};
use baton_proto::{ErrorCode, MultiResult, ReplyHeader, Request, Response, Stat};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{FakeServers, Peer, SESSION, T, settle, stat};

#[tokio::test(start_paused = true)]
async fn what_is_queued_goes_out_in_one_write_and_answers_come_in_order() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let probe = peer.any().await.unwrap();
    peer.answer_probe(&probe).await;
    settle().await;
    let all: Vec<_> = (0..50)
        .map(|i| s.set_data("/n", format!("{i}").as_bytes(), None))
        .collect();
    let last = s.get_data("/n");
    settle().await;
    // One write of the client is one read here: the pipe is larger than all of it.
    let bytes = peer.stream.read_buf(&mut peer.buffer).await.unwrap();
    assert_eq!(bytes, peer.buffer.len());
    for i in 0..50 {
        let asked = peer.expect(OpCode::SetData).await;
        let Request::SetData { data, .. } = asked.request() else {
            unreachable!()
        };
        assert_eq!(data.unwrap(), format!("{i}").as_bytes());
        peer.ok(
            &asked,
            Some(Response::Stat(Stat {
                version: i,
                ..Stat::default()
            })),
        )
        .await;
    }
    for (i, pending) in all.into_iter().enumerate() {
        let applied = pending.applied().await.unwrap();
        assert_eq!(
            (applied.value.version, applied.zxid),
            (i32::try_from(i).unwrap(), 101 + i64::try_from(i).unwrap())
        );
    }
    let asked = peer.expect(OpCode::GetData).await;
    peer.no_data(&asked, Stat::default()).await;
    assert!(last.await.unwrap().data.is_empty());
    assert_eq!(s.last_zxid(), 150);
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_leaves_sent_writes_unknown_repeats_reads_and_keeps_what_never_left() {
    // A pipe so small that only the first requests leave.
    let mut world = FakeServers::with_buffer(256);
    let (s, mut peer) = world.session().await;
    let mut states = s.states();
    let write = s.set_data("/sent", b"", None);
    let read = s.get_data("/read");
    let asked = peer.expect(OpCode::SetData).await;
    drop(asked);
    peer.expect(OpCode::GetData).await;
    let big = s.set_data("/stuck", &[1; 2000], None);
    let behind = s.delete("/behind", None);
    let impatient = s.fail_fast().delete("/impatient", None);
    settle().await;
    drop(peer);
    let e = write.await.unwrap_err();
    assert!(
        e.is_maybe_applied() && e.path() == "/sent" && e.reason() == Some(&Reason::ConnectionLost),
        "{e}"
    );
    assert_eq!(
        states.try_next(),
        Some(State::Suspended),
        "the cause is known before the failure"
    );
    let e = impatient.await.unwrap_err();
    assert!(
        matches!(
            &e,
            Error::NotSent {
                reason: Reason::Disconnected,
                ..
            }
        ),
        "{e}"
    );
    // The next connection gets the read again, then what never left, once.
    let mut peer = world.accept(SESSION).await;
    assert_eq!(peer.last_zxid_seen, 100, "it does not travel back in time");
    let asked = peer.expect(OpCode::GetData).await;
    peer.no_data(&asked, Stat::default()).await;
    read.await.unwrap();
    let asked = peer.expect(OpCode::SetData).await;
    assert_eq!(asked.path(), "/stuck");
    peer.ok(&asked, Some(Response::Stat(Stat::default()))).await;
    big.await.unwrap();
    let asked = peer.expect(OpCode::Delete).await;
    peer.ok(&asked, None).await;
    behind.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_to_fail_fast_is_not_sent_again_be_it_a_read_or_a_write() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let hasty = s.fail_fast();
    let read = hasty.get_data("/read");
    let watching = hasty.exists_watch("/watched");
    let write = hasty.delete("/write", None);
    for op in [OpCode::GetData, OpCode::Exists, OpCode::Delete] {
        peer.expect(op).await;
    }
    world.transport.refuse(true);
    drop(peer);
    let lost = Some(&Reason::ConnectionLost);
    let e = read.await.unwrap_err();
    assert!(
        matches!(e, Error::Unanswered { .. }) && e.reason() == lost,
        "{e}"
    );
    let e = watching.await.unwrap_err();
    assert!(
        matches!(e, Error::Unanswered { .. }) && e.reason() == lost,
        "{e}"
    );
    let e = write.await.unwrap_err();
    assert!(e.is_maybe_applied() && e.reason() == lost, "{e}");
    let e = hasty.exists("/none").await.unwrap_err();
    assert!(matches!(e, Error::NotSent { .. }), "{e}");
    world.transport.refuse(false);
    let mut peer = world.accept(SESSION).await;
    let marker = s.exists("/marker");
    let asked = peer.next().await.unwrap();
    assert_eq!(
        (asked.op, asked.path().as_str()),
        (OpCode::Exists, "/marker")
    );
    peer.refuse(&asked, ErrorCode::NoNode).await;
    marker.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn h50_a_deadline_ends_what_waits_as_not_sent_and_what_left_as_maybe_applied() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let hasty = s.with_deadline(Duration::from_millis(300));
    let in_flight = hasty.set_data("/a", b"", None);
    let read = hasty.exists("/a");
    let late = peer.expect(OpCode::SetData).await;
    let e = in_flight.await.unwrap_err();
    assert!(e.is_maybe_applied() && e.is_deadline_passed(), "{e}");
    let e = read.await.unwrap_err();
    assert!(
        matches!(e, Error::Unanswered { .. }) && e.had_no_effect(),
        "{e}"
    );
    // The late answers still belong to those operations, and to no other.
    let next = s.exists("/b");
    peer.ok(&late, Some(Response::Stat(Stat::default()))).await;
    let asked = peer.expect(OpCode::Exists).await;
    peer.refuse(&asked, ErrorCode::NoNode).await;
    let asked = peer.expect(OpCode::Exists).await;
    peer.ok(&asked, Some(Response::Stat(stat(9, 0)))).await;
    assert_eq!(next.await.unwrap().unwrap().czxid, 9);

    world.transport.refuse(true);
    drop(peer);
    settle().await;
    let queued = hasty.delete("/c", None);
    let forgotten = hasty.delete("/d", None);
    let e = queued.await.unwrap_err();
    assert!(
        matches!(
            &e,
            Error::NotSent {
                reason: Reason::DeadlinePassed,
                ..
            }
        ),
        "{e}"
    );
    world.transport.refuse(false);
    let mut peer = world.accept(SESSION).await;
    let marker = s.exists("/marker");
    let asked = peer.next().await.unwrap();
    assert_eq!(
        asked.op,
        OpCode::Exists,
        "nothing past its deadline is sent: {asked:?}"
    );
    let e = forgotten.await.unwrap_err();
    assert!(matches!(e, Error::NotSent { .. }), "{e}");
    peer.refuse(&asked, ErrorCode::NoNode).await;
    marker.await.unwrap();
}

/// The queue is nearly full each time.
#[tokio::test(start_paused = true)]
async fn what_is_given_up_without_a_connection_leaves_room_in_the_queue() {
    let mut world = FakeServers::new();
    let config = world.config().max_pending(100, 1000);
    let (s, peer) = world.session_with(config).await;
    drop(peer);
    settle().await;
    let hasty = s.with_deadline(Duration::from_millis(1));
    for _ in 0..10 {
        let written = hasty.set_data("/x", &[0; 900], None).await;
        let error = written.unwrap_err();
        let is_late = matches!(
            &error,
            Error::NotSent {
                reason: Reason::DeadlinePassed,
                ..
            }
        );
        assert!(is_late, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_bounded_and_what_is_beyond_is_not_sent() {
    let mut world = FakeServers::new();
    let config = world
        .config()
        .max_pending(4, 1 << 20)
        .max_request_bytes(1000);
    let (s, mut peer) = world.session_with(config).await;
    peer.answer_next_probe().await;
    let kept: Vec<_> = (0..4).map(|_| s.delete("/x", None)).collect();
    let e = s.delete("/y", None).await.unwrap_err();
    assert!(
        matches!(
            &e,
            Error::NotSent {
                reason: Reason::QueueFull { pending: 4 },
                ..
            }
        ),
        "{e}"
    );
    for pending in kept {
        let asked = peer.expect(OpCode::Delete).await;
        peer.ok(&asked, None).await;
        pending.await.unwrap();
    }
    let e = s.set_data("/y", &[0; 2000], None).await.unwrap_err();
    assert!(
        matches!(
            &e,
            Error::NotSent {
                reason: Reason::TooLarge { limit: 1000, .. },
                ..
            }
        ),
        "{e}"
    );
    let e = s.delete("no/slash", None).await.unwrap_err();
    assert!(
        matches!(
            &e,
            Error::NotSent {
                reason: Reason::BadPath(_),
                ..
            }
        ),
        "{e}"
    );
}

#[tokio::test(start_paused = true)]
async fn h24_version_minus_one_never_makes_a_conditional_write_unconditional() {
    let mut world = FakeServers::new();
    let (s, _peer) = world.session().await;
    for e in [
        s.set_data("/n", b"", Some(-1)).await.unwrap_err(),
        s.delete("/n", Some(-1)).await.unwrap_err(),
        s.multi(&[baton_client::Op::check("/n", Some(-1))])
            .await
            .unwrap_err(),
    ] {
        assert!(
            matches!(
                &e,
                Error::NotSent {
                    reason: Reason::BadArgument(_),
                    ..
                }
            ),
            "{e}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_out_of_order_ends_the_connection_and_nothing_is_taken_for_another() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let first = s.delete("/1", None);
    let second = s.delete("/2", None);
    let _first = peer.expect(OpCode::Delete).await;
    let asked = peer.expect(OpCode::Delete).await;
    peer.ok(&asked, None).await;
    assert!(first.await.unwrap_err().is_maybe_applied());
    assert!(second.await.unwrap_err().is_maybe_applied());
    assert!(peer.until_gone().await.is_empty());
    world.accept(SESSION).await;
}

const MODE: CreateMode = CreateMode::EphemeralSequential;

#[tokio::test(start_paused = true)]
async fn h02_the_recovery_of_a_lost_create_syncs_first_and_finds_the_node() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let (s2, acl) = (s.clone(), [Acl::open_unsafe()]);
    let create = tokio::spawn(async move {
        s2.create_protected("/p", "_c_1-lock-", b"", MODE, &acl)
            .await
    });
    peer.expect(OpCode::Create2).await;
    drop(peer);
    let mut peer = world.accept(SESSION).await;
    let asked = peer.expect(OpCode::Sync).await;
    assert_eq!(asked.path(), "/p");
    peer.ok(&asked, Some(Response::Path("/p".to_owned()))).await;
    let asked = peer.expect(OpCode::GetChildren2).await;
    let children = vec![
        "_c_2-lock-0000000004".to_owned(),
        "_c_1-lock-0000000005".to_owned(),
    ];
    peer.ok(
        &asked,
        Some(Response::Children2 {
            children,
            stat: Stat::default(),
        }),
    )
    .await;
    let asked = peer.expect(OpCode::Exists).await;
    assert_eq!(asked.path(), "/p/_c_1-lock-0000000005");
    peer.ok(&asked, Some(Response::Stat(stat(55, SESSION))))
        .await;
    let made = create.await.unwrap().unwrap();
    assert_eq!(
        (made.path.as_str(), made.stat.czxid),
        ("/p/_c_1-lock-0000000005", 55)
    );
    nothing_more(&s, &mut peer).await;
}

/// An operation that has ended is not discarded behind it: the session's own end is the next thing
/// that the server hears.
async fn nothing_more(s: &Session, peer: &mut Peer) {
    settle().await;
    let s = s.clone();
    let closing = tokio::spawn(async move { s.close_timeout(T).await });
    let asked = peer.expect(OpCode::CloseSession).await;
    peer.ok(&asked, None).await;
    closing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn h02_below_a_parent_that_may_not_be_listed_the_own_nodes_are_asked_for() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let s2 = s.clone();
    let recovery = tokio::spawn(async move { s2.recover_create("/p", "_c_1-").await });
    let asked = peer.expect(OpCode::Sync).await;
    peer.ok(&asked, Some(Response::Path("/p".to_owned()))).await;
    let asked = peer.expect(OpCode::GetChildren2).await;
    peer.refuse(&asked, ErrorCode::NoAuth).await;
    let asked = peer.expect(OpCode::GetEphemerals).await;
    assert_eq!(asked.path(), "/p/_c_1-");
    let own = ["/p/_c_1-x/deeper", "/p/_c_1-lock-0000000003"].map(str::to_owned);
    peer.ok(&asked, Some(Response::Strings(own.to_vec()))).await;
    let asked = peer.expect(OpCode::Exists).await;
    assert_eq!(asked.path(), "/p/_c_1-lock-0000000003");
    peer.ok(&asked, Some(Response::Stat(stat(33, SESSION))))
        .await;
    let found = recovery.await.unwrap().unwrap().unwrap();
    assert_eq!(found.stat.czxid, 33);
}

#[tokio::test(start_paused = true)]
async fn a_refused_multi_names_the_part_that_failed_whatever_its_code() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    for (culprit, code) in [
        (0, ErrorCode::NoNode),
        (2, ErrorCode::BadVersion),
        (1, ErrorCode::RuntimeInconsistency),
    ] {
        let parts: Vec<_> = (0..3).map(|_| Op::check("/n", None)).collect();
        let refused = s.multi(&parts);
        let asked = peer.expect(OpCode::Multi).await;
        let results = MultiResult::failure(3, culprit, code);
        peer.ok(&asked, Some(Response::Multi(results))).await;
        match refused.await.unwrap_err() {
            Error::MultiRejected {
                index,
                code: rejected_with,
                ..
            } => {
                assert_eq!((index, rejected_with), (culprit, code));
            }
            other => panic!("{other}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn h03_a_node_with_our_marker_of_another_session_is_deleted_and_never_ours() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let s2 = s.clone();
    let recovery = tokio::spawn(async move { s2.recover_create("/p", "_c_1-").await });
    let asked = peer.expect(OpCode::Sync).await;
    peer.ok(&asked, Some(Response::Path("/p".to_owned()))).await;
    let asked = peer.expect(OpCode::GetChildren2).await;
    let children = vec!["_c_1-lock-0000000003".to_owned()];
    peer.ok(
        &asked,
        Some(Response::Children2 {
            children,
            stat: Stat::default(),
        }),
    )
    .await;
    for _ in 0..2 {
        let asked = peer.expect(OpCode::Exists).await;
        peer.ok(&asked, Some(Response::Stat(stat(33, SESSION + 1))))
            .await;
    }
    let asked = peer.expect(OpCode::Delete).await;
    assert_eq!(asked.path(), "/p/_c_1-lock-0000000003");
    peer.ok(&asked, None).await;
    assert_eq!(recovery.await.unwrap().unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn h04_a_create_that_outlives_its_session_is_never_repeated_in_the_next() {
    let mut world = FakeServers::new();
    let config = world.config();
    let client = Client::lazy(config);
    let c2 = client.clone();
    let first = tokio::spawn(async move { c2.session().await.unwrap() });
    let mut peer = world.accept(SESSION).await;
    let old = first.await.unwrap();
    let (o2, acl) = (old.clone(), [Acl::open_unsafe()]);
    let create =
        tokio::spawn(async move { o2.create_protected("/p", "_c_1-", b"", MODE, &acl).await });
    peer.expect(OpCode::Create2).await;
    drop(peer);
    // The server says: expired.
    let mut peer = world.accept_raw().await;
    peer.frame().await.unwrap();
    peer.answer_hello(0).await;
    let e = create.await.unwrap().unwrap_err();
    assert!(e.is_session_ended(), "{e}");
    assert_eq!(old.end_reason(), Some(EndReason::ExpiredByServer));
    let c2 = client.clone();
    let next = tokio::spawn(async move { c2.session().await.unwrap() });
    let mut peer = world.accept(SESSION + 1).await;
    let next = next.await.unwrap();
    assert_eq!(next.id(), SESSION + 1);
    assert!(!next.is_same(&old) && old.state() == State::Expired);
    let probe = next.exists("/only-this");
    let asked = peer.expect(OpCode::Exists).await;
    assert_eq!(
        asked.path(),
        "/only-this",
        "nothing of the old session is sent"
    );
    peer.refuse(&asked, ErrorCode::NoNode).await;
    probe.await.unwrap();
}

/// Answers the reads that resolve a create below `/p`: the node is there, of this session.
async fn answer_recovery(peer: &mut Peer, name: &str, czxid: i64) {
    let asked = peer.expect(OpCode::Sync).await;
    peer.ok(&asked, Some(Response::Path("/p".to_owned()))).await;
    let asked = peer.expect(OpCode::GetChildren2).await;
    let children = vec![name.to_owned()];
    peer.ok(
        &asked,
        Some(Response::Children2 {
            children,
            stat: Stat::default(),
        }),
    )
    .await;
    for _ in 0..2 {
        let asked = peer.expect(OpCode::Exists).await;
        peer.ok(&asked, Some(Response::Stat(stat(czxid, SESSION))))
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn h05_a_create_given_up_is_removed_even_if_it_appears_later() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let acl = [Acl::open_unsafe()];
    let hasty = s.with_deadline(Duration::from_millis(100));
    let create = hasty.create_protected("/p", "_c_1-", b"", MODE, &acl);
    let e = create.await.unwrap_err();
    assert!(e.is_maybe_applied() && e.is_deadline_passed(), "{e}");
    peer.expect(OpCode::Create2).await;
    drop(peer);
    let mut peer = world.accept(SESSION).await;
    answer_recovery(&mut peer, "_c_1-0000000005", 55).await;
    // The close waits for the cleanup.
    let closing = tokio::spawn(async move { s.close_timeout(T).await });
    let asked = peer.expect(OpCode::Delete).await;
    assert_eq!(asked.path(), "/p/_c_1-0000000005");
    peer.ok(&asked, None).await;
    let asked = peer.expect(OpCode::CloseSession).await;
    peer.ok(&asked, None).await;
    closing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn h01_a_create_that_is_refused_is_not_searched_for_and_not_sent_again() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let (s2, acl) = (s.clone(), [Acl::open_unsafe()]);
    let create =
        tokio::spawn(async move { s2.create_protected("/p", "_c_1-", b"", MODE, &acl).await });
    let asked = peer.expect(OpCode::Create2).await;
    peer.refuse(&asked, ErrorCode::NoNode).await;
    settle().await;
    assert!(create.is_finished(), "a refusal is an answer");
    let refused = create.await.unwrap().unwrap_err();
    assert!(
        refused.is_no_node() && !refused.is_maybe_applied(),
        "{refused}"
    );
    nothing_more(&s, &mut peer).await;
}

#[tokio::test(start_paused = true)]
async fn h10_a_create_whose_future_is_dropped_leaves_nothing() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let (s2, acl) = (s.clone(), [Acl::open_unsafe()]);
    let create =
        tokio::spawn(async move { s2.create_protected("/p", "_c_1-", b"", MODE, &acl).await });
    let lost = peer.expect(OpCode::Create2).await;
    create.abort();
    settle().await;
    peer.ok(
        &lost,
        Some(Response::PathStat(
            "/p/_c_1-0000000000".to_owned(),
            stat(7, SESSION),
        )),
    )
    .await;
    answer_recovery(&mut peer, "_c_1-0000000000", 7).await;
    peer.expect(OpCode::Delete).await;
}

/// The state that `submit` sees while a write is stuck has woken the driver already: nothing else
/// wakes it when the write is through.
#[tokio::test(start_paused = true)]
async fn what_is_queued_behind_a_write_that_was_stuck_needs_no_timer_to_go_out() {
    let mut world = FakeServers::with_buffer(1 << 10);
    let (s, mut peer) = world.session().await;
    peer.answer_next_probe().await;
    settle().await;
    let begun = s.clock().now();
    let _stuck = s.set_data("/n", &[1; 4000], None);
    settle().await;
    let _behind = s.exists("/m");
    settle().await;
    peer.expect(OpCode::SetData).await;
    peer.expect(OpCode::Exists).await;
    assert_eq!(s.clock().now(), begun);
}

#[tokio::test(start_paused = true)]
async fn h07_a_deletion_reads_again_after_another_version_and_is_done_where_nothing_is_left() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    for end in [None, Some(ErrorCode::NoNode), Some(ErrorCode::NoAuth)] {
        let deletion = tokio::spawn(s.delete_node("/n", 7, DeleteOptions::new()));
        for version in [3, 4] {
            let asked = peer.expect(OpCode::Exists).await;
            let seen = Stat {
                version,
                ..stat(7, SESSION)
            };
            peer.ok(&asked, Some(Response::Stat(seen))).await;
            let asked = peer.expect(OpCode::Delete).await;
            let sent = Request::Delete {
                path: "/n",
                version,
            };
            assert_eq!(asked.request(), sent);
            match end {
                _ if version == 3 => peer.refuse(&asked, ErrorCode::BadVersion).await,
                Some(code) => peer.refuse(&asked, code).await,
                None => peer.ok(&asked, None).await,
            }
        }
        if end == Some(ErrorCode::NoAuth) {
            // The deletion goes on in the background; the caller receives the first answer.
            let refused = deletion.await.unwrap().unwrap_err();
            assert_eq!(refused.code(), end, "{refused}");
        } else {
            deletion.await.unwrap().unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn h18_a_cleanup_spares_a_node_with_another_czxid_and_ends_with_its_session() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let cleanup = s.delete_eventually("/n", 5);
    let asked = peer.expect(OpCode::Exists).await;
    peer.ok(&asked, Some(Response::Stat(stat(6, SESSION))))
        .await;
    cleanup.await.unwrap();
    let cleanup = s.delete_eventually("/n", 5);
    world.transport.refuse(true);
    drop(peer);
    let e = cleanup.await.unwrap_err();
    assert!(matches!(e, CleanupError::SessionLost(_)), "{e}");
    assert_eq!(s.state(), State::Expired);
}

/// The session, its server's end and the cleanup of a lost create, whose read of the node's data is
/// refused with `code`.
async fn discard_unreadable(code: ErrorCode) -> (Session, Peer, Cleanup) {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let cleanup = s.discard_create_at("/n", b"marker");
    let asked = peer.expect(OpCode::Sync).await;
    peer.ok(&asked, Some(Response::Path("/n".to_owned()))).await;
    let asked = peer.expect(OpCode::GetData).await;
    peer.refuse(&asked, code).await;
    (s, peer, cleanup)
}

#[tokio::test(start_paused = true)]
async fn h03_a_lost_create_s_node_that_may_not_be_read_is_deleted_only_where_it_is_the_session_s() {
    let (s, mut peer, cleanup) = discard_unreadable(ErrorCode::NoAuth).await;
    for _ in 0..2 {
        let asked = peer.expect(OpCode::Exists).await;
        let seen = Response::Stat(stat(33, SESSION));
        peer.ok(&asked, Some(seen)).await;
    }
    let asked = peer.expect(OpCode::Delete).await;
    peer.ok(&asked, None).await;
    cleanup.await.unwrap();
    nothing_more(&s, &mut peer).await;
    let (s, mut peer, cleanup) = discard_unreadable(ErrorCode::NoAuth).await;
    let asked = peer.expect(OpCode::Exists).await;
    let seen = Response::Stat(stat(33, SESSION + 1));
    peer.ok(&asked, Some(seen)).await;
    cleanup.await.unwrap();
    nothing_more(&s, &mut peer).await;
}

#[tokio::test(start_paused = true)]
async fn h03_a_lost_create_s_node_is_spared_where_its_read_is_refused_for_another_reason() {
    let (s, mut peer, cleanup) = discard_unreadable(ErrorCode::SystemError).await;
    let refused = cleanup.await.unwrap_err();
    assert!(matches!(refused, CleanupError::Refused(_)), "{refused}");
    nothing_more(&s, &mut peer).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_talks_nonsense_is_left_and_believed_in_nothing() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let mut states = s.states();
    let reply = |xid: i32, err: i32| {
        let mut out = Vec::new();
        let header = ReplyHeader { xid, zxid: 1, err };
        baton_proto::frame::write_reply(&mut out, header, None);
        out
    };
    let nonsense = [
        vec![0xff; 64],
        vec![0x7f, 0xff, 0xff, 0xff],
        vec![0, 0, 0, 3, 1, 2, 3],
        reply(77, 0),
        reply(-2, 0),
        reply(-1, 0),
    ];
    for (i, bytes) in nonsense.iter().enumerate() {
        let write = s.set_data("/n", b"", None);
        peer.expect(OpCode::SetData).await;
        peer.stream.write_all(bytes).await.unwrap();
        let e = write.await.unwrap_err();
        assert!(e.is_maybe_applied(), "{i}: {e}");
        assert_eq!(states.next().await, Some(State::Suspended), "{i}");
        peer = world.accept(SESSION).await;
        assert!(
            matches!(states.next().await, Some(State::Connected { .. })),
            "{i}"
        );
    }
    // An answer that is in its place, but cannot be read.
    let write = s.set_data("/n", b"", None);
    let asked = peer.expect(OpCode::SetData).await;
    peer.ok(&asked, None).await;
    let e = write.await.unwrap_err();
    assert!(
        matches!(
            &e,
            Error::MaybeApplied {
                reason: Reason::BadReply(_),
                ..
            }
        ),
        "{e}"
    );
    assert!(!e.to_string().contains('\n'), "{e}");
}

#[tokio::test(start_paused = true)]
async fn a_server_of_another_protocol_is_named_in_the_error() {
    for (answer, said) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            r#"it is an HTTP server (it answers "HTTP/1.1 400 Bad Request"); correct the port"#,
        ),
        (
            b"SSH-2.0-OpenSSH_9.2\r\n",
            r#"it is an SSH server (it answers "SSH-2.0-OpenSSH_9.2"); correct the port"#,
        ),
        (
            b"220 mail ESMTP\x1b[2J\r\n",
            r#"it is a server of another protocol (it answers "220 mail ESMTP"); correct the port"#,
        ),
        (
            &[0xff; 40],
            "its answer is not in ZooKeeper's protocol; correct the port",
        ),
    ] {
        let mut world = FakeServers::new();
        let config = world.config().connect_within(Duration::from_secs(1));
        let connect = tokio::spawn(baton_client::Session::connect(config));
        let serve = tokio::spawn(async move {
            loop {
                let mut peer = world.accept_raw().await;
                let _ = peer.stream.write_all(answer).await;
            }
        });
        let error = connect.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("server:1"), "{error}");
        assert!(error.contains(said), "{error}");
        assert!(!error.contains("frame") && !error.contains('\n'), "{error}");
        serve.abort();
    }
}

/// A transport whose attempts come no further than this.
struct StuckTransport {
    resolves: bool,
}

impl Transport for StuckTransport {
    fn resolve(&self, _: &Host) -> BoxFuture<io::Result<Vec<Endpoint>>> {
        match self.resolves {
            true => {
                let address = ([127, 0, 0, 1], 1).into();
                Box::pin(std::future::ready(Ok(vec![Endpoint::Tcp(address)])))
            }
            false => Box::pin(std::future::pending()),
        }
    }

    fn connect(&self, _: &Endpoint) -> BoxFuture<io::Result<BoxStream>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_under_way_when_the_time_is_up_says_how_far_it_has_come() {
    // Less and more than one attempt may take.
    for limit in [Duration::from_millis(500), Duration::from_secs(8)] {
        let world = FakeServers::new();
        let silent = world.config();
        let stuck = |resolves| {
            world
                .config()
                .transport(Arc::new(StuckTransport { resolves }))
        };
        for (config, said) in [
            (silent, "it took the connection and did not answer within"),
            (stuck(true), "no connection within"),
            (stuck(false), "its name was not resolved within"),
        ] {
            let config = config.connect_within(limit);
            let error = baton_client::Session::connect(config).await.unwrap_err();
            let text = error.to_string();
            assert!(text.contains("last attempt: server:1"), "{text}");
            assert!(text.contains(said), "{text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_fails_as_a_whole_names_no_path_and_a_bad_part_its_own() {
    let mut world = FakeServers::new();
    let (s, peer) = world.session().await;
    let parts = [Op::check("/right", None), Op::check("/wrong/", None)];
    let text = s.multi(&parts).await.unwrap_err().to_string();
    assert!(
        text.starts_with("transaction /wrong/: not sent: "),
        "{text}"
    );
    drop(peer);
    let parts = [Op::check("/right", None)];
    let error = s.fail_fast().multi(&parts).await.unwrap_err();
    assert_eq!(error.path(), "", "{error}");
    assert!(error.to_string().starts_with("transaction: "), "{error}");
}
