//! One client that writes much: others are not held up, and leadership stays.

use baton_proto::{ErrorCode, Request, xid};

use crate::support::Wire;
use crate::support::ensemble::Ensemble;
use crate::support::{set, word};

static LARGE: [u8; 1_000_000] = [7; 1_000_000];

/// The zxid of a write of this connection.
async fn write(wire: &mut Wire, path: &str) -> i64 {
    wire.send(&[set(path, b"")]).await;
    let (header, _) = wire.reply().await;
    assert_eq!(header.error(), ErrorCode::Ok);
    header.zxid
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bystanders_write_is_not_behind_the_queue_of_a_bulk_writer_at_any_server() {
    const WRITES: usize = 48;
    let ensemble = Ensemble::start(3).await;
    let leader = ensemble.leader().await;
    let ids = ensemble.ids();
    let other = ids.iter().copied().find(|id| *id != leader).unwrap();
    let mut setup = ensemble.open(leader).await;
    for path in ["/bulk", "/mine"] {
        setup.create(path, b"", 0).await.unwrap();
    }
    for (bulk_at, mine_at) in [(leader, leader), (other, other), (other, leader)] {
        let mut bulk = ensemble.open(bulk_at).await;
        let mut mine = ensemble.open(mine_at).await;
        let first = write(&mut mine, "/mine").await;
        let sending = tokio::spawn(async move {
            bulk.send(&vec![set("/bulk", &LARGE); WRITES]).await;
            let mut last = 0;
            for _ in 0..WRITES {
                last = bulk.reply().await.0.zxid;
            }
            last
        });
        let mut zxids = vec![first];
        while !sending.is_finished() {
            zxids.push(write(&mut mine, "/mine").await);
        }
        let last = sending.await.unwrap();
        zxids.retain(|zxid| *zxid < last);
        let between = zxids.windows(2).map(|pair| pair[1] - pair[0] - 1);
        let most = between.max().unwrap_or(WRITES as i64);
        // Two that are on their way when it is handed in, those that are begun while it goes to the
        // leader, and while its answer comes back.
        assert!(most <= 8, "{most} large writes went before a small one");
    }
    assert_eq!(ensemble.leader().await, leader);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_stays_while_the_disks_of_all_followers_are_busy() {
    let (ensemble, gates) = Ensemble::start_gated(3).await;
    let leader = ensemble.leader().await;
    let (mut wire, mut writer) = (ensemble.open(leader).await, ensemble.open(leader).await);
    wire.create("/bulk", b"", 0).await.unwrap();
    let followers = gates.iter().filter(|(id, _)| **id != leader);
    let shut: Vec<_> = followers.map(|(_, gate)| (gate, gate.shut())).collect();
    writer.send(&[set("/bulk", &LARGE)]).await;
    for (gate, _) in &shut {
        gate.until_reached();
    }
    // Each answer stands for a majority that has heard of the leader since the ping.
    for _ in 0..100 {
        wire.send(&[Request::Ping]).await;
        assert_eq!(wire.reply().await.0.xid, xid::PING);
    }
    let shown = word(&ensemble.address(leader), "srvr").await;
    assert!(shown.contains("Mode: leader"), "{shown}");
    drop(shut);
    let (header, _) = writer.reply().await;
    assert_eq!(header.error(), ErrorCode::Ok);
}
