//! The layouts of `multi` and `multiRead` (protocol.md §1.9): a chain of headers and sub-records,
//! closed by a header that says so. Which kinds may stand in which chain is checked here; atomicity
//! is the tree's.

use bytes::{BufMut, Bytes};

use crate::fields::{Field, decode_bytes, owned_strings};
use crate::wire::{put_bool, put_buffer, put_count, put_string};
use crate::{Create, DecodeError, DecodeErrorKind, Decoder, ErrorCode, OpCode, Stat};

/// Type of a result that is an error, and of the closing header.
const TYPE_ERROR: i32 = -1;

/// One operation inside a multi (the writes and `Check`) or a multiRead (the reads).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MultiOp<'a> {
    /// Create a znode.
    Create(Create<'a>),
    /// Delete a znode.
    Delete {
        /// Path of the znode.
        path: &'a str,
        /// The expected version, -1 for any.
        version: i32,
    },
    /// Write data.
    SetData {
        /// Path of the znode.
        path: &'a str,
        /// The data; `None` is null.
        data: Option<&'a [u8]>,
        /// The expected version, -1 for any.
        version: i32,
    },
    /// Fail the whole multi unless the version is as expected.
    Check {
        /// Path of the znode.
        path: &'a str,
        /// The expected version, -1 for any (then it checks that the znode exists).
        version: i32,
    },
    /// Read data.
    GetData {
        /// Path of the znode.
        path: &'a str,
        /// Sent, but ignored by servers.
        watch: bool,
    },
    /// Read the names of the children.
    GetChildren {
        /// Path of the znode.
        path: &'a str,
        /// Sent, but ignored by servers.
        watch: bool,
    },
}

impl<'a> MultiOp<'a> {
    /// The op code in the sub-operation's header.
    #[must_use]
    pub const fn op(&self) -> OpCode {
        match self {
            Self::Create(create) => create.op.op(),
            Self::Delete { .. } => OpCode::Delete,
            Self::SetData { .. } => OpCode::SetData,
            Self::Check { .. } => OpCode::Check,
            Self::GetData { .. } => OpCode::GetData,
            Self::GetChildren { .. } => OpCode::GetChildren,
        }
    }

    /// The path it is about.
    #[must_use]
    pub const fn path(&self) -> &'a str {
        match self {
            Self::Create(create) => create.path,
            Self::Delete { path, .. }
            | Self::SetData { path, .. }
            | Self::Check { path, .. }
            | Self::GetData { path, .. }
            | Self::GetChildren { path, .. } => path,
        }
    }

    fn encode_body(&self, out: &mut impl BufMut) {
        match self {
            Self::Create(create) => create.encode(out),
            Self::Delete { path, version } | Self::Check { path, version } => {
                path.put(out);
                version.put(out);
            }
            Self::SetData {
                path,
                data,
                version,
            } => {
                path.put(out);
                data.put(out);
                version.put(out);
            }
            Self::GetData { path, watch } | Self::GetChildren { path, watch } => {
                path.put(out);
                watch.put(out);
            }
        }
    }

    /// Writes the chain.
    pub(crate) fn encode_chain(ops: &[Self], out: &mut impl BufMut) {
        for op in ops {
            put_header(out, op.op().code(), false, -1);
            op.encode_body(out);
        }
        put_header(out, TYPE_ERROR, true, -1);
    }

    /// Reads a chain of writes (`multi`) or of reads (`multiRead`). `decode` reads the body of one
    /// operation; it returns `None` for one that cannot be in a chain.
    pub(crate) fn decode_chain(
        chain: OpCode,
        from: &mut Decoder<'a>,
        decode: impl Fn(OpCode, &mut Decoder<'a>) -> Result<Option<Self>, DecodeError>,
    ) -> Result<Vec<Self>, DecodeError> {
        let mut ops = Vec::new();
        while let Some(kind) = next_header(from)? {
            let unknown = |from: &Decoder<'_>| {
                from.error("MultiHeader.type", DecodeErrorKind::UnknownValue(kind))
            };
            let op = OpCode::try_from(kind).map_err(|_| unknown(from))?;
            if !allowed(chain, op) {
                return Err(unknown(from));
            }
            let decoded = decode(op, from)?;
            ops.push(decoded.ok_or_else(|| unknown(from))?);
        }
        Ok(ops)
    }
}

fn allowed(chain: OpCode, op: OpCode) -> bool {
    let read = matches!(op, OpCode::GetData | OpCode::GetChildren);
    let write = matches!(
        op,
        OpCode::Create
            | OpCode::Create2
            | OpCode::CreateContainer
            | OpCode::CreateTtl
            | OpCode::Delete
            | OpCode::SetData
            | OpCode::Check
    );
    if chain == OpCode::MultiRead {
        read
    } else {
        write
    }
}

/// The type in the next header of a chain; `None` where the chain ends.
fn next_header(from: &mut Decoder<'_>) -> Result<Option<i32>, DecodeError> {
    let kind = from.i32("MultiHeader.type")?;
    let done = from.bool("MultiHeader.done")?;
    from.i32("MultiHeader.err")?;
    Ok((!done).then_some(kind))
}

fn put_header(out: &mut impl BufMut, kind: i32, done: bool, err: i32) {
    out.put_i32(kind);
    put_bool(out, done);
    out.put_i32(err);
}

/// The outcome of one operation of a multi or multiRead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MultiResult {
    /// Created by op 1: the path, with its number where it has one.
    Create {
        /// The path.
        path: String,
    },
    /// Created by op 15, 19 or 21.
    Create2 {
        /// The path, with its number where it has one.
        path: String,
        /// The new znode's stat.
        stat: Stat,
    },
    /// Deleted.
    Delete,
    /// Written.
    SetData(Stat),
    /// The version was as expected.
    Check,
    /// Data, in a multiRead.
    Data {
        /// The data; `None` is null.
        data: Option<Bytes>,
        /// The znode's stat.
        stat: Stat,
    },
    /// Names of the children, in a multiRead.
    Children(Vec<String>),
    /// Failed. When a multi fails, the operations before the culprit have [`ErrorCode::Ok`], the
    /// culprit has its code, and those after it have [`ErrorCode::RuntimeInconsistency`].
    Error(ErrorCode),
}

impl MultiResult {
    /// The error, if it is one (also [`ErrorCode::Ok`], which fills the places before the culprit).
    #[must_use]
    pub const fn error(&self) -> Option<ErrorCode> {
        match self {
            Self::Error(code) => Some(*code),
            _ => None,
        }
    }

    /// The results of a multi that failed at `culprit`, in ZooKeeper's layout.
    #[must_use]
    pub fn failure(len: usize, culprit: usize, code: ErrorCode) -> Vec<Self> {
        (0..len)
            .map(|index| match index.cmp(&culprit) {
                std::cmp::Ordering::Less => Self::Error(ErrorCode::Ok),
                std::cmp::Ordering::Equal => Self::Error(code),
                std::cmp::Ordering::Greater => Self::Error(ErrorCode::RuntimeInconsistency),
            })
            .collect()
    }

    /// Writes the result as a part of a chain.
    pub fn encode(&self, out: &mut impl BufMut) {
        let mut header = |op: OpCode| put_header(out, op.code(), false, 0);
        match self {
            Self::Create { path } => {
                header(OpCode::Create);
                put_string(out, path);
            }
            Self::Create2 { path, stat } => {
                header(OpCode::Create2);
                put_string(out, path);
                stat.encode(out);
            }
            Self::Delete => header(OpCode::Delete),
            Self::SetData(stat) => {
                header(OpCode::SetData);
                stat.encode(out);
            }
            Self::Check => header(OpCode::Check),
            Self::Data { data, stat } => Self::put_data(out, data.as_deref(), stat),
            Self::Children(names) => {
                Self::begin_children(out, names.len());
                for name in names {
                    put_string(out, name);
                }
            }
            Self::Error(code) => {
                put_header(out, TYPE_ERROR, false, code.code());
                out.put_i32(code.code());
            }
        }
    }

    /// Writes the chain.
    pub(crate) fn encode_chain(results: &[Self], out: &mut impl BufMut) {
        for result in results {
            result.encode(out);
        }
        Self::end_chain(out);
    }

    /// Ends a chain whose results were written one by one.
    pub fn end_chain(out: &mut impl BufMut) {
        put_header(out, TYPE_ERROR, true, -1);
    }

    /// Writes a result of [`MultiResult::Data`] from where the data lives.
    pub fn put_data(out: &mut impl BufMut, data: Option<&[u8]>, stat: &Stat) {
        put_header(out, OpCode::GetData.code(), false, 0);
        put_buffer(out, data);
        stat.encode(out);
    }

    /// Begins a result of [`MultiResult::Children`]: that many names follow.
    pub fn begin_children(out: &mut impl BufMut, names: usize) {
        put_header(out, OpCode::GetChildren.code(), false, 0);
        put_count(out, names);
    }

    /// Reads the chain; `whole` is the buffer that `from` reads, so that data can be shared with
    /// it.
    pub(crate) fn decode_chain(
        whole: &Bytes,
        from: &mut Decoder<'_>,
    ) -> Result<Vec<Self>, DecodeError> {
        let mut results = Vec::new();
        while let Some(kind) = next_header(from)? {
            if kind == TYPE_ERROR {
                results.push(Self::Error(ErrorCode::from_code(
                    from.i32("ErrorResponse.err")?,
                )));
                continue;
            }
            results.push(match OpCode::try_from(kind) {
                Ok(OpCode::Create) => Self::Create {
                    path: from.string("CreateResponse.path")?.to_owned(),
                },
                Ok(OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl) => {
                    Self::Create2 {
                        path: from.string("Create2Response.path")?.to_owned(),
                        stat: Stat::decode(from)?,
                    }
                }
                Ok(OpCode::Delete) => Self::Delete,
                Ok(OpCode::SetData) => Self::SetData(Stat::decode(from)?),
                Ok(OpCode::Check) => Self::Check,
                Ok(OpCode::GetData) => Self::Data {
                    data: decode_bytes(whole, from, "GetDataResponse.data")?,
                    stat: Stat::decode(from)?,
                },
                Ok(OpCode::GetChildren) => {
                    Self::Children(owned_strings(from, "GetChildrenResponse.children")?)
                }
                _ => {
                    return Err(from.error("MultiHeader.type", DecodeErrorKind::UnknownValue(kind)));
                }
            });
        }
        Ok(results)
    }
}
