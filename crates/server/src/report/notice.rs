//! The kinds of log lines about clients.

use std::fmt;

/// Subject of a line. The rate limit counts each kind on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Notice {
    /// A connection that was refused.
    ConnectionRefused,
    /// A connection that named no session in time.
    NoSession,
    /// A session that was asked for and could not be logged in time.
    NotOpened,
    /// Bytes that are no frame, no handshake, or a request that ends the connection.
    BadFrame,
    /// A TLS handshake that failed, or TLS on one side only.
    Tls,
    /// A request that cannot be decoded.
    BadRecord,
    /// A request over the limit of bytes.
    LargeRequest,
    /// Refused credentials, or a wrong password of a session.
    BadCredentials,
    /// A request that an ACL forbids, or an invalid ACL.
    Denied,
    /// A client that does not read.
    SlowReader,
    /// Unfinished or waiting requests of a connection while all together hold too much.
    Unfinished,
    /// A watch over a bound.
    Watches,
    /// A session over the bound.
    Sessions,
    /// A write over a quota.
    Quota,
    /// Sockets that were served late.
    Lag,
    /// A session that expired.
    SessionExpired,
}

impl Notice {
    /// Whether it happens to sound clients and servers too: logged, but not as a warning.
    pub(crate) const fn is_routine(self) -> bool {
        matches!(self, Self::Denied | Self::SessionExpired)
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Notice::ConnectionRefused => "refused connections",
            Notice::NoSession => "connections without a session",
            Notice::NotOpened => "sessions that were not opened",
            Notice::BadFrame => "bad frames",
            Notice::Tls => "failed TLS handshakes",
            Notice::BadRecord => "bad records",
            Notice::LargeRequest => "large requests",
            Notice::BadCredentials => "bad credentials",
            Notice::Denied => "denied requests",
            Notice::SlowReader => "slow readers",
            Notice::Unfinished => "unfinished requests",
            Notice::Watches => "refused watches",
            Notice::Sessions => "refused sessions",
            Notice::Quota => "quotas",
            Notice::Lag => "late service of sockets",
            Notice::SessionExpired => "expired sessions",
        })
    }
}
