//! The verbs, one file each: its options (`Args`) and what it does (`run`).

pub(crate) mod completions;
pub(crate) mod man;
