//! Each metric from a story with times that the test decides.

use std::collections::BTreeMap;

use baton_server::ChangedBy;
use baton_tree::{Assembly, Tree, Znode};

use super::*;

/// A server that the test plays.
pub(super) struct ScriptedSurvey {
    pub(super) metrics: RecipeMetrics,
    zxid: i64,
    tree: Tree,
}

/// Deleter of a node.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deleter {
    Itself,
    Other,
    Close,
    Expiry,
}

impl ScriptedSurvey {
    pub(super) fn with(selection: Selection) -> Self {
        Self {
            metrics: RecipeMetrics::new(selection),
            zxid: 0,
            tree: Tree::new(),
        }
    }

    pub(super) fn new() -> Self {
        Self::with(Selection::default())
    }

    fn change(&self, is_created: bool, path: &str, session: i64, by: ChangedBy, time_ms: i64) {
        self.metrics.changed(&ObservedChange {
            is_created,
            path,
            session,
            by,
            zxid: self.zxid,
            time_ms,
            open_data: is_created.then_some(&[]),
        });
    }

    /// `session` makes a node of its own; 0: somebody makes one that outlives him.
    pub(super) fn create(&mut self, path: &str, session: i64, time_ms: i64) {
        self.zxid += 1;
        self.change(true, path, session, ChangedBy::Client(session), time_ms);
    }

    pub(super) fn delete(&mut self, path: &str, session: i64, by: Deleter, time_ms: i64) {
        self.zxid += 1;
        let by = match by {
            Deleter::Itself => ChangedBy::Client(session),
            Deleter::Other => ChangedBy::Client(session + 1000),
            Deleter::Close => ChangedBy::ClosedSession,
            Deleter::Expiry => ChangedBy::ExpiredSession,
        };
        self.change(false, path, session, by, time_ms);
    }

    /// A client makes and deletes nodes in one multi: `+` or `-`, the path, the session that owns
    /// it.
    pub(super) fn multi(&mut self, parts: &[(char, &str, i64)], time_ms: i64) {
        self.zxid += 1;
        for (sign, path, session) in parts {
            let by = ChangedBy::Client(77);
            self.change(*sign == '+', path, *session, by, time_ms);
        }
    }

    pub(super) fn text(&self, now_ms: i64) -> String {
        let tree = ObservedTree::new(&self.tree);
        self.metrics.sample(&tree, now_ms).to_string()
    }

    /// Every sample of the page by its name and labels.
    pub(super) fn page(&self, now_ms: i64) -> BTreeMap<String, f64> {
        let text = self.text(now_ms);
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let samples = samples.map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        });
        samples.collect()
    }

    /// The values of one path, by the names behind `baton_recipe_`, of those that are not zero.
    pub(super) fn of(&self, path: &str, now_ms: i64) -> BTreeMap<String, f64> {
        let label = format!("{{path=\"{path}\",kind=\"");
        let page = self.page(now_ms).into_iter();
        let of_path = page.filter_map(|(name, value)| {
            let (name, labels) = name.split_once(&label)?;
            let name = name.strip_prefix("baton_recipe_").unwrap();
            let cause = labels.split_once("cause=\"").map(|(_, cause)| cause);
            let cause = cause.map_or("", |cause| cause.trim_end_matches("\"}"));
            let is_shown = value != 0.0 && !name.ends_with("_bucket");
            let name = format!("{name} {cause}").trim_end().to_owned();
            is_shown.then_some((name, value))
        });
        of_path.collect()
    }
}

fn values(expected: &[(&str, f64)]) -> BTreeMap<String, f64> {
    let named = expected
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value));
    named.collect()
}

fn node(lock: &str, number: i64) -> String {
    format!("{lock}/_c_5c1b0f54-lock-{number:010}")
}

#[test]
fn a_hold_a_wait_and_a_hand_over_have_their_times() {
    let mut story = ScriptedSurvey::new();
    let (one, two) = (node("/a", 1), node("/a", 2));
    story.create(&one, 1, 1_000);
    story.create(&two, 2, 3_000);
    assert_eq!(
        story.of("/a", 4_500),
        values(&[
            ("lock_holders", 1.0),
            ("lock_waiters", 1.0),
            ("lock_oldest_hold_seconds", 3.5),
            ("lock_oldest_wait_seconds", 1.5),
            ("lock_wait_seconds_count", 1.0),
        ])
    );
    story.delete(&one, 1, Deleter::Itself, 5_000);
    assert_eq!(
        story.of("/a", 6_000),
        values(&[
            ("lock_holders", 1.0),
            ("lock_oldest_hold_seconds", 1.0),
            ("lock_hold_seconds_count", 1.0),
            ("lock_hold_seconds_sum", 4.0),
            ("lock_wait_seconds_count", 2.0),
            ("lock_wait_seconds_sum", 2.0),
            ("lock_handovers_total", 1.0),
            ("lock_hold_ends_total released", 1.0),
        ])
    );
    let page = story.page(6_000);
    let bucket = |le: &str| {
        page[&format!(
            "baton_recipe_lock_hold_seconds_bucket{{path=\"/a\",kind=\"lock\",le=\"{le}\"}}"
        )]
    };
    assert_eq!((bucket("1"), bucket("10"), bucket("+Inf")), (0.0, 1.0, 1.0));
}

#[test]
fn each_loss_has_its_cause_and_so_has_each_wait_that_ends_without_a_grant() {
    let mut story = ScriptedSurvey::new();
    let causes = [
        Deleter::Itself,
        Deleter::Close,
        Deleter::Expiry,
        Deleter::Other,
    ];
    for by in causes {
        story.create(&node("/held", 1), 1, 0);
        story.delete(&node("/held", 1), 1, by, 10);
    }
    story.create(&node("/waited", 1), 1, 0);
    for by in causes {
        story.create(&node("/waited", 2), 2, 0);
        story.delete(&node("/waited", 2), 2, by, 10);
    }
    let held = story.of("/held", 20);
    let waited = story.of("/waited", 20);
    for cause in ["session_closed", "session_expired", "broken"] {
        assert_eq!(
            held[&format!("lock_hold_ends_total {cause}")],
            1.0,
            "{cause}"
        );
        assert_eq!(
            waited[&format!("lock_wait_ends_total {cause}")],
            1.0,
            "{cause}"
        );
    }
    assert_eq!(held["lock_hold_ends_total released"], 1.0);
    assert_eq!(waited["lock_wait_ends_total withdrawn"], 1.0);
    assert_eq!(waited.get("lock_waiters"), None);
}

#[test]
fn readers_hold_together_and_a_writer_behind_them_waits_for_all() {
    let mut story = ScriptedSurvey::new();
    let at = |kind: &str, number: i64| format!("/rw/_c_1-__{kind}__{number:010}");
    let (reader, second, writer, late) =
        (at("READ", 1), at("READ", 2), at("WRIT", 3), at("READ", 4));
    for (session, path) in (1..).zip([&reader, &second, &writer, &late]) {
        story.create(path, session, 0);
    }
    let count = |story: &ScriptedSurvey| {
        let of = story.of("/rw", 100);
        (
            of.get("lock_holders").copied(),
            of.get("lock_waiters").copied(),
        )
    };
    assert_eq!(count(&story), (Some(2.0), Some(2.0)));
    story.delete(&reader, 1, Deleter::Itself, 10);
    assert_eq!(count(&story), (Some(1.0), Some(2.0)));
    story.delete(&second, 2, Deleter::Itself, 20);
    assert_eq!(count(&story), (Some(1.0), Some(1.0)));
    // The writer becomes a reader: nothing is handed over but to the reader behind it.
    let downgraded = at("READ", 3).replace("_c_1", "_c_2");
    story.multi(&[('+', &downgraded, 3), ('-', &writer, 3)], 30);
    assert_eq!(count(&story), (Some(2.0), None));
    let of = story.of("/rw", 100);
    assert_eq!(of["lock_handovers_total"], 2.0);
    assert!(
        story
            .text(100)
            .contains("{path=\"/rw\",kind=\"read_write\"} 2\n")
    );
}

#[test]
fn elections_semaphores_and_simple_locks_are_of_their_own_kind() {
    let mut story = ScriptedSurvey::new();
    for (path, kind) in [
        ("/e/_c_1-latch-0000000001", "election"),
        ("/n/n_0000000001", "election"),
        ("/s/leases/_c_1-lease-0000000001", "semaphore"),
        ("/s/leases/_c_2-lease-0000000002", "semaphore"),
        ("/m/lock", "simple"),
    ] {
        story.create(path, 1, 0);
        let lock = path.split('/').nth(1).unwrap();
        let holders = format!("baton_recipe_lock_holders{{path=\"/{lock}\",kind=\"{kind}\"}}");
        assert!(story.page(0).contains_key(&holders), "{path}");
    }
    assert_eq!(story.of("/s", 0)["lock_holders"], 2.0);
}

#[test]
fn items_of_a_queue_are_counted_as_they_come_and_go() {
    let mut story = ScriptedSurvey::new();
    for number in 1..=3 {
        story.create(&format!("/q/qn-{number:010}"), 0, 0);
    }
    story.multi(&[('-', "/q/qn-0000000001", 0)], 10);
    assert_eq!(
        story.of("/q", 100),
        values(&[
            ("queue_items", 2.0),
            ("queue_offered_total", 3.0),
            ("queue_removed_total", 1.0),
        ])
    );
    // A put-back is the same item.
    story.multi(
        &[('-', "/q/qn-0000000002", 0), ('+', "/q/qn-0000000004", 0)],
        20,
    );
    let of = story.of("/q", 100);
    assert_eq!(
        (of["queue_offered_total"], of["queue_requeued_total"]),
        (3.0, 1.0)
    );
}

#[test]
fn claims_of_kazoos_locking_queue_count_with_its_items() {
    let (item, claim) = (
        "/k/entries/entry-100-0000000001",
        "/k/taken/entry-100-0000000001",
    );
    let mut story = ScriptedSurvey::new();
    let own = 5;
    story.create(item, 0, 0);
    // Taken, and given back with the end of the session; taken again, and done.
    story.multi(&[('+', claim, own)], 0);
    assert_eq!(story.of("/k/entries", 0)["queue_claimed_items"], 1.0);
    story.delete(claim, own, Deleter::Expiry, 0);
    story.multi(&[('+', claim, own)], 0);
    story.multi(&[('-', claim, own)], 0);
    story.multi(&[('+', claim, own)], 0);
    story.multi(&[('-', item, 0), ('-', claim, own)], 0);
    assert_eq!(
        story.of("/k/entries", 0),
        values(&[
            ("queue_offered_total", 1.0),
            ("queue_removed_total", 1.0),
            ("queue_claims_total", 3.0),
            ("queue_claim_ends_total session_expired", 1.0),
            ("queue_claim_ends_total returned", 1.0),
            ("queue_claim_ends_total done", 1.0),
        ])
    );
}

/// The nodes of a work queue at `/w`.
const ITEM: &str = "/w/items/p000-0000000001/i-0000000001";
const CLAIM: &str = "/w/items/p000-0000000001/i-0000000001/claim-1";
const LATER: &str = "/w/items/t0029395600/1763736000123-007-5c1b0f546d3c4f0b9d0e0a4b7d3f2e11";
const DEAD: &str = "/w/dead/d-0000000001";

#[test]
fn each_settlement_of_a_claim_has_its_cause() {
    let mut story = ScriptedSurvey::new();
    let own = 5;
    story.create(ITEM, 0, 0);
    // Failed, to be tried at once.
    story.multi(&[('+', CLAIM, own)], 0);
    story.multi(&[('-', CLAIM, own)], 0);
    // Failed, to be tried later, and then again.
    story.multi(&[('+', CLAIM, own)], 0);
    story.multi(&[('-', CLAIM, own), ('-', ITEM, 0), ('+', LATER, 0)], 0);
    let later_claim = format!("{LATER}/claim-2");
    story.multi(&[('+', &later_claim, own)], 0);
    // Its visibility timeout is over: the next consumer takes it.
    let next_claim = format!("{LATER}/claim-3");
    story.multi(&[('-', &later_claim, own), ('+', &next_claim, 6)], 0);
    story.delete(&next_claim, 6, Deleter::Expiry, 0);
    story.multi(&[('+', &later_claim, own)], 0);
    story.delete(&later_claim, own, Deleter::Close, 0);
    // The last attempt fails.
    story.multi(&[('+', &later_claim, own)], 0);
    story.multi(
        &[('-', &later_claim, own), ('-', LATER, 0), ('+', DEAD, 0)],
        0,
    );
    assert_eq!(story.of("/w", 0)["queue_dead_letters"], 1.0);
    // Somebody gives it another chance, and it is done.
    story.multi(&[('-', DEAD, 0), ('+', ITEM, 0)], 0);
    story.multi(&[('+', CLAIM, own)], 0);
    assert_eq!(story.of("/w", 0)["queue_claimed_items"], 1.0);
    story.multi(&[('-', CLAIM, own), ('-', ITEM, 0)], 0);
    assert_eq!(
        story.of("/w", 0),
        values(&[
            ("queue_offered_total", 1.0),
            ("queue_removed_total", 1.0),
            ("queue_requeued_total", 1.0),
            ("queue_dead_lettered_total", 1.0),
            ("queue_replayed_total", 1.0),
            ("queue_claims_total", 7.0),
            ("queue_claim_ends_total returned", 1.0),
            ("queue_claim_ends_total requeued", 1.0),
            ("queue_claim_ends_total timed_out", 1.0),
            ("queue_claim_ends_total session_expired", 1.0),
            ("queue_claim_ends_total session_closed", 1.0),
            ("queue_claim_ends_total dead_lettered", 1.0),
            ("queue_claim_ends_total done", 1.0),
        ])
    );
}

/// A tree of znodes: path, when it was created, its session, its data.
pub(super) fn tree_of(znodes: &[(&str, i64, i64, &[u8])]) -> Tree {
    let mut assembly = Assembly::new();
    for session in 1..10 {
        assembly.session(session, [0; 16], 30_000).unwrap();
    }
    let root = [("/", 0, 0, &b""[..])];
    for (zxid, (path, ctime, owner, data)) in (1..).zip(root.iter().chain(znodes)) {
        let znode = Znode {
            path,
            data: Some(data),
            acl: &[],
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime: *ctime,
            mtime: *ctime,
            version: 0,
            aversion: 0,
            creates: 1,
            owner: *owner,
        };
        assembly.znode(&znode).unwrap();
    }
    assembly.finish(100).unwrap()
}

#[test]
fn after_a_start_holders_waiters_and_items_are_there_with_their_ages() {
    let mut story = ScriptedSurvey::new();
    // A lock that nobody holds any more after the start.
    story.create(&node("/gone", 1), 1, 0);
    story.tree = tree_of(&[
        ("/a", 0, 0, b""),
        ("/a/_c_1-lock-0000000001", 1_000, 1, b""),
        ("/a/_c_2-lock-0000000002", 2_000, 2, b""),
        ("/q", 0, 0, b""),
        ("/q/config", 0, 0, b""),
        ("/q/qn-0000000001", 4_000, 0, b""),
        ("/q/qn-0000000002", 9_000, 0, b""),
        ("/w", 0, 0, br#"{"work_queue":1,"capacity":null}"#),
        ("/w/items", 0, 0, b""),
        ("/w/items/p000-0000000001", 0, 0, b""),
        ("/w/items/p000-0000000001/i-0000000001", 3_000, 0, b""),
        ("/w/items/p000-0000000001/i-0000000002", 5_000, 0, b""),
        (
            "/w/items/p000-0000000001/i-0000000001/claim-1",
            5_000,
            1,
            b"",
        ),
        ("/w/items/t0000000000", 0, 0, b""),
        (
            "/w/items/t0000000000/0000000008000-000-5c1b0f546d3c4f0b9d0e0a4b7d3f2e11",
            0,
            0,
            b"",
        ),
        (
            "/w/items/t0000000000/0000000012000-000-5c1b0f546d3c4f0b9d0e0a4b7d3f2e12",
            0,
            0,
            b"",
        ),
        ("/w/items/t0000000900", 0, 0, b""),
        (
            "/w/items/t0000000900/0000054000001-000-5c1b0f546d3c4f0b9d0e0a4b7d3f2e13",
            0,
            0,
            b"",
        ),
        ("/w/dead", 0, 0, b""),
        ("/w/dead/d-0000000001", 0, 0, b""),
        ("/w/waiters", 0, 0, b""),
        ("/w/waiters/_c_1-lock-0000000001", 0, 3, b""),
        ("/w/waiters/_c_1-lock-0000000002", 0, 4, b""),
    ]);
    story.metrics.restored(&ObservedTree::new(&story.tree));
    let of = |story: &ScriptedSurvey, path| story.of(path, 10_000);
    assert_eq!(
        of(&story, "/a"),
        values(&[
            ("lock_holders", 1.0),
            ("lock_waiters", 1.0),
            ("lock_oldest_hold_seconds", 9.0),
            ("lock_oldest_wait_seconds", 8.0),
        ])
    );
    assert_eq!(
        of(&story, "/q"),
        values(&[("queue_items", 2.0), ("queue_oldest_item_seconds", 6.0)])
    );
    assert_eq!(
        of(&story, "/w"),
        values(&[
            ("queue_items", 5.0),
            ("queue_delayed_items", 2.0),
            ("queue_oldest_item_seconds", 7.0),
            ("queue_claimed_items", 1.0),
            ("queue_dead_letters", 1.0),
            ("queue_waiting_consumers", 2.0),
        ])
    );
    // Those who wait for items hold no lock, and what was counted before goes on.
    assert_eq!(of(&story, "/w/waiters"), values(&[]));
    assert_eq!(
        of(&story, "/gone"),
        values(&[("lock_wait_seconds_count", 1.0)])
    );
    story.delete(
        &node("/a", 1).replace("5c1b0f54", "1"),
        1,
        Deleter::Expiry,
        11_000,
    );
    let after = story.of("/a", 11_000);
    assert_eq!(after["lock_hold_seconds_sum"], 10.0);
    assert_eq!(after["lock_wait_seconds_sum"], 9.0);
}

#[test]
fn what_has_no_series_of_its_own_is_counted_with_all_others() {
    let mut story = ScriptedSurvey::with(Selection {
        most: 1,
        prefixes: Vec::new(),
    });
    for lock in ["/a", "/b", "/c"] {
        story.create(&node(lock, 1), 1, 0);
    }
    story.create(&node("/c", 2), 2, 4_000);
    story.delete(&node("/b", 1), 1, Deleter::Expiry, 5_000);
    for number in 1..=2 {
        story.create(&format!("/q/qn-{number:010}"), 0, 0);
        story.create(&format!("/r/qn-{number:010}"), 0, 0);
    }
    assert_eq!(story.of("/a", 9_000)["lock_holders"], 1.0);
    for path in ["/b", "/c", "/r"] {
        assert_eq!(story.of(path, 9_000), values(&[]));
    }
    let others = story.of("other", 9_000);
    for (name, value) in [
        ("lock_holders", 1.0),
        ("lock_waiters", 1.0),
        ("lock_oldest_hold_seconds", 9.0),
        ("lock_oldest_wait_seconds", 5.0),
        ("lock_hold_ends_total session_expired", 1.0),
        ("queue_items", 2.0),
        ("queue_offered_total", 2.0),
    ] {
        assert_eq!(others.get(name).copied(), Some(value), "{name}: {others:?}");
    }
    assert_eq!(story.page(0)["baton_recipe_paths{of=\"locks\"}"], 1.0);
    let off = Selection {
        most: 0,
        prefixes: Vec::new(),
    };
    let mut story = ScriptedSurvey::with(off);
    story.create(&node("/secret", 1), 1, 0);
    assert!(!story.text(0).contains("secret"));
    assert_eq!(story.of("other", 0)["lock_holders"], 1.0);
}

#[test]
fn a_hundred_thousand_locks_one_after_the_other_leave_nothing_behind() {
    let mut story = ScriptedSurvey::new();
    for number in 0..100_000 {
        let path = node(&format!("/jobs/{number}"), 0);
        story.create(&path, 1, number);
        story.delete(&path, 1, Deleter::Itself, number);
    }
    let (paths, nodes) = story.metrics.state().locks.followed();
    assert!(paths <= 100 && nodes == 0, "{paths} paths, {nodes} nodes");
    // As many at once are followed up to a bound, and said to be left out beyond.
    for number in 0..100_000 {
        story.create(&node(&format!("/held/{number}"), 0), 1, 100_000);
    }
    let (paths, nodes) = story.metrics.state().locks.followed();
    assert_eq!(paths, paths::MOST_PATHS);
    let page = story.page(100_000);
    let left_out = page["baton_recipe_nodes_left_out_total"];
    assert_eq!(left_out, (100_000 - nodes) as f64);
    assert!(story.text(100_000).len() < 1 << 20);
    for number in 0..100_000 {
        let path = format!("/queues/{number}/qn-0000000001");
        story.create(&path, 0, 100_000);
        story.delete(&path, 0, Deleter::Other, 100_000);
    }
    story.text(100_000);
    assert!(story.metrics.state().queues.followed() <= 100);
}

/// A server that starts with more nodes than are followed: those left out take no place of a path.
#[test]
fn a_lock_whose_nodes_are_left_out_at_a_start_takes_no_place_of_another() {
    let mut story = ScriptedSurvey::new();
    let last = locks::MOST_NODES;
    let nodes: Vec<String> = (0..=last)
        .map(|number| {
            let lock = if number == last { "/z" } else { "/a" };
            format!("{lock}/_c_1-lock-{number:010}")
        })
        .collect();
    let folders = [("/a", 0, 0, &b""[..]), ("/z", 0, 0, b"")];
    let nodes = nodes.iter().map(|path| (&**path, 0, 1, &b""[..]));
    let all: Vec<_> = folders.into_iter().chain(nodes).collect();
    story.tree = tree_of(&all);
    story.metrics.restored(&ObservedTree::new(&story.tree));
    let followed = story.metrics.state().locks.followed();
    assert_eq!(followed, (1, last));
    let left_out = story.page(0)["baton_recipe_nodes_left_out_total"];
    assert_eq!(left_out, 1.0);
}

#[test]
fn a_name_that_attacks_makes_no_second_line_and_no_second_series() {
    let mut story = ScriptedSurvey::new();
    let long = format!("/{}", "x".repeat(5_000));
    for lock in ["/a\"} 1 \\", "/\u{202e}gnol", &*long, "/other"] {
        story.create(&node(lock, 1), 1, 0);
    }
    let text = story.text(0);
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        assert!(line.len() < 400, "{line}");
        assert_eq!(
            line.matches(" 1 ").count() + line.matches('\u{202e}').count(),
            { usize::from(line.contains("/a\\\"} 1 \\\\")) }
        );
    }
    assert!(
        text.contains("{path=\"/a\\\"} 1 \\\\\",kind=\"lock\"} 1\n"),
        "{text}"
    );
    let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(
        samples.len(),
        story.page(0).len(),
        "a series is there twice"
    );
}

#[test]
fn every_metric_is_in_the_page_and_in_the_operators_handbook() {
    let docs = include_str!("../../../../docs/operate/monitor.md");
    let text = ScriptedSurvey::new().text(0);
    for (name, kind, help) in RecipeMetrics::described() {
        let name_in_docs = format!("`{name}`");
        assert!(
            docs.contains(&name_in_docs),
            "docs/operate/monitor.md lacks {name}"
        );
        assert!(text.contains(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n")));
    }
}

#[test]
fn nodes_that_are_no_recipes_change_nothing() {
    let mut story = ScriptedSurvey::new();
    let before = story.text(0);
    for path in [
        "/a",
        "/a/config",
        "/a/member-0000000001",
        "/a/0000000001",
        "/a/web",
    ] {
        story.create(path, 1, 0);
        story.create(path, 0, 0);
        story.delete(path, 1, Deleter::Other, 0);
    }
    assert_eq!(story.text(0), before);
    // One that went before it was followed.
    story.delete(&node("/a", 1), 1, Deleter::Itself, 0);
    assert_eq!(story.text(0), before);
}
