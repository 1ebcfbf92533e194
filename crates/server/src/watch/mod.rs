//! Watches of all connections: `table` has every one of them, and the bounds on their number and
//! memory.

pub(crate) mod table;
