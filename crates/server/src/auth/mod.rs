//! The identity of a client.
//!
//! | module | owns |
//! |---|---|
//! | `acl_admission` | which ACLs go into the log: schemes that are enabled, and the bounds |
//! | `sasl` | the exchange by which a user proves to know a password |
//! | `credentials` | what an auth packet proves |
//! | `tokens` | bearer tokens, for HTTP |
//! | `secret_file` | files that nobody else may read |
//! | `attempts` | how fast an address may try passwords of an account |

pub(crate) mod acl_admission;
pub(crate) mod attempts;
pub(crate) mod credentials;
pub(crate) mod sasl;
pub mod secret_file;
pub(crate) mod tokens;
