//! The double barrier: enter together, leave together, round after round.
//!
//! Owns the way in. Whether a round's members have entered is one change of the round's node, made
//! under its version together with a check of every member's node: all members read the same
//! outcome there, whatever they saw on the way (H63). Must never conclude anything from an event or
//! from a count alone.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use baton_client::{Client, CreateMode, Op, Session};
use uuid::Uuid;

use super::context::{AttemptFailure, BarrierContext, Limit};
use super::entered::RoundEntry;
use super::member::Member;
use super::round::{Newest, Phase, Round, RoundNode, parse, round_name};
use super::{BarrierEntry, BarrierError, curator_layout};
use crate::options::acl_option;
use crate::parents::{ParentKind, ensure_parents};
use crate::record::Record;
use crate::wait_queue::order::{self, SequentialChild};
use crate::wait_queue::until_gone;

/// The greatest number that can meet: each member is one part of the deciding multi, and a line of
/// the round's record.
const MOST: u32 = 4096;

/// The start of the name of a member's node.
pub(crate) const MEMBER_PREFIX: &str = "m-";

/// Library whose nodes a double barrier uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum BarrierLayout {
    /// Baton's own: numbered rounds, one outcome for all members.
    #[default]
    Rounds,
    /// That of Curator's `DistributedDoubleBarrier` and kazoo's `DoubleBarrier`, to meet with their
    /// processes. It cannot store an outcome: a member whose time is up leaves alone, and others
    /// may have counted it.
    Curator,
}

/// A double barrier for a fixed number of members: no member enters before all have come, and no
/// member returns from leaving before all have left. Reusable: each use is a round.
///
/// All members of a round get the same outcome, because it is one change of one node: *entered*,
/// made while the nodes of all of them existed, or *aborted*, made by the first whose time was up.
/// A member that comes too late belongs to the next round. A member that crashes does not hold the
/// others up: they receive the number of those lost. Cheap to clone.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let barrier = baton::DoubleBarrier::new(&client, "/step", 3)?;
/// for _ in 0..10 {
///     let inside = barrier.enter().await?; // when all three are here
///     // … one step of the computation …
///     let left = inside.leave().await?; // when all three are done
///     assert_eq!(left.lost, 0);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DoubleBarrier {
    context: BarrierContext,
    count: u32,
    layout: BarrierLayout,
    name: Option<Arc<str>>,
}

impl DoubleBarrier {
    /// A double barrier at `path` for `count` members. Nothing is sent.
    ///
    /// # Errors
    /// [`BarrierError::BadPath`], [`BarrierError::BadCount`].
    pub fn new(client: &Client, path: &str, count: u32) -> Result<Self, BarrierError> {
        let context = BarrierContext::new(client, path)?;
        context.fits(count, MOST)?;
        Ok(Self {
            context,
            count,
            layout: BarrierLayout::default(),
            name: None,
        })
    }

    /// Sets another library's layout, to share the barrier with its processes. All members at a
    /// path must use the same.
    #[must_use]
    pub fn layout(mut self, layout: BarrierLayout) -> Self {
        self.layout = layout;
        self
    }

    /// Sets the name of this member, which others see: in listings, and in their error when this
    /// member times out.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(Arc::from(name));
        self
    }

    acl_option!(context.client);

    /// The barrier's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.context.path
    }

    /// Waits until all have come, and enters with them.
    ///
    /// Survives lost connections, and lost sessions by coming again. Cancel-safe: dropping the
    /// future takes us out of the round, as a crash would.
    ///
    /// # Errors
    /// [`BarrierError::Aborted`] where a member's time was up; [`BarrierError::CountMismatch`],
    /// [`BarrierError::Foreign`] where others use the path otherwise.
    pub async fn enter(&self) -> Result<BarrierEntry, BarrierError> {
        self.enter_by(None).await
    }

    /// Like [`DoubleBarrier::enter`]. When `limit` has passed before all have come, the round is
    /// given up for all of its members. Where no server can be reached then, this waits for the
    /// outcome until the session's end, because it may have been "entered".
    ///
    /// # Errors
    /// As `enter`; [`BarrierError::TimedOut`] where the time was up before we belonged to a round.
    pub async fn enter_timeout(&self, limit: Duration) -> Result<BarrierEntry, BarrierError> {
        self.enter_by(Limit::of(limit)).await
    }

    /// Returns the number of members that have come to the present round. `None` where no round is
    /// open, or where the number cannot be read now. Reads two nodes, whatever the number.
    pub async fn gathered(&self) -> Option<u32> {
        let session = self.context.session().await.ok()?;
        let come = match self.layout {
            BarrierLayout::Curator => curator_layout::gathered(&self.context, &session).await?,
            BarrierLayout::Rounds => {
                let own = session.get_data(self.path()).await.ok()?;
                let newest = Newest::from_bytes(&own.data)?.double_barrier_round;
                let path = self.context.child(&round_name(newest));
                let read = session.get_data(&path).await.ok()?;
                let round = parse(&path, &read.data).ok()?;
                (round.phase == Phase::Gathering).then_some(read.stat.num_children)?
            }
        };
        u32::try_from(come).ok()
    }

    async fn enter_by(&self, limit: Option<Limit>) -> Result<BarrierEntry, BarrierError> {
        // A node of ours that a lost session has left must not be counted beside the one that we
        // come again with.
        let marker = Uuid::new_v4();
        let mut former = Vec::new();
        let mut nth = 0u32;
        loop {
            let attempt = async {
                match self.layout {
                    BarrierLayout::Rounds => self.enter_round(limit, marker, nth).await,
                    BarrierLayout::Curator => {
                        let inside =
                            curator_layout::enter(&self.context, self.count, limit, &mut former);
                        Ok(BarrierEntry::of_curator(
                            self.context.clone(),
                            inside.await?,
                        ))
                    }
                }
            };
            match attempt.await {
                Ok(entered) => return Ok(entered),
                Err(AttemptFailure::Again) => nth = nth.wrapping_add(1),
                Err(AttemptFailure::Failed(error)) => return Err(error),
            }
        }
    }

    async fn enter_round(
        &self,
        limit: Option<Limit>,
        marker: Uuid,
        attempt: u32,
    ) -> Result<BarrierEntry, AttemptFailure> {
        let finding = async {
            let session = self.context.session().await?;
            let round = self.open_round(&session).await?;
            Ok::<_, AttemptFailure>((session, round))
        };
        // Until here nobody counts on us, so it may be cut short; the create below is seen through
        // to its end.
        let (session, round) = tokio::select! {
            biased;
            found = finding => found?,
            () = self.context.passed(limit) => return Err(self.context.timed_out(limit)),
        };
        let record = Record::new(self.name.as_deref());
        let prefix = format!("{MEMBER_PREFIX}{}-{attempt}-", marker.simple());
        let mode = CreateMode::EphemeralSequential;
        let created =
            Member::create(&session, &round.path, &prefix, &record.to_bytes(), mode).await;
        let member = match created {
            Ok(member) => member,
            // The round is over and cleared away.
            Err(error) if error.is_no_node() => return Err(AttemptFailure::Again),
            Err(error) => {
                self.context.after(&session, error).await?;
                return Err(AttemptFailure::Again);
            }
        };
        let by = match &record.name {
            Some(name) => format!("{name} ({}:{})", record.host, record.pid),
            None => format!("{}:{}", record.host, record.pid),
        };
        self.until_decided(round, member, limit, by).await
    }

    /// The open round; begins one if the newest is decided.
    async fn open_round(&self, session: &Session) -> Result<RoundNode, AttemptFailure> {
        let context = &self.context;
        loop {
            let Some(own) = context.read(session, self.path()).await? else {
                self.make(session).await?;
                continue;
            };
            let newest = match Newest::from_bytes(&own.data) {
                Some(newest) => newest.double_barrier_round,
                None if own.data.is_empty() && own.stat.num_children == 0 => 0,
                None => {
                    return Err(context
                        .foreign("it is not a double barrier with rounds")
                        .into());
                }
            };
            if newest > 0 {
                let path = context.child(&round_name(newest));
                if let Some(read) = context.read(session, &path).await? {
                    let round = parse(&path, &read.data)?;
                    if round.phase == Phase::Gathering {
                        if round.count != self.count {
                            return Err(BarrierError::CountMismatch {
                                path: self.path().to_owned(),
                                ours: self.count,
                                theirs: round.count,
                            }
                            .into());
                        }
                        return Ok(RoundNode {
                            path,
                            number: newest,
                            czxid: read.stat.czxid,
                        });
                    }
                }
            }
            self.begin(session, newest, own.stat.version).await?;
        }
    }

    /// Makes the barrier's own node.
    async fn make(&self, session: &Session) -> Result<(), AttemptFailure> {
        let data = Newest {
            double_barrier_round: 0,
        }
        .to_bytes();
        let error = match session
            .create(self.path(), &data, CreateMode::Persistent)
            .await
        {
            Ok(_) => return Ok(()),
            Err(error) if error.is_node_exists() => return Ok(()),
            Err(error) if error.is_no_node() => {
                let above = baton_proto::path::parent(self.path());
                match ensure_parents(session, above, ParentKind::Container).await {
                    Ok(()) => return Ok(()),
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        self.context.after(session, error).await
    }

    /// Begins the round after `newest`: one multi, so that one of several that try decides.
    async fn begin(
        &self,
        session: &Session,
        newest: u64,
        version: i32,
    ) -> Result<(), AttemptFailure> {
        let number = newest + 1;
        let path = self.context.child(&round_name(number));
        let round = Round {
            count: self.count,
            phase: Phase::Gathering,
        };
        let newest = Newest {
            double_barrier_round: number,
        };
        let parts = [
            Op::set_data(self.path(), newest.to_bytes(), Some(version)),
            Op::create(
                &*path,
                round.to_bytes(Phase::Gathering),
                CreateMode::Persistent,
            ),
        ];
        match session.multi(&parts).await {
            Ok(_) => {
                self.clear_before(session, number).await;
                Ok(())
            }
            Err(error) if error.is_bad_version() || error.is_no_node() => Ok(()),
            Err(error) if error.is_node_exists() => Err(BarrierError::Foreign {
                node: path,
                what: "it is in the way of the next round".to_owned(),
            }
            .into()),
            Err(error) => self.context.after(session, error).await,
        }
    }

    /// Deletes earlier rounds that nobody is left in. All of them are decided; the server refuses
    /// those that have members.
    async fn clear_before(&self, session: &Session, number: u64) {
        let Ok(children) = session.children(self.path()).await else {
            return;
        };
        let newest = round_name(number);
        for name in children.names {
            if name.starts_with("round-") && name < newest {
                drop(session.delete(&self.context.child(&name), None));
            }
        }
    }

    async fn until_decided(
        &self,
        round: RoundNode,
        mut member: Member,
        limit: Option<Limit>,
        by: String,
    ) -> Result<BarrierEntry, AttemptFailure> {
        let session = member.session.clone();
        let path = member.path.clone();
        let mut gone = std::pin::pin!(until_gone(&session, &path, || {}));
        let mut time_is_up = false;
        loop {
            let (read, watch) = match session.get_data_watch(&round.path).await {
                Ok(read) => read,
                // Over without us, and cleared away.
                Err(error) if error.is_no_node() => return Err(AttemptFailure::Again),
                Err(error) => {
                    self.context.after(&session, error).await?;
                    continue;
                }
            };
            let state = parse(&round.path, &read.data)?;
            let stat = read.stat;
            let ours = |members: &[String]| members.iter().any(|name| name == member.name());
            match state.phase {
                _ if stat.czxid != round.czxid => return Err(AttemptFailure::Again),
                Phase::Gathering => {}
                Phase::Entered { members } | Phase::Broken { members, .. } if ours(&members) => {
                    let inside = RoundEntry {
                        round,
                        member,
                        members,
                    };
                    return Ok(BarrierEntry::of_round(self.context.clone(), inside, by));
                }
                Phase::Aborted { by } if member.czxid < stat.mzxid => {
                    member.withdraw().await;
                    drop(session.delete(&round.path, None));
                    let path = self.path().to_owned();
                    let round = round.number;
                    return Err(BarrierError::Aborted { path, round, by }.into());
                }
                // We came after the decision: the next round is ours.
                _ => {
                    member.withdraw().await;
                    drop(session.delete(&round.path, None));
                    return Err(AttemptFailure::Again);
                }
            }
            let come = u32::try_from(stat.num_children).unwrap_or(0);
            if come >= self.count && self.decide(&session, &round, &state, stat.version).await? {
                continue;
            }
            if time_is_up {
                let aborted = state.to_bytes(Phase::Aborted { by: by.clone() });
                self.change(&session, &round, &aborted, stat.version)
                    .await?;
                continue;
            }
            tokio::select! {
                biased;
                // Decided, or touched by somebody, or lost: the next read shows.
                _ = watch => {}
                ended = &mut gone => {
                    if ended.is_ok() {
                        member.disown();
                    }
                    return Err(AttemptFailure::Again);
                }
                () = self.context.passed(limit) => time_is_up = true,
            }
        }
    }

    /// Decides that the first to have come have entered, provided that the nodes of all of them
    /// still exist. `false` where too few are members at all.
    async fn decide(
        &self,
        session: &Session,
        round: &RoundNode,
        state: &Round,
        version: i32,
    ) -> Result<bool, AttemptFailure> {
        let names = self.context.children(session, &round.path).await?;
        let nodes = names.into_iter().filter_map(sequential_child).collect();
        let nodes = match order::arrange_with(session, &round.path, nodes).await {
            Ok(nodes) => nodes,
            Err(error) => {
                self.context.after(session, error).await?;
                return Ok(true);
            }
        };
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        let members: Vec<String> = newest_of_each(nodes).into_iter().take(count).collect();
        if members.len() < count {
            return Ok(false);
        }
        let checks: Vec<Op> = members
            .iter()
            .map(|name| Op::check(baton_proto::path::join(&round.path, name), None))
            .collect();
        let entered = state.to_bytes(Phase::Entered { members });
        let mut parts = vec![Op::set_data(&*round.path, entered, Some(version))];
        parts.extend(checks);
        self.context
            .settled(session, session.multi(&parts).await.map(drop))
            .await?;
        Ok(true)
    }

    async fn change(
        &self,
        session: &Session,
        round: &RoundNode,
        to: &[u8],
        version: i32,
    ) -> Result<(), AttemptFailure> {
        let changed = session.set_data(&round.path, to, Some(version)).await;
        self.context.settled(session, changed.map(drop)).await
    }
}

/// A member's order by its name: `m-<marker>-<attempt>-<number>`.
fn sequential_child(name: String) -> Option<SequentialChild> {
    let (marker, rest) = name.strip_prefix("m-")?.split_once('-')?;
    let (attempt, number) = rest.split_once('-')?;
    Uuid::try_parse(marker).ok()?;
    attempt.parse::<u32>().ok()?;
    let number = number.parse().ok()?;
    Some(SequentialChild {
        name,
        number,
        czxid: None,
    })
}

/// The newest node of each participant, in the order of creation. Older ones are left from sessions
/// that are lost.
fn newest_of_each(nodes: Vec<SequentialChild>) -> Vec<String> {
    let marker = |name: &str| name.split('-').nth(1).map(str::to_owned);
    let mut seen = HashSet::new();
    let mut newest: Vec<String> = nodes
        .into_iter()
        .rev()
        .map(|child| child.name)
        .filter(|name| seen.insert(marker(name)))
        .collect();
    newest.reverse();
    newest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h63_a_participant_that_came_again_is_counted_once() {
        let (one, other) = (Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let names = [
            format!("m-{one}-0-0000000000"),
            format!("m-{other}-0-0000000001"),
            format!("m-{one}-1--2147483648"),
        ];
        let nodes: Vec<_> = names.iter().cloned().filter_map(sequential_child).collect();
        assert_eq!(nodes.len(), 3);
        assert_eq!(newest_of_each(nodes), names[1..]);
        for foreign in ["ready", "m-", "m-ready-0-0000000001", "out-x"] {
            assert!(sequential_child(foreign.to_owned()).is_none(), "{foreign}");
        }
    }
}
