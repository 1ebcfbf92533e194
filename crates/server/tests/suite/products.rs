//! The tables of docs/internals/limits.md of what one request may cost. A hostile client drives
//! each product of two sizes that clients choose to its largest, and the server's own count of
//! steps under one hold of the tree's lock stays below the number of the row. Nothing is timed.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::Pin;

use baton_proto::{
    Acl, AuthPacket, Create, CreateMode, ErrorCode, MultiOp, MultiResult, Perms, Request, Response,
};
use baton_server::Server;

use crate::support::http;
use crate::support::{Wire, create, in_memory, word};

const PAGE: &str = include_str!("../../../../docs/internals/limits.md");
const LIMITS_OF_PEERS: &str = include_str!("../../../../docs/operate/limits.md");
/// The most names of a client, its address among them, and entries of an ACL.
const NAMES: usize = 64;
const ENTRIES: usize = 4096;
/// The most bytes of a request, and operations of a multi.
const FRAME: usize = 1_000_000;
const MULTI: usize = baton_tree::MultiBounds::OPERATIONS;
const CHECKS: usize = baton_tree::MultiBounds::CHECKS;
/// Parts of a request that is answered in slices: the ceiling is one of each slice, so enough for
/// many slices are enough.
const PARTS: usize = 1500;

/// A server, and a client of as many names as one may have.
struct Walk {
    server: Server,
    to: String,
    wire: Wire,
}

type Probe = fn(Walk) -> Pin<Box<dyn Future<Output = Walk> + Send>>;

/// The attack on each product, by its name.
fn probes() -> BTreeMap<&'static str, Probe> {
    fn probe<F>(attack: fn(Walk) -> F) -> fn(Walk) -> F {
        attack
    }
    macro_rules! rows {
        ($($product:literal => $attack:ident,)*) => {
            BTreeMap::from([
                $(($product, (|walk| Box::pin(probe($attack)(walk))) as Probe),)*
            ])
        };
    }
    rows! {
        "entries of an ACL × names of a client" => one_check,
        "ranges of an ACL × lengths of their prefixes" => ranges,
        "operations of a multi × names of the client" => checks_of_a_multi,
        "operations of a multi × watchers" => events_of_a_multi,
        "operations of a multi × quotas" => quotas_of_a_multi,
        "parts of a multiRead × entries × names" => checks_of_a_multi_read,
        "parts of a multiRead × children" => listings_of_a_multi_read,
        "paths of a setWatches × entries × names" => checks_of_set_watches,
        "children of a znode × listings" => listings,
        "ephemerals of a session × length of their paths" => ephemerals,
        "descendants of a znode × getAllChildrenNumber" => descendants,
        "ephemerals of an ended session × watchers" => end_of_a_session,
        "znodes of quotas × metrics" => scrapes,
    }
}

/// The rows of a table of the page that begins with this head.
fn rows(head: &str) -> Vec<Vec<&'static str>> {
    let (_, table) = PAGE.split_once(head).unwrap();
    let lines = table.lines().skip(2);
    let rows = lines.take_while(|line| line.starts_with("| "));
    rows.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect()
}

#[test]
fn the_table_of_products_and_the_code_and_the_table_of_bounds_agree() {
    let walked = rows("| product | bound | most steps |");
    let products: Vec<_> = walked.iter().map(|row| row[0]).collect();
    let mut attacked: Vec<_> = probes().into_keys().collect();
    attacked.sort_by_key(|product| products.iter().position(|known| known == product));
    assert_eq!(
        products, attacked,
        "the table, and the attacks of this test"
    );
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for row in rows("| product | bound | test |") {
        let mut quoted: Vec<_> = row[2].split('`').skip(1).step_by(2).collect();
        let file = quoted.pop().unwrap();
        let text = std::fs::read_to_string(root.join(file)).expect(file);
        for test in quoted {
            assert!(text.contains(&format!("fn {test}")), "{file} has no {test}");
        }
    }
    // What both pages say is the same.
    for (here, there) in [
        ("4096 entries, 64 names", "| 64 names and 4 KiB |"),
        ("4096 entries, 64 names", "a list: 4096 entries and 256 KiB"),
        (
            "10000 operations, and 65536 operations times names",
            "| 10000, and 65536 operations times names of the client |",
        ),
        ("150000 receivers for one command", "| 150000 receivers,"),
        ("16 MiB in all", "| sixteen times `max_outbound_bytes` |"),
    ] {
        assert!(PAGE.contains(here), "limits.md: {here}");
        assert!(
            LIMITS_OF_PEERS.contains(there),
            "operate/limits.md: {there}"
        );
    }
    assert!(PAGE.contains(&format!("{MULTI} operations, and {CHECKS} operations")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_of_products_is_walked() {
    let probes = probes();
    for row in rows("| product | bound | most steps |") {
        let (product, most) = (row[0], row[2].parse().unwrap());
        eprintln!("walking: {product}");
        let walk = probes[product](begin().await).await;
        let steps = most_steps(&walk.server).await;
        let entry = longest_entry(&walk.to).await;
        eprintln!("{steps} steps under one hold of the lock; an entry took up to {entry}");
        assert!(steps > 0, "{product}: nothing was counted");
        assert!(steps <= most, "{product}: {steps} steps, at most {most}");
    }
}

async fn most_steps(server: &Server) -> u64 {
    let (_, page) = http::get(server.http_addr().unwrap(), "/metrics").await;
    let mut lines = page.lines();
    let value = lines.find_map(|line| line.strip_prefix("baton_most_steps "));
    value.unwrap().parse().unwrap()
}

/// For measurements of an optimised build.
async fn longest_entry(to: &str) -> String {
    let mntr = word(to, "mntr").await;
    let line = mntr
        .lines()
        .find(|line| line.contains("max_baton_apply_seconds"));
    line.unwrap_or("?").to_owned()
}

async fn begin() -> Walk {
    let server = in_memory().http("127.0.0.1:0").start().await.unwrap();
    let to = server.connect_string();
    let mut wire = Wire::open(&to).await;
    for n in 1..NAMES {
        wire.send(&[Request::Auth(AuthPacket {
            kind: 0,
            scheme: "digest",
            auth: Some(format!("u{n}:p").as_bytes()),
        })])
        .await;
        assert_eq!(wire.reply().await.0.error(), ErrorCode::Ok);
    }
    Walk { server, to, wire }
}

fn part<'a>(path: &'a str, data: &'a [u8], flags: i32) -> MultiOp<'a> {
    match create(path, data, flags) {
        Request::Create(create) => MultiOp::Create(create),
        _ => unreachable!(),
    }
}

fn set(path: &str) -> MultiOp<'_> {
    MultiOp::SetData {
        path,
        data: None,
        version: -1,
    }
}

impl Walk {
    /// A znode at `/a` that everybody of the longest ACL may read, the client by its last entry.
    async fn closed(&mut self) {
        let stranger = |n| Acl::new(Perms::READ, "digest", format!("s{n}:x"));
        let mut acl: Vec<_> = (1..ENTRIES).map(stranger).collect();
        acl.push(Acl::new(Perms::READ, "ip", "127.0.0.1"));
        let request = Create::new("/a", None, acl, CreateMode::Persistent);
        self.wire.call(Request::Create(request)).await.unwrap();
    }

    /// That many znodes of this kind below `parent`.
    async fn fill(&mut self, parent: &str, count: usize, flags: i32) {
        let paths: Vec<String> = (0..count).map(|n| format!("{parent}/{n}")).collect();
        for paths in paths.chunks(500) {
            let parts = paths.iter().map(|path| part(path, b"", flags)).collect();
            self.multi(parts).await;
        }
    }

    async fn multi(&mut self, parts: Vec<MultiOp<'_>>) {
        let count = parts.len();
        let Ok(Response::Multi(results)) = self.wire.call(Request::Multi(parts)).await else {
            panic!("a multi of {count} operations is within the bounds");
        };
        let failed = results
            .iter()
            .find(|it| matches!(it, MultiResult::Error(_)));
        assert_eq!(failed, None, "of {count} operations");
    }

    async fn reads(&mut self, parts: Vec<MultiOp<'_>>) -> Vec<MultiResult> {
        match self.wire.call(Request::MultiRead(parts)).await {
            Ok(Response::Multi(results)) => results,
            other => panic!("{other:?}"),
        }
    }
}

fn repeated<'a>(parts: &[MultiOp<'a>], times: usize) -> Vec<MultiOp<'a>> {
    let all = parts.iter().cycle().take(times * parts.len());
    all.cloned().collect()
}

fn data(path: &str) -> MultiOp<'_> {
    MultiOp::GetData { path, watch: false }
}

fn children(path: &str) -> MultiOp<'_> {
    MultiOp::GetChildren { path, watch: false }
}

async fn one_check(mut walk: Walk) -> Walk {
    walk.closed().await;
    walk.reads(vec![data("/a")]).await;
    walk
}

async fn ranges(mut walk: Walk) -> Walk {
    // One address in ranges of each length, and all that a list may have besides.
    let lengths = (0..=128).map(|bits| format!("8000::1/{bits}"));
    let lengths = lengths.chain((0..=32).map(|bits| format!("127.0.0.1/{bits}")));
    let mut ranges: Vec<String> = lengths.collect();
    let others = |n: usize| format!("10.{}.{}.0/24", n / 256, n % 256);
    ranges.extend((0..ENTRIES - ranges.len()).map(others));
    let acl = ranges
        .iter()
        .map(|range| Acl::new(Perms::READ, "ip", range.clone()));
    let request = Create::new("/a", None, acl.collect(), CreateMode::Persistent);
    walk.wire.call(Request::Create(request)).await.unwrap();
    walk.reads(vec![data("/a")]).await;
    walk
}

async fn checks_of_a_multi(mut walk: Walk) -> Walk {
    walk.closed().await;
    let check = MultiOp::Check {
        path: "/a",
        version: -1,
    };
    let most = CHECKS / NAMES;
    walk.multi(vec![check.clone(); most]).await;
    let over = Request::Multi(vec![check; most + 1]);
    let refused = walk.wire.call(over).await;
    assert_eq!(refused, Err(ErrorCode::BadArguments));
    walk
}

async fn events_of_a_multi(walk: Walk) -> Walk {
    const WATCHERS: usize = 25;
    // Of one name, so that it may have the most operations.
    let mut writer = Wire::open(&walk.to).await;
    for path in ["/a", "/b"] {
        writer.create(path, b"", 0).await.unwrap();
    }
    let mut watchers = Vec::new();
    for path in ["/a", "/b"].repeat(WATCHERS) {
        let mut watcher = Wire::open(&walk.to).await;
        let watch = Request::AddWatch { path, mode: 0 };
        watcher.call(watch).await.unwrap();
        watchers.push(watcher);
    }
    // No two changes in a row go to the same connections.
    let parts: Vec<_> = (0..MULTI).map(|n| set(["/a", "/b"][n % 2])).collect();
    let answer = writer.call(Request::Multi(parts)).await;
    assert!(matches!(answer, Ok(Response::Multi(results)) if results.len() == MULTI));
    for mut watcher in watchers {
        assert!(!watcher.rest().await.is_empty(), "events, and then the end");
    }
    walk
}

async fn quotas_of_a_multi(mut walk: Walk) -> Walk {
    walk.wire.create("/a", b"", 0).await.unwrap();
    walk.fill("/a", 20_000, 0).await;
    let quota = "/zookeeper/quota/a";
    walk.wire.create(quota, b"", 0).await.unwrap();
    let stats = format!("{quota}/zookeeper_stats");
    let pair = [
        part(&stats, b"", 0),
        MultiOp::Delete {
            path: &stats,
            version: -1,
        },
    ];
    // Each creation weighs what is below `/a`.
    walk.multi(repeated(&pair, CHECKS / NAMES / 2)).await;
    // Each write reads the text of the quota.
    let limits = format!("{quota}/zookeeper_limits");
    let text = "count=-1,".repeat(FRAME / 9);
    walk.wire.create(&limits, text.as_bytes(), 0).await.unwrap();
    walk.wire.create(&stats, b"", 0).await.unwrap();
    walk.multi(vec![set("/a/7"); CHECKS / NAMES]).await;
    walk
}

async fn checks_of_a_multi_read(mut walk: Walk) -> Walk {
    walk.closed().await;
    let results = walk.reads(vec![data("/a"); PARTS]).await;
    let is_read = |result: &MultiResult| matches!(result, MultiResult::Data { .. });
    assert!(results.iter().all(is_read));
    walk
}

async fn listings_of_a_multi_read(mut walk: Walk) -> Walk {
    for (parent, count) in [("/a", 4000), ("/b", 20_000)] {
        walk.wire.create(parent, b"", 0).await.unwrap();
        walk.fill(parent, count, 0).await;
    }
    let parts = repeated(&[children("/a"), children("/b")], 5);
    let results = walk.reads(parts).await;
    for (result, count) in results.iter().zip([4000, 20_000].repeat(5)) {
        assert!(matches!(result, MultiResult::Children(names) if names.len() == count));
    }
    walk
}

async fn checks_of_set_watches(mut walk: Walk) -> Walk {
    walk.closed().await;
    let again = Request::SetWatches {
        relative_zxid: i64::MAX,
        data: vec!["/a"; PARTS],
        exist: vec![],
        child: vec!["/a"; PARTS],
    };
    assert_eq!(walk.wire.call(again).await, Ok(Response::Empty));
    walk
}

async fn listings(mut walk: Walk) -> Walk {
    for (parent, count) in [("/a", 4000), ("/b", 20_000)] {
        walk.wire.create(parent, b"", 0).await.unwrap();
        walk.fill(parent, count, 0).await;
        let list = Request::GetChildren {
            path: parent,
            watch: false,
        };
        for _ in 0..3 {
            let listed = walk.wire.call(list.clone()).await;
            assert!(matches!(listed, Ok(Response::Children(names)) if names.len() == count));
        }
        // Behind a write, in the core.
        let first = walk
            .wire
            .send(&[Request::Sync { path: "/" }, list.clone()])
            .await;
        assert_eq!(walk.wire.reply().await.0.xid, first);
        assert_eq!(walk.wire.reply().await.0.xid, first + 1);
    }
    walk
}

async fn ephemerals(mut walk: Walk) -> Walk {
    const EPHEMERAL: i32 = 1;
    // Paths share a long beginning, which each answer has as often as there are paths.
    let deep = format!("/{}", "n".repeat(1000));
    walk.wire.create(&deep, b"", 0).await.unwrap();
    walk.fill(&deep, 10_000, EPHEMERAL).await;
    let all = Request::GetEphemerals { prefix: "/" };
    let listed = walk.wire.call(all.clone()).await;
    assert!(matches!(listed, Ok(Response::Strings(paths)) if paths.len() == 10_000));
    let more = format!("{deep}-more");
    walk.wire.create(&more, b"", 0).await.unwrap();
    walk.fill(&more, 7000, EPHEMERAL).await;
    assert_eq!(walk.wire.call(all).await, Err(ErrorCode::BadArguments));
    walk
}

async fn descendants(mut walk: Walk) -> Walk {
    walk.wire.create("/a", b"", 0).await.unwrap();
    walk.fill("/a", 20_000, 0).await;
    let count = Request::GetAllChildrenNumber { path: "/a" };
    for _ in 0..100 {
        assert_eq!(
            walk.wire.call(count.clone()).await,
            Ok(Response::Count(20_000))
        );
    }
    walk
}

async fn end_of_a_session(walk: Walk) -> Walk {
    const WATCHERS: usize = 50;
    const EPHEMERALS: usize = 5000;
    let mut watchers = Vec::new();
    for _ in 0..WATCHERS {
        let mut watcher = Wire::open(&walk.to).await;
        let watch = Request::AddWatch { path: "/", mode: 1 };
        watcher.call(watch).await.unwrap();
        watchers.push(watcher);
    }
    let mut owner = Walk {
        wire: Wire::open(&walk.to).await,
        ..walk
    };
    owner.fill("", EPHEMERALS, 1).await;
    owner.wire.call(Request::CloseSession).await.unwrap();
    for watcher in &mut watchers {
        for _ in 0..2 * EPHEMERALS {
            watcher.event().await;
        }
    }
    owner
}

async fn scrapes(mut walk: Walk) -> Walk {
    let quota = "/zookeeper/quota/a";
    walk.wire.create(quota, b"", 0).await.unwrap();
    walk.fill(quota, 10_000, 0).await;
    for _ in 0..3 {
        most_steps(&walk.server).await;
    }
    walk
}
