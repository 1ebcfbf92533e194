//! Cost of one command or read: it does not grow with sizes that clients choose elsewhere: the
//! operations of a multi are bounded, what is below a znode is counted as it changes, and the names
//! of many children are shared by those who list them.

use baton_proto::{CreateMode, ErrorCode, MultiOp, MultiResult, Request, Response, path};
use baton_tree::{FormatLevel, Identity, MAX_CHUNK_BYTES, MultiBounds, Tree};

use crate::common::{Driver, drain, plain, restore, tree_at};

/// More children than the tree lists one by one.
const MANY: usize = 4200;

fn client_of(names: usize) -> Identity {
    (0..names)
        .map(|n| baton_tree::AuthId {
            scheme: "digest".to_owned(),
            id: format!("{n}:x"),
        })
        .collect()
}

fn checks(operations: usize) -> Request<'static> {
    let check = MultiOp::Check {
        path: "/",
        version: -1,
    };
    Request::Multi(vec![check; operations])
}

#[test]
fn a_multi_over_its_bounds_is_refused_from_the_level_of_the_bounds_on() {
    let names = 64;
    let most_of_one = MultiBounds::OPERATIONS;
    let most_of_many = MultiBounds::CHECKS / names;
    for (names, most) in [(1, most_of_one), (names, most_of_many)] {
        for (level, expected) in [
            (FormatLevel::SessionIdentities, Ok(())),
            (FormatLevel::BoundedMultis, Err(ErrorCode::BadArguments)),
        ] {
            let mut driver = Driver::over(tree_at(level));
            driver.identity = client_of(names);
            let zxid = driver.tree.zxid();
            let Ok(Response::Multi(results)) = driver.send(&checks(most)) else {
                panic!("{most} operations are within the bounds");
            };
            assert_eq!(results, vec![MultiResult::Check; most]);
            let over = driver.send(&checks(most + 1)).map(|_| ());
            assert_eq!(over, expected, "{level:?}, {names} names");
            assert_eq!(driver.tree.zxid(), zxid + 2, "each takes one");
        }
    }
}

fn below(tree: &Tree, path: &str) -> i32 {
    tree.count_descendants(path, &Identity::anonymous())
        .unwrap()
}

/// The usage that a new quota of the path shows.
fn weight(driver: &mut Driver, of: &str) -> String {
    let mut at = "/zookeeper/quota".to_owned();
    for name in of[1..].split('/') {
        at = path::join(&at, name);
        let _ = driver.create(&at, CreateMode::Persistent);
    }
    let stats = path::join(&at, "zookeeper_stats");
    driver.create(&stats, CreateMode::Persistent).unwrap();
    let (data, _) = driver.tree.get_data(&stats, &driver.identity).unwrap();
    let shown = String::from_utf8(data.unwrap().to_vec()).unwrap();
    driver.delete(&stats, -1).unwrap();
    shown
}

#[test]
fn what_is_below_a_znode_is_known_after_writes_a_roll_back_and_a_restore() {
    let mut driver = Driver::new();
    for path in ["/a", "/a/b", "/a/b/c", "/a/d"] {
        driver.create(path, CreateMode::Persistent).unwrap();
    }
    driver.set("/a/b/c", b"twelve bytes", -1).unwrap();
    driver.set("/a/d", b"", -1).unwrap();
    let set = |path, data| MultiOp::SetData {
        path,
        data: Some(data),
        version: -1,
    };
    let failing = Request::Multi(vec![
        MultiOp::Create(plain(baton_proto::CreateOp::Create, "/a/b/c/e", 0, 0)),
        set("/a/b/c", b"more than twelve bytes"),
        MultiOp::Delete {
            path: "/a/d",
            version: -1,
        },
        MultiOp::Check {
            path: "/missing",
            version: -1,
        },
    ]);
    assert!(matches!(driver.send(&failing), Ok(Response::Multi(_))));
    let expected = [
        ("/a", 3, "count=4,bytes=14"),
        ("/a/b", 1, "count=2,bytes=13"),
    ];
    for (path, descendants, usage) in expected {
        assert_eq!(below(&driver.tree, path), descendants);
        assert_eq!(weight(&mut driver, path), usage);
    }
    driver.tree.begin_snapshot().unwrap();
    let chunks = drain(&mut driver.tree, MAX_CHUNK_BYTES);
    driver.tree = restore(&chunks).unwrap();
    for (path, descendants, usage) in expected {
        assert_eq!(below(&driver.tree, path), descendants, "restored");
        assert_eq!(weight(&mut driver, path), usage, "restored");
    }
    driver.delete("/a/b/c", -1).unwrap();
    assert_eq!(below(&driver.tree, "/a"), 2);
    assert_eq!(weight(&mut driver, "/a"), "count=3,bytes=2");
    let all = driver.tree.node_count() - 1;
    assert_eq!(below(&driver.tree, "/"), all as i32);
}

/// Each write below a quota reads its text.
#[test]
fn a_long_text_of_a_quota_says_nothing_from_the_level_of_the_bounds_on() {
    for (level, expected) in [
        (
            FormatLevel::SessionIdentities,
            Err(ErrorCode::QuotaExceeded),
        ),
        (FormatLevel::BoundedMultis, Ok(())),
    ] {
        let mut driver = Driver::over(tree_at(level));
        driver.create("/a", CreateMode::Persistent).unwrap();
        weight(&mut driver, "/a");
        for part in ["zookeeper_stats", "zookeeper_limits"] {
            let path = path::join("/zookeeper/quota/a", part);
            driver.create(&path, CreateMode::Persistent).unwrap();
        }
        let limits = "/zookeeper/quota/a/zookeeper_limits";
        let hard = "countHardLimit=1,";
        driver.set(limits, hard.as_bytes(), -1).unwrap();
        let refused = driver.create("/a/b", CreateMode::Persistent);
        assert_eq!(refused.map(|_| ()), Err(ErrorCode::QuotaExceeded));
        let long = hard.repeat(1024 / hard.len() + 1);
        driver.set(limits, long.as_bytes(), -1).unwrap();
        let outcome = driver.create("/a/b", CreateMode::Persistent);
        assert_eq!(outcome.map(|_| ()), expected, "{level:?}");
    }
}

#[test]
fn a_list_of_quotas_looks_at_a_bounded_number_of_znodes() {
    const QUOTAS: usize = 5000;
    let mut driver = Driver::new();
    for n in 0..QUOTAS {
        let quota = format!("/zookeeper/quota/{n}");
        driver.create(&quota, CreateMode::Persistent).unwrap();
        for part in ["zookeeper_limits", "zookeeper_stats"] {
            let path = path::join(&quota, part);
            driver.create(&path, CreateMode::Persistent).unwrap();
        }
    }
    let shown = driver.tree.quota_states().len();
    assert!((1..=4096).contains(&shown), "{shown}");
}

/// Names of all children, as both ways show them.
fn listed(driver: &Driver) -> Vec<String> {
    let (names, _) = driver.tree.get_children("/many", &driver.identity).unwrap();
    let names: Vec<String> = names.map(str::to_owned).collect();
    if let Some(listing) = driver.tree.listing("/many") {
        assert_eq!((listing.names(), listing.blocks() > 0), (names.len(), true));
        assert_eq!(listing.collect::<Vec<_>>(), names);
    }
    names
}

#[test]
fn a_listing_of_many_children_is_of_one_moment_whatever_happens_after_it() {
    let mut driver = Driver::new();
    driver.create("/many", CreateMode::Persistent).unwrap();
    let path = |n: usize| format!("/many/{n}");
    for n in 0..MANY {
        driver.create(&path(n), CreateMode::Persistent).unwrap();
    }
    let before = listed(&driver);
    let kept = driver.tree.listing("/many").expect("they are many");
    let delete = |path| MultiOp::Delete { path, version: -1 };
    let (first, mid, last) = (path(0), path(MANY / 2), path(MANY - 1));
    let failing = Request::Multi(vec![
        delete(&last),
        delete(&first),
        MultiOp::Create(plain(baton_proto::CreateOp::Create, &first, 0, 0)),
        delete(&mid),
        delete("/missing"),
    ]);
    assert!(matches!(driver.send(&failing), Ok(Response::Multi(_))));
    assert_eq!(listed(&driver), before, "rolled back");
    for path in [&first, &mid, &last] {
        driver.delete(path, -1).unwrap();
    }
    driver.create(&mid, CreateMode::Persistent).unwrap();
    assert_eq!(kept.collect::<Vec<_>>(), before);
    let after = listed(&driver);
    assert_eq!(after.len(), MANY - 2);
    assert_eq!(after.last().map(String::as_str), mid.strip_prefix("/many/"));
    driver.tree.begin_snapshot().unwrap();
    let chunks = drain(&mut driver.tree, MAX_CHUNK_BYTES);
    driver.tree = restore(&chunks).unwrap();
    assert!(driver.tree.listing("/many").is_some(), "restored");
    assert_eq!(listed(&driver), after, "restored");
    for name in &after {
        driver.delete(&path::join("/many", name), -1).unwrap();
        if name.len() == 1 {
            listed(&driver);
        }
    }
    assert!(driver.tree.listing("/many").is_none());
    assert_eq!(listed(&driver), Vec::<String>::new());
}

#[test]
fn replicas_with_other_seeds_are_in_one_state() {
    let mut one = Driver::over(Tree::seeded(1));
    let mut other = Driver::over(Tree::seeded(0xdead_beef));
    for driver in [&mut one, &mut other] {
        for n in 0..100 {
            let path = format!("/{n}");
            driver.create(&path, CreateMode::Ephemeral).unwrap();
        }
        driver.delete("/7", -1).unwrap();
    }
    assert_eq!(one.tree.digest(), other.tree.digest());
    one.tree.begin_snapshot().unwrap();
    let mut restored = baton_tree::Restore::seeded(9);
    for chunk in drain(&mut one.tree, MAX_CHUNK_BYTES) {
        restored.chunk(&chunk).unwrap();
    }
    let restored = restored.finish().unwrap();
    assert_eq!(restored.digest(), other.tree.digest());
    assert_eq!(below(&restored, "/"), below(&other.tree, "/"));
}
