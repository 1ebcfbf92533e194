//! What is reported to operators, and how much of it.
//!
//! | module | owns |
//! |---|---|
//! | `listings` | long answers to operators: made in slices, once for all who ask |
//! | `start_line` | the one line that says which server serves what |
//! | `lost_session` | the line about a session that expired, and what it held |
//! | `client_log` | log lines about one client, within its limit |
//! | `rate_limit` | how many lines of the log each client may cause |
//! | `notice` | what a log line about a client says |
//! | `shown` | text of a client, made safe for the log |

pub(crate) mod client_log;
pub(crate) mod listings;
pub(crate) mod lost_session;
pub(crate) mod notice;
pub(crate) mod rate_limit;
pub(crate) mod shown;
pub(crate) mod start_line;
