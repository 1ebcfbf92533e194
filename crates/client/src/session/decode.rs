//! Values from replies: one function a kind of answer.
//!
//! Owns what a reply's body must hold for its operation. It must never guess: an answer of another
//! kind is a fault of the server.

use baton_proto::{EnsembleConfig, ErrorCode, MultiResult, OpCode, Response, Stat};
use bytes::Bytes;

use crate::session::outcome::Reply;
use crate::session::pending::{DecodeContext, ReplyFault, body, local_path, unexpected};
use crate::session::watch::Watch;
use crate::values::{Children, CreatedNode, Data, OpResult};

pub(super) fn watch(luggage: &mut DecodeContext) -> Result<Watch, ReplyFault> {
    luggage
        .watch
        .take()
        .ok_or_else(|| ReplyFault::Garbled("answered twice".to_owned()))
}

pub(super) fn created(reply: Reply, chroot: &str) -> Result<CreatedNode, ReplyFault> {
    match body(reply, OpCode::Create2)? {
        Response::PathStat(path, stat) => Ok(CreatedNode {
            path: local_path(chroot, path),
            stat,
        }),
        _ => unexpected(OpCode::Create2),
    }
}

pub(super) fn stat(reply: Reply, op: OpCode) -> Result<Stat, ReplyFault> {
    match body(reply, op)? {
        Response::Stat(stat) => Ok(stat),
        _ => unexpected(op),
    }
}

pub(super) fn exists(reply: Reply) -> Result<Option<Stat>, ReplyFault> {
    if reply.err == ErrorCode::NoNode {
        return Ok(None);
    }
    stat(reply, OpCode::Exists).map(Some)
}

pub(super) fn data(reply: Reply) -> Result<Data, ReplyFault> {
    match body(reply, OpCode::GetData)? {
        // Copied, so that a value kept for long does not keep the whole read buffer.
        Response::Data { data, stat } => {
            let data = data
                .map(|bytes| Bytes::copy_from_slice(&bytes))
                .unwrap_or_default();
            Ok(Data { data, stat })
        }
        _ => unexpected(OpCode::GetData),
    }
}

/// The answer to a read of `/zookeeper/config` and that to a change of members are alike.
pub(super) fn ensemble_config(reply: Reply, op: OpCode) -> Result<EnsembleConfig, ReplyFault> {
    match body(reply, op)? {
        Response::Data { data, .. } => EnsembleConfig::parse(&data.unwrap_or_default())
            .map_err(|error| ReplyFault::Garbled(error.to_string())),
        _ => unexpected(op),
    }
}

pub(super) fn children(reply: Reply) -> Result<Children, ReplyFault> {
    match body(reply, OpCode::GetChildren2)? {
        Response::Children2 { children, stat } => Ok(Children {
            names: children,
            stat,
        }),
        _ => unexpected(OpCode::GetChildren2),
    }
}

/// A refused multi comes as a success with the codes inside: 0 before the culprit, -2 behind it
/// (`protocol.md` §1.9).
pub(super) fn multi(reply: Reply, chroot: &str) -> Result<Vec<OpResult>, ReplyFault> {
    let Response::Multi(results) = body(reply, OpCode::Multi)? else {
        return unexpected(OpCode::Multi);
    };
    let codes: Vec<ErrorCode> = results.iter().filter_map(MultiResult::error).collect();
    if !codes.is_empty() {
        let culprit =
            |code: &ErrorCode| !matches!(code, ErrorCode::Ok | ErrorCode::RuntimeInconsistency);
        let index = codes.iter().position(culprit);
        let index = index
            .or_else(|| codes.iter().position(|code| *code != ErrorCode::Ok))
            .unwrap_or(0);
        return Err(ReplyFault::Part(
            index,
            codes.get(index).copied().unwrap_or(ErrorCode::SystemError),
        ));
    }
    let one = |result| match result {
        MultiResult::Create2 { path, stat } => Ok(OpResult::Created {
            path: local_path(chroot, path),
            stat: Some(stat),
        }),
        // Apache ZooKeeper 3.8 answers op 15 within a multi as if it were op 1.
        MultiResult::Create { path } => Ok(OpResult::Created {
            path: local_path(chroot, path),
            stat: None,
        }),
        MultiResult::Delete => Ok(OpResult::Deleted),
        MultiResult::SetData(stat) => Ok(OpResult::DataSet(stat)),
        MultiResult::Check => Ok(OpResult::Checked),
        _ => unexpected(OpCode::Multi),
    };
    results.into_iter().map(one).collect()
}
