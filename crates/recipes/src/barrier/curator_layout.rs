//! The double barrier in the layout that Curator and kazoo share: `<path>/<uuid>` for each member,
//! `<path>/ready` once all are in.
//!
//! Owns what can be had of H63 there: a `ready` without members is taken for stale and removed,
//! `ready` is never counted, events are never taken for the answer, members that came after `ready`
//! are not waited for, and our own `ready` alone is deleted. There is no common outcome: a member
//! whose time is up leaves alone.

use baton_client::{CreateMode, Session};
use uuid::Uuid;

use super::RoundEnd;
use super::context::{AttemptFailure, BarrierContext, Limit};
use super::member::Member;
use super::round::Newest;
use crate::parents::{ParentKind, ensure_parents};
use crate::wait_queue::until_gone;

/// The node that is made once all are in.
pub(crate) const READY: &str = "ready";

#[derive(Debug)]
pub(super) struct CuratorEntry {
    pub member: Member,
    /// Time at which `ready` was made: who came later does not belong to us.
    ready_czxid: i64,
}

pub(super) async fn enter(
    context: &BarrierContext,
    count: u32,
    limit: Option<Limit>,
    former: &mut Vec<String>,
) -> Result<CuratorEntry, AttemptFailure> {
    let entering = async {
        let session = context.session().await?;
        for node in former.iter() {
            while let Err(error) = session.delete(node, None).await {
                if error.is_no_node() {
                    break;
                }
                context.after(&session, error).await?;
            }
        }
        let member = create_member(context, &session, former).await?;
        until_ready(context, member, count).await
    };
    tokio::select! {
        biased;
        inside = entering => inside,
        // Dropping it takes our node away.
        () = context.passed(limit) => Err(context.timed_out(limit)),
    }
}

async fn create_member(
    context: &BarrierContext,
    session: &Session,
    former: &mut Vec<String>,
) -> Result<Member, AttemptFailure> {
    loop {
        match context.read(session, &context.path).await? {
            Some(read) if Newest::from_bytes(&read.data).is_some() => {
                return Err(context
                    .foreign(
                        "it is a double barrier with rounds, which other libraries do not know",
                    )
                    .into());
            }
            Some(_) => {}
            None => {
                let made = ensure_parents(session, &context.path, ParentKind::Container).await;
                if let Err(error) = made {
                    context.after(session, error).await?;
                }
                continue;
            }
        }
        let name = Uuid::new_v4().hyphenated().to_string();
        former.push(context.child(&name));
        match Member::create(session, &context.path, &name, &[], CreateMode::Ephemeral).await {
            Ok(member) => return Ok(member),
            Err(error) if error.is_no_node() => {}
            Err(error) => context.after(session, error).await?,
        }
    }
}

async fn until_ready(
    context: &BarrierContext,
    mut member: Member,
    count: u32,
) -> Result<CuratorEntry, AttemptFailure> {
    let session = member.session.clone();
    let path = member.path.clone();
    let mut gone = std::pin::pin!(until_gone(&session, &path, || {}));
    let ready = context.child(READY);
    loop {
        let (stat, watch) = match session.exists_watch(&ready).await {
            Ok(read) => read,
            Err(error) => {
                context.after(&session, error).await?;
                continue;
            }
        };
        let members = member_names(context, &session).await?;
        if !members.iter().any(|name| name == member.name()) {
            member.disown();
            return Err(AttemptFailure::Again);
        }
        match stat {
            Some(stat)
                if member.czxid < stat.czxid
                    || anybody_before(context, &session, &members, stat.czxid).await? =>
            {
                return Ok(CuratorEntry {
                    member,
                    ready_czxid: stat.czxid,
                });
            }
            // Left over from a round that crashed: nobody is here who was there when it was made
            // (H63a).
            Some(stat) => {
                drop(watch);
                // Refused or lost, the next read shows.
                let _ = session.delete_eventually(&ready, stat.czxid).await;
            }
            None if members.len() >= usize::try_from(count).unwrap_or(usize::MAX) => {
                drop(watch);
                match session.create(&ready, &[], CreateMode::Persistent).await {
                    Ok(_) => {}
                    Err(error) if error.is_node_exists() || error.is_no_node() => {}
                    Err(error) => context.after(&session, error).await?,
                }
            }
            None => tokio::select! {
                biased;
                _ = watch => {}
                ended = &mut gone => {
                    if ended.is_ok() {
                        member.disown();
                    }
                    return Err(AttemptFailure::Again);
                }
            },
        }
    }
}

/// Returns whether one of `members` came before `zxid`.
async fn anybody_before(
    context: &BarrierContext,
    session: &Session,
    members: &[String],
    zxid: i64,
) -> Result<bool, AttemptFailure> {
    for name in members {
        if let Some(read) = context.read(session, &context.child(name)).await?
            && read.stat.czxid < zxid
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Number of members; `None` where the barrier is open, and where that cannot be read just now.
pub(super) async fn gathered(context: &BarrierContext, session: &Session) -> Option<i32> {
    let names = session.children(&context.path).await.ok()?.names;
    let is_open = names.iter().any(|name| name == READY);
    (!is_open).then_some(i32::try_from(names.len()).ok()?)
}

/// The members' names: all children but `ready` (H63f).
async fn member_names(
    context: &BarrierContext,
    session: &Session,
) -> Result<Vec<String>, AttemptFailure> {
    let mut names = context.children(session, &context.path).await?;
    names.retain(|name| name != READY);
    Ok(names)
}

/// Leaves the round. [`AttemptFailure::Again`] here means that this member was counted as lost.
pub(super) async fn leave(
    context: &BarrierContext,
    inside: CuratorEntry,
    limit: Option<Limit>,
) -> Result<RoundEnd, AttemptFailure> {
    let CuratorEntry {
        member,
        ready_czxid,
    } = inside;
    let session = member.session.clone();
    let leaving = async {
        // The others watch the first by name, so that one goes last; its node shows them that
        // somebody is still inside.
        let names = member_names(context, &session).await?;
        if names.iter().all(|name| member.name() <= name.as_str()) {
            until_gone_all(context, &session, ready_czxid, Some(&member.path)).await?;
            member.withdraw().await;
        } else {
            member.withdraw().await;
            until_gone_all(context, &session, ready_czxid, None).await?;
        }
        // Bound to the one that we entered with, so that the next round's is left alone.
        let _ = session
            .delete_eventually(&context.child(READY), ready_czxid)
            .await;
        Ok(RoundEnd { lost: 0 })
    };
    tokio::select! {
        biased;
        left = leaving => left,
        () = context.passed(limit) => Err(context.timed_out(limit)),
    }
}

async fn until_gone_all(
    context: &BarrierContext,
    session: &Session,
    ready_czxid: i64,
    except: Option<&str>,
) -> Result<(), AttemptFailure> {
    let mut inside = Vec::new();
    for name in member_names(context, session).await? {
        let node = context.child(&name);
        if except == Some(node.as_str()) {
            continue;
        }
        // Who came after `ready` belongs to no round of ours (H63b).
        if let Some(read) = context.read(session, &node).await?
            && read.stat.czxid < ready_czxid
        {
            inside.push(node);
        }
    }
    for node in inside {
        while let Err(error) = until_gone(session, &node, || {}).await {
            context.after_acquire_error(session, error).await?;
        }
    }
    Ok(())
}
