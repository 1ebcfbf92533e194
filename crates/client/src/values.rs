//! What operations yield, and the parts of a multi.
//!
//! Owns plain data only.

use baton_proto::{Acl, Create, CreateMode, MultiOp, OpCode, Stat};
use bytes::Bytes;

/// A node that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
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
        /// Who may do what; `None` for the ACL of the session handle: see
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

    /// Requires a node; of any version for `None`.
    pub fn check(path: impl Into<String>, version: Option<i32>) -> Self {
        Self::Check {
            path: path.into(),
            version,
        }
    }

    /// The path that this part names.
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

/// What one part of a multi yielded.
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

/// What a session needs to be taken up by another process: see
/// [`Session::export`](crate::Session::export).
#[derive(Clone, PartialEq, Eq)]
pub struct SessionExport {
    /// The session's id.
    pub id: i64,
    /// Its password. Whoever has it can take the session over: keep it secret.
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
