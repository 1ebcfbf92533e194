//! The core: sessions' clocks, watches, reads, and the pipeline that turns what sockets hand in
//! into log entries and applies them. Knows no socket: bytes go in through [`inbox`], bytes come
//! out through [`conn`].

mod apply;
mod baton_node;
pub(crate) mod beat;
pub(crate) mod clock;
pub(crate) mod conn;
pub(crate) mod distribution;
mod gather;
pub(crate) mod guesses;
mod ids;
pub(crate) mod inbound;
pub(crate) mod inbox;
mod line_budget;
pub(crate) mod listings;
pub(crate) mod notices;
pub(crate) mod outbound;
pub(crate) mod pipeline;
pub(crate) mod progress;
pub(crate) mod reads;
pub(crate) mod recover;
pub(crate) mod requests;
pub(crate) mod shared;
pub(crate) mod snapshots;
pub(crate) mod starting;
pub(crate) mod stats;
pub(crate) mod watches;
