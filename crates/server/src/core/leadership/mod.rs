//! Who leads, and what follows from that.

pub(crate) mod lateness;
