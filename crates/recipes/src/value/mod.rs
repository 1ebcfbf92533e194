//! Values and counters: single nodes that several processes write, each write exactly once.
//!
//! - [`Counter`]: a number, changed by adding or by compare-and-set.
//! - [`SharedValue`]: bytes, changed by compare-and-set, with a stream of changes.
//!
//! Each has an example on its page.

// Owns exactly-once writes and listening. A value is not a lock: between reading and acting it may
// change.

mod cell;
mod counter;
mod counter_layout;
mod error;
mod shared_value;

pub use counter::{Counter, Numbers};
pub use counter_layout::CounterLayout;
pub use error::ValueError;
pub use shared_value::{SharedValue, Values, VersionedValue};
