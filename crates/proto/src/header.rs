//! The headers before every request and every reply but the handshake's, and the xids with a
//! meaning of their own (protocol.md §1.3).

use bytes::BufMut;

use crate::{DecodeError, Decoder, ErrorCode};

/// xids that mean something other than "the answer to that request".
pub mod xid {
    /// A watch event, server to client.
    pub const NOTIFICATION: i32 = -1;
    /// A ping and its answer.
    pub const PING: i32 = -2;
    /// An [`crate::AuthPacket`] and its answer.
    pub const AUTH: i32 = -4;
    /// `setWatches`, `setWatches2` and their answer.
    pub const SET_WATCHES: i32 = -8;
    /// A [`crate::TraceContext`], client to server; it has no answer.
    pub const TRACE_CONTEXT: i32 = -64;
}

/// Header before a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestHeader {
    /// The number that the reply will carry; replies come in request order.
    pub xid: i32,
    /// The op code, as sent: an unknown one needs its own answer, so it is not an error here.
    pub op: i32,
}

impl RequestHeader {
    /// Size on the wire.
    pub const BYTES: usize = 8;

    /// Writes the header.
    pub fn encode(&self, out: &mut impl BufMut) {
        out.put_i32(self.xid);
        out.put_i32(self.op);
    }

    /// Reads the header.
    ///
    /// # Errors
    /// Fewer than 8 bytes are left.
    pub fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            xid: from.i32("RequestHeader.xid")?,
            op: from.i32("RequestHeader.type")?,
        })
    }
}

/// Header before a reply's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReplyHeader {
    /// The request's xid, or one of [`xid`].
    pub xid: i32,
    /// The last zxid that the server had applied when it built the reply.
    pub zxid: i64,
    /// 0, or a code of [`ErrorCode`]; with an error there is no body.
    pub err: i32,
}

impl ReplyHeader {
    /// Size on the wire.
    pub const BYTES: usize = 16;

    /// The header's error as a type.
    #[must_use]
    pub fn error(&self) -> ErrorCode {
        ErrorCode::from_code(self.err)
    }

    /// Writes the header.
    pub fn encode(&self, out: &mut impl BufMut) {
        out.put_i32(self.xid);
        out.put_i64(self.zxid);
        out.put_i32(self.err);
    }

    /// Reads the header.
    ///
    /// # Errors
    /// Fewer than 16 bytes are left.
    pub fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            xid: from.i32("ReplyHeader.xid")?,
            zxid: from.i64("ReplyHeader.zxid")?,
            err: from.i32("ReplyHeader.err")?,
        })
    }
}
