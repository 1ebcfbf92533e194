//! Sessions on a real server, Baton's or (with `BATON_TEST_TARGET=zookeeper`) Apache ZooKeeper,
//! through a proxy that fails at a given frame.

use std::time::Duration;

use baton_client::{
    Acl, AddWatchMode, Clock, Config, ConnectError, CreateMode, EndReason, Error, ErrorCode,
    EventKind, LeaseMode, LeaseOptions, Op, OpCode, OpResult, PersistentEvent, Session, State,
    SystemClock,
};
use baton_testkit::{Action, Match, Proxy, Target, TestServer, Variant, inspect};

const LONG: Duration = Duration::from_secs(30);

/// Far longer than anything takes: what has not happened by then will not.
async fn within<F: Future>(work: F) -> F::Output {
    let limited = tokio::time::timeout(2 * LONG, work);
    limited.await.expect("should have happened long ago")
}

/// A server, a proxy before it, and settings that fit its tick.
struct ProxiedServer {
    server: TestServer,
    proxy: Proxy,
}

impl ProxiedServer {
    async fn new() -> Self {
        let target = Target::from_env().unwrap();
        let server = TestServer::start(target).await.unwrap();
        let proxy = Proxy::start(server.addr()).await.unwrap();
        Self { server, proxy }
    }

    fn config(&self, timeout: Duration) -> Config {
        Config::new(&self.proxy.connect_string())
            .unwrap()
            .session_timeout(timeout)
            .lease(LeaseOptions {
                tick: Some(Duration::from_millis(200)),
                ..LeaseOptions::default()
            })
    }

    async fn session(&self) -> Session {
        self.session_with(Duration::from_secs(6)).await
    }

    async fn session_with(&self, timeout: Duration) -> Session {
        Session::connect(self.config(timeout)).await.unwrap()
    }

    /// A session that the proxy's faults do not touch.
    async fn witness(&self) -> Session {
        let config = Config::new(&self.server.connect_string()).unwrap();
        Session::connect(config).await.unwrap()
    }
}

const VARIANTS: [Variant; 3] = [Variant::Rst, Variant::Fin, Variant::BlackHole];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_do_what_they_say() {
    let bench = ProxiedServer::new().await;
    let s = bench.session().await;
    assert_eq!(s.state(), State::Connected { epoch: 1 });

    let made = s
        .create("/a", b"one", CreateMode::Persistent)
        .applied()
        .await
        .unwrap();
    assert_eq!(made.value.path, "/a");
    assert_eq!(made.value.stat.czxid, made.zxid);
    assert!(
        s.create("/a", b"", CreateMode::Persistent)
            .await
            .unwrap_err()
            .is_node_exists()
    );
    assert_eq!(&s.get_data("/a").await.unwrap().data[..], b"one");
    let stat = s.set_data("/a", b"two", Some(0)).await.unwrap();
    assert_eq!(stat.version, 1);
    let e = s.set_data("/a", b"x", Some(0)).await.unwrap_err();
    assert!(
        e.is_bad_version() && e.path() == "/a" && e.zxid() > Some(0),
        "{e}"
    );

    let seq = s
        .create("/a/n-", b"", CreateMode::EphemeralSequential)
        .await
        .unwrap();
    assert_eq!(seq.path, "/a/n-0000000000");
    assert_eq!(seq.stat.ephemeral_owner, s.id());
    assert_eq!(s.children("/a").await.unwrap().names, ["n-0000000000"]);
    assert_eq!(s.exists("/none").await.unwrap(), None);
    assert!(s.get_data("/none").await.unwrap_err().is_no_node());
    assert!(s.delete("/a", None).await.unwrap_err().is_not_empty());
    s.sync("/").await.unwrap();
    let (acl, _) = s.get_acl("/a").await.unwrap();
    assert_eq!(acl[0].id, "anyone");
    s.set_acl("/a", &acl, Some(0)).await.unwrap();
    assert_eq!(s.ephemerals("/a").await.unwrap(), ["/a/n-0000000000"]);
    assert_eq!(s.count_descendants("/a").await.unwrap(), 1);
    assert!(!s.who_am_i().await.unwrap().is_empty());
    s.create("/c", b"", CreateMode::Container).await.unwrap();

    let results = s
        .multi(&[
            Op::check("/a", Some(1)),
            Op::create("/m", &b"m"[..], CreateMode::Persistent),
            Op::set_data("/a", &b"three"[..], Some(1)),
            Op::delete("/a/n-0000000000", None),
        ])
        .await
        .unwrap();
    assert_eq!(results.len(), 4, "{results:?}");
    assert!(
        matches!(&results[1], OpResult::Created { path, .. } if path == "/m"),
        "{results:?}"
    );
    let refused = [
        Op::delete("/m", None),
        Op::check("/a", Some(9)),
        Op::delete("/c", None),
    ];
    let e = s.multi(&refused).await.unwrap_err();
    assert_eq!(
        (e.multi_index(), e.code(), e.path()),
        (Some(1), Some(ErrorCode::BadVersion), "/a")
    );
    assert!(
        s.exists("/m").await.unwrap().is_some(),
        "nothing of it was applied"
    );
    s.close_timeout(LONG).await.unwrap();
    assert_eq!(s.state(), State::Closed);
    let e = s.get_data("/a").await.unwrap_err();
    assert!(
        matches!(&e, Error::NotSent { .. }) && e.is_session_ended(),
        "{e}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chroot_prefixes_what_goes_out_and_hides_in_what_comes_back() {
    let bench = ProxiedServer::new().await;
    let plain = bench.session().await;
    plain
        .create("/app", b"", CreateMode::Persistent)
        .await
        .unwrap();
    let config = bench.config(LONG).chroot("/app");
    let s = Session::connect(config).await.unwrap();
    let (root, watch) = s.children_watch("/").await.unwrap();
    assert!(root.names.is_empty());
    let made = s
        .create("/x-", b"", CreateMode::EphemeralSequential)
        .await
        .unwrap();
    assert_eq!(made.path, "/x-0000000000");
    let event = watch.await.unwrap();
    assert_eq!(
        (event.kind, event.path.as_str()),
        (EventKind::NodeChildrenChanged, "/")
    );
    assert!(plain.exists("/app/x-0000000000").await.unwrap().is_some());
    s.close_timeout(LONG).await.unwrap();
    plain.close_timeout(LONG).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_fire_once_and_persistent_ones_stay() {
    let bench = ProxiedServer::new().await;
    let (s, other) = (bench.session().await, bench.session().await);
    s.create("/w", b"", CreateMode::Persistent).await.unwrap();
    let mut tree = s
        .watch_persistent("/w", AddWatchMode::PersistentRecursive)
        .await
        .unwrap();
    let (_, data) = s.get_data_watch("/w").await.unwrap();
    let (none, created) = s.exists_watch("/w/c").await.unwrap();
    assert!(none.is_none());
    let (_, child) = s.children_watch("/w").await.unwrap();
    other.set_data("/w", b"1", None).await.unwrap();
    other
        .create("/w/c", b"", CreateMode::Persistent)
        .await
        .unwrap();
    other.delete("/w/c", None).await.unwrap();
    assert_eq!(data.await.unwrap().kind, EventKind::NodeDataChanged);
    assert_eq!(created.await.unwrap().kind, EventKind::NodeCreated);
    assert_eq!(child.await.unwrap().kind, EventKind::NodeChildrenChanged);
    let mut seen = Vec::new();
    for _ in 0..3 {
        match tree.next().await.unwrap() {
            PersistentEvent::Change(e) => seen.push((e.kind, e.path)),
            other => panic!("{other:?}"),
        }
    }
    let path = |p: &str| p.to_owned();
    assert_eq!(
        seen,
        [
            (EventKind::NodeDataChanged, path("/w")),
            (EventKind::NodeCreated, path("/w/c")),
            (EventKind::NodeDeleted, path("/w/c")),
        ]
    );
    s.close_timeout(LONG).await.unwrap();
    other.close_timeout(LONG).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h01_a_create_whose_answer_is_lost_yields_one_node_and_it_is_ours() {
    let bench = ProxiedServer::new().await;
    for (i, variant) in VARIANTS.into_iter().enumerate() {
        let s = bench.session_with(Duration::from_secs(4)).await;
        let (parent, mode) = (format!("/p{i}"), CreateMode::EphemeralSequential);
        s.create(&parent, b"", CreateMode::Persistent)
            .await
            .unwrap();
        let at = Match::reply(OpCode::Create2);
        let fault = bench.proxy.on(at).then(Action::Cut(variant));
        let open = [Acl::open_unsafe()];
        let made = s
            .create_protected(&parent, "_c_marker-lock-", b"", mode, &open)
            .await
            .unwrap();
        assert_eq!(fault.times(), 1);
        assert_eq!(made.stat.ephemeral_owner, s.id());
        let names = s.children(&parent).await.unwrap().names;
        assert_eq!(names.len(), 1, "{variant:?}: {names:?}");
        assert!(made.path.ends_with(&names[0]));
        bench.proxy.heal();
        s.close_timeout(LONG).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h07_a_delete_whose_answer_is_lost_is_finished_by_the_cleanup() {
    let bench = ProxiedServer::new().await;
    for variant in [Variant::Rst, Variant::Fin] {
        for before in [true, false] {
            let s = bench.session().await;
            let made = s.create("/gone", b"", CreateMode::Ephemeral).await.unwrap();
            let at = if before {
                Match::request(OpCode::Delete)
            } else {
                Match::reply(OpCode::Delete)
            };
            let _fault = bench.proxy.on(at.clone()).then(Action::Cut(variant));
            let e = s.delete("/gone", None).await.unwrap_err();
            assert!(e.is_maybe_applied(), "{e}");
            s.delete_eventually("/gone", made.stat.czxid).await.unwrap();
            assert_eq!(s.exists("/gone").await.unwrap(), None);
            // The same of the cleanup itself.
            let made = s.create("/gone", b"", CreateMode::Ephemeral).await.unwrap();
            let _fault = bench.proxy.on(at).then(Action::Cut(variant));
            s.delete_eventually("/gone", made.stat.czxid).await.unwrap();
            assert_eq!(s.exists("/gone").await.unwrap(), None);
            s.close_timeout(LONG).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h08_a_cleanup_begun_while_suspended_leaves_nothing_in_the_resumed_session() {
    let bench = ProxiedServer::new().await;
    let s = bench.session().await;
    let made = s
        .create("/waiter", b"", CreateMode::Ephemeral)
        .await
        .unwrap();
    let mut states = s.states();
    bench.proxy.refuse();
    bench.proxy.cut_all(Variant::Rst);
    assert_eq!(states.next().await, Some(State::Suspended));
    let e = s.fail_fast().delete("/waiter", None).await.unwrap_err();
    assert!(matches!(e, Error::NotSent { .. }), "{e}");
    let cleanup = s.delete_eventually("/waiter", made.stat.czxid);
    bench.proxy.heal();
    cleanup.await.unwrap();
    assert_eq!(states.next().await, Some(State::Connected { epoch: 2 }));
    assert_eq!(s.exists("/waiter").await.unwrap(), None);
    s.close_timeout(LONG).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h18_a_late_cleanup_spares_another_node_of_the_same_name() {
    let bench = ProxiedServer::new().await;
    let s = bench.session().await;
    let first = s.create("/n", b"", CreateMode::Ephemeral).await.unwrap();
    s.delete("/n", None).await.unwrap();
    let second = s.create("/n", b"", CreateMode::Ephemeral).await.unwrap();
    s.delete_eventually("/n", first.stat.czxid).await.unwrap();
    let there = s.exists("/n").await.unwrap().unwrap();
    assert_eq!(there.czxid, second.stat.czxid);
    s.close_timeout(LONG).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h32_a_short_outage_keeps_the_session_and_its_nodes_a_long_one_ends_it_for_ever() {
    let bench = ProxiedServer::new().await;
    let s = bench.session_with(Duration::from_secs(4)).await;
    let mut states = s.states();
    let made = s.create("/e", b"", CreateMode::Ephemeral).await.unwrap();
    bench.proxy.cut_all(Variant::Rst);
    assert_eq!(states.next().await, Some(State::Suspended));
    assert_eq!(states.next().await, Some(State::Connected { epoch: 2 }));
    let there = s.exists("/e").await.unwrap().unwrap();
    assert_eq!(there.czxid, made.stat.czxid, "same session, same node");
    bench.proxy.partition();
    let mut seen = Vec::new();
    while let Some(state) = states.next().await {
        seen.push(state);
    }
    assert_eq!(seen, [State::Suspended, State::Expired]);
    assert!(!s.lease().is_valid());
    assert_eq!(s.end_reason(), Some(EndReason::ExpiredLocally));
    bench.proxy.heal();
    let e = s
        .create("/e2", b"", CreateMode::Ephemeral)
        .await
        .unwrap_err();
    assert!(e.is_session_ended(), "{e}");
    assert_eq!(s.state(), State::Expired);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h37_an_expired_session_is_never_replaced_behind_its_handles() {
    let bench = ProxiedServer::new().await;
    let s = bench.session_with(Duration::from_secs(20)).await;
    let export = s.export();
    // Another process takes it over and closes it.
    let heir = Session::resume(bench.config(LONG), &export).await.unwrap();
    assert_eq!(heir.id(), s.id());
    heir.close_timeout(LONG).await.unwrap();
    assert_eq!(s.ended().await, EndReason::ExpiredByServer);
    let e = s
        .create("/x", b"", CreateMode::Ephemeral)
        .await
        .unwrap_err();
    assert!(matches!(e, Error::NotSent { .. }), "{e}");
    let e = Session::resume(bench.config(LONG), &export)
        .await
        .unwrap_err();
    assert!(matches!(e, ConnectError::Expired { .. }), "{e}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h53_watches_of_waits_given_up_leave_the_server() {
    let bench = ProxiedServer::new().await;
    let s = bench.session().await;
    let (_, keep) = s.exists_watch("/keep").await.unwrap();
    s.create("/there", b"", CreateMode::Persistent)
        .await
        .unwrap();
    let before = inspect::watch_count(bench.server.addr()).await.unwrap();
    for i in 0..500 {
        let gone = s.exists_watch(&format!("/nobody{i}"));
        let (_, data) = s.get_data_watch("/there").await.unwrap();
        drop(s.children_watch("/there"));
        drop((gone.await.unwrap(), data));
    }
    // Behind the answers of reads given up, which the first brings in, go the removals; the second
    // comes behind those.
    s.sync("/").await.unwrap();
    s.sync("/").await.unwrap();
    assert_eq!(
        inspect::watch_count(bench.server.addr()).await.unwrap(),
        before
    );
    s.create("/keep", b"", CreateMode::Ephemeral).await.unwrap();
    assert_eq!(keep.await.unwrap().kind, EventKind::NodeCreated);
    s.close_timeout(LONG).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_survive_a_reconnect_and_report_what_was_missed() {
    let bench = ProxiedServer::new().await;
    let (s, other) = (bench.session().await, bench.witness().await);
    for path in ["/d", "/k", "/quiet"] {
        other
            .create(path, b"", CreateMode::Persistent)
            .await
            .unwrap();
    }
    let (_, data) = s.get_data_watch("/d").await.unwrap();
    let (_, child) = s.children_watch("/k").await.unwrap();
    let (_, quiet) = s.get_data_watch("/quiet").await.unwrap();
    let (_, missing) = s.exists_watch("/new").await.unwrap();
    let mut stream = s
        .watch_persistent("/d", AddWatchMode::Persistent)
        .await
        .unwrap();
    let mut states = s.states();
    bench.proxy.refuse();
    bench.proxy.cut_all(Variant::Rst);
    assert_eq!(states.next().await, Some(State::Suspended));
    other.set_data("/d", b"1", None).await.unwrap();
    other
        .create("/k/1", b"", CreateMode::Persistent)
        .await
        .unwrap();
    other
        .create("/new", b"", CreateMode::Persistent)
        .await
        .unwrap();
    bench.proxy.heal();
    assert_eq!(data.await.unwrap().kind, EventKind::NodeDataChanged);
    assert_eq!(child.await.unwrap().kind, EventKind::NodeChildrenChanged);
    assert_eq!(missing.await.unwrap().kind, EventKind::NodeCreated);
    assert_eq!(stream.next().await.unwrap(), PersistentEvent::Resync);
    s.sync("/").await.unwrap();
    other.set_data("/quiet", b"", None).await.unwrap();
    other.set_data("/d", b"2", None).await.unwrap();
    assert_eq!(quiet.await.unwrap().path, "/quiet");
    let PersistentEvent::Change(change) = stream.next().await.unwrap() else {
        panic!("a change")
    };
    assert_eq!(change.kind, EventKind::NodeDataChanged);
    s.close_timeout(LONG).await.unwrap();
    other.close_timeout(LONG).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h26_the_lease_is_renewed_while_held_and_ends_by_our_clock_before_the_server_gives_up() {
    let bench = ProxiedServer::new().await;
    for mode in [LeaseMode::Auto, LeaseMode::Strict] {
        let options = LeaseOptions {
            tick: Some(Duration::from_millis(200)),
            sync_limit: Some(20),
            mode,
            ..LeaseOptions::default()
        };
        let config = bench.config(Duration::from_secs(4)).lease(options);
        let s = Session::connect(config).await.unwrap();
        let other = bench.witness().await;
        let _hold = s.hold_lease().await.unwrap();
        s.create("/held", b"", CreateMode::Ephemeral).await.unwrap();
        let (_, gone) = other.get_data_watch("/held").await.unwrap();
        // On the clock that the lease goes by, and no earlier than the server has given up.
        let gone = tokio::spawn(async move {
            gone.await.unwrap();
            SystemClock.now()
        });
        let first = s.lease().deadline;
        assert!(s.lease().is_valid());
        // More than the session timeout passes; the lease moves along.
        within(async {
            while s.lease().deadline < first + Duration::from_secs(5) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        // Baton's server makes pings enough; elsewhere, and when asked, heartbeats go through the
        // quorum.
        let beats = bench.proxy.count(&Match::request(OpCode::Multi));
        let by_ping = mode == LeaseMode::Auto && bench.server.target() == Target::Baton;
        assert_eq!(beats == 0, by_ping, "{mode:?}: {beats} heartbeats");
        bench.proxy.clear_frames();
        bench.proxy.partition();
        let deadline = s.lease().deadline;
        within(s.lease_ended()).await;
        assert!(!s.lease().is_valid());
        // What had arrived before the partition may have moved it once more. An ended session has
        // none.
        let deadline = deadline.max(s.lease().deadline);
        let gone = within(gone).await.unwrap();
        assert!(deadline < gone, "{mode:?}: our lease ended first");
        bench.proxy.heal();
        other.close_timeout(LONG).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_cannot_be_sound_is_refused_with_the_smallest_timeout_that_can() {
    let bench = ProxiedServer::new().await;
    let options = LeaseOptions {
        tick: Some(Duration::from_secs(2)),
        mode: LeaseMode::Strict,
        ..LeaseOptions::default()
    };
    let config = bench.config(Duration::from_secs(2)).lease(options);
    let s = Session::connect(config).await.unwrap();
    let e = s.hold_lease().await.unwrap_err().to_string();
    assert!(e.contains("at least 4s"), "{e}");
    s.close_timeout(LONG).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_takes_the_ephemeral_nodes_at_once_and_so_does_the_drop_of_the_last_handle() {
    let bench = ProxiedServer::new().await;
    let other = bench.session().await;
    for by_drop in [false, true] {
        let s = bench.session_with(Duration::from_secs(60)).await;
        s.create("/mine", b"", CreateMode::Ephemeral).await.unwrap();
        let (_, watch) = other.get_data_watch("/mine").await.unwrap();
        if by_drop {
            drop(s);
        } else {
            s.close_timeout(LONG).await.unwrap();
        }
        let event = tokio::time::timeout(LONG, watch)
            .await
            .expect("well before the session timeout");
        assert_eq!(event.unwrap().kind, EventKind::NodeDeleted);
    }
    other.close_timeout(LONG).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_and_started_again_keeps_the_session() {
    let mut bench = ProxiedServer::new().await;
    let s = bench.session_with(LONG).await;
    s.create("/kept", b"", CreateMode::Ephemeral).await.unwrap();
    bench.server.kill();
    let queued = s.create("/later", b"", CreateMode::Ephemeral);
    bench.server.restart().await.unwrap();
    match queued.await {
        Ok(made) => assert_eq!(made.path, "/later"),
        Err(e) => assert!(e.is_maybe_applied(), "{e}"),
    }
    assert_eq!(
        s.exists("/kept").await.unwrap().unwrap().ephemeral_owner,
        s.id()
    );
    s.close_timeout(LONG).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_are_presented_on_every_connection() {
    let bench = ProxiedServer::new().await;
    let s = bench.session().await;
    s.add_auth("digest", b"user:secret").await.unwrap();
    let private = [Acl::creator_all()];
    s.create_with_acl("/private", b"x", CreateMode::Persistent, &private)
        .await
        .unwrap();
    let stranger = bench.session().await;
    let e = stranger.get_data("/private").await.unwrap_err();
    assert_eq!(e.code(), Some(ErrorCode::NoAuth), "{e}");
    bench.proxy.cut_all(Variant::Rst);
    assert_eq!(&s.get_data("/private").await.unwrap().data[..], b"x");
    let e = s.add_auth("nonsense", b"x").await.unwrap_err();
    assert_eq!(e.code(), Some(ErrorCode::AuthFailed), "{e}");
    assert_eq!(s.ended().await, EndReason::AuthFailed);
    assert_eq!(s.state(), State::AuthFailed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_server_list_is_named_with_the_remedy() {
    let addr = baton_testkit::free_addr().unwrap();
    let config = Config::new(&addr.to_string())
        .unwrap()
        .connect_within(Duration::from_millis(300));
    let e = Session::connect(config).await.unwrap_err().to_string();
    assert!(
        e.contains(&addr.to_string()) && e.contains("check that") && !e.contains('\n'),
        "{e}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chroot_that_does_not_exist_is_said_at_once() {
    let bench = ProxiedServer::new().await;
    let plain = bench.session().await;
    let config = bench.config(LONG).chroot("/nope/app");
    let refused = Session::connect(config).await.unwrap_err();
    let why = refused.to_string();
    assert!(matches!(refused, ConnectError::NoChroot { .. }), "{why}");
    assert!(why.contains("has no znode /nope/app"), "{why}");
    plain.close_timeout(LONG).await.unwrap();
}
