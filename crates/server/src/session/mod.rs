//! When sessions expire, and the ids of new ones.
//!
//! | module | owns |
//! |---|---|
//! | `clocks` | when each session expires |
//! | `touch_rounds` | how the leader of an ensemble hears of sessions; when a ping is answered |
//! | `rounds` | the rounds of the socket tasks that the core waits for before a session expires |
//! | `ids` | the ids of new sessions, and the nonces of their attachments |

pub(crate) mod clocks;
pub(crate) mod ids;
pub(crate) mod rounds;
pub(crate) mod touch_rounds;
