//! The frames of one connection, in and out: where one ends in what has arrived, and replies that
//! have no body. Pure.

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
