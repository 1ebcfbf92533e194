//! Read-only mode: one server is left of three.

use std::time::Duration;

use baton_proto::{
    Acl, AuthPacket, ConnectRequest, ErrorCode, EventKind, MultiOp, Request, Response, xid,
};

use super::{EPHEMERAL, children};
use crate::support::ensemble::{Ensemble, sync};
use crate::support::{Frame, PATIENCE, Wire, create, no_session, set, watched, word};

/// Scenes that may come to nothing on a busy machine.
const MOST_SPOILT: usize = 5;

/// A client that is content with reads.
fn reader() -> ConnectRequest<'static> {
    ConnectRequest {
        read_only: Some(true),
        ..no_session()
    }
}

async fn ensemble() -> Ensemble {
    let mut ensemble = Ensemble::unstarted(3);
    ensemble.read_only_mode = true;
    ensemble.start_every().await;
    ensemble
}

/// Ends all servers but this one.
async fn kill_others(ensemble: &mut Ensemble, left: u64) -> Vec<u64> {
    let others = ensemble.ids().into_iter().filter(|id| *id != left);
    let others: Vec<u64> = others.collect();
    for id in &others {
        ensemble.kill(*id).await;
    }
    others
}

/// The answer to this request once the server has begun (`true`) or ended read-only mode.
async fn opened(ensemble: &Ensemble, id: u64, request: &ConnectRequest<'_>, mode: bool) -> Wire {
    let opened = async {
        loop {
            let wire = Wire::open_with(&ensemble.address(id), request).await;
            if let Some(wire) = wire
                && wire.session.read_only == Some(mode)
            {
                return wire;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let opened = tokio::time::timeout(PATIENCE, opened).await;
    opened.expect("the mode changes")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_allows_it_reads_at_the_server_that_is_left_and_writes_later() {
    let mut ensemble = ensemble().await;
    let leader = ensemble.leader().await;
    let follower = ensemble.ids().into_iter().find(|id| *id != leader).unwrap();
    for left in [follower, leader] {
        let mut wire = ensemble.open(left).await;
        let path = format!("/at-{left}");
        wire.create(&path, b"here", 0).await.unwrap();
        let others = kill_others(&mut ensemble, left).await;

        let mut reads = opened(&ensemble, left, &reader(), true).await;
        let id = reads.session.session_id;
        assert_eq!(id >> 56, -1, "no session of the log has such an id");
        assert!(wire.is_closed().await, "a session that can write");
        assert_eq!(reads.get(&path).await.unwrap(), b"here");
        assert!(children(&mut reads, "/").await.contains(&path[1..]));
        reads.call(Request::GetAcl { path: &path }).await.unwrap();
        reads.send(&[Request::Ping]).await;
        let (pong, _) = reads.reply().await;
        assert_eq!((pong.xid, pong.error()), (xid::PING, ErrorCode::Ok));
        // As at ZooKeeper's servers: it says who reads, and changes nothing on the tree.
        let credentials = AuthPacket {
            kind: 0,
            scheme: "digest",
            auth: Some(b"me:mine"),
        };
        reads.call(Request::Auth(credentials)).await.unwrap();
        // No answer counts for a lease.
        let shown = reads.get("/zookeeper/baton").await.unwrap();
        let shown = String::from_utf8(shown).unwrap();
        assert!(shown.ends_with("\"ping_lease\":false}"), "{shown}");
        let refused = reads.create("/more", b"", 0).await;
        assert_eq!(refused.unwrap_err(), ErrorCode::NotReadOnly);

        let address = ensemble.address(left);
        let without = Wire::open_with(&address, &no_session()).await;
        assert!(without.is_none(), "a client that does not ask for the mode");
        let of_old = ConnectRequest {
            read_only: None,
            ..no_session()
        };
        assert!(Wire::open_with(&address, &of_old).await.is_none());
        assert_eq!(word(&address, "isro").await, "ro");
        let shown = word(&address, "srvr").await;
        assert!(shown.contains("\nMode: read-only\n"), "{shown}");
        assert!(
            word(&address, "mntr")
                .await
                .contains("zk_baton_is_read_only\t1\n")
        );

        ensemble.start_all(&others).await;
        assert!(reads.is_closed().await, "it can have a session that writes");
        let mut writes = opened(&ensemble, left, &reader(), false).await;
        writes.call(set(&path, b"there")).await.unwrap();
        assert_eq!(word(&address, "isro").await, "rw");
        // The session of read-only mode is none elsewhere.
        let old = ConnectRequest {
            session_id: id,
            password: &reads.session.password,
            ..reader()
        };
        let refused = opened(&ensemble, left, &old, false).await;
        assert_eq!(refused.session.session_id, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_keeps_its_id_in_read_only_mode_and_goes_on_after_it() {
    let mut ensemble = ensemble().await;
    let left = ensemble.leader().await;
    let mut wire = ensemble.open(left).await;
    wire.create("/mine", b"", EPHEMERAL).await.unwrap();
    let session = wire.session;
    let others = kill_others(&mut ensemble, left).await;
    let resume = ConnectRequest {
        session_id: session.session_id,
        password: &session.password,
        ..reader()
    };
    let mut reads = opened(&ensemble, left, &resume, true).await;
    assert_eq!(reads.session.session_id, session.session_id);
    assert_eq!(reads.session.password, session.password);
    assert!(reads.exists("/mine").await);
    let address = ensemble.address(left);
    let stranger = ConnectRequest {
        password: &[0; 16],
        ..resume.clone()
    };
    let mut stranger = Wire::open_with(&address, &stranger).await.unwrap();
    assert_eq!(stranger.session.session_id, 0, "the password is wrong");
    assert!(stranger.is_closed().await);
    // The end of the connection is not that of the session.
    reads.call(Request::CloseSession).await.unwrap();
    assert!(reads.is_closed().await);
    // A server that is behind its client, or does not know the session, cannot say that it ended.
    let unknown = ConnectRequest {
        session_id: session.session_id + 1,
        ..resume.clone()
    };
    let unknown = Wire::open_with(&address, &unknown).await.unwrap();
    assert_eq!(unknown.session.session_id, session.session_id + 1);

    ensemble.start_all(&others).await;
    let mut writes = opened(&ensemble, left, &resume, false).await;
    assert_eq!(writes.session.session_id, session.session_id);
    sync(&mut writes).await;
    assert!(writes.exists("/mine").await);
    writes.call(Request::CloseSession).await.unwrap();
    let mut other = ensemble.open(others[0]).await;
    sync(&mut other).await;
    assert!(!other.exists("/mine").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_read_only_mode_writes_by_no_request() {
    let mut ensemble = ensemble().await;
    let left = ensemble.ids()[0];
    let mut wire = ensemble.open(left).await;
    wire.create("/kept", b"", 0).await.unwrap();
    let known = children(&mut wire, "/").await;
    let others = kill_others(&mut ensemble, left).await;
    let mut reads = opened(&ensemble, left, &reader(), true).await;
    let large = vec![7; 100_000];
    let part = || {
        vec![MultiOp::Delete {
            path: "/kept",
            version: -1,
        }]
    };
    let writes = || {
        vec![
            create("/more", b"", 0),
            create("/more", b"", EPHEMERAL),
            set("/kept", &large),
            Request::Delete {
                path: "/kept",
                version: -1,
            },
            Request::SetAcl {
                path: "/kept",
                acl: Some(vec![Acl::open_unsafe()]),
                version: -1,
            },
            Request::Multi(part()),
            Request::Multi(vec![]),
            Request::Sync { path: "/" },
        ]
    };
    let requests = writes();
    let first = reads.send(&requests).await;
    for place in 0..requests.len() {
        let (header, body) = reads.reply().await;
        assert_eq!(header.xid, first + i32::try_from(place).unwrap());
        assert_eq!(header.error(), ErrorCode::NotReadOnly, "{place}");
        assert!(body.is_empty());
    }
    // They are also read ahead of the answer to the handshake, and while the mode ends.
    let mut early = Wire::silent(&ensemble.address(left)).await;
    let mut bytes = Vec::new();
    baton_proto::frame::write_connect_request(&mut bytes, &reader());
    for request in writes() {
        baton_proto::frame::write_request(&mut bytes, 1, &request);
    }
    early.send_bytes(&bytes).await;
    early.next_bytes().await.expect("its session opens");
    for _ in writes() {
        assert_eq!(early.reply().await.0.error(), ErrorCode::NotReadOnly);
    }
    let mut bytes = Vec::new();
    baton_proto::frame::write_request(&mut bytes, 1, &create("/more", b"", 0));
    let until_the_end = async {
        while reads.try_send_bytes(&bytes).await.is_ok()
            && let Some(frame) = reads.next().await
        {
            let Frame::Reply(header, _) = frame else {
                panic!("{frame:?}");
            };
            assert_eq!(header.error(), ErrorCode::NotReadOnly);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::join!(until_the_end, ensemble.start_all(&others));
    assert!(early.is_closed().await);
    let mut wire = ensemble.open(left).await;
    sync(&mut wire).await;
    assert_eq!(children(&mut wire, "/").await, known);
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_of_read_only_mode_say_what_was_missed_before_it_and_after_it() {
    let mut ensemble = ensemble().await;
    let left = ensemble.ids()[0];
    let mut wire = ensemble.open(left).await;
    wire.create("/w", b"0", 0).await.unwrap();
    let (seen, _) = {
        wire.send(&[watched("/w")]).await;
        wire.reply().await
    };
    wire.send(&[set("/w", b"1")]).await;
    assert_eq!(wire.event().await.kind, EventKind::NodeDataChanged);
    assert_eq!(wire.reply().await.0.error(), ErrorCode::Ok);
    let others = kill_others(&mut ensemble, left).await;
    let again = |relative_zxid| Request::SetWatches {
        relative_zxid,
        data: vec!["/w"],
        exist: vec!["/later"],
        child: vec![],
    };
    let request = ConnectRequest {
        last_zxid_seen: seen.zxid,
        ..reader()
    };
    let mut reads = opened(&ensemble, left, &request, true).await;
    reads.send(&[again(seen.zxid)]).await;
    assert_eq!(reads.event().await.kind, EventKind::NodeDataChanged);
    assert_eq!(reads.reply().await.0.error(), ErrorCode::Ok);
    // Nothing changes in this mode, so these do not fire in it.
    let (seen, _) = {
        reads.send(&[watched("/w")]).await;
        reads.reply().await
    };
    ensemble.start_all(&others).await;
    let mut writer = ensemble.open(others[0]).await;
    writer.call(set("/w", b"2")).await.unwrap();
    writer.create("/later", b"", 0).await.unwrap();
    // Whatever is applied here after the mode, its clients are not there any more.
    assert!(reads.is_closed().await, "and no event before that");
    let request = ConnectRequest {
        last_zxid_seen: seen.zxid,
        ..reader()
    };
    let mut writes = opened(&ensemble, left, &request, false).await;
    sync(&mut writes).await;
    writes.send(&[again(seen.zxid)]).await;
    for expected in [
        (EventKind::NodeDataChanged, "/w"),
        (EventKind::NodeCreated, "/later"),
    ] {
        let event = writes.event().await;
        assert_eq!((event.kind, &*event.path), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r31_a_server_that_starts_without_the_others_shows_what_was_committed_and_no_more() {
    for _ in 0..MOST_SPOILT {
        if start_alone_with_an_uncommitted_write().await {
            return;
        }
    }
    panic!("the machine is too busy for this test");
}

/// `false`: the write has not come into the log, because the server had stopped leading before.
async fn start_alone_with_an_uncommitted_write() -> bool {
    let mut ensemble = ensemble().await;
    let left = ensemble.leader().await;
    let mut wire = ensemble.open(left).await;
    wire.create("/committed", b"", 0).await.unwrap();
    let others = kill_others(&mut ensemble, left).await;
    // For this server's log, and no other.
    wire.send(&[create("/uncommitted", b"", 0)]).await;
    let mut reads = opened(&ensemble, left, &reader(), true).await;
    assert!(reads.exists("/committed").await);
    assert!(!reads.exists("/uncommitted").await);
    let zxid = ensemble.server(left).last_zxid();
    ensemble.kill(left).await;
    let is_in_the_log = std::fs::read_dir(ensemble.folder(left))
        .unwrap()
        .any(|file| {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            let path = b"/uncommitted";
            bytes.windows(path.len()).any(|window| window == path)
        });
    if !is_in_the_log {
        return false;
    }
    ensemble.start_all(&[left]).await;
    let mut reads = opened(&ensemble, left, &reader(), true).await;
    assert!(reads.exists("/committed").await);
    assert!(!reads.exists("/uncommitted").await);
    let ahead = ConnectRequest {
        last_zxid_seen: zxid + 1,
        ..reader()
    };
    let address = ensemble.address(left);
    let refused = Wire::open_with(&address, &ahead).await;
    assert!(refused.is_none(), "it would see time go back");
    ensemble.start_all(&others).await;
    assert!(reads.is_closed().await);
    let mut wire = ensemble.open(left).await;
    assert!(wire.exists("/committed").await);
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_setting_a_server_without_a_leader_serves_nobody() {
    let mut ensemble = Ensemble::start(3).await;
    let left = ensemble.ids()[0];
    kill_others(&mut ensemble, left).await;
    let address = ensemble.address(left);
    for _ in 0..2 {
        assert!(Wire::open_with(&address, &reader()).await.is_none());
    }
    assert_eq!(word(&address, "isro").await, "null");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_session_of_read_only_mode_ends_and_one_that_pings_does_not() {
    let mut ensemble = ensemble().await;
    let left = ensemble.ids()[0];
    kill_others(&mut ensemble, left).await;
    let short = ConnectRequest {
        timeout_ms: 1000,
        ..reader()
    };
    let mut silent = opened(&ensemble, left, &short, true).await;
    let mut lively = opened(&ensemble, left, &short, true).await;
    assert_eq!(silent.session.timeout_ms, 1000);
    let ended = async {
        loop {
            lively.send(&[Request::Ping]).await;
            assert_eq!(lively.reply().await.0.xid, xid::PING);
            let closed = tokio::time::timeout(Duration::from_millis(50), silent.next_bytes());
            if let Ok(closed) = closed.await {
                assert!(closed.is_none());
                return;
            }
        }
    };
    let ended = tokio::time::timeout(PATIENCE, ended).await;
    ended.expect("a silent session ends");
    assert!(matches!(
        lively
            .call(Request::Exists {
                path: "/",
                watch: false
            })
            .await,
        Ok(Response::Stat(_))
    ));
}
