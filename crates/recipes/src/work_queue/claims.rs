//! Claims as others see them: who has what, and what another process than the claim's own may make
//! of it.
//!
//! Owns the settling of a claim by its token, for consumers that are not one process: a script that
//! takes, works and acknowledges by separate commands. It is the very change that the claim's own
//! process would make, conditioned on the same node (H67), after a look at a server that has caught
//! up. Must never settle an item for what was read about an earlier claim of it.

use super::WorkQueue;
use super::context::{Fault, Inner};
use super::dead_letter::AT_ONCE;
use super::envelope::Envelope;
use super::error::WorkError;
use super::layout::{Lane, Name};
use super::settle::{Claimed, End, Refused, Settled, conclude};
use crate::receipt::task_gone;
use crate::record::Record;
use baton_client::{Data, Session};
use baton_proto::path;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// An item that somebody works on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClaimInfo {
    /// Full path of the item.
    pub item: String,
    /// The item's id.
    pub id: String,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Who works on it, as far as its node says so.
    pub record: Option<Record>,
    /// The session that holds the claim.
    pub session: i64,
    /// The claim's fencing token. Items that were claimed in one change share it.
    pub token: u64,
}

/// Who works on what, as far as we may read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claims {
    /// The claims.
    pub claims: Vec<ClaimInfo>,
    /// Full paths of items, and of claims, that we may not read.
    pub unreadable: Vec<String>,
}

/// What is to become of an item that another process has claimed: see [`WorkQueue::settle`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement {
    /// The item is done: remove it, as [`Claim::ack`](super::Claim::ack) does.
    Ack,
    /// The attempt failed, as [`Claim::nack`](super::Claim::nack) says: the item is put off, or a
    /// dead letter after its last attempt.
    Nack {
        /// How long the item waits; `None` for what the queue's back-off says.
        delay: Option<Duration>,
        /// Why; noted in the item.
        reason: String,
    },
    /// Give the item back as it was; the attempt does not count.
    Release,
    /// No attempt will ever succeed: make the item a dead letter.
    Bury {
        /// Why; noted in the item.
        reason: String,
    },
}

impl WorkQueue {
    /// Who works on what. Reads every item's record: on a deep queue that takes a while. Items that
    /// we may not read are left out: [`WorkQueue::all_claims`] names them.
    ///
    /// # Errors
    /// [`WorkError`].
    pub async fn claims(&self) -> Result<Vec<ClaimInfo>, WorkError> {
        Ok(self.all_claims().await?.claims)
    }

    /// As [`WorkQueue::claims`], with the items that we may not read.
    ///
    /// # Errors
    /// [`WorkError`].
    pub async fn all_claims(&self) -> Result<Claims, WorkError> {
        self.claims_since(0, false).await
    }

    /// The claims with this token, as a server that has caught up knows them; more than one where
    /// items were claimed in one change. Asks for the stat of every item, and reads what was
    /// claimed since.
    ///
    /// # Errors
    /// [`WorkError`].
    pub async fn claims_of(&self, token: u64) -> Result<Vec<ClaimInfo>, WorkError> {
        let token = i64::try_from(token).unwrap_or(i64::MAX);
        Ok(self.claims_since(token, true).await?.claims)
    }

    async fn claims_since(&self, token: i64, only: bool) -> Result<Claims, WorkError> {
        loop {
            let session = self.inner.session().await?;
            match self.inner.claims(&session, token, only).await {
                Ok(claims) => return Ok(claims),
                Err(fault) => self.inner.after(&session, fault).await?,
            }
        }
    }

    /// Settles an item that another process has claimed, by the claim's token:
    /// [`Claim::item`](super::Claim::item) and [`Claim::token`](super::Claim::token) there, or
    /// [`WorkQueue::claims_of`] here, say what to pass.
    ///
    /// One change, conditioned on that very claim: it settles the item or changes nothing, and no
    /// two settle it. A lost answer is looked up. The process that holds the claim is told at once
    /// that it has ended, and what became of the item if its queue handle was made with
    /// [`WorkQueue::settled_elsewhere`]. Where a claim's visibility timeout has passed and nobody
    /// has taken the item over yet, this succeeds. Dropping the future does not take it back.
    ///
    /// ```no_run
    /// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use baton::{Settled, Settlement, WorkQueue};
    ///
    /// // One process claims and keeps the claim ...
    /// let keeper = WorkQueue::new(&client, "/jobs")?.settled_elsewhere();
    /// let claim = keeper.take().await?;
    /// let (item, token) = (claim.item().to_owned(), claim.token());
    ///
    /// // ... any other settles it.
    /// let elsewhere = WorkQueue::new(&client, "/jobs")?;
    /// elsewhere.settle(&item, token, Settlement::Ack).await?;
    ///
    /// assert_eq!(claim.settled().await, Ok(Settled::Acked));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`WorkError::NotClaimed`] where that claim does not stand, or not any more,
    /// [`WorkError::Changed`] where somebody has made a node below the item, which cannot go then:
    /// nothing was changed. [`WorkError::SettleUnknown`] where our session ended before the outcome
    /// was known.
    pub async fn settle(
        &self,
        item: &str,
        token: u64,
        how: Settlement,
    ) -> Result<Settled, WorkError> {
        let (queue, entry) = (self.clone(), item.to_owned());
        let task = tokio::spawn(async move {
            loop {
                let session = queue.inner.session().await?;
                match queue.settle_on(&session, &entry, token, &how).await {
                    Ok(settled) => return Ok(settled),
                    Err(fault) => queue.inner.after(&session, fault).await?,
                }
            }
        });
        task.await.unwrap_or_else(|_| {
            Err(WorkError::SettleUnknown {
                item: item.to_owned(),
                source: task_gone(item),
            })
        })
    }

    async fn settle_on(
        &self,
        session: &Session,
        item: &str,
        token: u64,
        how: &Settlement,
    ) -> Result<Settled, Fault> {
        let inner = &self.inner;
        let not_claimed = || WorkError::NotClaimed {
            path: item.to_owned(),
            token,
        };
        if !inner.is_item(item) {
            return Err(not_claimed().into());
        }
        loop {
            // The claim may be younger than what the server that we ask has seen.
            let caught_up = session.sync(&inner.layout.root);
            let mut unreadable = Vec::new();
            let standing = inner.standing(session, vec![item.to_owned()], &mut unreadable);
            caught_up.await?;
            let standing = standing.await?.pop();
            let Some(standing) = standing.filter(|standing| standing.token() == token) else {
                return Err(not_claimed().into());
            };
            let attempt = standing.envelope.attempts;
            let limit = standing.envelope.max_attempts;
            let end = match how {
                Settlement::Ack => End::Done,
                Settlement::Release => End::Back,
                Settlement::Bury { reason } => End::Dead {
                    reason: reason.clone(),
                },
                Settlement::Nack { delay, reason } => {
                    let delay = delay.unwrap_or_else(|| self.backoff.after(attempt));
                    let limit = limit.unwrap_or(self.manner.max_attempts);
                    End::failed(attempt, limit, delay, reason)
                }
            };
            let verdict = inner.layout.verdict(path::name(&standing.node));
            let kept = session.exists(&verdict).await?.is_some();
            let claimed = Claimed {
                node: &standing.node,
                entry: item,
                version: standing.item.stat.version,
                envelope: &standing.envelope,
                payload: &standing.payload,
                since_ms: standing
                    .envelope
                    .since_ms
                    .unwrap_or(standing.item.stat.ctime),
                verdict: kept.then_some(verdict.as_str()),
            };
            match conclude(inner, session, &claimed, &end).await {
                Ok(()) => return Ok(end.settled()),
                Err(Refused::ClaimGone) => return Err(not_claimed().into()),
                // Its holder has extended it: the next look shows whether it is the same claim.
                Err(Refused::ItemChanged) => {}
                Err(Refused::ItemInUse) => {
                    let item = item.to_owned();
                    return Err(WorkError::Changed { item }.into());
                }
                Err(Refused::Unknown(source)) => {
                    return Err(WorkError::SettleUnknown {
                        item: item.to_owned(),
                        source,
                    }
                    .into());
                }
                Err(Refused::Failed(error)) => return Err(error.into()),
            }
        }
    }
}

/// An item and the claim on it, as they were read.
#[derive(Debug)]
struct Standing {
    /// Full path of the item, and its node.
    entry: String,
    item: Data,
    envelope: Envelope,
    payload: Bytes,
    /// Full path of the claim, and its node.
    node: String,
    claim: Data,
}

impl Standing {
    /// The claim's node was made by the change that was the grant.
    fn token(&self) -> u64 {
        u64::try_from(self.claim.stat.czxid).unwrap_or_default()
    }

    fn info(self) -> ClaimInfo {
        ClaimInfo {
            token: self.token(),
            item: self.entry,
            id: self.envelope.id,
            attempt: self.envelope.attempts,
            record: Record::from_bytes(&self.claim.data),
            session: self.claim.stat.ephemeral_owner,
        }
    }
}

impl Inner {
    /// Whether a path is one that an item of this queue can have.
    fn is_item(&self, entry: &str) -> bool {
        let lane = path::parent(entry);
        let folder = path::parent(lane);
        path::validate(entry).is_ok()
            && folder == self.layout.items
            && Lane::parse(path::name(lane)).is_some()
            && Name::parse(path::name(entry)).is_some()
    }

    /// The claims of changes from `since` on; where `only` is set, of that one alone.
    async fn claims(
        self: &Arc<Self>,
        session: &Session,
        since: i64,
        only: bool,
    ) -> Result<Claims, Fault> {
        session.sync(&self.layout.root).await?;
        let mut seen = Claims::default();
        if self.read_terms(session).await?.is_none() {
            return Ok(seen);
        }
        self.has(session, &self.layout.items).await?;
        let mut lanes = self.lanes(session).await?;
        lanes.sort_unstable();
        for (_, lane) in lanes {
            let lane = self.layout.lane(&lane);
            let mut names = self.names(session, &lane).await?;
            names.sort_unstable();
            for some in names.chunks(AT_ONCE) {
                let asked: Vec<_> = some
                    .iter()
                    .map(|name| {
                        let entry = path::join(&lane, name);
                        let stat = session.exists(&entry);
                        (entry, stat)
                    })
                    .collect();
                let mut taken = Vec::new();
                for (entry, stat) in asked {
                    let stat = match stat.await {
                        Err(error) if error.is_no_auth() => {
                            seen.unreadable.push(entry);
                            continue;
                        }
                        stat => stat?,
                    };
                    // A claim writes to its item in the same change.
                    if stat.is_some_and(|stat| stat.num_children > 0 && stat.mzxid >= since) {
                        taken.push(entry);
                    }
                }
                let standing = self.standing(session, taken, &mut seen.unreadable).await?;
                seen.claims.extend(
                    standing
                        .into_iter()
                        .filter(|standing| !only || standing.claim.stat.czxid == since)
                        .map(Standing::info),
                );
            }
        }
        Ok(seen)
    }

    /// Those of these items that are claimed, with their claims. The first requests are queued
    /// before this is first awaited.
    fn standing(
        &self,
        session: &Session,
        entries: Vec<String>,
        unreadable: &mut Vec<String>,
    ) -> impl Future<Output = Result<Vec<Standing>, Fault>> {
        let asked: Vec<_> = entries
            .into_iter()
            .map(|entry| {
                let read = session.get_data(&entry);
                (entry, read)
            })
            .collect();
        async move {
            let mut found = Vec::with_capacity(asked.len());
            for (entry, read) in asked {
                let item = match read.await {
                    Ok(item) => item,
                    Err(error) if error.is_no_node() => continue,
                    Err(error) if error.is_no_auth() => {
                        unreadable.push(entry);
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                };
                let Some((envelope, payload)) = Envelope::open(&item.data) else {
                    continue;
                };
                let Some(mark) = &envelope.claim else {
                    continue;
                };
                let node = path::join(&entry, &mark.node);
                let claim = session.get_data(&node);
                found.push((entry, item, envelope, payload, node, claim));
            }
            let mut standing = Vec::with_capacity(found.len());
            for (entry, item, envelope, payload, node, claim) in found {
                match claim.await {
                    Ok(claim) => standing.push(Standing {
                        entry,
                        item,
                        envelope,
                        payload,
                        node,
                        claim,
                    }),
                    Err(error) if error.is_no_node() => {}
                    Err(error) if error.is_no_auth() => unreadable.push(node),
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(standing)
        }
    }
}
