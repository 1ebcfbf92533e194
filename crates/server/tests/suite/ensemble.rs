//! Ensembles: what one server acknowledges the others have, and it outlives any one of them.

mod disks;
mod installation;
mod load;
mod measurements;
mod peer_tls;
mod read_only;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use baton_proto::{
    Acl, AuthPacket, ConnectRequest, Create, CreateMode, ErrorCode, EventKind, Perms, Request,
    Response, xid,
};
use baton_tree::digest_id;

use crate::support::ensemble::{Ensemble, sync};
use crate::support::{PATIENCE, Wire, create, no_session, set, watched};

const EPHEMERAL: i32 = 1;
const SEQUENTIAL: i32 = 2;

async fn children(wire: &mut Wire, path: &str) -> BTreeSet<String> {
    let list = Request::GetChildren { path, watch: false };
    let Response::Children(found) = wire.call(list).await.unwrap() else {
        panic!("the children of {path}");
    };
    found.into_iter().map(|name| name.to_string()).collect()
}

/// Every server shows these znodes below the root, behind a sync.
async fn assert_all_have(ensemble: &Ensemble, acknowledged: &BTreeSet<String>) {
    for id in ensemble.ids() {
        let mut wire = ensemble.open(id).await;
        sync(&mut wire).await;
        let found = children(&mut wire, "/").await;
        assert!(acknowledged.is_subset(&found), "server {id}: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_at_any_server_is_seen_at_every_other_after_a_sync() {
    let ensemble = Ensemble::start(3).await;
    let mut wires = Vec::new();
    for id in ensemble.ids() {
        wires.push(ensemble.open(id).await);
    }
    wires[0].create("/q", b"", 0).await.unwrap();
    for round in 0..30_usize {
        let at = round % 3;
        wires[at].create("/q/n-", b"", SEQUENTIAL).await.unwrap();
        let reader = &mut wires[(round + 1) % 3];
        sync(reader).await;
        assert_eq!(children(reader, "/q").await.len(), round + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_one_connection_are_answered_in_order_reads_between_writes_too() {
    let ensemble = Ensemble::start(3).await;
    let leader = ensemble.leader().await;
    let follower = ensemble.ids().into_iter().find(|id| *id != leader).unwrap();
    for id in [leader, follower] {
        let mut wire = ensemble.open(id).await;
        let path = format!("/at-{id}");
        wire.create(&path, b"", 0).await.unwrap();
        let values: Vec<String> = (0..200).map(|round| round.to_string()).collect();
        let mut requests = Vec::new();
        for value in &values {
            requests.push(set(&path, value.as_bytes()));
            requests.push(Request::GetData {
                path: &path,
                watch: false,
            });
        }
        let first = wire.send(&requests).await;
        let mut newest = 0;
        for (place, request) in requests.iter().enumerate() {
            let (header, body) = wire.reply().await;
            assert_eq!(header.xid, first + i32::try_from(place).unwrap());
            assert!(header.zxid >= newest, "zxids never fall");
            newest = header.zxid;
            if let Response::Data { data, .. } =
                crate::support::decode(request.op(), header, &body).unwrap()
            {
                let expected = values[place / 2].as_bytes();
                assert_eq!(
                    data.unwrap_or_default(),
                    expected,
                    "a read sees its own write"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r38_a_watch_at_a_follower_fires_before_the_state_shows() {
    let ensemble = Ensemble::start(3).await;
    let leader = ensemble.leader().await;
    let follower = ensemble.ids().into_iter().find(|id| *id != leader).unwrap();
    let mut writer = ensemble.open(leader).await;
    writer.create("/w", b"0", 0).await.unwrap();
    let mut watcher = ensemble.open(follower).await;
    sync(&mut watcher).await;
    watcher.call(watched("/w")).await.unwrap();
    writer.call(set("/w", b"1")).await.unwrap();
    let event = watcher.event().await;
    assert_eq!(
        (event.kind, &*event.path),
        (EventKind::NodeDataChanged, "/w")
    );
    assert_eq!(watcher.get("/w").await.unwrap(), b"1");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_others_go_on_when_any_one_server_is_killed_and_nothing_acknowledged_is_lost() {
    let mut ensemble = Ensemble::start(3).await;
    let mut acknowledged = BTreeSet::new();
    for round in 0..6 {
        let leader = ensemble.leader().await;
        let killed = match round % 2 {
            0 => leader,
            _ => ensemble.ids().into_iter().find(|id| *id != leader).unwrap(),
        };
        let name = format!("/before-{round}");
        let mut doomed = ensemble.open(killed).await;
        doomed.create(&name, b"", 0).await.unwrap();
        acknowledged.insert(name[1..].to_owned());
        ensemble.kill(killed).await;
        let left = ensemble.ids()[0];
        let mut wire = ensemble.open(left).await;
        let name = format!("/after-{round}");
        wire.create(&name, b"", 0).await.unwrap();
        acknowledged.insert(name[1..].to_owned());
        ensemble.start_all(&[killed]).await;
        assert_all_have(&ensemble, &acknowledged).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r27_writes_under_way_when_the_leader_dies_are_applied_once() {
    let mut ensemble = Ensemble::start(3).await;
    for round in 0..4 {
        let leader = ensemble.leader().await;
        let follower = ensemble.ids().into_iter().find(|id| *id != leader).unwrap();
        let mut wire = ensemble.open(follower).await;
        let parent = format!("/round-{round}");
        wire.create(&parent, b"", 0).await.unwrap();
        let path = format!("{parent}/n-");
        let requests: Vec<Request<'_>> = (0..100).map(|_| create(&path, b"", SEQUENTIAL)).collect();
        wire.send(&requests).await;
        // The first answer says that the others are on their way.
        wire.reply().await;
        ensemble.kill(leader).await;
        for _ in 1..requests.len() {
            let (header, _) = wire.reply().await;
            assert_eq!(header.error(), ErrorCode::Ok);
        }
        sync(&mut wire).await;
        assert_eq!(children(&mut wire, &parent).await.len(), requests.len());
        ensemble.start_all(&[leader]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_identity_is_known_to_each_server_and_to_the_next_leader() {
    let mut ensemble = Ensemble::start(3).await;
    for round in 0..3 {
        let leader = ensemble.leader().await;
        let follower = ensemble.ids().into_iter().find(|id| *id != leader).unwrap();
        let mut wire = ensemble.open(follower).await;
        let mut own = Vec::new();
        for n in 0..40 {
            let auth = format!("user{n}:{round}");
            wire.send(&[Request::Auth(AuthPacket {
                kind: 0,
                scheme: "digest",
                auth: Some(auth.as_bytes()),
            })])
            .await;
            assert_eq!(wire.reply().await.0.error(), ErrorCode::Ok);
            own = auth.into_bytes();
        }
        // Only the name that was claimed last may do anything.
        let path = format!("/own-{round}");
        let acl = vec![Acl::new(Perms::ALL, "digest", digest_id(&own))];
        let mode = CreateMode::Persistent;
        let create = Request::Create(Create::new(&path, None, acl, mode));
        wire.call(create).await.unwrap();
        wire.send(&vec![set(&path, b"x"); 100]).await;
        wire.reply().await;
        ensemble.kill(leader).await;
        for _ in 1..100 {
            assert_eq!(wire.reply().await.0.error(), ErrorCode::Ok);
        }
        wire.call(set(&path, b"y")).await.unwrap();
        ensemble.start_all(&[leader]).await;
        for id in ensemble.ids() {
            let mut other = ensemble.open(id).await;
            sync(&mut other).await;
            let refused = other.call(set(&path, b"z")).await;
            assert_eq!(
                refused,
                Err(ErrorCode::NoAuth),
                "round {round}, server {id}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r29_a_session_that_moves_takes_its_ephemerals_and_its_old_connection_ends() {
    let ensemble = Ensemble::start(3).await;
    let [one, two, three] = ensemble.ids()[..] else {
        panic!("three servers");
    };
    let mut first = ensemble.open(one).await;
    first.create("/mine", b"", EPHEMERAL).await.unwrap();
    let session = first.session;
    let moved = Wire::resume(&ensemble.address(two), &session, 0).await;
    let mut moved = moved.unwrap();
    assert_eq!(moved.session.session_id, session.session_id);
    assert!(first.is_closed().await, "its session is elsewhere");
    let mut other = ensemble.open(three).await;
    sync(&mut other).await;
    assert!(other.exists("/mine").await);
    moved.call(Request::CloseSession).await.unwrap();
    sync(&mut other).await;
    assert!(!other.exists("/mine").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_there_when_all_have_been_stopped_and_when_all_have_been_killed() {
    let mut ensemble = Ensemble::start(3).await;
    let ids = ensemble.ids();
    let mut wire = ensemble.open(ids[0]).await;
    wire.create("/kept", b"1", 0).await.unwrap();
    for id in &ids {
        ensemble.stop(*id).await;
    }
    ensemble.start_all(&ids).await;
    let mut wire = ensemble.open(ids[1]).await;
    assert_eq!(wire.get("/kept").await.unwrap(), b"1");
    wire.call(set("/kept", b"2")).await.unwrap();
    for id in &ids {
        ensemble.kill(*id).await;
    }
    ensemble.start_all(&ids).await;
    let mut wire = ensemble.open(ids[2]).await;
    sync(&mut wire).await;
    assert_eq!(wire.get("/kept").await.unwrap(), b"2");
}

#[tokio::test(flavor = "multi_thread")]
async fn r08_without_a_majority_nothing_is_acknowledged_and_clients_are_sent_away() {
    let mut ensemble = Ensemble::start(3).await;
    let leader = ensemble.leader().await;
    let others: Vec<u64> = ensemble
        .ids()
        .into_iter()
        .filter(|id| *id != leader)
        .collect();
    let mut wire = ensemble.open(leader).await;
    wire.create("/known", b"", 0).await.unwrap();
    for id in &others {
        ensemble.kill(*id).await;
    }
    wire.send(&[create("/unknown", b"", 0)]).await;
    assert!(wire.is_closed().await, "without an answer");
    ensemble.start_all(&others).await;
    let mut wire = ensemble.open(leader).await;
    assert!(wire.exists("/known").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn r33_a_ping_is_answered_at_each_server_and_at_none_without_a_majority() {
    let mut ensemble = Ensemble::start(3).await;
    let leader = ensemble.leader().await;
    let mut wires = BTreeMap::new();
    for id in ensemble.ids() {
        let mut wire = ensemble.open(id).await;
        for _ in 0..2 {
            wire.send(&[Request::Ping]).await;
        }
        for _ in 0..2 {
            let (header, _) = wire.reply().await;
            assert_eq!((header.xid, header.err), (xid::PING, 0));
        }
        let shown = wire.get("/zookeeper/baton").await.unwrap();
        let shown = String::from_utf8(shown).unwrap();
        assert!(shown.contains("\"lease\":\"ping\""), "{shown}");
        wires.insert(id, wire);
    }
    let left = wires.remove(&leader).unwrap();
    for id in wires.into_keys() {
        ensemble.kill(id).await;
    }
    let mut wire = left;
    wire.send(&[Request::Ping]).await;
    assert!(wire.is_closed().await, "without an answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn r37_a_client_that_only_reads_at_a_follower_lives_while_silent_ones_end() {
    let ensemble = Ensemble::start(3).await;
    let leader = ensemble.leader().await;
    let follower = ensemble.ids().into_iter().find(|id| *id != leader).unwrap();
    let request = ConnectRequest {
        timeout_ms: 1000,
        ..no_session()
    };
    let open = async || {
        let opened = Wire::open_with(&ensemble.address(follower), &request).await;
        opened.expect("there is a leader")
    };
    let mut observer = ensemble.open(leader).await;
    let mut reader = open().await;
    reader.create("/reads", b"", EPHEMERAL).await.unwrap();
    // Each waits for its timeout, one after the other.
    for _ in 0..2 {
        let mut silent = open().await;
        silent.create("/silent", b"", EPHEMERAL).await.unwrap();
        sync(&mut observer).await;
        let expiry = async {
            while observer.exists("/silent").await {
                assert!(reader.exists("/reads").await);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let expired = tokio::time::timeout(PATIENCE, expiry).await;
        expired.expect("a silent session ends");
    }
    sync(&mut observer).await;
    assert!(observer.exists("/reads").await);
}

/// The index of the newest snapshot in a server's folder; 0 without one.
fn newest_snapshot(ensemble: &Ensemble, id: u64) -> u64 {
    let names = std::fs::read_dir(ensemble.folder(id)).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let index = |name: String| {
        let index = name.strip_prefix("snap-")?.split('-').next()?.to_owned();
        index.parse().ok()
    };
    names.filter_map(index).max().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn r24_a_server_that_missed_more_than_the_others_remember_receives_a_snapshot() {
    let mut ensemble = Ensemble::start(3).await;
    ensemble.snapshot_every_entries = 20;
    let ids = ensemble.ids();
    let away = ids[2];
    ensemble.kill(away).await;
    for id in &ids[..2] {
        ensemble.stop(*id).await;
    }
    // They take snapshots often from here on.
    ensemble.start_all(&ids[..2]).await;
    let mut wire = ensemble.open(ids[0]).await;
    wire.create("/q", b"", 0).await.unwrap();
    for _ in 0..100 {
        wire.create("/q/n-", b"", SEQUENTIAL).await.unwrap();
    }
    let written = async {
        while ids[..2]
            .iter()
            .any(|id| newest_snapshot(&ensemble, *id) < 40)
        {
            wire.create("/q/n-", b"", SEQUENTIAL).await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, written)
        .await
        .expect("snapshots are written");
    let found = children(&mut wire, "/q").await;
    // What is before their snapshots, they have in no memory from here on.
    for id in &ids[..2] {
        ensemble.stop(*id).await;
    }
    ensemble.start_all(&ids[..2]).await;
    let before = newest_snapshot(&ensemble, away);
    ensemble.start_all(&[away]).await;
    let mut wire = ensemble.open(away).await;
    sync(&mut wire).await;
    assert_eq!(children(&mut wire, "/q").await, found);
    assert!(newest_snapshot(&ensemble, away) >= 40 && before < 40);
    // It goes on as any other, also after a restart.
    wire.create("/q/n-", b"", SEQUENTIAL).await.unwrap();
    let found = children(&mut wire, "/q").await;
    ensemble.kill(away).await;
    ensemble.start_all(&[away]).await;
    let mut wire = ensemble.open(away).await;
    sync(&mut wire).await;
    assert_eq!(children(&mut wire, "/q").await, found);
}
