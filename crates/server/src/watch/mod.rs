//! Watches of all connections: `table` has every one of them, and the bounds on their number and
//! memory; `access` is how a read gets to it; `event_run` hands the events to those that watch.

pub(crate) mod access;
pub(crate) mod event_run;
pub(crate) mod table;
