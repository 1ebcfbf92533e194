//! Answers to operators, in the shapes that ZooKeeper's tools parse.
//!
//! | module | owns |
//! |---|---|
//! | `http` | `/commands`, `/metrics`, `/healthz`, `/readyz` |
//! | `words` | four-letter words |
//! | `metrics` | every metric: its name, meaning and source |
//! | `members` | what a server of an ensemble shows of it: its mode, the leader, the members |
//! | `facts` | what several of them show: version, folder, sessions and when they expire |

pub(crate) mod facts;
pub(crate) mod http;
pub(crate) mod members;
pub(crate) mod metrics;
pub(crate) mod words;
