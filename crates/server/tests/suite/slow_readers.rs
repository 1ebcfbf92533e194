//! Clients that do not read: what waits for all of them together is bounded, clients that read go
//! on, and nobody who stays connected misses a reply or an event.

use baton_proto::{ErrorCode, EventKind, Request};
use baton_server::{Server, StartError};
use tempfile::TempDir;

use crate::support::{Frame, PATIENCE, Wire, get, in_memory, set, word};

/// The smallest bound that is allowed with the default for one connection.
const IN_ALL: usize = 16 << 20;
/// Bytes that the threads of the sockets may add before they see that there is too much: a share
/// and an answer each.
const ADDED: usize = 8 << 20;

/// A server on a unix socket, whose buffers in the kernel are small, and what connects to it.
async fn serve(each: usize, in_all: usize) -> (Server, String, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let server = in_memory()
        .unix_socket(&path)
        .with(|options| {
            options.max_outbound_bytes = each;
            options.max_outbound_bytes_in_all = in_all;
        })
        .start()
        .await
        .unwrap();
    (server, format!("unix:{}", path.display()), folder)
}

async fn metric(server: &Server, name: &str) -> usize {
    let mntr = word(&server.connect_string(), "mntr").await;
    let line = mntr
        .lines()
        .find_map(|line| line.strip_prefix(&format!("zk_{name}\t")));
    line.unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_ask_for_much_and_read_nothing_stay_below_one_bound_and_who_reads_goes_on() {
    const READERS: usize = 40;
    let (server, to, _folder) = serve(1 << 20, IN_ALL).await;
    let mut good = Wire::open(&to).await;
    good.create("/big", &vec![7; 900_000], 0).await.unwrap();
    good.create("/small", b"0", 0).await.unwrap();
    let mut slow = Vec::new();
    let mut most = 0;
    for place in 0..READERS {
        let mut wire = Wire::open(&to).await;
        wire.send(&vec![get("/big"); 4]).await;
        slow.push(wire);
        let data = place.to_string();
        good.send(&[set("/small", data.as_bytes()), get("/small"), get("/big")])
            .await;
        let replies = [good.reply().await, good.reply().await, good.reply().await];
        assert!(
            replies
                .iter()
                .all(|(header, _)| header.error() == ErrorCode::Ok)
        );
        assert!(replies[1].1.starts_with(&[0, 0, 0, data.len() as u8]));
        assert_eq!(replies[2].1[4..900_004], vec![7; 900_000]);
        most = most.max(metric(&server, "baton_outbound_bytes").await);
        assert!(most <= IN_ALL + ADDED, "{most} bytes wait");
    }
    assert!(most > IN_ALL / 2, "only {most} bytes ever waited");
    // In a press each may have one answer waiting: forty are more than the bound allows.
    let closed = metric(&server, "baton_slow_readers_closed_in_all").await;
    assert!(closed > 0 && closed < READERS, "{closed}");
    assert_eq!(metric(&server, "baton_outbound_bytes_limit").await, IN_ALL);
    // Those that were let live have everything that they asked for.
    let mut whole = 0;
    for mut wire in slow {
        let mut replies = 0;
        while replies < 4
            && let Some(frame) = wire.next().await
        {
            let Frame::Reply(header, body) = frame else {
                panic!("no event was asked for");
            };
            assert_eq!((header.xid, body.len()), (1 + replies, 900_000 + 4 + 68));
            replies += 1;
        }
        whole += usize::from(replies == 4);
    }
    assert_eq!(whole, READERS - closed);
    drop(good);
    let gone = async { while metric(&server, "baton_outbound_bytes").await > 0 {} };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_for_many_who_do_not_read_stay_below_the_bound_and_a_reader_gets_each() {
    const WATCHERS: usize = 30;
    const EACH: usize = 100_000;
    const CHANGES: usize = 4000;
    let (server, to, _folder) = serve(EACH, 16 * EACH).await;
    let mut good = Wire::open(&to).await;
    let watch = Request::AddWatch { path: "/", mode: 1 };
    good.call(watch.clone()).await.unwrap();
    let mut slow = Vec::new();
    for _ in 0..WATCHERS {
        let mut wire = Wire::open(&to).await;
        wire.call(watch.clone()).await.unwrap();
        slow.push(wire);
    }
    let path = format!("/{}", "n".repeat(400));
    let mut writer = Wire::open(&to).await;
    writer.create(&path, b"", 0).await.unwrap();
    let mut last_zxid = 0;
    assert!(matches!(good.next().await, Some(Frame::Event(..))));
    for _ in 0..CHANGES / 50 {
        writer.send(&vec![set(&path, b"x"); 50]).await;
        for _ in 0..50 {
            assert_eq!(writer.reply().await.0.error(), ErrorCode::Ok);
            let Some(Frame::Event(zxid, event)) = good.next().await else {
                panic!("who reads stays connected");
            };
            assert_eq!(
                (event.kind, event.path),
                (EventKind::NodeDataChanged, path.clone())
            );
            assert!(last_zxid == 0 || zxid == last_zxid + 1, "one was left out");
            last_zxid = zxid;
        }
        let waiting = metric(&server, "baton_outbound_bytes").await;
        // Up to 16 KiB of each connection are on their way, not counted.
        let bound = 16 * EACH + WATCHERS * (16 << 10) + 50 * 500 * WATCHERS;
        assert!(waiting <= bound, "{waiting} bytes wait");
    }
    assert!(metric(&server, "baton_slow_readers_closed_in_all").await > 0);
    // A client that was closed finds its session alive, and its watches set again show what it
    // missed.
    let again = Wire::resume(&to, &slow[0].session, 0).await.unwrap();
    assert!(!again.session.is_refused());
}

#[tokio::test]
async fn a_bound_for_all_that_one_connection_can_reach_alone_is_refused() {
    for in_all in [0, 1, IN_ALL - 1] {
        let refused = in_memory()
            .with(|options| options.max_outbound_bytes_in_all = in_all)
            .start()
            .await
            .unwrap_err();
        assert!(matches!(refused, StartError::Setting { .. }));
        let text = refused.to_string();
        assert!(text.contains("max_outbound_bytes_in_all"), "{text}");
        assert!(text.contains("16 times max_outbound_bytes"), "{text}");
    }
    let smallest = in_memory().with(|options| options.max_outbound_bytes_in_all = IN_ALL);
    smallest.start().await.unwrap();
}
