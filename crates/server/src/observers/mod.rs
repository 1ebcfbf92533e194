//! Observers of changes and tracers of writes, and what the server shows them.

pub(crate) mod changes;
pub(crate) mod traces;
