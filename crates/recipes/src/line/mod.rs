//! Standing in line: what the mutex and the election share.
//!
//! Owns our node from the instant its create is sent until it is deleted or handed to a
//! [`Guard`](crate::Guard), and the wait until it is first. It must never leave a node behind:
//! every way out of here, a dropped future included, ends in a delete (H10–H12). It never decides
//! that a session is alive; it asks the client.

mod contender;
mod group;
mod mint;
mod own_node;
mod parents;
mod place;

pub(crate) use contender::{Contender, Removal, herald, join};
pub(crate) use group::{Seat, join_all, withdraw_all};
pub(crate) use mint::{mint, read_own};
pub(crate) use own_node::{News, OwnNode};
pub(crate) use parents::{Parents, ensure as ensure_parents};
pub(crate) use place::{
    Granted, HeldOff, Place, Stance, Step, Trouble, arranged, leave, look_or_leave, stand,
    stand_off, until_gone,
};
