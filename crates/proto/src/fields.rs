//! Fields that several bodies have in common: written for requests, read from replies.

use bytes::{BufMut, Bytes};

use crate::wire::{put_bool, put_buffer, put_string};
use crate::{DecodeError, Decoder};

/// Writes the body of `delete` and of `check`.
pub(crate) fn put_path_and_version(out: &mut impl BufMut, path: &str, version: i32) {
    put_string(out, path);
    out.put_i32(version);
}

/// Writes the body of a read that may set a watch.
pub(crate) fn put_path_and_watch(out: &mut impl BufMut, path: &str, watch: bool) {
    put_string(out, path);
    put_bool(out, watch);
}

/// Writes the body of `setData`.
pub(crate) fn put_set_data(out: &mut impl BufMut, path: &str, data: Option<&[u8]>, version: i32) {
    put_string(out, path);
    put_buffer(out, data);
    out.put_i32(version);
}

/// A buffer that shares the memory of the body it stands in.
pub(crate) fn decode_bytes(
    whole: &Bytes,
    from: &mut Decoder<'_>,
    field: &'static str,
) -> Result<Option<Bytes>, DecodeError> {
    Ok(from.buffer(field)?.map(|bytes| whole.slice_ref(bytes)))
}

pub(crate) fn owned_strings(
    from: &mut Decoder<'_>,
    field: &'static str,
) -> Result<Vec<String>, DecodeError> {
    Ok(from
        .strings(field)?
        .into_iter()
        .map(str::to_owned)
        .collect())
}
