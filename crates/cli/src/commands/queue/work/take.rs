//! `baton queue work take`, `ack` and `nack`: an item in the hands of a script.
//!
//! Owns the process that keeps a claim while others work on the item, and the verbs by which any
//! other process settles it. The claim lives no longer than its keeper; the process that settles it
//! names its token, and changes nothing under any other claim.

use std::time::Duration;

use baton::work_queue::{Claim, ClaimInfo, SettledState, Settlement, WorkError};
use baton::{LostReason, WorkQueue};
use serde::Serialize;

use super::handle::{failure, open};
use crate::connection::{BRIEF, Connection, SessionOptions};
use crate::context::Context;
use crate::duration;
use crate::exit::{self, Failure};
use crate::output::bytes;
use crate::paths;
use crate::run::lease::LeaseArgs;
use crate::run::stop::Stop;
use crate::run::tenure::RELEASE_LIMIT;
use crate::signals::{self, Signals};
use crate::waiting::AwaitedEvent;

/// `take`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  baton queue work take /jobs                      the claim, its token, the
                                                   item; then waits
  baton queue work ack /jobs --token 17            from any other process: it is
                                                   done
  baton queue work nack /jobs --token 17 --delay 5m

In a script (bash):
  coproc baton --json queue work take /jobs
  read -r claim <&${COPROC[0]}
  token=$(jq .token <<<$claim)
  if ./do-it <<<$claim; then baton queue work ack /jobs --token $token
  else baton queue work nack /jobs --token $token; fi

The item is claimed as long as this process runs: have the script end it, or
limit the attempt with --visibility. Where one command does the work: baton
queue work PATH -- CMD
Exit codes:  0 the item was acked
             1 it was nacked, given back, or moved to the dead letters;
             there is no item (--no-wait)
             113 the claim was lost; another worker gets the item
             124 no item within --wait
             128+N ended by signal N, the item given back   125 baton failed
             2 usage")]
pub(super) struct Take {
    /// The queue's path.
    #[arg(value_parser = paths::recipe)]
    path: String,
    /// Wait at most this long for an item, then exit 124 [default: for ever].
    #[arg(short, long, value_name = "DUR", value_parser = duration::parse)]
    wait: Option<Duration>,
    /// Do not wait for an item: exit 1 if there is none.
    #[arg(short, long, conflicts_with = "wait")]
    no_wait: bool,
    /// Keep the claim no longer than this; then another worker can claim the item [default: as long
    /// as this process runs].
    #[arg(long, value_name = "DUR", value_parser = duration::parse_some)]
    visibility: Option<Duration>,
    /// Number of attempts that an item gets, unless it was put with its own number.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    max_attempts: u32,
    /// Name shown to other processes.
    #[arg(long, value_name = "TEXT", default_value = "baton")]
    name: String,
    /// Session timeout: after this time without contact, another worker can claim the item.
    #[arg(long, value_name = "DUR", value_parser = duration::parse, default_value = "10s")]
    session_timeout: Duration,
    #[command(flatten)]
    lease: LeaseArgs,
}

/// Selection of a claim.
#[derive(Debug, clap::Args)]
pub(super) struct ClaimSelector {
    /// The queue's path.
    #[arg(value_parser = paths::recipe)]
    path: String,
    /// The claim's token, as `take` or `claims` prints it.
    #[arg(long, value_name = "N")]
    token: u64,
    /// The item's id, where several were claimed in one change and share the token.
    #[arg(long, value_name = "TEXT")]
    id: Option<String>,
}

/// `ack`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  baton queue work ack /jobs --token 17

Exit codes: 0 done   1 no such claim (any more): nothing was changed
            125 baton failed   2 usage")]
pub(super) struct Ack {
    #[command(flatten)]
    meant: ClaimSelector,
}

/// `nack`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  baton queue work nack /jobs --token 17              again in a second; each
                                                      time after twice as long
  baton queue work nack /jobs --token 17 --delay 5m --reason 'no such host'
  baton queue work nack /jobs --token 17 --release    at once, and the attempt
                                                      does not count
  baton queue work nack /jobs --token 17 --bury --reason 'no picture'

Exit codes: 0 done   1 no such claim (any more): nothing was changed
            125 baton failed   2 usage")]
pub(super) struct Nack {
    #[command(flatten)]
    meant: ClaimSelector,
    /// The item comes back after this time [default: 1s after the first attempt, then twice as long
    /// each time, at most 10m].
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    delay: Option<Duration>,
    /// Give the item back as it was: it keeps its position, and the attempt does not count.
    #[arg(long, conflicts_with_all = ["delay", "reason", "bury"])]
    release: bool,
    /// Move the item to the dead letters now, because no attempt will succeed.
    #[arg(long, conflicts_with = "delay")]
    bury: bool,
    /// Reason; stored in the item, and shown by `dead`.
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Number of attempts that an item gets, unless it was put with its own number; after that it
    /// is a dead letter.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    max_attempts: u32,
}

/// An item that was settled, as it is printed.
#[derive(Serialize)]
struct SettledItem<'a> {
    path: &'a str,
    token: u64,
    id: &'a str,
    settled: SettledState,
}

impl SettledItem<'_> {
    fn print(&self, context: &Context) {
        let text = match self.settled {
            SettledState::Acked => "acked",
            SettledState::Nacked => "nacked",
            SettledState::Released => "released",
            SettledState::DeadLettered => "buried",
            _ => "settled",
        };
        context.output.result(self, text);
    }
}

impl Take {
    /// Claims an item, shows it, and keeps the claim.
    pub(super) async fn run(&self, context: &Context) -> Result<u8, Failure> {
        let mut signals = Signals::new()?;
        let session = SessionOptions {
            timeout: self.session_timeout,
            lease: Some(self.lease.options()),
            lasting: true,
        };
        let connection = tokio::select! {
            connection = Connection::open(context, session) => connection?,
            number = signals.stop() => return Ok(signals::ended_by(number)),
        };
        let outcome = self.on(&connection, context, &mut signals).await;
        connection.close().await;
        outcome
    }

    async fn on(
        &self,
        connection: &Connection,
        context: &Context,
        signals: &mut Signals,
    ) -> Result<u8, Failure> {
        let mut queue = open(connection, &self.path)?
            .max_attempts(self.max_attempts)
            .name(&self.name)
            .settled_elsewhere();
        if let Some(visibility) = self.visibility {
            queue = queue.visibility(visibility);
        }
        let awaited = AwaitedEvent::Item { path: &self.path };
        let taken = tokio::select! {
            taken = connection.wait(&awaited, self.claim(&queue)) => Ok(taken.map_err(failure)?),
            number = signals.stop() => Err(number),
        };
        match taken {
            Ok(Some(claim)) => self.keep(claim, context, signals).await,
            Ok(None) if self.no_wait => Ok(exit::NOTHING),
            Ok(None) => {
                queue.give_back().await.map_err(failure)?;
                let waited = duration::show(self.wait.unwrap_or_default());
                Err(Failure::no_item(&self.path, &waited))
            }
            Err(number) => {
                // What was claimed just then.
                let _ = tokio::time::timeout(RELEASE_LIMIT, queue.give_back()).await;
                Ok(signals::ended_by(number))
            }
        }
    }

    async fn claim(&self, queue: &WorkQueue) -> Result<Option<Claim>, WorkError> {
        match (self.no_wait, self.wait) {
            (true, _) => queue.poll().await,
            (false, None) => queue.take().await.map(Some),
            (false, Some(limit)) => match queue.take_timeout(limit).await {
                Err(WorkError::TimedOut { waited_for, .. }) if waited_for.is_others() => Ok(None),
                taken => taken.map(Some),
            },
        }
    }

    async fn keep(
        &self,
        claim: Claim,
        context: &Context,
        signals: &mut Signals,
    ) -> Result<u8, Failure> {
        self.show(&claim, context);
        let path = &self.path;
        let (id, token) = (claim.id().to_owned(), claim.token());
        let settled = tokio::select! {
            settled = claim.settled() => settled,
            number = signals.stop() => {
                give_back(claim, context).await;
                return Ok(signals::ended_by(number));
            }
        };
        match settled {
            Ok(settled) => {
                let item = SettledItem {
                    path,
                    token,
                    id: &id,
                    settled,
                };
                item.print(context);
                Ok(if settled == SettledState::Acked {
                    exit::OK
                } else {
                    exit::NOTHING
                })
            }
            Err(reason @ LostReason::ClaimTimedOut) => Err(Failure::lost(
                "lost",
                format!(
                    "{path}: {reason}, and another gets the item {id}; allow more time with --visibility"
                ),
            )),
            Err(reason) => Err(Stop::Lost(reason).failure(&format!("{path}: the claim on {id}"))),
        }
    }

    fn show(&self, claim: &Claim, context: &Context) {
        #[derive(Serialize)]
        struct ClaimedItem<'a> {
            path: &'a str,
            token: u64,
            id: &'a str,
            attempt: u32,
            node: &'a str,
            session: String,
            for_ms: Option<u64>,
            #[serde(flatten)]
            data: bytes::DataField<'a>,
        }
        let shown = ClaimedItem {
            path: &self.path,
            token: claim.token(),
            id: claim.id(),
            attempt: claim.attempt(),
            node: claim.item(),
            session: format!("0x{:x}", claim.session().id()),
            for_ms: self
                .visibility
                .map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
            data: bytes::DataField::new(claim.payload()),
        };
        let limit = self
            .visibility
            .map_or("as long as this runs".to_owned(), duration::show);
        if !context.output.json() {
            let line = format!(
                "claimed {} token {} id {} attempt {} for {limit}",
                shown.path, shown.token, shown.id, shown.attempt
            );
            context.output.result(&shown, line);
        }
        bytes::print(&context.output, &shown, claim.payload());
    }
}

/// Ends the claim after a signal: the attempt does not count.
async fn give_back(claim: Claim, context: &Context) {
    let item = claim.item().to_owned();
    let output = &context.output;
    match tokio::time::timeout(RELEASE_LIMIT, claim.release()).await {
        Ok(Ok(())) => output.verbose(|| format!("{item} was given back")),
        Ok(Err(WorkError::ClaimLost { .. })) => {
            output.note(format!("{item}: settled or lost before it could be given back"));
        }
        Ok(Err(error)) => output.note(error.to_string()),
        Err(_) => output.note(format!(
            "{item}: no server confirmed that it was given back; it comes back at the latest when the session times out"
        )),
    }
}

impl Ack {
    /// Settles the item as done.
    pub(super) async fn run(&self, context: &Context) -> Result<u8, Failure> {
        self.meant
            .settle(context, |queue| queue, Settlement::Ack)
            .await
    }
}

impl Nack {
    /// Settles the item as not done.
    pub(super) async fn run(&self, context: &Context) -> Result<u8, Failure> {
        let reason = self.reason.clone();
        let how = match (self.release, self.bury) {
            (true, _) => Settlement::Release,
            (false, true) => Settlement::DeadLetter { reason },
            (false, false) => Settlement::Nack {
                delay: self.delay,
                reason,
            },
        };
        self.meant
            .settle(context, |queue| queue.max_attempts(self.max_attempts), how)
            .await
    }
}

impl ClaimSelector {
    async fn settle(
        &self,
        context: &Context,
        with: impl FnOnce(WorkQueue) -> WorkQueue,
        how: Settlement,
    ) -> Result<u8, Failure> {
        let settling = Connection::during(context, BRIEF, async |connection: &Connection| {
            let queue = open(connection, &self.path)?;
            self.settle_in(&with(queue), how).await
        });
        let (id, settled) = settling.await?;
        if context.output.json() {
            let item = SettledItem {
                path: &self.path,
                token: self.token,
                id: &id,
                settled,
            };
            item.print(context);
        }
        Ok(exit::OK)
    }

    async fn settle_in(
        &self,
        queue: &WorkQueue,
        how: Settlement,
    ) -> Result<(String, SettledState), Failure> {
        let mut claims = queue.claims_of(self.token).await.map_err(failure)?;
        claims.retain(|claim| self.id.as_ref().is_none_or(|id| *id == claim.id));
        let Some(claim) = claims.pop() else {
            return Err(self.not_claimed());
        };
        if !claims.is_empty() {
            return Err(self.ambiguous(claims, &claim));
        }
        match queue.settle(&claim.item, self.token, how).await {
            Ok(settled) => Ok((claim.id, settled)),
            Err(WorkError::NotClaimed { .. }) => Err(self.not_claimed()),
            Err(error) => Err(failure(error)),
        }
    }

    fn not_claimed(&self) -> Failure {
        let (path, token) = (&self.path, self.token);
        let id = self
            .id
            .as_ref()
            .map(|id| format!(" and the id {id:?}"))
            .unwrap_or_default();
        Failure::new(
            exit::NOTHING,
            "not_claimed",
            format!(
                "{path}: no claim has the token {token}{id}: its item was settled, or the claim is lost and another gets the item; \
                 nothing was changed; see baton queue work claims {path}"
            ),
        )
    }

    fn ambiguous(&self, others: Vec<ClaimInfo>, last: &ClaimInfo) -> Failure {
        let ids: Vec<String> = others
            .into_iter()
            .map(|claim| claim.id)
            .chain([last.id.clone()])
            .collect();
        Failure::new(
            exit::NOTHING,
            "ambiguous",
            format!(
                "{}: {} items were claimed in one change and share the token {}; nothing was changed; say which with --id: {}",
                self.path,
                ids.len(),
                self.token,
                ids.join(", ")
            ),
        )
    }
}
