//! Servers that are far from each other: how long reads and writes at each of them take, beside the
//! round trip between two, and whether a leader is given up though nothing has failed.

use std::time::{Duration, Instant};

use baton_client::CreateMode;
use baton_testkit::Target;
use tokio::task::JoinSet;

use super::load::{Client, PATIENCE, timed_until};
use super::stage::{Report, Settings, Stage};
use crate::process::server_name;
use crate::table::{markdown, quantile};
use crate::{Result, machine};

/// The round trip between two servers, where nothing else is asked for.
const APART: Duration = Duration::from_millis(50);
/// Pause between two reads of one client, which would keep a core busy otherwise.
const READ_PAUSE: Duration = Duration::from_millis(5);

/// Writes and reads at each server, one at a time, until the time is over. Prints a table, and
/// counts elections.
pub(super) async fn take(settings: &Settings) -> Result<Report> {
    let apart = settings.apart.unwrap_or(APART);
    let settings = Settings {
        apart: Some(apart),
        ..settings.clone()
    };
    let mut stage = Stage::start(&settings, true).await?;
    let outcome = measure(&mut stage, apart).await;
    stage.finish(outcome).await
}

async fn measure(stage: &mut Stage, apart: Duration) -> Result<()> {
    let leader = stage.ensemble.wait_leader().await?;
    let before = elections(stage).await?;
    stage.report.runs = 1;
    let end = Instant::now() + stage.settings.length();
    // A read waits for the writes of its own session that were sent before it.
    let readers = Client::one_each(stage.ensemble.servers()).await?;
    let mut clients = JoinSet::new();
    for (writer, reader) in stage.clients.iter().zip(&readers) {
        let (index, writer, reader) =
            (writer.index, writer.session.clone(), reader.session.clone());
        clients.spawn(async move {
            let path = format!("/region-{index}");
            writer.create(&path, b"", CreateMode::Persistent).await?;
            let (sets, gets) = tokio::try_join!(
                timed_until(end, None, || writer.set_data(&path, b"x", None)),
                timed_until(end, Some(READ_PAUSE), || reader.get_data("/")),
            )?;
            Ok::<_, baton_client::Error>([(index, "set", sets), (index, "get", gets)])
        });
    }
    let mut rows = Vec::new();
    while let Some(client) = clients.join_next().await {
        for (index, operation, mut took) in client?? {
            let role = if index == leader {
                "leader"
            } else {
                "follower"
            };
            let mut row = vec![operation.into(), role.into(), took.len().to_string()];
            for part in [500, 990, 1_000] {
                let time = quantile(&mut took, part);
                row.push(format!("{:.2} ms", time.as_secs_f64() * 1e3));
            }
            let p50 = quantile(&mut took, 500).as_secs_f64();
            row.push(format!("{:.2}", p50 / apart.as_secs_f64()));
            rows.push(row);
        }
    }
    rows.sort();
    let head = [
        "operation",
        "at the",
        "count",
        "p50",
        "p99",
        "longest",
        "p50 in round trips",
    ];
    println!(
        "{}, {} ms from one to another and back, on {}.\n\n{}",
        server_name(stage.settings.target),
        apart.as_millis(),
        machine::describe(),
        markdown(&head, &rows)
    );
    for reader in readers {
        reader.session.close_timeout(PATIENCE).await?;
    }
    stage.report.elections = elections(stage).await? - before;
    Ok(())
}

/// Elections so far; 0 of ZooKeeper, which does not say it.
async fn elections(stage: &Stage) -> Result<u64> {
    match stage.settings.target {
        Target::Baton => stage.term().await,
        Target::ZooKeeper => Ok(0),
    }
}
