//! Open connections as the core sees them, without their sockets: requests come in through
//! [`inbox`], replies and events go out through [`conn`].
//!
//! | module | owns |
//! |---|---|
//! | `inbox` | the one queue from all sockets to the core; bounded |
//! | `inbound` | the bound on unfinished and waiting requests over all connections |
//! | `outbound` | the bound on unread replies and events over all connections |
//! | `conn` | one connection: its outbound FIFO, its session, why it is closed |

pub(crate) mod conn;
pub(crate) mod inbound;
pub(crate) mod inbox;
pub(crate) mod outbound;
