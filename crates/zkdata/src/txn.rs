//! One transaction's bytes. Owns the layouts of all versions since 3.4, distinguished as ZooKeeper
//! does: by trying the newer first.

use baton_proto::{Acl, DecodeError, DecodeErrorKind, Decoder};

use crate::input::LIMITS;

/// A transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Txn<'a> {
    CreateSession {
        timeout_ms: i32,
    },
    /// With the paths of the ephemerals that go, if the server wrote them.
    CloseSession {
        paths: Vec<&'a str>,
    },
    Create(CreateTxn<'a>),
    Delete {
        path: &'a str,
    },
    SetData {
        path: &'a str,
        data: Option<&'a [u8]>,
        version: i32,
    },
    SetAcl {
        path: &'a str,
        acl: Vec<Acl<'a>>,
        version: i32,
    },
    /// A check that held, or an error that took a zxid.
    Nothing,
    /// All of these, or none if one of them failed.
    Multi(Vec<Txn<'a>>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CreateTxn<'a> {
    pub(crate) path: &'a str,
    pub(crate) data: Option<&'a [u8]>,
    pub(crate) acl: Vec<Acl<'a>>,
    pub(crate) life: NodeLifetime,
    /// The parent's count of creates after this one; not in the oldest logs.
    pub(crate) parent_cversion: Option<i32>,
}

/// Lifetime of a created znode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeLifetime {
    Persistent,
    Ephemeral,
    Container,
    Ttl(i64),
}

/// Header of each transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) session: i64,
    pub(crate) zxid: i64,
    pub(crate) time_ms: i64,
    kind: i32,
}

/// A transaction as the log holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) header: Header,
    pub(crate) txn: Txn<'a>,
    /// Version and value.
    pub(crate) digest: Option<(i32, i64)>,
}

mod code {
    pub(super) const CREATE: i32 = 1;
    pub(super) const DELETE: i32 = 2;
    pub(super) const SET_DATA: i32 = 5;
    pub(super) const SET_ACL: i32 = 7;
    pub(super) const CHECK: i32 = 13;
    pub(super) const MULTI: i32 = 14;
    pub(super) const CREATE2: i32 = 15;
    pub(super) const RECONFIG: i32 = 16;
    pub(super) const CREATE_CONTAINER: i32 = 19;
    pub(super) const DELETE_CONTAINER: i32 = 20;
    pub(super) const CREATE_TTL: i32 = 21;
    pub(super) const CREATE_SESSION: i32 = -10;
    pub(super) const CLOSE_SESSION: i32 = -11;
    pub(super) const ERROR: i32 = -1;
}

/// The field that an error names when the kind of a transaction is unknown.
pub(crate) const TYPE: &str = "TxnHeader.type";
/// Bytes of a digest.
const DIGEST_BYTES: usize = 12;

impl<'a> Record<'a> {
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut from = Decoder::new(bytes, &LIMITS);
        let session = from.i64("TxnHeader.clientId")?;
        from.i32("TxnHeader.cxid")?;
        let header = Header {
            session,
            zxid: from.i64("TxnHeader.zxid")?,
            time_ms: from.i64("TxnHeader.time")?,
            kind: from.i32(TYPE)?,
        };
        let txn = if header.kind == code::CLOSE_SESSION {
            close_session(&mut from)
        } else if header.kind == code::MULTI {
            multi(&mut from)?
        } else {
            txn_body(header.kind, &mut from)?
        };
        let digest = if from.rest().len() >= DIGEST_BYTES {
            Some((
                from.i32("TxnDigest.version")?,
                from.i64("TxnDigest.treeDigest")?,
            ))
        } else {
            None
        };
        if !from.is_empty() {
            return Err(from.error(
                "end of the transaction",
                DecodeErrorKind::UnknownValue(from.rest().len() as i32),
            ));
        }
        Ok(Self {
            header,
            txn,
            digest,
        })
    }
}

/// The list of paths may be missing; what is there is then the digest or nothing.
fn close_session<'a>(from: &mut Decoder<'a>) -> Txn<'a> {
    let mut attempt = from.clone();
    let paths = attempt.strings("CloseSessionTxn.paths2Delete");
    let left = attempt.rest().len();
    match paths {
        Ok(paths) if left == 0 || left == DIGEST_BYTES => {
            *from = attempt;
            Txn::CloseSession { paths }
        }
        _ => Txn::CloseSession { paths: Vec::new() },
    }
}

fn multi<'a>(from: &mut Decoder<'a>) -> Result<Txn<'a>, DecodeError> {
    let mut txns = Vec::new();
    let mut failed = false;
    for _ in 0..from.optional_count(8, "MultiTxn.txns")?.unwrap_or(0) {
        let at = from.clone();
        let kind = from.i32("Txn.type")?;
        let bytes = from.buffer("Txn.data")?.unwrap_or_default();
        failed |= kind == code::ERROR;
        if matches!(
            kind,
            code::CREATE_SESSION | code::CLOSE_SESSION | code::MULTI
        ) {
            return Err(at.error(TYPE, DecodeErrorKind::UnknownValue(kind)));
        }
        let inner = txn_body(kind, &mut Decoder::new(bytes, &LIMITS));
        txns.push(inner.map_err(|error| at.error(error.field, error.kind))?);
    }
    // A failed multi is logged with what it would have done.
    if failed {
        txns.clear();
    }
    Ok(Txn::Multi(txns))
}

fn txn_body<'a>(kind: i32, from: &mut Decoder<'a>) -> Result<Txn<'a>, DecodeError> {
    Ok(match kind {
        code::CREATE | code::CREATE2 => {
            let (path, data, acl) = created(from)?;
            let life = if from.bool("CreateTxn.ephemeral")? {
                NodeLifetime::Ephemeral
            } else {
                NodeLifetime::Persistent
            };
            // The oldest logs end here; a digest cannot follow there.
            let parent_cversion = if from.is_empty() {
                None
            } else {
                parent_cversion(from)?
            };
            Txn::Create(CreateTxn {
                path,
                data,
                acl,
                life,
                parent_cversion,
            })
        }
        code::CREATE_CONTAINER | code::CREATE_TTL => {
            let (path, data, acl) = created(from)?;
            let parent_cversion = parent_cversion(from)?;
            let life = if kind == code::CREATE_TTL {
                NodeLifetime::Ttl(from.i64("CreateTTLTxn.ttl")?)
            } else {
                NodeLifetime::Container
            };
            Txn::Create(CreateTxn {
                path,
                data,
                acl,
                life,
                parent_cversion,
            })
        }
        code::DELETE | code::DELETE_CONTAINER => Txn::Delete {
            path: from.string("DeleteTxn.path")?,
        },
        code::SET_DATA | code::RECONFIG => Txn::SetData {
            path: from.string("SetDataTxn.path")?,
            data: from.buffer("SetDataTxn.data")?,
            version: from.i32("SetDataTxn.version")?,
        },
        code::SET_ACL => Txn::SetAcl {
            path: from.string("SetACLTxn.path")?,
            acl: Acl::decode_list(from, "SetACLTxn.acl")?.unwrap_or_default(),
            version: from.i32("SetACLTxn.version")?,
        },
        code::CHECK => {
            from.string("CheckVersionTxn.path")?;
            from.i32("CheckVersionTxn.version")?;
            Txn::Nothing
        }
        code::CREATE_SESSION => Txn::CreateSession {
            timeout_ms: from.i32("CreateSessionTxn.timeOut")?,
        },
        code::ERROR => {
            from.i32("ErrorTxn.err")?;
            Txn::Nothing
        }
        _ => return Err(from.error(TYPE, DecodeErrorKind::UnknownValue(kind))),
    })
}

type Created<'a> = (&'a str, Option<&'a [u8]>, Vec<Acl<'a>>);

fn created<'a>(from: &mut Decoder<'a>) -> Result<Created<'a>, DecodeError> {
    Ok((
        from.string("CreateTxn.path")?,
        from.buffer("CreateTxn.data")?,
        Acl::decode_list(from, "CreateTxn.acl")?.unwrap_or_default(),
    ))
}

fn parent_cversion(from: &mut Decoder<'_>) -> Result<Option<i32>, DecodeError> {
    let count = from.i32("CreateTxn.parentCVersion")?;
    Ok((count != -1).then_some(count))
}
