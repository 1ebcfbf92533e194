//! The tree of nodes: arguments and results of the operations of a [`Session`](crate::Session).
//!
//! [`CreateMode`], [`Acl`] and [`Op`] go into operations; [`Stat`], [`Data`], [`Children`] and
//! [`OpResult`] come back. [`Watch`] waits for one change, [`PersistentWatch`] yields all of them.
//! [`path`] has the rules of paths.

#[doc(inline)]
pub use baton_client::{
    Acl, AddWatchMode, Children, CreateMode, CreatedNode, Data, DeleteOptions, Deletion, ErrorCode,
    EventKind, Op, OpCode, OpResult, Perms, PersistentEvent, PersistentWatch, Stat, Watch,
    WatchEvent, WithZxid, path,
};
/// The bytes of nodes.
pub use bytes::Bytes;
