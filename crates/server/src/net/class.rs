//! Which part of the server deals with an operation. Looks at its code alone.

use baton_proto::{ErrorCode, OpCode};

/// Who deals with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Ping,
    /// At once, or at its place behind the session's writes.
    Read(OpCode),
    /// Through the log.
    Write(OpCode),
    CloseSession,
    Auth,
    /// Answered with this code; then the connection is closed (protocol.md §1.4).
    Refused(ErrorCode),
}

impl Class {
    pub(super) fn of(op: i32) -> Class {
        let Ok(op) = OpCode::try_from(op) else {
            return Class::Refused(ErrorCode::Unimplemented);
        };
        match op {
            OpCode::Ping => Class::Ping,
            OpCode::Auth => Class::Auth,
            OpCode::CloseSession => Class::CloseSession,
            OpCode::Create
            | OpCode::Create2
            | OpCode::CreateContainer
            | OpCode::CreateTtl
            | OpCode::Delete
            | OpCode::SetData
            | OpCode::SetAcl
            | OpCode::Multi => Class::Write(op),
            OpCode::Exists
            | OpCode::GetData
            | OpCode::GetAcl
            | OpCode::GetChildren
            | OpCode::GetChildren2
            | OpCode::Sync
            | OpCode::MultiRead
            | OpCode::CheckWatches
            | OpCode::RemoveWatches
            | OpCode::SetWatches
            | OpCode::SetWatches2
            | OpCode::GetEphemerals
            | OpCode::GetAllChildrenNumber
            | OpCode::AddWatch
            | OpCode::WhoAmI
            | OpCode::Reconfig
            | OpCode::Sasl => Class::Read(op),
            OpCode::Notification
            | OpCode::Check
            | OpCode::DeleteContainer
            | OpCode::CreateSession => Class::Refused(ErrorCode::Unimplemented),
        }
    }
}
