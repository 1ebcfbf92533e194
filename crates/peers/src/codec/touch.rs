//! Sessions whose clients a follower has heard, and the leader's answer once a quorum knows.

use crate::codec::input::{Input, Malformed};
use crate::codec::pieces::FrameBody;

/// The most sessions in one frame.
pub const MAX_SESSIONS: usize = 65_536;

/// Sessions whose clients were heard since the batch before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touch {
    /// The number of the batch.
    pub batch: u64,
    /// The sessions' ids; at most [`MAX_SESSIONS`].
    pub sessions: Vec<i64>,
}

/// The leader has counted a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// The number of the batch.
    pub batch: u64,
    /// Sessions of the batch that are over, or that another server has.
    pub refused: Vec<i64>,
}

impl Touch {
    pub(crate) fn write(&self, out: &mut FrameBody) {
        write(out, self.batch, &self.sessions);
    }

    pub(crate) fn read(input: &mut Input) -> Result<Touch, Malformed> {
        let (batch, sessions) = read(input)?;
        Ok(Touch { batch, sessions })
    }
}

impl Counted {
    pub(crate) fn write(&self, out: &mut FrameBody) {
        write(out, self.batch, &self.refused);
    }

    pub(crate) fn read(input: &mut Input) -> Result<Counted, Malformed> {
        let (batch, refused) = read(input)?;
        Ok(Counted { batch, refused })
    }
}

/// Bytes of a frame with this many sessions.
pub(crate) fn body_bytes(sessions: usize) -> usize {
    16 + 8 * sessions
}

fn write(out: &mut FrameBody, batch: u64, sessions: &[i64]) {
    out.u64(batch);
    out.u32(u32::try_from(sessions.len()).unwrap_or(u32::MAX));
    out.zeros(4);
    for session in sessions {
        out.i64(*session);
    }
}

fn read(input: &mut Input) -> Result<(u64, Vec<i64>), Malformed> {
    let (batch, count) = (input.u64()?, input.u32()?);
    input.zeros(4)?;
    if usize::try_from(count).is_ok_and(|count| count > MAX_SESSIONS) {
        return Err("it has too many sessions");
    }
    let mut sessions = Vec::new();
    for _ in 0..count {
        sessions.push(input.i64()?);
    }
    Ok((batch, sessions))
}
