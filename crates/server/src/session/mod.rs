//! When sessions expire, and the ids of new ones.
//!
//! | module | owns |
//! |---|---|
//! | `beat` | how late the socket tasks are served; the round that reads every socket before a session expires |
//! | `clocks` | the server's clock; when each session expires |
//! | `ids` | the ids of new sessions |

pub(crate) mod beat;
pub(crate) mod clocks;
pub(crate) mod ids;
