//! The partitioner: each item is one member's at a time, and somebody's once all has passed; nobody
//! has all of them then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use baton::partition::PartitionEvent;
use baton::{Guard, Partitioner};
use tokio::time::Instant;

use super::Scenario;
use crate::occupancy::Occupancy;
use crate::stage::Stage;

const PATH: &str = "/shards";
const ITEMS: [&str; 3] = ["a", "b", "c"];
/// From then on nothing goes wrong.
const DISTURBED: Duration = Duration::from_millis(60);
/// Time by which all members are there and all items assigned, whatever has happened.
const SETTLED: Duration = Duration::from_secs(30);

pub(super) fn scenarios() -> Vec<Scenario> {
    let keeps = |path: &str| path.starts_with(PATH);
    vec![
        Scenario::new("partitioner", 2, |stage| Box::pin(spread(stage, 2))).keeps(keeps),
        Scenario::new("partitioner-three", 3, |stage| Box::pin(spread(stage, 3))).keeps(keeps),
    ]
}

type Rooms = BTreeMap<&'static str, Occupancy>;
/// To whom each item was given last.
type Owners = Arc<Mutex<BTreeMap<Arc<str>, usize>>>;

async fn spread(stage: Stage, members: usize) {
    let begun = Instant::now();
    let rooms: Rooms = ITEMS
        .iter()
        .map(|item| (*item, stage.occupancy(item, 1)))
        .collect();
    let owners = Owners::default();
    let judge = async {
        tokio::time::sleep_until(begun + DISTURBED).await;
        stage.calm();
        tokio::time::sleep_until(begun + SETTLED).await;
        let owners: BTreeSet<usize> = owners.lock().map_or_else(
            |_| BTreeSet::new(),
            |owners| owners.values().copied().collect(),
        );
        stage.expect(owners.len() == members, || {
            format!("only {owners:?} of {members} members have items")
        });
        for (item, room) in &rooms {
            let held = room.held();
            stage.expect(held == 1, || format!("{item} is held by {held} members"));
        }
    };
    let act = |stage: Stage, number: usize| {
        let (rooms, owners) = (rooms.clone(), Arc::clone(&owners));
        async move { take_part(&stage, number, &rooms, &owners, begun + SETTLED * 2).await }
    };
    tokio::join!(stage.crew(members, act), judge);
}

async fn take_part(stage: &Stage, number: usize, rooms: &Rooms, owners: &Owners, until: Instant) {
    // The second comes when the first has settled: items change hands.
    stage.pause(25 * number as u64).await;
    let joined = Partitioner::new(stage.client(number), PATH, ITEMS)
        .and_then(|partitioner| partitioner.join(&format!("member-{number}")));
    let mut partition = match joined {
        Ok(partition) => partition,
        Err(error) => return stage.fail(&error.to_string()),
    };
    let mut mine: BTreeMap<Arc<str>, Arc<Guard>> = BTreeMap::new();
    loop {
        let next = stage.cancellable(tokio::time::timeout_at(until, partition.next()));
        match next.await {
            None => {}
            Some(Err(_)) => break,
            Some(Ok(Err(error))) => return stage.fail(&format!("member {number}: {error}")),
            Some(Ok(Ok(PartitionEvent::Assigned { item, guard }))) => {
                let guard = Arc::new(guard);
                let asked = Arc::downgrade(&guard);
                if let Some(room) = rooms.get(&*item) {
                    let who = format!("member {number}");
                    room.enter(&who, 1, guard.token(), move || {
                        asked.upgrade().is_some_and(|guard| guard.check().is_ok())
                    });
                }
                if let Ok(mut owners) = owners.lock() {
                    owners.insert(Arc::clone(&item), number);
                }
                mine.insert(item, guard);
            }
            Some(Ok(Ok(PartitionEvent::Revoked { item }))) => {
                stage.pause(2).await;
                if let Some(guard) = mine.remove(&item).and_then(Arc::into_inner) {
                    let released = guard.release().await;
                    stage.note(|| format!("member {number} gave back {item}: {released:?}"));
                }
            }
            Some(Ok(Ok(PartitionEvent::Lost { item, reason }))) => {
                stage.note(|| format!("member {number} lost {item}: {reason}"));
                // A later assignment may be behind this news.
                if mine.get(&item).is_some_and(|guard| guard.check().is_err()) {
                    mine.remove(&item);
                }
            }
            Some(Ok(Ok(event))) => stage.note(|| format!("member {number}: {event:?}")),
        }
    }
    partition.leave().await;
}
