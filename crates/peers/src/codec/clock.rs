//! The wall clock of a server, for the others' measurement of how far their clocks are apart.

use crate::codec::fields::fields;

/// A reading of the sender's wall clock. Sent only to servers that speak version
/// [`Clock::SINCE`] of the protocol or a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// Milliseconds since 1970.
    pub wall_ms: i64,
}

impl Clock {
    /// The version of the protocol that has this frame first.
    pub const SINCE: u16 = 2;
}

fields!(Clock { wall_ms });
