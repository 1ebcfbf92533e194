//! A scan of the queue: which items can be claimed now, in what order, and when there will be more.
//!
//! Owns the reading side. A scan lists shards, the most urgent first, and no more of them than it
//! needs. Must never decide by this machine's wall clock which items are due (H76), nor discard an
//! item that it cannot read (H72).

use std::collections::VecDeque;

use baton_client::{Children, Data, Pending, Session, Watch};

use super::context::QueueContext;
use super::envelope::Envelope;
use super::error::StepError;
use super::layout::{ItemName, Shard};
use super::read_ahead::{ClaimableItem, READ_AHEAD};
use super::visibility;

/// Findings of a scan.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Items that can be claimed, in order.
    pub free: Vec<ClaimableItem>,
    /// Items that are claimed, with the full paths of their claims.
    pub taken: Vec<(String, String)>,
    /// Time at which the next item falls due, or the next visibility timeout is over, by the
    /// servers' clock.
    pub next_ms: Option<i64>,
    /// The servers' clock, if it was needed.
    pub now_ms: Option<i64>,
}

/// Receives the watches on the shards that a scan lists; `None`: it sets no watches.
pub(super) type Watches<'a> = Option<&'a mut Vec<Watch>>;

/// An item's name, with what it is ordered by.
struct Candidate {
    order: (u16, bool, i64, i64),
    entry: String,
}

impl Scan {
    fn due_at(&mut self, at_ms: i64) {
        self.next_ms = Some(self.next_ms.map_or(at_ms, |next| next.min(at_ms)));
    }
}

impl QueueContext {
    /// Reads until it has found `want` claimable items, or has read all shards.
    pub(super) async fn scan(
        &self,
        session: &Session,
        want: usize,
        mut watches: Watches<'_>,
    ) -> Result<Scan, StepError> {
        let mut scan = Scan::default();
        let watching = watches.is_some();
        let root = PendingListing::of(session, &self.layout.items, watching)
            .names(&mut watches)
            .await?;
        let mut shards = self.known_shards(root.ok_or(StepError::ItemsMissing)?);
        shards.sort_unstable();
        let mut found = self.due(session, &shards, &mut scan, &mut watches).await?;
        let mut ready: VecDeque<(Shard, String)> = shards
            .iter()
            .filter(|(shard, _)| matches!(shard, Shard::Ready { .. }))
            .map(|(shard, name)| (*shard, self.layout.shard(name)))
            .collect();
        // Each round without enough items lists twice as many shards at once.
        let mut at_once = 1;
        while !ready.is_empty() && scan.free.len() < want {
            let some = at_once.min(ready.len());
            let asked: Vec<_> = ready
                .drain(..some)
                .map(|(shard, path)| {
                    let asked = PendingListing::of(session, &path, watching);
                    (shard, path, asked)
                })
                .collect();
            at_once = (at_once * 2).min(READ_AHEAD);
            for (shard, path, asked) in asked {
                let Some(names) = asked.names(&mut watches).await? else {
                    continue;
                };
                if names.is_empty() {
                    self.remove_finished(session, shard, &path, &shards, scan.now_ms);
                }
                found.extend(candidates(shard, &path, names));
            }
            // Items that are due are read with the first ready ones: their priorities decide.
            found.sort_by_key(|candidate| candidate.order);
            self.read(session, std::mem::take(&mut found), want, &mut scan)
                .await?;
        }
        if scan.free.len() < want {
            found.sort_by_key(|candidate| candidate.order);
            self.read(session, found, want, &mut scan).await?;
        }
        Ok(scan)
    }

    /// The delayed items that are due.
    async fn due(
        &self,
        session: &Session,
        shards: &[(Shard, String)],
        scan: &mut Scan,
        watches: &mut Watches<'_>,
    ) -> Result<Vec<Candidate>, StepError> {
        let mut due = Vec::new();
        for (shard, name) in shards {
            if !matches!(shard, Shard::Later { .. }) {
                continue;
            }
            let now_ms = match scan.now_ms {
                Some(now_ms) => now_ms,
                None => *scan.now_ms.insert(self.now_ms(session).await?),
            };
            if shard.begins_ms() > now_ms {
                // Shards are in order: the later ones have not begun either.
                scan.due_at(shard.begins_ms());
                break;
            }
            let path = self.layout.shard(name);
            let asked = PendingListing::of(session, &path, watches.is_some());
            let Some(names) = asked.names(watches).await? else {
                continue;
            };
            if names.is_empty() {
                self.remove_finished(session, *shard, &path, shards, scan.now_ms);
            }
            for candidate in candidates(*shard, &path, names) {
                let (_, _, due_ms, _) = candidate.order;
                if due_ms <= now_ms {
                    due.push(candidate);
                } else {
                    scan.due_at(due_ms);
                }
            }
        }
        Ok(due)
    }

    /// Reads candidates, a number of them at once, until `want` can be claimed.
    async fn read(
        &self,
        session: &Session,
        found: Vec<Candidate>,
        want: usize,
        scan: &mut Scan,
    ) -> Result<(), StepError> {
        let mut found: VecDeque<Candidate> = found.into();
        while !found.is_empty() && scan.free.len() < want {
            let some = want.max(READ_AHEAD).min(found.len());
            let reads: Vec<_> = found
                .drain(..some)
                .map(|candidate| {
                    let read = session.get_data(&candidate.entry);
                    (candidate.entry, read)
                })
                .collect();
            for (entry, read) in reads {
                match read.await {
                    Ok(data) => self.classify(session, entry, data, scan).await?,
                    // Taken meanwhile.
                    Err(error) if error.is_no_node() => {}
                    Err(error) if error.is_no_auth() => {
                        tracing::warn!(item = entry, "may not be read: passed over, left in place");
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Adds an item that was read to the free or to the claimed ones.
    async fn classify(
        &self,
        session: &Session,
        entry: String,
        read: Data,
        scan: &mut Scan,
    ) -> Result<(), StepError> {
        let Data { data, stat } = read;
        if self.known().passed_over.get(&entry) == Some(&stat.version) {
            return Ok(());
        }
        let (envelope, payload) = match Envelope::open(&data) {
            Some((envelope, payload)) => (Some(envelope), payload),
            None => (None, data),
        };
        let mut stale_claim = None;
        if stat.num_children > 0 {
            let Some(mark) = envelope
                .as_ref()
                .and_then(|envelope| envelope.claim.clone())
            else {
                tracing::warn!(item = entry, "has a child that is not a claim: skipped");
                return Ok(());
            };
            let claim = baton_proto::path::join(&entry, &mark.node);
            let Some(until_ms) = visibility::hidden_until_ms(&mark, &stat) else {
                scan.taken.push((entry, claim));
                return Ok(());
            };
            let now_ms = match scan.now_ms {
                Some(now_ms) => now_ms,
                None => *scan.now_ms.insert(self.now_ms(session).await?),
            };
            if until_ms > now_ms {
                scan.due_at(until_ms);
                scan.taken.push((entry, claim));
                return Ok(());
            }
            if session.exists(&claim).await?.is_none() {
                // Gone, or the item has another child: the queue watcher reads which.
                scan.taken.push((entry, claim));
                return Ok(());
            }
            stale_claim = Some(claim);
        }
        let since_ms = envelope
            .as_ref()
            .and_then(|envelope| envelope.since_ms)
            .unwrap_or(stat.ctime);
        scan.free.push(ClaimableItem {
            entry,
            version: stat.version,
            envelope,
            payload,
            since_ms,
            stale_claim,
        });
        Ok(())
    }
}

/// A listing under way.
enum PendingListing {
    Once(Pending<Children>),
    Watching(Pending<(Children, Watch)>),
}

impl PendingListing {
    fn of(session: &Session, path: &str, watching: bool) -> Self {
        if watching {
            Self::Watching(session.children_watch(path))
        } else {
            Self::Once(session.children(path))
        }
    }

    /// The names; `None` where the node is gone.
    async fn names(self, watches: &mut Watches<'_>) -> Result<Option<Vec<String>>, StepError> {
        let listed = match self {
            Self::Once(pending) => pending.await,
            Self::Watching(pending) => pending.await.map(|(children, watch)| {
                if let Some(watches) = watches {
                    watches.push(watch);
                }
                children
            }),
        };
        match listed {
            Ok(children) => Ok(Some(children.names)),
            Err(error) if error.is_no_node() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The items among the children of a shard; others are skipped with a warning.
fn candidates(shard: Shard, path: &str, names: Vec<String>) -> Vec<Candidate> {
    let mut all = Vec::with_capacity(names.len());
    for name in names {
        let order = match (shard, ItemName::parse(&name)) {
            (Shard::Ready { priority, number }, Some(ItemName::Ready { number: nth })) => {
                (priority, true, number, nth)
            }
            (Shard::Later { .. }, Some(ItemName::Later { due_ms, priority })) => {
                (priority, false, due_ms, 0)
            }
            _ => {
                tracing::warn!(shard = path, child = name, "not an item: skipped");
                continue;
            }
        };
        let entry = baton_proto::path::join(path, &name);
        all.push(Candidate { order, entry });
    }
    all
}
