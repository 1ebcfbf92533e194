//! Files that no ZooKeeper of today writes, and bytes that nobody wrote: logs put together here,
//! each with a checksum that fits.

use baton_proto::wire::{put_buffer, put_count, put_string, put_strings};
use baton_proto::{Acl, Perms};
use baton_tree::{Identity, Tree};
use baton_zkdata::{Database, Moved, OwnerForm, ZkDataError, read_snapshot, replay_log};
use proptest::prelude::*;

const EMPTY: &[u8] = include_bytes!("../golden/snapshot.0");
const CREATE: i32 = 1;
const DELETE: i32 = 2;
const SET_ACL: i32 = 7;
const CREATE_TTL: i32 = 21;
const CREATE_SESSION: i32 = -10;
const CLOSE_SESSION: i32 = -11;

fn adler(bytes: &[u8]) -> u64 {
    let (low, high) = bytes.iter().fold((1_u64, 0_u64), |(low, high), byte| {
        let low = (low + u64::from(*byte)) % 65_521;
        (low, (high + low) % 65_521)
    });
    high << 16 | low
}

/// A log in the making.
struct Log {
    bytes: Vec<u8>,
    zxid: i64,
}

impl Log {
    fn new() -> Self {
        let mut bytes = b"ZKLG\0\0\0\x02".to_vec();
        bytes.extend_from_slice(&[0; 8]);
        Self { bytes, zxid: 0 }
    }

    fn frame(&mut self, txn: &[u8]) {
        self.bytes.extend_from_slice(&adler(txn).to_be_bytes());
        self.bytes
            .extend_from_slice(&(txn.len() as i32).to_be_bytes());
        self.bytes.extend_from_slice(txn);
        self.bytes.push(b'B');
    }

    fn txn(&mut self, session: i64, kind: i32, body: &[u8]) {
        self.zxid += 1;
        let mut txn = session.to_be_bytes().to_vec();
        txn.extend_from_slice(&1_i32.to_be_bytes());
        txn.extend_from_slice(&self.zxid.to_be_bytes());
        txn.extend_from_slice(&1000_i64.to_be_bytes());
        txn.extend_from_slice(&kind.to_be_bytes());
        txn.extend_from_slice(body);
        self.frame(&txn);
    }

    fn open(&mut self, session: i64) {
        self.txn(session, CREATE_SESSION, &30_000_i32.to_be_bytes());
    }

    fn create_v0(&mut self, session: i64, path: &str, ephemeral: bool) {
        let body = create_body(path, ephemeral);
        self.txn(session, CREATE, &body);
    }

    fn delete(&mut self, path: &str) {
        let mut body = Vec::new();
        put_string(&mut body, path);
        self.txn(1, DELETE, &body);
    }

    fn replay(&self) -> Result<Database, ZkDataError> {
        let mut database = read_snapshot("snapshot.0", 0, EMPTY)?;
        replay_log(&mut database, "log.1", &*self.bytes)?;
        Ok(database)
    }

    fn moved(&self) -> Moved {
        self.replay()
            .unwrap()
            .into_tree(OwnerForm::Extended)
            .unwrap()
    }
}

fn create_body(path: &str, ephemeral: bool) -> Vec<u8> {
    let mut body = Vec::new();
    put_string(&mut body, path);
    put_buffer(&mut body, Some(b"x"));
    Acl::encode_list(Some(&[Acl::open_unsafe()]), &mut body);
    body.push(u8::from(ephemeral));
    body
}

fn has(tree: &Tree, path: &str) -> bool {
    tree.exists(path, &Identity::anonymous()).is_ok()
}

#[test]
fn creates_of_the_oldest_logs_count_by_themselves() {
    let mut log = Log::new();
    log.open(7);
    log.create_v0(7, "/a", false);
    log.create_v0(7, "/a/b", true);
    log.create_v0(7, "/a/c", false);
    log.delete("/a/c");
    let tree = log.moved().tree;
    let stat = tree.exists("/a", &Identity::anonymous()).unwrap();
    // Two creates, one child left: 2 * 2 - 1.
    assert_eq!((stat.cversion, stat.num_children, stat.pzxid), (3, 1, 5));
    assert_eq!(tree.ephemerals(7, "/"), ["/a/b"]);
}

#[test]
fn a_session_ends_with_and_without_a_list_of_its_paths() {
    let mut list = Vec::new();
    put_strings(&mut list, ["/e"]);
    let mut digest = 2_i32.to_be_bytes().to_vec();
    digest.extend_from_slice(&0x11_2233_4455_i64.to_be_bytes());
    for body in [
        Vec::new(),
        list.clone(),
        digest.clone(),
        [list, digest].concat(),
    ] {
        let mut log = Log::new();
        log.open(7);
        log.create_v0(7, "/e", true);
        log.txn(7, CLOSE_SESSION, &body);
        let mut database = log.replay().unwrap();
        database.ignore_digests();
        assert_eq!((database.session_count(), database.zxid()), (0, 3));
        let moved = database.into_tree(OwnerForm::Extended).unwrap();
        assert!(!has(&moved.tree, "/e"), "{body:?}");
        assert_eq!(moved.without_session, 0);
    }
}

/// Removes ephemerals without a session, like ZooKeeper at its start.
#[test]
fn ephemerals_without_a_session_go() {
    let mut log = Log::new();
    log.create_v0(7, "/e", true);
    let moved = log.moved();
    assert_eq!(moved.without_session, 1);
    assert!(!has(&moved.tree, "/e"));
}

#[test]
fn ttls_of_353_are_ttls_when_asked_for() {
    let ttl = i64::MIN | 60_000;
    let mut log = Log::new();
    log.create_v0(ttl, "/t", true);
    let moved = log.replay().unwrap().into_tree(OwnerForm::Of353).unwrap();
    assert_eq!(moved.without_session, 0);
    assert!(has(&moved.tree, "/t"));
    assert_eq!(moved.tree.ephemeral_count(), 0);
    let mut owners = Vec::new();
    let _ = moved.tree.visit_znodes(|znode| {
        owners.extend((znode.path == "/t").then_some(znode.owner));
        Ok::<(), ()>(())
    });
    assert_eq!(owners, [(0xff << 56) | 60_000]);
}

#[test]
fn a_subtree_that_was_deleted_and_made_again_while_the_snapshot_was_taken() {
    let mut log = Log::new();
    log.create_v0(1, "/a", false);
    log.create_v0(1, "/a/c", false);
    log.delete("/a/c");
    log.delete("/a");
    log.create_v0(1, "/a", false);
    log.create_v0(1, "/a/d", false);
    let database = log.replay().unwrap();
    let tree = database.into_tree(OwnerForm::Extended).unwrap().tree;
    let mut written = Vec::new();
    baton_zkdata::write_snapshot(&tree, &mut written).unwrap();
    let mut fuzzy = read_snapshot("snapshot.0", 0, &*written).unwrap();
    replay_log(&mut fuzzy, "log.1", &*log.bytes).unwrap();
    let again = fuzzy.into_tree(OwnerForm::Extended).unwrap().tree;
    assert!(has(&again, "/a/d") && !has(&again, "/a/c"));
    assert_eq!(again.node_count(), tree.node_count());
}

#[test]
fn a_type_of_transaction_that_nobody_knows_is_named() {
    let mut log = Log::new();
    log.open(7);
    log.txn(7, 99, &[]);
    let refused = log.replay().unwrap_err();
    assert!(
        matches!(refused, ZkDataError::UnknownTransaction { kind: 99, .. }),
        "{refused}"
    );
    let text = refused.to_string();
    assert!(
        text.starts_with("log.1 at byte ") && text.contains("write a snapshot"),
        "{text}"
    );
}

#[test]
fn acls_are_set_and_a_ttl_is_kept() {
    let mut log = Log::new();
    let mut body = Vec::new();
    put_string(&mut body, "/t");
    put_buffer(&mut body, None);
    Acl::encode_list(Some(&[Acl::open_unsafe()]), &mut body);
    body.extend_from_slice(&9_i32.to_be_bytes());
    body.extend_from_slice(&5000_i64.to_be_bytes());
    log.txn(1, CREATE_TTL, &body);
    let mut body = Vec::new();
    put_string(&mut body, "/t");
    Acl::encode_list(Some(&[Acl::new(Perms::READ, "ip", "10.0.0.1")]), &mut body);
    body.extend_from_slice(&1_i32.to_be_bytes());
    log.txn(1, SET_ACL, &body);
    let tree = log.moved().tree;
    let (stat, acl) = tree.peek("/t").unwrap();
    assert_eq!(
        (stat.aversion, acl.entries()[0].id.as_ref()),
        (1, "10.0.0.1")
    );
    assert_eq!(tree.peek("/").unwrap().0.cversion, 9 * 2 - 2);
}

#[test]
fn transactions_that_do_not_follow_are_refused() {
    let mut log = Log::new();
    log.create_v0(1, "/a", false);
    log.zxid = 0;
    log.create_v0(1, "/b", false);
    let refused = log.replay().unwrap_err();
    assert!(
        matches!(refused, ZkDataError::OutOfOrder { .. }),
        "{refused}"
    );
}

#[test]
fn what_does_not_make_a_tree_is_refused() {
    let mut log = Log::new();
    log.open(7);
    log.create_v0(7, "/e", true);
    log.create_v0(7, "/e/child", false);
    let refused = log
        .replay()
        .unwrap()
        .into_tree(OwnerForm::Extended)
        .unwrap_err();
    assert!(refused.to_string().contains("/e/child"), "{refused}");
    let mut log = Log::new();
    log.create_v0(7, "/a\u{1}", false);
    let refused = log
        .replay()
        .unwrap()
        .into_tree(OwnerForm::Extended)
        .unwrap_err();
    assert!(matches!(refused, ZkDataError::Tree(_)), "{refused}");
    // The id of a server number 255 would read as a TTL.
    let mut log = Log::new();
    log.open(-1);
    assert!(
        log.replay()
            .unwrap()
            .into_tree(OwnerForm::Extended)
            .is_err()
    );
}

#[test]
fn a_znode_too_large_to_be_stored_is_refused_by_name() {
    let mut log = Log::new();
    let mut body = Vec::new();
    put_string(&mut body, "/large");
    put_buffer(&mut body, Some(&vec![b'L'; 16 << 20]));
    Acl::encode_list(Some(&[Acl::open_unsafe()]), &mut body);
    body.push(0);
    log.txn(7, CREATE, &body);
    let database = log.replay().unwrap();
    let refused = database.into_tree(OwnerForm::Extended).unwrap_err();
    let text = refused.to_string();
    assert!(
        text.contains("/large") && text.contains("16777216"),
        "{text}"
    );
}

fn any_txn() -> impl Strategy<Value = (i32, Vec<u8>)> {
    let kinds = prop::sample::select(vec![
        -11, -10, -1, 1, 2, 5, 7, 13, 14, 15, 16, 19, 20, 21, 99,
    ]);
    let body = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..80),
        (
            "/[ab](/[ab]){0,2}",
            any::<bool>(),
            prop::collection::vec(any::<u8>(), 0..16)
        )
            .prop_map(|(path, ephemeral, more)| [create_body(&path, ephemeral), more].concat()),
        (
            "/[ab](/[ab]){0,2}",
            prop::collection::vec(any::<u8>(), 0..16)
        )
            .prop_map(|(path, more)| {
                let mut body = Vec::new();
                put_string(&mut body, &path);
                [body, more].concat()
            }),
        (
            0..4_usize,
            any::<i32>(),
            prop::collection::vec(any::<u8>(), 0..40)
        )
            .prop_map(|(count, kind, inner)| {
                let mut body = Vec::new();
                put_count(&mut body, count);
                body.extend_from_slice(&kind.to_be_bytes());
                put_buffer(&mut body, Some(&inner));
                body
            }),
    ];
    (kinds, body)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_log_is_replayed_or_refused_on_one_line(
        txns in prop::collection::vec((1..3_i64, any_txn()), 0..8)
    ) {
        let mut log = Log::new();
        for (session, (kind, body)) in txns {
            log.txn(session, kind, &body);
        }
        let moved = log.replay().and_then(|database| database.into_tree(OwnerForm::Of353));
        if let Err(error) = moved {
            prop_assert!(!error.to_string().contains('\n'));
        }
    }

    #[test]
    fn any_bytes_with_a_seal_are_a_snapshot_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut content = b"ZKSN\0\0\0\x02".to_vec();
        content.extend_from_slice(&[0xff; 8]);
        content.extend_from_slice(&bytes);
        content.extend_from_slice(&adler(&content).to_be_bytes());
        content.extend_from_slice(b"\0\0\0\x01/");
        if let Err(error) = read_snapshot("snapshot.1", 1, &*content) {
            prop_assert!(error.to_string().contains("snapshot.1"));
        }
    }
}
