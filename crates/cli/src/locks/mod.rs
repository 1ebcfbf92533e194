//! Locks as the tree shows them, whichever library made their nodes: who holds, who waits.

pub(crate) mod ahead;
pub(crate) mod lock_queue;
