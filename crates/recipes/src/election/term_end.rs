//! Repeated leadership: one campaign after the other, with pauses after failures.
//!
//! Owns when the next campaign begins. The caller alone decides that there is none; a failure never
//! ends the loop by itself.

use std::fmt;
use std::ops::ControlFlow;

use tokio::time::Instant;

use super::{ElectionError, LeaderElection, Term};
use crate::background;
use crate::backoff::Backoff;

/// End of a term, or of a campaign: see [`LeaderElection::lead_forever`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TermEnd<E> {
    /// The work was done, and this participant has resigned.
    Done {
        /// The term.
        term: Term,
    },
    /// The work has failed, and this participant has resigned.
    Failed {
        /// The term.
        term: Term,
        /// Error of the work.
        error: E,
    },
    /// The term was lost and the work stopped, or this participant was not elected.
    Election(ElectionError),
}

impl<E: fmt::Display> fmt::Display for TermEnd<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done { term } => write!(f, "term {} ended: the work is done", term.epoch),
            Self::Failed { term, error } => {
                write!(f, "term {} ended: the work failed: {error}", term.epoch)
            }
            Self::Election(error) => error.fmt(f),
        }
    }
}

impl LeaderElection {
    /// Leads repeatedly: campaigns, drives `work` as [`LeaderElection::lead`] does, and campaigns
    /// again once the term has ended for any reason.
    ///
    /// After each term, and after each campaign that failed, `ended` is called with the reason and
    /// decides: [`ControlFlow::Continue`] campaigns again, [`ControlFlow::Break`] ends the call
    /// with a value. By then this participant has resigned, or its work has been stopped. Nothing
    /// else ends the call, so `ended` must break at errors that last, such as that of a closed
    /// client.
    ///
    /// The next campaign begins at once after work that was done. After a failure, and after a
    /// loss, it begins after a pause that grows from a tenth of a second to ten seconds, with
    /// jitter, and starts small again after work that was done and after a term of ten seconds or
    /// more. [`LeaderElection::rejoin_delay`] counts besides.
    ///
    /// Each stage is reported as for `lead`: [`LeaderElection::stages`]. Cancel-safe: dropping the
    /// future drops the work and resigns in the background, or withdraws the offer.
    ///
    /// ```no_run
    /// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// # async fn serve(_: baton::election::Term) -> Result<(), std::io::Error> { Ok(()) }
    /// use std::ops::ControlFlow;
    ///
    /// use baton::election::TermEnd;
    ///
    /// let election = baton::LeaderElection::new(&client, "/leader")?.name("web-1");
    /// let fatal: std::io::Error = election
    ///     .lead_forever(serve, |end| {
    ///         eprintln!("{end}");
    ///         match end {
    ///             TermEnd::Failed { error, .. }
    ///                 if error.kind() == std::io::ErrorKind::PermissionDenied =>
    ///             {
    ///                 ControlFlow::Break(error)
    ///             }
    ///             _ => ControlFlow::Continue(()),
    ///         }
    ///     })
    ///     .await;
    /// # drop(fatal);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lead_forever<T, E, F, Fut>(
        &self,
        mut work: F,
        mut ended: impl FnMut(TermEnd<E>) -> ControlFlow<T>,
    ) -> T
    where
        F: FnMut(Term) -> Fut,
        Fut: Future<Output = Result<(), E>>,
    {
        let mut backoff = Backoff::default();
        loop {
            let mut elected = None;
            let led = self.lead(|term| {
                elected = Some((term, Instant::now()));
                work(term)
            });
            let outcome = led.await;
            if elected.is_some_and(|(_, since)| since.elapsed() >= Backoff::LONGEST) {
                backoff.reset();
            }
            let end = match (outcome, elected) {
                (Ok(Ok(())), Some((term, _))) => TermEnd::Done { term },
                (Ok(Err(error)), Some((term, _))) => TermEnd::Failed { term, error },
                (Err(error), _) => TermEnd::Election(error),
                // No work without a term.
                (Ok(_), None) => continue,
            };
            let is_done = matches!(end, TermEnd::Done { .. });
            if let ControlFlow::Break(value) = ended(end) {
                return value;
            }
            if is_done {
                backoff.reset();
            } else {
                background::sleep(&self.acquisition.client, backoff.pause()).await;
            }
        }
    }
}
