//! Client requests that a follower passes on to the leader, in order and by credit. The server
//! decides what the bodies mean.

use bytes::Bytes;

use crate::codec::fields::fields;
use crate::codec::input::{Input, Malformed};
use crate::codec::pieces::FrameBody;

/// A group of client requests, of which the sender of the connection is the origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    /// The run of the origin's stream of groups; sequence numbers count within it.
    pub run: u64,
    /// The sequence number of the first request of the group.
    pub first: u64,
    /// Number of requests in the group.
    pub count: u32,
    /// The requests, as the server writes them.
    pub body: Bytes,
}

impl Forward {
    pub(crate) const FIXED_BYTES: usize = 24;

    pub(crate) fn write(&self, out: &mut FrameBody) {
        out.u64(self.run);
        out.u64(self.first);
        out.u32(self.count);
        out.zeros(4);
        out.payload(&self.body);
    }

    pub(crate) fn read(input: &mut Input) -> Result<Forward, Malformed> {
        let (run, first, count) = (input.u64()?, input.u64()?, input.u32()?);
        input.zeros(4)?;
        if count == 0 {
            return Err("it has no request");
        }
        Ok(Forward {
            run,
            first,
            count,
            body: input.rest(),
        })
    }
}

/// The answer to a group that takes no effect through the log: a refusal, or the index of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardAnswer {
    /// The run of the group.
    pub run: u64,
    /// The sequence number of the group's first request.
    pub first: u64,
    /// The answer, as the server writes it.
    pub body: Bytes,
}

impl ForwardAnswer {
    pub(crate) const FIXED_BYTES: usize = 16;
}

fields!(ForwardAnswer { run, first, body });

/// Amount of forwarded requests that the leader has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credit {
    /// The run of the stream.
    pub run: u64,
    /// The bytes of all bodies of the run that the leader has taken so far.
    pub taken_bytes: u64,
}

fields!(Credit { run, taken_bytes });
