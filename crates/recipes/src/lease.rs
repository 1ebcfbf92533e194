//! The lease: until when a session is known to live, by this machine's own clock.
//!
//! [`Session::lease`](crate::Session::lease) yields a [`Lease`] without waiting. Guards end with
//! the lease; [`LeaseOptions`] set how early. [`Clock`] is the clock that measures it.

#[doc(inline)]
pub use baton_client::{
    BootInstant, Clock, Lease, LeaseError, LeaseHold, LeaseMode, LeaseOptions, SystemClock,
};
