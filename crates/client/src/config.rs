//! Settings of a session, known before it connects.
//!
//! Owns the connect string's form and every default. It must never resolve a name or open a
//! socket.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::clock::{Clock, SystemClock};
use crate::error::{ConfigError, ConnectError};
use crate::lease::{LeaseMode, LeaseOptions};
use crate::runtime;
use crate::tls::ClientTls;
use crate::transport::{Host, SocketTransport, Transport};

/// The port that a server list means when it names none.
pub const DEFAULT_PORT: u16 = 2181;

/// Prefix of a server list whose servers are reached with TLS.
const TLS_MARK: &str = "tls://";

/// Credentials to present on every connection.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct AuthInfo {
    pub(crate) scheme: String,
    pub(crate) data: Vec<u8>,
}

/// Configuration of a session: its servers and its behaviour. Made by [`Config::new`], changed by
/// its builder methods, cheap to clone.
///
/// The builder methods refuse nothing. What no session can be opened with is refused when one is
/// opened: [`ConnectError::BadConfig`](crate::ConnectError::BadConfig).
#[derive(Clone)]
pub struct Config {
    pub(crate) hosts: Vec<Host>,
    /// Whether the server list asks for TLS.
    tls_asked: bool,
    /// TLS of TCP servers.
    tls: Option<ClientTls>,
    /// Empty for none, else without a trailing slash.
    pub(crate) chroot: String,
    pub(crate) session_timeout: Duration,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) connect_within: Duration,
    pub(crate) new_session_within: Option<Duration>,
    pub(crate) auth: Vec<AuthInfo>,
    /// User that authenticates by SASL.
    #[cfg(feature = "sasl")]
    pub(crate) sasl: Option<baton_sasl::Client>,
    pub(crate) lease: LeaseOptions,
    pub(crate) max_pending: usize,
    pub(crate) max_pending_bytes: usize,
    pub(crate) max_request_bytes: usize,
    pub(crate) max_reply_bytes: usize,
    pub(crate) watch_capacity: usize,
    /// `None`: the client's own thread.
    runtime: Option<Handle>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) transport: Arc<dyn Transport>,
}

impl Config {
    /// Parses a connect string: `HOST[:PORT],…[/chroot]` or `unix:/path/to.sock`; entries of both
    /// kinds may be mixed, and only a list that ends with a TCP host can carry a chroot (see
    /// [`Config::chroot`] for the other).
    ///
    /// `tls://` before the first TCP host asks for TLS to every TCP host of the list, whether it
    /// stands before the others too or not: if one server could be reached without TLS, anyone who
    /// can block the other servers could read the session's password. Such a list needs
    /// [`Config::tls`].
    ///
    /// ```
    /// # use baton_client::Config;
    /// let config = Config::new("zk1:2181,zk2:2181,[::1]:2181/app")?;
    /// let local = Config::new("unix:/run/user/1000/baton.sock")?;
    /// let encrypted = Config::new("tls://zk1:2281,zk2:2281/app")?;
    /// # Ok::<(), baton_client::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfigError`] names the entry that is not understood.
    pub fn new(connect_string: &str) -> Result<Self, ConfigError> {
        let ServerList {
            hosts,
            tls_asked,
            chroot,
        } = parse(connect_string)?;
        let config = Self {
            hosts,
            tls_asked,
            tls: None,
            chroot: String::new(),
            session_timeout: Duration::from_secs(10),
            connect_timeout: None,
            connect_within: Duration::from_secs(15),
            new_session_within: None,
            auth: Vec::new(),
            #[cfg(feature = "sasl")]
            sasl: None,
            lease: LeaseOptions::default(),
            max_pending: 16_384,
            max_pending_bytes: 64 << 20,
            max_request_bytes: 1_048_575,
            max_reply_bytes: 64 << 20,
            watch_capacity: 1_024,
            runtime: None,
            clock: Arc::new(SystemClock),
            transport: Arc::new(SocketTransport),
        };
        let config = config.chroot(chroot);
        match config.problem() {
            Some(problem) => Err(problem),
            None => Ok(config),
        }
    }

    /// Returns the settings that no session can be opened with, if there are any.
    pub(crate) fn problem(&self) -> Option<ConfigError> {
        if !self.chroot.is_empty()
            && let Err(error) = baton_proto::path::validate(&self.chroot)
        {
            return Some(ConfigError::BadChroot {
                path: self.chroot.clone(),
                why: error.to_string(),
            });
        }
        let no_time = "no attempt can succeed without time";
        let no_answer = "nothing can be sent or received";
        let no_room = "no operation has room";
        let options = [
            ("session_timeout", self.session_timeout.is_zero(), no_time),
            (
                "connect_timeout",
                self.connect_timeout == Some(Duration::ZERO),
                no_time,
            ),
            ("connect_within", self.connect_within.is_zero(), no_time),
            (
                "new_session_within",
                self.new_session_within == Some(Duration::ZERO),
                no_time,
            ),
            ("max_pending", self.max_pending == 0, no_room),
            ("max_pending", self.max_pending_bytes == 0, no_room),
            ("max_request_bytes", self.max_request_bytes == 0, no_answer),
            ("max_reply_bytes", self.max_reply_bytes == 0, no_answer),
            (
                "watch_capacity",
                self.watch_capacity == 0,
                "every event would be a Resync",
            ),
        ];
        let (option, _, why) = options.into_iter().find(|(_, is_zero, _)| *is_zero)?;
        Some(ConfigError::BadOption { option, why })
    }

    /// Sets the session timeout to request (10 s). The server may clamp it;
    /// [`Session::timeout`](crate::Session::timeout) returns the granted one. After this time
    /// without an answer the session ends, and its ephemeral nodes are deleted.
    #[must_use]
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// Sets the limit on one connection attempt to one address, handshake included. By default the
    /// session timeout or [`Config::connect_within`], whichever is shorter, or a quarter of the
    /// timeout for a session that is to be taken up again, divided by the number of addresses; at
    /// least 100 ms and at most 5 s.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = Some(timeout);
        self
    }

    /// Sets the time that [`Session::connect`](crate::Session::connect) keeps trying before it
    /// gives up (15 s).
    #[must_use]
    pub fn connect_within(mut self, limit: Duration) -> Self {
        self.connect_within = limit;
        self
    }

    /// Sets the time that a [`Client`](crate::Client) that has lost a session tries to open the
    /// next one before it gives up (as for the first one, [`Config::connect_within`]).
    /// [`Duration::MAX`] means for ever: a caller that waits for a lock then waits through an
    /// outage of any length.
    #[must_use]
    pub fn new_session_within(mut self, limit: Duration) -> Self {
        self.new_session_within = Some(limit);
        self
    }

    /// Prefixes every path with `chroot`, and hides it in every path that comes back. `""` and
    /// `"/"` mean none.
    #[must_use]
    pub fn chroot(mut self, chroot: &str) -> Self {
        let chroot = chroot.strip_suffix('/').unwrap_or(chroot);
        chroot.clone_into(&mut self.chroot);
        self
    }

    /// Uses TLS to every TCP server of the list, whether the list says `tls://` or not. Unix
    /// sockets stay as they are.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: ClientTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Returns whether the server list says `tls://`, so that it needs [`Config::tls`].
    #[must_use]
    pub const fn asks_for_tls(&self) -> bool {
        self.tls_asked
    }

    /// Returns whether the list has a server that is reached by TCP, and so can be reached with
    /// TLS.
    #[must_use]
    pub fn has_tcp_server(&self) -> bool {
        self.hosts
            .iter()
            .any(|host| matches!(host, Host::Tcp { .. }))
    }

    /// Adds credentials, presented on every connection before anything else. May be called more
    /// than once.
    #[must_use]
    pub fn auth(mut self, scheme: &str, data: &[u8]) -> Self {
        self.auth.push(AuthInfo {
            scheme: scheme.to_owned(),
            data: data.to_owned(),
        });
        self
    }

    /// Authenticates by SASL DIGEST-MD5 as this user of a ZooKeeper or a Baton, on every
    /// connection, before anything else of the session is sent. ACLs name the user as `sasl:USER`.
    /// Where that fails, the session ends ([`ConnectError::Sasl`](crate::ConnectError::Sasl),
    /// [`State::AuthFailed`](crate::State::AuthFailed)); so it does if the server does not prove
    /// that it knows the password too.
    ///
    /// The password itself is not sent, but anyone who records the exchange can try passwords at
    /// leisure: use TLS too ([`Config::tls`]).
    #[cfg(feature = "sasl")]
    #[must_use]
    pub fn sasl(mut self, user: &str, password: &str) -> Self {
        self.sasl = Some(baton_sasl::Client::of_zookeeper(user, password));
        self
    }

    /// Sets the options of the lease: see [`LeaseOptions`]. The defaults are sound on every
    /// ensemble.
    #[must_use]
    pub fn lease(mut self, options: LeaseOptions) -> Self {
        self.lease = options;
        self
    }

    /// States the ensemble's `tickTime`: see [`LeaseOptions::tick`].
    #[must_use]
    pub fn ensemble_tick(mut self, tick: Duration) -> Self {
        self.lease.tick = Some(tick);
        self
    }

    /// States the ensemble's `syncLimit`, in ticks: see [`LeaseOptions::sync_limit`].
    #[must_use]
    pub fn ensemble_sync_limit(mut self, ticks: u32) -> Self {
        self.lease.sync_limit = Some(ticks);
        self
    }

    /// Sets the requests by which the lease is proved: see [`LeaseMode`].
    #[must_use]
    pub fn lease_mode(mut self, mode: LeaseMode) -> Self {
        self.lease.mode = mode;
        self
    }

    /// Sets the most operations that may be queued or unanswered (16,384), and the most bytes of
    /// them (64 MiB). An operation beyond either limit fails at once, unsent.
    #[must_use]
    pub fn max_pending(mut self, operations: usize, bytes: usize) -> Self {
        self.max_pending = operations;
        self.max_pending_bytes = bytes;
        self
    }

    /// Sets the largest request to send, in bytes (1,048,575: the default of ZooKeeper servers,
    /// which close the connection after a larger one).
    #[must_use]
    pub fn max_request_bytes(mut self, bytes: usize) -> Self {
        self.max_request_bytes = bytes;
        self
    }

    /// Sets the largest reply to accept, in bytes (64 MiB).
    #[must_use]
    pub fn max_reply_bytes(mut self, bytes: usize) -> Self {
        self.max_reply_bytes = bytes;
        self
    }

    /// Sets the number of unread events that a persistent watch keeps (1,024) before it replaces
    /// them by one [`Resync`](crate::PersistentEvent::Resync).
    #[must_use]
    pub fn watch_capacity(mut self, events: usize) -> Self {
        self.watch_capacity = events;
        self
    }

    /// Runs sessions on this runtime instead of a thread of the client's own, which saves two
    /// changes of thread for each operation. The session is over when the runtime ends. While it is
    /// busy with other work no lease is renewed and no guard is notified of its end, so name one
    /// that lives as long as the program and whose tasks never block. It needs tokio's timers and
    /// I/O.
    ///
    /// The drop of the last handle of a session then does not wait for the session's end.
    #[must_use]
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// The runtime that sessions run on, and whether it is the client's own thread.
    pub(crate) fn chosen_runtime(&self) -> Result<(Handle, bool), ConnectError> {
        match &self.runtime {
            Some(given) => Ok((given.clone(), false)),
            None => runtime::own().map(|own| (own, true)),
        }
    }

    /// Replaces the clock, for simulation.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Replaces the transport, for tunnels or simulation.
    #[must_use]
    pub fn transport(mut self, transport: Arc<dyn Transport>) -> Self {
        self.transport = transport;
        self
    }

    /// Returns the server list, as it was parsed.
    #[must_use]
    pub fn servers(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(|host| self.shown(host)).collect();
        hosts.join(",")
    }

    /// This server as a server list has it.
    pub(crate) fn shown(&self, host: &Host) -> String {
        let with_tls = self.tls_asked || self.tls.is_some();
        match host {
            Host::Tcp { .. } if with_tls => format!("{TLS_MARK}{host}"),
            _ => host.to_string(),
        }
    }

    /// Returns the TLS of this server, and the name that its certificate must have; `None`:
    /// without.
    pub(crate) fn tls_of<'a>(&'a self, host: &'a Host) -> Option<(&'a ClientTls, &'a str)> {
        match (host, &self.tls) {
            (Host::Tcp { name, .. }, Some(tls)) => Some((tls, name)),
            _ => None,
        }
    }

    /// Returns whether the list asks for TLS and nothing says which servers to trust.
    pub(crate) const fn lacks_tls(&self) -> bool {
        self.tls_asked && self.tls.is_none()
    }

    /// Time for one attempt, where this many addresses share `total`.
    pub(crate) fn attempt_timeout(&self, total: Duration, addresses: usize) -> Duration {
        self.connect_timeout.unwrap_or_else(|| {
            let share = total / u32::try_from(addresses).unwrap_or(u32::MAX).max(1);
            share.clamp(Duration::from_millis(100), Duration::from_secs(5))
        })
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Config");
        shown
            .field("servers", &self.servers())
            .field("chroot", &self.chroot)
            .field("session_timeout", &self.session_timeout)
            .field("credentials", &self.auth.len());
        #[cfg(feature = "sasl")]
        shown.field("sasl", &self.sasl);
        shown.finish_non_exhaustive()
    }
}

/// A connect string, taken apart.
struct ServerList<'a> {
    hosts: Vec<Host>,
    /// Whether the first TCP host is marked.
    tls_asked: bool,
    chroot: &'a str,
}

/// Splits a connect string into its hosts and its chroot.
fn parse(text: &str) -> Result<ServerList<'_>, ConfigError> {
    let mut hosts = Vec::new();
    let mut tls_asked = None;
    let mut rest = text.trim();
    let mut chroot = "";
    while !rest.is_empty() {
        let entry;
        let marked = rest.strip_prefix(TLS_MARK);
        rest = marked.unwrap_or(rest);
        if rest.starts_with("unix:") && marked.is_none() {
            (entry, rest) = rest.split_once(',').unwrap_or((rest, ""));
        } else if let Some(end) = rest.find([',', '/']) {
            let (head, tail) = rest.split_at(end);
            entry = head;
            rest = match tail.strip_prefix(',') {
                Some(more) => more,
                None => {
                    chroot = tail;
                    ""
                }
            };
        } else {
            (entry, rest) = (rest, "");
        }
        let entry = entry.trim();
        rest = rest.trim_start();
        if marked.is_some() {
            let whole = format!("{TLS_MARK}{entry}");
            if entry.is_empty() || entry.starts_with("unix:") {
                return Err(ConfigError::BadHost(whole));
            }
            if tls_asked == Some(false) {
                return Err(ConfigError::TlsNotFirst(whole));
            }
        }
        if !entry.is_empty() {
            let host = parse_host(entry)?;
            if matches!(host, Host::Tcp { .. }) {
                tls_asked.get_or_insert(marked.is_some());
            }
            hosts.push(host);
        }
    }
    if hosts.is_empty() {
        return Err(ConfigError::NoHosts(text.to_owned()));
    }
    Ok(ServerList {
        hosts,
        tls_asked: tls_asked.unwrap_or(false),
        chroot,
    })
}

fn parse_host(entry: &str) -> Result<Host, ConfigError> {
    let bad = || ConfigError::BadHost(entry.to_owned());
    if let Some(path) = entry.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        return if path.is_empty() {
            Err(bad())
        } else {
            Ok(Host::Unix(PathBuf::from(path)))
        };
    }
    let (name, port) = if let Some(inner) = entry.strip_prefix('[') {
        let (name, after) = inner.split_once(']').ok_or_else(bad)?;
        match after {
            "" => (name, None),
            _ => (name, Some(after.strip_prefix(':').ok_or_else(bad)?)),
        }
    } else if entry.matches(':').count() > 1 {
        (entry, None)
    } else {
        match entry.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (entry, None),
        }
    };
    let port = match port {
        Some(digits) => digits.parse().ok().filter(|p| *p != 0).ok_or_else(bad)?,
        None => DEFAULT_PORT,
    };
    if name.is_empty() || name.chars().any(char::is_whitespace) {
        return Err(bad());
    }
    Ok(Host::Tcp {
        name: name.to_owned(),
        port,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(name: &str, port: u16) -> Host {
        Host::Tcp {
            name: name.to_owned(),
            port,
        }
    }

    #[test]
    fn connect_strings_are_understood() {
        let c = Config::new("a:1, b ,[::1]:3,::1,10.0.0.1:4/app/x").unwrap();
        assert_eq!(
            c.hosts,
            [
                tcp("a", 1),
                tcp("b", 2181),
                tcp("::1", 3),
                tcp("::1", 2181),
                tcp("10.0.0.1", 4)
            ]
        );
        assert_eq!(c.chroot, "/app/x");
        assert_eq!(c.servers(), "a:1,b:2181,[::1]:3,[::1]:2181,10.0.0.1:4");
        let c = Config::new("unix:/run/b.sock,host:5/").unwrap();
        assert_eq!(c.hosts, [Host::Unix("/run/b.sock".into()), tcp("host", 5)]);
        assert_eq!(c.chroot, "");
    }

    #[test]
    fn tls_counts_for_all_tcp_servers_of_a_list() {
        for (text, shown) in [
            ("tls://a:1,b:2/app", "tls://a:1,tls://b:2"),
            ("tls://a:1,tls://b:2/app", "tls://a:1,tls://b:2"),
            (
                "unix:/b.sock, tls://[::1]:3/app",
                "unix:/b.sock,tls://[::1]:3",
            ),
        ] {
            let c = Config::new(text).unwrap();
            assert_eq!(
                (c.servers().as_str(), c.asks_for_tls()),
                (shown, true),
                "{text}"
            );
            assert_eq!(c.chroot, "/app", "{text}");
            assert!(c.lacks_tls(), "{text}");
        }
        let c = Config::new("unix:/b.sock").unwrap();
        assert!(!c.asks_for_tls() && !c.has_tcp_server() && !c.lacks_tls());
        for text in ["a,tls://b", "unix:/b.sock,a,tls://b"] {
            let e = Config::new(text).unwrap_err();
            assert_eq!(e, ConfigError::TlsNotFirst("tls://b".to_owned()), "{text}");
        }
        for text in [
            "tls://",
            "tls://,a",
            "tls:///app",
            "tls://unix:/b",
            "tls://tls://a",
            "http://a",
        ] {
            let e = Config::new(text).unwrap_err();
            assert!(matches!(e, ConfigError::BadHost(_)), "{text}: {e}");
        }
    }

    #[test]
    fn bad_connect_strings_name_the_entry_and_the_remedy() {
        for (text, part) in [
            ("", "names no server"),
            (",", "names no server"),
            ("/app", "names no server"),
            ("h:0", "`h:0`"),
            ("h:65536", "`h:65536`"),
            ("h:x", "`h:x`"),
            (":1", "`:1`"),
            ("[::1:2", "`[::1:2`"),
            ("unix:", "`unix:`"),
            ("h:1/a//b", "/a//b"),
        ] {
            let e = Config::new(text).unwrap_err().to_string();
            assert!(e.contains(part), "{text}: {e}");
            assert!(!e.contains('\n'));
        }
    }
}
