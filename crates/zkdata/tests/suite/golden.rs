//! Files that an Apache ZooKeeper 3.8.0 wrote (`cargo xtask interop --only import` makes the like):
//! a snapshot before any znode, the log of everything after it, and snapshots of the end,
//! compressed in both ways.

use baton_proto::Perms;
use baton_tree::{Identity, Tree};
use baton_zkdata::{
    Database, OwnerForm, ZkDataError, java_password, read_snapshot, replay_log, write_snapshot,
};

const FIRST: &[u8] = include_bytes!("../golden/snapshot.0");
const LOG: &[u8] = include_bytes!("../golden/log.1");
const LAST: &[u8] = include_bytes!("../golden/snapshot.23.gz");
const SNAPPY: &[u8] = include_bytes!("../golden/snapshot.23.snappy");
const OWNER: i64 = 0x0100_00f2_e396_0000;

fn first() -> Database {
    read_snapshot("snapshot.0", 0, FIRST).unwrap()
}

fn last() -> Database {
    read_snapshot("snapshot.23.gz", 0x23, LAST).unwrap()
}

fn replayed() -> Database {
    let mut database = first();
    let applied = replay_log(&mut database, "log.1", LOG).unwrap();
    assert_eq!((applied.torn_at, applied.gap), (None, None));
    database
}

fn tree(database: Database) -> Tree {
    database.into_tree(OwnerForm::Extended).unwrap().tree
}

/// Everything that is kept of each znode, sorted.
fn content(tree: &Tree) -> Vec<String> {
    let mut lines = Vec::new();
    let _ = tree.visit_znodes(|znode| {
        lines.push(format!("{znode:?}"));
        Ok::<(), ()>(())
    });
    lines.sort();
    lines.extend(tree.sessions().map(|session| format!("{session:?}")));
    lines
}

#[test]
fn the_log_leads_to_the_snapshot_that_zookeeper_wrote_after_it() {
    let database = replayed();
    database.check_digest().unwrap();
    last().check_digest().unwrap();
    let (ours, theirs) = (tree(database), tree(last()));
    assert!(ours.zxid() >= 0x23 && theirs.zxid() == 0x23);
    assert!(ours.node_count() == 25);
    assert_eq!(content(&ours), content(&theirs));
}

#[test]
fn both_compressions_hold_the_same() {
    let snappy = read_snapshot("snapshot.23.snappy", 0x23, SNAPPY).unwrap();
    assert!(snappy.check_digest().unwrap());
    assert_eq!(content(&tree(snappy)), content(&tree(last())));
}

#[test]
fn counters_times_acls_and_owners_are_kept() {
    let tree = tree(replayed());
    let (data, stat) = tree.get_data("/plain", &Identity::anonymous()).unwrap();
    assert_eq!(data, Some(&b"data4"[..]));
    assert_eq!((stat.czxid, stat.mzxid, stat.pzxid), (2, 10, 5));
    assert_eq!(
        (stat.ctime, stat.mtime),
        (1_795_277_138_603, 1_795_277_138_625)
    );
    assert_eq!((stat.version, stat.cversion, stat.num_children), (5, 3, 3));
    let (stat, acl) = tree.peek("/mixed").unwrap();
    assert_eq!((stat.aversion, acl.entries().len()), (1, 2));
    assert_eq!(acl.entries()[0].perms, Perms::READ | Perms::ADMIN);
    let anyone = Identity::anonymous();
    assert!(tree.get_data("/secret", &anyone).is_err());
    assert_eq!(tree.get_data("/plain/null", &anyone).unwrap().0, None);
    assert_eq!(
        tree.get_data("/plain/empty", &anyone).unwrap().0,
        Some(&b""[..])
    );
    assert!(tree.get_data("/never", &anyone).is_err());
    assert_eq!(
        tree.ephemerals(OWNER, "/"),
        ["/alive", "/locks/lock-0000000000", "/multi/n-0000000002"]
    );
    let session = tree.session(OWNER).unwrap();
    assert_eq!(session.password, java_password(OWNER));
    assert_eq!(session.timeout_ms, 40_000);
}

/// Eight creates under `/jobs`, two deletes: ZooKeeper's next name has the number 6.
#[test]
fn h19_sequences_go_on_where_zookeeper_stopped() {
    let tree = tree(replayed());
    let used = baton_tree::MAX_SEQUENCE + 1 - tree.sequence_headroom("/jobs").unwrap();
    assert_eq!(used, 6);
    let used = baton_tree::MAX_SEQUENCE + 1 - tree.sequence_headroom("/locks").unwrap();
    assert_eq!(used, 2);
}

/// A snapshot is taken while writes go on: what is in it already comes again.
#[test]
fn replaying_what_the_snapshot_has_already_changes_nothing() {
    let expected = content(&tree(last()));
    for zxid in 0..=0x23 {
        // The file's name says when it was begun; its content may be as new as the end.
        let mut fuzzy = read_snapshot("snapshot.gz", zxid, LAST).unwrap();
        replay_log(&mut fuzzy, "log.1", LOG).unwrap();
        fuzzy.check_digest().unwrap();
        let again = content(&tree(fuzzy));
        assert_eq!(again, expected, "from 0x{zxid:x}");
    }
}

#[test]
fn what_is_written_is_read_back_the_same() {
    let tree = tree(replayed());
    let mut out = Vec::new();
    let exported = write_snapshot(&tree, &mut out).unwrap();
    assert_eq!(exported.znodes as usize, tree.node_count());
    assert_eq!((exported.ttls, exported.sessions_of_baton), (1, 0));
    let again = read_snapshot("snapshot", tree.zxid(), &*out).unwrap();
    let again = again.into_tree(OwnerForm::Extended).unwrap().tree;
    assert_eq!(content(&again), content(&tree));
    assert_eq!(again.digest(), tree.digest());
}

#[test]
fn a_log_cut_anywhere_keeps_what_is_whole_and_says_where_it_was_cut() {
    let mut before = 0;
    for length in 16..LOG.len() {
        let mut database = first();
        let applied = replay_log(&mut database, "log.1", &LOG[..length]).unwrap();
        assert!(applied.transactions >= before, "{length}");
        before = applied.transactions;
        database.check_digest().unwrap();
        if let Some(at) = applied.torn_at {
            assert!((at as usize) < length);
        }
    }
}

#[test]
fn a_snapshot_cut_anywhere_is_unfinished_or_refused() {
    let mut whole = Vec::new();
    write_snapshot(&tree(last()), &mut whole).unwrap();
    for (name, bytes) in [
        ("snapshot.0", FIRST),
        ("snapshot.23", &whole),
        ("snapshot.23.gz", LAST),
        ("snapshot.23.snappy", SNAPPY),
    ] {
        let mut accepted = 0;
        for length in 0..bytes.len() {
            if let Ok(database) = read_snapshot(name, 0x23, &bytes[..length]) {
                // Cut at a seal, it is what a version of ZooKeeper without digests writes.
                assert!(
                    name == "snapshot.0" && database.znode_count() == 4,
                    "{name} {length}"
                );
                accepted += 1;
            }
        }
        assert!(accepted <= 1, "{name}");
    }
}

/// `bytes` with one bit of one byte flipped, for each byte but those of the number without meaning.
fn flipped(bytes: &[u8]) -> impl Iterator<Item = (usize, Vec<u8>)> {
    let places = (0..bytes.len()).filter(|at| !(8..16).contains(at));
    places.map(|at| {
        let mut damaged = bytes.to_vec();
        damaged[at] ^= 1 << (at * 5 % 8);
        (at, damaged)
    })
}

#[test]
fn no_flipped_bit_goes_unseen() {
    let mut whole = Vec::new();
    write_snapshot(&tree(last()), &mut whole).unwrap();
    for (name, bytes) in [
        ("snapshot.0", FIRST),
        ("snapshot.23", &whole),
        ("snapshot.23.snappy", SNAPPY),
    ] {
        for (at, damaged) in flipped(bytes) {
            match read_snapshot(name, 0x23, &*damaged) {
                Err(error) => assert!(error.to_string().contains(name), "{error}"),
                // A copy of a stretch may begin at another one with the same bytes.
                Ok(same) => assert!(
                    name.ends_with("snappy") && content(&tree(same)) == content(&tree(last())),
                    "byte {at}"
                ),
            }
        }
    }
    for (at, damaged) in flipped(LOG) {
        match replay_log(&mut first(), "log.1", &*damaged) {
            Err(error) => assert!(error.to_string().contains("log.1"), "{error}"),
            // Without its end mark the last transaction was never finished.
            Ok(applied) => assert!(applied.torn_at.is_some(), "byte {at}"),
        }
    }
}

/// ZooKeeper makes its logs longer ahead of what it writes, so a crash leaves zeros behind a torn
/// transaction.
#[test]
fn a_transaction_cut_off_before_zeros_is_left_out() {
    let mut at = 16;
    let mut frames = Vec::new();
    while at + 12 < LOG.len() && length_at(at) > 0 {
        frames.push(at);
        at += 12 + length_at(at) + 1;
    }
    let last = *frames.last().unwrap();
    for length in last + 12..at {
        let mut log = LOG[..length].to_vec();
        log.resize(LOG.len() + 4096, 0);
        let applied = replay_log(&mut first(), "log.1", &*log).unwrap();
        assert_eq!(applied.torn_at, Some(last as u64), "{length}");
        assert_eq!(applied.transactions as usize, frames.len() - 1);
    }
    // Not so when others come after it.
    let mut log = LOG.to_vec();
    log[last - 1] = 0;
    let refused = replay_log(&mut first(), "log.1", &*log).unwrap_err();
    let says = format!("log.1 at byte {}: the transaction does not end", last - 1);
    assert!(refused.to_string().starts_with(&says), "{refused}");
}

#[test]
fn a_snapshot_newer_than_its_logs_is_refused() {
    // Begun at 0x10, but ZooKeeper's digest in it is of 0x23, where the log does not come to.
    let mut database = read_snapshot("snapshot.10.gz", 0x10, LAST).unwrap();
    let refused = database.check_digest().unwrap_err();
    assert!(
        matches!(
            refused,
            ZkDataError::LogMissing {
                zxid: 0x23,
                last: 0x10,
                ..
            }
        ),
        "{refused}"
    );
    assert!(refused.to_string().contains("dataLogDir"), "{refused}");
    replay_log(&mut database, "log.1", LOG).unwrap();
    database.check_digest().unwrap();
}

#[test]
fn a_missing_transaction_shows_in_the_digest_and_as_a_gap() {
    let mut database = first();
    // The second transaction, `create /plain`, is taken out.
    let second = 16 + 12 + length_at(16) + 1;
    let third = second + 12 + length_at(second) + 1;
    let mut log = LOG[..second].to_vec();
    log.extend_from_slice(&LOG[third..]);
    let applied = replay_log(&mut database, "log.1", &*log).unwrap();
    assert_eq!(applied.gap, Some((1, 3)));
    let refused = database.check_digest().unwrap_err();
    assert!(matches!(refused, ZkDataError::Digest { .. }), "{refused}");
    assert!(!refused.to_string().contains('\n'));
    database.ignore_digests();
    database.check_digest().unwrap();
}

fn length_at(frame: usize) -> usize {
    u32::from_be_bytes(LOG[frame + 8..frame + 12].try_into().unwrap()) as usize
}

#[test]
fn other_files_are_refused_by_name() {
    for (name, bytes) in [
        ("snapshot.1", LOG),
        ("snapshot.1", &[7; 40][..]),
        ("snapshot.1.gz", FIRST),
        ("snapshot.1.snappy", FIRST),
        ("snapshot.1", SNAPPY),
    ] {
        let refused = read_snapshot(name, 1, bytes).unwrap_err().to_string();
        assert!(
            refused.contains(name) && !refused.contains('\n'),
            "{refused}"
        );
    }
    let refused = replay_log(&mut first(), "log.9", FIRST)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("log.9"), "{refused}");
    // A log that was made ahead and never written to.
    assert_eq!(
        replay_log(&mut first(), "log.9", &[0; 99][..])
            .unwrap()
            .transactions,
        0
    );
}
