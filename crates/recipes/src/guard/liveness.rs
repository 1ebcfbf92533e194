//! Guards that end when their application no longer answers.
//!
//! Owns the questions to the application while its session lives on (H39). They are timed where the
//! session's own task runs: an application that blocks its threads cannot keep its lock by that,
//! and one that blocks the session's too loses it with the lease. The guard must have ended before
//! its nodes are deleted.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use baton_client::Session;
use tokio::time::Instant;

use super::Guard;
use super::state::GuardState;
use crate::background::{self, Application};
use crate::lost_reason::LostReason;

impl Guard {
    /// Calls `probe` once per `period`, and gives up the lock when the application is not alive:
    /// when the probe returns `false`, panics, or does not answer within `period`. The guard ends
    /// then with [`LostReason::NotAlive`], for good, at the latest two periods after the
    /// application has died.
    ///
    /// The probe runs on the runtime that this is called on, so `|| async { true }` finds out
    /// whether that one still runs anything; a better one asks the part that does the work. Called
    /// outside a runtime, it runs on a thread of its own. Work that is stuck is not stopped by
    /// this: it finds its guard ended at its next check, and its token outdated.
    ///
    /// ```no_run
    /// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// let guard = baton::Mutex::new(&client, "/deploy")?.acquire().await?;
    /// let guard = guard.with_liveness(Duration::from_secs(5), || async {
    ///     // Writable still?
    ///     std::fs::write("/var/lib/app/alive", b"").is_ok()
    /// });
    /// guard.check()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_liveness<P, F>(self, period: Duration, probe: P) -> Self
    where
        P: FnMut() -> F + Send + 'static,
        F: Future<Output = bool> + Send + 'static,
    {
        let runtime = self.session().runtime();
        let watch = LivenessProbe {
            session: self.session().detached(),
            state: Arc::clone(&self.state),
            application: Application::calling(runtime.clone()),
            period,
        };
        runtime.spawn(watch.keep(probe));
        self
    }
}

struct LivenessProbe {
    session: Session,
    state: Arc<GuardState>,
    application: Application,
    period: Duration,
}

impl LivenessProbe {
    async fn keep<P, F>(self, mut probe: P)
    where
        P: FnMut() -> F + Send + 'static,
        F: Future<Output = bool> + Send + 'static,
    {
        loop {
            let asked_at = Instant::now();
            let mut answer = self.application.start(probe());
            let alive = tokio::select! {
                biased;
                _ = self.state.ended() => None,
                answered = background::timeout(&self.session, self.period, answer.ended()) => {
                    Some(matches!(answered, Some(Some(Ok(true)))))
                }
            };
            match alive {
                Some(true) => {}
                // Which deletes its nodes.
                Some(false) => return self.state.end(LostReason::NotAlive),
                None => return,
            }
            tokio::select! {
                biased;
                _ = self.state.ended() => return,
                () = background::sleep_until(&self.session, asked_at + self.period) => {}
            }
        }
    }
}
