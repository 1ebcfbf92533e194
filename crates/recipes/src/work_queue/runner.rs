//! The runner: takes items and runs a handler for each, several at once.
//!
//! Owns the loop that a consumer would otherwise write by hand: take, extend the claim while the
//! handler runs, settle by the handler's result. Must never let a handler run on whose claim is
//! lost.

use std::convert::Infallible;
use std::fmt::Display;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::claim::Claim;
use super::error::WorkError;
use super::queue::WorkQueue;
use crate::background::{Application, ApplicationTask};
use crate::lost_reason::LostReason;

/// Numbers of items that [`WorkQueue::run`] has processed, by the way they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct RunSummary {
    /// Items whose handler succeeded; they were acknowledged.
    pub acked: u64,
    /// Attempts whose handler failed or panicked; the items come back, or are dead letters.
    pub failed: u64,
    /// Claims that were lost before they were settled, or whose settlement failed. Another consumer
    /// gets the item, unless another process has settled it.
    pub lost: u64,
}

impl std::fmt::Display for RunSummary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            acked,
            failed,
            lost,
        } = self;
        write!(f, "{acked} acknowledged, {failed} failed, {lost} lost")
    }
}

/// End of the processing of one claim.
enum ProcessingEnd {
    Acked,
    Failed,
    Lost,
}

impl WorkQueue {
    /// Takes items and runs `handler` for each, at most `handlers` (at least one) at the same time,
    /// until `stop` resolves.
    ///
    /// - A handler that returns `Ok` acknowledges its item. After an `Err` or a panic the item is
    ///   delayed by the queue's back-off, or becomes a dead letter after its last attempt; the
    ///   error is noted in it.
    /// - While a handler runs, the visibility timeout of its claim is extended.
    /// - When a claim is lost, its handler is aborted: it is dropped at its next `await`, and no
    ///   other handler takes its place before. Each handler runs in a task of its own, on the
    ///   runtime that this is called on, or outside one on a thread of its own; tasks that it has
    ///   spawned itself go on.
    /// - When `stop` resolves, no further item is taken. The call returns once the running handlers
    ///   have ended and the items that were claimed ahead are released.
    ///
    /// A handler must not keep the claim after it has returned: the claim could not be settled, and
    /// the item would go back to the queue once the last reference is dropped.
    ///
    /// Dropping the future aborts the handlers; their items go back to the queue.
    ///
    /// ```no_run
    /// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// # async fn build(_: &[u8]) -> Result<(), String> { Ok(()) }
    /// let queue = baton::WorkQueue::new(&client, "/jobs")?;
    /// let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    /// # drop(stop);
    /// let summary = queue
    ///     .run(
    ///         4,
    ///         |claim| async move { build(claim.payload()).await },
    ///         async { drop(stopped.await) },
    ///     )
    ///     .await?;
    /// println!("{} done, {} failed", summary.acked, summary.failed);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`WorkError`] where no more items can be taken; the running handlers have ended by then.
    pub async fn run<H, F, E>(
        &self,
        handlers: usize,
        mut handler: H,
        stop: impl Future<Output = ()>,
    ) -> Result<RunSummary, WorkError>
    where
        H: FnMut(Arc<Claim>) -> F,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        if handlers == 0 {
            let why = "no item would be worked on; run at least one";
            return Err(self.context.bad_option("handlers", handlers, why));
        }
        let mut stop = pin!(stop);
        let mut summary = RunSummary::default();
        let mut running = JoinSet::new();
        let runtime = self.context.runtime()?;
        let application = Application::calling(runtime.clone());
        let outcome = loop {
            let free = handlers.saturating_sub(running.len());
            tokio::select! {
                biased;
                () = &mut stop => break Ok(()),
                Some(processed) = running.join_next() => summary.count(processed),
                taken = self.take_many(free), if free > 0 => match taken {
                    Ok(claims) => for claim in claims {
                        let claim = Arc::new(claim);
                        let work = application.start(handler(Arc::clone(&claim)));
                        running.spawn_on(process(claim, work, self.options.visibility), &runtime);
                    },
                    Err(error) => break Err(error),
                },
            }
        };
        while let Some(processed) = running.join_next().await {
            summary.count(processed);
        }
        let released = self.give_back().await;
        outcome.and(released).map(|()| summary)
    }
}

impl RunSummary {
    /// A task that has panicked or was aborted has dropped its claim.
    fn count(&mut self, processed: Result<ProcessingEnd, tokio::task::JoinError>) {
        match processed {
            Ok(ProcessingEnd::Acked) => self.acked += 1,
            Ok(ProcessingEnd::Failed) => self.failed += 1,
            Ok(ProcessingEnd::Lost) | Err(_) => self.lost += 1,
        }
    }
}

/// Runs the handler of one claim, and settles the claim by its result.
async fn process<E: Display + 'static>(
    claim: Arc<Claim>,
    mut work: ApplicationTask<Result<(), E>>,
    visibility: Option<Duration>,
) -> ProcessingEnd {
    let ended = tokio::select! {
        biased;
        ended = claim.run(work.ended()) => ended,
        never = keep_extended(&claim, visibility) => match never {},
    };
    let failure = match ended {
        Ok(Some(Ok(Ok(())))) => None,
        Ok(Some(Ok(Err(error)))) => Some(error.to_string()),
        Ok(Some(Err(_))) => Some("the handler panicked".to_owned()),
        // Its runtime has ended: the claim goes back, and uses no attempt.
        Ok(None) => return ProcessingEnd::Lost,
        Err(reason) => {
            // Of the other losses the claim's guard has had a line.
            if matches!(reason, LostReason::NodeGone | LostReason::ClaimTimedOut) {
                tracing::warn!(item = claim.item(), %reason, "claim lost: its handler is aborted");
            }
            // The handler's place is free, and `run` may return, only once the handler has ended.
            work.abort().await;
            return ProcessingEnd::Lost;
        }
    };
    let Ok(claim) = Arc::try_unwrap(claim) else {
        tracing::warn!("a handler has kept its claim: the item was not settled");
        return ProcessingEnd::Lost;
    };
    let item = claim.item().to_owned();
    let settled = match &failure {
        None => claim.ack().await,
        Some(reason) => claim.nack(reason).await,
    };
    match (settled, failure) {
        (Ok(()), None) => ProcessingEnd::Acked,
        (Ok(()), Some(_)) => ProcessingEnd::Failed,
        (Err(error), _) => {
            tracing::warn!(item, %error, "the item was not settled");
            ProcessingEnd::Lost
        }
    }
}

/// Extends the claim three times in each visibility timeout. An extension that fails is tried
/// again; anyone who runs the handler notices the end of the claim.
async fn keep_extended(claim: &Claim, visibility: Option<Duration>) -> Infallible {
    let Some(visibility) = visibility else {
        return std::future::pending().await;
    };
    let clock = claim.session().clock();
    loop {
        clock.sleep_until(clock.now() + visibility / 3).await;
        if let Err(error) = claim.extend().await {
            tracing::debug!(item = claim.item(), %error, "the claim was not extended");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::{Barrier, Notify, mpsc, oneshot};

    use super::*;
    use crate::server_clock::tests::started;
    use crate::work_queue::Settlement;

    async fn within<F: Future>(future: F) -> F::Output {
        tokio::time::timeout(Duration::from_secs(30), future)
            .await
            .expect("ends within 30 s")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn as_many_handlers_run_at_once_as_asked_for_and_a_stop_waits_for_them() {
        let (_server, client) = started().await;
        let queue = WorkQueue::new(&client, "/run").unwrap();
        for item in ["a", "b", "c", "d"] {
            queue.offer(item).await.unwrap();
        }
        // Two handlers meet at each round of the barrier: with fewer at once none would go on.
        let (meet, at_once, most) = (
            Arc::new(Barrier::new(2)),
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicUsize::new(0)),
        );
        let begun = Arc::new(AtomicUsize::new(0));
        let last_begun = Arc::new(Notify::new());
        let handler = |_claim: Arc<Claim>| {
            let (meet, at_once, most) = (meet.clone(), at_once.clone(), most.clone());
            if begun.fetch_add(1, Ordering::SeqCst) == 3 {
                last_begun.notify_one();
            }
            async move {
                most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                meet.wait().await;
                at_once.fetch_sub(1, Ordering::SeqCst);
                Ok::<(), String>(())
            }
        };
        let summary = within(queue.run(2, handler, last_begun.notified()))
            .await
            .unwrap();
        assert_eq!((summary.acked, summary.failed, summary.lost), (4, 0, 0));
        assert_eq!(most.load(Ordering::SeqCst), 2);
        assert_eq!(queue.depth().await.unwrap().unwrap().items, 0);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_failed_attempt_comes_back_and_a_panic_is_noted_in_the_dead_letter() {
        let (_server, client) = started().await;
        let queue = WorkQueue::new(&client, "/fail")
            .unwrap()
            .max_attempts(2)
            .backoff(Duration::ZERO, Duration::ZERO);
        queue.offer("flaky").await.unwrap();
        queue.offer("broken").await.unwrap();
        let (done, mut ended) = mpsc::unbounded_channel();
        let handler = |claim: Arc<Claim>| {
            let done = done.clone();
            async move {
                let (flaky, attempt) = (claim.payload() == "flaky", claim.attempt());
                // The receiver counts attempts that have begun.
                done.send(()).unwrap();
                assert!(flaky, "broken");
                if attempt == 1 {
                    return Err("not yet");
                }
                Ok(())
            }
        };
        let four = async {
            for _ in 0..4 {
                ended.recv().await;
            }
        };
        let summary = within(queue.run(1, handler, four)).await.unwrap();
        assert_eq!((summary.acked, summary.failed, summary.lost), (1, 3, 0));
        let dead = queue.dead_letters().await.unwrap();
        assert_eq!(dead.len(), 1);
        assert_eq!(dead[0].payload, "broken");
        assert_eq!(dead[0].reason, "the handler panicked");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_handler_whose_claim_is_lost_is_aborted() {
        let (_server, client) = started().await;
        let queue = WorkQueue::new(&client, "/lost").unwrap();
        queue.offer("a").await.unwrap();
        let (begun, began) = mpsc::unbounded_channel();
        let (alive, aborted) = oneshot::channel::<()>();
        let mut alive = Some(alive);
        let handler = move |claim: Arc<Claim>| {
            drop(begun.send((claim.item().to_owned(), claim.token())));
            let alive = alive.take();
            async move {
                let _alive = alive;
                std::future::pending::<Result<(), String>>().await
            }
        };
        let elsewhere = queue.clone();
        let settle = async {
            let mut began = began;
            let (item, token) = began.recv().await.unwrap();
            elsewhere
                .settle(&item, token, Settlement::Ack)
                .await
                .unwrap();
            // The sender is dropped with the handler.
            assert!(aborted.await.is_err());
        };
        let summary = within(queue.run(1, handler, settle)).await.unwrap();
        assert_eq!((summary.acked, summary.failed, summary.lost), (0, 0, 1));
    }

    /// A value whose drop takes long, as the end of a handler may.
    struct SlowDrop(Arc<AtomicUsize>);

    impl Drop for SlowDrop {
        fn drop(&mut self) {
            std::thread::sleep(Duration::from_millis(300));
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_run_ends_after_the_handler_of_a_lost_claim_has_ended() {
        let (_server, client) = started().await;
        let queue = WorkQueue::new(&client, "/lost-slowly").unwrap();
        queue.offer("a").await.unwrap();
        let ended = Arc::new(AtomicUsize::new(0));
        let (begun, mut began) = mpsc::unbounded_channel();
        let handler = |claim: Arc<Claim>| {
            let slow = SlowDrop(ended.clone());
            drop(begun.send((claim.item().to_owned(), claim.token())));
            async move {
                let _slow = slow;
                std::future::pending::<Result<(), String>>().await
            }
        };
        let elsewhere = queue.clone();
        let settle = async {
            let (item, token) = began.recv().await.unwrap();
            elsewhere
                .settle(&item, token, Settlement::Ack)
                .await
                .unwrap();
        };
        let summary = within(queue.run(1, handler, settle)).await.unwrap();
        assert_eq!(ended.load(Ordering::SeqCst), 1);
        assert_eq!((summary.acked, summary.failed, summary.lost), (0, 0, 1));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_claim_is_extended_while_its_handler_runs() {
        let (_server, client) = started().await;
        let queue = WorkQueue::new(&client, "/extend")
            .unwrap()
            .visibility(Duration::from_secs(3));
        queue.offer("a").await.unwrap();
        let done = Arc::new(Notify::new());
        let handler = |claim: Arc<Claim>| {
            let done = done.clone();
            async move {
                // An extension writes the item.
                let (_, changed) = claim
                    .session()
                    .get_data_watch(claim.item())
                    .await
                    .map_err(|error| error.to_string())?;
                changed.await.map_err(|error| format!("{error:?}"))?;
                done.notify_one();
                Ok::<(), String>(())
            }
        };
        let summary = within(queue.run(1, handler, done.notified()))
            .await
            .unwrap();
        assert_eq!((summary.acked, summary.failed, summary.lost), (1, 0, 0));
    }
}
