//! Watches: what fires which, what survives a reconnect, what is taken off the server, and what is
//! bounded.

use std::collections::HashSet;

use baton_client::{AddWatchMode, EventKind, OpCode, PersistentEvent, Session, Watch};
use baton_proto::{ErrorCode, Request, Response, WatcherKind};

use crate::support::{FakeServers, Peer, SESSION, settle, stat};

async fn data_watch(s: &Session, peer: &mut Peer, path: &str) -> Watch {
    let pending = s.get_data_watch(path);
    let asked = peer.expect(OpCode::GetData).await;
    assert!(matches!(
        asked.request(),
        Request::GetData { watch: true, .. }
    ));
    peer.no_data(&asked, stat(1, 0)).await;
    pending.await.unwrap().1
}

async fn removal(peer: &mut Peer) -> (String, i32) {
    let asked = peer.expect(OpCode::RemoveWatches).await;
    let Request::RemoveWatches { path, kind } = asked.request() else {
        unreachable!()
    };
    let removed = (path.to_owned(), kind);
    peer.ok(&asked, None).await;
    removed
}

#[tokio::test(start_paused = true)]
async fn h53_only_the_last_local_watch_takes_the_servers_along() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let first = data_watch(&s, &mut peer, "/n").await;
    let second = data_watch(&s, &mut peer, "/n").await;
    drop(first);
    let marker = s.exists("/marker");
    let asked = peer.expect(OpCode::Exists).await;
    peer.refuse(&asked, ErrorCode::NoNode).await;
    marker.await.unwrap();
    drop(second);
    assert_eq!(
        removal(&mut peer).await,
        ("/n".to_owned(), WatcherKind::Data.code())
    );
    // A watch that has fired is gone from the server by itself.
    let fired = data_watch(&s, &mut peer, "/n").await;
    peer.event(EventKind::NodeDeleted, "/n").await;
    assert_eq!(fired.await.unwrap().kind, EventKind::NodeDeleted);
    let marker = s.exists("/marker");
    let asked = peer.expect(OpCode::Exists).await;
    peer.refuse(&asked, ErrorCode::NoNode).await;
    marker.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn h53_a_watch_dropped_while_another_is_being_set_does_not_take_that_one_along() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let old = data_watch(&s, &mut peer, "/n").await;
    let setting = s.get_data_watch("/n");
    let asked = peer.expect(OpCode::GetData).await;
    drop(old);
    peer.no_data(&asked, stat(1, 0)).await;
    let (_, watch) = setting.await.unwrap();
    settle().await;
    peer.event(EventKind::NodeDataChanged, "/n").await;
    assert_eq!(watch.await.unwrap().kind, EventKind::NodeDataChanged);
    // The same, but the second one fails: now nothing holds the first one's watch.
    let old = data_watch(&s, &mut peer, "/m").await;
    let setting = s.get_data_watch("/m");
    let asked = peer.expect(OpCode::GetData).await;
    drop(old);
    peer.refuse(&asked, ErrorCode::NoAuth).await;
    setting.await.unwrap_err();
    assert_eq!(
        removal(&mut peer).await,
        ("/m".to_owned(), WatcherKind::Data.code())
    );
    // And a watch whose future was dropped before the answer.
    drop(s.get_data_watch("/k"));
    let asked = peer.expect(OpCode::GetData).await;
    peer.no_data(&asked, stat(1, 0)).await;
    assert_eq!(
        removal(&mut peer).await,
        ("/k".to_owned(), WatcherKind::Data.code())
    );
}

#[tokio::test(start_paused = true)]
async fn h53_a_server_that_cannot_remove_watches_is_asked_once() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    drop(data_watch(&s, &mut peer, "/n").await);
    let asked = peer.expect(OpCode::RemoveWatches).await;
    peer.refuse(&asked, ErrorCode::Unimplemented).await;
    drop(peer);
    let mut peer = world.accept(SESSION).await;
    drop(data_watch(&s, &mut peer, "/n").await);
    let marker = s.exists("/marker");
    let asked = peer.expect(OpCode::Exists).await;
    peer.refuse(&asked, ErrorCode::NoNode).await;
    marker.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn h31_an_event_of_an_earlier_watch_does_not_reach_one_whose_read_is_not_answered() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let old = data_watch(&s, &mut peer, "/n").await;
    let setting = s.get_data_watch("/n");
    let asked = peer.expect(OpCode::GetData).await;
    peer.event(EventKind::NodeDataChanged, "/n").await;
    peer.no_data(&asked, stat(1, 0)).await;
    old.await.unwrap();
    let (_, mut new) = setting.await.unwrap();
    settle().await;
    assert_eq!(new.try_event(), None, "its read saw that change");
    peer.event(EventKind::NodeDeleted, "/n").await;
    settle().await;
    // A look takes nothing away.
    for _ in 0..2 {
        let event = new.try_event().unwrap().unwrap();
        assert_eq!(event.kind, EventKind::NodeDeleted);
    }
    assert_eq!(new.await.unwrap().kind, EventKind::NodeDeleted);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_a_server_refuses_to_a_session_that_moved_stands_in_no_later_ones_way() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let refused = s.watch_persistent("/n", AddWatchMode::Persistent);
    let asked = peer.expect(OpCode::AddWatch).await;
    peer.refuse(&asked, ErrorCode::SessionMoved).await;
    assert!(refused.await.unwrap_err().reason().is_some());
    let mut peer = world.accept(SESSION).await;
    let watching = s.get_data_watch("/n");
    let asked = peer.expect(OpCode::GetData).await;
    let path = "/n";
    assert_eq!(asked.request(), Request::GetData { path, watch: true });
    drop(watching);
}

#[tokio::test(start_paused = true)]
async fn h74_reconnecting_sets_every_watch_again_in_pieces_before_what_is_queued() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let name = |i: usize| format!("/{i:0>100}");
    let mut watches = Vec::new();
    for i in 0..3000 {
        watches.push(data_watch(&s, &mut peer, &name(i)).await);
    }
    let missing = s.exists_watch("/missing");
    let asked = peer.expect(OpCode::Exists).await;
    peer.refuse(&asked, ErrorCode::NoNode).await;
    let _missing = missing.await.unwrap();
    drop(watches.split_off(2900));
    settle().await;
    world.transport.refuse(true);
    drop(peer);
    settle().await;
    let queued = s.exists("/queued");
    world.transport.refuse(false);
    let mut peer = world.accept(SESSION).await;
    let (mut data, mut exist, mut pieces) = (HashSet::new(), Vec::new(), 0);
    let last = loop {
        let asked = peer.next().await.unwrap();
        let Request::SetWatches {
            relative_zxid,
            data: d,
            exist: e,
            child,
        } = asked.request()
        else {
            break asked;
        };
        assert_eq!((relative_zxid, asked.xid), (100, -8));
        assert!(asked.body.len() < 128 * 1024 + 64 && child.is_empty());
        pieces += 1;
        for path in d {
            assert!(data.insert(path.to_owned()));
        }
        exist.extend(e.into_iter().map(str::to_owned));
        peer.ok(&asked, None).await;
    };
    assert_eq!(data, (0..2900).map(name).collect());
    assert_eq!(exist, ["/missing"]);
    assert!(pieces >= 3);
    assert_eq!(last.path(), "/queued");
    peer.refuse(&last, ErrorCode::NoNode).await;
    queued.await.unwrap();
    // An event that the re-arming uncovers.
    peer.event(EventKind::NodeDeleted, &name(7)).await;
    assert_eq!(watches.swap_remove(7).await.unwrap().path, name(7));
}

/// The zxid from which the client asks for what its data watches missed, and their paths.
async fn rearmed(peer: &mut Peer) -> (i64, Vec<String>) {
    let asked = peer.expect(OpCode::SetWatches).await;
    let Request::SetWatches {
        relative_zxid,
        data,
        ..
    } = asked.request()
    else {
        unreachable!()
    };
    let paths = data.into_iter().map(str::to_owned).collect();
    peer.ok(&asked, None).await;
    (relative_zxid, paths)
}

#[tokio::test(start_paused = true)]
async fn h38_a_break_between_two_events_of_one_change_loses_neither() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let first = data_watch(&s, &mut peer, "/a").await;
    let second = data_watch(&s, &mut peer, "/b").await;
    // A multi deletes both nodes; the connection breaks between their events.
    peer.event_of(105, EventKind::NodeDeleted, "/a").await;
    assert_eq!(first.await.unwrap().zxid, Some(105));
    drop(peer);
    let mut peer = world.accept(SESSION).await;
    assert_eq!(peer.last_zxid_seen, 100);
    // A server reports the changes after this zxid only.
    assert_eq!(rearmed(&mut peer).await, (100, vec!["/b".to_owned()]));
    peer.event_of(105, EventKind::NodeDeleted, "/b").await;
    assert_eq!(second.await.unwrap().kind, EventKind::NodeDeleted);
}

#[tokio::test(start_paused = true)]
async fn h38_only_the_answers_to_operations_move_the_zxid_from_which_watches_are_set_again() {
    let mut world = FakeServers::new();
    let config = world.config().auth("digest", b"user:secret");
    let connect = tokio::spawn(Session::connect(config));
    let mut peer = world.accept(SESSION).await;
    // Baton's answers to pings overtake events, and none of these is an answer in the order of
    // operations.
    peer.zxid = 150;
    let asked = peer.any().await.unwrap();
    assert_eq!(asked.op, OpCode::Auth);
    peer.ok(&asked, None).await;
    peer.zxid = 100;
    peer.answer_next_probe().await;
    let s = connect.await.unwrap().unwrap();
    assert_eq!(s.last_zxid(), 100, "credentials");
    let watch = data_watch(&s, &mut peer, "/n").await;
    peer.zxid = 150;
    let ping = peer.ping().await;
    peer.ok(&ping, None).await;
    settle().await;
    assert_eq!(s.last_zxid(), 100, "a ping");
    // An answer from before, as a server that is behind may give it.
    peer.zxid = 90;
    let read = s.exists("/x");
    let asked = peer.expect(OpCode::Exists).await;
    peer.refuse(&asked, ErrorCode::NoNode).await;
    read.await.unwrap();
    assert_eq!(s.last_zxid(), 100);
    for _ in 0..2 {
        drop(peer);
        peer = world.accept(SESSION).await;
        peer.zxid = 150;
        let asked = peer.any().await.unwrap();
        assert_eq!(asked.op, OpCode::Auth);
        peer.ok(&asked, None).await;
        // The second time: this request's answer says nothing about what follows it.
        assert_eq!(rearmed(&mut peer).await, (100, vec!["/n".to_owned()]));
        settle().await;
    }
    peer.event(EventKind::NodeDeleted, "/n").await;
    assert_eq!(watch.await.unwrap().kind, EventKind::NodeDeleted);
}

async fn stream(
    s: &Session,
    peer: &mut Peer,
    path: &str,
    mode: AddWatchMode,
) -> baton_client::PersistentWatch {
    let pending = s.watch_persistent(path, mode);
    let asked = peer.expect(OpCode::AddWatch).await;
    peer.ok(&asked, Some(Response::WatchAdded)).await;
    pending.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_persistent_watch_reports_gaps_and_its_memory_is_bounded() {
    let mut world = FakeServers::new();
    let config = world.config().watch_capacity(8);
    let (s, mut peer) = world.session_with(config).await;
    let mut tree = stream(&s, &mut peer, "/t", AddWatchMode::PersistentRecursive).await;
    let mut node = stream(&s, &mut peer, "/t", AddWatchMode::Persistent).await;
    peer.event(EventKind::NodeChildrenChanged, "/t").await;
    peer.event(EventKind::NodeCreated, "/t/a/b").await;
    let PersistentEvent::Change(e) = tree.next().await.unwrap() else {
        panic!("a change")
    };
    assert_eq!(
        (e.kind, e.path.as_str(), e.zxid),
        (EventKind::NodeCreated, "/t/a/b", None)
    );
    let PersistentEvent::Change(e) = node.next().await.unwrap() else {
        panic!("a change")
    };
    assert_eq!(e.kind, EventKind::NodeChildrenChanged);
    for _ in 0..9 {
        peer.event(EventKind::NodeDataChanged, "/t/x").await;
    }
    settle().await;
    assert_eq!(
        tree.next().await.unwrap(),
        PersistentEvent::Resync,
        "nine do not fit, so none is kept"
    );
    assert_eq!(tree.try_next(), None);
    drop(peer);
    let mut peer = world.accept(SESSION).await;
    let asked = peer.expect(OpCode::SetWatches2).await;
    let Request::SetWatches2 {
        persistent,
        persistent_recursive,
        ..
    } = asked.request()
    else {
        unreachable!()
    };
    assert_eq!((persistent, persistent_recursive), (vec!["/t"], vec!["/t"]));
    peer.ok(&asked, None).await;
    assert_eq!(tree.next().await.unwrap(), PersistentEvent::Resync);
    assert_eq!(node.next().await.unwrap(), PersistentEvent::Resync);
    drop(tree);
    drop(node);
    assert_eq!(
        removal(&mut peer).await,
        ("/t".to_owned(), WatcherKind::Any.code())
    );
}

#[tokio::test(start_paused = true)]
async fn a_one_shot_watch_beside_a_persistent_one_leaves_the_servers_watch_alone() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let mut node = stream(&s, &mut peer, "/n", AddWatchMode::Persistent).await;
    let reading = s.get_data_watch("/n");
    let asked = peer.expect(OpCode::GetData).await;
    assert!(
        matches!(asked.request(), Request::GetData { watch: false, .. }),
        "it would replace the persistent one"
    );
    peer.no_data(&asked, stat(1, 0)).await;
    let (_, watch) = reading.await.unwrap();
    peer.event(EventKind::NodeDataChanged, "/n").await;
    assert_eq!(watch.await.unwrap().kind, EventKind::NodeDataChanged);
    assert!(matches!(
        node.next().await.unwrap(),
        PersistentEvent::Change(_)
    ));
    // A one-shot watch that outlives it still has the server's persistent watch behind it.
    let reading = s.get_data_watch("/n");
    let asked = peer.expect(OpCode::GetData).await;
    peer.no_data(&asked, stat(1, 0)).await;
    let (_, watch) = reading.await.unwrap();
    drop(node);
    settle().await;
    peer.event(EventKind::NodeDeleted, "/n").await;
    assert_eq!(watch.await.unwrap().kind, EventKind::NodeDeleted);
}

#[tokio::test(start_paused = true)]
async fn a_one_shot_watch_that_waits_for_a_connection_leaves_the_servers_watch_alone_too() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let _node = stream(&s, &mut peer, "/n", AddWatchMode::Persistent).await;
    drop(peer);
    settle().await;
    let beside = s.get_data_watch("/n");
    let alone = s.get_data_watch("/m");
    let mut peer = world.accept(SESSION).await;
    let asked = peer.expect(OpCode::SetWatches2).await;
    peer.ok(&asked, None).await;
    for (path, watch) in [("/n", false), ("/m", true)] {
        let asked = peer.expect(OpCode::GetData).await;
        assert_eq!(asked.request(), Request::GetData { path, watch });
        peer.no_data(&asked, stat(1, 0)).await;
    }
    let (_, beside) = beside.await.unwrap();
    peer.event(EventKind::NodeDataChanged, "/n").await;
    assert_eq!(beside.await.unwrap().kind, EventKind::NodeDataChanged);
    drop(alone.await.unwrap());
}

/// The next server has not been asked to watch for it.
#[tokio::test(start_paused = true)]
async fn h74_a_persistent_watch_that_was_dropped_covers_no_read_on_the_next_connection() {
    let mut world = FakeServers::new();
    let (s, mut peer) = world.session().await;
    let dropped = stream(&s, &mut peer, "/n", AddWatchMode::Persistent).await;
    let reading = s.get_data_watch("/n");
    let asked = peer.expect(OpCode::GetData).await;
    peer.no_data(&asked, stat(1, 0)).await;
    let _kept = reading.await.unwrap();
    drop(dropped);
    settle().await;
    drop(peer);
    let mut peer = world.accept(SESSION).await;
    assert_eq!(rearmed(&mut peer).await.1, ["/n"]);
    drop(data_watch(&s, &mut peer, "/n").await);
}
