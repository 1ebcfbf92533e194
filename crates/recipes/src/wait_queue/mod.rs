//! The wait queue: waiter nodes, their order, and the wait until one is first.
//!
//! Owns a waiter node from the instant its create is sent until it is deleted or handed to a
//! [`Guard`](crate::Guard), and the wait until it is first. It must never leave a node behind:
//! every way out of here, a dropped future included, ends in a delete (H10–H12). It never decides
//! that a session is alive; it asks the client.
//!
//! | module | owns |
//! |---|---|
//! | `position` | the position of a waiter node, and the wait until it is first |
//! | `fencing_token` | tokens for grants that do not come in the order of creation |
//! | `node_group` | several nodes of ours, created in one multi |
//! | `order` | the order of waiters and queue items |
//! | `own_node_watch` | the watch on our own node |
//! | `waiter_node` | a waiter node of ours, from its create to its end |
//! | `release_marker` | the sign that a holder has released |
//! | `release_request` | the data that asks a holder to release |
//! | `error` | why a wait ended without a grant |

mod error;
mod fencing_token;
mod node_group;
pub(crate) mod order;
mod own_node_watch;
mod position;
mod release_marker;
mod release_request;
mod waiter_node;

pub(crate) use error::AcquireError;
pub(crate) use fencing_token::{mint_token, read_own};
pub(crate) use node_group::{NewNode, join_all, withdraw_all};
pub(crate) use own_node_watch::{NodeNotification, OwnNodeWatch};
pub(crate) use position::{
    Contention, DelayedUntil, GrantedNode, Position, Step, arranged, kept_position,
    position_or_withdraw, until_gone, wait_for_turn, wait_for_turn_delayed, withdraw_after,
};
pub(crate) use release_marker::{release_marker, signal};
pub(crate) use release_request::{RELEASE_REQUEST, is_release_request};
pub(crate) use waiter_node::{NodeDeletion, WaiterNode, join};
