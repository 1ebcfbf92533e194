//! Classes of operations by the part of the server that handles them.

use baton_proto::{ErrorCode, Limits, OpCode, Request};

/// Part of the server that handles a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Ping,
    /// At once, or at its place behind the session's writes.
    Read(OpCode),
    /// Through the log.
    Write(OpCode),
    CloseSession,
    Auth,
    /// A step of a SASL exchange.
    Sasl,
    /// Answered with `NotReadOnly`: it needs a leader, and the session is one of read-only mode.
    NotReadOnly,
    /// Answered with this code; then the connection is closed (protocol.md §1.4).
    Refused(ErrorCode),
}

impl Class {
    /// The class of a request. `is_member`: the server is one of an ensemble.
    pub(crate) fn of_request(op: i32, body: &[u8], limits: &Limits, is_member: bool) -> Class {
        match Class::of(op) {
            // Behind everything that the leader has committed: its place in the log says what that
            // is.
            Class::Read(OpCode::Sync) if is_member => Class::Write(OpCode::Sync),
            // As in ZooKeeper, a reconfiguration that cannot be decoded takes no zxid; other writes
            // take one.
            Class::Write(op @ OpCode::Reconfig) if Request::decode(op, body, limits).is_err() => {
                Class::Read(op)
            }
            class => class,
        }
    }

    /// The class of a request of a session of read-only mode, which the core knows nothing of.
    pub(crate) fn in_read_only_mode(op: i32) -> Class {
        match Class::of(op) {
            Class::Write(_) | Class::Read(OpCode::Sync) => Class::NotReadOnly,
            class => class,
        }
    }

    /// The class of an operation, by its code alone.
    pub(crate) fn of(op: i32) -> Class {
        let Ok(op) = OpCode::try_from(op) else {
            return Class::Refused(ErrorCode::Unimplemented);
        };
        match op {
            OpCode::Ping => Class::Ping,
            OpCode::Auth => Class::Auth,
            OpCode::Sasl => Class::Sasl,
            OpCode::CloseSession => Class::CloseSession,
            OpCode::Create
            | OpCode::Create2
            | OpCode::CreateContainer
            | OpCode::CreateTtl
            | OpCode::Delete
            | OpCode::SetData
            | OpCode::SetAcl
            | OpCode::Multi
            | OpCode::Reconfig => Class::Write(op),
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
            | OpCode::WhoAmI => Class::Read(op),
            OpCode::Notification
            | OpCode::Check
            | OpCode::DeleteContainer
            | OpCode::CreateSession => Class::Refused(ErrorCode::Unimplemented),
        }
    }
}

/// The operation of a request by which a client proves who it is.
pub(crate) fn proof(op: i32) -> Option<OpCode> {
    // By the numbers: each request is asked this.
    const AUTH: i32 = OpCode::Auth as i32;
    const SASL: i32 = OpCode::Sasl as i32;
    match op {
        AUTH => Some(OpCode::Auth),
        SASL => Some(OpCode::Sasl),
        _ => None,
    }
}

/// Whether a read is answered in slices, by the connection's task alone: it may cost far more than
/// it has bytes.
pub(crate) fn is_sliced(op: i32) -> bool {
    const MULTI_READ: i32 = OpCode::MultiRead as i32;
    const SET_WATCHES: i32 = OpCode::SetWatches as i32;
    const SET_WATCHES2: i32 = OpCode::SetWatches2 as i32;
    const EPHEMERALS: i32 = OpCode::GetEphemerals as i32;
    matches!(op, MULTI_READ | SET_WATCHES | SET_WATCHES2 | EPHEMERALS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_read_only_mode_nothing_goes_into_the_log() {
        for op in (-20..=110).filter_map(|op| OpCode::try_from(op).ok()) {
            let class = Class::in_read_only_mode(op as i32);
            assert!(!matches!(class, Class::Write(_)), "{op}");
            let is_write = matches!(Class::of(op as i32), Class::Write(_));
            assert_eq!(
                class == Class::NotReadOnly,
                is_write || op == OpCode::Sync,
                "{op}"
            );
        }
    }

    #[test]
    fn a_sync_takes_its_place_in_the_log_of_an_ensemble_and_is_a_read_elsewhere() {
        let of = |op: OpCode, is_member| {
            Class::of_request(op as i32, &[], &Limits::default(), is_member)
        };
        assert_eq!(of(OpCode::Sync, false), Class::Read(OpCode::Sync));
        assert_eq!(of(OpCode::Sync, true), Class::Write(OpCode::Sync));
        for op in [OpCode::GetData, OpCode::Create] {
            assert_eq!(of(op, true), of(op, false));
        }
    }
}
