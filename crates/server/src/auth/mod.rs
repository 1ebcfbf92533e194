//! The identity of a client.
//!
//! | module | owns |
//! |---|---|
//! | `acl_schemes` | which schemes an ACL may name |
//! | `sasl` | the exchange by which a user proves to know a password |
//! | `credentials` | what an auth packet proves |
//! | `tokens` | bearer tokens, for HTTP |
//! | `attempts` | how often an address may try the superuser's password |

pub(crate) mod acl_schemes;
pub(crate) mod attempts;
pub(crate) mod credentials;
pub(crate) mod sasl;
pub(crate) mod tokens;
