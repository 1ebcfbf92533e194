//! Sockets that listen, their certificates, a small HTTP listener.
//!
//! | module | owns |
//! |---|---|
//! | `http` | a small HTTP listener with bounds, for the server and for other programs |
//! | `listener` | binding listening sockets |
//! | `socket_access` | which users of this machine may connect to a unix socket |
//! | `exposure` | which addresses are open to strangers, and which of them stop the start |
//! | `tls` | the certificates of the server's ports, read again when their files change |

pub(crate) mod exposure;
pub mod http;
pub(crate) mod listener;
pub(crate) mod socket_access;
pub(crate) mod tls;
