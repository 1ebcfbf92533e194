//! Fields that several bodies have in common: written for requests, read from replies.

use bytes::{BufMut, Bytes};

use crate::wire::{put_bool, put_buffer, put_optional_string, put_string, put_strings};
use crate::{Acl, DecodeError, Decoder};

/// A field of a request's body.
pub(crate) trait Field<'a>: Sized {
    fn put(&self, out: &mut impl BufMut);

    /// Reads a value; `name` is for errors.
    fn take(from: &mut Decoder<'a>, name: &'static str) -> Result<Self, DecodeError>;
}

macro_rules! fields {
    ($($kind:ty: $take:ident, |$value:ident, $out:ident| $put:expr;)*) => {
        $(impl<'a> Field<'a> for $kind {
            fn put(&self, $out: &mut impl BufMut) {
                let $value = self;
                $put;
            }

            fn take(from: &mut Decoder<'a>, name: &'static str) -> Result<Self, DecodeError> {
                from.$take(name)
            }
        })*
    };
}

fields! {
    bool: bool, |value, out| put_bool(out, *value);
    i32: i32, |value, out| out.put_i32(*value);
    i64: i64, |value, out| out.put_i64(*value);
    &'a str: string, |value, out| put_string(out, value);
    Option<&'a str>: optional_string, |value, out| put_optional_string(out, *value);
    Option<&'a [u8]>: buffer, |value, out| put_buffer(out, *value);
    Vec<&'a str>: strings, |value, out| put_strings(out, value.iter().copied());
}

impl<'a> Field<'a> for Option<Vec<Acl<'a>>> {
    fn put(&self, out: &mut impl BufMut) {
        Acl::encode_list(self.as_deref(), out);
    }

    fn take(from: &mut Decoder<'a>, name: &'static str) -> Result<Self, DecodeError> {
        Acl::decode_list(from, name)
    }
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
