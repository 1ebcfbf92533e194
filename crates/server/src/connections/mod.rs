//! Open connections as the core sees them, without their sockets: requests come in through
//! [`inbox`], replies and events go out through [`conn`].
//!
//! | module | owns |
//! |---|---|
//! | `inbox` | the one queue from all sockets to the core; bounded |
//! | `registry` | every open connection; the limits on their number |
//! | `inbound` | the bound on unfinished and waiting requests over all connections |
//! | `relief` | which connections end when such a bound is exceeded |
//! | `conn` | one connection: its outbound FIFO, its session, why it is closed |
//! | `listing_reply` | the reply that lists many children, encoded piece by piece |
//! | `outbound` | the bound on unread replies and events over all connections |
//! | `counts` | how many connections or sessions each client has |
//! | `touch` | the time of the last packet of a session |
//! | `peer` | the other end of a connection; which of them count as one client |

pub(crate) mod conn;
pub(crate) mod counts;
pub(crate) mod inbound;
pub(crate) mod inbox;
pub(crate) mod listing_reply;
pub(crate) mod outbound;
pub(crate) mod peer;
pub(crate) mod registry;
pub(crate) mod relief;
pub(crate) mod touch;
