//! When sessions expire, how many each client has, and the ids of new ones.
//!
//! | module | owns |
//! |---|---|
//! | `clocks` | when each session expires |
//! | `counts` | how many each client has |
//! | `touch_rounds` | how the leader of an ensemble hears of sessions; when a ping is answered |
//! | `rounds` | the rounds of the socket tasks that the core waits for before a session expires |
//! | `ids` | the ids of new sessions, and the nonces of their attachments |

pub(crate) mod clocks;
pub(crate) mod counts;
pub(crate) mod ids;
pub(crate) mod rounds;
pub(crate) mod touch_rounds;
