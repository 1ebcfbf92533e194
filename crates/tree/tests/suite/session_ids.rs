//! Ids of sessions: from level 8 on, none is opened twice, even if its session has ended.

use baton_proto::{ErrorCode, Response};
use baton_tree::{
    CloseReason, Command, FormatLevel, Identity, MAX_CHUNK_BYTES, RestoreError, Tree,
};

use crate::common::{drain, dump, password, restore, tree_at};

/// Ids that server 1 gives, one after the other, and one of server 2.
const OF_ONE: [i64; 4] = [
    0x0100_0000_0000_0001,
    0x0100_0000_0000_0002,
    0x0100_0000_0000_0003,
    0x0100_0000_0000_0004,
];
const OF_TWO: i64 = 0x0200_0000_0000_0001;

fn apply(tree: &mut Tree, session: i64, command: Command<'_>) -> Result<Response, ErrorCode> {
    let nobody = Identity::anonymous();
    tree.apply(1_000, session, &nobody, command, &mut ()).result
}

fn open(tree: &mut Tree, session_id: i64) -> bool {
    let command = Command::OpenSession {
        session_id,
        password: password(session_id),
        timeout_ms: 10_000,
    };
    let is_used = tree.is_session_id_used(session_id);
    let opened = apply(tree, session_id, command);
    assert_eq!(opened.is_err(), is_used, "the tree says so beforehand");
    opened.is_ok()
}

fn end(tree: &mut Tree, session_id: i64) {
    let reason = CloseReason::Expired;
    apply(tree, 0, Command::CloseSession { session_id, reason }).unwrap();
}

fn chunks(tree: &mut Tree) -> Vec<Vec<u8>> {
    tree.begin_snapshot().unwrap();
    drain(tree, MAX_CHUNK_BYTES)
}

fn restored(tree: &mut Tree) -> Tree {
    let twin = restore(&chunks(tree)).unwrap();
    assert_eq!(dump(&twin), dump(tree));
    twin
}

#[test]
fn no_id_is_opened_again_once_its_session_has_ended() {
    let mut tree = tree_at(FormatLevel::NEWEST);
    assert!(open(&mut tree, OF_ONE[0]) && open(&mut tree, OF_ONE[2]));
    end(&mut tree, OF_ONE[0]);
    end(&mut tree, OF_ONE[2]);
    for mut tree in [restored(&mut tree), tree] {
        for used in &OF_ONE[..3] {
            assert!(!open(&mut tree, *used), "the second may have been opened");
        }
        assert_eq!(tree.newest_session_id_like(OF_ONE[0]), Some(OF_ONE[2]));
        assert_eq!(tree.newest_session_id_like(OF_TWO), None);
        assert!(open(&mut tree, OF_TWO), "of another server");
        assert!(open(&mut tree, OF_ONE[3]));
        assert_eq!(tree.newest_session_id_like(OF_ONE[0]), Some(OF_ONE[3]));
    }
}

#[test]
fn replicas_that_differ_in_the_newest_ids_have_other_digests() {
    let after = |ids: &[i64]| {
        let mut tree = tree_at(FormatLevel::NEWEST);
        for id in ids {
            assert!(open(&mut tree, *id));
            end(&mut tree, *id);
        }
        tree.digest()
    };
    assert_ne!(after(&OF_ONE[..1]), after(&OF_ONE[1..2]));
    assert_ne!(after(&OF_ONE[..2]), after(&[OF_ONE[0], OF_TWO]));
}

#[test]
fn replicas_of_another_past_raise_the_level_to_one_state() {
    let earlier = FormatLevel::BoundedMultis;
    let mut lives_on = tree_at(earlier);
    for id in [OF_ONE[0], OF_ONE[3], OF_TWO] {
        assert!(open(&mut lives_on, id));
    }
    end(&mut lives_on, OF_ONE[3]);
    assert!(open(&mut lives_on, OF_ONE[1]), "earlier levels permit it");
    // What it has learnt of the past is not in its snapshot.
    let mut restarted = restored(&mut lives_on);
    let raise = Command::SetLevel(FormatLevel::UniqueSessionIds);
    for tree in [&mut lives_on, &mut restarted] {
        apply(tree, 0, raise).unwrap();
        assert_eq!(tree.newest_session_id_like(OF_ONE[0]), Some(OF_ONE[1]));
    }
    assert_eq!(dump(&lives_on), dump(&restarted));
    assert_eq!(dump(&restored(&mut lives_on)), dump(&lives_on));
    assert!(!open(&mut lives_on, OF_ONE[0]) && open(&mut lives_on, OF_ONE[2]));
}

#[test]
fn the_bytes_of_snapshot_version_5_stay_as_they_are() {
    let mut tree = tree_at(FormatLevel::UniqueSessionIds);
    assert!(open(&mut tree, OF_ONE[3]) && open(&mut tree, OF_TWO));
    end(&mut tree, OF_ONE[3]);
    let chunks = chunks(&mut tree);
    let head: String = chunks[0].iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = "0105060404011c1674afe01574c908d00f0204000000000000010100000000000002";
    assert_eq!(head, expected);
}

#[test]
fn a_snapshot_that_contradicts_its_newest_ids_is_refused() {
    let mut tree = tree_at(FormatLevel::NEWEST);
    assert!(open(&mut tree, OF_ONE[3]) && open(&mut tree, OF_TWO));
    let whole = chunks(&mut tree);
    let ids_at = whole[0].len() - 16;
    // The newest id of server 1, below its session; the one of server 2 before that; twice one
    // server; no id at all.
    for (at, byte) in [(0, 3), (7, 3), (15, 1), (7, 0xff)] {
        let mut broken = whole.clone();
        broken[0][ids_at + at] = byte;
        let refused = restore(&broken).map(|_| ()).unwrap_err();
        assert!(
            matches!(refused, RestoreError::Broken { .. }),
            "{at}: {refused}"
        );
    }
    // One that is too high is noticed by the digest.
    let mut raised = whole;
    raised[0][ids_at] = 9;
    let refused = restore(&raised).map(|_| ()).unwrap_err();
    assert!(matches!(refused, RestoreError::DigestMismatch { .. }));
}
