//! The frames of one connection, in and out: where one ends in what has arrived, what happens to
//! one over the limit of its length, and replies that have no body. Pure.

use baton_proto::{ErrorCode, ReplyHeader, frame};

/// A frame without its length, and the bytes behind it.
pub(crate) type FrameAndRest<'a> = (&'a [u8], &'a [u8]);

/// The first whole frame of `bytes` and what follows it.
pub(crate) fn whole_frame(
    bytes: &[u8],
    max_bytes: usize,
) -> Result<Option<FrameAndRest<'_>>, frame::FrameError> {
    let Some(length) = frame::peek_length(bytes, max_bytes)? else {
        return Ok(None);
    };
    Ok(bytes
        .get(frame::LENGTH_BYTES..)
        .and_then(|rest| rest.split_at_checked(length)))
}

/// The longest request that is answered with an error when it is over the limit, in limits: its
/// bytes are read and thrown away, so that the connection goes on. What claims to be longer closes
/// its connection, as clients expect of ZooKeeper: kazoo's own tests send two MiB where one is
/// allowed, and want a lost connection.
const DISCARDED_LIMITS: usize = 2;

/// The next request of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextRequest<'a> {
    /// It has arrived whole.
    Whole(FrameAndRest<'a>),
    /// It has not arrived to its end.
    Incomplete,
    /// It is over the limit, and to be answered with an error: this is its length.
    TooLarge(usize),
}

/// The first request of `bytes`, held against the limit.
///
/// # Errors
/// The bytes are no frame, or one so far over the limit that the connection has to end.
pub(super) fn next_request(
    bytes: &[u8],
    max_bytes: usize,
) -> Result<NextRequest<'_>, frame::FrameError> {
    match whole_frame(bytes, max_bytes) {
        Ok(Some(split)) => Ok(NextRequest::Whole(split)),
        Ok(None) => Ok(NextRequest::Incomplete),
        Err(frame::FrameError::TooLong { length, .. })
            if length <= DISCARDED_LIMITS * max_bytes =>
        {
            Ok(NextRequest::TooLarge(length))
        }
        Err(error) => Err(error),
    }
}

/// Bytes that the first frame of `bytes` still lacks; `None` while its length is unknown.
pub(super) fn missing_bytes(bytes: &[u8]) -> Option<usize> {
    let length = frame::peek_length(bytes, usize::MAX).ok().flatten()?;
    Some((length + frame::LENGTH_BYTES).saturating_sub(bytes.len()))
}

/// Writes a reply without a body.
pub(crate) fn reply(out: &mut Vec<u8>, xid: i32, zxid: i64, code: ErrorCode) {
    frame::write_reply(
        out,
        ReplyHeader {
            xid,
            zxid,
            err: code.code(),
        },
        None,
    );
}
