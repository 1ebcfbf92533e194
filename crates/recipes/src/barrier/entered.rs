//! Presence inside a double barrier, and leaving it.
//!
//! Owns the outcome of the end of a round. A member that leaves exchanges its node for another in
//! one multi, so that one that has left can be distinguished from one that was lost; that nobody is
//! inside any more is a fact that cannot be undone, because a round's members are fixed.

use std::future::Future;
use std::time::Duration;

use baton_client::{CreateMode, Op, Session};

use super::BarrierError;
use super::context::{AttemptFailure, BarrierContext, Limit};
use super::curator_layout::CuratorEntry;
use super::member::Member;
use super::round::{Phase, Round, RoundEnd, RoundNode, parse};
use crate::wait_queue::until_gone;

/// RAII guard of the presence inside a double barrier. Dropping it leaves without waiting: the
/// others count this member as lost.
#[must_use = "dropping it leaves the barrier at once, and the others count it as lost"]
#[derive(Debug)]
pub struct BarrierEntry {
    context: BarrierContext,
    layout: EntryLayout,
    /// Name that the others read if our time is up.
    by: String,
}

#[derive(Debug)]
enum EntryLayout {
    Round(RoundEntry),
    Curator(CuratorEntry),
}

#[derive(Debug)]
pub(super) struct RoundEntry {
    pub round: RoundNode,
    pub member: Member,
    pub members: Vec<String>,
}

impl BarrierEntry {
    pub(super) fn of_round(context: BarrierContext, inside: RoundEntry, by: String) -> Self {
        Self {
            context,
            layout: EntryLayout::Round(inside),
            by,
        }
    }

    pub(super) fn of_curator(context: BarrierContext, inside: CuratorEntry) -> Self {
        Self {
            context,
            layout: EntryLayout::Curator(inside),
            by: String::new(),
        }
    }

    /// Returns the round's number: 1, 2, 3 … at this path; `None` in the layout shared with Curator
    /// and kazoo, which has no numbers.
    #[must_use]
    pub fn round(&self) -> Option<u64> {
        match &self.layout {
            EntryLayout::Round(inside) => Some(inside.round.number),
            EntryLayout::Curator(_) => None,
        }
    }

    /// Full path of this member's node.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.member().path
    }

    /// Returns the session of the membership. When it ends, the others count this member as lost.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.member().session
    }

    fn member(&self) -> &Member {
        match &self.layout {
            EntryLayout::Round(inside) => &inside.member,
            EntryLayout::Curator(inside) => &inside.member,
        }
    }

    /// Resolves when this member is no longer inside although it did not leave: its session has
    /// ended, or somebody deleted its node. The others may go on without it from then on. It does
    /// not borrow.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + 'static {
        let (session, path) = (self.member().session.clone(), self.member().path.clone());
        async move {
            // Where the node cannot be watched, the session's end is all that can be known.
            if until_gone(&session, &path, || {}).await.is_err() {
                session.ended().await;
            }
        }
    }

    /// Leaves, and waits until all members have left.
    ///
    /// Dropping the future leaves without waiting.
    ///
    /// # Errors
    /// [`BarrierError::Broken`] where another member's time was up first; [`BarrierError::Lost`]
    /// where we were counted as lost.
    pub async fn leave(self) -> Result<RoundEnd, BarrierError> {
        self.leave_by(None).await
    }

    /// Like [`BarrierEntry::leave`]. When `limit` has passed before all have left, the round is
    /// declared broken, and all of its members that leave receive that error.
    ///
    /// # Errors
    /// As `leave`. In the layout shared with Curator and kazoo, [`BarrierError::TimedOut`], and the
    /// others are not notified.
    pub async fn leave_timeout(self, limit: Duration) -> Result<RoundEnd, BarrierError> {
        self.leave_by(Limit::of(limit)).await
    }

    async fn leave_by(self, limit: Option<Limit>) -> Result<RoundEnd, BarrierError> {
        let node = self.node().to_owned();
        let outcome = match self.layout {
            EntryLayout::Round(inside) => leave_round(&self.context, inside, limit, &self.by).await,
            EntryLayout::Curator(inside) => {
                super::curator_layout::leave(&self.context, inside, limit).await
            }
        };
        outcome.map_err(|halt| match halt {
            AttemptFailure::Again => BarrierError::Lost { node },
            AttemptFailure::Failed(error) => error,
        })
    }
}

/// Leaves the round. [`AttemptFailure::Again`] here means that this member was counted as lost.
async fn leave_round(
    context: &BarrierContext,
    inside: RoundEntry,
    limit: Option<Limit>,
    by: &str,
) -> Result<RoundEnd, AttemptFailure> {
    let RoundEntry {
        round,
        member,
        members,
    } = inside;
    let session = member.session.clone();
    let index = members.iter().position(|name| *name == member.name());
    let out = go_out(context, &round, member).await?;
    let outcome = until_empty(
        context,
        &round,
        &out,
        &members,
        index.unwrap_or(0),
        limit,
        by,
    )
    .await;
    out.withdraw().await;
    // The last one to have read the outcome clears the round away; for all others the server
    // refuses it.
    drop(session.delete(&round.path, None));
    outcome
}

/// Exchanges our node for one that says that we have left.
async fn go_out(
    context: &BarrierContext,
    round: &RoundNode,
    mut member: Member,
) -> Result<Member, AttemptFailure> {
    let session = member.session.clone();
    let name = member.name().replacen("m-", "out-", 1);
    let path = baton_proto::path::join(&round.path, &name);
    let unresolved = UnresolvedLeave {
        session: &session,
        dir: &round.path,
        name: &name,
        armed: true,
    };
    loop {
        let exchange = session.multi(&[
            Op::delete(&*member.path, None),
            Op::create(&*path, Vec::new(), CreateMode::Ephemeral),
        ]);
        if let Err(error) = exchange.await {
            // Gone with the first part: deleted by another, or by this very multi, whose answer was
            // lost.
            let ours_was_gone = error.multi_index() == Some(0) && error.is_no_node();
            if !ours_was_gone {
                context.after(&session, error).await?;
            }
            match context.read(&session, &path).await? {
                Some(_) => {}
                None if ours_was_gone => {
                    member.disown();
                    return Err(AttemptFailure::Again);
                }
                None => continue,
            }
        }
        let Some(out) = context.read(&session, &path).await? else {
            return Err(AttemptFailure::Again);
        };
        member.disown();
        unresolved.settled();
        return Ok(Member::adopt(&session, path, out.stat.czxid));
    }
}

async fn until_empty(
    context: &BarrierContext,
    round: &RoundNode,
    out: &Member,
    members: &[String],
    index: usize,
    limit: Option<Limit>,
    by: &str,
) -> Result<RoundEnd, AttemptFailure> {
    let session = &out.session;
    let mut gone = std::pin::pin!(out.gone());
    let mut time_is_up = false;
    loop {
        let (read, watch) = match session.get_data_watch(&round.path).await {
            Ok(read) => read,
            Err(error) if error.is_no_node() => return Err(AttemptFailure::Again),
            Err(error) => {
                context.after(session, error).await?;
                continue;
            }
        };
        let state = parse(&round.path, &read.data)?;
        let version = read.stat.version;
        match &state.phase {
            Phase::Left { lost } => return Ok(RoundEnd { lost: *lost }),
            Phase::Broken { by, .. } => {
                return Err(BarrierError::Broken {
                    path: context.path.to_string(),
                    round: round.number,
                    by: by.clone(),
                }
                .into());
            }
            _ => {}
        }
        let names = context.children(session, &round.path).await?;
        // The next one after us who is inside: so each exit wakes few, and the last one all.
        let next = members
            .iter()
            .cycle()
            .skip(index)
            .take(members.len())
            .find(|name| names.contains(name));
        let Some(next) = next else {
            let left = names.iter().filter(|name| name.starts_with("out-")).count();
            let lost = u32::try_from(members.len().saturating_sub(left)).unwrap_or(u32::MAX);
            write_phase(
                context,
                session,
                round,
                &state,
                Phase::Left { lost },
                version,
            )
            .await?;
            continue;
        };
        if time_is_up {
            let broken = Phase::Broken {
                members: members.to_vec(),
                by: by.to_owned(),
            };
            write_phase(context, session, round, &state, broken, version).await?;
            continue;
        }
        let next = baton_proto::path::join(&round.path, next);
        tokio::select! {
            biased;
            _ = watch => {}
            _ = &mut gone => return Err(AttemptFailure::Again),
            left = until_gone(session, &next, || {}) => {
                if let Err(error) = left {
                    context.after_acquire_error(session, error).await?;
                }
            }
            () = context.passed(limit) => time_is_up = true,
        }
    }
}

async fn write_phase(
    context: &BarrierContext,
    session: &Session,
    round: &RoundNode,
    state: &Round,
    phase: Phase,
    version: i32,
) -> Result<(), AttemptFailure> {
    let changed = session.set_data(&round.path, &state.to_bytes(phase), Some(version));
    context.settled(session, changed.await.map(drop)).await
}

/// Deletes the node that says that we have left, if the exchange was dropped before its outcome was
/// known.
struct UnresolvedLeave<'a> {
    session: &'a Session,
    dir: &'a str,
    name: &'a str,
    armed: bool,
}

impl UnresolvedLeave<'_> {
    fn settled(mut self) {
        self.armed = false;
    }
}

impl Drop for UnresolvedLeave<'_> {
    fn drop(&mut self) {
        if self.armed {
            drop(self.session.discard_create(self.dir, self.name));
        }
    }
}
