//! Checks of the tree: layouts of recipes that are damaged, nodes that block, numbers that end,
//! znodes with very many children, dates that are still to come. It reads only, and at most as many
//! znodes as it may.

use std::time::{Duration, Instant, SystemTime};

use baton::inspect::{Inspector, LockSnapshot, sequence_number};
use baton_client::{Error, Session};
use baton_proto::path::join;
use serde_json::Value;

use super::finding::{Finding, Severity, quoted};

/// A sequence number from which on the end of the numbers is near; they end at 2^31 - 1.
const HIGH_NUMBER: i64 = 2_000_000_000;
/// Listings of more children than this are long, and too long.
const MANY_CHILDREN: usize = 10_000;
const TOO_MANY_CHILDREN: usize = 100_000;
/// A znode that is newer than the present by this says that a clock is wrong.
const SKEW: Duration = Duration::from_secs(1);
/// Findings of one kind. Further ones are counted.
const MOST_OF_A_KIND: usize = 5;
/// The nodes that a work queue cannot do without.
const QUEUE_PARTS: [&str; 3] = ["items", "dead", "ids"];
/// The counter of a work queue of limited capacity.
const QUEUE_COUNTER: &str = "gate";
/// Bound on the length of a work queue's own znode.
const MOST_TERMS_BYTES: i32 = 256;
/// The znode of the servers, in which nothing is judged.
const SERVERS_OWN: &str = "/zookeeper";

/// Limits on the part of the tree that is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) znodes: usize,
    pub(super) time: Duration,
}

/// Findings of one kind, of which only the first are kept.
struct Kind {
    check: &'static str,
    findings: Vec<Finding>,
    more: usize,
}

impl Kind {
    fn add(&mut self, finding: impl FnOnce() -> Finding) {
        if self.findings.len() < MOST_OF_A_KIND {
            self.findings.push(finding());
        } else {
            self.more += 1;
        }
    }

    /// Its findings, or that there are none.
    fn close(mut self, fine: &str) -> Vec<Finding> {
        if self.findings.is_empty() {
            return vec![Finding::ok(self.check, "tree", fine)];
        }
        if self.more > 0
            && let Some(last) = self.findings.last_mut()
        {
            last.finding
                .push_str(&format!(" (and {} more such)", self.more));
        }
        self.findings
    }
}

struct Walk<'a> {
    session: &'a Session,
    inspector: &'a Inspector,
    queues: Kind,
    locks: Kind,
    numbers: Kind,
    children: Kind,
    unread: usize,
    /// The newest date of a znode, by the clock of the server that led then, in milliseconds.
    newest_ms: i64,
}

/// Reads the tree below `root`, as far as the limits let it.
pub(super) async fn judge(
    session: &Session,
    inspector: &Inspector,
    root: &str,
    limits: Limits,
) -> Vec<Finding> {
    let kind = |check| Kind {
        check,
        findings: Vec::new(),
        more: 0,
    };
    let mut walk = Walk {
        session,
        inspector,
        queues: kind("queue"),
        locks: kind("lock"),
        numbers: kind("numbers"),
        children: kind("children"),
        unread: 0,
        newest_ms: 0,
    };
    let (seen, stopped) = walk.down(root, limits).await;
    let mut findings = walk.queues.close("no work queue lacks a part");
    findings.extend(walk.locks.close("no lock has foreign or orphaned nodes"));
    findings.extend(walk.numbers.close("no sequence numbers near their end"));
    findings.extend(walk.children.close("no znode has very many children"));
    findings.push(skew(walk.newest_ms, SystemTime::now()));
    if let Some(why) = stopped {
        let why = format!("{seen} znodes below {root} were read, then {why}");
        let remedy = "check a part of the tree: baton doctor PATH; or allow more with --znodes";
        findings.push(Finding::unknown("tree", "tree", &why, remedy));
    } else if walk.unread > 0 {
        let why = format!("{} of {seen} znodes may not be read", walk.unread);
        let remedy = "present credentials that may read them with --auth-file";
        findings.push(Finding::unknown("tree", "tree", &why, remedy));
    } else {
        findings.push(Finding::ok(
            "tree",
            "tree",
            format!("{seen} znodes were read"),
        ));
    }
    findings
}

/// Whether a znode has a date that is still to come: then the clock of the server that gave it, or
/// that of this machine, is wrong. A server's clock that is behind shows in no date.
pub(super) fn skew(newest_ms: i64, now: SystemTime) -> Finding {
    const CHECK: &str = "skew";
    let newest = Duration::from_millis(newest_ms.try_into().unwrap_or(0));
    let ahead = (SystemTime::UNIX_EPOCH + newest).duration_since(now);
    let ahead = ahead.unwrap_or_default();
    if ahead <= SKEW {
        let fine = "no znode is newer than this machine's clock";
        return Finding::ok(CHECK, "tree", fine);
    }
    Finding::warning(
        CHECK,
        "tree",
        format!(
            "a znode is {:.1} s newer than this machine's clock",
            ahead.as_secs_f64()
        ),
    )
    .advise(
        "the clocks of a majority of the servers were set wrong when it was written, or this \
         machine's is; the check time says which",
        "delayed items of queues appear too early or too late, and ages are shown wrong; leases \
         do not depend on it",
        "set the clocks of all machines by one time service (timedatectl, chronyc tracking); \
         baton server reset-time then mends the dates",
    )
}

impl Walk<'_> {
    /// Returns the number of znodes that were looked at, and why not all of them.
    async fn down(&mut self, root: &str, limits: Limits) -> (usize, Option<String>) {
        let begun = Instant::now();
        let mut todo = vec![root.to_owned()];
        let mut seen = 0;
        while let Some(path) = todo.pop() {
            if seen >= limits.znodes {
                return (seen, Some("the limit was reached".to_owned()));
            }
            if begun.elapsed() >= limits.time {
                return (seen, Some("the time was up".to_owned()));
            }
            seen += 1;
            match self.look_at(&path).await {
                Ok(mut names) => {
                    // No more than could be looked at: a listing may be very long.
                    names.truncate(limits.znodes);
                    names.sort_unstable_by(|one, other| other.cmp(one));
                    let below = names.iter().map(|name| join(&path, name));
                    todo.extend(below.filter(|path| path != SERVERS_OWN));
                }
                // Deleted since its parent was listed.
                Err(error) if error.is_no_node() && path != root => {}
                Err(error) if error.is_no_auth() => self.unread += 1,
                Err(error) => return (seen, Some(quoted(&error.to_string()))),
            }
        }
        (seen, None)
    }

    async fn look_at(&mut self, path: &str) -> Result<Vec<String>, Error> {
        let listed = self.session.children(path).await?;
        let stat = &listed.stat;
        self.newest_ms = self.newest_ms.max(stat.ctime).max(stat.mtime);
        let names = listed.names;
        if names.len() > MANY_CHILDREN {
            self.children.add(|| many_children(path, names.len()));
        }
        if let Some(number) = names.iter().filter_map(|name| sequence_number(name)).max()
            && number >= HIGH_NUMBER
        {
            self.numbers.add(|| high_number(path, number));
        }
        let has = |part: &&str| names.iter().any(|name| name == part);
        if QUEUE_PARTS.iter().filter(|part| has(part)).count() > 0 || names.is_empty() {
            self.look_at_queue(path, &listed.stat, &names).await?;
        }
        let is_numbered = |name: &String| sequence_number(name).is_some();
        if names.len() <= MANY_CHILDREN && names.iter().any(is_numbered) {
            match self.inspector.lock(path).await {
                Ok(lock) => self.look_at_lock(&lock),
                Err(error) if error.is_no_auth() => self.unread += 1,
                // Deleted meanwhile, or the connection was lost: the next read says so.
                Err(_) => {}
            }
        }
        Ok(names)
    }

    /// Whether a znode is a work queue, and lacks a part.
    async fn look_at_queue(
        &mut self,
        path: &str,
        stat: &baton_client::Stat,
        names: &[String],
    ) -> Result<(), Error> {
        if stat.data_length == 0 || stat.data_length > MOST_TERMS_BYTES {
            return Ok(());
        }
        let read = self.session.get_data(path).await?;
        let Ok(terms) = serde_json::from_slice::<Value>(&read.data) else {
            return Ok(());
        };
        if terms.get("work_queue").is_none() {
            return Ok(());
        }
        let is_limited = terms
            .get("capacity")
            .is_some_and(|capacity| !capacity.is_null());
        let parts = QUEUE_PARTS.iter().copied();
        let parts = parts.chain(is_limited.then_some(QUEUE_COUNTER));
        let missing: Vec<_> = parts
            .filter(|part| !names.iter().any(|name| name == part))
            .collect();
        if !missing.is_empty() {
            self.queues.add(|| damaged_queue(path, &missing));
        }
        Ok(())
    }

    fn look_at_lock(&mut self, lock: &LockSnapshot) {
        if lock.is_in_use() && !lock.foreign.is_empty() {
            self.locks.add(|| foreign_children(lock));
        }
        if lock.is_in_use() && !lock.unowned.is_empty() {
            self.locks.add(|| orphans(lock));
        }
        if lock.is_mixed() {
            self.locks.add(|| mixed(lock));
        }
    }
}

fn many_children(path: &str, count: usize) -> Finding {
    let severity = match count > TOO_MANY_CHILDREN {
        true => Severity::Error,
        false => Severity::Warning,
    };
    Finding::new(
        severity,
        "children",
        &quoted(path),
        format!("{count} children"),
    )
    .advise(
        "they are made and never deleted, or a simple queue has grown",
        "each listing is as long; past 1 MB Apache ZooKeeper's clients refuse it, and nobody can \
         delete them",
        "delete what nobody needs; use a work queue, which keeps its items in folders of bounded \
         size",
    )
}

fn high_number(path: &str, number: i64) -> Finding {
    Finding::warning(
        "numbers",
        &quoted(path),
        format!("sequence number {number}; they end at {}", i32::MAX),
    )
    .advise(
        "the parent has counted nearly 2^31 sequential children since it was made",
        "numbers behind that are negative: libraries other than Baton serve waiters in a wrong \
         order",
        "delete the znode when nobody uses it and let it be created again, or use another path",
    )
}

fn damaged_queue(path: &str, missing: &[&str]) -> Finding {
    Finding::error(
        "queue",
        &quoted(path),
        format!("the work queue lacks {}", missing.join(", ")),
    )
    .advise(
        "somebody has deleted a node of the queue's own",
        "items are not put or not taken; ids may be given twice",
        "run: baton queue work repair PATH",
    )
}

fn foreign_children(lock: &LockSnapshot) -> Finding {
    let first = lock.foreign.first().map(ToString::to_string);
    Finding::error(
        "lock",
        &quoted(&lock.path),
        format!(
            "{} foreign children in a lock that is used; {}",
            lock.foreign.len(),
            quoted(&first.unwrap_or_default())
        ),
    )
    .advise(
        "programs with another library, or with another naming scheme, use the same path",
        "they do not wait for each other; Baton refuses the path, others may both hold the lock",
        "let all who use the path use the same naming scheme, or give each a path of its own",
    )
}

fn orphans(lock: &LockSnapshot) -> Finding {
    let first = lock.unowned.first().map(|node| quoted(&node.path));
    Finding::error(
        "lock",
        &quoted(&lock.path),
        format!(
            "{} nodes in the wait queue that no session owns, first {}",
            lock.unowned.len(),
            first.unwrap_or_default()
        ),
    )
    .advise(
        "a program has made them without EPHEMERAL, or they were restored by hand",
        "they hold or block the lock for ever: no session's end deletes them",
        "delete them once you are sure that nobody needs them: baton rm PATH",
    )
}

fn mixed(lock: &LockSnapshot) -> Finding {
    Finding::error(
        "lock",
        &quoted(&lock.path),
        "waiters of several naming schemes",
    )
    .advise(
        "programs with different libraries use the same path",
        "they do not wait for each other: each scheme has a holder of its own",
        "let all who use the path use the same naming scheme, or give each a path of its own",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_findings_of_a_kind_the_first_are_shown_and_the_others_counted() {
        let mut kind = Kind {
            check: "numbers",
            findings: Vec::new(),
            more: 0,
        };
        for _ in 0..1000 {
            kind.add(|| high_number("/x", HIGH_NUMBER));
        }
        let findings = kind.close("");
        assert_eq!(findings.len(), MOST_OF_A_KIND);
        assert!(
            findings[MOST_OF_A_KIND - 1]
                .finding
                .ends_with("(and 995 more such)")
        );
    }
}
