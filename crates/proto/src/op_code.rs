//! Op codes (protocol.md §1.4): the number that says what a request is.

use std::fmt;

/// Declares the operations: a row is `NUMBER Variant "protocol's name": "documentation";`.
macro_rules! op_codes {
    ($($code:literal $variant:ident $name:literal: $doc:literal;)*) => {
        /// An operation of the client protocol.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(i32)]
        pub enum OpCode {
            $(#[doc = $doc] $variant = $code,)*
        }

        impl OpCode {
            /// Every op code.
            pub const ALL: [Self; [$($code),*].len()] = [$(Self::$variant),*];

            /// The number on the wire.
            #[must_use]
            pub const fn code(self) -> i32 {
                self as i32
            }

            /// The protocol's own name for the operation.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        impl TryFrom<i32> for OpCode {
            type Error = UnknownOp;

            fn try_from(code: i32) -> Result<Self, UnknownOp> {
                match code {
                    $($code => Ok(Self::$variant),)*
                    unknown => Err(UnknownOp(unknown)),
                }
            }
        }
    };
}

op_codes! {
    0 Notification "notification": "Server to client only; refused from clients.";
    1 Create "create": "Create a znode; the reply is its path.";
    2 Delete "delete": "Delete a znode.";
    3 Exists "exists": "Stat of a znode, or a watch for its creation.";
    4 GetData "getData": "Data and stat.";
    5 SetData "setData": "Write data.";
    6 GetAcl "getACL": "ACL and stat.";
    7 SetAcl "setACL": "Write the ACL.";
    8 GetChildren "getChildren": "Names of the children.";
    9 Sync "sync": "Catch up with the leader.";
    11 Ping "ping": "Keep the session alive.";
    12 GetChildren2 "getChildren2": "Names of the children, and stat.";
    13 Check "check": "Check a version; only inside a multi.";
    14 Multi "multi": "Several writes, all or none.";
    15 Create2 "create2": "Create a znode; the reply is its path and stat.";
    16 Reconfig "reconfig": "Change the ensemble's membership.";
    17 CheckWatches "checkWatches": "Whether this connection has such a watch.";
    18 RemoveWatches "removeWatches": "Remove watches of this connection.";
    19 CreateContainer "createContainer": "Create a container.";
    20 DeleteContainer "deleteContainer":
        "Delete a container that became empty; internal to servers.";
    21 CreateTtl "createTTL": "Create a znode that ends when it is not written for a while.";
    22 MultiRead "multiRead": "Several reads, each with its own outcome.";
    100 Auth "auth": "Add credentials to the connection.";
    101 SetWatches "setWatches": "Arm one-shot watches again after a reconnect.";
    102 Sasl "sasl": "One step of a SASL exchange.";
    103 GetEphemerals "getEphemerals": "Paths of this session's ephemerals.";
    104 GetAllChildrenNumber "getAllChildrenNumber": "Number of all descendants.";
    105 SetWatches2 "setWatches2": "Arm all watches again after a reconnect.";
    106 AddWatch "addWatch": "Add a persistent watch.";
    107 WhoAmI "whoAmI": "List the identities of this connection.";
    -10 CreateSession "createSession": "Open a session; internal to servers.";
    -11 CloseSession "closeSession": "Close the session.";
}

/// An op code that the protocol does not know; the answer is `Unimplemented`, then the connection
/// is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("op code {0} is not part of the protocol")]
pub struct UnknownOp(pub i32);

impl OpCode {
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
