//! Fields, read from the front of a frame's body. What is read shares the memory of the body.

use bytes::{Buf, Bytes};

/// Error in a body.
pub(crate) type Malformed = &'static str;

const SHORT: Malformed = "it ends within a field";

/// The part of a body that was not read yet.
#[derive(Debug)]
pub(crate) struct Input(Bytes);

macro_rules! number {
    ($name:ident, $get:ident, $type:ty) => {
        pub(crate) fn $name(&mut self) -> Result<$type, Malformed> {
            self.0.$get().map_err(|_| SHORT)
        }
    };
}

impl Input {
    pub(crate) fn new(body: Bytes) -> Input {
        Input(body)
    }

    number!(u8, try_get_u8, u8);
    number!(u16, try_get_u16_le, u16);
    number!(u32, try_get_u32_le, u32);
    number!(u64, try_get_u64_le, u64);
    number!(i64, try_get_i64_le, i64);
    number!(u128, try_get_u128_le, u128);

    /// `count` bytes.
    pub(crate) fn bytes(&mut self, count: u32) -> Result<Bytes, Malformed> {
        match usize::try_from(count) {
            Ok(count) if count <= self.0.len() => Ok(self.0.split_to(count)),
            _ => Err("a length goes beyond its end"),
        }
    }

    /// Bytes that must be 0.
    pub(crate) fn zeros(&mut self, count: u32) -> Result<(), Malformed> {
        if self.bytes(count)?.iter().all(|byte| *byte == 0) {
            Ok(())
        } else {
            Err("a byte that must be 0 is not")
        }
    }

    /// Everything that is left.
    pub(crate) fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
