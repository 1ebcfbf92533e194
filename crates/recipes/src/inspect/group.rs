//! Groups of members.
//!
//! Owns the list of members as somebody sees it who is none of them.

use baton_client::{Data, Error, Session};
use baton_proto::path::{join, name};
use serde::Serialize;

use super::error::InspectError;
use super::inspector::Inspector;
use super::node_info::{NodeInfo, UnreadableNode, children, read_all};
use crate::membership::GroupLayout;
use crate::rendering::OneLine;

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GroupMember {
    /// Its id. In kazoo's layouts several members may have the same.
    pub id: String,
    /// Its node. The data there is the member's own, without Baton's record.
    #[serde(flatten)]
    pub info: NodeInfo,
}

/// The member's id, and the process that owns its node, on one line.
impl std::fmt::Display for GroupMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", OneLine(&self.id), self.info)
    }
}

/// A group, as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GroupSnapshot {
    /// The group's path.
    pub path: String,
    /// The members, sorted by node name.
    pub members: Vec<GroupMember>,
    /// The names of children that are no members: nodes that no session owns, or of another layout.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// The nodes that this client may not read. They may be members.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableNode>,
}

impl GroupSnapshot {
    /// The group at `path`, from its children as they were read, sorted by name: for callers that
    /// keep what they have read.
    #[must_use]
    pub fn of_children(path: &str, layout: GroupLayout, children: &[(&str, Data)]) -> Self {
        let mut snapshot = Self {
            path: path.to_owned(),
            members: Vec::new(),
            others: Vec::new(),
            unreadable: Vec::new(),
        };
        for (name, data) in children {
            match member(&join(path, name), data, layout) {
                Some(member) => snapshot.members.push(member),
                None => snapshot.others.push((*name).to_owned()),
            }
        }
        snapshot
    }
}

impl Inspector {
    /// The members of the group at `path`, whose nodes have the names and data of `layout`. No
    /// members where there is no node.
    ///
    /// # Errors
    /// [`InspectError`].
    pub async fn group(
        &self,
        path: &str,
        layout: GroupLayout,
    ) -> Result<GroupSnapshot, InspectError> {
        self.run(|session| async move { read(&session, path, layout).await })
            .await
    }
}

async fn read(session: &Session, path: &str, layout: GroupLayout) -> Result<GroupSnapshot, Error> {
    let mut names = children(session, path).await?.unwrap_or_default();
    names.sort_unstable();
    let paths: Vec<_> = names.iter().map(|name| join(path, name)).collect();
    let mut unreadable = Vec::new();
    let read = read_all(session, &paths, &mut unreadable, |at, data| {
        let path = paths.get(at)?;
        Some(member(path, data, layout).ok_or_else(|| name(path).to_owned()))
    });
    let mut snapshot = GroupSnapshot {
        path: path.to_owned(),
        members: Vec::new(),
        others: Vec::new(),
        unreadable: Vec::new(),
    };
    for child in read.await?.into_iter().flatten() {
        match child {
            Ok(member) => snapshot.members.push(member),
            Err(name) => snapshot.others.push(name),
        }
    }
    snapshot.unreadable = unreadable;
    Ok(snapshot)
}

/// The member whose node this is; `None` where it is none. A node that no session owns would never
/// leave.
fn member(path: &str, read: &Data, layout: GroupLayout) -> Option<GroupMember> {
    if read.stat.ephemeral_owner == 0 {
        return None;
    }
    let said = layout.decode(name(path), &read.data)?;
    let data = Data {
        data: said.data,
        stat: read.stat,
    };
    Some(GroupMember {
        id: said.id,
        info: NodeInfo {
            record: said.record,
            ..NodeInfo::new(path, &data)
        },
    })
}
