//! Cost of three servers that nobody uses: processor time, and how often their threads wake up.

use std::time::Duration;

use tokio::time::sleep;

use super::stage::{Settings, Stage};
use crate::process::{cpu_seconds, wake_ups};
use crate::{Result, table};

/// Default time for which they are measured.
const WINDOW: Duration = Duration::from_secs(10);
/// Time for which they are left alone before: the connections that asked who leads are forgotten.
const REST: Duration = Duration::from_secs(3);
/// The most that they may cost: wake-ups of each in a second, and percent of a core of all.
const MOST_WAKE_UPS: f64 = 30.0;
const MOST_PERCENT: f64 = 0.5;

/// Starts servers and measures them. `checks`: more than the bounds is an error.
pub(super) async fn take(settings: &Settings, checks: bool) -> Result<()> {
    let stage = Stage::without_clients(settings, false).await?;
    let leader = stage.ensemble.wait_leader().await?;
    let window = settings.limit.unwrap_or(WINDOW);
    sleep(REST).await;
    let before = counts(&stage)?;
    sleep(window).await;
    let after = counts(&stage)?;
    let mut rows = Vec::new();
    let (mut is_within, mut all) = (true, 0.0);
    for (index, (after, before)) in after.iter().zip(&before).enumerate() {
        let wake_ups = (after.0 - before.0) as f64 / window.as_secs_f64();
        let percent = (after.1 - before.1) / window.as_secs_f64() * 100.0;
        is_within &= wake_ups <= MOST_WAKE_UPS;
        all += percent;
        let role = if index == leader {
            "leader"
        } else {
            "follower"
        };
        let server = (index + 1).to_string();
        rows.push(vec![
            server,
            role.to_owned(),
            format!("{wake_ups:.1}"),
            format!("{percent:.2}"),
        ]);
    }
    let head = ["server", "role", "wake-ups/s", "% of a core"];
    println!("{}", table::markdown(&head, &rows));
    println!("All together {all:.2} % of a core.");
    match checks && !(is_within && all <= MOST_PERCENT) {
        true => Err(format!(
            "more than {MOST_WAKE_UPS} wake-ups/s of one, or {MOST_PERCENT} % of a core of all"
        )
        .into()),
        false => Ok(()),
    }
}

/// Wake-ups and processor time of each server so far.
fn counts(stage: &Stage) -> Result<Vec<(u64, f64)>> {
    let servers = stage.ensemble.servers().iter();
    let counts = servers.map(|server| {
        let pid = server.pid()?;
        Some((wake_ups(pid)?, cpu_seconds(pid)?))
    });
    counts
        .collect::<Option<_>>()
        .ok_or_else(|| "a server has ended".into())
}
