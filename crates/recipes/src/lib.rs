//! Distributed locks, queues and leader election that stay correct when the network does not.

#![forbid(unsafe_code)]
