//! The experiments on three servers (H91): what a holder is not notified of when its server has
//! lost touch. Three ZooKeepers and three Batons run side by side, and the same is done to both.

use std::thread::sleep;
use std::time::{Duration, Instant};

use baton_testkit::{Ensemble, ServerOptions, Target};
use tokio::runtime::Runtime;

use super::measurements::{Measurements, Row};
use super::pair::{PATIENCE, Pair};
use super::{SESSION_TIMEOUT, SUBJECTS, TICK};
use crate::Result;

const SYNC_LIMIT: u32 = 5;
/// A holder acts every 20 ms until it is notified of a loss.
const ACT: &str = "act notified 20";

/// The holder's server, a follower, is cut off from the leader; clients of both go on.
pub(super) fn cut_off(runtime: &Runtime, runs: usize) -> Result<Vec<Row>> {
    cut_off_with(
        runtime,
        runs,
        "H91: the holder's server is cut off from its leader, client and server untouched: time for which both hold",
        SESSION_TIMEOUT,
    )
}

/// The same with a session timeout that is longer than a follower serves on.
pub(super) fn cut_off_long(runtime: &Runtime, runs: usize) -> Result<Vec<Row>> {
    cut_off_with(
        runtime,
        runs,
        "the same with a session timeout of 30 s",
        Duration::from_secs(30),
    )
}

fn cut_off_with(runtime: &Runtime, runs: usize, what: &str, timeout: Duration) -> Result<Vec<Row>> {
    experiment(
        runtime,
        runs,
        what,
        timeout,
        |ensemble, leader, cut| {
            let follower = (leader + 1) % 3;
            ensemble.set_cut_off(follower, cut);
        },
        |leader| ((leader + 1) % 3, (leader + 2) % 3),
        false,
    )
}

/// The holder's server leads, and loses both followers, which elect another.
pub(super) fn quorum(runtime: &Runtime, runs: usize) -> Result<Vec<Row>> {
    experiment(
        runtime,
        runs,
        "H91: the holder's server leads and loses its quorum: time for which both hold",
        SESSION_TIMEOUT,
        |ensemble, leader, cut| {
            // Neither do they follow it, nor can it follow the next one and bring its sessions
            // along.
            ensemble.set_cut_off(leader, cut);
        },
        |leader| (leader, (leader + 1) % 3),
        true,
    )
}

/// All hold, the cut is made, the next ones are granted, the holders are notified.
fn experiment(
    runtime: &Runtime,
    runs: usize,
    what: &str,
    timeout: Duration,
    cut: impl Fn(&Ensemble, usize, bool),
    holder_and_waiter: impl Fn(usize) -> (usize, usize),
    steps_down: bool,
) -> Result<Vec<Row>> {
    let options = ServerOptions {
        tick: TICK,
        min_session_timeout: SESSION_TIMEOUT,
        sync_limit: SYNC_LIMIT,
        ..ServerOptions::default()
    };
    let start = |target| runtime.block_on(Ensemble::start_with(target, 3, options.clone()));
    let zookeepers = start(Target::ZooKeeper)?;
    let batons = start(Target::Baton)?;
    let mut measurements = vec![Measurements::default(); SUBJECTS.len()];
    for run in 0..runs {
        let leads = runtime.block_on(zookeepers.wait_leader())?;
        let baton_leads = runtime.block_on(batons.wait_leader())?;
        let mut pairs = Vec::new();
        for subject in &SUBJECTS {
            let (ensemble, leader) = match subject.servers {
                Target::ZooKeeper => (&zookeepers, leads),
                Target::Baton => (&batons, baton_leads),
            };
            let at = |index: usize| -> Result<String> {
                let server = ensemble.servers().get(index).ok_or("no such server")?;
                Ok(server.connect_string())
            };
            let (holds, waits) = holder_and_waiter(leader);
            let path = format!("/run-{run}-{}", subject.folder);
            let mut pair = Pair::start(subject, &path, &at(holds)?, &at(waits)?, timeout)?;
            pair.holder.send(ACT)?;
            pairs.push(pair);
        }
        // All are in the wait queue by now, and every server has applied it.
        sleep(TICK);
        cut(&zookeepers, leads, true);
        cut(&batons, baton_leads, true);
        let server = zookeepers.servers().get(leads).ok_or("no such server")?;
        if steps_down {
            // Votes still pass between ZooKeepers: once the leader has sent its clients away it is
            // kept from being voted for again.
            let on_zookeeper = SUBJECTS.iter().zip(&pairs);
            let on_zookeeper = on_zookeeper.filter(|(it, _)| it.servers == Target::ZooKeeper);
            await_notified(&on_zookeeper.map(|(_, pair)| pair).collect::<Vec<_>>());
            server.pause()?;
        }
        let broke = observe(&mut pairs);
        cut(&zookeepers, leads, false);
        cut(&batons, baton_leads, false);
        if steps_down {
            server.resume()?;
        }
        for (measurements, seconds) in measurements.iter_mut().zip(broke?) {
            measurements.push(seconds);
        }
    }
    Ok(vec![Row::new(what, &measurements, |measurements| {
        measurements.range(1, " s")
    })])
}

/// Waits until one holder is notified of a loss, or one waiter has the lock.
fn await_notified(pairs: &[&Pair]) {
    let end = Instant::now() + PATIENCE;
    let settled = |pair: &Pair| {
        pair.log.events().iter().any(|event| match &*event.what {
            "notified" => event.peer == pair.holder.id(),
            "enter" => event.peer == pair.waiter.id(),
            _ => false,
        })
    };
    while Instant::now() < end && !pairs.iter().copied().any(settled) {
        sleep(Duration::from_millis(20));
    }
}

/// For how many seconds each holder went on after the other had been granted the lock.
fn observe(pairs: &mut [Pair]) -> Result<Vec<f64>> {
    let mut broke = Vec::new();
    let mut granted = Vec::new();
    for pair in pairs.iter() {
        let event = pair.granted(PATIENCE)?;
        granted.push(event.ok_or("a waiter was never granted the lock of a session that is gone")?);
    }
    for (pair, granted) in pairs.iter().zip(granted) {
        // It is notified in the end: its server gives up after syncLimit ticks.
        pair.log.wait(0, PATIENCE, |event| {
            event.peer == pair.holder.id() && event.what == "done" && event.rest == "act"
        });
        let last = pair.acts_after(granted.nanos).last().copied();
        let nanos = last.map_or(0, |last| last - granted.nanos);
        broke.push(Duration::from_nanos(nanos).as_secs_f64());
    }
    Ok(broke)
}
