//! Reason why a message is refused.

/// A message of the other side that is refused. Ends the exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SaslError {
    /// It is longer than any message has to be.
    #[error("the SASL message is longer than 4096 bytes")]
    TooLong,
    /// It is not a list of directives.
    #[error("the SASL message is not a list of directives NAME=VALUE")]
    Malformed,
    /// It lacks this directive.
    #[error("the SASL message has no {0}")]
    Missing(&'static str),
    /// It has this directive more than once.
    #[error("the SASL message has {0} twice")]
    Twice(&'static str),
    /// This directive has a value that is not possible here.
    #[error("the SASL message has an impossible {0}")]
    Impossible(&'static str),
    /// The user is not known, or the password is another one.
    #[error("user or password is wrong")]
    Credentials,
    /// The server does not know the password.
    #[error(
        "the server does not prove that it knows the password: it is not the one it claims to be"
    )]
    ServerProof,
}
