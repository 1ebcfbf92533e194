//! Fields that are on the wire as their types say, and reasons that are sent as a byte.

use bytes::Bytes;

use crate::codec::input::{Input, Malformed};
use crate::codec::pieces::FrameBody;

/// A value in the body of a frame.
pub(crate) trait Field: Sized {
    fn write(&self, out: &mut FrameBody);
    fn read(input: &mut Input) -> Result<Self, Malformed>;
}

macro_rules! numbers {
    ($($kind:ident)*) => {
        $(impl Field for $kind {
            fn write(&self, out: &mut FrameBody) {
                out.$kind(*self);
            }

            fn read(input: &mut Input) -> Result<Self, Malformed> {
                input.$kind()
            }
        })*
    };
}

numbers!(u16 u32 u64 i64 u128);

/// A payload: it takes what is left.
impl Field for Bytes {
    fn write(&self, out: &mut FrameBody) {
        out.payload(self);
    }

    fn read(input: &mut Input) -> Result<Self, Malformed> {
        Ok(input.rest())
    }
}

/// A struct whose fields are on the wire in this order, and behind them that many zeros.
macro_rules! fields {
    ($name:ident { $($field:ident),* } $(zeros $zeros:literal)?) => {
        impl $crate::codec::fields::Field for $name {
            fn write(&self, out: &mut $crate::codec::pieces::FrameBody) {
                $($crate::codec::fields::Field::write(&self.$field, out);)*
                out.zeros(0 $(+ $zeros)?);
            }

            fn read(
                input: &mut $crate::codec::input::Input,
            ) -> Result<Self, $crate::codec::input::Malformed> {
                let read = Self { $($field: $crate::codec::fields::Field::read(input)?),* };
                input.zeros(0 $(+ $zeros)?)?;
                Ok(read)
            }
        }
    };
}

/// Declares reasons: a row is `/// Documentation`, `Variant = BYTE: "text",`.
macro_rules! reasons {
    ($(#[$about:meta])* $name:ident {
        $($(#[$doc:meta])* $variant:ident = $code:literal: $text:literal,)*
    }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
            /// A reason that this version does not know.
            Other(u8),
        }

        impl $name {
            /// The byte on the wire.
            pub fn code(self) -> u8 {
                match self {
                    $($name::$variant => $code,)*
                    $name::Other(code) => code,
                }
            }

            /// The reason that a byte stands for.
            pub fn from_code(code: u8) -> $name {
                match code {
                    $($code => $name::$variant,)*
                    other => $name::Other(other),
                }
            }
        }

        impl $crate::codec::fields::Field for $name {
            fn write(&self, out: &mut $crate::codec::pieces::FrameBody) {
                out.u8(self.code());
            }

            fn read(
                input: &mut $crate::codec::input::Input,
            ) -> Result<Self, $crate::codec::input::Malformed> {
                input.u8().map($name::from_code)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $($name::$variant => f.write_str($text),)*
                    $name::Other(code) => write!(f, "reason {code}, which a later version knows"),
                }
            }
        }
    };
}

pub(crate) use {fields, reasons};
