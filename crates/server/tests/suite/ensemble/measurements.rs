//! What `mntr` and `srvr` show of an ensemble: proposals, what followers receive, elections.

use super::SEQUENTIAL;
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
