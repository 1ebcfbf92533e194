//! A snapshot of another server takes the place of a server's state: what its clients see, and what
//! becomes of it when the server moves meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use baton_peers::codec::Lane;
use baton_proto::{EventKind, Request, Response};

use super::{SEQUENTIAL, newest_snapshot};
use crate::reconfig::{children, make, superuser};
use crate::support::ensemble::{Ensemble, sync};
use crate::support::{Frame, PATIENCE, Wire, create, decode, get, set, watched};

/// Entries after which servers write a snapshot.
const SNAPSHOT_EVERY: u64 = 20;
/// Scenes that come to nothing, because this machine is too busy for a leader to be known all the
/// time and to be another server than the one that gets no log.
const MOST_SPOILT: usize = 5;
const WRITE_PATIENCE: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn r25_clients_of_a_server_are_sent_away_before_a_snapshot_takes_the_place_of_its_state() {
    for _ in 0..MOST_SPOILT {
        if watch_an_installation().await {
            return;
        }
    }
    panic!("the machine is too busy for this test");
}

/// A client watches a znode at a server whose log gets nothing any more, until the server receives
/// a snapshot in which the znode has changed. `false`: it did not come to that.
async fn watch_an_installation() -> bool {
    let mut ensemble = Ensemble::unstarted(3);
    ensemble.snapshot_every_entries = SNAPSHOT_EVERY;
    ensemble.audit = true;
    let relay = ensemble.relay(3).await;
    ensemble.start_every().await;
    if ensemble.leader().await == 3 {
        ensemble.stop(3).await;
        ensemble.start_all(&[3]).await;
    }
    let leader = ensemble.leader().await;
    let follower = 3 - leader;
    let mut writer = ensemble.open(follower).await;
    writer.create("/w", b"old", 0).await.unwrap();
    let mut watcher = ensemble.open(3).await;
    sync(&mut watcher).await;
    relay.lose(Some(Lane::Log));

    let (before, before_here) = (snapshots(&ensemble), newest_snapshot(&ensemble, 3));
    if !is_written(&mut writer, set("/w", b"new")).await {
        return false;
    }
    // Set now: what the server receives of the log before the relay loses it, it has applied.
    if ask(&mut watcher, &watched("/w")).await != Some(b"old".to_vec()) {
        return false;
    }
    let written = async {
        while snapshots(&ensemble)
            .iter()
            .any(|(id, newest)| *newest < before[id] + 2 * SNAPSHOT_EVERY)
        {
            if !is_written(&mut writer, create("/n-", b"", SEQUENTIAL)).await {
                return false;
            }
        }
        true
    };
    if !written.await {
        return false;
    }
    // From here on they have in no memory what is before their snapshots.
    for id in [follower, leader] {
        ensemble.stop(id).await;
        ensemble.start_all(&[id]).await;
        let mut wire = ensemble.open(id).await;
        sync(&mut wire).await;
    }
    if ask(&mut watcher, &get("/w")).await != Some(b"old".to_vec()) {
        return false;
    }
    relay.lose(None);

    let mut newest = 0;
    let disconnected = async {
        loop {
            watcher.send(&[get("/w")]).await;
            match watcher.next().await {
                None => return,
                Some(Frame::Event(..)) => panic!("its server has not applied the change"),
                Some(Frame::Reply(header, body)) => {
                    let op = get("/w").op();
                    let answer = decode(op, header, &body).unwrap();
                    assert_eq!(data(answer), b"old", "the new state shows, and no event");
                    newest = header.zxid;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
    };
    let disconnected = tokio::time::timeout(PATIENCE, disconnected).await;
    disconnected.expect("a snapshot is installed");

    // Its watches are set again, and say what it has missed.
    let mut writer = ensemble.open(follower).await;
    sync(&mut writer).await;
    let resume = async {
        loop {
            let resumed = Wire::resume(&ensemble.address(3), &watcher.session, newest).await;
            if let Some(wire) = resumed {
                return wire;
            }
        }
    };
    let resumed = tokio::time::timeout(PATIENCE, resume).await;
    let mut resumed = resumed.expect("its session goes on");
    assert!(newest_snapshot(&ensemble, 3) > before_here);
    assert_eq!(resumed.session.session_id, watcher.session.session_id);
    let again = Request::SetWatches {
        relative_zxid: newest,
        data: vec!["/w"],
        exist: vec![],
        child: vec![],
    };
    resumed.send(&[again]).await;
    let event = resumed.event().await;
    let missed = (EventKind::NodeDataChanged, "/w");
    assert_eq!((event.kind, &*event.path), missed);

    // The audit record says which changes have no lines there.
    ensemble.stop(3).await;
    let record = std::fs::read_to_string(ensemble.audit_file(3)).unwrap();
    let mut installed = record
        .lines()
        .filter(|line| line.contains("\tuser=server\toperation=snapshotInstalled\t"));
    let gap = installed.next_back().expect(&record);
    let zxid = |name: &str| {
        let value = gap.split('\t').find_map(|field| field.strip_prefix(name));
        i64::from_str_radix(value.expect(gap), 16).unwrap()
    };
    assert!(zxid("before=0x") <= newest, "{gap}");
    assert!(zxid("zxid=0x") > zxid("before=0x"), "{gap}");
    true
}

/// The relay takes the snapshot and delivers nothing of it; then the server is elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn r24_a_voter_that_moves_while_a_snapshot_is_sent_to_it_receives_one_where_it_is_then() {
    for _ in 0..MOST_SPOILT {
        if move_under_a_snapshot().await {
            return;
        }
    }
    panic!("the machine is too busy for this test");
}

/// `false`: the server did not lag so far that it would need a snapshot.
async fn move_under_a_snapshot() -> bool {
    let mut ensemble = Ensemble::unstarted(3);
    ensemble.snapshot_every_entries = SNAPSHOT_EVERY;
    let mut relay = ensemble.relay(3).await;
    ensemble.start_every().await;
    ensemble.kill(3).await;
    let before = snapshots(&ensemble);
    let mut writer = ensemble.open(1).await;
    writer.create("/q", b"", 0).await.unwrap();
    while snapshots(&ensemble)
        .iter()
        .any(|(id, newest)| *newest < before[id] + 2 * SNAPSHOT_EVERY)
    {
        if !is_written(&mut writer, create("/q/n-", b"", SEQUENTIAL)).await {
            return false;
        }
    }
    // From here on they have in no memory what is before their snapshots.
    for id in [1, 2] {
        ensemble.stop(id).await;
        ensemble.start_all(&[id]).await;
    }
    relay.lose(Some(Lane::Snapshot));
    let lagging = ensemble.start_waiting(3);
    let sent = tokio::time::timeout(PATIENCE, relay.has_lost()).await;
    sent.expect("a snapshot is sent");

    ensemble.move_away(3);
    let moved = [ensemble.name(3, "participant")];
    let mut operator = superuser(&ensemble, 1).await;
    let list = make(&mut operator, &moved, &[]).await;
    assert!(list.contains(&ensemble.peer_address(3)), "{list}");
    lagging.abort();
    drop(lagging.await);
    // What comes to its old address from here on comes to nobody.
    drop(relay);
    let here = newest_snapshot(&ensemble, 3);
    ensemble.start_all(&[3]).await;
    let mut wire = ensemble.open(3).await;
    sync(&mut wire).await;
    assert!(newest_snapshot(&ensemble, 3) > here, "by a snapshot");
    let found = children(&mut wire, "/q").await;
    assert_eq!(found, children(&mut operator, "/q").await);
    // It votes where it is now.
    ensemble.kill(2).await;
    let mut wire = ensemble.open(3).await;
    wire.create("/voted", b"", 0).await.unwrap();
    true
}

/// Whether the write is answered in time: no leader may be known, or one that gets no answers.
async fn is_written(wire: &mut Wire, request: Request<'_>) -> bool {
    wire.send(&[request]).await;
    let answer = tokio::time::timeout(WRITE_PATIENCE, wire.next()).await;
    matches!(answer, Ok(Some(Frame::Reply(header, _))) if header.err == 0)
}

/// The newest snapshots of servers 1 and 2.
fn snapshots(ensemble: &Ensemble) -> BTreeMap<u64, u64> {
    let ids = [1, 2].into_iter();
    ids.map(|id| (id, newest_snapshot(ensemble, id))).collect()
}

/// The data that a request is answered with; `None`: the connection is closed.
async fn ask(wire: &mut Wire, request: &Request<'_>) -> Option<Vec<u8>> {
    wire.send(std::slice::from_ref(request)).await;
    match wire.next().await? {
        Frame::Reply(header, body) => Some(data(decode(request.op(), header, &body).unwrap())),
        Frame::Event(..) => panic!("nothing has changed here"),
    }
}

fn data(answer: Response) -> Vec<u8> {
    match answer {
        Response::Data { data, .. } => data.unwrap_or_default().to_vec(),
        other => panic!("{other:?}"),
    }
}
