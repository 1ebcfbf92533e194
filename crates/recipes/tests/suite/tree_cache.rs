//! The cache of a subtree, and its hazards (`docs/internals/hazards.md` §3.6).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use baton::cache::{CacheError, CacheEvent, CacheEvents, CacheStatus, Change, Snapshot, Update};
use baton::tree::CreateMode;
use baton::{Client, TreeCache};
use baton_client::{Acl, Op, OpCode, Perms, Session};
use baton_testkit::{Match, Variant, inspect};
use tokio::task::JoinSet;

use crate::common::{CUTS, LONG, SHORT, Stage, session, within};

const ROOMY: Duration = Duration::from_secs(4);

fn cache(client: &Client, path: &str) -> TreeCache {
    TreeCache::builder(client, path).unwrap().start().unwrap()
}

async fn put(session: &Session, path: &str, data: &str) {
    let made = session
        .create(path, data.as_bytes(), CreateMode::Persistent)
        .await;
    match made {
        Ok(_) => {}
        Err(error) if error.is_node_exists() => {
            session.set_data(path, data.as_bytes(), None).await.unwrap();
        }
        Err(error) => panic!("{error}"),
    }
}

/// Paths below `root` and data.
fn shown(snapshot: &Snapshot, root: &str) -> Vec<(String, String)> {
    let text = |data: &[u8]| String::from_utf8_lossy(data).into_owned();
    let entry = |(path, node): (&str, &baton::cache::CachedNode)| {
        (
            path.strip_prefix(root).unwrap().to_owned(),
            text(&node.data),
        )
    };
    snapshot.iter().map(entry).collect()
}

fn changes(update: &Update, root: &str) -> Vec<String> {
    let name = |path: &Arc<str>| path.strip_prefix(root).unwrap().to_owned();
    let text = |change: &Change| match change {
        Change::Created { path, .. } => format!("+{}", name(path)),
        Change::Changed { path, .. } => format!("~{}", name(path)),
        Change::Deleted { path, .. } => format!("-{}", name(path)),
        _ => panic!("unknown change"),
    };
    update.changes.iter().map(text).collect()
}

async fn update(events: &mut CacheEvents) -> Arc<Update> {
    match within(events.next()).await.unwrap() {
        CacheEvent::Update(update) => update,
        other => panic!("{other:?}"),
    }
}

async fn reset(events: &mut CacheEvents) -> Snapshot {
    match within(events.next()).await.unwrap() {
        CacheEvent::Reset(snapshot) => snapshot,
        other => panic!("{other:?}"),
    }
}

async fn until(cache: &TreeCache, good: impl Fn(&CacheStatus) -> bool) -> CacheStatus {
    let mut status = cache.status();
    while !good(&status) {
        status = within(cache.status_other_than(&status)).await;
    }
    status
}

#[tokio::test]
async fn the_view_is_the_subtree_and_each_step_leads_to_the_next() {
    let stage = Stage::new("view").await;
    let writer = session(&stage.client().await).await;
    let root = &*stage.path;
    let at = |below: &str| format!("{root}{below}");
    for (path, data) in [
        ("", "root"),
        ("/a", "1"),
        ("/a/b", "2"),
        ("/a/b/c", "3"),
        ("/a-z", "4"),
    ] {
        put(&writer, &at(path), data).await;
    }
    let client = stage.client().await;
    let cache = cache(&client, root);
    let mut events = cache.events();
    let first = reset(&mut events).await;
    let expected = [
        ("", "root"),
        ("/a", "1"),
        ("/a-z", "4"),
        ("/a/b", "2"),
        ("/a/b/c", "3"),
    ];
    assert_eq!(
        shown(&first, root),
        expected.map(|(p, d)| (p.to_owned(), d.to_owned()))
    );
    assert_eq!(first.children(root).collect::<Vec<_>>(), ["a", "a-z"]);
    assert!(first.is_exact() && first.as_of() > 0);

    // One multi is one step.
    writer
        .multi(&[
            Op::delete(at("/a/b/c"), None),
            Op::set_data(at("/a"), "1.1", None),
            Op::create(at("/n"), "5", CreateMode::Persistent),
            Op::create(at("/n/m"), "6", CreateMode::Ephemeral),
            Op::delete(at("/a-z"), None),
            Op::create(at("/a-z"), "again", CreateMode::Persistent),
        ])
        .await
        .unwrap();
    let step = update(&mut events).await;
    assert_eq!(
        changes(&step, root),
        ["-/a/b/c", "-/a-z", "~/a", "+/a-z", "+/n", "+/n/m"]
    );
    let now = within(cache.catch_up()).await.unwrap();
    assert_eq!(now.as_of(), step.as_of.max(now.as_of()));
    assert_eq!(now.get(&at("/a/b")).unwrap().stat.num_children, 0);
    assert_eq!(now.get(&at("/n")).unwrap().stat.num_children, 1);
    assert!(
        first.get(&at("/a/b/c")).is_some(),
        "a snapshot never changes"
    );

    let shallow = TreeCache::builder(&client, root)
        .unwrap()
        .max_depth(1)
        .start()
        .unwrap();
    assert_eq!(within(shallow.ready()).await.unwrap().len(), 4);
    put(&writer, &at("/n/deep"), "").await;
    assert_eq!(within(shallow.catch_up()).await.unwrap().len(), 4);
}

#[tokio::test]
async fn h82_what_happened_during_a_gap_is_found_deletions_included() {
    let mut cases = JoinSet::new();
    for variant in CUTS {
        cases.spawn(change_during_gap(variant));
    }
    while let Some(case) = cases.join_next().await {
        case.unwrap();
    }
}

async fn change_during_gap(variant: Variant) {
    let stage = Stage::new("h82").await;
    let root = &*stage.path;
    let at = |below: &str| format!("{root}{below}");
    let writer = session(&stage.client().await).await;
    for path in [
        "",
        "/kept",
        "/changed",
        "/deleted",
        "/deleted/below",
        "/replaced",
    ] {
        put(&writer, &at(path), "before").await;
    }
    let (client, proxy) = stage.proxied(ROOMY).await;
    let cache = cache(&client, root);
    let mut events = cache.events();
    reset(&mut events).await;
    proxy.refuse();
    proxy.cut_all(variant);
    until(&cache, |status| *status == CacheStatus::Interrupted).await;
    writer.delete(&at("/deleted/below"), None).await.unwrap();
    writer.delete(&at("/deleted"), None).await.unwrap();
    writer.delete(&at("/replaced"), None).await.unwrap();
    put(&writer, &at("/replaced"), "before").await;
    put(&writer, &at("/changed"), "after").await;
    put(&writer, &at("/created"), "after").await;
    put(&writer, &at("/created/below"), "after").await;
    assert_eq!(cache.snapshot().len(), 6, "as it was");
    proxy.heal();
    let step = update(&mut events).await;
    assert_eq!(
        changes(&step, root),
        [
            "-/replaced",
            "-/deleted/below",
            "-/deleted",
            "~/changed",
            "+/created",
            "+/created/below",
            "+/replaced"
        ],
        "{variant:?}"
    );
    until(&cache, |status| *status == CacheStatus::Live).await;
    // The watch is there again.
    put(&writer, &at("/later"), "").await;
    assert_eq!(changes(&*update(&mut events).await, root), ["+/later"]);
}

#[tokio::test]
async fn h82_a_lost_session_is_a_gap_like_another() {
    let stage = Stage::new("h82lost").await;
    let root = &*stage.path;
    let writer = session(&stage.client().await).await;
    put(&writer, root, "").await;
    put(&writer, &format!("{root}/a"), "").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let cache = cache(&client, root);
    let mut events = cache.events();
    reset(&mut events).await;
    let before = session(&client).await;
    proxy.partition();
    within(before.ended()).await;
    writer.delete(&format!("{root}/a"), None).await.unwrap();
    proxy.heal();
    assert_eq!(changes(&*update(&mut events).await, root), ["-/a"]);
    put(&writer, &format!("{root}/b"), "").await;
    assert_eq!(changes(&*update(&mut events).await, root), ["+/b"]);
}

#[tokio::test]
async fn h82_a_reconnect_without_changes_reports_nothing_and_reads_once() {
    let stage = Stage::new("h82quiet").await;
    let root = &*stage.path;
    let writer = session(&stage.client().await).await;
    put(&writer, root, "").await;
    for child in 0..20 {
        put(&writer, &format!("{root}/{child}"), "").await;
    }
    let (client, proxy) = stage.proxied(LONG).await;
    let cache = cache(&client, root);
    let mut events = cache.events();
    reset(&mut events).await;
    proxy.clear_frames();
    let mut states = session(&client).await.states();
    proxy.cut_all(Variant::Rst);
    while !within(states.next()).await.unwrap().is_connected() {}
    until(&cache, |status| *status == CacheStatus::Live).await;
    within(cache.catch_up()).await.unwrap();
    let reads = proxy.count(&Match::request(OpCode::GetData));
    assert!(reads <= 2 * 21, "{reads} reads of 21 nodes");
    put(&writer, &format!("{root}/later"), "").await;
    assert_eq!(changes(&*update(&mut events).await, root), ["+/later"]);
}

#[tokio::test]
async fn h82_an_absent_root_is_waited_for_and_leaves_no_watch() {
    let stage = Stage::new("h82absent").await;
    let root = &*stage.path;
    let writer = session(&stage.client().await).await;
    let client = stage.client().await;
    let watcher = session(&client).await;
    let before = inspect::watch_count(stage.addr).await.unwrap();
    for _ in 0..20 {
        let cache = cache(&client, root);
        assert!(within(cache.ready()).await.unwrap().is_empty());
    }
    let left = within(async {
        loop {
            watcher.sync("/").await.unwrap();
            let now = inspect::watch_count(stage.addr).await.unwrap();
            if now <= before {
                return now;
            }
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(left.await, before);
    let cache = cache(&client, root);
    let mut events = cache.events();
    assert!(reset(&mut events).await.is_empty());
    for _ in 0..2 {
        put(&writer, root, "").await;
        assert_eq!(changes(&*update(&mut events).await, root), ["+"]);
        writer.delete(root, None).await.unwrap();
        assert_eq!(changes(&*update(&mut events).await, root), ["-"]);
    }
}

/// Two nodes that are only ever written together are never seen apart, and the steps add up to the
/// snapshots, while the connection is cut over and over.
#[tokio::test]
async fn h82_every_state_that_is_shown_is_one_that_the_tree_had() {
    let stage = Stage::new("h82pairs").await;
    let root = stage.path.clone();
    let writer = session(&stage.client().await).await;
    put(&writer, &root, "").await;
    for name in ["left", "right"] {
        put(&writer, &format!("{root}/{name}"), "0").await;
    }
    let (client, proxy) = stage.proxied(LONG).await;
    let cache = cache(&client, &root);
    let mut events = cache.events();
    let mut view: BTreeMap<Arc<str>, baton::cache::CachedNode> = reset(&mut events)
        .await
        .iter()
        .map(|(path, node)| (Arc::from(path), node.clone()))
        .collect();
    let writing = {
        let root = root.clone();
        tokio::spawn(async move {
            for round in 1..=300 {
                let both = ["left", "right"]
                    .map(|name| Op::set_data(format!("{root}/{name}"), round.to_string(), None));
                writer.multi(&both).await.unwrap();
                let extra = format!("{root}/extra-{}", round % 7);
                if round % 2 == 0 {
                    put(&writer, &extra, "").await;
                } else {
                    let _ = writer.delete(&extra, None).await;
                }
                if round % 60 == 0 {
                    proxy.cut_all(Variant::Rst);
                }
            }
            proxy
        })
    };
    let at = |name: &str| -> Arc<str> { Arc::from(format!("{root}/{name}")) };
    let mut as_of = 0;
    loop {
        match within(events.next()).await.unwrap() {
            CacheEvent::Update(update) => {
                assert!(update.as_of > as_of);
                as_of = update.as_of;
                for change in update.changes.clone() {
                    match change {
                        Change::Created { path, node } => {
                            assert_eq!(view.insert(path, node), None);
                        }
                        Change::Changed { path, new, .. } => {
                            assert!(view.insert(path, new).is_some());
                        }
                        Change::Deleted { path, .. } => assert!(view.remove(&path).is_some()),
                        _ => panic!("unknown change"),
                    }
                }
            }
            CacheEvent::Reset(snapshot) => {
                let nodes = snapshot.iter();
                view = nodes
                    .map(|(path, node)| (Arc::from(path), node.clone()))
                    .collect();
            }
            _ => panic!("unknown event"),
        }
        assert_eq!(view[&at("left")].data, view[&at("right")].data);
        if view[&at("left")].data == "300" {
            break;
        }
    }
    let _proxy = within(writing).await.unwrap();
    let now = within(cache.catch_up()).await.unwrap();
    let tree = inspect::tree(stage.addr, &root).await.unwrap();
    let server: Vec<_> = tree.iter().map(|node| (&*node.path, node.stat)).collect();
    let mut ours: Vec<_> = now.iter().map(|(path, node)| (path, node.stat)).collect();
    ours.sort_by_key(|(path, _)| *path);
    let mut server = server;
    server.sort_by_key(|(path, _)| *path);
    assert_eq!(ours, server);
}

#[tokio::test]
async fn h83_a_refused_read_is_tried_again_after_growing_pauses() {
    let stage = Stage::new("h83").await;
    let root = &*stage.path;
    let writer = session(&stage.client().await).await;
    let sealed = [Acl::new(Perms::ADMIN, "world", "anyone")];
    writer
        .create_with_acl(root, b"x", CreateMode::Persistent, &sealed)
        .await
        .unwrap();
    let (client, proxy) = stage.proxied(LONG).await;
    let cache = cache(&client, root);
    let status = until(
        &cache,
        |status| matches!(status, CacheStatus::Retrying { attempts, .. } if *attempts >= 3),
    )
    .await;
    let CacheStatus::Retrying {
        attempts,
        pause,
        error,
    } = status
    else {
        panic!("{status:?}");
    };
    assert!(matches!(error, CacheError::Client { .. }), "{error}");
    assert!(pause >= Duration::from_millis(200), "{pause:?}");
    assert!(attempts < 20, "{attempts}");
    for _ in 0..500 {
        writer.sync("/").await.unwrap();
    }
    let asked = proxy.count(&Match::request(OpCode::AddWatch));
    assert!(asked <= 10, "a storm: {asked} watches");
    writer
        .set_acl(root, &[Acl::open_unsafe()], None)
        .await
        .unwrap();
    assert_eq!(within(cache.ready()).await.unwrap().len(), 1);
    assert_eq!(cache.status(), CacheStatus::Live);
}

#[tokio::test]
async fn h84_a_listener_that_panics_or_sleeps_holds_up_nobody() {
    let stage = Stage::new("h84").await;
    let root = stage.path.clone();
    let writer = session(&stage.client().await).await;
    let client = stage.client().await;
    let cache = TreeCache::builder(&client, &root)
        .unwrap()
        .backlog(4)
        .start()
        .unwrap();
    let (mut prompt, mut late, mut panics) = (cache.events(), cache.events(), cache.events());
    reset(&mut prompt).await;
    reset(&mut late).await;
    let panicked = tokio::spawn(async move {
        panics.next().await;
        panic!("on purpose");
    });
    assert!(within(panicked).await.is_err());
    put(&writer, &root, "").await;
    assert_eq!(changes(&*update(&mut prompt).await, &root), ["+"]);
    for child in 0..20 {
        put(&writer, &format!("{root}/{child}"), "").await;
        assert_eq!(
            changes(&*update(&mut prompt).await, &root),
            [format!("+/{child}")]
        );
    }
    assert_eq!(reset(&mut late).await.len(), 21, "caught up with one event");
    put(&writer, &format!("{root}/last"), "").await;
    assert_eq!(changes(&*update(&mut late).await, &root), ["+/last"]);
    drop(cache);
    assert_eq!(changes(&*update(&mut prompt).await, &root), ["+/last"]);
    assert!(
        within(prompt.next()).await.is_none(),
        "the cache has stopped"
    );
}

#[tokio::test]
async fn a_subtree_over_the_limit_is_a_typed_status_and_the_view_stays() {
    let stage = Stage::new("limit").await;
    let root = &*stage.path;
    let writer = session(&stage.client().await).await;
    put(&writer, root, "").await;
    let client = stage.client().await;
    let builder = || TreeCache::builder(&client, root).unwrap();
    let few = builder().max_nodes(3).start().unwrap();
    let small = builder().max_bytes(1_500).start().unwrap();
    for cache in [&few, &small] {
        within(cache.ready()).await.unwrap();
    }
    for child in 0..4 {
        put(&writer, &format!("{root}/{child}"), &"x".repeat(600)).await;
    }
    for cache in [&few, &small] {
        let status = until(cache, |status| {
            matches!(status, CacheStatus::Retrying { .. })
        })
        .await;
        let CacheStatus::Retrying { error, .. } = status else {
            panic!("{status:?}");
        };
        assert!(matches!(error, CacheError::TooLarge { .. }), "{error}");
        assert!(cache.snapshot().len() <= 3);
    }
    for child in 1..4 {
        writer
            .delete(&format!("{root}/{child}"), None)
            .await
            .unwrap();
    }
    for cache in [&few, &small] {
        assert_eq!(within(cache.catch_up()).await.unwrap().len(), 2);
        assert_eq!(cache.status(), CacheStatus::Live);
    }
}

#[tokio::test]
async fn bad_paths_are_refused_and_a_closed_client_ends_the_cache() {
    let stage = Stage::new("bad").await;
    let client = stage.client().await;
    for path in ["", "relative", "/a//b", "/a/"] {
        let refused = TreeCache::builder(&client, path);
        assert!(
            matches!(refused, Err(CacheError::BadPath { .. })),
            "{path:?}"
        );
    }
    let cache = cache(&client, &stage.path);
    within(cache.ready()).await.unwrap();
    within(client.close_timeout(LONG)).await.unwrap();
    until(&cache, |status| *status == CacheStatus::Stopped).await;
    assert!(matches!(
        within(cache.catch_up()).await,
        Err(CacheError::Stopped { .. })
    ));
}
