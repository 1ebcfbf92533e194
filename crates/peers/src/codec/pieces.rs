//! Encoded frames as pieces of memory, in the order in which they are to be written.
//!
//! Small fields are copied into a buffer. A large payload is a piece of its own that shares the
//! memory of its owner, so that one vectored write sends it without a copy.

use bytes::{BufMut, Bytes, BytesMut};

use crate::codec::head::{CHECKED_HEAD_BYTES, FrameType, HEAD_BYTES, Head};

/// A payload below this size is copied: a piece of its own would cost more.
const COPY_BELOW_BYTES: usize = 1 << 10;

/// Frames that wait to be written.
#[derive(Debug, Default)]
pub struct Pieces {
    done: Vec<Bytes>,
    tail: BytesMut,
}

impl Pieces {
    /// Nothing yet.
    pub fn new() -> Pieces {
        Pieces::default()
    }

    /// Bytes of all pieces.
    pub fn len(&self) -> usize {
        self.done.iter().map(Bytes::len).sum::<usize>() + self.tail.len()
    }

    /// Returns whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the pieces out, in order.
    pub fn take(&mut self) -> Vec<Bytes> {
        let mut pieces = std::mem::take(&mut self.done);
        if !self.tail.is_empty() {
            pieces.push(self.tail.split().freeze());
        }
        pieces
    }

    /// Adds bytes that are not a frame.
    pub fn put_raw(&mut self, bytes: &[u8]) {
        self.tail.put_slice(bytes);
    }

    /// Adds one frame, whose body `write` writes.
    pub(crate) fn frame(&mut self, kind: FrameType, write: impl FnOnce(&mut FrameBody)) {
        let head_at = self.tail.len();
        let mut body = FrameBody {
            first: None,
            later: Vec::new(),
            current: std::mem::take(&mut self.tail),
        };
        body.current.put_bytes(0, HEAD_BYTES);
        write(&mut body);
        let FrameBody {
            first,
            later,
            mut current,
        } = body;
        match first {
            None => finish(kind, &mut current, head_at, &[], &[]),
            Some(mut first) => {
                finish(kind, &mut first, head_at, &later, &current);
                self.done.push(first.freeze());
                self.done.extend(later);
            }
        }
        self.tail = current;
    }
}

/// Fills in the head, which begins at `head_at` of `first`; the body is what follows it there, then
/// `later`, then `last`.
fn finish(kind: FrameType, first: &mut BytesMut, head_at: usize, later: &[Bytes], last: &[u8]) {
    let Some((head, body)) = first
        .get_mut(head_at..)
        .and_then(|frame| frame.split_first_chunk_mut::<HEAD_BYTES>())
    else {
        return;
    };
    let body_bytes = body.len() + later.iter().map(Bytes::len).sum::<usize>() + last.len();
    let checked = Head::checked_bytes(kind, body_bytes);
    let mut crc = crc32c::crc32c(&checked);
    crc = crc32c::crc32c_append(crc, body);
    for piece in later {
        crc = crc32c::crc32c_append(crc, piece);
    }
    crc = crc32c::crc32c_append(crc, last);
    let (front, back) = head.split_at_mut(CHECKED_HEAD_BYTES);
    front.copy_from_slice(&checked);
    back.copy_from_slice(&crc.to_le_bytes());
}

/// The body of a frame that is being written.
#[derive(Debug)]
pub(crate) struct FrameBody {
    /// The piece with the frame's head, once a payload has ended it.
    first: Option<BytesMut>,
    later: Vec<Bytes>,
    current: BytesMut,
}

impl FrameBody {
    pub(crate) fn u8(&mut self, value: u8) {
        self.current.put_u8(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.current.put_u16_le(value);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.current.put_u32_le(value);
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.current.put_u64_le(value);
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.current.put_i64_le(value);
    }

    pub(crate) fn u128(&mut self, value: u128) {
        self.current.put_u128_le(value);
    }

    pub(crate) fn zeros(&mut self, count: usize) {
        self.current.put_bytes(0, count);
    }

    pub(crate) fn slice(&mut self, bytes: &[u8]) {
        self.current.put_slice(bytes);
    }

    /// Bytes that are shared, and not copied, when they are many.
    pub(crate) fn payload(&mut self, bytes: &Bytes) {
        if bytes.len() < COPY_BELOW_BYTES {
            self.current.put_slice(bytes);
            return;
        }
        let piece = self.current.split();
        if self.first.is_none() {
            self.first = Some(piece);
        } else if !piece.is_empty() {
            self.later.push(piece.freeze());
        }
        self.later.push(bytes.clone());
    }
}
