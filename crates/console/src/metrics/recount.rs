//! A model test: counting change by change comes to the same as a count of the whole tree.

use std::collections::BTreeMap;

use baton_server::{ChangeObserver as _, ObservedTree};
use proptest::collection::vec;
use proptest::prelude::*;

use super::tests::{Deleter, ScriptedSurvey, tree_of};

/// The gauges that a tree alone decides.
const GAUGES: [&str; 5] = [
    "baton_recipe_lock_holders",
    "baton_recipe_lock_waiters",
    "baton_recipe_queue_items",
    "baton_recipe_queue_claimed_items",
    "baton_recipe_queue_dead_letters",
];

const SESSIONS: i64 = 5;

/// One step of a run.
#[derive(Clone, Debug)]
enum Event {
    /// A session makes a node of this kind.
    Make(usize, i64),
    /// One of the nodes goes.
    End(usize, Deleter),
    /// All nodes of a session go.
    EndSession(i64, Deleter),
    /// All nodes below a folder go, by the hand of somebody else.
    Clear(usize),
    /// The server takes over the state of another one, or starts again.
    Restore,
}

fn event() -> impl Strategy<Value = Event> {
    let by = prop_oneof![
        Just(Deleter::Itself),
        Just(Deleter::Other),
        Just(Deleter::Close),
        Just(Deleter::Expiry)
    ];
    prop_oneof![
        12 => (0..KINDS.len(), 1..=SESSIONS).prop_map(|(kind, session)| Event::Make(kind, session)),
        8 => (any::<prop::sample::Index>(), by.clone())
            .prop_map(|(place, by)| Event::End(place.index(1 << 16), by)),
        1 => (1..=SESSIONS, by).prop_map(|(session, by)| Event::EndSession(session, by)),
        1 => (0..KINDS.len()).prop_map(Event::Clear),
        1 => Just(Event::Restore),
    ]
}

/// A kind of node: its folder, its name before the number, and whether a session owns it.
const KINDS: [(&str, &str, bool); 10] = [
    ("/lock", "_c_1-lock-", true),
    ("/lock/below", "_c_1-lock-", true),
    ("/rw", "_c_1-__READ__", true),
    ("/rw", "_c_1-__WRIT__", true),
    ("/election", "_c_1-latch-", true),
    ("/permits/leases", "_c_1-lease-", true),
    ("/queue", "qn-", false),
    ("/work/items/p000-0000000001", "i-", false),
    ("/work/dead", "d-", false),
    ("/ev\"il\\\u{202e}", "_c_1-lock-", true),
];

/// The nodes that are there: the session of each and when it was made.
#[derive(Default)]
struct Nodes {
    there: BTreeMap<String, (i64, i64)>,
    number: i64,
    /// Locks that were made.
    made: BTreeMap<&'static str, u64>,
}

impl Nodes {
    fn at(&self, place: usize) -> Option<String> {
        let place = place.checked_rem(self.there.len())?;
        self.there.keys().nth(place).cloned()
    }

    fn below(&self, is_one: impl Fn(&str, i64) -> bool) -> Vec<String> {
        let found = self
            .there
            .iter()
            .filter(|(path, (owner, _))| is_one(path, *owner));
        found.map(|(path, _)| path.clone()).collect()
    }

    /// The state as a server that starts reads it.
    fn tree(&self) -> baton_tree::Tree {
        let mut folders = BTreeMap::new();
        for (path, _, _) in KINDS {
            for (at, _) in path.match_indices('/').skip(1) {
                folders.insert(&path[..at], &b""[..]);
            }
            folders.insert(path, b"");
        }
        folders.insert("/work", br#"{"work_queue":1,"capacity":null}"#);
        let folders = folders.iter().map(|(path, data)| (*path, 0, 0, *data));
        let there = self.there.iter();
        let nodes = there.map(|(path, (owner, made_ms))| (&**path, *made_ms, *owner, &b""[..]));
        tree_of(&folders.chain(nodes).collect::<Vec<_>>())
    }
}

/// Those of the gauges that are not zero.
fn gauges(story: &ScriptedSurvey, now_ms: i64) -> BTreeMap<String, f64> {
    let page = story.page(now_ms).into_iter();
    let is_gauge = |name: &str| {
        let name = name.split('{').next().unwrap_or_default();
        GAUGES.contains(&name)
    };
    page.filter(|(name, value)| *value != 0.0 && is_gauge(name))
        .collect()
}

proptest! {
    #[test]
    fn what_is_counted_change_by_change_is_what_a_recount_of_the_tree_comes_to(
        events in vec(event(), 1..120)
    ) {
        let (mut story, mut nodes) = (ScriptedSurvey::new(), Nodes::default());
        let mut restored = false;
        for (now_ms, event) in (0..).step_by(7).zip(events) {
            let mut gone = Vec::new();
            match event {
                Event::Make(kind, session) => {
                    let (folder, stem, is_owned) = KINDS[kind];
                    nodes.number += 1;
                    let path = format!("{folder}/{stem}{:010}", nodes.number);
                    let owner = if is_owned { session } else { 0 };
                    story.create(&path, owner, now_ms);
                    nodes.there.insert(path, (owner, now_ms));
                    *nodes.made.entry(folder).or_default() += 1;
                }
                Event::End(place, by) => gone.extend(nodes.at(place).map(|path| (path, by))),
                Event::EndSession(session, by) => {
                    let of_session = nodes.below(|_, owner| owner == session);
                    gone.extend(of_session.into_iter().map(|path| (path, by)));
                }
                Event::Clear(kind) => {
                    let below = format!("{}/", KINDS[kind].0);
                    let below = nodes.below(|path, _| path.starts_with(&below));
                    gone.extend(below.into_iter().map(|path| (path, Deleter::Other)));
                }
                Event::Restore => {
                    restored = true;
                    story.metrics.restored(&ObservedTree::new(&nodes.tree()));
                }
            }
            for (path, by) in gone {
                let (owner, _) = nodes.there.remove(&path).unwrap_or_default();
                story.delete(&path, owner, by, now_ms);
            }
        }
        let now_ms = 1_000_000;
        let recount = ScriptedSurvey::new();
        recount.metrics.restored(&ObservedTree::new(&nodes.tree()));
        prop_assert_eq!(gauges(&story, now_ms), gauges(&recount, now_ms));

        // Each hold and each wait has one end, or goes on.
        let page = story.page(now_ms);
        for (folder, made) in nodes.made.iter().filter(|_| !restored) {
            let sum = |name: &str| -> u64 {
                let (bare, label) = (format!("baton_recipe_lock_{name}{{"), format!("path=\"{folder}\","));
                let of = page.iter().filter(|(sample, _)| sample.starts_with(&bare) && sample.contains(&label));
                of.map(|(_, value)| *value as u64).sum()
            };
            let (grants, holds) = (sum("wait_seconds_count"), sum("hold_seconds_count"));
            if grants == 0 {
                // A queue, a semaphore (its path is above the folder), or a name that is escaped.
                continue;
            }
            prop_assert_eq!(holds, sum("hold_ends_total"));
            prop_assert_eq!(grants, holds + sum("holders"));
            prop_assert_eq!(*made, grants + sum("waiters") + sum("wait_ends_total"));
        }
        // Nothing is kept of what is gone.
        for (path, (owner, _)) in nodes.there.clone() {
            story.delete(&path, owner, Deleter::Expiry, now_ms);
        }
        prop_assert_eq!(gauges(&story, now_ms), BTreeMap::new());
        let (_, followed) = story.metrics.state().locks.followed();
        prop_assert_eq!(followed, 0);
    }
}
