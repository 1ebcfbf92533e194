//! Groups of Baton's processes and another library's in one wait queue, with random crashes of all
//! and random pauses of Baton's.
//!
//! The others are not paused: a paused holder of theirs goes on afterwards under another's turn
//! (H25, `docs/user/why.md`), which is nothing that a group could prevent. Nothing may overlap
//! (H90).

use std::time::{Duration, Instant};

use baton_testkit::{ServerOptions, Target, TestServer};
use tokio::runtime::Runtime;

use super::{Args, SESSION_TIMEOUT, matrix, meetings, queues};
use crate::peer::{Log, Peer, Rule, Spec, Tally, nanos, require};
use crate::process::server_name;
use crate::{Result, table};

const TICK: Duration = Duration::from_secs(2);
const HOLD_AND_THINK: &str = "loop 5 10";
/// Average time from when the wait queue moves again after one fault to the next fault.
const FAULT_PAUSE_MS: u64 = 1_500;
/// After this number of turns behind a fault the queue moves again: more than members that stood
/// before the one that it hit.
const MOVING: usize = 8;
/// A queue that does not move for this long gets its next fault all the same.
const STANDSTILL: Duration = Duration::from_secs(12);
/// Number of hand-overs that a group must show.
const ENOUGH_HAND_OVERS: usize = 30;
/// Extra time that a run may take until it does.
const PATIENCE: Duration = Duration::from_secs(60);

/// The members of one wait queue.
struct Group {
    name: &'static str,
    members: [&'static str; 4],
    rule: Rule,
}

const fn group(name: &'static str, ours: &'static str, theirs: &'static str) -> Group {
    Group {
        name,
        members: [ours, theirs, ours, theirs],
        rule: Rule::AtMost(1),
    }
}

const GROUPS: &[Group] = &[
    group(
        "`Mutex` and Curator `InterProcessMutex`",
        "baton-lock:curator",
        "curator-mutex",
    ),
    group("`Mutex` and kazoo `Lock`", "baton-lock:kazoo", "kazoo-lock"),
    group(
        "`Mutex` and zookeeper-recipes `WriteLock`",
        "baton-lock:zookeeper-recipes",
        "zk-lock-retried",
    ),
    Group {
        members: [
            "baton-read:curator",
            "curator-read",
            "baton-write:curator",
            "curator-write",
        ],
        rule: Rule::ReadWrite,
        ..group("`RwLock` and Curator `InterProcessReadWriteLock`", "", "")
    },
    Group {
        members: [
            "baton-read:kazoo",
            "kazoo-read",
            "baton-write:kazoo",
            "kazoo-write",
        ],
        rule: Rule::ReadWrite,
        ..group("`RwLock` and kazoo `ReadLock`, `WriteLock`", "", "")
    },
    Group {
        rule: Rule::AtMost(2),
        ..group(
            "`Semaphore` of 2 and Curator `InterProcessSemaphoreV2`",
            "baton-semaphore",
            "curator-semaphore",
        )
    },
    group(
        "`LeaderElection` and Curator `LeaderLatch`",
        "baton-election:curator-latch",
        "curator-latch",
    ),
    group(
        "`LeaderElection` and Curator `LeaderSelector`",
        "baton-election:curator",
        "curator-selector",
    ),
    group(
        "`LeaderElection` and kazoo `Election`",
        "baton-election:kazoo",
        "kazoo-election",
    ),
    group(
        "`LeaderElection` and zookeeper-recipes `LeaderElectionSupport`",
        "baton-election:leader-election-support",
        "zk-election-retried",
    ),
];

/// Outcome of one group on one server.
struct Outcome {
    tally: Tally,
    kills: usize,
    pauses: usize,
}

/// Runs every group on every server, tries every cell of the matrix, and prints both.
pub(super) fn run(args: &Args) -> Result<()> {
    require()?;
    let runtime = Runtime::new()?;
    let mut rows = Vec::new();
    let mut queue_rows = Vec::new();
    let mut meeting_rows = Vec::new();
    let mut failures = Vec::new();
    for target in [Target::Baton, Target::ZooKeeper] {
        if args.server.is_some_and(|server| server.target() != target) {
            continue;
        }
        let options = ServerOptions {
            tick: TICK,
            min_session_timeout: SESSION_TIMEOUT,
            ..ServerOptions::default()
        };
        let server = runtime.block_on(TestServer::start_with(target, options))?;
        let servers = server.connect_string();
        if args.group.is_empty() {
            let (text, broken) = matrix::run(&runtime, &servers)?;
            println!("{text}");
            failures.extend(broken);
        }
        for (number, group) in GROUPS.iter().enumerate() {
            if !group.name.contains(&args.group) {
                continue;
            }
            let outcome = run_group(group, &servers, &format!("/mixed-{number}"), args)?;
            let row = row(group, target, &outcome);
            println!("{}", row.join(", "));
            let complaint = complaint(&outcome);
            failures.extend(complaint.map(|what| format!("{}: {what}", group.name)));
            rows.push(row);
        }
        let name = server_name(target);
        for (run, rows) in [
            (queues::run as SharedTrial, &mut queue_rows),
            (meetings::run as SharedTrial, &mut meeting_rows),
        ] {
            let (found, broken) = run(&servers, &name, &args.group)?;
            rows.extend(found);
            failures.extend(broken);
        }
    }
    let head = [
        "group",
        "server",
        "turns",
        "hand-overs",
        "killed",
        "paused",
        "stuck",
        "overlaps",
    ];
    println!("{}", table::markdown(&head, &rows));
    println!("{}", table::markdown(&queues::HEAD, &queue_rows));
    println!("{}", table::markdown(&meetings::HEAD, &meeting_rows));
    match failures.as_slice() {
        [] => Ok(()),
        some => Err(some.join("; ").into()),
    }
}

/// Runs what is shared on a server; rows, and what is wrong.
type SharedTrial = fn(&str, &str, &str) -> Result<(Vec<Vec<String>>, Vec<String>)>;

fn row(group: &Group, target: Target, outcome: &Outcome) -> Vec<String> {
    let tally = &outcome.tally;
    let turns: Vec<String> = tally
        .turns
        .iter()
        .map(|(library, turns)| format!("{library} {turns}"))
        .collect();
    vec![
        group.name.to_owned(),
        server_name(target),
        turns.join(", "),
        tally.hand_overs.to_string(),
        outcome.kills.to_string(),
        outcome.pauses.to_string(),
        tally.stuck.to_string(),
        tally.overlaps.to_string(),
    ]
}

fn complaint(outcome: &Outcome) -> Option<String> {
    let tally = &outcome.tally;
    if tally.overlaps > 0 {
        let millis = tally.longest_overlap_nanos / 1_000_000;
        return Some(format!(
            "{} overlaps, the longest {millis} ms",
            tally.overlaps
        ));
    }
    (tally.hand_overs < ENOUGH_HAND_OVERS).then(|| format!("only {} hand-overs", tally.hand_overs))
}

fn run_group(group: &Group, servers: &str, path: &str, args: &Args) -> Result<Outcome> {
    let log = Log::default();
    let spec = |recipe| Spec {
        servers,
        recipe,
        path,
        name: "member",
        timeout: SESSION_TIMEOUT,
    };
    let mut members = Vec::new();
    for recipe in group.members {
        members.push(Peer::launch(&log, &spec(recipe))?);
    }
    for member in &mut members {
        member.await_ready()?;
        member.send(HOLD_AND_THINK)?;
    }
    let (mut kills, mut pauses) = (0, 0);
    // Each group has faults of its own.
    let group_seed = path.bytes().fold(args.seed, |seed, byte| {
        seed.rotate_left(8) ^ u64::from(byte)
    });
    let mut rng = fastrand::Rng::with_seed(group_seed);
    let end = Instant::now() + Duration::from_secs(args.seconds);
    let mut paused: Option<(usize, Instant)> = None;
    // A fault may hold the wait queue up until a session has expired, so the next one waits until
    // it moves again.
    let (mut fault_at, mut said_at_fault) = (Instant::now(), 0);
    let mut next_fault = None;
    let two_timeouts = u64::try_from(2 * SESSION_TIMEOUT.as_millis())?;
    // On a slow machine the window may be over before the two have met: then it goes on, without
    // faults.
    let patience = end + PATIENCE;
    while Instant::now() < end
        || (Instant::now() < patience && log.tally(group.rule).hand_overs < ENOUGH_HAND_OVERS)
    {
        std::thread::sleep(Duration::from_millis(20));
        if let Some((slot, until)) = paused
            && Instant::now() >= until
        {
            if let Some(member) = members.get(slot) {
                member.resume()?;
            }
            paused = None;
        }
        if next_fault.is_none()
            && (log.count(said_at_fault, "enter") >= MOVING || fault_at.elapsed() > STANDSTILL)
        {
            let pause = Duration::from_millis(rng.u64(..=2 * FAULT_PAUSE_MS));
            next_fault = Some(Instant::now() + pause);
        }
        if next_fault.is_none_or(|at| Instant::now() < at) || Instant::now() >= end {
            continue;
        }
        let slot = usize::try_from(rng.u64(..=3))?;
        let Some(member) = members.get_mut(slot) else {
            continue;
        };
        let ours = member.recipe().starts_with("baton-");
        if paused.is_some_and(|(other, _)| other == slot) {
            continue;
        }
        if ours && paused.is_none() && rng.u64(..=1) == 0 {
            member.pause()?;
            pauses += 1;
            let length = Duration::from_millis(rng.u64(..=two_timeouts));
            paused = Some((slot, Instant::now() + length));
            said_at_fault = log.len();
        } else {
            member.kill();
            kills += 1;
            said_at_fault = log.len();
            let recipe = group.members.get(slot).ok_or("no such member")?;
            *member = Peer::start(&log, &spec(recipe))?;
            member.send(HOLD_AND_THINK)?;
        }
        (fault_at, next_fault) = (Instant::now(), None);
    }
    // What holds until now holds no longer.
    for member in &mut members {
        member.kill();
    }
    let ended = nanos();
    let mut events = log.events();
    events.retain(|event| event.what == "refused" && event.nanos < ended);
    if let Some(event) = events.first() {
        return Err(format!("{}: refused: {}", group.name, event.rest).into());
    }
    Ok(Outcome {
        tally: log.tally(group.rule),
        kills,
        pauses,
    })
}
