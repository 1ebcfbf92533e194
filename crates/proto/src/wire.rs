//! Writing jute's primitive types (protocol.md §1.1). For callers that encode a large reply
//! straight from where the data lives, without building a [`crate::Response`] first.

use bytes::BufMut;

/// The length of something that goes on the wire. A frame is bounded far below this, so a longer
/// field only means that the frame is refused when it is finished.
fn length(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}

/// A length-prefixed buffer; `None` is null.
pub fn put_buffer(out: &mut impl BufMut, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            out.put_i32(length(bytes.len()));
            out.put_slice(bytes);
        }
        None => out.put_i32(-1),
    }
}

/// A length-prefixed string.
pub fn put_string(out: &mut impl BufMut, text: &str) {
    put_buffer(out, Some(text.as_bytes()));
}

/// A length-prefixed string; `None` is null.
pub fn put_optional_string(out: &mut impl BufMut, text: Option<&str>) {
    put_buffer(out, text.map(str::as_bytes));
}

/// A boolean, as one byte.
pub fn put_bool(out: &mut impl BufMut, value: bool) {
    out.put_u8(u8::from(value));
}

/// The count before a vector's items.
pub fn put_count(out: &mut impl BufMut, count: usize) {
    out.put_i32(length(count));
}

/// A vector of strings.
pub fn put_strings<'s, I>(out: &mut impl BufMut, items: I)
where
    I: IntoIterator<Item = &'s str, IntoIter: ExactSizeIterator>,
{
    let items = items.into_iter();
    put_count(out, items.len());
    for item in items {
        put_string(out, item);
    }
}
