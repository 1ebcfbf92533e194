//! Writes of several clients, one after the other, small and large: for runs that strike logs,
//! elections and members.

use baton_client::{CreateMode, Session};

use super::Scenario;
use crate::stage::Stage;

const CLIENTS: usize = 2;
const PARENT: &str = "/w";
/// Data that travels in a message of its own, where few proposals may wait.
const LARGE_BYTES: usize = 900;

/// The scenario.
#[must_use]
pub fn writes() -> Scenario {
    Scenario {
        timeouts_ms: &[1_000],
        strikes_logs: true,
        ..Scenario::new("writes", CLIENTS, |stage| Box::pin(play(stage)))
            .keeps(|path| path == PARENT || path.starts_with("/w/"))
    }
}

async fn play(stage: Stage) {
    let pause_ms = [6, 20, 70].get(usize::try_from(stage.below(3)).unwrap_or(0));
    let pause_ms = pause_ms.copied().unwrap_or(20);
    let act = move |stage: Stage, number: usize| async move {
        while !stage.is_calm() {
            if let Ok(session) = stage.client(number).session().await {
                write(&stage, &session).await;
            }
            stage.pause(1 + stage.below(2 * pause_ms)).await;
        }
    };
    stage.crew(CLIENTS, act).await;
}

/// Writes once; the outcome does not matter.
async fn write(stage: &Stage, session: &Session) {
    let large = stage.below(2) == 0;
    let mut data = stage.below(u64::MAX).to_be_bytes().to_vec();
    if large {
        data.resize(LARGE_BYTES, 7);
    }
    if stage.below(4) == 0 {
        let created = session.create(PARENT, &[], CreateMode::Persistent);
        let _ = created.await;
    }
    let _ = match stage.below(2) {
        0 => session.set_data(PARENT, &data, None).await.map(drop),
        _ => {
            let mode = CreateMode::PersistentSequential;
            session.create("/w/n-", &data, mode).await.map(drop)
        }
    };
}
