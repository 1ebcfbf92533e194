//! One queue used by Baton and another library at once: both put, both take, and a consumer is
//! killed in the middle.
//!
//! What was put must come out once. A killed consumer may take one item with it that was already
//! its own; a queue with locks may hand one out again instead.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::SESSION_TIMEOUT;
use crate::Result;
use crate::peer::{Event, Log, Peer, Spec};

const ITEMS_EACH: usize = 100;
const PATIENCE: Duration = Duration::from_secs(30);
/// After this long without an item none will come: a killed consumer's lock has gone by then.
const QUIET: Duration = Duration::from_secs(8);

/// Two names of one queue.
struct SharedNames {
    name: &'static str,
    ours: &'static str,
    theirs: &'static str,
}

const QUEUES: &[SharedNames] = &[
    SharedNames {
        name: "`DistributedQueue` and zookeeper-recipes `DistributedQueue`",
        ours: "baton-queue:qn",
        theirs: "zk-queue",
    },
    SharedNames {
        name: "`DistributedQueue` and Curator `SimpleDistributedQueue`",
        ours: "baton-queue:qn",
        theirs: "curator-queue",
    },
    SharedNames {
        name: "`DistributedQueue` (`queue-`) and Curator `DistributedQueue`",
        ours: "baton-queue:curator",
        theirs: "curator-fifo",
    },
    SharedNames {
        name: "`LockingQueue` and Curator `DistributedQueue` with a lock path",
        ours: "baton-locking:curator",
        theirs: "curator-locked-fifo",
    },
    SharedNames {
        name: "`PriorityQueue` and Curator `DistributedPriorityQueue`",
        ours: "baton-priority",
        theirs: "curator-priority",
    },
    SharedNames {
        name: "`DelayQueue` and Curator `DistributedDelayQueue`",
        ours: "baton-delay",
        theirs: "curator-delay",
    },
    SharedNames {
        name: "`DistributedQueue` (`entry-`) and kazoo `Queue`",
        ours: "baton-queue:kazoo",
        theirs: "kazoo-queue",
    },
    SharedNames {
        name: "`LockingQueue` and kazoo `LockingQueue`",
        ours: "baton-locking:kazoo",
        theirs: "kazoo-locking-queue",
    },
];

/// The head of the table.
pub(super) const HEAD: [&str; 6] = ["queue", "server", "put", "taken", "twice", "missing"];

/// Runs every queue whose name contains the text; its row, and what is wrong.
pub(super) fn run(
    servers: &str,
    server: &str,
    only: &str,
) -> Result<(Vec<Vec<String>>, Vec<String>)> {
    let mut rows = Vec::new();
    let mut failures = Vec::new();
    for (number, queue) in QUEUES.iter().enumerate() {
        if !queue.name.contains(only) {
            continue;
        }
        let outcome = share(queue, servers, &format!("/queue-{number}"))
            .map_err(|error| format!("{}: {error}", queue.name))?;
        let row = vec![
            queue.name.to_owned(),
            server.to_owned(),
            outcome.put.to_string(),
            outcome
                .taken
                .iter()
                .map(|(library, items)| format!("{library} {items}"))
                .collect::<Vec<_>>()
                .join(", "),
            outcome.twice.to_string(),
            outcome.missing.to_string(),
        ];
        println!("{}", row.join(", "));
        rows.push(row);
        // One consumer was killed: it may have had one item in its hands.
        if outcome.twice > 1 || outcome.missing > 1 || outcome.taken.len() < 2 {
            failures.push(format!("{}: {outcome:?}", queue.name));
        }
    }
    Ok((rows, failures))
}

#[derive(Debug, Default)]
struct Outcome {
    put: usize,
    taken: BTreeMap<String, usize>,
    twice: usize,
    missing: usize,
}

fn share(queue: &SharedNames, servers: &str, path: &str) -> Result<Outcome> {
    let log = Log::default();
    let start = |recipe| {
        Peer::start(
            &log,
            &Spec {
                servers,
                recipe,
                path,
                name: "member",
                timeout: SESSION_TIMEOUT,
            },
        )
    };
    let mut producers = [start(queue.ours)?, start(queue.theirs)?];
    // What the libraries do not make themselves.
    for producer in &mut producers {
        producer.ask("put first", "put", PATIENCE)?;
    }
    let mut consumers = vec![
        start(queue.ours)?,
        start(queue.theirs)?,
        start(queue.theirs)?,
    ];
    for consumer in &mut consumers {
        consumer.send("drain")?;
    }
    for item in 0..ITEMS_EACH {
        for (number, producer) in producers.iter_mut().enumerate() {
            producer.ask(&format!("put {number}-{item}"), "put", PATIENCE)?;
        }
        if item == ITEMS_EACH / 2
            && let Some(mut victim) = consumers.pop()
        {
            victim.kill();
        }
    }
    let mut seen = 0;
    while log
        .wait(seen, QUIET, |event| event.what == "item")
        .is_some()
    {
        seen = log.len();
        sleep(Duration::from_millis(50));
    }
    let end = Instant::now() + QUIET;
    for consumer in &mut consumers {
        consumer.send("stop")?;
    }
    for consumer in &consumers {
        let _ = consumer.hear("done", end.saturating_duration_since(Instant::now()))?;
    }
    Ok(outcome(&log.events(), &log.recipes()))
}

fn outcome(events: &[Event], recipes: &[String]) -> Outcome {
    let mut outcome = Outcome::default();
    let mut balance: BTreeMap<&str, isize> = BTreeMap::new();
    for event in events {
        match event.what.as_str() {
            "put" => {
                outcome.put += 1;
                *balance.entry(&event.rest).or_default() += 1;
            }
            "item" => {
                let recipe = recipes.get(event.peer).map_or("", String::as_str);
                let library = recipe.split('-').next().unwrap_or(recipe).to_owned();
                *outcome.taken.entry(library).or_default() += 1;
                *balance.entry(&event.rest).or_default() -= 1;
            }
            _ => {}
        }
    }
    for left in balance.into_values() {
        outcome.missing += usize::try_from(left).unwrap_or(0);
        outcome.twice += usize::try_from(-left).unwrap_or(0);
    }
    outcome
}
