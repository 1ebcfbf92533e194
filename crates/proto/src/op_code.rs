//! Op codes (protocol.md §1.4): the number that says what a request is.

use std::fmt;

/// An operation of the client protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i32)]
pub enum OpCode {
    /// Server to client only; refused from clients.
    Notification = 0,
    /// Create a znode; the reply is its path.
    Create = 1,
    /// Delete a znode.
    Delete = 2,
    /// Stat of a znode, or a watch for its creation.
    Exists = 3,
    /// Data and stat.
    GetData = 4,
    /// Write data.
    SetData = 5,
    /// ACL and stat.
    GetAcl = 6,
    /// Write the ACL.
    SetAcl = 7,
    /// Names of the children.
    GetChildren = 8,
    /// Catch up with the leader.
    Sync = 9,
    /// Keep the session alive.
    Ping = 11,
    /// Names of the children, and stat.
    GetChildren2 = 12,
    /// Check a version; only inside a multi.
    Check = 13,
    /// Several writes, all or none.
    Multi = 14,
    /// Create a znode; the reply is its path and stat.
    Create2 = 15,
    /// Change the ensemble's membership.
    Reconfig = 16,
    /// Whether this connection has such a watch.
    CheckWatches = 17,
    /// Remove watches of this connection.
    RemoveWatches = 18,
    /// Create a container.
    CreateContainer = 19,
    /// Delete a container that became empty; internal to servers.
    DeleteContainer = 20,
    /// Create a znode that ends when it is not written for a while.
    CreateTtl = 21,
    /// Several reads, each with its own outcome.
    MultiRead = 22,
    /// Add credentials to the connection.
    Auth = 100,
    /// Arm one-shot watches again after a reconnect.
    SetWatches = 101,
    /// One step of a SASL exchange.
    Sasl = 102,
    /// Paths of this session's ephemerals.
    GetEphemerals = 103,
    /// Number of all descendants.
    GetAllChildrenNumber = 104,
    /// Arm all watches again after a reconnect.
    SetWatches2 = 105,
    /// Add a persistent watch.
    AddWatch = 106,
    /// List the identities of this connection.
    WhoAmI = 107,
    /// Open a session; internal to servers.
    CreateSession = -10,
    /// Close the session.
    CloseSession = -11,
}

/// An op code that the protocol does not know; the answer is `Unimplemented`, then the connection
/// is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("op code {0} is not part of the protocol")]
pub struct UnknownOp(pub i32);

impl OpCode {
    /// Every op code.
    pub const ALL: [Self; 32] = [
        Self::Notification,
        Self::Create,
        Self::Delete,
        Self::Exists,
        Self::GetData,
        Self::SetData,
        Self::GetAcl,
        Self::SetAcl,
        Self::GetChildren,
        Self::Sync,
        Self::Ping,
        Self::GetChildren2,
        Self::Check,
        Self::Multi,
        Self::Create2,
        Self::Reconfig,
        Self::CheckWatches,
        Self::RemoveWatches,
        Self::CreateContainer,
        Self::DeleteContainer,
        Self::CreateTtl,
        Self::MultiRead,
        Self::Auth,
        Self::SetWatches,
        Self::Sasl,
        Self::GetEphemerals,
        Self::GetAllChildrenNumber,
        Self::SetWatches2,
        Self::AddWatch,
        Self::WhoAmI,
        Self::CreateSession,
        Self::CloseSession,
    ];

    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// Returns whether the operation takes a zxid and goes through the log. `sync` does not,
    /// although it waits for it.
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(
            self,
            Self::Create
                | Self::Delete
                | Self::SetData
                | Self::SetAcl
                | Self::Check
                | Self::Multi
                | Self::Create2
                | Self::Reconfig
                | Self::CreateContainer
                | Self::DeleteContainer
                | Self::CreateTtl
                | Self::CreateSession
                | Self::CloseSession
        )
    }

    /// The protocol's own name for the operation.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Notification => "notification",
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Exists => "exists",
            Self::GetData => "getData",
            Self::SetData => "setData",
            Self::GetAcl => "getACL",
            Self::SetAcl => "setACL",
            Self::GetChildren => "getChildren",
            Self::Sync => "sync",
            Self::Ping => "ping",
            Self::GetChildren2 => "getChildren2",
            Self::Check => "check",
            Self::Multi => "multi",
            Self::Create2 => "create2",
            Self::Reconfig => "reconfig",
            Self::CheckWatches => "checkWatches",
            Self::RemoveWatches => "removeWatches",
            Self::CreateContainer => "createContainer",
            Self::DeleteContainer => "deleteContainer",
            Self::CreateTtl => "createTTL",
            Self::MultiRead => "multiRead",
            Self::Auth => "auth",
            Self::SetWatches => "setWatches",
            Self::Sasl => "sasl",
            Self::GetEphemerals => "getEphemerals",
            Self::GetAllChildrenNumber => "getAllChildrenNumber",
            Self::SetWatches2 => "setWatches2",
            Self::AddWatch => "addWatch",
            Self::WhoAmI => "whoAmI",
            Self::CreateSession => "createSession",
            Self::CloseSession => "closeSession",
        }
    }
}

impl OpCode {
    /// Verb for messages, in front of the path that the operation is about: `read` for both forms
    /// of a read, whatever the protocol calls them. For messages to people.
    #[must_use]
    pub const fn action(self) -> &'static str {
        match self {
            Self::Notification => "notify of",
            Self::Create | Self::Create2 | Self::CreateContainer | Self::CreateTtl => "create",
            Self::Delete | Self::DeleteContainer => "delete",
            Self::Exists => "look for",
            Self::GetData => "read",
            Self::SetData => "write",
            Self::GetAcl => "read the ACL of",
            Self::SetAcl => "set the ACL of",
            Self::GetChildren | Self::GetChildren2 => "list the children of",
            Self::Sync => "sync",
            Self::Ping => "ping",
            Self::Check => "check the version of",
            Self::Multi => "transaction",
            Self::Reconfig => "reconfigure",
            Self::CheckWatches => "check the watches on",
            Self::RemoveWatches => "remove the watches on",
            Self::MultiRead => "read several nodes",
            Self::Auth | Self::Sasl => "authenticate",
            Self::SetWatches | Self::SetWatches2 => "set the watches again",
            Self::GetEphemerals => "list the ephemerals below",
            Self::GetAllChildrenNumber => "count the nodes below",
            Self::AddWatch => "watch",
            Self::WhoAmI => "ask for the identities",
            Self::CreateSession => "open the session",
            Self::CloseSession => "close the session",
        }
    }
}

impl TryFrom<i32> for OpCode {
    type Error = UnknownOp;

    fn try_from(code: i32) -> Result<Self, UnknownOp> {
        Ok(match code {
            0 => Self::Notification,
            1 => Self::Create,
            2 => Self::Delete,
            3 => Self::Exists,
            4 => Self::GetData,
            5 => Self::SetData,
            6 => Self::GetAcl,
            7 => Self::SetAcl,
            8 => Self::GetChildren,
            9 => Self::Sync,
            11 => Self::Ping,
            12 => Self::GetChildren2,
            13 => Self::Check,
            14 => Self::Multi,
            15 => Self::Create2,
            16 => Self::Reconfig,
            17 => Self::CheckWatches,
            18 => Self::RemoveWatches,
            19 => Self::CreateContainer,
            20 => Self::DeleteContainer,
            21 => Self::CreateTtl,
            22 => Self::MultiRead,
            100 => Self::Auth,
            101 => Self::SetWatches,
            102 => Self::Sasl,
            103 => Self::GetEphemerals,
            104 => Self::GetAllChildrenNumber,
            105 => Self::SetWatches2,
            106 => Self::AddWatch,
            107 => Self::WhoAmI,
            -10 => Self::CreateSession,
            -11 => Self::CloseSession,
            unknown => return Err(UnknownOp(unknown)),
        })
    }
}

impl fmt::Display for OpCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::OpCode;

    #[test]
    fn what_an_operation_does_is_said_in_words_and_not_by_the_protocols_name() {
        for op in OpCode::ALL {
            let action = op.action();
            let words = action.split(' ').all(|word| {
                word == "ACL" || word.chars().all(|letter| letter.is_ascii_lowercase())
            });
            assert!(words && !action.is_empty(), "{op}: {action:?}");
        }
        assert_eq!(OpCode::Create2.action(), OpCode::CreateTtl.action());
    }
}
