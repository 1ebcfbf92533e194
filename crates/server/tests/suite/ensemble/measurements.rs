//! `mntr` and `srvr` of an ensemble: proposals, bytes to followers, elections.

use std::time::Duration;

use super::SEQUENTIAL;
use crate::support::PATIENCE;
use crate::support::ensemble::{Ensemble, sync};
use crate::support::word;

/// A metric of what `mntr` has shown; `None` where that server does not have it.
fn metric_in(shown: &str, name: &str) -> Option<f64> {
    let begin = format!("zk_{name}\t");
    let value = shown.lines().find_map(|line| line.strip_prefix(&begin))?;
    Some(value.parse().unwrap())
}

async fn metric(ensemble: &Ensemble, id: u64, name: &str) -> Option<f64> {
    metric_in(&word(&ensemble.address(id), "mntr").await, name)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_measures_what_it_proposes_and_followers_what_they_receive() {
    let ensemble = Ensemble::start(3).await;
    // Where leadership moves meanwhile, because the machine is busy, the new leader is looked at.
    let (leader, shown, sizes) = loop {
        let leader = ensemble.leader().await;
        let mut wire = ensemble.open(leader).await;
        for _ in 0..20 {
            wire.create("/n-", &[7; 500], SEQUENTIAL).await.unwrap();
        }
        let shown = word(&ensemble.address(leader), "mntr").await;
        let summary = word(&ensemble.address(leader), "srvr").await;
        let mut sizes = summary.lines();
        let sizes = sizes.find_map(|line| line.strip_prefix("Proposal sizes last/min/max: "));
        if let Some(sizes) = sizes
            && metric_in(&shown, "proposal_count") >= Some(20.0)
            && metric_in(&shown, "max_proposal_size").is_some()
        {
            break (leader, shown, sizes.to_owned());
        }
    };
    let sizes: Vec<u64> = sizes.split('/').map(|size| size.parse().unwrap()).collect();
    assert!(sizes[1] <= sizes[0] && sizes[0] <= sizes[2] && sizes[2] > 500);
    assert!(metric_in(&shown, "cnt_quorum_ack_latency") >= Some(20.0));
    assert!(metric_in(&shown, "max_proposal_size") > Some(500.0));
    let mut acknowledged = 0.0;
    for id in ensemble.ids().into_iter().filter(|id| *id != leader) {
        acknowledged += metric_in(&shown, &format!("cnt_{id}_ack_latency")).unwrap_or(0.0);
        let mut wire = ensemble.open(id).await;
        sync(&mut wire).await;
        for name in [
            "learner_proposal_received_count",
            "learner_commit_received_count",
            "cnt_propagation_latency",
        ] {
            assert!(metric(&ensemble, id, name).await >= Some(20.0), "{name}");
        }
    }
    assert!(acknowledged >= 20.0, "{acknowledged}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_server_measures_elections_and_how_long_it_answered_no_write() {
    let mut ensemble = Ensemble::start(3).await;
    let before = ensemble.leader().await;
    for id in ensemble.ids() {
        let mut wire = ensemble.open(id).await;
        sync(&mut wire).await;
        for (name, least) in [
            ("looking_count", 1.0),
            ("cnt_election_time", 1.0),
            ("cnt_unavailable_time", 1.0),
        ] {
            assert!(metric(&ensemble, id, name).await >= Some(least), "{name}");
        }
        let name = match id == before {
            true => "cnt_leader_unavailable_time",
            false => "cnt_follower_sync_time",
        };
        assert!(metric(&ensemble, id, name).await >= Some(1.0), "{name}");
    }
    ensemble.kill(before).await;
    for id in ensemble.ids() {
        let mut wire = ensemble.open(id).await;
        sync(&mut wire).await;
        for name in ["looking_count", "cnt_election_time", "cnt_unavailable_time"] {
            assert!(metric(&ensemble, id, name).await >= Some(2.0), "{name}");
        }
    }
}

/// Waits until `mntr` of this server shows a value of this metric that does.
async fn until_shown(ensemble: &Ensemble, id: u64, name: &str, does: impl Fn(f64) -> bool) {
    let shown = async {
        while !metric(ensemble, id, name).await.is_some_and(&does) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let came = tokio::time::timeout(PATIENCE, shown).await;
    assert!(came.is_ok(), "{name} of server {id}");
}

/// The clocks of servers on one machine are one.
#[tokio::test(flavor = "multi_thread")]
async fn each_server_shows_the_clocks_and_which_formats_the_others_read() {
    let ensemble = Ensemble::start(3).await;
    let is_close = |seconds: f64| seconds.abs() < 30.0;
    for id in ensemble.ids() {
        let newest = metric(&ensemble, id, "baton_format_level_newest").await;
        let newest = newest.unwrap();
        until_shown(&ensemble, id, "baton_format_level", |it| it == newest).await;
        until_shown(&ensemble, id, "baton_clock_offset_seconds", is_close).await;
        until_shown(&ensemble, id, "baton_time_ahead_seconds", is_close).await;
        for other in ensemble.ids().into_iter().filter(|other| *other != id) {
            let level = format!("baton_server_format_level_newest_{other}");
            until_shown(&ensemble, id, &level, |it| it == newest).await;
            let offset = format!("baton_server_clock_offset_ms_{other}");
            until_shown(&ensemble, id, &offset, |ms| is_close(ms / 1000.0)).await;
        }
    }
}
