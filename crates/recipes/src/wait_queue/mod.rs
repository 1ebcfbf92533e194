//! Standing in line: what the mutex and the election share.
//!
//! Owns our node from the instant its create is sent until it is deleted or handed to a
//! [`Guard`](crate::Guard), and the wait until it is first. It must never leave a node behind:
//! every way out of here, a dropped future included, ends in a delete (H10–H12). It never decides
//! that a session is alive; it asks the client.

mod error;
mod fencing_token;
mod node_group;
pub(crate) mod order;
mod own_node_watch;
mod position;
mod release_marker;
mod waiter_node;

pub(crate) use error::AcquireError;
pub(crate) use fencing_token::{mint_token, read_own};
pub(crate) use node_group::{NewNode, join_all, withdraw_all};
pub(crate) use own_node_watch::{NodeNotification, OwnNodeWatch};
pub(crate) use position::{
    Contention, DelayedUntil, GrantedNode, Position, Step, arranged, position_or_withdraw,
    until_gone, wait_for_turn, wait_for_turn_delayed, withdraw_after,
};
pub(crate) use release_marker::{release_marker, signal};
pub(crate) use waiter_node::{NodeDeletion, WaiterNode, join};
