//! Values of operations, the parts of a multi, and a change of the ensemble's members.
//!
//! Owns plain data only.

use baton_proto::{
    Acl, Create, CreateMode, EnsembleConfig, EnsembleMember, MultiOp, OpCode, Request, Stat,
};
use bytes::Bytes;

/// A node that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedNode {
    /// Its path, with the number that the server appended to a sequential one.
    pub path: String,
    /// Its record; `czxid` identifies the node for ever, whatever else may come to have the same
    /// path.
    pub stat: Stat,
}

/// A node's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// The bytes; empty also for a node without any.
    pub data: Bytes,
    /// The node's record, of the same instant.
    pub stat: Stat,
}

/// A node's children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Children {
    /// Their names, in no order.
    pub names: Vec<String>,
    /// The node's own record, of the same instant.
    pub stat: Stat,
}

/// One part of a [`Session::multi`](crate::Session::multi).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// Creates a node.
    Create {
        /// Its path; a sequential mode appends the number.
        path: String,
        /// Its data.
        data: Bytes,
        /// Its ACL; `None` for that of the session handle: see
        /// [`Session::with_acl`](crate::Session::with_acl).
        acl: Option<Vec<Acl<'static>>>,
        /// Its kind.
        mode: CreateMode,
    },
    /// Deletes a node without children.
    Delete {
        /// Its path.
        path: String,
        /// The version it must have; `None` for any.
        version: Option<i32>,
    },
    /// Replaces a node's data.
    SetData {
        /// Its path.
        path: String,
        /// The new data.
        data: Bytes,
        /// The version it must have; `None` for any.
        version: Option<i32>,
    },
    /// Requires that a node is there; changes nothing.
    Check {
        /// Its path.
        path: String,
        /// The version it must have; `None` for any.
        version: Option<i32>,
    },
}

impl Op {
    /// Creates a node with the ACL of the session handle that sends it, which is open to everybody
    /// unless [`Session::with_acl`](crate::Session::with_acl) says otherwise.
    pub fn create(path: impl Into<String>, data: impl Into<Bytes>, mode: CreateMode) -> Self {
        Self::Create {
            path: path.into(),
            data: data.into(),
            acl: None,
            mode,
        }
    }

    /// Deletes a node; of any version for `None`.
    pub fn delete(path: impl Into<String>, version: Option<i32>) -> Self {
        Self::Delete {
            path: path.into(),
            version,
        }
    }

    /// Replaces a node's data; of any version for `None`.
    pub fn set_data(path: impl Into<String>, data: impl Into<Bytes>, version: Option<i32>) -> Self {
        Self::SetData {
            path: path.into(),
            data: data.into(),
            version,
        }
    }

    /// Requires that a node exists; of any version for `None`.
    pub fn check(path: impl Into<String>, version: Option<i32>) -> Self {
        Self::Check {
            path: path.into(),
            version,
        }
    }

    /// Returns the path of this part.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Create { path, .. }
            | Self::Delete { path, .. }
            | Self::SetData { path, .. }
            | Self::Check { path, .. } => path,
        }
    }

    pub(crate) const fn version(&self) -> Option<i32> {
        match self {
            Self::Create { .. } => None,
            Self::Delete { version, .. }
            | Self::SetData { version, .. }
            | Self::Check { version, .. } => *version,
        }
    }

    pub(crate) const fn is_sequential(&self) -> bool {
        match self {
            Self::Create { mode, .. } => mode.is_sequential(),
            _ => false,
        }
    }

    pub(crate) fn kind(&self) -> OpCode {
        self.wire("/", &[]).op()
    }

    /// This part on the wire, under its path as the server knows it; `handle_acl` is the ACL of the
    /// session handle.
    pub(crate) fn wire<'a>(&'a self, path: &'a str, handle_acl: &[Acl<'a>]) -> MultiOp<'a> {
        match self {
            Self::Create {
                data, acl, mode, ..
            } => {
                let acl = acl.clone().unwrap_or_else(|| handle_acl.to_vec());
                MultiOp::Create(Create::new(path, Some(data.as_ref()), acl, *mode))
            }
            Self::Delete { version, .. } => MultiOp::Delete {
                path,
                version: version.unwrap_or(-1),
            },
            Self::SetData { data, version, .. } => MultiOp::SetData {
                path,
                data: Some(data.as_ref()),
                version: version.unwrap_or(-1),
            },
            Self::Check { version, .. } => MultiOp::Check {
                path,
                version: version.unwrap_or(-1),
            },
        }
    }
}

/// Result of one part of a multi.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpResult {
    /// The node is there.
    Created {
        /// Its path, with the number that the server appended to a sequential one.
        path: String,
        /// Its record; Apache ZooKeeper 3.8 leaves it out for what was created in a multi.
        stat: Option<Stat>,
    },
    /// The node is deleted.
    Deleted,
    /// The node's new record.
    DataSet(Stat),
    /// The node is there.
    Checked,
}

/// Credentials with which another process resumes a session: see
/// [`Session::export`](crate::Session::export).
#[derive(Clone, PartialEq, Eq)]
pub struct SessionExport {
    /// The session's id.
    pub id: i64,
    /// Its password. Anyone who has it can take the session over: keep it secret.
    pub password: [u8; 16],
    /// The newest change that the session has seen; a server that has not is refused.
    pub last_zxid: i64,
}

impl std::fmt::Debug for SessionExport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionExport")
            .field("id", &format_args!("0x{:x}", self.id))
            .field("last_zxid", &self.last_zxid)
            .finish_non_exhaustive()
    }
}

/// A change of the ensemble's members, for
/// [`Session::change_members`](crate::Session::change_members).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MembershipChange {
    /// Some servers join and some leave; the others stay as they are.
    Incremental {
        /// Servers to add. One that is a member already gets what the line says.
        joining: Vec<EnsembleMember>,
        /// Ids of servers to remove.
        leaving: Vec<u64>,
    },
    /// Exactly these servers are the members.
    Full(Vec<EnsembleMember>),
}

impl MembershipChange {
    /// A change by which one server joins.
    #[must_use]
    pub fn add(member: EnsembleMember) -> Self {
        Self::Incremental {
            joining: vec![member],
            leaving: Vec::new(),
        }
    }

    /// A change by which one server leaves.
    #[must_use]
    pub fn remove(id: u64) -> Self {
        Self::Incremental {
            joining: Vec::new(),
            leaving: vec![id],
        }
    }

    /// Returns whether the members are as this change makes them.
    #[must_use]
    pub fn is_met_by(&self, config: &EnsembleConfig) -> bool {
        let has = |wanted: &EnsembleMember| {
            let found = config.member(wanted.id);
            found.is_some_and(|found| wanted.is_met_by(found))
        };
        match self {
            Self::Incremental { joining, leaving } => {
                let left = |id: &u64| {
                    let joins = joining.iter().any(|member| member.id == *id);
                    joins || config.member(*id).is_none()
                };
                joining.iter().all(has) && leaving.iter().all(left)
            }
            Self::Full(members) => members.len() == config.members.len() && members.iter().all(has),
        }
    }

    /// The strings of the request; a list of no server is null.
    pub(crate) fn texts(&self) -> MembershipTexts {
        let lines = |members: &[EnsembleMember]| {
            let lines: Vec<_> = members.iter().map(ToString::to_string).collect();
            (!lines.is_empty()).then(|| lines.join(","))
        };
        match self {
            Self::Incremental { joining, leaving } => {
                let ids: Vec<_> = leaving.iter().map(ToString::to_string).collect();
                MembershipTexts {
                    joining: lines(joining),
                    leaving: (!ids.is_empty()).then(|| ids.join(",")),
                    new_members: None,
                }
            }
            Self::Full(members) => MembershipTexts {
                joining: None,
                leaving: None,
                new_members: lines(members),
            },
        }
    }
}

/// A change as the request has it.
pub(crate) struct MembershipTexts {
    joining: Option<String>,
    leaving: Option<String>,
    new_members: Option<String>,
}

impl MembershipTexts {
    pub(crate) fn request(&self, config_id: i64) -> Request<'_> {
        Request::Reconfig {
            joining: self.joining.as_deref(),
            leaving: self.leaving.as_deref(),
            new_members: self.new_members.as_deref(),
            config_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(line: &str) -> EnsembleMember {
        line.parse().unwrap()
    }

    fn config(lines: &[&str]) -> EnsembleConfig {
        EnsembleConfig::parse(lines.join("\n").as_bytes()).unwrap()
    }

    #[test]
    fn a_change_is_met_by_members_that_are_as_it_makes_them() {
        let three = ["server.1=a:1:2", "server.2=b:1:2", "server.3=c:1:2;2181"];
        let three = config(&three);
        let add = |line| MembershipChange::add(member(line));
        assert!(add("server.3=c:1:2").is_met_by(&three));
        assert!(!add("server.3=c:1:2:observer").is_met_by(&three));
        assert!(!add("server.4=d:1:2").is_met_by(&three));
        assert!(MembershipChange::remove(4).is_met_by(&three));
        assert!(!MembershipChange::remove(3).is_met_by(&three));
        let both = |leaving: u64| MembershipChange::Incremental {
            joining: vec![member("server.3=c:1:2")],
            leaving: vec![leaving],
        };
        assert!(both(4).is_met_by(&three) && !both(2).is_met_by(&three));
        // It leaves, and comes back as the line says.
        assert!(both(3).is_met_by(&three));
        let full = |lines: &[&str]| {
            MembershipChange::Full(lines.iter().map(|line| member(line)).collect())
        };
        let all = ["server.3=c:1:2", "server.1=a:1:2", "server.2=b:1:2"];
        assert!(full(&all).is_met_by(&three));
        assert!(!full(&all[1..]).is_met_by(&three));
        assert!(!full(&["server.3=c:1:2", "server.1=a:1:2", "server.4=b:1:2"]).is_met_by(&three));
    }

    #[test]
    fn the_request_has_lines_with_commas_between_them_and_null_for_none() {
        let texts = MembershipChange::Incremental {
            joining: vec![
                member("server.4=d:1:2;2181"),
                member("server.5=e:1:2:observer"),
            ],
            leaving: vec![2, 3],
        }
        .texts();
        assert_eq!(
            texts.request(7),
            Request::Reconfig {
                joining: Some("server.4=d:1:2:participant;0.0.0.0:2181,server.5=e:1:2:observer"),
                leaving: Some("2,3"),
                new_members: None,
                config_id: 7,
            }
        );
        let texts = MembershipChange::Full(vec![member("server.1=a:1:2")]).texts();
        assert_eq!(
            texts.request(-1),
            Request::Reconfig {
                joining: None,
                leaving: None,
                new_members: Some("server.1=a:1:2:participant"),
                config_id: -1,
            }
        );
        let none = MembershipChange::Full(Vec::new()).texts();
        assert!(none.new_members.is_none());
    }
}
