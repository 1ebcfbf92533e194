//! The end of a claim, and of the item or of this attempt with it.
//!
//! Owns the one multi that does both, conditioned on this very claim (H67), and what it says of how
//! it ended (H68). Must never touch an item whose claim is another one by now.

use super::context::{Fault, Inner, culprit};
use super::envelope::Envelope;
use super::item::MAX_DELAY;
use super::layout::{Lane, Name};
use crate::receipt::Outcome;
use crate::retry;
use crate::server_clock::millis;
use baton_client::{CreateMode, Error, Op, Session};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What has become of an item that was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Settled {
    /// It is done and gone.
    Acked,
    /// The attempt failed; it comes back later.
    Nacked,
    /// It is back in its place; the attempt does not count.
    Released,
    /// It is a dead letter.
    Buried,
}

/// What is to become of an item.
#[derive(Clone, Debug)]
pub(super) enum End {
    Done,
    /// To be taken again at once; the attempt does not count.
    Back,
    Later {
        delay: Duration,
        reason: String,
    },
    Dead {
        reason: String,
    },
}

impl End {
    /// After a failed attempt: put off, or dead if it was the last one.
    pub(super) fn failed(attempt: u32, max_attempts: u32, delay: Duration, reason: &str) -> Self {
        let reason = reason.to_owned();
        if attempt >= max_attempts {
            Self::Dead { reason }
        } else {
            Self::Later { delay, reason }
        }
    }

    pub(super) fn settled(&self) -> Settled {
        match self {
            Self::Done => Settled::Acked,
            Self::Back => Settled::Released,
            Self::Later { .. } => Settled::Nacked,
            Self::Dead { .. } => Settled::Buried,
        }
    }
}

/// An item under a claim, as it lies in the tree.
#[derive(Debug)]
pub(super) struct Claimed<'a> {
    /// Full path of the claim's node.
    pub node: &'a str,
    /// Full path of the item.
    pub entry: &'a str,
    pub version: i32,
    pub envelope: &'a Envelope,
    pub payload: &'a Bytes,
    pub since_ms: i64,
    /// Where whoever keeps the claim looks for what has become of it.
    pub verdict: Option<&'a str>,
}

/// Why nothing was settled.
#[derive(Debug)]
pub(super) enum Refused {
    /// The claim's node is not there any more.
    ClaimGone,
    /// The item has another version, or is gone.
    ItemChanged,
    /// Something else than the claim lies below the item, so it cannot go.
    ItemInUse,
    /// The session ended before it could be found out.
    Unknown(Error),
    /// The session's end, or a refusal. Nothing was changed.
    Failed(Error),
}

/// The word of whoever settles a claim to whoever keeps it.
#[derive(Serialize, Deserialize)]
struct Word {
    settled: Settled,
}

/// What is written for the keeper of a claim.
fn word(settled: Settled) -> Vec<u8> {
    // A name always has a JSON form.
    serde_json::to_vec(&Word { settled }).unwrap_or_default()
}

/// What was written for the keeper of a claim, if anything was.
pub(super) fn read_word(data: &[u8]) -> Option<Settled> {
    serde_json::from_slice::<Word>(data)
        .ok()
        .map(|word| word.settled)
}

/// Where the parts are in the multi, counted from behind the receipt: first the claim, then the
/// item, then what becomes of it.
const CLAIM: usize = 0;
const ITEM: usize = 1;
const MORE: usize = 2;

/// Ends claim and item in one multi. To be driven to its end.
pub(super) async fn conclude(
    inner: &Inner,
    session: &Session,
    claimed: &Claimed<'_>,
    end: &End,
) -> Result<(), Refused> {
    let mut id_stands = claimed.envelope.unique;
    let mut verdict = claimed.verdict;
    loop {
        let mut lane = None;
        let mut parts = match parts(inner, session, claimed, end, id_stands, &mut lane).await {
            Ok(parts) => parts,
            Err(error) => {
                retry::until_retryable(session, error)
                    .await
                    .map_err(Refused::Failed)?;
                continue;
            }
        };
        let told = parts.len();
        parts.extend(verdict.map(|node| Op::set_data(node, word(end.settled()), None)));
        let outcome = inner
            .receipts
            .change(session, &inner.layout.root, parts)
            .await;
        match outcome {
            Outcome::Applied => {
                if !matches!(end, End::Done) {
                    // The item may stand before what was read ahead.
                    inner.local().ahead.clear();
                }
                return Ok(());
            }
            Outcome::NotApplied => {}
            Outcome::Unknown(source) => return Err(Refused::Unknown(source)),
            Outcome::Failed(error) => retry::until_retryable(session, error)
                .await
                .map_err(Refused::Failed)?,
            Outcome::Refused(error) => match culprit(&error) {
                Some(CLAIM) if error.is_no_node() => return Err(Refused::ClaimGone),
                Some(ITEM) if error.is_bad_version() || error.is_no_node() => {
                    return Err(Refused::ItemChanged);
                }
                Some(ITEM) if error.is_not_empty() => return Err(Refused::ItemInUse),
                // Nobody keeps the claim who would read it.
                Some(part) if part == told && error.is_no_node() => verdict = None,
                // Somebody removed the node that stood for the id: then there is nothing to free.
                Some(MORE) if error.is_no_node() && id_stands && matches!(end, End::Done) => {
                    id_stands = false;
                }
                Some(MORE) if error.is_no_node() && lane.is_some() => {
                    let lane = lane.unwrap_or_default();
                    match session.create(&lane, &[], CreateMode::Persistent).await {
                        Ok(_) => {}
                        // Without a folder of items there is no claim either, as the next attempt
                        // shows.
                        Err(error)
                            if error.is_node_exists()
                                || error.is_no_node()
                                || error.is_maybe_applied() => {}
                        Err(error) => retry::until_retryable(session, error)
                            .await
                            .map_err(Refused::Failed)?,
                    }
                }
                Some(MORE) if error.is_no_node() && matches!(end, End::Dead { .. }) => {
                    match inner.mend(session).await {
                        Ok(true) | Err(Fault::Missing) => {}
                        Ok(false) | Err(Fault::Final(_)) => return Err(Refused::Failed(error)),
                        Err(Fault::Client(error)) => retry::until_retryable(session, error)
                            .await
                            .map_err(Refused::Failed)?,
                    }
                }
                _ => return Err(Refused::Failed(error)),
            },
        }
    }
}

/// The parts of the multi: first the claim, then the item, then what becomes of it.
async fn parts(
    inner: &Inner,
    session: &Session,
    claimed: &Claimed<'_>,
    end: &End,
    id_stands: bool,
    lane: &mut Option<String>,
) -> Result<Vec<Op>, Error> {
    let (entry, version) = (claimed.entry, Some(claimed.version));
    let mut parts = vec![Op::delete(claimed.node, None)];
    let gone = Op::delete(entry, version);
    match end {
        End::Done => {
            parts.push(gone);
            if id_stands {
                parts.push(Op::delete(inner.layout.id(&claimed.envelope.id), None));
            }
        }
        End::Back => {
            let mut envelope = free(claimed);
            envelope.attempts = envelope.attempts.saturating_sub(1);
            let data = envelope.seal(claimed.payload);
            parts.push(Op::set_data(entry, data, version));
        }
        End::Later { delay, reason } if delay.is_zero() => {
            let data = free(claimed).noting(reason).seal(claimed.payload);
            parts.push(Op::set_data(entry, data, version));
        }
        End::Later { delay, reason } => {
            let delay = millis((*delay).min(MAX_DELAY));
            let due_ms = inner.now_ms(session).await?.saturating_add(delay);
            let folder = inner.layout.lane(&Lane::of_due(due_ms).name());
            let name = Name::later(due_ms, claimed.envelope.priority);
            let path = baton_proto::path::join(&folder, &name);
            let data = free(claimed).noting(reason).seal(claimed.payload);
            parts.push(gone);
            parts.push(Op::create(path, data, CreateMode::Persistent));
            *lane = Some(folder);
        }
        End::Dead { reason } => {
            parts.push(gone);
            parts.push(inner.dead_letter(
                claimed.envelope.clone(),
                claimed.since_ms,
                reason,
                claimed.payload,
            ));
        }
    }
    Ok(parts)
}

/// What is noted in an item that nobody holds.
fn free(claimed: &Claimed<'_>) -> Envelope {
    let mut envelope = claimed.envelope.clone();
    envelope.claim = None;
    envelope
}
