//! Several locks at once, named in either order, beside somebody who wants only one of them.

use baton::{MultiLock, Mutex};
use baton_client::Op;

use super::Scenario;
use super::hold::{granted, hold, hold_in};
use crate::stage::Stage;

const ONE: &str = "/many/a";
const OTHER: &str = "/many/b";

pub(super) fn scenarios() -> Vec<Scenario> {
    let keeps = |path: &str| ["/many", ONE, OTHER].contains(&path);
    let removed = Scenario::new("multi-lock-removed", 3, |stage| Box::pin(removed(stage)));
    vec![
        Scenario::new("multi-lock", 3, |stage| Box::pin(turns(stage))).keeps(keeps),
        // Each waiter joins the queue again, each time.
        Scenario {
            more_creates: 30,
            ..removed.keeps(keeps)
        },
    ]
}

async fn turns(stage: Stage) {
    let rooms = (stage.occupancy(ONE, 1), stage.occupancy(OTHER, 1));
    let act = |stage: Stage, number: usize| {
        let (one, other) = rooms.clone();
        async move {
            for round in 0..2 {
                let who = format!("client {number}, round {round}");
                if number == 2 {
                    let Ok(mutex) = Mutex::new(stage.client(number), OTHER) else {
                        return stage.fail("no mutex");
                    };
                    let outcome = stage.cancellable(mutex.acquire()).await;
                    if let Some(guard) = granted(&stage, &who, outcome) {
                        hold(&stage, &who, &other, guard).await;
                    }
                    continue;
                }
                let named = if number == 0 {
                    [ONE, OTHER]
                } else {
                    [OTHER, ONE]
                };
                let Ok(both) = MultiLock::new(stage.client(number), named) else {
                    return stage.fail("no locks");
                };
                let outcome = stage.cancellable(both.acquire()).await;
                if let Some(guard) = granted(&stage, &who, outcome) {
                    let tokens = [ONE, OTHER].map(|path| guard.token(path).unwrap_or(0));
                    let [first, second] = tokens;
                    let rooms = [(&one, 1, first), (&other, 1, second)];
                    hold_in(&stage, &who, &rooms, guard).await;
                }
            }
        }
    };
    stage.crew(3, act).await;
}

/// One of the wait queues is removed again and again, with all its nodes. The other one is
/// left alone, and who has it has it alone.
async fn removed(stage: Stage) {
    let room = stage.occupancy(ONE, 1);
    let act = |stage: Stage, number: usize| {
        let room = room.clone();
        async move {
            if number == 2 {
                for _ in 0..3 {
                    stage.pause(9).await;
                    remove(&stage, number).await;
                }
                return;
            }
            let Ok(both) = MultiLock::new(stage.client(number), [ONE, OTHER]) else {
                return stage.fail("no locks");
            };
            for round in 0..2 {
                let who = format!("client {number}, round {round}");
                let outcome = stage.cancellable(both.acquire()).await;
                if let Some(guard) = granted(&stage, &who, outcome) {
                    let token = guard.token(ONE).unwrap_or(0);
                    hold_in(&stage, &who, &[(&room, 1, token)], guard).await;
                }
            }
        }
    };
    stage.crew(3, act).await;
}

/// One attempt, whatever comes of it.
async fn remove(stage: &Stage, client: usize) {
    let Ok(session) = stage.client(client).session().await else {
        return;
    };
    let Ok(line) = session.children(OTHER).await else {
        return;
    };
    let mut all: Vec<Op> = line
        .names
        .iter()
        .map(|name| Op::delete(format!("{OTHER}/{name}"), None))
        .collect();
    all.push(Op::delete(OTHER, None));
    let outcome = session.multi(&all).await;
    stage.note(|| {
        format!(
            "{OTHER} removed with {:?}: {:?}",
            line.names,
            outcome.map(drop)
        )
    });
}
