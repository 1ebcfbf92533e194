//! Membership: members that stay registered through whatever happens, and a cache that ends up with
//! the content of the tree.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use baton::membership::{MemberError, NodeState};
use baton::tree::CreateMode;
use baton::{Membership, TreeCache};
use tokio::time::Instant;
use uuid::Uuid;

use super::Scenario;
use crate::stage::Stage;

const GROUP: &str = "/groups/one";
const TREE: &str = "/trees/one";
/// Time by which every lost session has been replaced, whatever has happened.
const SETTLED_MS: u64 = 25_000;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("membership", 3, |stage| Box::pin(keep_membership(stage)))
            .keeps(|path| path == "/groups" || path == GROUP),
        Scenario::new("membership-close", 2, |stage| Box::pin(come_and_go(stage)))
            .keeps(|path| path == "/groups" || path == GROUP),
        Scenario::new("membership-takeover", 2, |stage| Box::pin(succeed(stage)))
            .keeps(|path| path == "/groups" || path == GROUP),
        Scenario::new("membership-one-id", 2, |stage| Box::pin(contend(stage)))
            .keeps(|path| path == "/groups" || path == GROUP),
        Scenario::new("tree-cache", 2, |stage| Box::pin(mirror(stage)))
            .keeps(|path| path.starts_with("/trees")),
    ]
}

async fn keep_membership(stage: Stage) {
    let act = |stage: Stage, number: usize| async move {
        let Ok(group) = Membership::new(stage.client(number), GROUP) else {
            return stage.fail("no group");
        };
        if number == 2 {
            stage.pause(60).await;
            stage.calm();
            stage.pause(SETTLED_MS).await;
            match group.members().await {
                Ok(members) => {
                    let ids: Vec<&str> = members.iter().map(|member| &*member.id).collect();
                    stage.expect(ids == ["member-0", "member-1"], || {
                        format!("members after all has passed: {ids:?}")
                    });
                }
                Err(error) => stage.fail(&error.to_string()),
            }
            return;
        }
        let registration = match group.join(&format!("member-{number}"), b"") {
            Ok(registration) => registration,
            Err(error) => return stage.fail(&error.to_string()),
        };
        if let Some(Err(error)) = stage.cancellable(registration.registered()).await {
            stage.fail(&format!("member {number}: {error}"));
        }
        // Longer than the observer needs, whatever has delayed it.
        stage.pause(2 * SETTLED_MS).await;
        let closing = stage.cancellable(registration.leave()).await;
        stage.note(|| format!("member {number} closed: {closing:?}"));
    };
    stage.crew(3, act).await;
}

async fn come_and_go(stage: Stage) {
    let act = |stage: Stage, number: usize| async move {
        let Ok(group) = Membership::new(stage.client(number), GROUP) else {
            return stage.fail("no group");
        };
        for round in 0..2 {
            let registration = match group.join(&format!("member-{number}-{round}"), b"") {
                Ok(registration) => registration,
                Err(error) => return stage.fail(&error.to_string()),
            };
            if let Some(Err(error)) = stage.cancellable(registration.registered()).await {
                stage.fail(&format!("member {number}: {error}"));
            }
            stage.pause(3).await;
            let closed = stage.cancellable(registration.leave()).await;
            stage.note(|| format!("member {number} closed: {closed:?}"));
        }
    };
    stage.crew(2, act).await;
}

/// Two processes of one instance, as if the first had been given up for dead: one of them stays,
/// with the data that it last asked for, and the other one is notified.
async fn succeed(stage: Stage) {
    let stayed = Arc::new(Mutex::new(Vec::new()));
    let act = |stage: Stage, number: usize| {
        let stayed = Arc::clone(&stayed);
        async move {
            stage.pause(15 * number as u64).await;
            let registration = Membership::new(stage.client(number), GROUP)
                .and_then(|group| group.instance(Uuid::from_u128(7)).join("member", b"first"));
            let registration = match registration {
                Ok(registration) => registration,
                Err(error) => return stage.fail(&error.to_string()),
            };
            let data = format!("of process {number}");
            let registered = stage.cancellable(registration.registered()).await;
            stage.note(|| format!("process {number}: {registered:?}"));
            if let Err(error) = registration.set_data(b"second") {
                stage.fail(&error.to_string());
            }
            stage.pause(2).await;
            if let Err(error) = registration.set_data(data.as_bytes()) {
                stage.fail(&error.to_string());
            }
            stage.pause(30).await;
            stage.calm();
            stage.pause(SETTLED_MS).await;
            match registration.node().state() {
                NodeState::Present(_) => {
                    if let Ok(mut stayed) = stayed.lock() {
                        stayed.push(data);
                    }
                }
                NodeState::Ended(MemberError::Superseded { .. }) => {}
                other => stage.fail(&format!("process {number}: {other:?}")),
            }
            // The other may have been held up for a while.
            stage.pause(SETTLED_MS).await;
            if number == 0 {
                let Some(state) = stage.final_state().await else {
                    return;
                };
                let found = state.data("/groups/one/member").unwrap_or_default();
                let found = String::from_utf8_lossy(&found).into_owned();
                let stayed = stayed.lock().map(|stayed| stayed.clone());
                let stayed = stayed.unwrap_or_default();
                let one = matches!(&*stayed, [data] if found.ends_with(data.as_str()));
                stage.expect(one, || {
                    format!("{stayed:?} stayed, the node says {found:?}")
                });
            } else {
                stage.pause(SETTLED_MS).await;
            }
            registration.leave().await;
        }
    };
    stage.crew(2, act).await;
}

/// Two of one id, strangers to each other: one is registered at a time, and the other when that one
/// has gone.
async fn contend(stage: Stage) {
    let room = stage.occupancy("the id", 1);
    let act = |stage: Stage, number: usize| {
        let room = room.clone();
        async move {
            stage.pause(8 * number as u64).await;
            let registration = Membership::new(stage.client(number), GROUP)
                .and_then(|group| group.join("member", b""));
            let registration = match registration {
                Ok(registration) => Arc::new(registration),
                Err(error) => return stage.fail(&error.to_string()),
            };
            let who = format!("process {number}");
            let limit = Duration::from_millis(3 * SETTLED_MS);
            let mut seen = NodeState::Absent;
            let until = Instant::now() + limit;
            let mut times = 0;
            loop {
                let next = registration.node().state_other_than(&seen);
                match tokio::time::timeout_at(until, next).await {
                    Ok(state) => seen = state,
                    Err(_) => break,
                }
                let NodeState::Present(now) = seen else {
                    continue;
                };
                times += 1;
                let asked = Arc::downgrade(&registration);
                let token = u64::try_from(now.czxid).unwrap_or(0);
                room.enter(&who, 1, token, move || {
                    asked.upgrade().is_some_and(|registration| {
                        registration.node().state() == NodeState::Present(now)
                    })
                });
                stage.pause(30).await;
                break;
            }
            stage.expect(times > 0, || format!("{who} was never registered"));
            match Arc::into_inner(registration) {
                Some(registration) => registration.leave().await,
                None => stage.fail("a registration is held twice"),
            }
        }
    };
    stage.crew(2, act).await;
}

async fn mirror(stage: Stage) {
    let act = |stage: Stage, number: usize| async move {
        if number == 0 {
            stage.ensure(0, "/trees").await;
            stage.ensure(0, TREE).await;
            for round in 0..3 {
                change(&stage, round).await;
                stage.pause(6).await;
            }
            return;
        }
        let cache = TreeCache::builder(stage.client(1), TREE).and_then(|builder| builder.start());
        let Ok(cache) = cache else {
            return stage.fail("no cache");
        };
        if let Some(Err(error)) = stage.cancellable(cache.ready()).await {
            stage.fail(&format!("not ready: {error}"));
        }
        stage.pause(SETTLED_MS).await;
        let Some(state) = stage.final_state().await else {
            return;
        };
        let limit = Duration::from_secs(30);
        let snapshot = match tokio::time::timeout(limit, cache.catch_up()).await {
            Ok(Ok(snapshot)) => snapshot,
            Ok(Err(error)) => return stage.fail(&format!("cannot catch up: {error}")),
            Err(_) => return stage.fail("does not catch up"),
        };
        for (path, stat) in state.nodes(TREE) {
            let cached = snapshot.get(&path).map(|node| node.stat.mzxid);
            stage.expect(cached == Some(stat.mzxid), || {
                format!("{path} is at {}, the cache has {cached:?}", stat.mzxid)
            });
        }
        for path in ["/trees/one/a", "/trees/one/b", "/trees/one/a/c"] {
            let gone = state.data(path).is_none();
            stage.expect(!gone || snapshot.get(path).is_none(), || {
                format!("{path} is gone, the cache has it")
            });
        }
    };
    stage.crew(2, act).await;
}

/// Some changes; what becomes of each is the tree's to say.
async fn change(stage: &Stage, round: usize) {
    let Ok(session) = stage.client(0).session().await else {
        return;
    };
    let changes = async {
        let all = (
            session.create("/trees/one/a", b"", CreateMode::Persistent),
            session.create("/trees/one/b", b"", CreateMode::Persistent),
            session.set_data("/trees/one/a", round.to_string().as_bytes(), None),
            session.create("/trees/one/a/c", b"", CreateMode::Persistent),
            session.delete("/trees/one/b", None),
        );
        let _first = all.0.await;
        let _second = all.1.await;
        let _third = all.2.await;
        let _fourth = all.3.await;
        if round == 1 {
            let _gone = session.delete("/trees/one/a/c", None).await;
        }
        let _last = all.4.await;
    };
    let _cancelled = stage.cancellable(changes).await;
}
