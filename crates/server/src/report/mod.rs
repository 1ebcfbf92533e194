//! What is reported to operators, and how much of it.
//!
//! | module | owns |
//! |---|---|
//! | `listings` | long answers about connections, sessions and watches: made once for all who ask, in slices, by a thread of their own |
//! | `notices` | what the log says of clients |
//! | `rate_limit` | how many lines of the log each client may cause |

pub(crate) mod client_log;
pub(crate) mod listings;
pub(crate) mod notice;
pub(crate) mod rate_limit;
pub(crate) mod shown;
