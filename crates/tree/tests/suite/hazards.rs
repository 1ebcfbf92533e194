//! Hazards that the server's state machine decides (docs/internals/hazards.md): numbers past their
//! end.

use baton_proto::{CreateMode, ErrorCode, MultiOp, MultiResult, Request, Response, path};
use baton_tree::{AssembleError, MAX_SEQUENCE, Znode};

use crate::common::{Driver, assembled, drain, dump, restore, znode};

const I32_END: i64 = i32::MAX as i64;

fn lock_at(creates: i64) -> Driver {
    let lock = Znode {
        creates,
        ..znode("/lock")
    };
    Driver::over(assembled(&[znode("/"), lock]).unwrap())
}

fn contend(driver: &mut Driver, prefix: &str) -> Result<String, ErrorCode> {
    let path = format!("/lock/{prefix}");
    let (path, _) = driver.create(&path, CreateMode::EphemeralSequential)?;
    Ok(path::name(&path).to_owned())
}

#[test]
fn h19_sequence_goes_on_past_2147483647_in_one_order_for_numbers_and_for_text() {
    let mut driver = lock_at(I32_END - 2);
    let names: Vec<String> = (0..6)
        .map(|_| contend(&mut driver, "lock-").unwrap())
        .collect();
    let numbers: Vec<i64> = names
        .iter()
        .map(|name| name.strip_prefix("lock-").unwrap().parse().unwrap())
        .collect();
    let expected: Vec<i64> = (I32_END - 2..I32_END + 4).collect();
    assert_eq!(numbers, expected);
    assert!(names.is_sorted(), "{names:?}");
    assert!(names.iter().all(|name| name.len() == "lock-".len() + 10));
}

#[test]
fn h20_no_number_has_a_sign_that_a_parser_could_take_for_a_separator() {
    for creates in [I32_END, I32_END + 1, 2 * I32_END + 2, MAX_SEQUENCE] {
        let mut driver = lock_at(creates);
        let name = contend(&mut driver, "lock-").unwrap();
        assert_eq!(name, format!("lock-{creates}"));
    }
}

#[test]
fn h21_numbers_never_stick_or_repeat_past_2147483647() {
    let mut driver = lock_at(I32_END - 1);
    let mut seen = Vec::new();
    for round in 0..8 {
        // One at a time, in one multi, after a deletion, after a restart: where ZooKeeper's numbers
        // repeat.
        let name = match round % 4 {
            1 => {
                let create =
                    crate::common::plain(baton_proto::CreateOp::Create, "/lock/lock-", 3, -1);
                let ops = vec![MultiOp::Create(create)];
                match driver.send(&Request::Multi(ops)).unwrap() {
                    Response::Multi(results) => match &results[0] {
                        MultiResult::Create { path } => path::name(path).to_owned(),
                        other => panic!("{other:?}"),
                    },
                    other => panic!("{other:?}"),
                }
            }
            2 => {
                let last = seen.last().map(|name| format!("/lock/{name}")).unwrap();
                driver.delete(&last, -1).unwrap();
                contend(&mut driver, "lock-").unwrap()
            }
            3 => {
                driver.tree.begin_snapshot().unwrap();
                driver.tree = restore(&drain(&mut driver.tree, 4096)).unwrap();
                contend(&mut driver, "lock-").unwrap()
            }
            _ => contend(&mut driver, "lock-").unwrap(),
        };
        seen.push(name);
    }
    let mut unique = seen.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique, seen);
}

#[test]
fn h22_a_number_of_eleven_digits_is_refused_and_nothing_else_is() {
    let mut driver = lock_at(MAX_SEQUENCE);
    assert_eq!(driver.tree.sequence_headroom("/lock"), Some(1));
    let (last, _) = driver
        .create("/lock/lock-", CreateMode::PersistentSequential)
        .unwrap();
    assert_eq!(last, "/lock/lock-9999999999");
    assert_eq!(driver.tree.sequence_headroom("/lock"), Some(0));
    let before = dump(&driver.tree);
    assert_eq!(contend(&mut driver, "lock-"), Err(ErrorCode::BadArguments));
    assert_eq!(before[1..], dump(&driver.tree)[1..]);

    driver.create("/lock/plain", CreateMode::Ephemeral).unwrap();
    driver.delete("/lock/plain", -1).unwrap();
    driver.delete(&last, -1).unwrap();
    driver.delete("/lock", -1).unwrap();
    driver.create("/lock", CreateMode::Persistent).unwrap();
    assert_eq!(contend(&mut driver, "lock-").unwrap(), "lock-0000000000");
}

#[test]
fn h22_the_count_of_creates_survives_a_snapshot_in_full() {
    let mut driver = lock_at(MAX_SEQUENCE - 5);
    driver.tree.begin_snapshot().unwrap();
    let restored = restore(&drain(&mut driver.tree, 4096)).unwrap();
    assert_eq!(restored.sequence_headroom("/lock"), Some(6));
    assert_eq!(restored.digest(), driver.tree.digest());
}

#[test]
fn h24_version_skips_minus_one_so_that_compare_and_set_stays_conditional() {
    for (start, expected) in [
        (i32::MAX, [i32::MIN, i32::MIN + 1]),
        (-3, [-2, 0]),
        (-2, [0, 1]),
    ] {
        let counter = Znode {
            data: Some(b"0"),
            version: start,
            ..znode("/counter")
        };
        let mut driver = Driver::over(assembled(&[znode("/"), counter]).unwrap());
        let mut version = start;
        for next in expected {
            version = driver.set("/counter", b"1", version).unwrap().version;
            assert_eq!(version, next);
        }
        let stale = driver.set("/counter", b"2", start);
        assert_eq!(stale, Err(ErrorCode::BadVersion));
    }
}

#[test]
fn a_tree_begins_only_with_what_could_have_been_written() {
    let begin = |znodes: &[Znode<'_>]| assembled(znodes).map(|tree| tree.node_count());
    let created = |path, creates| Znode {
        creates,
        ..znode(path)
    };
    let root = znode("/");
    assert_eq!(begin(&[created("/", 7), znode("/a"), znode("/a/b")]), Ok(6));
    let error = begin(&[root, znode("/a/b")]).unwrap_err();
    assert_eq!(error, AssembleError::NoParent("/a/b".to_owned()));
    assert!(matches!(
        begin(&[root, znode("a")]),
        Err(AssembleError::BadPath { .. })
    ));
    assert!(matches!(
        begin(&[root, created("/a", -1)]),
        Err(AssembleError::NegativeCount(_))
    ));
}
