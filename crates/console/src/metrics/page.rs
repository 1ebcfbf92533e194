//! The metrics as text for Prometheus: names, help texts, labels.
//!
//! Owns what a path is as a label: escaped, bounded in length, and never twice on a page, since
//! Prometheus would refuse the whole page.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::fmt::{self, Write as _};
use std::hash::Hasher;

use super::histogram::Histogram;
use super::locks::{Departure, LockRow};
use super::queues::{ClaimEnd, QueueRow};

/// The longest path that a label has as it is, in bytes.
const MOST_LABEL_BYTES: usize = 160;

/// The label of all paths without series of their own. No path is called that: paths begin with a
/// slash.
const OTHER: &str = "other";

const SECOND: f64 = 1_000.0;

/// One metric of one kind of rows.
struct Family<R> {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: Value<R>,
}

/// Source of a metric's value in a row.
enum Value<R> {
    Count(fn(&R) -> u64),
    Seconds(fn(&R) -> i64),
    Times(fn(&R) -> &Histogram),
    /// One series for each cause.
    ByCause(fn(&R) -> Vec<(&'static str, u64)>),
}

/// Declares a table: a row is `kind "name" => Value(|row| value); "help"`.
macro_rules! families {
    ($($kind:ident $name:literal => $value:ident($read:expr); $help:literal)*) => {
        &[$(Family {
            name: $name,
            kind: stringify!($kind),
            help: $help,
            value: Value::$value($read),
        }),*]
    };
}

const LOCKS: &[Family<LockRow>] = families! {
    histogram "baton_recipe_lock_hold_seconds" => Times(|row| &row.series.holds);
        "Duration of ended holds of locks and leaderships."
    histogram "baton_recipe_lock_wait_seconds" => Times(|row| &row.series.waits);
        "Time for which granted locks and leaderships were waited for."
    gauge "baton_recipe_lock_holders" => Count(|row| row.holders);
        "Nodes that hold: a leader, the holder of a lock, readers, permits."
    gauge "baton_recipe_lock_waiters" => Count(|row| row.waiters);
        "Nodes that wait."
    gauge "baton_recipe_lock_oldest_hold_seconds" => Seconds(|row| row.oldest_hold_ms);
        "Since when the first holder holds; 0 without one. After a start of the server, since its node was created."
    gauge "baton_recipe_lock_oldest_wait_seconds" => Seconds(|row| row.oldest_wait_ms);
        "Since when the first waiter waits; 0 without one."
    counter "baton_recipe_lock_handovers_total" => Count(|row| row.series.handovers);
        "Grants to a node that waited, when another one went."
    counter "baton_recipe_lock_hold_ends_total" => ByCause(|row| {
        let counts = Departure::ALL.iter().zip(row.series.hold_ends);
        counts.map(|(end, count)| (end.as_str(), count)).collect()
    });
        "Holds that have ended, by cause: released, session_closed, session_expired, or broken by somebody else."
    counter "baton_recipe_lock_wait_ends_total" => ByCause(|row| {
        let counts = Departure::ALL.iter().zip(row.series.wait_ends);
        counts.map(|(end, count)| (end.of_wait(), count)).collect()
    });
        "Waits that have ended without a grant, by cause: withdrawn, session_closed, session_expired, or broken by somebody else."
};

const QUEUES: &[Family<QueueRow>] = families! {
    gauge "baton_recipe_queue_items" => Count(|row| row.items);
        "Items, claimed and delayed ones among them."
    gauge "baton_recipe_queue_delayed_items" => Count(|row| row.delayed);
        "Items of a work queue that are not available yet."
    gauge "baton_recipe_queue_oldest_item_seconds" => Seconds(|row| row.oldest_ms);
        "Since when the oldest item is available, claimed or not; 0 without one."
    gauge "baton_recipe_queue_claimed_items" => Count(|row| row.claims);
        "Claims on items of a work queue, or of kazoo's LockingQueue."
    gauge "baton_recipe_queue_dead_letters" => Count(|row| row.dead);
        "Dead letters of a work queue."
    gauge "baton_recipe_queue_waiting_consumers" => Count(|row| row.consumers);
        "Processes that wait for items of a work queue."
    counter "baton_recipe_queue_offered_total" => Count(|row| row.series.offered);
        "Items offered."
    counter "baton_recipe_queue_removed_total" => Count(|row| row.series.removed);
        "Items taken, done or purged."
    counter "baton_recipe_queue_requeued_total" => Count(|row| row.series.requeued);
        "Items that were put back as another node: attempts that failed, to be made again later."
    counter "baton_recipe_queue_dead_lettered_total" => Count(|row| row.series.dead_lettered);
        "Items that became dead letters."
    counter "baton_recipe_queue_replayed_total" => Count(|row| row.series.replayed);
        "Dead letters that became items again."
    counter "baton_recipe_queue_claims_total" => Count(|row| row.series.claims);
        "Claims on items of a work queue, or of kazoo's LockingQueue."
    counter "baton_recipe_queue_claim_ends_total" => ByCause(|row| {
        let counts = ClaimEnd::ALL.iter().zip(row.series.claim_ends);
        counts.map(|(end, count)| (end.as_str(), count)).collect()
    });
        "Claims that have ended, by cause: done, returned, requeued, dead_lettered, timed_out, session_closed, session_expired."
};

/// The metrics of the page as a whole: name, kind, help.
const WHOLE: [(&str, &str, &str); 2] = [
    (
        "baton_recipe_paths",
        "gauge",
        "Paths with series of their own: of locks, of queues.",
    ),
    (
        "baton_recipe_nodes_left_out_total",
        "counter",
        "Nodes of locks and queues that are in no metric, because there are too many.",
    ),
];

/// Name, kind and help of every metric.
pub(super) fn described() -> Vec<(&'static str, &'static str, &'static str)> {
    let locks = LOCKS.iter().map(|of| (of.name, of.kind, of.help));
    let queues = QUEUES.iter().map(|of| (of.name, of.kind, of.help));
    locks.chain(queues).chain(WHOLE).collect()
}

/// The metrics at one moment.
#[derive(Debug)]
pub(super) struct Page {
    /// Each with its labels.
    locks: Vec<(String, LockRow)>,
    queues: Vec<(String, QueueRow)>,
    left_out: u64,
}

impl Page {
    pub(super) fn new(locks: Vec<LockRow>, queues: Vec<QueueRow>, left_out: u64) -> Self {
        let locks = labelled(locks, |row| (row.path.as_deref(), row.kind.as_str()));
        let queues = labelled(queues, |row| {
            let kind = if row.is_work { "work_queue" } else { "queue" };
            (row.path.as_deref(), kind)
        });
        Self {
            locks,
            queues,
            left_out,
        }
    }
}

/// The rows with their labels. One whose labels another has already is left out.
fn labelled<R>(rows: Vec<R>, of: impl Fn(&R) -> (Option<&str>, &'static str)) -> Vec<(String, R)> {
    let mut taken = HashSet::new();
    let rows = rows.into_iter().filter_map(|row| {
        let (path, kind) = of(&row);
        let label = path.map_or_else(|| OTHER.to_owned(), label);
        let labels = format!("path=\"{label}\",kind=\"{kind}\"");
        taken.insert(labels.clone()).then_some((labels, row))
    });
    rows.collect()
}

/// A path as the value of a label: on one line, without anything that a terminal or a page would
/// take for a command. A long one keeps its beginning, and has a hash of all of it behind that.
fn label(path: &str) -> String {
    let mut shown = path;
    let mut hash = None;
    if path.len() > MOST_LABEL_BYTES {
        let ends = (0..=MOST_LABEL_BYTES).rev();
        shown = ends
            .filter_map(|end| path.get(..end))
            .next()
            .unwrap_or_default();
        // The same for every process, so that the series go on after a start.
        let mut hasher = DefaultHasher::new();
        hasher.write(path.as_bytes());
        hash = Some(hasher.finish());
    }
    let mut label = String::with_capacity(shown.len() + 24);
    for character in shown.chars() {
        match character {
            // As Prometheus reads it.
            '"' => label.push_str("\\\""),
            '\\' => label.push_str("\\\\"),
            // The escape is a text for people: its backslash is one more.
            _ if character.is_control() || is_invisible(character) => {
                let _ = write!(label, "\\\\u{{{:x}}}", u32::from(character));
            }
            _ => label.push(character),
        }
    }
    if let Some(hash) = hash {
        let _ = write!(label, "...{hash:016x}");
    }
    label
}

/// Whether a character is not seen, or changes how others are: marks of direction, joiners, line
/// and paragraph separators, tags.
fn is_invisible(character: char) -> bool {
    matches!(
        u32::from(character),
        0xad | 0x61c
            | 0x115f..=0x1160
            | 0x180e
            | 0x200b..=0x200f
            | 0x2028..=0x202e
            | 0x2060..=0x206f
            | 0xfe00..=0xfe0f
            | 0xfeff
            | 0xfff9..=0xfffb
            | 0xe0000..=0xe0fff
    )
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for family in LOCKS {
            family.write(&self.locks, f)?;
        }
        for family in QUEUES {
            family.write(&self.queues, f)?;
        }
        let [paths, left_out] = WHOLE;
        let own = |labels: &str| !labels.starts_with(&format!("path=\"{OTHER}\""));
        let locks = self.locks.iter().filter(|(labels, _)| own(labels)).count();
        let queues = self.queues.iter().filter(|(labels, _)| own(labels)).count();
        write_head(f, paths)?;
        writeln!(f, "{}{{of=\"locks\"}} {locks}", paths.0)?;
        writeln!(f, "{}{{of=\"queues\"}} {queues}", paths.0)?;
        write_head(f, left_out)?;
        writeln!(f, "{} {}", left_out.0, self.left_out)
    }
}

fn write_head(f: &mut fmt::Formatter<'_>, (name, kind, help): (&str, &str, &str)) -> fmt::Result {
    writeln!(f, "# HELP {name} {help}")?;
    writeln!(f, "# TYPE {name} {kind}")
}

impl<R> Family<R> {
    fn write(&self, rows: &[(String, R)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name;
        write_head(f, (name, self.kind, self.help))?;
        for (labels, row) in rows {
            match self.value {
                Value::Count(count) => writeln!(f, "{name}{{{labels}}} {}", count(row))?,
                Value::Seconds(millis) => {
                    writeln!(f, "{name}{{{labels}}} {}", millis(row) as f64 / SECOND)?;
                }
                Value::ByCause(counts) => {
                    for (cause, count) in counts(row) {
                        writeln!(f, "{name}{{{labels},cause=\"{cause}\"}} {count}")?;
                    }
                }
                Value::Times(times) => {
                    let times = times(row);
                    for (bound, below) in times.cumulative() {
                        let bound = bound.as_secs_f64();
                        writeln!(f, "{name}_bucket{{{labels},le=\"{bound}\"}} {below}")?;
                    }
                    let (count, sum) = (times.count, times.sum_ms as f64 / SECOND);
                    writeln!(f, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}")?;
                    writeln!(f, "{name}_sum{{{labels}}} {sum}")?;
                    writeln!(f, "{name}_count{{{labels}}} {count}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_attacks_is_one_label_on_one_line() {
        for (path, expected) in [
            ("/a b/ü", "/a b/ü"),
            ("/a\"} 1\n", "/a\\\"} 1\\\\u{a}"),
            ("/a\\n", "/a\\\\n"),
            ("/\u{202e}txt", "/\\\\u{202e}txt"),
            ("/\u{1b}[2J", "/\\\\u{1b}[2J"),
            ("other", "other"),
        ] {
            assert_eq!(label(path), expected);
        }
        let long = |end: &str| label(&format!("/{}{end}", "ä".repeat(2_000)));
        assert!(long("x").chars().count() < 110, "{}", long("x"));
        assert_ne!(long("x"), long("y"));
        assert_eq!(long("x"), long("x"));
    }

    #[test]
    fn two_paths_with_the_same_label_do_not_spoil_the_page() {
        let paths = vec!["/\u{202e}", "/\\u{202e}", "/a"];
        let rows = labelled(paths, |path| (Some(path), "lock"));
        assert_eq!(rows.len(), 2);
    }

    #[test]
    fn names_keep_the_rules_of_prometheus() {
        let mut seen = HashSet::new();
        for (name, kind, help) in described() {
            assert!(seen.insert(name), "{name} is there twice");
            assert!(name.starts_with("baton_recipe_"), "{name}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
            assert!(help.ends_with('.') && !help.contains('\n'), "{help}");
        }
    }
}
