//! Disks that hang, are full, or fail: the others go on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use baton_proto::{ErrorCode, Request};
use baton_server::Storage;
use baton_wal::testing::{Fault, FaultStorage};

use crate::support::ensemble::{Ensemble, sync};
use crate::support::{PATIENCE, Wire, create, word};

/// Several of this size are more than a log has made room for.
static LARGE: [u8; 900_000] = [7; 900_000];

async fn on_fault_storages() -> (Ensemble, BTreeMap<u64, FaultStorage>) {
    let disks: BTreeMap<u64, FaultStorage> = (1..=3).map(|id| (id, FaultStorage::new())).collect();
    let storages = disks.iter().map(|(id, disk)| {
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        (*id, storage)
    });
    (Ensemble::start_on(3, storages.collect()).await, disks)
}

/// The leader, and a server that follows.
async fn leader_and_other(ensemble: &Ensemble) -> (u64, u64) {
    let leader = ensemble.leader().await;
    let other = ensemble.ids().into_iter().find(|id| *id != leader).unwrap();
    (leader, other)
}

async fn until_another_leads(ensemble: &Ensemble, than: u64) {
    let moved = async {
        while ensemble.leader().await == than {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, moved)
        .await
        .expect("leadership moves");
}

#[tokio::test(flavor = "multi_thread")]
async fn r04_leadership_moves_away_from_a_disk_that_hangs_and_r05_its_server_goes_on() {
    let (ensemble, gates) = Ensemble::start_gated(3).await;
    let (leader, other) = leader_and_other(&ensemble).await;
    let mut at_leader = ensemble.open(leader).await;
    at_leader.create("/known", b"here", 0).await.unwrap();
    let mut wire = ensemble.open(other).await;
    let shut = gates[&leader].shut();
    // The leader cannot make it durable, and does not know yet that it lacks the time for that.
    wire.create("/behind", b"", 0).await.unwrap();
    until_another_leads(&ensemble, leader).await;
    // What does not need the disk goes on at the server whose disk hangs.
    assert_eq!(at_leader.get("/known").await.unwrap(), b"here");
    let address = ensemble.address(leader);
    let follows = async {
        while !word(&address, "srvr").await.contains("Mode: follower") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let followed = tokio::time::timeout(PATIENCE, follows).await;
    followed.expect("it hears who leads");
    drop(shut);
    let mut at_leader = ensemble.open(leader).await;
    sync(&mut at_leader).await;
    assert!(at_leader.exists("/behind").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn r04_leadership_moves_away_from_a_full_disk_and_its_server_follows_once_there_is_room() {
    let (ensemble, disks) = on_fault_storages().await;
    let (leader, other) = leader_and_other(&ensemble).await;
    let mut at_leader = ensemble.open(leader).await;
    at_leader.create("/known", b"here", 0).await.unwrap();
    let mut wire = ensemble.open(other).await;
    let disk = &disks[&leader];
    disk.set_capacity(Some(disk.used_bytes()));
    for number in 0..4 {
        let path = format!("/large-{number}");
        wire.create(&path, &LARGE, 0).await.unwrap();
    }
    until_another_leads(&ensemble, leader).await;
    assert_eq!(at_leader.get("/known").await.unwrap(), b"here");
    wire.create("/behind", b"", 0).await.unwrap();
    disk.set_capacity(None);
    let mut at_leader = ensemble.open(leader).await;
    sync(&mut at_leader).await;
    assert!(at_leader.exists("/large-3").await && at_leader.exists("/behind").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn r04_a_follower_with_a_full_disk_holds_nobody_up() {
    let (ensemble, disks) = on_fault_storages().await;
    let (leader, other) = leader_and_other(&ensemble).await;
    let disk = &disks[&other];
    disk.set_capacity(Some(disk.used_bytes()));
    let mut wire = ensemble.open(leader).await;
    for number in 0..4 {
        let path = format!("/large-{number}");
        wire.create(&path, &LARGE, 0).await.unwrap();
    }
    disk.set_capacity(None);
    let mut at_other = ensemble.open(other).await;
    sync(&mut at_other).await;
    assert!(at_other.exists("/large-3").await);
}

/// A client at each server, all of which know `/known`.
async fn readers(ensemble: &Ensemble) -> Vec<Wire> {
    let mut at_each = Vec::new();
    for id in ensemble.ids() {
        at_each.push(ensemble.open(id).await);
    }
    at_each[0].create("/known", b"here", 0).await.unwrap();
    for wire in &mut at_each {
        sync(wire).await;
    }
    at_each
}

/// Nobody could be elected: a server writes down its vote first.
#[tokio::test(flavor = "multi_thread")]
async fn r04_a_leader_stays_while_a_majority_stores_nothing_and_reads_and_sessions_go_on() {
    let (ensemble, gates) = Ensemble::start_gated(3).await;
    let (leader, other) = leader_and_other(&ensemble).await;
    let mut at_each = readers(&ensemble).await;
    let mut writer = ensemble.open(leader).await;
    let term = term(&ensemble, leader).await;
    let shut = [leader, other].map(|id| gates[&id].shut());
    writer.send(&[create("/behind", b"", 0)]).await;
    // Twice as long as a disk may hang before leadership moves.
    let until = tokio::time::Instant::now() + Duration::from_secs(1);
    while tokio::time::Instant::now() < until {
        for wire in &mut at_each {
            wire.send(&[Request::Ping]).await;
            assert_eq!(wire.reply().await.0.xid, -2);
            assert_eq!(wire.get("/known").await.unwrap(), b"here");
        }
    }
    assert_eq!(self::term(&ensemble, leader).await, term);
    drop(shut);
    assert_eq!(writer.reply().await.0.error(), ErrorCode::Ok);
}

/// They store the entry that its disk lacks, and nothing after that.
#[tokio::test(flavor = "multi_thread")]
async fn r04_a_leader_stays_whose_followers_fill_up_one_entry_after_it() {
    let (ensemble, gates) = Ensemble::start_gated(3).await;
    let (leader, other) = leader_and_other(&ensemble).await;
    let mut at_each = readers(&ensemble).await;
    let mut writer = ensemble.open(other).await;
    let term = term(&ensemble, leader).await;
    let begun = tokio::time::Instant::now();
    let mut shut = vec![gates[&leader].shut()];
    writer.create("/behind", b"", 0).await.unwrap();
    let followers = ensemble.ids().into_iter().filter(|id| *id != leader);
    shut.extend(followers.map(|id| gates[&id].shut()));
    if begun.elapsed() > Duration::from_millis(400) {
        eprintln!("this machine is too slow: the leader has handed over before");
        return;
    }
    // Longer than a disk may hang before leadership moves, and than clients are kept without it.
    let until = begun + Duration::from_secs(3);
    while tokio::time::Instant::now() < until {
        for wire in &mut at_each {
            assert_eq!(wire.get("/known").await.unwrap(), b"here");
        }
    }
    for id in ensemble.ids() {
        assert_eq!(self::term(&ensemble, id).await, term);
        let known = metric(&ensemble, id, "baton_leader_id").await;
        assert_eq!(known, leader.to_string(), "at server {id}");
    }
}

async fn metric(ensemble: &Ensemble, id: u64, name: &str) -> String {
    let mntr = word(&ensemble.address(id), "mntr").await;
    let line = mntr
        .lines()
        .find_map(|line| line.strip_prefix(&format!("zk_{name}\t")));
    line.expect(name).to_owned()
}

async fn term(ensemble: &Ensemble, id: u64) -> String {
    metric(ensemble, id, "baton_term").await
}

/// Its open files take what is written, and no later start would find it.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_folder_is_removed_or_replaced_stops_and_another_leads() {
    let mut ensemble = Ensemble::start(3).await;
    for is_replaced in [false, true] {
        let (leader, other) = leader_and_other(&ensemble).await;
        let mut wire = ensemble.open(other).await;
        wire.create("/n-", b"", 2).await.unwrap();
        let (folder, kept) = (ensemble.folder(leader), tempfile::tempdir().unwrap());
        let aside = kept.path().join("aside");
        std::fs::rename(&folder, &aside).unwrap();
        if is_replaced {
            std::fs::create_dir(&folder).unwrap();
            for item in std::fs::read_dir(&aside).unwrap() {
                let item = item.unwrap();
                std::fs::copy(item.path(), folder.join(item.file_name())).unwrap();
            }
        }
        let failed = tokio::time::timeout(PATIENCE, ensemble.server(leader).failed()).await;
        let failed = failed
            .expect("a server without its folder stops")
            .to_string();
        assert!(failed.contains("was removed or replaced"), "{failed}");
        ensemble.kill(leader).await;
        assert_ne!(ensemble.leader().await, leader);
        // Put back, it is what it was.
        if is_replaced {
            std::fs::remove_dir_all(&folder).unwrap();
        }
        std::fs::rename(&aside, &folder).unwrap();
        ensemble.start_all(&[leader]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r04_a_leader_whose_disk_fails_stops_and_another_leads() {
    let (mut ensemble, disks) = on_fault_storages().await;
    let (leader, other) = leader_and_other(&ensemble).await;
    let mut wire = ensemble.open(other).await;
    wire.create("/known", b"here", 0).await.unwrap();
    let disk = &disks[&leader];
    disk.fail_at(disk.operations(), Fault::Error);
    wire.create("/behind", b"", 0).await.unwrap();
    // What others have acknowledged is stored without that, and may have met the first fault.
    let fails = async {
        loop {
            disk.fail_at(disk.operations(), Fault::Error);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let failed = tokio::time::timeout(PATIENCE, ensemble.server(leader).failed());
    tokio::select! {
        failed = failed => drop(failed.expect("a server whose disk fails stops")),
        () = fails => {}
    }
    ensemble.kill(leader).await;
    assert_ne!(ensemble.leader().await, leader);
    wire.create("/later", b"", 0).await.unwrap();
    for path in ["/known", "/behind", "/later"] {
        assert!(wire.exists(path).await, "{path}");
    }
}
