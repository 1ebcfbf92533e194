//! The identity of a client.
//!
//! | module | owns |
//! |---|---|
//! | `credentials` | what an auth packet proves |
//! | `attempts` | how often an address may try the superuser's password |

pub(crate) mod attempts;
pub(crate) mod credentials;
