//! Figure 8 of the Raft paper, on purpose (R03): an entry of an older term comes to a majority
//! while its leader has committed nothing of its own term, and a server that lacks the entry leads
//! next. Faults that come by chance do not lead there: each step needs the one before.
//!
//! Three servers: the *first* leads, is cut off, and takes an entry. The *second* leads, and is cut
//! off before anybody has an entry of its term. The first leads again, and the third server stores
//! the old entry. Then the first is cut off before the third has an entry of the new term, and the
//! second leads again: its last entry is of a newer term than the third server's.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::cluster::{Cluster, mark};

/// Limit of a step. Elections take a second where candidates meet servers that trust a leader.
const STEP_LIMIT: Duration = Duration::from_secs(4);
/// The pause between two scenes, and between two looks at the servers.
const PAUSE: Duration = Duration::from_millis(300);
const LOOK: Duration = Duration::from_millis(1);

/// Plays one scene after the other. Cancelling ends them.
pub(super) async fn play(cluster: Cluster) {
    loop {
        tokio::time::sleep(PAUSE).await;
        // A step whose aim is not met ends the scene.
        let _ = scene(&cluster).await;
    }
}

async fn scene(cluster: &Cluster) -> Option<()> {
    let first = until(|| cluster.leader_of_one_log()).await?;
    let first_alone = separate(cluster, first);
    let entry = until(|| cluster.stored_alone(first)).await?;
    let others: Vec<u64> = cluster
        .ids()
        .into_iter()
        .filter(|id| *id != first)
        .collect();
    let leads = |id: &u64| cluster.leads_after(*id, entry.term);
    let second = until(|| others.iter().copied().find(leads)).await?;
    let second_alone = separate(cluster, second);
    drop(first_alone);
    until(|| cluster.leads_after(first, entry.term).then_some(())).await?;
    let third = others.into_iter().find(|id| *id != second)?;
    until(|| cluster.has_matched(first, third, entry.index)).await?;
    if cluster.has_committed(first, entry.index) {
        return None;
    }
    cluster.recorder().mark(mark::FIGURE_EIGHT);
    let _first_alone = separate(cluster, first);
    drop(second_alone);
    until(|| cluster.leads_after(second, entry.term).then_some(())).await
}

/// Waits for something, if it comes in time.
async fn until<T>(found: impl Fn() -> Option<T>) -> Option<T> {
    let look = async {
        loop {
            if let Some(found) = found() {
                return found;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(STEP_LIMIT, look).await.ok()
}

/// Separates this server from the others until the result is dropped: they do not hear each other,
/// and nothing of what is on its way arrives.
fn separate(cluster: &Cluster, alone: u64) -> oneshot::Sender<()> {
    let others = cluster.ids().into_iter().filter(|id| *id != alone);
    let others: Vec<u64> = others.collect();
    let ways = others.iter().flat_map(|id| [(alone, *id), (*id, alone)]);
    let (end, ended) = oneshot::channel();
    cluster.cut_until(ways.collect(), async move {
        // Dropped at the end.
        let _ = ended.await;
    });
    for other in others {
        cluster.reset(alone, other, false);
    }
    end
}
