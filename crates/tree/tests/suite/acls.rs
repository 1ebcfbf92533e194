//! Cost of an ACL: a write may not make more of a list than the bounds allow, alone, in a multi, at
//! every format level, and from a log of before the bounds.

use baton_proto::{
    Acl, Create, CreateMode, ErrorCode, MultiOp, MultiResult, Perms, Request, Response,
};
use baton_tree::{Batch, BatchBuilder, Command, FormatLevel, Identity, Tree};

use crate::common::{Driver, SESSION, assembled, drain, password, restore, tree_at, znode};

/// A client of this many names, each of this many bytes.
fn client_of(names: usize, bytes: usize) -> Identity {
    let mut identity = Identity::from_ip("127.0.0.1".parse().unwrap());
    for n in 0..names {
        identity.add("digest", format!("{n:0>bytes$}:x"));
    }
    identity
}

/// Entries for all names of the client, each with permissions of its own.
fn auths(entries: usize) -> Vec<Acl<'static>> {
    let entry = |n: usize| Acl::new(Perms((n as i32) << 5 | 1), "auth", "");
    (0..entries).map(entry).collect()
}

fn driver(level: FormatLevel, identity: Identity) -> Driver {
    let mut driver = Driver::over(tree_at(level));
    driver.identity = identity;
    driver
}

fn create<'a>(path: &'a str, acl: Vec<Acl<'static>>) -> Create<'a> {
    Create::new(path, None, acl, CreateMode::Persistent)
}

#[test]
fn auth_does_not_multiply_a_list_past_its_bound() {
    let mut driver = driver(FormatLevel::NEWEST, client_of(1000, 30));
    let lists = driver.tree.acl_count();
    // Known permissions, so that nothing but the product is refused.
    let all_sets = |entries: usize| {
        let entry = |n: usize| Acl::new(Perms(n as i32 + 1), "auth", "");
        (0..entries).map(entry).collect::<Vec<_>>()
    };
    let within = Request::Create(create("/within", all_sets(4)));
    assert!(driver.send(&within).is_ok());
    let over = Request::Create(create("/over", all_sets(5)));
    assert_eq!(driver.send(&over), Err(ErrorCode::InvalidAcl));
    let set = Request::SetAcl {
        path: "/within",
        acl: Some(all_sets(5)),
        version: -1,
    };
    assert_eq!(driver.send(&set), Err(ErrorCode::InvalidAcl));
    assert_eq!(driver.tree.acl_count(), lists + 1);
}

#[test]
fn the_lists_of_a_multi_share_one_bound() {
    let mut driver = driver(FormatLevel::NEWEST, client_of(1000, 30));
    let before = driver.tree.node_count();
    let paths: Vec<String> = (0..5).map(|n| format!("/n{n}")).collect();
    let list = || (1..5).map(|n| Acl::new(Perms(n), "auth", "")).collect();
    let parts = paths
        .iter()
        .map(|path| MultiOp::Create(create(path, list())));
    let Ok(Response::Multi(results)) = driver.send(&Request::Multi(parts.collect())) else {
        panic!("a multi answers for each part");
    };
    let expected = MultiResult::failure(5, 4, ErrorCode::InvalidAcl);
    assert_eq!(results, expected);
    assert_eq!(driver.tree.node_count(), before);
}

#[test]
fn unknown_permissions_are_refused_once_the_level_has_the_rule() {
    for (level, expected) in [
        (FormatLevel::BoundSessions, Ok(())),
        (FormatLevel::BoundedCommands, Err(ErrorCode::InvalidAcl)),
    ] {
        let mut driver = driver(level, client_of(1, 8));
        let request = Request::Create(create("/a", auths(2)));
        assert_eq!(driver.send(&request).map(|_| ()), expected, "{level:?}");
    }
}

/// A log entry as a server of before the bounds wrote it.
fn earlier_entry(identity: &Identity, requests: &[Request<'_>]) -> bytes::Bytes {
    let mut builder = BatchBuilder::new(FormatLevel::Attachments, 1_000);
    builder.begin(SESSION, identity, None);
    let open = Command::OpenSession {
        session_id: SESSION,
        password: password(SESSION),
        timeout_ms: 10_000,
    };
    builder.push(0, open);
    for request in requests {
        let mut body = Vec::new();
        request.encode(&mut body);
        let op = request.op();
        builder.push(1, Command::Write { op, body: &body });
    }
    builder.finish()
}

fn applied(payload: &[u8]) -> (Tree, Vec<Result<(), ErrorCode>>) {
    let mut tree = tree_at(FormatLevel::Attachments);
    let mut outcomes = Vec::new();
    let batch = Batch::decode(payload).unwrap();
    tree.apply_batch(&batch, &mut (), |_, outcome| {
        outcomes.push(outcome.unwrap().result.map(|_| ()));
    });
    (tree, outcomes)
}

#[test]
fn a_log_with_an_entry_that_no_memory_holds_starts_and_gives_one_state() {
    // 58 KB of names, 20,000 times: 1.2 GB of entries. What a snapshot can hold is kept.
    let identity = client_of(1000, 50);
    let payload = earlier_entry(
        &identity,
        &[
            Request::Create(create("/before", auths(100))),
            Request::Create(create("/poison", auths(20_000))),
            Request::Multi(vec![MultiOp::Create(create("/in-multi", auths(20_000)))]),
            Request::Create(create("/after", vec![Acl::open_unsafe()])),
        ],
    );
    let (mut tree, outcomes) = applied(&payload);
    let invalid = Err(ErrorCode::InvalidAcl);
    assert_eq!(outcomes, [Ok(()), Ok(()), invalid, Ok(()), Ok(())]);
    for (path, exists) in [
        ("/before", true),
        ("/poison", false),
        ("/in-multi", false),
        ("/after", true),
    ] {
        assert_eq!(tree.peek(path).is_some(), exists, "{path}");
    }
    assert_eq!(tree.peek("/before").unwrap().1.entries().len(), 100_000);
    let (again, _) = applied(&payload);
    assert_eq!(again.digest(), tree.digest());
    tree.begin_snapshot().unwrap();
    let restored = restore(&drain(&mut tree, 1 << 16)).unwrap();
    assert_eq!(restored.digest(), tree.digest());
}

#[test]
fn a_folder_that_is_imported_keeps_its_long_lists() {
    let entry = |n| Acl::new(Perms(99), "digest", format!("{n}:x"));
    let list: Vec<Acl<'static>> = (0..38_000).map(entry).collect();
    let mut imported = znode("/long");
    imported.acl = &list;
    let tree = assembled(&[znode("/"), imported]).unwrap();
    assert_eq!(tree.peek("/long").unwrap().1.entries(), list);
    let user = |id: &str| {
        let mut identity = Identity::anonymous();
        identity.add("digest", id);
        tree.exists("/long", &identity).map(|_| ())
    };
    assert_eq!(user("37999:x"), Ok(()));
    assert_eq!(user("38000:x"), Err(ErrorCode::NoAuth));
}
