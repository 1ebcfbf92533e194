//! The list of claims: who works on which item.
//!
//! Owns how a claim is read together with its item. A list is not of one instant.

use std::sync::Arc;

use baton_client::{Data, Session};
use baton_proto::path;
use bytes::Bytes;
use serde::Serialize;

use super::context::QueueContext;
use super::envelope::Envelope;
use super::error::{StepError, WorkError};
use super::queue::WorkQueue;
use super::shards::AT_ONCE;
use crate::record::Record;
use crate::rendering::{self, OneLine};

/// A claim on an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ClaimInfo {
    /// Full path of the item.
    pub item: String,
    /// The item's id.
    pub id: String,
    /// Number of this attempt, from 1.
    pub attempt: u32,
    /// Record of the worker, if the claim's node has it.
    pub record: Option<Record>,
    /// The session that holds the claim.
    #[serde(serialize_with = "rendering::session_id")]
    pub session: i64,
    /// The claim's fencing token. Items that were claimed in one change share it.
    pub token: u64,
}

impl std::fmt::Display for ClaimInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: attempt {} by ", OneLine(&self.id), self.attempt)?;
        match &self.record {
            Some(record) => record.fmt(f)?,
            None => write!(f, "session 0x{:x}", self.session)?,
        }
        write!(f, ", fencing token {}", self.token)
    }
}

/// The claims on a queue's items.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Claims {
    /// The claims.
    pub claims: Vec<ClaimInfo>,
    /// Full paths of items and claims that this session may not read.
    pub unreadable: Vec<String>,
}

impl WorkQueue {
    /// Lists who works on which item. Reads the stat of every item, which takes long on a deep
    /// queue. Items that this session may not read are left out: [`WorkQueue::all_claims`] names
    /// them.
    ///
    /// # Errors
    /// [`WorkError`].
    pub async fn claims(&self) -> Result<Vec<ClaimInfo>, WorkError> {
        Ok(self.all_claims().await?.claims)
    }

    /// [`WorkQueue::claims`] with the items that this session may not read.
    ///
    /// # Errors
    /// [`WorkError`].
    pub async fn all_claims(&self) -> Result<Claims, WorkError> {
        self.claims_since(0, false).await
    }

    /// Lists the claims with this token: more than one where items were claimed in one change.
    /// Reads the stat of every item, and those items that have changed since the claim, from a
    /// server that has caught up.
    ///
    /// # Errors
    /// [`WorkError`].
    pub async fn claims_of(&self, token: u64) -> Result<Vec<ClaimInfo>, WorkError> {
        let token = i64::try_from(token).unwrap_or(i64::MAX);
        Ok(self.claims_since(token, true).await?.claims)
    }

    async fn claims_since(&self, token: i64, only: bool) -> Result<Claims, WorkError> {
        let context = &self.context;
        let list =
            |session: Session| async move { context.claims(&session, token, only).await.map(Some) };
        context.until_done(list).await
    }
}

/// An item and the claim on it, as they were read.
#[derive(Debug)]
pub(super) struct ReadClaim {
    /// Full path of the item, and its node.
    entry: String,
    pub item: Data,
    pub envelope: Envelope,
    pub payload: Bytes,
    /// Full path of the claim, and its node.
    pub node: String,
    claim: Data,
}

impl ReadClaim {
    /// The claim's token: the zxid of the change that made its node.
    pub(super) fn token(&self) -> u64 {
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

impl QueueContext {
    /// The claims of changes from `since` on; where `only` is set, of that change alone.
    async fn claims(
        self: &Arc<Self>,
        session: &Session,
        since: i64,
        only: bool,
    ) -> Result<Claims, StepError> {
        session.sync(&self.layout.root).await?;
        let mut listed = Claims::default();
        if self.read_terms(session).await?.is_none() {
            return Ok(listed);
        }
        self.check_node(session, &self.layout.items).await?;
        let mut shards = self.shards(session).await?;
        shards.sort_unstable();
        for (_, shard) in shards {
            let shard = self.layout.shard(&shard);
            let mut names = self.names(session, &shard).await?;
            names.sort_unstable();
            for some in names.chunks(AT_ONCE) {
                let asked: Vec<_> = some
                    .iter()
                    .map(|name| {
                        let entry = path::join(&shard, name);
                        let stat = session.exists(&entry);
                        (entry, stat)
                    })
                    .collect();
                let mut taken = Vec::new();
                for (entry, stat) in asked {
                    let stat = match stat.await {
                        Err(error) if error.is_no_auth() => {
                            listed.unreadable.push(entry);
                            continue;
                        }
                        stat => stat?,
                    };
                    // A claim writes to its item in the same change.
                    if stat.is_some_and(|stat| stat.num_children > 0 && stat.mzxid >= since) {
                        taken.push(entry);
                    }
                }
                let claimed = self
                    .read_claims(session, taken, &mut listed.unreadable)
                    .await?;
                listed.claims.extend(
                    claimed
                        .into_iter()
                        .filter(|claimed| !only || claimed.claim.stat.czxid == since)
                        .map(ReadClaim::info),
                );
            }
        }
        Ok(listed)
    }

    /// Reads those of these items that are claimed, with their claims. The first requests are
    /// queued before the future is first polled.
    pub(super) fn read_claims(
        &self,
        session: &Session,
        entries: Vec<String>,
        unreadable: &mut Vec<String>,
    ) -> impl Future<Output = Result<Vec<ReadClaim>, StepError>> {
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
            let mut claimed = Vec::with_capacity(found.len());
            for (entry, item, envelope, payload, node, claim) in found {
                match claim.await {
                    Ok(claim) => claimed.push(ReadClaim {
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
            Ok(claimed)
        }
    }
}
