//! SASL DIGEST-MD5 (RFC 2831) as ZooKeeper's clients and servers use it, both sides: a server's
//! challenge, the client's response, the server's proof that it knows the password too. Only
//! authentication: neither side signs or encrypts what follows.
//!
//! Pure: sends nothing, and draws no random numbers. The caller gives nonces that nobody can
//! guess and that are never used twice.
//!
//! DIGEST-MD5 is old: who has read an exchange can try passwords at leisure. Use it where an
//! existing client has nothing else, and encrypt the connection.
//!
//! | module | owns |
//! |---|---|
//! | `server` | the challenge, and the judgement of a response |
//! | `client` | the response to a challenge, and the check of the server's proof |
//! | `digest` | the hashes of both |
//! | `directives` | the text form of messages |
//! | `error` | why a message is refused |

#![forbid(unsafe_code)]

mod client;
mod digest;
mod directives;
mod error;
mod server;

pub use client::{Client, Proof};
pub use error::SaslError;
pub use server::{AcceptedClient, Server, claimed_user};

/// The service that ZooKeeper's servers are.
pub const ZOOKEEPER_SERVICE: &str = "zookeeper";
/// The realm of the users of a ZooKeeper, and its name in the client's response.
pub const ZOOKEEPER_REALM: &str = "zk-sasl-md5";

/// The name of the mechanism.
pub const DIGEST_MD5: &str = "DIGEST-MD5";
