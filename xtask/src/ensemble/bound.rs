//! One write at a time through three servers, beside what the machine itself allows: a loop of our
//! own on the same disk, which does for each write only what no server can do without.

use std::io::{Read, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use baton_testkit::Target;

use super::throughput::{Case, ClientTarget, HEAP, measure, start};
use crate::load_generator::Measurements;
use crate::machine::{LogFile, MESSAGE_BYTES, connection, serve};
use crate::table::{markdown, quantile, ratio, show};
use crate::{Result, machine};

/// The time of each write of a client to a leader, which writes and syncs it while a follower does,
/// and answers then. With `forwarded`, the client's server is the follower: it sends the request on
/// to the leader, and answers once the leader has answered that both have it.
fn bare_writes(folder: &Path, window: Duration, forwarded: bool) -> Result<Vec<Duration>> {
    let (mut client, client_server) = connection()?;
    let (mut to_follower, follower) = connection()?;
    let (to_leader, leader) = connection()?;
    let mut own = LogFile::create(folder, "bound-leader")?;
    let mut others = LogFile::create(folder, "bound-follower")?;
    thread::scope(|scope| {
        scope.spawn(move || serve(follower, || others.append()).map_err(|e| e.to_string()));
        let commit = move || {
            to_follower.write_all(&[1; MESSAGE_BYTES])?;
            own.append()?;
            Ok(to_follower.read_exact(&mut [0; MESSAGE_BYTES])?)
        };
        if forwarded {
            let mut to_leader = to_leader;
            scope.spawn(move || serve(leader, commit).map_err(|e| e.to_string()));
            let forward = move || {
                to_leader.write_all(&[1; MESSAGE_BYTES])?;
                Ok(to_leader.read_exact(&mut [0; MESSAGE_BYTES])?)
            };
            scope.spawn(move || serve(client_server, forward).map_err(|e| e.to_string()));
        } else {
            scope.spawn(move || serve(client_server, commit).map_err(|e| e.to_string()));
        }
        let mut took = Vec::new();
        let begun = Instant::now();
        while begun.elapsed() < window {
            let sent = Instant::now();
            client.write_all(&[1; MESSAGE_BYTES])?;
            client.read_exact(&mut [0; MESSAGE_BYTES])?;
            took.push(sent.elapsed());
        }
        // The others end with their connections.
        drop(client);
        Ok(took)
    })
}

/// Measures `set`, 1×1, through the leader and a follower, beside Apache ZooKeeper and the bound,
/// in turn, and prints the table.
pub(super) async fn take(baton: &Path, rounds: usize, seconds: u64) -> Result<()> {
    let zookeeper = start(Target::ZooKeeper, baton, HEAP).await?;
    let ours = start(Target::Baton, baton, HEAP).await?;
    let folder = tempfile::tempdir()?;
    let mut rows = Vec::new();
    for through in [ClientTarget::Leader, ClientTarget::Follower] {
        let case = Case::one(through);
        let mut bound = Measurements::default();
        let mut servers = [Measurements::default(), Measurements::default()];
        for round in 1..=rounds {
            eprintln!("round {round} of {rounds}: {}", case.label());
            let forwarded = matches!(through, ClientTarget::Follower);
            let window = Duration::from_secs(seconds);
            let mut took = bare_writes(folder.path(), window, forwarded)?;
            let mut at = |part| quantile(&mut took, part).as_secs_f64() * 1e6;
            bound.p50_us.push(at(500));
            bound.p99_us.push(at(990));
            for (ensemble, measured) in [&zookeeper, &ours].into_iter().zip(&mut servers) {
                measure(&case, ensemble, seconds, measured).await?;
            }
        }
        rows.push(row(&case, &bound, &servers));
    }
    let head = [
        "workload, connections × in flight, through",
        "bound µs p50 / p99",
        "Baton µs p50 / p99",
        "p50 to the bound",
        "p99 to p50",
        "ZooKeeper µs p50 / p99",
        "Baton op/s",
        "to ZooKeeper's rate",
    ];
    println!(
        "Taken on {}, in {}; median of {rounds} rounds of {seconds} s.\n\n{}",
        machine::describe(),
        std::env::temp_dir().display(),
        markdown(&head, &rows)
    );
    Ok(())
}

fn row(case: &Case, bound: &Measurements, [theirs, ours]: &[Measurements; 2]) -> Vec<String> {
    vec![
        case.label(),
        bound.latency(),
        ours.latency(),
        ratio(ours.p50_us.median(), bound.p50_us.median()),
        ratio(ours.p99_us.median(), ours.p50_us.median()),
        theirs.latency(),
        show(ours.ops_per_second.median()),
        ratio(ours.ops_per_second.median(), theirs.ops_per_second.median()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::RECORD_BYTES;

    #[test]
    fn a_write_is_answered_when_both_files_have_it() {
        let folder = tempfile::tempdir().unwrap();
        for forwarded in [false, true] {
            let took = bare_writes(folder.path(), Duration::from_millis(1), forwarded).unwrap();
            assert!(!took.is_empty());
            for name in ["bound-leader", "bound-follower"] {
                let content = std::fs::read(folder.path().join(name)).unwrap();
                let written = content.iter().filter(|byte| **byte == 7).count();
                assert_eq!(written, took.len() * RECORD_BYTES, "{name}");
            }
        }
    }
}
