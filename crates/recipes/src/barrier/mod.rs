//! Meeting points: a gate, a double barrier with rounds, a latch that counts down.
//!
//! Owns their layouts on the tree. Must never let two members of one meeting come to different
//! verdicts: whatever all of them have to agree on is one change of one node (H63).

mod context;
mod curator_layout;
mod double;
mod entered;
mod error;
mod latch;
mod member;
mod round;
mod single;

pub use double::{BarrierLayout, DoubleBarrier};
pub use entered::Entered;
pub use error::BarrierError;
pub use latch::CountdownLatch;
pub use round::Left;
pub use single::Barrier;
