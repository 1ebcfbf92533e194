//! Digest of a server's state after an entry of the log, so that servers that differ find out.

use crate::codec::input::{Input, Malformed};
use crate::codec::pieces::FrameBody;

/// The digest of a server's state after an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateDigest {
    /// The entry.
    pub index: u64,
    /// The digest of the state once that entry is applied.
    pub digest: u64,
}

impl StateDigest {
    pub(crate) fn write(self, out: &mut FrameBody) {
        out.u64(self.index);
        out.u64(self.digest);
    }

    pub(crate) fn read(input: &mut Input) -> Result<StateDigest, Malformed> {
        Ok(StateDigest {
            index: input.u64()?,
            digest: input.u64()?,
        })
    }
}
