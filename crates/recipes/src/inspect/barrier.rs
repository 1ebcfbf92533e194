//! Gates, double barriers and latches.
//!
//! Owns what a barrier's nodes say to somebody who takes no part.

use baton_client::{Error, Session};
use baton_proto::path::{join, name};
use serde::Serialize;

use super::error::InspectError;
use super::inspector::Inspector;
use super::node_info::{NodeInfo, UnreadableNode, children, data, read_all, readable};
use crate::barrier::{
    BarrierLayout, Count, DONE_PREFIX, MEMBER_PREFIX, Newest, Phase, READY, Round, round_name,
};
use crate::retry;

/// Phase of a double barrier's round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RoundPhase {
    /// Fewer members have come than are to meet.
    Gathering,
    /// All members have entered; some may have left again.
    Entered {
        /// The names of the nodes of those who entered; none in the layout of Curator and kazoo,
        /// which does not store them.
        members: Vec<String>,
    },
    /// The time of a member was up before all had come.
    Aborted {
        /// That member.
        by: String,
    },
    /// Nobody is inside any more.
    Left {
        /// Number of members that went without leaving.
        lost: u32,
    },
    /// The time of a member was up while others were inside.
    Broken {
        /// The names of the nodes of those who entered.
        members: Vec<String>,
        /// The member whose time was up.
        by: String,
    },
}

/// A double barrier, as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DoubleBarrierSnapshot {
    /// The barrier's path.
    pub path: String,
    /// Library whose nodes it has.
    #[serde(skip)]
    pub layout: BarrierLayout,
    /// The newest round; 0 before the first, and in the layout of Curator and kazoo.
    pub round: u64,
    /// Number of members that meet, where the tree has it.
    pub count: Option<u32>,
    /// Phase of the newest round.
    #[serde(flatten)]
    pub phase: RoundPhase,
    /// The nodes of the members that are there, in the order in which they came.
    #[serde(rename = "present")]
    pub members: Vec<NodeInfo>,
    /// The members' nodes that this client may not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableNode>,
}

/// A countdown latch, as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LatchSnapshot {
    /// The latch's path.
    pub path: String,
    /// The number of count-downs that open it.
    pub count: u32,
    /// Number of them that are still to come; 0 where it is open.
    pub left: u32,
    /// The ids that have counted, sorted.
    pub done: Vec<String>,
}

impl Inspector {
    /// Returns the node that closes the gate at `path` (see [`Barrier`](crate::Barrier)), with the
    /// process that closed it. `None` where the gate is open.
    ///
    /// # Errors
    /// [`InspectError`].
    pub async fn gate(&self, path: &str) -> Result<Option<NodeInfo>, InspectError> {
        self.run(|session| async move {
            let read = data(&session, path).await?;
            Ok(read.map(|read| NodeInfo::new(path, &read)))
        })
        .await
    }

    /// The double barrier at `path`: its newest round, and the members that have come. `None` where
    /// there is no node.
    ///
    /// A node that holds no number of a round is read in the layout of Curator and kazoo, in which
    /// each ephemeral child but `ready` is a member.
    ///
    /// # Errors
    /// [`InspectError`].
    pub async fn double_barrier(
        &self,
        path: &str,
    ) -> Result<Option<DoubleBarrierSnapshot>, InspectError> {
        self.run(|session| async move {
            let Some(own) = data(&session, path).await? else {
                return Ok(None);
            };
            match Newest::from_bytes(&own.data) {
                Some(newest) => newest_round(&session, path, newest.double_barrier_round).await,
                None => curator_round(&session, path).await,
            }
            .map(Some)
        })
        .await
    }

    /// The countdown latch at `path`; `None` where there is none.
    ///
    /// # Errors
    /// [`InspectError`].
    pub async fn latch(&self, path: &str) -> Result<Option<LatchSnapshot>, InspectError> {
        self.run(|session| async move {
            let Some(own) = data(&session, path).await? else {
                return Ok(None);
            };
            let Some(count) = Count::from_bytes(&own.data) else {
                return Ok(None);
            };
            let names = children(&session, path).await?.unwrap_or_default();
            let mut done: Vec<_> = names
                .iter()
                .filter_map(|name| name.strip_prefix(DONE_PREFIX))
                .map(str::to_owned)
                .collect();
            done.sort_unstable();
            Ok(Some(LatchSnapshot {
                path: path.to_owned(),
                count: count.latch_count,
                left: count.left,
                done,
            }))
        })
        .await
    }
}

async fn newest_round(
    session: &Session,
    path: &str,
    number: u64,
) -> Result<DoubleBarrierSnapshot, Error> {
    let mut snapshot = DoubleBarrierSnapshot {
        path: path.to_owned(),
        layout: BarrierLayout::Rounds,
        round: number,
        count: None,
        phase: RoundPhase::Gathering,
        members: Vec::new(),
        unreadable: Vec::new(),
    };
    let node = join(path, &round_name(number));
    let read = retry::read(session, || session.get_data(&node)).await;
    let Some(read) = readable(&node, read, &mut snapshot.unreadable)? else {
        return Ok(snapshot);
    };
    if let Some(round) = Round::from_bytes(&read.data) {
        snapshot.count = Some(round.count);
        snapshot.phase = match round.phase {
            Phase::Gathering => RoundPhase::Gathering,
            Phase::Entered { members } => RoundPhase::Entered { members },
            Phase::Aborted { by } => RoundPhase::Aborted { by },
            Phase::Left { lost } => RoundPhase::Left { lost },
            Phase::Broken { members, by } => RoundPhase::Broken { members, by },
        };
    }
    let names = children(session, &node).await?.unwrap_or_default();
    let names = names.iter().filter(|name| name.starts_with(MEMBER_PREFIX));
    let paths = names.map(|name| join(&node, name)).collect();
    read_members(session, paths, &mut snapshot).await?;
    Ok(snapshot)
}

async fn curator_round(session: &Session, path: &str) -> Result<DoubleBarrierSnapshot, Error> {
    let names = children(session, path).await?.unwrap_or_default();
    let is_ready = names.iter().any(|name| name == READY);
    let phase = match is_ready {
        true => RoundPhase::Entered {
            members: Vec::new(),
        },
        false => RoundPhase::Gathering,
    };
    let mut snapshot = DoubleBarrierSnapshot {
        path: path.to_owned(),
        layout: BarrierLayout::Curator,
        round: 0,
        count: None,
        phase,
        members: Vec::new(),
        unreadable: Vec::new(),
    };
    let names = names.iter().filter(|name| *name != READY);
    let paths = names.map(|name| join(path, name)).collect();
    read_members(session, paths, &mut snapshot).await?;
    Ok(snapshot)
}

async fn read_members(
    session: &Session,
    paths: Vec<String>,
    snapshot: &mut DoubleBarrierSnapshot,
) -> Result<(), Error> {
    let read = read_all(session, &paths, &mut snapshot.unreadable, |at, data| {
        Some(NodeInfo::new(paths.get(at)?, data))
    });
    let mut members: Vec<_> = read.await?.into_iter().flatten().collect();
    members.retain(|member| member.session_id != 0);
    members
        .sort_by(|one, other| (one.czxid, name(&one.path)).cmp(&(other.czxid, name(&other.path))));
    snapshot.members = members;
    Ok(())
}
