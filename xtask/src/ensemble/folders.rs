//! Trials in which a server is started with another data folder than its own: an empty one, or an
//! older copy. It must be refused with the remedy, and must not vote.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::load::PATIENCE;
use super::stage::{ActiveRound, Report, SERVERS, Settings, Stage};
use crate::Result;

/// Time for which nothing may be acknowledged that needs the vote of a server that has none.
const QUIET: Duration = Duration::from_secs(3);
/// Time that the load goes on between the copy of a folder and the end of its server: the leader
/// notes each second what the others have acknowledged.
const SINCE_THE_COPY: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(20);

/// Log text of a server with an empty folder.
const EMPTY: &str = "neither votes nor serves";
/// Log text of the servers about one with an older copy.
const OLDER: &str = "is an older copy";

/// A follower's folder is lost (R17).
pub(super) async fn wiped_folder(settings: &Settings) -> Result<Report> {
    let mut stage = Stage::start(settings, false).await?;
    let outcome = lose_folders(&mut stage).await;
    stage.finish(outcome).await
}

/// A follower is started with an older copy of its folder (R19).
pub(super) async fn older_folder(settings: &Settings) -> Result<Report> {
    let mut stage = Stage::start(settings, false).await?;
    let outcome = start_older_copies(&mut stage).await;
    stage.finish(outcome).await
}

async fn lose_folders(stage: &mut Stage) -> Result<()> {
    while stage.has_next_run() {
        let leader = stage.ensemble.wait_leader().await?;
        let (victim, other) = ((leader + 1) % SERVERS, (leader + 2) % SERVERS);
        let running = stage.begin().await?;
        stage.server(victim)?.kill();
        let own = stage.server(victim)?.data_dir();
        let aside = beside(&own, "aside");
        fs::rename(&own, &aside)?;
        let seen = stage.server(victim)?.log().len();
        stage.server(victim)?.launch()?;
        await_line(stage, &[(victim, seen)], EMPTY).await?;
        // The others are a majority without it, and one of them alone is none with it.
        let two = Stage::others(victim);
        running.load.goes_on(&two, stage.clock.now()).await?;
        stage.server(other)?.kill();
        expect_no_majority(stage, &running).await?;
        stage.ensemble.restart(&[other]).await?;
        running.load.goes_on(&two, stage.clock.now()).await?;
        stage.server(victim)?.kill();
        fs::remove_dir_all(&own)?;
        fs::rename(&aside, &own)?;
        stage.ensemble.restart(&[victim]).await?;
        stage.all_go_on(&running).await?;
        stage.end(running, &[], Vec::new()).await?;
    }
    Ok(())
}

async fn start_older_copies(stage: &mut Stage) -> Result<()> {
    while stage.has_next_run() {
        let leader = stage.ensemble.wait_leader().await?;
        let victim = (leader + 1) % SERVERS;
        let running = stage.begin().await?;
        stage.server(victim)?.stop().await?;
        let own = stage.server(victim)?.data_dir();
        let (older, newest) = (beside(&own, "older"), beside(&own, "newest"));
        copy(&own, &older)?;
        stage.ensemble.restart(&[victim]).await?;
        stage.all_go_on(&running).await?;
        sleep(SINCE_THE_COPY).await;
        stage.server(victim)?.kill();
        fs::rename(&own, &newest)?;
        fs::rename(&older, &own)?;
        let mut seen = Vec::new();
        for index in 0..SERVERS {
            seen.push((index, stage.server(index)?.log().len()));
        }
        stage.server(victim)?.launch()?;
        await_line(stage, &seen, OLDER).await?;
        let two = Stage::others(victim);
        running.load.goes_on(&two, stage.clock.now()).await?;
        stage.server(victim)?.kill();
        fs::remove_dir_all(&own)?;
        fs::rename(&newest, &own)?;
        stage.ensemble.restart(&[victim]).await?;
        stage.all_go_on(&running).await?;
        stage.end(running, &[], Vec::new()).await?;
    }
    Ok(())
}

/// No write that begins from now on is acknowledged by anyone.
async fn expect_no_majority(stage: &Stage, running: &ActiveRound) -> Result<()> {
    let moment = stage.clock.now();
    sleep(QUIET).await;
    let all: Vec<usize> = (0..SERVERS).collect();
    match running.load.has_gone_on(&all, moment) {
        false => Ok(()),
        true => {
            Err("a write was acknowledged with the vote of a server whose folder was lost".into())
        }
    }
}

/// Waits until one of these servers has written a line with this text, behind what was seen of its
/// log.
async fn await_line(stage: &mut Stage, seen: &[(usize, usize)], text: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        for (index, seen) in seen {
            let log = stage.server(*index)?.log();
            if log.get(*seen..).is_some_and(|new| new.contains(text)) {
                return Ok(());
            }
        }
        if Instant::now() > deadline {
            return Err(format!("no server has said {text:?}").into());
        }
        sleep(POLL).await;
    }
}

/// The path of something that lies where the folder does.
pub(super) fn beside(folder: &Path, name: &str) -> PathBuf {
    folder.with_file_name(name)
}

/// Copies a folder and what is in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy(&entry.path(), &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
