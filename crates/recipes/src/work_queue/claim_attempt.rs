//! Claim attempts: from a claimable item to a claim on it.
//!
//! Owns the multi that claims items: it notes the attempt in each item, conditioned on the version
//! that was read, and makes an ephemeral node below it. An unknown outcome is resolved by reading
//! that node (H69). After a lost race for one item the others are tried (H70). Must never hand out
//! an item whose attempts are used up (H71), nor one that cannot be read (H72): both go to the dead
//! letters.

use std::sync::Arc;

use baton_client::{
    BootInstant, CreateMode, Error, LeaseHold, Op, OpResult, Pending, Reason, Session,
};
use bytes::Bytes;
use tracing::Instrument;

use super::context::QueueContext;
use super::envelope::Envelope;
use super::error::StepError;
use super::held_item::HeldItem;
use super::layout::CLAIM_PREFIX;
use super::notice::SettlementNotice;
use super::queue::ClaimOptions;
use super::read_ahead::{ClaimableItem, READ_AHEAD};
use super::visibility;
use crate::acquire;
use crate::guard::Guard;
use crate::parents::{ParentKind, ensure_parents};
use crate::receipt::task_gone;
use crate::record::Record;
use crate::retry;
use crate::spans;
use crate::wait_queue::{GrantedNode, OwnNodeWatch, WaiterNode};

/// An attempt to claim one item.
struct ClaimAttempt {
    item: ClaimableItem,
    envelope: Envelope,
    /// Full path of the claim's node.
    claim: String,
    /// Full path of the notice node, if the claim is to have one.
    notice: Option<String>,
    record: Vec<u8>,
}

/// Outcome of a multi of claim attempts.
enum AttemptOutcome {
    /// All items were claimed: the version of each item, and the zxid of its claim.
    Won(Vec<(i32, i64)>),
    /// Another consumer has claimed or changed the item of this index. Nothing was claimed.
    LostRace(usize),
    /// Not sent: together they are larger than one request may be.
    TooLarge,
    /// The queue's own node has changed since the items were read, so they may be others now.
    QueueChanged,
    /// Nothing was claimed, for another reason.
    Failed(Error),
}

impl QueueContext {
    /// Claims up to `want` items; none where no item can be claimed now. Must be driven to its end.
    pub(super) async fn claim(
        &self,
        session: &Session,
        want: usize,
        options: &ClaimOptions,
    ) -> Result<Vec<HeldItem>, StepError> {
        let span = spans::claim(&self.layout.root);
        let outcome = self
            .claim_free(session, want, options)
            .instrument(span.clone())
            .await;
        // The first one last, so that its token is the span's.
        for item in outcome.iter().flatten().rev() {
            item.guard.acquired(&span);
        }
        outcome
    }

    async fn claim_free(
        &self,
        session: &Session,
        want: usize,
        options: &ClaimOptions,
    ) -> Result<Vec<HeldItem>, StepError> {
        let lease = self.hold_lease(session).await?;
        let mut fresh = false;
        loop {
            // Read before the items, so that the items are as new as this or newer.
            let agreed = self.agreed(session, None).await?;
            let now = session.clock().now();
            let picked = self.known().read_ahead.pick(want, agreed.version, now);
            if picked.is_empty() {
                if fresh {
                    return Ok(Vec::new());
                }
                let scan = self.scan(session, want.max(READ_AHEAD), None).await?;
                let now = session.clock().now();
                self.known().read_ahead.fill(scan.free, agreed.version, now);
                fresh = true;
                continue;
            }
            let terms = Op::check(&*self.layout.root, Some(agreed.version));
            let held = self
                .claim_picked(session, &lease, picked, options, &terms)
                .await?;
            if !held.is_empty() {
                return Ok(held);
            }
            // All races were lost: try the items that are left, or new ones.
            fresh = false;
        }
    }

    /// Claims as many of `picked` as it can: all in one multi, or, after a lost race for one of
    /// them, each of the others in a multi of its own.
    async fn claim_picked(
        &self,
        session: &Session,
        lease: &LeaseHold,
        picked: Vec<ClaimableItem>,
        options: &ClaimOptions,
        terms: &Op,
    ) -> Result<Vec<HeldItem>, StepError> {
        let mut attempts = Vec::with_capacity(picked.len());
        for item in picked {
            match self.prepare(item, options) {
                Ok(attempt) => attempts.push(attempt),
                Err(unfit) => {
                    let (item, reason) = *unfit;
                    self.dead_letter_unclaimed(session, item, &reason).await?;
                }
            }
        }
        if attempts.is_empty() {
            return Ok(Vec::new());
        }
        if options.notices {
            // The server deletes a container that is empty. The next claim makes it again.
            ensure_parents(session, &self.layout.notices, ParentKind::Container).await?;
        }
        let together = send(session, attempts, options, terms);
        let mut round = ClaimRound::default();
        let apart = match together.finish(session, lease, &mut round).await {
            RemainingAttempts::Nothing => {
                if round.error.is_none() {
                    self.known().read_ahead.won_all();
                }
                return round.outcome();
            }
            RemainingAttempts::LostRace(mut attempts, lost) => {
                self.known().read_ahead.lost_race();
                attempts.remove(lost);
                attempts
            }
            RemainingAttempts::TooLarge(attempts) => attempts,
            RemainingAttempts::QueueChanged => {
                self.forget_read();
                return round.outcome();
            }
        };
        let each: Vec<SentAttempts<'_>> = apart
            .into_iter()
            .map(|attempt| send(session, vec![attempt], options, terms))
            .collect();
        // Each attempt is driven to its end, whatever becomes of the others: a claim that nobody
        // knows of would block its item as long as the session lives.
        for sent in each {
            match sent.finish(session, lease, &mut round).await {
                RemainingAttempts::TooLarge(attempts) => {
                    for attempt in attempts {
                        self.pass_over(&attempt.item);
                    }
                }
                RemainingAttempts::QueueChanged => self.forget_read(),
                RemainingAttempts::Nothing | RemainingAttempts::LostRace(..) => {}
            }
        }
        round.outcome()
    }

    /// Forgets what was read of the queue, because it was repaired, or its capacity was changed.
    fn forget_read(&self) {
        let mut known = self.known();
        known.agreed = None;
        known.read_ahead.clear();
    }

    /// The attempt to claim an item, or why the item must not be handed out.
    fn prepare(
        &self,
        item: ClaimableItem,
        options: &ClaimOptions,
    ) -> Result<ClaimAttempt, Box<(ClaimableItem, String)>> {
        let Some(mut envelope) = item.envelope.clone() else {
            let reason = "it cannot be read: not put by this queue".to_owned();
            return Err(Box::new((item, reason)));
        };
        let limit = envelope.max_attempts.unwrap_or(options.max_attempts);
        if envelope.attempts >= limit {
            let reason = envelope
                .reason
                .unwrap_or_else(|| format!("{limit} consumers claimed it and none settled it"));
            return Err(Box::new((item, reason)));
        }
        let record = Record::of(options.name.as_deref(), options.pid);
        let node = format!("{CLAIM_PREFIX}{}", record.id.simple());
        envelope.attempts += 1;
        envelope.since_ms = Some(item.since_ms);
        envelope.claim = Some(visibility::mark(node.clone(), options.visibility));
        Ok(ClaimAttempt {
            claim: baton_proto::path::join(&item.entry, &node),
            notice: options.notices.then(|| self.layout.notice(&node)),
            record: record.to_bytes(),
            item,
            envelope,
        })
    }
}

/// Result of a round of claim attempts.
#[derive(Default)]
struct ClaimRound {
    held: Vec<HeldItem>,
    error: Option<Error>,
}

impl ClaimRound {
    /// The claims, or the error where there is none. An error is not lost: the next round meets it
    /// again.
    fn outcome(self) -> Result<Vec<HeldItem>, StepError> {
        match self.error {
            Some(error) if self.held.is_empty() => Err(error.into()),
            _ => Ok(self.held),
        }
    }
}

/// The parts of one attempt in its multi.
fn claim_parts(attempt: &ClaimAttempt) -> impl Iterator<Item = Op> + '_ {
    let end_stale = attempt
        .item
        .stale_claim
        .iter()
        .map(|claim| Op::delete(claim, None));
    let claim = [
        Op::set_data(
            &attempt.item.entry,
            attempt.envelope.seal(&attempt.item.payload),
            Some(attempt.item.version),
        ),
        Op::create(
            &attempt.claim,
            attempt.record.clone(),
            CreateMode::Ephemeral,
        ),
    ];
    let notice = attempt
        .notice
        .iter()
        .map(|path| Op::create(path, Bytes::new(), CreateMode::Ephemeral));
    end_stale.chain(claim).chain(notice)
}

/// Work left after a multi of claim attempts.
enum RemainingAttempts {
    Nothing,
    /// Another consumer has won the race for the item of this index.
    LostRace(Vec<ClaimAttempt>, usize),
    /// Together they are larger than one request may be.
    TooLarge(Vec<ClaimAttempt>),
    /// The queue must be read again.
    QueueChanged,
}

/// A multi of claim attempts under way.
struct SentAttempts<'a> {
    attempts: Vec<ClaimAttempt>,
    at: BootInstant,
    pending: Pending<Vec<OpResult>>,
    options: &'a ClaimOptions,
}

/// Sends the multi without waiting. `terms` is a condition on the queue's own node: a folder of
/// items that was made again assigns the same names again (H09).
fn send<'a>(
    session: &Session,
    attempts: Vec<ClaimAttempt>,
    options: &'a ClaimOptions,
    terms: &Op,
) -> SentAttempts<'a> {
    let mut ops: Vec<Op> = attempts.iter().flat_map(claim_parts).collect();
    ops.push(terms.clone());
    SentAttempts {
        at: session.clock().now(),
        pending: session.multi(&ops),
        attempts,
        options,
    }
}

impl SentAttempts<'_> {
    /// Adds the claims to `round`; returns the attempts that may be sent again, each by itself.
    async fn finish(
        self,
        session: &Session,
        lease: &LeaseHold,
        round: &mut ClaimRound,
    ) -> RemainingAttempts {
        match outcome_of(session, &self.attempts, self.pending).await {
            AttemptOutcome::Won(stats) => {
                for (attempt, stat) in self.attempts.into_iter().zip(stats) {
                    match into_held(session, lease, attempt, stat, self.at, self.options).await {
                        Ok(held) => round.held.push(held),
                        Err(error) => round.error = Some(error),
                    }
                }
                RemainingAttempts::Nothing
            }
            AttemptOutcome::Failed(error) => {
                round.error = Some(error);
                RemainingAttempts::Nothing
            }
            AttemptOutcome::LostRace(lost) => {
                let lost = lost.min(self.attempts.len().saturating_sub(1));
                RemainingAttempts::LostRace(self.attempts, lost)
            }
            AttemptOutcome::TooLarge => RemainingAttempts::TooLarge(self.attempts),
            AttemptOutcome::QueueChanged => RemainingAttempts::QueueChanged,
        }
    }
}

/// Waits for the answer to a multi of claim attempts, and resolves an unknown outcome.
async fn outcome_of(
    session: &Session,
    attempts: &[ClaimAttempt],
    pending: Pending<Vec<OpResult>>,
) -> AttemptOutcome {
    match pending.await {
        Ok(results) => AttemptOutcome::Won(
            results
                .iter()
                .filter_map(|result| match result {
                    OpResult::DataSet(stat) => Some((stat.version, stat.mzxid)),
                    _ => None,
                })
                .collect(),
        ),
        Err(error) if error.is_maybe_applied() => {
            match resolve_attempts(session, attempts, error).await {
                Ok(outcome) => outcome,
                Err(error) => {
                    for attempt in attempts {
                        let (item, name) =
                            (&attempt.item.entry, baton_proto::path::name(&attempt.claim));
                        drop(session.discard_create(item, name));
                        discard_notice(session, attempt);
                    }
                    AttemptOutcome::Failed(error)
                }
            }
        }
        Err(error) if error.is_no_node() || error.is_bad_version() || error.is_node_exists() => {
            let Some(index) = error.multi_index() else {
                return AttemptOutcome::Failed(error);
            };
            let mut seen = 0;
            let lost = attempts.iter().position(|attempt| {
                seen += claim_parts(attempt).count();
                index < seen
            });
            lost.map_or(AttemptOutcome::QueueChanged, AttemptOutcome::LostRace)
        }
        Err(error) if error.is_too_large() => AttemptOutcome::TooLarge,
        Err(error) => AttemptOutcome::Failed(error),
    }
}

/// Resolves an unknown outcome by reading the claims' nodes on a server that has caught up. Their
/// names are unique and were sent once.
async fn resolve_attempts(
    session: &Session,
    attempts: &[ClaimAttempt],
    cause: Error,
) -> Result<AttemptOutcome, Error> {
    let read = || async {
        let caught_up = session.sync("/");
        let asked: Vec<_> = attempts
            .iter()
            .map(|attempt| {
                (
                    session.exists(&attempt.item.entry),
                    session.exists(&attempt.claim),
                )
            })
            .collect();
        caught_up.await?;
        let mut claimed = Vec::with_capacity(attempts.len());
        for (item, claim) in asked {
            let stats = item.await?.zip(claim.await?);
            claimed.push(stats.map(|(item, claim)| (item.version, claim.czxid)));
        }
        Ok(claimed)
    };
    let claimed = retry::resolve(session, cause, read).await?;
    if let Some(all) = claimed.iter().copied().collect() {
        return Ok(AttemptOutcome::Won(all));
    }
    // A claim that is missing was never made, or was deleted since. Either way all of them are
    // given up, and those that exist are deleted.
    for (attempt, stats) in attempts.iter().zip(claimed) {
        if let Some((_, czxid)) = stats {
            drop(session.delete_eventually(&attempt.claim, czxid));
        }
        discard_notice(session, attempt);
    }
    Ok(AttemptOutcome::Failed(Error::NotSent {
        op: baton_client::OpCode::Multi,
        path: "/".to_owned(),
        reason: Reason::ConnectionLost,
    }))
}

/// Deletes the notice node that an attempt may have made.
fn discard_notice(session: &Session, attempt: &ClaimAttempt) {
    if let Some(path) = &attempt.notice {
        let (folder, name) = (
            baton_proto::path::parent(path),
            baton_proto::path::name(path),
        );
        drop(session.discard_create(folder, name));
    }
}

/// Makes a held item of a claim that the server has granted.
async fn into_held(
    session: &Session,
    lease: &LeaseHold,
    attempt: ClaimAttempt,
    (version, token): (i32, i64),
    sent: BootInstant,
    options: &ClaimOptions,
) -> Result<HeldItem, Error> {
    let dir: Arc<str> = Arc::from(attempt.item.entry.as_str());
    let waiter = WaiterNode::adopt(session, &dir, attempt.claim, token);
    let notice = attempt
        .notice
        .map(|path| SettlementNotice::new(session, path, token));
    if acquire::needs_renewal(session) && acquire::renew(session, &waiter).await.is_err() {
        return Err(task_gone(&attempt.item.entry));
    }
    let own_node = OwnNodeWatch::watch(&waiter);
    let guard = Guard::new(
        GrantedNode { waiter, own_node },
        Vec::new(),
        token,
        lease.clone(),
    );
    Ok(HeldItem {
        guard,
        version: Arc::new(tokio::sync::Mutex::new(version)),
        envelope: attempt.envelope,
        payload: attempt.item.payload,
        since_ms: attempt.item.since_ms,
        until: visibility::deadline(sent, options.visibility),
        notice,
        entry: attempt.item.entry,
    })
}
