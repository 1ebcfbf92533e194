//! The verbs, one file each: its options (`Args`) and what it does (`run`).

pub(crate) mod completions;
mod lines;
pub(crate) mod lock;
pub(crate) mod man;
pub(crate) mod serve;
