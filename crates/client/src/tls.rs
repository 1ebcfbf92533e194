//! TLS below a session: that of `baton_tls`, or none at all without the feature `tls`.
//!
//! Owns the one place that depends on the feature. Without it the types here have no value, so that
//! no connection has TLS, and a server list that asks for it is refused.

#[cfg(feature = "tls")]
pub(crate) use baton_tls::{ClientTls, ReloadOutcome, TlsFailure};

/// Reason why a server list that says `tls://` is refused without
/// [`Config::tls`](crate::Config::tls).
#[cfg(feature = "tls")]
pub(crate) const NOT_CONFIGURED: &str =
    "nothing says which authorities to trust; name the file of their certificates (Config::tls)";

/// Reason why a server list that says `tls://` is refused.
#[cfg(not(feature = "tls"))]
pub(crate) const NOT_CONFIGURED: &str =
    "this program is built without TLS; build it with the feature `tls` of baton";

/// The failure of a plain handshake with a server that accepts only TLS.
pub(crate) fn tls_only() -> std::io::Error {
    #[cfg(feature = "tls")]
    {
        TlsFailure::TlsOnly.into()
    }
    #[cfg(not(feature = "tls"))]
    {
        let why = "it accepts only TLS at this port; build this program with the feature `tls`";
        std::io::Error::new(std::io::ErrorKind::InvalidData, why)
    }
}

#[cfg(not(feature = "tls"))]
pub(crate) use absent::{ClientTls, ReloadOutcome, TlsFailure};

#[cfg(not(feature = "tls"))]
mod absent {
    use std::{fmt, io};

    use crate::transport::BoxStream;

    #[derive(Clone, Debug)]
    pub(crate) enum ClientTls {}

    #[derive(Debug)]
    pub(crate) enum TlsFailure {}

    #[allow(dead_code, reason = "there is nothing to reload")]
    pub(crate) enum ReloadOutcome {
        Unchanged,
        Kept(TlsFailure),
    }

    impl ClientTls {
        pub(crate) fn reload(&self) -> ReloadOutcome {
            match *self {}
        }

        pub(crate) async fn connect(&self, _: &str, _: BoxStream) -> io::Result<BoxStream> {
            match *self {}
        }
    }

    impl TlsFailure {
        pub(crate) fn of(_: &io::Error) -> Option<Self> {
            None
        }
    }

    impl fmt::Display for TlsFailure {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            match *self {}
        }
    }
}
