//! Tools for tests and simulations: a clock that jumps, and a transport without sockets.
//!
//! Owns replacements for [`Clock`] and [`Transport`] that make a session deterministic. With
//! tokio's time paused, a session on these two does the same at every run.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::DuplexStream;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::clock::{BootInstant, BoxFuture, Clock};
use crate::transport::{BoxStream, Endpoint, Host, Transport};

/// A clock that follows tokio's (and so can be paused with it), and jumps on request, as after a
/// system suspend.
#[derive(Clone)]
pub struct VirtualClock {
    start: Instant,
    ahead_nanos: Arc<AtomicU64>,
    jumped: watch::Sender<()>,
}

impl VirtualClock {
    /// A clock that starts at one hour after its zero. Needs a tokio runtime.
    #[must_use]
    pub fn new() -> Self {
        let hour = Duration::from_secs(3600).as_nanos();
        Self {
            start: Instant::now(),
            ahead_nanos: Arc::new(AtomicU64::new(u64::try_from(hour).unwrap_or(0))),
            jumped: watch::Sender::new(()),
        }
    }

    /// Moves the clock forward at once, as if the machine had slept for `by`. Timers that are due
    /// by then fire.
    pub fn jump(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.ahead_nanos.fetch_add(nanos, Ordering::AcqRel);
        self.jumped.send_replace(());
    }
}

impl Default for VirtualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for VirtualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("VirtualClock").field(&self.now()).finish()
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> BootInstant {
        let ahead = self.ahead_nanos.load(Ordering::Acquire);
        BootInstant::from_nanos(ahead) + self.start.elapsed()
    }

    fn sleep_until(&self, deadline: BootInstant) -> BoxFuture<()> {
        let clock = self.clone();
        let mut jumped = self.jumped.subscribe();
        Box::pin(async move {
            loop {
                let left = deadline.saturating_duration_since(clock.now());
                if left.is_zero() {
                    return;
                }
                // The sender lives in `clock`, so `changed` cannot fail.
                tokio::select! {
                    biased;
                    () = tokio::time::sleep(left) => {}
                    _ = jumped.changed() => {}
                }
            }
        })
    }
}

/// A transport of in-memory pipes, whose connections a [`DuplexListener`] accepts.
#[derive(Clone, Debug)]
pub struct DuplexTransport {
    to: mpsc::UnboundedSender<(Host, DuplexStream)>,
    refusing: Arc<AtomicBool>,
    attempts: Arc<AtomicU64>,
    buffer_bytes: usize,
}

/// The servers' side of a [`DuplexTransport`].
#[derive(Debug)]
pub struct DuplexListener {
    from: mpsc::UnboundedReceiver<(Host, DuplexStream)>,
}

impl DuplexTransport {
    /// A transport and its listener; each pipe holds `buffer_bytes` in each direction before the
    /// writer waits.
    #[must_use]
    pub fn new(buffer_bytes: usize) -> (Self, DuplexListener) {
        let (to, from) = mpsc::unbounded_channel();
        let transport = Self {
            to,
            refusing: Arc::default(),
            attempts: Arc::default(),
            buffer_bytes,
        };
        (transport, DuplexListener { from })
    }

    /// Sets whether connections are refused from now on.
    pub fn refuse(&self, refusing: bool) {
        self.refusing.store(refusing, Ordering::Release);
    }

    /// Number of attempted connections.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.attempts.load(Ordering::Acquire)
    }
}

impl DuplexListener {
    /// The next connection; `None` when the transport is gone. Cancel safe.
    pub async fn accept(&mut self) -> Option<DuplexStream> {
        self.from.recv().await.map(|(_, stream)| stream)
    }
}

impl Transport for DuplexTransport {
    fn resolve(&self, host: &Host) -> BoxFuture<io::Result<Vec<Endpoint>>> {
        let endpoint = Endpoint::Unix(host.to_string().into());
        Box::pin(std::future::ready(Ok(vec![endpoint])))
    }

    fn connect(&self, endpoint: &Endpoint) -> BoxFuture<io::Result<BoxStream>> {
        self.attempts.fetch_add(1, Ordering::AcqRel);
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let result = if self.refusing.load(Ordering::Acquire) {
            Err(refused())
        } else {
            let (ours, theirs) = tokio::io::duplex(self.buffer_bytes);
            let host = match endpoint {
                Endpoint::Unix(path) => Host::Unix(path.clone()),
                Endpoint::Tcp(addr) => Host::Tcp {
                    name: addr.ip().to_string(),
                    port: addr.port(),
                },
            };
            self.to
                .send((host, theirs))
                .map(|()| Box::new(ours) as BoxStream)
                .map_err(|_| refused())
        };
        Box::pin(std::future::ready(result))
    }
}
