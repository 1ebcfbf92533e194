//! Every recipe against a server, through the fault proxy, and beside other libraries.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod acl;
mod alike;
mod bad_input;
mod barrier;
mod caught_up;
mod chaos;
mod common;
mod damaged_layout;
mod dead_guards;
mod departure;
mod double_barrier;
mod election;
mod election_forever;
mod embedded;
mod hazards_acquire;
mod hazards_election;
mod hazards_ensemble;
mod hazards_lease;
mod hazards_peers;
mod hazards_wait;
mod hazards_work;
mod inspect;
mod kinds;
mod liveness;
mod lock_delay;
mod locking_queue;
mod membership;
mod multi_lock;
mod mutex;
mod observer;
mod old_server;
mod options;
mod partitioner;
mod printed;
mod queue;
mod queue_layouts;
mod reentrant;
mod requests;
mod runtimes;
mod rw_lock;
mod semaphore;
mod semaphore_order;
mod simple_mutex;
mod spans;
mod task_pages;
mod time_outs;
mod tree_cache;
mod txn;
mod values;
mod work_conflicts;
mod work_outside;
mod work_purge;
mod work_queue;
mod work_queue_limits;
