//! From "there is an item" to a claim on it.
//!
//! Owns the claim: one multi that notes the attempt in the item, conditioned on the version that
//! was read, and makes an ephemeral node under it. A lost answer is resolved by looking for that
//! node (H69). An item that another consumer was quicker to claim is passed over for the next
//! (H70). Must never hand out an item whose attempts are used up (H71), nor one that cannot be read
//! (H72): those go to the dead letters.

use super::context::{Fault, Inner};
use super::envelope::{ClaimMark, Envelope};
use super::held_item::{self, Held};
use super::layout::{CLAIM_PREFIX, MAX_PRIORITY};
use super::scan::{Found, READ_AHEAD};
use crate::acquire;
use crate::guard::{ClaimDeadline, Guard};
use crate::parents::{Parents, ensure_parents};
use crate::receipt::task_gone;
use crate::record::Record;
use crate::retry;
use crate::server_clock::millis;
use crate::wait_queue::{GrantedNode, OwnNodeWatch, WaiterNode};
use baton_client::{
    BootInstant, CreateMode, Error, LeaseHold, Op, OpResult, Pending, Reason, Session,
};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// How long what was read ahead counts as new. Within this time a more urgent item may be passed
/// over.
const AHEAD_FOR: Duration = Duration::from_millis(500);

/// Among how many of the first items to choose, at most.
const MAX_SPREAD: usize = 64;

/// Items too large to be claimed or moved that are kept in mind; with more of them, all are tried
/// again.
const MAX_PASSED_OVER: usize = 1024;

/// Items that one multi claims at most.
pub(super) const MAX_CLAIMS: usize = 64;

/// How items are to be claimed.
#[derive(Clone, Debug)]
pub(super) struct Manner {
    pub visibility: Option<Duration>,
    pub max_attempts: u32,
    pub name: Option<Arc<str>>,
    /// With a node each for the word of whoever settles it from elsewhere.
    pub told: bool,
}

/// One item about to be claimed.
struct Bid {
    found: Found,
    envelope: Envelope,
    /// Full path of the claim node to be.
    claim: String,
    /// Full path of the node for others' word, if there is to be one.
    verdict: Option<String>,
    record: Vec<u8>,
}

/// How a multi of bids ended.
enum Verdict {
    /// With the version of each item and the zxid of the grant.
    Ours(Vec<(i32, i64)>),
    /// The culprit's number; the others may be tried again.
    Beaten(usize),
    /// Not sent: more than one request may be.
    TooLarge,
    /// The queue's own node has changed since the items were read: they may be others by now.
    QueueChanged,
    /// Not applied, for no fault of the items'.
    Failed(Error),
}

impl Inner {
    /// Claims up to `want` items; none if there is none to be claimed now.
    ///
    /// To be driven to its end.
    pub(super) async fn claim(
        &self,
        session: &Session,
        want: usize,
        manner: &Manner,
    ) -> Result<Vec<Held>, Fault> {
        let lease = self.hold_lease(session).await?;
        let mut fresh = false;
        loop {
            // Before the items are read, so that they are no older than this.
            let agreed = self.agreed(session, None).await?;
            let picked = match self.pick(session, want, agreed.version) {
                picked if picked.is_empty() && fresh => return Ok(Vec::new()),
                picked if picked.is_empty() => {
                    let survey = self.survey(session, want.max(READ_AHEAD), None).await?;
                    self.read_ahead(session, survey.free, agreed.version);
                    fresh = true;
                    continue;
                }
                picked => picked,
            };
            let terms = Op::check(&*self.layout.root, Some(agreed.version));
            let held = self
                .claim_these(session, &lease, picked, manner, &terms)
                .await?;
            if !held.is_empty() {
                return Ok(held);
            }
            // Others were quicker for all of them: what is left, or what has come since.
            fresh = false;
        }
    }

    /// Keeps what was read after the queue's own node had this version.
    pub(super) fn read_ahead(&self, session: &Session, free: Vec<Found>, terms: i32) {
        let mut local = self.local();
        local.ahead = free.into();
        local.ahead_terms = terms;
        local.ahead_since = Some(session.clock().now());
    }

    /// Takes up to `want` items from what was read ahead: the first, or some of the first where
    /// others contend.
    fn pick(&self, session: &Session, want: usize, terms: i32) -> Vec<Found> {
        let now = session.clock().now();
        let mut local = self.local();
        let old = local
            .ahead_since
            .is_none_or(|since| now.saturating_duration_since(since) > AHEAD_FOR);
        if old || local.ahead_terms != terms {
            local.ahead.clear();
            return Vec::new();
        }
        // Never past a more urgent item for a less urgent one.
        let first = local.ahead.front().map(Found::priority);
        let equals = local
            .ahead
            .iter()
            .take_while(|found| Some(found.priority()) == first)
            .count();
        let spread = local.spread.min(equals.saturating_sub(want));
        let skip = if spread == 0 {
            0
        } else {
            // Any number does that differs from consumer to consumer.
            fastrand::usize(0..=spread)
        };
        let end = local.ahead.len().min(skip + want);
        local.ahead.drain(skip..end).collect()
    }

    /// Claims of `picked` what it can: all in one multi, or where somebody was quicker for one of
    /// them, each by itself.
    async fn claim_these(
        &self,
        session: &Session,
        lease: &LeaseHold,
        picked: Vec<Found>,
        manner: &Manner,
        terms: &Op,
    ) -> Result<Vec<Held>, Fault> {
        let mut bids = Vec::with_capacity(picked.len());
        for found in picked {
            match self.bid(found, manner) {
                Ok(bid) => bids.push(bid),
                Err(unfit) => {
                    let (found, reason) = *unfit;
                    self.bury_unclaimed(session, found, &reason).await?;
                }
            }
        }
        if bids.is_empty() {
            return Ok(Vec::new());
        }
        if manner.told {
            // A container may go whenever it is empty, and be made again by the next claim.
            ensure_parents(session, &self.layout.verdicts, Parents::Container).await?;
        }
        let together = send(session, bids, manner, terms);
        let mut taken = Taken::default();
        let apart = match together.finish(session, lease, &mut taken).await {
            Rest::Nothing => {
                if taken.error.is_none() {
                    self.local().spread /= 2;
                }
                return taken.outcome();
            }
            Rest::Beaten(mut bids, culprit) => {
                let mut local = self.local();
                local.spread = (local.spread * 2 + 1).min(MAX_SPREAD);
                bids.remove(culprit);
                bids
            }
            Rest::TooLarge(bids) => bids,
            Rest::QueueChanged => {
                self.read_anew();
                return taken.outcome();
            }
        };
        let each: Vec<Sent<'_>> = apart
            .into_iter()
            .map(|bid| send(session, vec![bid], manner, terms))
            .collect();
        // Every one of them is seen to its end, whatever becomes of the others: a claim that nobody
        // knows of would block its item for as long as the session lives.
        for sent in each {
            match sent.finish(session, lease, &mut taken).await {
                Rest::TooLarge(bids) => {
                    for bid in bids {
                        self.pass_over(&bid.found);
                    }
                }
                Rest::QueueChanged => self.read_anew(),
                Rest::Nothing | Rest::Beaten(..) => {}
            }
        }
        taken.outcome()
    }

    /// Forgets what was read of the queue: since then it was repaired, or its capacity was changed.
    fn read_anew(&self) {
        let mut local = self.local();
        local.agreed = None;
        local.ahead.clear();
    }

    /// Moves an item that nobody holds to the dead letters. That it is gone afterwards is all that
    /// is asked, whoever did it.
    async fn bury_unclaimed(
        &self,
        session: &Session,
        found: Found,
        reason: &str,
    ) -> Result<(), Fault> {
        let envelope = found.envelope.clone().unwrap_or_else(|| {
            Envelope::new(uuid::Uuid::new_v4().simple().to_string(), MAX_PRIORITY)
        });
        let mut parts = Vec::with_capacity(3);
        if let Some(claim) = &found.stale_claim {
            parts.push(Op::delete(claim, None));
        }
        parts.push(Op::delete(&found.entry, Some(found.version)));
        parts.push(self.dead_letter(envelope, found.since_ms, reason, &found.payload));
        match session.multi(&parts).await {
            Ok(_) => {
                tracing::warn!(item = found.entry, reason, "moved to the dead letters");
                Ok(())
            }
            // The folder of dead letters is not there; what it says of the item is said again.
            Err(error) if error.is_no_node() && error.multi_index() == Some(parts.len() - 1) => {
                Err(error.into())
            }
            Err(error) if error.is_no_node() || error.is_bad_version() || error.is_not_empty() => {
                Ok(())
            }
            // The item's version decides, should it be tried again.
            Err(error) if error.is_maybe_applied() && retry::until_connected(session).await => {
                Ok(())
            }
            Err(error) if error.is_too_large() => {
                self.pass_over(&found);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Lets an item lie that is too large for the request that would claim or move it, so that it
    /// holds up no other.
    fn pass_over(&self, found: &Found) {
        tracing::warn!(
            item = found.entry,
            "too large to be claimed or moved: passed over, left in place"
        );
        let mut local = self.local();
        if local.passed_over.len() >= MAX_PASSED_OVER {
            local.passed_over.clear();
        }
        local.passed_over.insert(found.entry.clone(), found.version);
    }

    /// The part of a multi that makes an item a dead letter.
    pub(super) fn dead_letter(
        &self,
        envelope: Envelope,
        since_ms: i64,
        reason: &str,
        payload: &[u8],
    ) -> Op {
        let mut envelope = envelope.noting(reason);
        envelope.since_ms = Some(since_ms);
        envelope.claim = None;
        let path = baton_proto::path::join(&self.layout.dead, "d-");
        Op::create(
            path,
            envelope.seal(payload),
            CreateMode::PersistentSequential,
        )
    }

    /// What is to be sent for an item, or why it is not to be handed out.
    fn bid(&self, found: Found, manner: &Manner) -> Result<Bid, Box<(Found, String)>> {
        let Some(mut envelope) = found.envelope.clone() else {
            let reason = "it cannot be read: not put by this queue".to_owned();
            return Err(Box::new((found, reason)));
        };
        let limit = envelope.max_attempts.unwrap_or(manner.max_attempts);
        if envelope.attempts >= limit {
            let reason = envelope.reason.unwrap_or_else(|| {
                format!("{limit} consumers claimed it and none finished it, or said why")
            });
            return Err(Box::new((found, reason)));
        }
        let record = Record::new(manner.name.as_deref());
        let node = format!("{CLAIM_PREFIX}{}", record.id.simple());
        envelope.attempts += 1;
        envelope.since_ms = Some(found.since_ms);
        envelope.claim = Some(ClaimMark {
            node: node.clone(),
            visibility_ms: manner.visibility.map(millis),
        });
        Ok(Bid {
            claim: baton_proto::path::join(&found.entry, &node),
            verdict: manner.told.then(|| self.layout.verdict(&node)),
            record: record.to_bytes(),
            found,
            envelope,
        })
    }
}

/// What a round of bids has brought.
#[derive(Default)]
struct Taken {
    held: Vec<Held>,
    error: Option<Error>,
}

impl Taken {
    /// What is claimed is worth more than the news, which comes again.
    fn outcome(self) -> Result<Vec<Held>, Fault> {
        match self.error {
            Some(error) if self.held.is_empty() => Err(error.into()),
            _ => Ok(self.held),
        }
    }
}

/// The parts of one bid.
fn parts(bid: &Bid) -> impl Iterator<Item = Op> + '_ {
    let end_stale = bid
        .found
        .stale_claim
        .iter()
        .map(|claim| Op::delete(claim, None));
    let claim = [
        Op::set_data(
            &bid.found.entry,
            bid.envelope.seal(&bid.found.payload),
            Some(bid.found.version),
        ),
        Op::create(&bid.claim, bid.record.clone(), CreateMode::Ephemeral),
    ];
    let verdict = bid
        .verdict
        .iter()
        .map(|path| Op::create(path, Bytes::new(), CreateMode::Ephemeral));
    end_stale.chain(claim).chain(verdict)
}

/// What of a multi of bids is left to be done.
enum Rest {
    Nothing,
    /// Somebody was quicker for this one of them.
    Beaten(Vec<Bid>, usize),
    /// Together they are more than one request may be.
    TooLarge(Vec<Bid>),
    /// To be read anew.
    QueueChanged,
}

/// A multi of bids under way.
struct Sent<'a> {
    bids: Vec<Bid>,
    at: BootInstant,
    pending: Pending<Vec<OpResult>>,
    manner: &'a Manner,
}

/// Queues the multi; nothing was awaited when this returns. `terms` is a condition on the queue's
/// own node: a folder of items that was made again gives out its names again (H09).
fn send<'a>(session: &Session, bids: Vec<Bid>, manner: &'a Manner, terms: &Op) -> Sent<'a> {
    let mut ops: Vec<Op> = bids.iter().flat_map(parts).collect();
    ops.push(terms.clone());
    Sent {
        at: session.clock().now(),
        pending: session.multi(&ops),
        bids,
        manner,
    }
}

impl Sent<'_> {
    /// Adds what it brought to `taken`; returns the bids that may be sent again, each by itself.
    async fn finish(self, session: &Session, lease: &LeaseHold, taken: &mut Taken) -> Rest {
        match settle(session, &self.bids, self.pending).await {
            Verdict::Ours(stats) => {
                for (bid, stat) in self.bids.into_iter().zip(stats) {
                    match hold(session, lease, bid, stat, self.at, self.manner).await {
                        Ok(held) => taken.held.push(held),
                        Err(error) => taken.error = Some(error),
                    }
                }
                Rest::Nothing
            }
            Verdict::Failed(error) => {
                taken.error = Some(error);
                Rest::Nothing
            }
            Verdict::Beaten(culprit) => {
                let culprit = culprit.min(self.bids.len().saturating_sub(1));
                Rest::Beaten(self.bids, culprit)
            }
            Verdict::TooLarge => Rest::TooLarge(self.bids),
            Verdict::QueueChanged => Rest::QueueChanged,
        }
    }
}

async fn settle(session: &Session, bids: &[Bid], pending: Pending<Vec<OpResult>>) -> Verdict {
    match pending.await {
        Ok(results) => Verdict::Ours(
            results
                .iter()
                .filter_map(|result| match result {
                    OpResult::DataSet(stat) => Some((stat.version, stat.mzxid)),
                    _ => None,
                })
                .collect(),
        ),
        Err(error) if error.is_maybe_applied() => match look(session, bids, error).await {
            Ok(verdict) => verdict,
            Err(error) => {
                for bid in bids {
                    let (item, name) = (&bid.found.entry, baton_proto::path::name(&bid.claim));
                    drop(session.discard_create(item, name));
                    discard_verdict(session, bid);
                }
                Verdict::Failed(error)
            }
        },
        Err(error) if error.is_no_node() || error.is_bad_version() || error.is_node_exists() => {
            let Some(index) = error.multi_index() else {
                return Verdict::Failed(error);
            };
            let mut seen = 0;
            let beaten = bids.iter().position(|bid| {
                seen += parts(bid).count();
                index < seen
            });
            beaten.map_or(Verdict::QueueChanged, Verdict::Beaten)
        }
        Err(error) if error.is_too_large() => Verdict::TooLarge,
        Err(error) => Verdict::Failed(error),
    }
}

/// After a lost answer: the claim nodes tell, on a server that has caught up. Their names are ours
/// alone, and were sent once.
async fn look(session: &Session, bids: &[Bid], lost: Error) -> Result<Verdict, Error> {
    'again: loop {
        if !retry::until_connected(session).await {
            return Ok(Verdict::Failed(lost));
        }
        let caught_up = session.sync("/");
        let asked: Vec<_> = bids
            .iter()
            .map(|bid| (session.exists(&bid.found.entry), session.exists(&bid.claim)))
            .collect();
        if let Err(error) = caught_up.await {
            retry::until_retryable(session, error).await?;
            continue;
        }
        let mut stats = Vec::with_capacity(bids.len());
        for (item, claim) in asked {
            match (item.await, claim.await) {
                (Ok(Some(item)), Ok(Some(claim))) => stats.push((item.version, claim.czxid)),
                // All or none: one claim that is missing was never made, or was taken away since;
                // either way all of them are let go of, and what is left of them is deleted.
                (Ok(_), Ok(_)) => stats.push((-1, 0)),
                (Err(error), _) | (_, Err(error)) => {
                    retry::until_retryable(session, error).await?;
                    continue 'again;
                }
            }
        }
        if stats.iter().all(|(version, _)| *version != -1) {
            return Ok(Verdict::Ours(stats));
        }
        for (bid, (_, czxid)) in bids.iter().zip(&stats) {
            if *czxid != 0 {
                drop(session.delete_eventually(&bid.claim, *czxid));
            }
            discard_verdict(session, bid);
        }
        return Ok(Verdict::Failed(Error::NotSent {
            op: baton_client::OpCode::Multi,
            path: "/".to_owned(),
            reason: Reason::ConnectionLost,
        }));
    }
}

/// Deletes what a bid may have left beside its claim.
fn discard_verdict(session: &Session, bid: &Bid) {
    if let Some(path) = &bid.verdict {
        let (folder, name) = (
            baton_proto::path::parent(path),
            baton_proto::path::name(path),
        );
        drop(session.discard_create(folder, name));
    }
}

/// The claim is ours on the server; from here on it is by our own clock, too.
async fn hold(
    session: &Session,
    lease: &LeaseHold,
    bid: Bid,
    (version, token): (i32, i64),
    sent: BootInstant,
    manner: &Manner,
) -> Result<Held, Error> {
    let dir: Arc<str> = Arc::from(bid.found.entry.as_str());
    let waiter = WaiterNode::adopt(session, &dir, bid.claim, token);
    let verdict = bid
        .verdict
        .map(|path| held_item::Verdict::new(session, path, token));
    if acquire::needs_renewal(session) && acquire::renew(session, &waiter).await.is_err() {
        return Err(task_gone(&bid.found.entry));
    }
    let own_node = OwnNodeWatch::watch(&waiter);
    let guard = Guard::new(
        GrantedNode { waiter, own_node },
        Vec::new(),
        token,
        lease.clone(),
    );
    Ok(Held {
        guard,
        version: Arc::new(tokio::sync::Mutex::new(version)),
        envelope: bid.envelope,
        payload: bid.found.payload,
        since_ms: bid.found.since_ms,
        until: Arc::new(ClaimDeadline::new(sent, manner.visibility)),
        verdict,
        entry: bid.found.entry,
    })
}
