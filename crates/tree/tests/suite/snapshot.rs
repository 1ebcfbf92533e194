//! Snapshots: exactly the state at one zxid, whatever is written while they are taken; and nothing
//! but a whole snapshot is ever restored.

use baton_proto::{Acl, CreateMode, Perms};
use baton_tree::{MAX_CHUNK_BYTES, RestoreError, SnapshotBusy, Tree, Znode};
use proptest::prelude::*;

use crate::common::program::{Machine, ProgramLine, level, program};
use crate::common::{Driver, assembled, drain, dump, restore, znode};

fn whole(tree: &mut Tree) -> Vec<Vec<u8>> {
    tree.begin_snapshot().unwrap();
    drain(tree, MAX_CHUNK_BYTES)
}

fn run(machine: &mut Machine, lines: &[ProgramLine]) {
    for line in lines {
        machine.take(line);
    }
}

proptest! {
    #![proptest_config(crate::common::cases(300))]

    #[test]
    fn a_snapshot_taken_during_writes_is_the_state_at_its_beginning(
        level in level(),
        before in program(60),
        during in program(60),
        slice_bytes in 1..200_usize,
        writes_per_slice in 0..8_usize,
    ) {
        let mut machine = Machine::new(level);
        run(&mut machine, &before);
        let mut twin = Machine::new(level);
        run(&mut twin, &before);

        machine.tree.begin_snapshot().unwrap();
        let mut chunks = Vec::new();
        let mut lines = during.iter();
        loop {
            for line in lines.by_ref().take(writes_per_slice) {
                machine.take(line);
            }
            match machine.tree.snapshot_slice(slice_bytes) {
                Some(chunk) => chunks.push(chunk),
                None => break,
            }
        }
        let restored = restore(&chunks).unwrap();
        prop_assert_eq!(dump(&restored), dump(&twin.tree));

        // Anyone who starts from the snapshot and applies the rest is where the others are.
        let applied = during.len() - lines.len();
        twin.tree = restored;
        run(&mut twin, &during[..applied]);
        prop_assert_eq!(dump(&twin.tree), dump(&machine.tree));
    }

    #[test]
    fn a_snapshot_is_the_same_as_a_second_one_of_its_restoration(
        level in level(), lines in program(80),
    ) {
        let mut machine = Machine::new(level);
        run(&mut machine, &lines);
        let mut once = restore(&whole(&mut machine.tree)).unwrap();
        let twice = restore(&whole(&mut once)).unwrap();
        prop_assert_eq!(dump(&twice), dump(&machine.tree));
    }

    #[test]
    fn a_snapshot_that_was_cut_anywhere_is_refused(
        level in level(), lines in program(30), cut in any::<prop::sample::Index>(),
    ) {
        let mut machine = Machine::new(level);
        run(&mut machine, &lines);
        let chunks = whole(&mut machine.tree);
        let total: usize = chunks.iter().map(Vec::len).sum();
        let mut left = cut.index(total);
        let mut cut_chunks = Vec::new();
        for chunk in &chunks {
            let take = left.min(chunk.len());
            cut_chunks.push(chunk[..take].to_vec());
            left -= take;
            if left == 0 {
                break;
            }
        }
        prop_assert!(restore(&cut_chunks).is_err());
    }

    #[test]
    fn no_bytes_make_a_restore_panic_or_lie(
        level in level(),
        lines in program(30),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut machine = Machine::new(level);
        run(&mut machine, &lines);
        let mut chunks = whole(&mut machine.tree);
        for (index, mask) in flips {
            let total: usize = chunks.iter().map(Vec::len).sum();
            let mut at = index.index(total);
            for chunk in &mut chunks {
                if at < chunk.len() {
                    chunk[at] ^= mask;
                    break;
                }
                at -= chunk.len();
            }
        }
        if let Ok(tree) = restore(&chunks) {
            prop_assert_eq!(tree.digest(), machine.tree.digest());
        }
    }
}

fn big(driver: &mut Driver, count: usize) {
    driver.create("/many", CreateMode::Persistent).unwrap();
    for number in 0..count {
        let acl = Acl::new(Perms::ALL, "digest", format!("user{}:x", number % 50));
        let acl = vec![acl, Acl::open_unsafe()];
        let data = vec![number as u8; number % 300];
        driver
            .create_with(
                "/many/n",
                Some(&data),
                acl,
                CreateMode::PersistentSequential,
            )
            .unwrap();
    }
}

#[test]
fn slices_are_small_however_large_the_tree() {
    let mut driver = Driver::new();
    big(&mut driver, 5_000);
    driver.tree.begin_snapshot().unwrap();
    let chunks = drain(&mut driver.tree, 4096);
    assert!(chunks.len() > 100);
    for chunk in &chunks {
        assert!(chunk.len() < 4096 + 400, "{} bytes", chunk.len());
    }
    assert_eq!(dump(&restore(&chunks).unwrap()), dump(&driver.tree));
}

#[test]
fn deleting_everything_during_a_snapshot_loses_nothing_of_it() {
    let mut driver = Driver::new();
    big(&mut driver, 3_000);
    let before = dump(&driver.tree);
    driver.tree.begin_snapshot().unwrap();
    let mut chunks = vec![driver.tree.snapshot_slice(1).unwrap()];
    for name in driver.children("/many") {
        driver.delete(&format!("/many/{name}"), -1).unwrap();
    }
    big_again(&mut driver);
    chunks.extend(drain(&mut driver.tree, MAX_CHUNK_BYTES));
    assert_eq!(dump(&restore(&chunks).unwrap()), before);
}

fn big_again(driver: &mut Driver) {
    for _ in 0..3_000 {
        driver
            .create("/many/again", CreateMode::EphemeralSequential)
            .unwrap();
    }
}

#[test]
fn one_snapshot_at_a_time_and_an_abandoned_one_leaves_no_trace() {
    let mut driver = Driver::new();
    big(&mut driver, 100);
    driver.tree.begin_snapshot().unwrap();
    assert_eq!(driver.tree.begin_snapshot(), Err(SnapshotBusy));
    driver.tree.snapshot_slice(64).unwrap();
    driver.tree.abandon_snapshot();
    assert_eq!(driver.tree.snapshot_slice(64), None);
    let chunks = whole(&mut driver.tree);
    assert_eq!(dump(&restore(&chunks).unwrap()), dump(&driver.tree));
}

/// A writer may mark its end with a chunk of no bytes.
#[test]
fn an_empty_chunk_changes_nothing() {
    let mut driver = Driver::new();
    big(&mut driver, 10);
    let mut chunks = whole(&mut driver.tree);
    chunks.insert(1, Vec::new());
    chunks.push(Vec::new());
    assert_eq!(dump(&restore(&chunks).unwrap()), dump(&driver.tree));
}

#[test]
fn a_snapshot_of_another_version_says_which() {
    let mut tree = Tree::new();
    let mut chunks = whole(&mut tree);
    chunks[0][1] = 9;
    assert_eq!(
        restore(&chunks).unwrap_err(),
        RestoreError::UnknownVersion(9)
    );
    assert_eq!(restore(&[]).unwrap_err(), RestoreError::Unfinished);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Snapshots on disks have to be readable for ever: a change here needs a new version, and a reader
/// of both.
#[test]
fn the_bytes_of_version_1_stay_as_they_are() {
    let mut driver = Driver::new();
    driver.create("/c", CreateMode::Container).unwrap();
    driver.time_ms = 2_000;
    driver.create("/c/e", CreateMode::Ephemeral).unwrap();
    driver.set("/c", b"data", -1).unwrap();
    let chunks: Vec<String> = whole(&mut driver.tree)
        .iter()
        .map(|chunk| hex(chunk))
        .collect();
    let znodes = concat!(
        "04",
        "00002100000000000000010201",
        "0001097a6f6f6b65657065720000000001000",
        "201010571756f7461000000000200",
        "03011506636f6e66696700000000030001",
        "0104002b01630202d00fd00f0004646174610000000000000080020101",
        "05040301650300a01f00000178",
        "0100000000000001",
    );
    let expected = [
        "010108060601b09361eac9af5797",
        "02010000000000000103000000000000030000000000000000a09c01",
        "0301010205776f726c6406616e796f6e65",
        znodes,
        "05",
    ];
    assert_eq!(chunks, expected);
}

/// A restore compares the digest that the tree has kept with that of the znodes.
#[test]
fn a_tree_that_begins_with_changed_znodes_has_their_digest() {
    let begin = |path, data| Znode {
        data,
        version: 3,
        creates: 5,
        ..znode(path)
    };
    let mut tree = assembled(&[
        begin("/", Some(b"root".as_slice())),
        begin("/zookeeper", Some(b"longer than usual".as_slice())),
        begin("/new", None),
    ])
    .unwrap();
    let restored = restore(&whole(&mut tree)).unwrap();
    assert_eq!(dump(&restored), dump(&tree));
}
