//! Reports to operators, and their limits.
//!
//! | module | owns |
//! |---|---|
//! | `listings` | long answers to operators: made in slices, once for all who ask |
//! | `client_log` | log lines about one client, within its limit |
//! | `rate_limit` | how many lines of the log each client may cause |
//! | `notice` | what a log line about a client says |
//! | `escaped` | text of a client, made safe for the log |

pub(crate) mod client_log;
pub(crate) mod escaped;
pub(crate) mod listings;
pub(crate) mod notice;
pub(crate) mod rate_limit;
