//! Frames (protocol.md §1.1): a 32-bit big-endian length, then that many bytes. Splits what a
//! socket has read and wraps what is to be written. Knows nothing of what is inside, and never
//! reads or writes a socket.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::event::put_event;
use crate::{
    ConnectRequest, ConnectResponse, EventKind, KeeperState, ReplyHeader, Request, RequestHeader,
    Response, TraceContext, xid,
};

/// Size of the length before each frame.
pub const LENGTH_BYTES: usize = 4;

/// A length that no peer with this protocol sends. The connection cannot be used further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Below zero: most often not this protocol at all.
    #[error("frame length {0} is negative; the peer does not speak this protocol")]
    Negative(i32),
    /// Over the limit.
    #[error(
        "frame of {length} bytes exceeds the limit of {max} bytes; raise the limit or send less"
    )]
    TooLong {
        /// The claimed length in bytes.
        length: usize,
        /// The limit in bytes.
        max: usize,
    },
}

/// The length of the frame at the start of `bytes`, if its four bytes are there.
///
/// # Errors
/// The length is negative or over `max_bytes`; known before the frame itself has arrived.
pub fn peek_length(bytes: &[u8], max_bytes: usize) -> Result<Option<usize>, FrameError> {
    let Some((head, _)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let claimed = i32::from_be_bytes(*head);
    let length = usize::try_from(claimed).map_err(|_| FrameError::Negative(claimed))?;
    if length > max_bytes {
        return Err(FrameError::TooLong {
            length,
            max: max_bytes,
        });
    }
    Ok(Some(length))
}

/// Takes the first whole frame out of `buffer`, without its length; `None` if it has not all
/// arrived. Shares the buffer's memory. Reserves nothing: what has not arrived costs nothing.
///
/// # Errors
/// As [`peek_length`].
pub fn split_frame(buffer: &mut BytesMut, max_bytes: usize) -> Result<Option<Bytes>, FrameError> {
    let Some(length) = peek_length(buffer, max_bytes)? else {
        return Ok(None);
    };
    if buffer.len() - LENGTH_BYTES < length {
        return Ok(None);
    }
    buffer.advance(LENGTH_BYTES);
    Ok(Some(buffer.split_to(length).freeze()))
}

/// Start of a frame that is being written in place.
#[derive(Debug)]
#[must_use = "a frame that is begun must be finished"]
pub struct FrameStart(usize);

/// Leaves room for a length; what is written to `out` from here belongs to the frame until
/// [`finish`].
pub fn begin<B: BufMut + AsMut<[u8]>>(out: &mut B) -> FrameStart {
    let start = out.as_mut().len();
    out.put_i32(0);
    FrameStart(start)
}

/// Writes the length of the frame that [`begin`] began in the same buffer, and returns it in bytes,
/// without its own four. A buffer that was cut back in between gets no length.
pub fn finish<B: BufMut + AsMut<[u8]>>(out: &mut B, start: FrameStart) -> usize {
    let Some(frame) = out.as_mut().get_mut(start.0..) else {
        return 0;
    };
    let Some((head, body)) = frame.split_first_chunk_mut::<LENGTH_BYTES>() else {
        return 0;
    };
    *head = i32::try_from(body.len()).unwrap_or(i32::MAX).to_be_bytes();
    body.len()
}

fn framed<B: BufMut + AsMut<[u8]>>(out: &mut B, write: impl FnOnce(&mut B)) -> usize {
    let start = begin(out);
    write(out);
    finish(out, start)
}

/// Writes a request as a whole frame; returns the frame's length in bytes, for the caller's limit.
pub fn write_request<B: BufMut + AsMut<[u8]>>(
    out: &mut B,
    xid: i32,
    request: &Request<'_>,
) -> usize {
    framed(out, |out| {
        RequestHeader {
            xid,
            op: request.op().code(),
        }
        .encode(out);
        request.encode(out);
    })
}

/// Writes the trace that the next request belongs to, as a whole frame.
pub fn write_trace_context<B: BufMut + AsMut<[u8]>>(out: &mut B, context: &TraceContext) -> usize {
    framed(out, |out| {
        RequestHeader {
            xid: xid::TRACE_CONTEXT,
            op: TraceContext::OP,
        }
        .encode(out);
        context.encode(out);
    })
}

/// Writes a reply as a whole frame; returns the frame's length in bytes. With an error there is no
/// body.
pub fn write_reply<B: BufMut + AsMut<[u8]>>(
    out: &mut B,
    header: ReplyHeader,
    response: Option<&Response>,
) -> usize {
    framed(out, |out| {
        header.encode(out);
        if let Some(response) = response {
            response.encode(out);
        }
    })
}

/// Writes an event about `path` on a live connection as a whole frame, and returns the frame's
/// length in bytes. `zxid` is that of the change, or -1.
pub fn write_event<B: BufMut + AsMut<[u8]>>(
    out: &mut B,
    zxid: i64,
    kind: EventKind,
    path: &str,
) -> usize {
    framed(out, |out| {
        ReplyHeader {
            xid: xid::NOTIFICATION,
            zxid,
            err: 0,
        }
        .encode(out);
        put_event(out, kind, KeeperState::SyncConnected, path);
    })
}

/// Writes the client's first frame.
pub fn write_connect_request<B: BufMut + AsMut<[u8]>>(
    out: &mut B,
    request: &ConnectRequest<'_>,
) -> usize {
    framed(out, |out| request.encode(out))
}

/// Writes the server's first frame.
pub fn write_connect_response<B: BufMut + AsMut<[u8]>>(
    out: &mut B,
    response: &ConnectResponse,
) -> usize {
    framed(out, |out| response.encode(out))
}
