//! Barriers: processes that wait for one another.
//!
//! - [`Barrier`]: one process closes it; the others wait until somebody opens it.
//! - [`DoubleBarrier`]: a round begins when all members have entered, and ends when all have left.
//! - [`CountdownLatch`]: opens after a number of counts, and stays open.
//!
//! Each has an example on its page.

// Owns their layouts on the tree. Must never let two members of one round come to different
// outcomes: whatever all of them have to agree on is one change of one node (H63).
//
// | module | owns |
// |---|---|
// | `double` | the double barrier, and the way in |
// | `latch` | the countdown latch |
// | `entered` | being inside a double barrier, and the way out |
// | `curator_layout` | the double barrier of Curator and kazoo |
// | `single` | the barrier |
// | `member` | a member's node |
// | `context` | path and client, and what to do after a failure |
// | `round` | the records of a double barrier with rounds |
// | `error` | why a barrier was not passed |

mod context;
mod curator_layout;
mod double;
mod entered;
mod error;
mod latch;
mod member;
mod round;
mod single;

pub(crate) use curator_layout::READY;
pub(crate) use double::MEMBER_PREFIX;
pub use double::{BarrierLayout, DoubleBarrier};
pub use entered::BarrierEntry;
pub use error::BarrierError;
pub use latch::CountdownLatch;
pub(crate) use latch::{Count, DONE_PREFIX};
pub use round::RoundEnd;
pub(crate) use round::{Newest, Phase, Round, round_name};
pub use single::Barrier;
