//! A look at the queue: which items can be claimed now, in what order, and what must change before
//! there are more.
//!
//! Owns the reading side. It lists lanes of bounded size, the most urgent first, and no more of
//! them than are needed. Must never judge by this machine's wall clock what is due (H76), nor throw
//! away what it cannot read (H72).

use super::context::{Fault, Inner};
use super::envelope::Envelope;
use super::layout::{Lane, Name};
use baton_client::{Children, Data, Pending, Session, Watch};
use bytes::Bytes;
use std::collections::VecDeque;

/// Items that are read at once.
pub(super) const READ_AHEAD: usize = 32;

/// An item that can be claimed.
#[derive(Debug)]
pub(super) struct Found {
    pub entry: String,
    pub version: i32,
    /// `None`: the bytes have another form.
    pub envelope: Option<Envelope>,
    pub payload: Bytes,
    pub since_ms: i64,
    /// A claim whose time is up, to be ended together with the new one.
    pub stale_claim: Option<String>,
}

impl Found {
    pub(super) fn priority(&self) -> Option<u16> {
        self.envelope.as_ref().map(|envelope| envelope.priority)
    }
}

/// What a look saw.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub free: Vec<Found>,
    /// Items that are claimed, with the full paths of their claims.
    pub taken: Vec<(String, String)>,
    /// When the next item falls due, or the next claim's time is up, by the servers' clock.
    pub next_ms: Option<i64>,
    pub now_ms: Option<i64>,
}

/// Whether a look leaves watches on the lanes that it lists.
pub(super) type Watches<'a> = Option<&'a mut Vec<Watch>>;

/// An item's name, with what it is ordered by.
struct Candidate {
    order: (u16, bool, i64, i64),
    entry: String,
}

impl Survey {
    fn due_at(&mut self, at_ms: i64) {
        self.next_ms = Some(self.next_ms.map_or(at_ms, |next| next.min(at_ms)));
    }
}

impl Inner {
    /// Looks until `want` claimable items are found, or all lanes were seen.
    pub(super) async fn survey(
        &self,
        session: &Session,
        want: usize,
        mut watches: Watches<'_>,
    ) -> Result<Survey, Fault> {
        let mut survey = Survey::default();
        let watching = watches.is_some();
        let root = Asked::of(session, &self.layout.items, watching)
            .names(&mut watches)
            .await?;
        let mut lanes = self.known_lanes(root.ok_or(Fault::Missing)?);
        lanes.sort_unstable();
        let mut found = self.due(session, &lanes, &mut survey, &mut watches).await?;
        let mut ready: VecDeque<(Lane, String)> = lanes
            .iter()
            .filter(|(lane, _)| matches!(lane, Lane::Ready { .. }))
            .map(|(lane, name)| (*lane, self.layout.lane(name)))
            .collect();
        // More lanes at a time, the more of them turn out to be empty or taken.
        let mut at_once = 1;
        while !ready.is_empty() && survey.free.len() < want {
            let some = at_once.min(ready.len());
            let asked: Vec<_> = ready
                .drain(..some)
                .map(|(lane, path)| {
                    let asked = Asked::of(session, &path, watching);
                    (lane, path, asked)
                })
                .collect();
            at_once = (at_once * 2).min(READ_AHEAD);
            for (lane, path, asked) in asked {
                let Some(names) = asked.names(&mut watches).await? else {
                    continue;
                };
                if names.is_empty() {
                    self.tidy(session, lane, &path, &lanes, survey.now_ms);
                }
                found.extend(candidates(lane, &path, names));
            }
            // What is due is read along with the first of the ready ones: their priorities decide.
            found.sort_by_key(|candidate| candidate.order);
            self.read(session, std::mem::take(&mut found), want, &mut survey)
                .await?;
        }
        if survey.free.len() < want {
            found.sort_by_key(|candidate| candidate.order);
            self.read(session, found, want, &mut survey).await?;
        }
        Ok(survey)
    }

    /// The delayed items that are due.
    async fn due(
        &self,
        session: &Session,
        lanes: &[(Lane, String)],
        survey: &mut Survey,
        watches: &mut Watches<'_>,
    ) -> Result<Vec<Candidate>, Fault> {
        let mut due = Vec::new();
        for (lane, name) in lanes {
            if !matches!(lane, Lane::Later { .. }) {
                continue;
            }
            let now_ms = match survey.now_ms {
                Some(now_ms) => now_ms,
                None => *survey.now_ms.insert(self.now_ms(session).await?),
            };
            if lane.begins_ms() > now_ms {
                // Lanes are in order: none of the later ones has begun either.
                survey.due_at(lane.begins_ms());
                break;
            }
            let path = self.layout.lane(name);
            let asked = Asked::of(session, &path, watches.is_some());
            let Some(names) = asked.names(watches).await? else {
                continue;
            };
            if names.is_empty() {
                self.tidy(session, *lane, &path, lanes, survey.now_ms);
            }
            for candidate in candidates(*lane, &path, names) {
                let (_, _, due_ms, _) = candidate.order;
                if due_ms <= now_ms {
                    due.push(candidate);
                } else {
                    survey.due_at(due_ms);
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
        survey: &mut Survey,
    ) -> Result<(), Fault> {
        let mut found: VecDeque<Candidate> = found.into();
        while !found.is_empty() && survey.free.len() < want {
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
                    Ok(data) => self.sort(session, entry, data, survey).await?,
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

    /// Puts an item that was read where it belongs: free, or taken.
    async fn sort(
        &self,
        session: &Session,
        entry: String,
        read: Data,
        survey: &mut Survey,
    ) -> Result<(), Fault> {
        let Data { data, stat } = read;
        if self.local().passed_over.get(&entry) == Some(&stat.version) {
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
                tracing::warn!(item = entry, "has a child that is no claim: skipped");
                return Ok(());
            };
            let claim = baton_proto::path::join(&entry, &mark.node);
            let Some(visibility_ms) = mark.visibility_ms else {
                survey.taken.push((entry, claim));
                return Ok(());
            };
            let now_ms = match survey.now_ms {
                Some(now_ms) => now_ms,
                None => *survey.now_ms.insert(self.now_ms(session).await?),
            };
            let until_ms = stat.mtime.saturating_add(visibility_ms);
            if until_ms > now_ms {
                survey.due_at(until_ms);
                survey.taken.push((entry, claim));
                return Ok(());
            }
            if session.exists(&claim).await?.is_none() {
                // Gone, or not what is below the item: whoever waits looks what it is.
                survey.taken.push((entry, claim));
                return Ok(());
            }
            stale_claim = Some(claim);
        }
        let since_ms = envelope
            .as_ref()
            .and_then(|envelope| envelope.since_ms)
            .unwrap_or(stat.ctime);
        survey.free.push(Found {
            entry,
            version: stat.version,
            envelope,
            payload,
            since_ms,
            stale_claim,
        });
        Ok(())
    }

    /// Removes a lane that nothing will be put into any more, in the background. The server refuses
    /// if it is not empty.
    fn tidy(
        &self,
        session: &Session,
        lane: Lane,
        path: &str,
        lanes: &[(Lane, String)],
        now_ms: Option<i64>,
    ) {
        let done = match lane {
            Lane::Ready { priority, number } => lanes.iter().any(|(other, _)| {
                matches!(other, Lane::Ready { priority: p, number: n } if *p == priority && *n > number)
            }),
            Lane::Later { .. } => {
                let over = lane.begins_ms().saturating_add(GONE_BY_MS);
                now_ms.is_some_and(|now_ms| over < now_ms)
            }
        };
        if done {
            drop(session.delete(path, None));
        }
    }
}

/// So long after its beginning, a lane of delayed items that is empty is taken to stay so.
const GONE_BY_MS: i64 = 120_000;

/// A listing that was asked for.
enum Asked {
    Once(Pending<Children>),
    Watching(Pending<(Children, Watch)>),
}

impl Asked {
    fn of(session: &Session, path: &str, watching: bool) -> Self {
        if watching {
            Self::Watching(session.children_watch(path))
        } else {
            Self::Once(session.children(path))
        }
    }

    /// The names, or `None` where the node is gone.
    async fn names(self, watches: &mut Watches<'_>) -> Result<Option<Vec<String>>, Fault> {
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

/// The items among the children of a lane; others are skipped with a warning.
fn candidates(lane: Lane, path: &str, names: Vec<String>) -> Vec<Candidate> {
    let mut all = Vec::with_capacity(names.len());
    for name in names {
        let order = match (lane, Name::parse(&name)) {
            (Lane::Ready { priority, number }, Some(Name::Ready { number: nth })) => {
                (priority, true, number, nth)
            }
            (Lane::Later { .. }, Some(Name::Later { due_ms, priority })) => {
                (priority, false, due_ms, 0)
            }
            _ => {
                tracing::warn!(lane = path, child = name, "no item: skipped");
                continue;
            }
        };
        let entry = baton_proto::path::join(path, &name);
        all.push(Candidate { order, entry });
    }
    all
}
