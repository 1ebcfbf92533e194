//! Transfers on disks that fail or are slow, and on threads of their own.

use std::sync::Arc;

use baton_peers::codec::SnapshotRejectReason;
use baton_proto::{Acl, Create, CreateMode, Request};
use baton_tree::{Command, Identity, Tree};
use baton_wal::testing::{Fault, FaultStorage, Loss};
use baton_wal::{Storage, Wal};

use super::pair::{
    FOLLOWER, HeldWorker, Pair, fill, incoming, install, limits, members, open, run_to_frame, save,
    save_tree, wal_options,
};
use crate::core::disk_worker::ThreadWorker;
use crate::core::transfer::{Incoming, Outgoing, SendFailure, TransferLimits};

#[test]
fn a_file_of_this_server_that_cannot_be_read_asks_for_another_snapshot() {
    let name = "snap-0000000000000020-0000000003";
    // Gone, damaged where it is opened, and damaged where only the receiver sees it.
    for at in [None, Some(20), Some(150)] {
        let (mut pair, point) = Pair::new();
        let mut content = pair.leader_disk.content(name).unwrap();
        match at {
            None => pair.leader_disk.take(name),
            Some(at) => {
                content[at] ^= 1;
                pair.leader_disk.put(name, &content);
            }
        }
        pair.begin(&point);
        pair.settle();
        let failure = pair.outcome().outcome.unwrap_err();
        assert!(matches!(failure, SendFailure::Unreadable(_)), "{failure}");
        assert!(failure.wants_fresh());
        assert_eq!(pair.chunk_bytes > 0, at == Some(150));
        assert_eq!(pair.left_behind(), [] as [&str; 0]);
        // Its disk can also fail while the file is read.
        let fresh = save(&mut pair.leader, &members(&[1, 2, 3]), 0);
        pair.begin(&fresh);
        pair.wait(limits().first_pause);
        pair.settle();
        assert_eq!(pair.outcome().outcome, Ok(()));
    }
}

#[test]
fn an_error_of_the_senders_disk_at_any_read_has_one_outcome() {
    let (mut probe, point) = Pair::new();
    let before = probe.leader_disk.operations();
    probe.begin(&point);
    probe.settle();
    let operations = probe.leader_disk.operations() - before;
    for at in 0..operations {
        let (mut pair, point) = Pair::new();
        let disk = &pair.leader_disk;
        disk.fail_at(disk.operations() + at, Fault::Error);
        pair.begin(&point);
        pair.settle();
        let failure = pair.outcome().outcome.unwrap_err();
        assert!(matches!(failure, SendFailure::Unreadable(_)), "{failure}");
        pair.begin(&point);
        pair.wait(limits().first_pause);
        pair.settle();
        assert_eq!(pair.outcome().outcome, Ok(()), "operation {at}");
    }
}

#[test]
fn a_full_or_broken_disk_refuses_the_snapshot_and_a_later_attempt_arrives() {
    let (mut probe, point) = Pair::new();
    let before = probe.follower_disk.operations();
    probe.begin(&point);
    probe.settle();
    let operations = probe.follower_disk.operations() - before;
    assert!(operations > 10);
    for at in 0..operations {
        for (fault, reason) in [
            (Fault::Full, SnapshotRejectReason::NoRoom),
            (Fault::Error, SnapshotRejectReason::DiskFailed),
            (Fault::SyncLost, SnapshotRejectReason::DiskFailed),
        ] {
            let (mut pair, point) = Pair::new();
            let disk = &pair.follower_disk;
            disk.fail_at(disk.operations() + at, fault);
            pair.begin(&point);
            pair.settle();
            let refused = SendFailure::Rejected(reason);
            assert_eq!(pair.outcome().outcome, Err(refused), "{fault:?} {at}");
            assert!(pair.left_behind().len() <= 1);
            pair.begin(&point);
            pair.wait(limits().first_pause);
            pair.settle();
            assert_eq!(pair.outcome().outcome, Ok(()), "{fault:?} {at}");
            assert!(pair.take().is_some());
        }
    }
}

#[test]
fn a_snapshot_gives_way_to_a_log_that_has_no_room() {
    let (mut pair, point) = Pair::new();
    pair.begin(&point);
    run_to_frame(&mut pair, 6);
    pair.incoming.give_way();
    assert_eq!(pair.left_behind(), [] as [&str; 0]);
    pair.settle();
    let refused = SendFailure::Rejected(SnapshotRejectReason::NoRoom);
    assert_eq!(pair.outcome().outcome, Err(refused));
    pair.incoming.give_way();
}

#[test]
fn r23_b15_a_crash_anywhere_leaves_the_log_before_or_the_snapshot() {
    let whole = |disk: &FaultStorage| {
        let (mut pair, point) = Pair::new();
        // The follower's folder is this one.
        let Ok(mut wal) = open(disk) else {
            return;
        };
        pair.incoming = incoming(wal.snapshots());
        pair.begin(&point);
        pair.settle();
        if let Some(received) = pair.take() {
            let _ = install(&mut wal, &received.info);
        }
    };
    let follower = || {
        let disk = FaultStorage::new();
        fill(&mut open(&disk).unwrap(), 5);
        disk
    };
    let probe = follower();
    let before = probe.operations();
    whole(&probe);
    let operations = probe.operations() - before;
    let mut seen = [0; 2];
    for at in 0..operations {
        for fault in [Fault::Crash, Fault::CrashAfter, Fault::TornWrite] {
            for loss in [Loss::Nothing, Loss::Everything, Loss::Random(at)] {
                let disk = follower();
                disk.fail_at(disk.operations() + at, fault);
                whole(&disk);
                let after = disk.crash(loss);
                let opened = Wal::open(Arc::new(after.clone()), wal_options());
                let (_, found) = opened.unwrap_or_else(|error| panic!("{at} {fault:?}: {error}"));
                let base = found.snapshot.map_or(0, |info| info.meta.index);
                match base {
                    0 => assert_eq!(found.entries.len(), 5, "{at} {fault:?} {loss:?}"),
                    _ => assert_eq!((base, found.commit), (20, 20), "{at} {fault:?} {loss:?}"),
                }
                seen[usize::from(base > 0)] += 1;
                let mut names = after.list().unwrap();
                names.retain(|name| name.starts_with("recv-"));
                assert_eq!(names, [] as [&str; 0]);
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

#[test]
fn r05_the_core_never_waits_for_the_disk() {
    let (mut pair, point) = Pair::new();
    let (reads, writes) = (HeldWorker::default(), HeldWorker::default());
    let follower = open(&FaultStorage::new()).unwrap();
    pair.outgoing = Outgoing::new(pair.leader.snapshots(), limits(), Box::new(reads.clone()));
    pair.incoming = Incoming::new(
        FOLLOWER,
        follower.snapshots(),
        limits(),
        Box::new(writes.clone()),
    );
    let operations = |pair: &Pair| pair.leader_disk.operations();
    let before = operations(&pair);
    pair.begin(&point);
    pair.settle();
    assert_eq!(
        operations(&pair),
        before,
        "only the worker touches the disk"
    );
    let mut jobs = 0;
    while pair.ended.is_empty() {
        pair.settle();
        assert!(reads.waiting() <= 1 && writes.waiting() <= 1);
        if reads.run_one() || writes.run_one() {
            jobs += 1;
        }
        assert!(jobs < 100);
    }
    assert_eq!(pair.outcome().outcome, Ok(()));
    assert!(pair.take().is_some());
    assert!(jobs > 10);
    // A value that takes long to drop goes to the worker, too.
    pair.incoming.dispose(Tree::new());
    assert_eq!(writes.waiting(), 1);
}

#[test]
fn a_transfer_that_is_replaced_while_a_job_runs_leaves_no_file() {
    for jobs_before in 0..12 {
        let (mut pair, point) = Pair::new();
        let writes = HeldWorker::default();
        let disk = FaultStorage::new();
        let follower = open(&disk).unwrap();
        pair.incoming = Incoming::new(
            FOLLOWER,
            follower.snapshots(),
            limits(),
            Box::new(writes.clone()),
        );
        pair.begin(&point);
        pair.settle();
        for _ in 0..jobs_before {
            writes.run_one();
            pair.settle();
        }
        fill(&mut pair.leader, 30);
        let newer = save(&mut pair.leader, &members(&[1, 2, 3]), 0);
        pair.messages.clear();
        pair.ended.clear();
        pair.begin(&newer);
        pair.settle();
        while writes.run_one() {
            pair.settle();
        }
        assert_eq!(pair.outcome().outcome, Ok(()));
        let mut names = disk.list().unwrap();
        names.retain(|name| name.starts_with("recv-"));
        assert_eq!(names, ["recv-0000000000000030-0000000003"]);
        assert_eq!(pair.take().unwrap().point, newer, "{jobs_before}");
    }
}

/// A tree whose snapshot has two and a half megabytes.
fn large_tree() -> Tree {
    let mut tree = Tree::new();
    let session_id = 0x0100_0000_0000_0001;
    let mut apply = |command: Command<'_>| {
        let nobody = Identity::anonymous();
        let outcome = tree.apply(1_000, session_id, &nobody, command, &mut ());
        outcome.result.unwrap();
    };
    apply(Command::OpenSession {
        session_id,
        password: [0; 16],
        timeout_ms: 10_000,
    });
    let data = vec![5; 64 << 10];
    for number in 0..40 {
        let path = format!("/node-{number}");
        let acl = vec![Acl::open_unsafe()];
        let create = Create::new(&path, Some(&data), acl, CreateMode::Persistent);
        let request = Request::Create(create);
        let mut body = Vec::new();
        request.encode(&mut body);
        apply(Command::Write {
            op: request.op(),
            body: &body,
        });
    }
    tree
}

#[test]
fn with_threads_of_their_own_and_the_real_sizes_a_large_snapshot_arrives_too() {
    let (mut pair, _) = Pair::new();
    fill(&mut pair.leader, 21);
    let mut tree = large_tree();
    let point = save_tree(&mut pair.leader, &members(&[1, 2, 3]), 0, &mut tree);
    let (woken, wakes) = crossbeam_channel::unbounded();
    let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
        let _ = woken.send(());
    });
    let follower = open(&FaultStorage::new()).unwrap();
    let reads = Box::new(ThreadWorker::new("reads", Arc::clone(&wake)));
    let writes = Box::new(ThreadWorker::new("writes", wake));
    let limits = TransferLimits {
        bytes_per_second: 0,
        ..TransferLimits::default()
    };
    pair.outgoing = Outgoing::new(pair.leader.snapshots(), limits.clone(), reads);
    pair.incoming = Incoming::new(FOLLOWER, follower.snapshots(), limits, writes);
    pair.begin(&point);
    loop {
        pair.settle();
        if !pair.ended.is_empty() {
            break;
        }
        wakes.recv().unwrap();
    }
    assert_eq!(pair.outcome().outcome, Ok(()));
    let received = pair.take().unwrap();
    assert!(received.info.file_bytes > 5 << 19);
    assert_eq!(received.tree.digest(), tree.digest());
}
