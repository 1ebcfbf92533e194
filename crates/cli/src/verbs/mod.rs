//! The verbs, one file each: its options (`Args`) and what it does (`run`).

pub(crate) mod barrier;
mod bytes;
pub(crate) mod completions;
pub(crate) mod counter;
pub(crate) mod elect;
mod endpoint;
pub(crate) mod export;
mod held;
pub(crate) mod import;
mod leaders;
mod lines;
pub(crate) mod lock;
pub(crate) mod man;
pub(crate) mod member;
mod places;
pub(crate) mod queue;
mod queue_layout;
pub(crate) mod sem;
pub(crate) mod serve;
pub(crate) mod tree;
pub(crate) mod wal;
mod work;
mod work_admin;
mod work_take;
