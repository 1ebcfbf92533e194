//! The rules of the protocol that the tree decides, one by one (protocol.md §1.4–1.12).

use baton_proto::{
    Acl, Create, CreateMode, CreateOp, ErrorCode, MultiOp, MultiResult, OpCode, Perms, Request,
    Response,
};
use baton_tree::{
    Change, ChangeKind, CloseReason, Command, Effects, EphemeralCursor, FormatLevel, Identity,
    ReapCandidate, ReapCursor, Restore, Tree,
};

use crate::common::{Driver, SESSION, add_digest, dump, password, plain, tree_at};

#[test]
fn the_fresh_tree_shows_the_stats_that_clients_expect() {
    let driver = Driver::new();
    assert_eq!(driver.tree.node_count(), 4);
    for (path, cversion, aversion, children) in [
        ("/", -1, 0, 1),
        ("/zookeeper", -2, 0, 2),
        ("/zookeeper/quota", 0, 0, 0),
        ("/zookeeper/config", 0, -1, 0),
    ] {
        let (data, stat) = driver.tree.get_data(path, &driver.identity).unwrap();
        assert_eq!(data, Some(&b""[..]));
        assert_eq!(stat.cversion, cversion, "{path}");
        assert_eq!(stat.aversion, aversion, "{path}");
        assert_eq!(stat.num_children, children, "{path}");
        assert_eq!((stat.czxid, stat.pzxid, stat.ctime), (0, 0, 0));
    }
    let (acl, _) = driver
        .tree
        .get_acl("/zookeeper/config", &driver.identity)
        .unwrap();
    assert_eq!(acl, [Acl::read_unsafe()]);
}

#[test]
fn cversion_counts_creates_and_deletes_and_pzxid_moves_with_both() {
    let mut driver = Driver::new();
    driver.create("/p", CreateMode::Persistent).unwrap();
    driver.create("/p/a", CreateMode::Persistent).unwrap();
    driver.create("/p/b", CreateMode::Persistent).unwrap();
    driver.set("/p/b", b"more", -1).unwrap();
    let stat = driver.stat("/p");
    assert_eq!((stat.cversion, stat.num_children), (2, 2));
    assert_eq!(stat.pzxid, driver.tree.zxid() - 1);
    driver.delete("/p/a", -1).unwrap();
    let stat = driver.stat("/p");
    assert_eq!((stat.cversion, stat.num_children), (3, 1));
    assert_eq!(stat.pzxid, driver.tree.zxid());
    assert_eq!((stat.version, stat.mzxid), (0, stat.czxid));
}

#[test]
fn failed_writes_take_a_zxid_and_change_nothing_else() {
    let mut driver = Driver::new();
    driver.create("/a", CreateMode::Persistent).unwrap();
    let before = dump(&driver.tree);
    let zxid = driver.tree.zxid();
    let failures: [(Request<'_>, ErrorCode); 8] = [
        (
            Request::Create(plain(CreateOp::Create, "/a", 0, -1)),
            ErrorCode::NodeExists,
        ),
        (
            Request::Create(plain(CreateOp::Create, "/x/y", 0, -1)),
            ErrorCode::NoNode,
        ),
        (
            Request::Create(plain(CreateOp::Create, "x", 0, -1)),
            ErrorCode::BadArguments,
        ),
        (
            Request::Delete {
                path: "/",
                version: -1,
            },
            ErrorCode::BadArguments,
        ),
        (
            Request::Delete {
                path: "/zookeeper/config",
                version: -1,
            },
            ErrorCode::BadArguments,
        ),
        (
            Request::SetData {
                path: "/a",
                data: None,
                version: 5,
            },
            ErrorCode::BadVersion,
        ),
        (
            Request::Check {
                path: "/a",
                version: 0,
            },
            ErrorCode::Unimplemented,
        ),
        (
            Request::DeleteContainer { path: "/a" },
            ErrorCode::Unimplemented,
        ),
    ];
    for (place, (request, code)) in failures.iter().enumerate() {
        let outcome = driver.send_as(SESSION, request);
        assert_eq!(outcome.result, Err(*code), "{request:?}");
        assert_eq!(outcome.zxid, zxid + 1 + place as i64);
        assert!(driver.seen.is_empty());
    }
    let outcome = driver.apply(
        SESSION,
        Command::Write {
            op: OpCode::Create,
            body: b"\0\0\0\x09/too",
        },
    );
    assert_eq!(outcome.result, Err(ErrorCode::MarshallingError));
    assert_eq!(before[1..], dump(&driver.tree)[1..]);
}

#[test]
fn delete_of_a_path_with_an_empty_name_deletes_nothing() {
    let mut driver = Driver::new();
    driver.create("/a", CreateMode::Persistent).unwrap();
    driver.create("/a/b", CreateMode::Persistent).unwrap();
    for path in ["//a", "/a//b", "/a/b/", "//", "/a/"] {
        assert_eq!(driver.delete(path, -1), Err(ErrorCode::NoNode), "{path}");
    }
    assert_eq!(driver.delete("a", -1), Err(ErrorCode::BadArguments));
    assert_eq!(driver.tree.node_count(), 6);
}

#[test]
fn who_may_not_delete_below_the_root_gets_no_auth_for_a_path_with_an_empty_name_too() {
    let mut driver = Driver::new();
    let perms = Perms(Perms::ALL.0 & !Perms::DELETE.0);
    let acl = Some(vec![Acl::new(perms, "world", "anyone")]);
    let close = Request::SetAcl {
        path: "/",
        acl,
        version: -1,
    };
    driver.send(&close).unwrap();
    for path in ["//a", "//", "/nothing"] {
        assert_eq!(driver.delete(path, -1), Err(ErrorCode::NoAuth), "{path}");
    }
}

#[test]
fn sequential_numbers_count_every_create_and_survive_deletes() {
    let mut driver = Driver::new();
    let (first, _) = driver
        .create("/q-", CreateMode::PersistentSequential)
        .unwrap();
    assert_eq!(first, "/q-0000000000");
    driver.create("/other", CreateMode::Persistent).unwrap();
    driver.delete("/other", -1).unwrap();
    let (second, _) = driver
        .create("/q-", CreateMode::EphemeralSequential)
        .unwrap();
    assert_eq!(second, "/q-0000000002");
    let (bare, _) = driver
        .create("/", CreateMode::PersistentSequential)
        .unwrap();
    assert_eq!(bare, "/0000000003");
}

#[test]
fn kinds_of_znodes_show_the_owner_that_clients_expect() {
    let mut driver = Driver::new();
    let ttl = CreateMode::PersistentTtl { ttl_ms: 5 };
    for (path, mode, owner) in [
        ("/p", CreateMode::Persistent, 0),
        ("/e", CreateMode::Ephemeral, SESSION),
        ("/c", CreateMode::Container, 0),
        ("/t", ttl, 0),
    ] {
        let (_, stat) = driver.create(path, mode).unwrap();
        assert_eq!(stat.ephemeral_owner, owner, "{path}");
    }
    let below = driver.create("/e/child", CreateMode::Persistent);
    assert_eq!(below, Err(ErrorCode::NoChildrenForEphemerals));
    driver.create("/c/child", CreateMode::Persistent).unwrap();
    // Op 1 with the container's flag makes a persistent znode.
    driver
        .send(&Request::Create(plain(CreateOp::Create, "/flag4", 4, -1)))
        .unwrap();
    assert_eq!(due_at(&driver, i64::MAX, 1, 9).len(), 1);
    for ttl_ms in [0, -1, 1 << 40] {
        let request = Request::Create(plain(CreateOp::Ttl, "/t2", 5, ttl_ms));
        assert_eq!(driver.send(&request), Err(ErrorCode::BadArguments));
    }
}

#[test]
fn null_data_stays_null_and_empty_stays_empty() {
    let mut driver = Driver::new();
    let open = || vec![Acl::open_unsafe()];
    driver
        .create_with("/n", None, open(), CreateMode::Persistent)
        .unwrap();
    driver
        .create_with("/e", Some(b""), open(), CreateMode::Persistent)
        .unwrap();
    let data = |driver: &Driver, path| {
        let (data, stat) = driver.tree.get_data(path, &driver.identity).unwrap();
        assert_eq!(stat.data_length, 0);
        data.map(<[u8]>::to_vec)
    };
    assert_eq!(data(&driver, "/n"), None);
    assert_eq!(data(&driver, "/e"), Some(vec![]));
    driver.set("/n", b"", 0).unwrap();
    assert_eq!(data(&driver, "/n"), Some(vec![]));
}

#[test]
fn a_multi_sees_its_own_writes_and_shares_one_zxid() {
    let mut driver = Driver::new();
    let ops = vec![
        MultiOp::Create(plain(CreateOp::Create, "/m", 0, -1)),
        MultiOp::Create(plain(CreateOp::Create2, "/m/s-", 2, -1)),
        MultiOp::SetData {
            path: "/m",
            data: Some(b"1"),
            version: 0,
        },
        MultiOp::Check {
            path: "/m",
            version: 1,
        },
        MultiOp::Delete {
            path: "/m/s-0000000000",
            version: 0,
        },
    ];
    let outcome = driver.send_as(SESSION, &Request::Multi(ops));
    let Ok(Response::Multi(results)) = outcome.result else {
        panic!("{outcome:?}");
    };
    assert!(results.iter().all(|result| result.error().is_none()));
    let kinds: Vec<_> = driver
        .seen
        .iter()
        .map(|seen| (seen.kind, seen.path.as_str()))
        .collect();
    assert_eq!(
        kinds,
        [
            (ChangeKind::Created, "/m"),
            (ChangeKind::ChildrenChanged, "/"),
            (ChangeKind::Created, "/m/s-0000000000"),
            (ChangeKind::ChildrenChanged, "/m"),
            (ChangeKind::DataChanged, "/m"),
            (ChangeKind::Deleted, "/m/s-0000000000"),
            (ChangeKind::ChildrenChanged, "/m"),
        ]
    );
    let stat = driver.stat("/m");
    assert_eq!(
        (stat.czxid, stat.mzxid, stat.pzxid),
        (outcome.zxid, outcome.zxid, outcome.zxid)
    );
    assert_eq!((stat.version, stat.cversion), (1, 2));
}

#[test]
fn a_multi_that_fails_leaves_no_trace_and_says_which_operation_failed() {
    let mut driver = Driver::new();
    for path in ["/m", "/m/1", "/m/2", "/m/3"] {
        driver.create(path, CreateMode::Persistent).unwrap();
    }
    driver.create("/m/e", CreateMode::Ephemeral).unwrap();
    let before = dump(&driver.tree);
    let delete = |path| MultiOp::Delete { path, version: -1 };
    let secret = Create {
        acl: Some(vec![
            Acl::new(Perms::ALL, "digest", "a:b"),
            Acl::open_unsafe(),
        ]),
        ..plain(CreateOp::Create, "/m/secret", 0, -1)
    };
    let ops = vec![
        delete("/m/2"),
        MultiOp::Create(secret),
        MultiOp::Create(plain(CreateOp::Create, "/m/secret/below", 0, -1)),
        delete("/m/e"),
        MultiOp::Create(plain(CreateOp::Create, "/m/2", 1, -1)),
        MultiOp::SetData {
            path: "/m/1",
            data: None,
            version: 0,
        },
        delete("/m/1"),
        delete("/m/3"),
        delete("/m/secret"),
        delete("/m/2"),
    ];
    let expected = MultiResult::failure(ops.len(), 8, ErrorCode::NotEmpty);
    let result = driver.send(&Request::Multi(ops));
    assert_eq!(result, Ok(Response::Multi(expected)));
    assert!(driver.seen.is_empty());
    assert_eq!(before[1..], dump(&driver.tree)[1..]);
    assert_eq!(driver.children("/m"), ["1", "2", "3", "e"]);
    assert_eq!(driver.tree.acl_count(), 2);
    assert_eq!(
        driver.send(&Request::Multi(vec![])),
        Ok(Response::Multi(vec![]))
    );
}

#[test]
fn what_a_multi_deletes_takes_no_room_any_more() {
    let mut driver = Driver::new();
    add_digest(&mut driver.identity, b"ann:secret");
    let room = |tree: &Tree| {
        (
            tree.acl_count(),
            tree.node_count(),
            tree.approximate_bytes(),
        )
    };
    let before = room(&driver.tree);
    for _ in 0..3 {
        let acl = vec![Acl::creator_all()];
        driver
            .create_with("/own", Some(b"x"), acl, CreateMode::Persistent)
            .unwrap();
        assert_ne!(room(&driver.tree), before);
        let delete = MultiOp::Delete {
            path: "/own",
            version: -1,
        };
        driver.send(&Request::Multi(vec![delete])).unwrap();
        assert_eq!(room(&driver.tree), before);
    }
}

#[test]
fn acls_are_enforced_where_the_protocol_says() {
    let mut driver = Driver::new();
    let stranger = driver.identity.clone();
    let mut owner = stranger.clone();
    add_digest(&mut owner, b"ann:secret");
    driver.identity = owner.clone();
    let acl = vec![Acl::creator_all()];
    driver
        .create_with("/own", Some(b"x"), acl, CreateMode::Persistent)
        .unwrap();
    driver.create("/own/child", CreateMode::Persistent).unwrap();

    driver.identity = stranger.clone();
    let tree = &driver.tree;
    assert_eq!(tree.get_data("/own", &stranger), Err(ErrorCode::NoAuth));
    assert_eq!(tree.exists("/own", &stranger), Err(ErrorCode::NoAuth));
    assert_eq!(tree.exists("/nothing", &stranger), Err(ErrorCode::NoNode));
    assert!(tree.get_children("/own", &stranger).is_err());
    assert_eq!(tree.get_acl("/own", &stranger), Err(ErrorCode::NoAuth));
    assert_eq!(
        tree.count_descendants("/own", &stranger),
        Err(ErrorCode::NoAuth)
    );
    assert_eq!(driver.set("/own", b"", -1), Err(ErrorCode::NoAuth));
    assert_eq!(driver.delete("/own/child", -1), Err(ErrorCode::NoAuth));
    let create = driver.create("/own/other", CreateMode::Persistent);
    assert_eq!(create, Err(ErrorCode::NoAuth));
    let taken = driver.send(&Request::SetAcl {
        path: "/own",
        acl: Some(vec![Acl::open_unsafe()]),
        version: -1,
    });
    assert_eq!(taken, Err(ErrorCode::NoAuth));
    // The child is open itself, and the parent's ACL does not cover it.
    driver.set("/own/child", b"y", -1).unwrap();

    let mut superuser = Identity::anonymous();
    superuser.add("super", "");
    driver.tree.get_data("/own", &superuser).unwrap();
    driver.tree.get_data("/own", &owner).unwrap();
}

#[test]
fn delete_asks_for_permission_before_it_says_whether_the_znode_exists() {
    let mut driver = Driver::new();
    let stranger = driver.identity.clone();
    add_digest(&mut driver.identity, b"ann:secret");
    let acl = vec![Acl::creator_all()];
    driver
        .create_with("/own", None, acl, CreateMode::Persistent)
        .unwrap();
    driver.identity = stranger;
    assert_eq!(driver.delete("/own/missing", -1), Err(ErrorCode::NoAuth));
    assert_eq!(driver.delete("/missing/child", -1), Err(ErrorCode::NoNode));
}

#[test]
fn digests_are_masked_for_those_who_may_read_but_not_administer() {
    let mut driver = Driver::new();
    let reader = driver.identity.clone();
    let mut owner = reader.clone();
    let id = add_digest(&mut owner, b"ann:secret");
    driver.identity = owner.clone();
    let acl = vec![Acl::creator_all(), Acl::read_unsafe()];
    driver
        .create_with("/a", None, acl, CreateMode::Persistent)
        .unwrap();
    let shown = |identity| {
        driver.tree.get_acl("/a", identity).unwrap().0[0]
            .id
            .to_string()
    };
    assert_eq!(shown(&reader), "ann:x");
    assert_eq!(shown(&owner), id);
}

#[test]
fn set_acl_counts_its_own_version_and_notifies_no_watcher() {
    let mut driver = Driver::new();
    driver.create("/a", CreateMode::Persistent).unwrap();
    let set = |acl, version| Request::SetAcl {
        path: "/a",
        acl,
        version,
    };
    let before = driver.stat("/a");
    let read_only = Some(vec![Acl::read_unsafe()]);
    let admin = Some(vec![Acl::new(
        Perms::ADMIN | Perms::READ,
        "world",
        "anyone",
    )]);
    driver.send(&set(admin, 0)).unwrap();
    assert!(driver.seen.is_empty());
    assert_eq!(
        driver.send(&set(read_only.clone(), 0)),
        Err(ErrorCode::BadVersion)
    );
    driver.send(&set(read_only.clone(), 1)).unwrap();
    assert_eq!(driver.send(&set(read_only, 2)), Err(ErrorCode::NoAuth));
    assert_eq!(driver.send(&set(None, -1)), Err(ErrorCode::InvalidAcl));
    let stat = driver.stat("/a");
    assert_eq!(
        (stat.aversion, stat.version, stat.mzxid),
        (2, 0, before.mzxid)
    );
}

/// Slices of one step each, with sessions that have none, and changes between them.
#[test]
fn a_walk_over_all_ephemerals_in_slices_finds_each_once_whatever_changes_between_them() {
    let mut driver = Driver::new();
    let mut wanted = Vec::new();
    for session in SESSION + 1..SESSION + 9 {
        driver.open(session);
        for n in 0..session % 4 {
            let path = format!("/{session}-{n}");
            let create = Request::Create(plain(CreateOp::Create, &path, 1, 0));
            driver.send_as(session, &create);
            wanted.push((session, path));
        }
    }
    for (limit, max_bytes) in [(2, usize::MAX), (1000, 1), (1000, usize::MAX)] {
        let mut cursor = EphemeralCursor::default();
        let mut found = Vec::new();
        let mut slices = 0;
        while driver
            .tree
            .next_ephemerals(&mut cursor, limit, max_bytes, &mut found)
        {
            slices += 1;
            assert!(slices < 100, "it comes to an end");
            driver
                .create(&format!("/other-{slices}"), CreateMode::Ephemeral)
                .unwrap();
            driver.delete(&format!("/other-{slices}"), -1).unwrap();
        }
        found.retain(|(session, _)| *session != SESSION);
        found.sort();
        assert_eq!(found, wanted, "{limit} {max_bytes}");
        assert_eq!(slices > 0, limit == 2 || max_bytes == 1);
    }
    let ids = |after| driver.tree.sessions_after(after).map(|session| session.id);
    assert_eq!(
        ids(Some(SESSION + 6)).collect::<Vec<_>>(),
        [SESSION + 7, SESSION + 8]
    );
    assert_eq!(ids(None).count(), 9);
}

#[test]
fn a_closed_session_takes_its_ephemerals_in_order_under_one_zxid() {
    let mut driver = Driver::new();
    driver.create("/b", CreateMode::Persistent).unwrap();
    for path in ["/z", "/b/2", "/a", "/b/1"] {
        driver.create(path, CreateMode::Ephemeral).unwrap();
    }
    assert_eq!(driver.tree.ephemerals(SESSION, "/b"), ["/b/1", "/b/2"]);
    driver.close(SESSION, CloseReason::Expired).unwrap();
    let zxid = driver.tree.zxid();
    let deleted: Vec<_> = driver
        .seen
        .iter()
        .filter(|seen| seen.kind == ChangeKind::Deleted)
        .map(|seen| seen.path.as_str())
        .collect();
    assert_eq!(deleted, ["/a", "/b/1", "/b/2", "/z"]);
    assert!(driver.seen.iter().all(|seen| seen.zxid == zxid));
    assert_eq!(driver.tree.ephemeral_count(), 0);
    assert_eq!(driver.stat("/b").pzxid, zxid);

    let late = driver.create("/late", CreateMode::Persistent);
    assert_eq!(late, Err(ErrorCode::SessionExpired));
    assert_eq!(
        driver.close(SESSION, CloseReason::Client),
        Err(ErrorCode::SessionExpired)
    );
    assert_eq!(driver.tree.zxid(), zxid + 2);
}

#[test]
fn a_session_is_re_attached_by_its_password_only() {
    let mut driver = Driver::new();
    driver.create("/e", CreateMode::Ephemeral).unwrap();
    let zxid = driver.tree.zxid();
    let mut attach = |session_id, password| {
        let command = Command::ReattachSession {
            session_id,
            password,
            timeout_ms: 7_000,
        };
        driver.apply(session_id, command)
    };
    let wrong = attach(SESSION, [0; 16]).result;
    assert_eq!(wrong, Err(ErrorCode::SessionExpired));
    let unknown = attach(SESSION + 1, password(SESSION + 1)).result;
    assert_eq!(unknown, Err(ErrorCode::SessionExpired));
    let right = attach(SESSION, password(SESSION));
    assert_eq!((right.result, right.zxid), (Ok(Response::Empty), zxid));
    assert_eq!(driver.tree.session(SESSION).unwrap().timeout_ms, 7_000);
    assert_eq!(driver.tree.ephemeral_count(), 1);
}

#[test]
fn session_ids_that_read_as_other_owners_are_refused() {
    let mut driver = Driver::new();
    for session_id in [0, -1, i64::MIN, SESSION] {
        let command = Command::OpenSession {
            session_id,
            password: [0; 16],
            timeout_ms: 1,
        };
        let result = driver.apply(session_id, command).result;
        assert_eq!(result, Err(ErrorCode::BadArguments), "{session_id}");
    }
}

#[test]
fn containers_and_ttl_znodes_are_reaped_when_due_and_not_before() {
    let mut driver = Driver::new();
    driver.time_ms = 1_000;
    driver.create("/used", CreateMode::Container).unwrap();
    driver.create("/never", CreateMode::Container).unwrap();
    driver
        .create("/ttl", CreateMode::PersistentTtl { ttl_ms: 100 })
        .unwrap();
    driver.create("/used/x", CreateMode::Persistent).unwrap();
    let due = |driver: &Driver, now_ms, never_ms| -> Vec<String> {
        let candidates = due_at(driver, now_ms, never_ms, 10);
        candidates.into_iter().map(|due| due.path).collect()
    };
    assert!(due(&driver, 1_100, 0).is_empty());
    assert_eq!(due(&driver, 1_101, 0), ["/ttl"]);
    driver.delete("/used/x", -1).unwrap();
    assert_eq!(due(&driver, 1_100, 0), ["/used"]);
    assert_eq!(due(&driver, 1_101, 100), ["/used", "/never", "/ttl"]);
    assert_eq!(due_at(&driver, 1_101, 100, 2).len(), 2);

    driver.time_ms = 1_202;
    for due in due_at(&driver, 1_202, 150, 10) {
        reap(&mut driver, &due).unwrap();
        assert_eq!(driver.seen[0].kind, ChangeKind::Deleted);
    }
    assert_eq!(driver.children("/"), ["zookeeper"]);
}

/// The first slice of a walk.
fn due_at(driver: &Driver, now_ms: i64, never_ms: i64, most: usize) -> Vec<ReapCandidate> {
    let cursor = &mut ReapCursor::default();
    driver.tree.reap_candidates(now_ms, never_ms, cursor, most)
}

#[test]
fn a_walk_over_what_may_be_due_looks_at_a_bounded_number_at_a_time_and_at_each_once() {
    let mut driver = Driver::new();
    let ttl = CreateMode::PersistentTtl { ttl_ms: 100 };
    for n in 0..25 {
        driver.create(&format!("/ttl{n}"), ttl).unwrap();
        let container = format!("/container{n}");
        driver.create(&container, CreateMode::Container).unwrap();
    }
    driver.time_ms += 101;
    let cursor = &mut ReapCursor::default();
    let mut found = Vec::new();
    let mut slices = 0;
    while !cursor.is_at_end() {
        let due = driver.tree.reap_candidates(driver.time_ms, 0, cursor, 10);
        assert!(due.len() <= 10);
        slices += 1;
        for due in due {
            // What is deleted meanwhile does not lead the walk astray.
            reap(&mut driver, &due).unwrap();
            found.push(due.path);
        }
    }
    assert_eq!((slices, found.len()), (5, 25));
    assert_eq!(driver.children("/").len(), 26);
}

fn reap(driver: &mut Driver, due: &ReapCandidate) -> Result<Response, ErrorCode> {
    let path = due.path.as_str();
    let czxid = due.czxid;
    driver
        .apply(0, Command::DeleteContainer { path, czxid })
        .result
}

#[test]
fn r40_what_was_found_due_is_checked_again_when_its_deletion_is_applied() {
    let mut driver = Driver::new();
    driver.time_ms = 1_000;
    let ttl = CreateMode::PersistentTtl { ttl_ms: 100 };
    for path in ["/written", "/early", "/parent"] {
        driver.create(path, ttl).unwrap();
    }
    for path in ["/replaced", "/refilled"] {
        driver.create(path, CreateMode::Container).unwrap();
        let child = format!("{path}/x");
        driver.create(&child, CreateMode::Persistent).unwrap();
        driver.delete(&child, -1).unwrap();
    }
    // What the leader finds by a clock that runs ahead.
    let found = due_at(&driver, 1_101, 0, 10);
    assert_eq!(found.len(), 5);
    // The batch of the deletion says an earlier time.
    driver.time_ms = 1_100;
    driver.set("/written", b"again", -1).unwrap();
    driver.create("/parent/x", CreateMode::Persistent).unwrap();
    driver.delete("/replaced", -1).unwrap();
    driver.create("/replaced", CreateMode::Container).unwrap();
    driver
        .create("/refilled/y", CreateMode::Persistent)
        .unwrap();
    let before = driver.children("/");
    for due in &found {
        let refusal = match due.path.as_str() {
            "/parent" | "/refilled" => ErrorCode::NotEmpty,
            _ => ErrorCode::BadVersion,
        };
        assert_eq!(reap(&mut driver, due), Err(refusal), "{due:?}");
        assert!(driver.seen.is_empty(), "{due:?}");
    }
    assert_eq!(driver.children("/"), before);
    // A second deletion of one znode, by the leader that came next, finds nothing.
    driver.time_ms = 1_101;
    let early = found.iter().find(|due| due.path == "/early").unwrap();
    reap(&mut driver, early).unwrap();
    assert_eq!(reap(&mut driver, early), Err(ErrorCode::NoNode));
}

#[test]
fn children_are_listed_in_the_order_of_their_creation() {
    let mut driver = Driver::new();
    for path in ["/c", "/a", "/b"] {
        driver.create(path, CreateMode::Persistent).unwrap();
    }
    driver.delete("/a", -1).unwrap();
    driver.create("/a", CreateMode::Persistent).unwrap();
    assert_eq!(driver.children("/"), ["zookeeper", "c", "b", "a"]);
}

/// An event shows the ACL that was in force, a deleted znode's own.
#[test]
fn changes_carry_the_acl_that_filters_their_events() {
    struct Filter(Identity, Vec<(ChangeKind, bool)>);
    impl Effects for Filter {
        fn event(&mut self, change: Change<'_>) {
            let may_read = change.acl.permits(&self.0, Perms::READ);
            self.1.push((change.kind, may_read));
        }
    }
    let mut driver = Driver::new();
    let stranger = driver.identity.clone();
    add_digest(&mut driver.identity, b"ann:secret");
    let acl = vec![Acl::creator_all()];
    driver
        .create_with("/a", None, acl, CreateMode::Persistent)
        .unwrap();
    let mut body = Vec::new();
    let request = Request::Multi(vec![MultiOp::Delete {
        path: "/a",
        version: -1,
    }]);
    request.encode(&mut body);
    let mut filter = Filter(stranger, Vec::new());
    let command = Command::Write {
        op: OpCode::Multi,
        body: &body,
    };
    driver
        .tree
        .apply(0, SESSION, &driver.identity, command, &mut filter);
    assert_eq!(
        filter.1,
        [
            (ChangeKind::Deleted, false),
            (ChangeKind::ChildrenChanged, true)
        ]
    );
}

#[test]
fn digests_differ_where_states_differ() {
    let mut digests = vec![Tree::new().digest()];
    let mut driver = Driver::new();
    digests.push(driver.tree.digest());
    driver.create("/a", CreateMode::Persistent).unwrap();
    digests.push(driver.tree.digest());
    for step in 0..4 {
        let mut twin = Driver::new();
        if step == 3 {
            twin.time_ms += 1;
        }
        let path = if step == 0 { "/b" } else { "/a" };
        let data: &[u8] = if step == 1 { b"y" } else { b"x" };
        let acl = if step == 2 {
            Acl::read_unsafe()
        } else {
            Acl::open_unsafe()
        };
        twin.create_with(path, Some(data), vec![acl], CreateMode::Persistent)
            .unwrap();
        digests.push(twin.tree.digest());
    }
    let count = digests.len();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), count);
}

/// The clocks of a majority were ten years ahead for a moment, or one was under an earlier version.
#[test]
fn a_time_that_was_ahead_is_set_back_with_the_dates_of_that_time() {
    const AHEAD_MS: i64 = 1_000_000_000;
    let mut driver = Driver::over(tree_at(FormatLevel::NEWEST));
    let ttl = CreateMode::PersistentTtl { ttl_ms: 100 };
    driver.create("/before", CreateMode::Persistent).unwrap();
    driver.time_ms = AHEAD_MS;
    driver.create("/then", ttl).unwrap();
    driver.set("/before", b"changed", -1).unwrap();
    driver.time_ms = 2_000;
    driver.create("/behind", CreateMode::Persistent).unwrap();
    assert_eq!(driver.stat("/behind").ctime, AHEAD_MS, "time stands");
    // A snapshot that was begun before has what was there then.
    let before = dump(&driver.tree);
    driver.tree.begin_snapshot().unwrap();
    let reset = Command::ResetTime { to_ms: 2_000 };
    assert_eq!(driver.apply(0, reset).result, Ok(Response::Empty));
    let mut slices = Vec::new();
    while let Some(slice) = driver.tree.snapshot_slice(64) {
        slices.push(slice);
    }
    assert_eq!(dump(&restored(&slices)), before);
    assert_eq!(driver.tree.time_ms(), 2_000);
    let dates = |path| {
        let stat = driver.stat(path);
        (stat.ctime, stat.mtime)
    };
    assert_eq!(dates("/before"), (1_000, 2_000));
    assert_eq!(dates("/then"), (2_000, 2_000));
    assert_eq!(dates("/behind"), (2_000, 2_000));
    // The digest is that of anyone who is restored from the state.
    driver.tree.begin_snapshot().unwrap();
    let mut slices = Vec::new();
    while let Some(slice) = driver.tree.snapshot_slice(64) {
        slices.push(slice);
    }
    assert_eq!(restored(&slices).digest(), driver.tree.digest());
    driver.time_ms = 2_101;
    driver.create("/after", CreateMode::Persistent).unwrap();
    assert_eq!(driver.stat("/after").ctime, 2_101, "time goes on");
    // Not forward, and not before every server knows the command.
    driver.apply(0, Command::ResetTime { to_ms: 9_000 });
    assert_eq!(driver.tree.time_ms(), 2_101);
    let mut early = Driver::over(tree_at(FormatLevel::BoundedCommands));
    let outcome = early.apply(0, reset);
    assert_eq!(outcome.result, Err(ErrorCode::BadArguments));
}

fn restored(slices: &[Vec<u8>]) -> Tree {
    let mut restore = Restore::new();
    for slice in slices {
        restore.chunk(slice).unwrap();
    }
    restore.finish().unwrap()
}
