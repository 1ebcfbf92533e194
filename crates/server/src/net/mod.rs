//! Sockets of clients: one task for each connection. Knows the wire, and of the core only its
//! inbox, the tree behind its lock, and each connection's outbound bytes.
//!
//! | module | owns |
//! |---|---|
//! | `accept` | accepting, and the life of a connection's task |
//! | `connection` | the task: takes requests on, answers reads, writes what is ready |
//! | `word_reply` | writing the answer to a four-letter word |
//! | `handshake` | the first frame |
//! | `read_only` | sessions of read-only mode |
//! | `tls_handshake` | which connections use TLS; its handshake; the identity of a certificate |
//! | `end` | how a task ends |
//! | `stream` | TCP, TLS and unix sockets made alike |
//! | `tls_socket` | a socket with TLS: reading it, and writing to it from two threads |
//! | `turn` | how much a connection does before others get their turn |
//! | `frames` | where a frame ends; the limit of its length |
//! | `class` | which part of the server handles an operation |
//! | `lag` | how late the socket tasks get their turn |

pub(crate) mod accept;
mod class;
pub(crate) mod connection;
mod end;
mod frames;
mod handshake;
pub(crate) mod lag;
mod read_only;
pub(crate) mod stream;
pub(crate) mod tls_handshake;
mod tls_socket;
mod turn;
mod word_reply;
