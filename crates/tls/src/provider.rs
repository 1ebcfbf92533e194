//! The provider of cryptography that all configurations of this crate use.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
