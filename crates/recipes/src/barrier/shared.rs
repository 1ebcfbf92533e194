//! The double barrier in the layout that Curator and kazoo share: `<path>/<uuid>` for each member,
//! `<path>/ready` once all are in.
//!
//! Owns what can be had of H63 there: a `ready` that nobody stands behind is taken for stale and
//! removed, `ready` is never counted, events are never taken for the answer, members that came
//! after `ready` are not waited for, and our own `ready` alone is deleted. There is no common
//! verdict: a member whose time is up leaves alone.

use super::ground::{Ground, Halt, Limit};
use super::member::Member;
use super::record::Newest;
use super::{Entered, Left};
use crate::line::{Parents, ensure_parents, until_gone};
use baton_client::{CreateMode, Session};
use uuid::Uuid;

const READY: &str = "ready";

#[derive(Debug)]
pub(super) struct SharedInside {
    pub member: Member,
    /// When `ready` was made: who came later does not belong to us.
    ready_czxid: i64,
}

pub(super) async fn enter(
    ground: &Ground,
    count: u32,
    limit: Option<Limit>,
    former: &mut Vec<String>,
) -> Result<Entered, Halt> {
    let entering = async {
        let session = ground.session().await?;
        for node in former.iter() {
            while let Err(error) = session.delete(node, None).await {
                if error.is_no_node() {
                    break;
                }
                ground.after(&session, error).await?;
            }
        }
        let member = join(ground, &session, former).await?;
        until_ready(ground, member, count).await
    };
    tokio::select! {
        biased;
        inside = entering => Ok(Entered::of_shared(ground.clone(), inside?)),
        // Dropping it takes our node away.
        () = Limit::passed(limit) => Err(match limit {
            Some(limit) => ground.timed_out(limit).into(),
            None => Halt::Again,
        }),
    }
}

async fn join(
    ground: &Ground,
    session: &Session,
    former: &mut Vec<String>,
) -> Result<Member, Halt> {
    loop {
        match ground.read(session, &ground.path).await? {
            Some(read) if Newest::from_bytes(&read.data).is_some() => {
                return Err(ground
                    .foreign(
                        "it is a double barrier with rounds, which other libraries do not know",
                    )
                    .into());
            }
            Some(_) => {}
            None => {
                let made = ensure_parents(session, &ground.path, Parents::Container).await;
                if let Err(error) = made {
                    ground.after(session, error).await?;
                }
                continue;
            }
        }
        let name = Uuid::new_v4().hyphenated().to_string();
        former.push(ground.child(&name));
        match Member::create(session, &ground.path, &name, &[], CreateMode::Ephemeral).await {
            Ok(member) => return Ok(member),
            Err(error) if error.is_no_node() => {}
            Err(error) => ground.after(session, error).await?,
        }
    }
}

async fn until_ready(
    ground: &Ground,
    mut member: Member,
    count: u32,
) -> Result<SharedInside, Halt> {
    let session = member.session.clone();
    let path = member.path.clone();
    let mut gone = std::pin::pin!(until_gone(&session, &path, || {}));
    let ready = ground.child(READY);
    loop {
        let (stat, watch) = match session.exists_watch(&ready).await {
            Ok(read) => read,
            Err(error) => {
                ground.after(&session, error).await?;
                continue;
            }
        };
        let members = members(ground, &session).await?;
        if !members.iter().any(|name| name == member.name()) {
            member.disown();
            return Err(Halt::Again);
        }
        match stat {
            Some(stat)
                if member.czxid < stat.czxid
                    || anybody_before(ground, &session, &members, stat.czxid).await? =>
            {
                return Ok(SharedInside {
                    member,
                    ready_czxid: stat.czxid,
                });
            }
            // Left over from a round that crashed: nobody is here who was there when it was made
            // (H63a).
            Some(stat) => {
                drop(watch);
                // Refused or lost, the next look tells.
                let _ = session.delete_eventually(&ready, stat.czxid).await;
            }
            None if members.len() >= usize::try_from(count).unwrap_or(usize::MAX) => {
                drop(watch);
                match session.create(&ready, &[], CreateMode::Persistent).await {
                    Ok(_) => {}
                    Err(error) if error.is_node_exists() || error.is_no_node() => {}
                    Err(error) => ground.after(&session, error).await?,
                }
            }
            None => tokio::select! {
                biased;
                _ = watch => {}
                ended = &mut gone => {
                    if ended.is_ok() {
                        member.disown();
                    }
                    return Err(Halt::Again);
                }
            },
        }
    }
}

/// Whether one of `members` came before `zxid`.
async fn anybody_before(
    ground: &Ground,
    session: &Session,
    members: &[String],
    zxid: i64,
) -> Result<bool, Halt> {
    for name in members {
        if let Some(read) = ground.read(session, &ground.child(name)).await?
            && read.stat.czxid < zxid
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// How many members there are; `None` where the barrier is open, and where that cannot be read just
/// now.
pub(super) async fn gathered(ground: &Ground, session: &Session) -> Option<i32> {
    let names = session.children(&ground.path).await.ok()?.names;
    let is_open = names.iter().any(|name| name == READY);
    (!is_open).then_some(i32::try_from(names.len()).ok()?)
}

/// The members' names: all children but `ready` (H63f).
async fn members(ground: &Ground, session: &Session) -> Result<Vec<String>, Halt> {
    let mut names = ground.children(session, &ground.path).await?;
    names.retain(|name| name != READY);
    Ok(names)
}

/// [`Halt::Again`] here means: lost.
pub(super) async fn leave(
    ground: &Ground,
    inside: SharedInside,
    limit: Option<Limit>,
) -> Result<Left, Halt> {
    let SharedInside {
        member,
        ready_czxid,
    } = inside;
    let session = member.session.clone();
    let leaving = async {
        // The others watch the first by name, so that one goes last; its node tells them that
        // somebody is still inside.
        let names = members(ground, &session).await?;
        if names.iter().all(|name| member.name() <= name.as_str()) {
            until_gone_all(ground, &session, ready_czxid, Some(&member.path)).await?;
            member.withdraw().await;
        } else {
            member.withdraw().await;
            until_gone_all(ground, &session, ready_czxid, None).await?;
        }
        // Bound to the one that we entered with, so that the next round's is left alone.
        let _ = session
            .delete_eventually(&ground.child(READY), ready_czxid)
            .await;
        Ok(Left { lost: 0 })
    };
    tokio::select! {
        biased;
        left = leaving => left,
        () = Limit::passed(limit) => Err(match limit {
            Some(limit) => ground.timed_out(limit).into(),
            None => Halt::Again,
        }),
    }
}

async fn until_gone_all(
    ground: &Ground,
    session: &Session,
    ready_czxid: i64,
    except: Option<&str>,
) -> Result<(), Halt> {
    let mut inside = Vec::new();
    for name in members(ground, session).await? {
        let node = ground.child(&name);
        if except == Some(node.as_str()) {
            continue;
        }
        // Who came after `ready` belongs to no round of ours (H63b).
        if let Some(read) = ground.read(session, &node).await?
            && read.stat.czxid < ready_czxid
        {
            inside.push(node);
        }
    }
    for node in inside {
        while let Err(trouble) = until_gone(session, &node, || {}).await {
            ground.after_trouble(session, trouble).await?;
        }
    }
    Ok(())
}
