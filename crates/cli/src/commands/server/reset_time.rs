//! `baton server reset-time`: the time of the tree, which never goes back by itself, is set back to
//! the clocks. ZooKeeper's protocol has no operation for that, so the leader is asked at its HTTP
//! port.

use std::time::Duration;

use tokio::time::Instant;

use super::{Ensemble, transfer};
use crate::duration;
use crate::exit::{self, Failure};
use crate::output::record::record;
use crate::servers::probe;

/// Between two looks at the servers.
const INTERVAL: Duration = Duration::from_millis(100);
/// Time is that of the clocks if it is less than this many seconds ahead.
const CLOSE: f64 = 10.0;

/// Sets the time back, and waits until it is.
pub(super) async fn run(
    ensemble: &Ensemble<'_>,
    http: &[String],
    token: Option<&str>,
    wait: Duration,
) -> Result<u8, Failure> {
    let output = &ensemble.context.output;
    let was_ahead = ahead(ensemble).await?;
    if was_ahead < CLOSE {
        output.note("the time of the newest change is that of the clocks already");
    } else {
        let config = ensemble.members_if_any().await?;
        let addresses = match config.members.is_empty() {
            true => ensemble.known.iter().cloned().map(Some).collect(),
            false => probe::client_addresses(&config, &ensemble.known, ensemble.tls).await,
        };
        let leads = transfer::leader_at(&addresses, ensemble.tls).await;
        let leader = leads.and_then(|at| addresses.get(at)?.as_deref());
        let target = "/commands/reset_time";
        transfer::ask_leader(ensemble, http, token, leader, target).await?;
        let until = Instant::now() + wait;
        while ahead(ensemble).await? >= CLOSE {
            if Instant::now() >= until {
                return Err(Failure::baton(format!(
                    "time is not back within {}; baton doctor shows whose clock is wrong",
                    duration::show(wait)
                )));
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }
    let report = record! { was_ahead_seconds: was_ahead };
    output.result(&report, "time goes on from the clocks");
    Ok(exit::OK)
}

/// Returns the seconds by which the newest change is ahead of the clocks, at the server where it
/// is most.
async fn ahead(ensemble: &Ensemble<'_>) -> Result<f64, Failure> {
    let addresses: Vec<_> = ensemble.known.iter().cloned().map(Some).collect();
    let answers = probe::ask_all(&addresses, "mntr", ensemble.tls).await;
    let seconds = answers.iter().flatten().filter_map(|answer| {
        let mut lines = answer.lines();
        let value = lines.find_map(|line| line.strip_prefix("zk_baton_time_ahead_seconds\t"))?;
        value.trim().parse::<f64>().ok()
    });
    seconds.reduce(f64::max).ok_or_else(|| {
        Failure::baton(
            "no server reports its time by mntr: that takes a Baton server of this version with mntr in its four_letter_words",
        )
    })
}
