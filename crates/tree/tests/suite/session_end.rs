//! The end of a session that has many ephemerals: each command deletes a bounded number of them,
//! and nobody gets the session back meanwhile.

use baton_proto::{CreateMode, ErrorCode, Response};
use baton_tree::{ChangeKind, CloseReason, Command, FormatLevel, MAX_CHUNK_BYTES};
use baton_tree::{MOST_DELETED_AT_ONCE, Tree};

use crate::common::{Driver, SESSION, drain, dump, password, restore, tree_at};

const OTHER: i64 = 0x0100_0000_0000_0002;

/// A tree with a session that has `ephemerals` ephemerals, and another session without any.
fn with_ephemerals(level: FormatLevel, ephemerals: usize) -> Driver {
    let mut driver = Driver::over(tree_at(level));
    driver.open(OTHER);
    for n in 0..ephemerals {
        // Their names fall while their zxids rise.
        let path = format!("/{:05}", ephemerals - n);
        driver.create(&path, CreateMode::Ephemeral).unwrap();
    }
    driver
}

fn end(driver: &mut Driver) -> Result<Response, ErrorCode> {
    driver.close(SESSION, CloseReason::Expired)
}

fn copy(tree: &mut Tree) -> Tree {
    tree.begin_snapshot().unwrap();
    restore(&drain(tree, MAX_CHUNK_BYTES)).unwrap()
}

#[test]
fn each_command_of_a_sessions_end_deletes_a_bounded_number_of_ephemerals() {
    let all = 2 * MOST_DELETED_AT_ONCE + 7;
    let mut driver = with_ephemerals(FormatLevel::NEWEST, all);
    let mut deleted = Vec::new();
    let mut left = all;
    for at_once in [MOST_DELETED_AT_ONCE, MOST_DELETED_AT_ONCE, 7] {
        let zxid = driver.tree.zxid();
        assert_eq!(end(&mut driver), Ok(Response::Empty));
        assert_eq!(driver.tree.zxid(), zxid + 1);
        let gone = driver.seen.iter();
        let gone = gone.filter(|seen| seen.kind == ChangeKind::Deleted);
        let gone: Vec<String> = gone.map(|seen| seen.path.clone()).collect();
        assert_eq!(gone.len(), at_once);
        assert!(gone.is_sorted(), "in the order of their paths");
        deleted.extend(gone);
        left -= at_once;
        assert_eq!(driver.tree.ephemeral_count(), left);
        assert_eq!(driver.tree.is_ending(SESSION), left > 0);
        let unfinished = (left > 0).then_some(SESSION);
        assert_eq!(driver.tree.unfinished_end(), unfinished);
        // A replica that starts from a snapshot of this moment is where the others are.
        driver.tree = copy(&mut driver.tree);
        assert_eq!(driver.tree.unfinished_end(), unfinished);
    }
    deleted.sort_unstable();
    deleted.dedup();
    assert_eq!(deleted.len(), all);
    assert_eq!(end(&mut driver), Err(ErrorCode::SessionExpired));
    assert_eq!(driver.children("/"), ["zookeeper"]);
}

#[test]
fn ephemerals_with_long_paths_go_in_smaller_numbers() {
    let mut driver = Driver::over(tree_at(FormatLevel::NEWEST));
    let long = "x".repeat(100 << 10);
    for n in 0..7 {
        let path = format!("/{n}{long}");
        driver.create(&path, CreateMode::Ephemeral).unwrap();
    }
    for left in [4, 1, 0] {
        assert_eq!(end(&mut driver), Ok(Response::Empty));
        assert_eq!(driver.tree.ephemeral_count(), left);
    }
}

#[test]
fn a_session_whose_end_has_begun_is_nobodys() {
    let mut driver = with_ephemerals(FormatLevel::NEWEST, MOST_DELETED_AT_ONCE + 2);
    assert_eq!(end(&mut driver), Ok(Response::Empty));
    let attach = Command::ReattachSession {
        session_id: SESSION,
        password: password(SESSION),
        timeout_ms: 1_000,
    };
    let refused = Err(ErrorCode::SessionExpired);
    assert_eq!(driver.apply(SESSION, attach).result, refused);
    let open = Command::OpenSession {
        session_id: SESSION,
        password: password(SESSION),
        timeout_ms: 1_000,
    };
    let result = driver.apply(SESSION, open).result;
    assert_eq!(result, Err(ErrorCode::BadArguments));
    assert!(driver.tree.session(SESSION).is_none());
    let path = "/of-the-ended-session";
    let create = driver.create(path, CreateMode::Ephemeral);
    assert_eq!(create, Err(ErrorCode::SessionExpired));
}

#[test]
fn others_may_delete_what_an_ended_session_has_left() {
    let mut driver = with_ephemerals(FormatLevel::NEWEST, MOST_DELETED_AT_ONCE + 2);
    assert_eq!(end(&mut driver), Ok(Response::Empty));
    for left in [1, 0] {
        let path = driver.children("/").pop().unwrap();
        let version = -1;
        let delete = baton_proto::Request::Delete {
            path: &format!("/{path}"),
            version,
        };
        let deleted = driver.send_as(OTHER, &delete).result;
        assert_eq!(deleted, Ok(Response::Empty));
        assert_eq!(driver.tree.ephemeral_count(), left);
    }
    assert_eq!(driver.tree.unfinished_end(), None);
    let twin = copy(&mut driver.tree);
    assert_eq!(dump(&twin), dump(&driver.tree));
}

/// Replicas need not know the ids of those that have ended before.
#[test]
fn the_id_of_a_session_that_is_ending_counts_as_used_from_the_level_of_unique_ids_on() {
    let mut driver = with_ephemerals(FormatLevel::BoundedMultis, MOST_DELETED_AT_ONCE + 2);
    driver.close(OTHER, CloseReason::Expired).unwrap();
    assert_eq!(end(&mut driver), Ok(Response::Empty));
    driver.apply(0, Command::SetLevel(FormatLevel::UniqueSessionIds));
    assert_eq!(end(&mut driver), Ok(Response::Empty));
    assert_eq!(driver.tree.unfinished_end(), None);
    assert!(driver.tree.is_session_id_used(SESSION));
    assert!(!driver.tree.is_session_id_used(OTHER));
}

#[test]
fn earlier_levels_delete_all_ephemerals_with_the_session() {
    for level in [FormatLevel::Initial, FormatLevel::BoundSessions] {
        let all = MOST_DELETED_AT_ONCE + 2;
        let mut driver = with_ephemerals(level, all);
        assert_eq!(end(&mut driver), Ok(Response::Empty));
        assert_eq!(driver.tree.ephemeral_count(), 0);
        assert_eq!(driver.tree.unfinished_end(), None);
        assert_eq!(driver.seen.len(), 2 * all);
    }
}
