//! What the server shows to observers of changes and to tracers of writes.

pub(crate) mod changes;
pub(crate) mod traces;
