//! Every setting of a server, in one place: its meaning, its unit, its default, and what is
//! refused. Never reads the environment or a file: the embedding program decides where settings
//! come from.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use baton_proto::ClientAddress;
use baton_tls::{ClientAuth, Files};

use crate::error::StartError;
use crate::observers::changes::ChangeObserver;
use crate::observers::traces::WriteTracer;
use crate::options::audit::AuditOptions;
use crate::options::inherited::InheritedSockets;
use crate::options::sasl_users::SaslUsers;
use crate::progress::Progress;

pub(crate) mod audit;
pub(crate) mod inherited;
pub(crate) mod sasl_users;

/// Connections that the system holds until they are accepted.
pub(crate) const BACKLOG: i32 = 1024;

/// Storage of the server's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorageChoice {
    /// In memory only: the same log and the same code, but nothing survives the process.
    Memory,
    /// In this folder, made if it does not exist, owned by one server at a time.
    Folder(PathBuf),
}

/// All settings of a server. [`Options::default`] is a server in memory without a listener.
#[derive(Debug, Clone)]
pub struct Options {
    /// Storage of the state. Default: in memory.
    pub storage: StorageChoice,
    /// TCP addresses to listen on, `HOST:PORT`; the host `*` is every address, of IPv6 and IPv4;
    /// port 0 picks a free one. Default: none.
    pub listen: Vec<String>,
    /// TCP addresses to listen on for clients with TLS, as in [`Options::listen`]; needs
    /// [`Options::tls`]. Default: none.
    pub secure_listen: Vec<String>,
    /// Whether clients may use TLS on the addresses of [`Options::listen`], too; the first byte
    /// shows which kind it is. Needs [`Options::tls`]. Default: no.
    pub port_unification: bool,
    /// Certificate and key, and what clients with TLS have to show. Default: none, no TLS.
    pub tls: Option<ServerTlsOptions>,
    /// Unix sockets to listen on, for users whom [`Options::unix_socket_mode`] lets connect.
    /// Default: none.
    pub unix_sockets: Vec<PathBuf>,
    /// The mode of the files of [`Options::unix_sockets`], whatever the umask. A user needs the
    /// right to write to connect. There is no other authentication: a user who connects can read
    /// and change every znode whose ACL is open to the world. Default: 0600, this user only.
    pub unix_socket_mode: u32,
    /// The id of the group that the files of [`Options::unix_sockets`] belong to, and whose members
    /// may connect if the mode lets a group do so. Default: none, the group of the process.
    pub unix_socket_group: Option<u32>,
    /// A further unix socket, for this user and the superuser of the machine only: its mode is
    /// always 0600. Default: none.
    pub private_socket: Option<PathBuf>,
    /// Sockets that listen already, which take the place of those with the same addresses and paths
    /// in the settings above. Default: none.
    pub inherited: InheritedSockets,
    /// TCP addresses on which HTTP answers with `/commands`, `/metrics`, `/healthz` and `/readyz`,
    /// as in [`Options::listen`]. Callers on this machine read paths and metrics, no data; others
    /// have to authenticate, unless [`Options::insecure`] is set and there is no
    /// [`Options::http_token_file`]. Default: none.
    pub http: Vec<String>,
    /// TCP addresses on which HTTP answers with TLS; needs [`Options::tls`]. Callers on other
    /// machines always have to authenticate; a client certificate is one way, and is asked for
    /// if authorities are named. Default: none.
    pub https: Vec<String>,
    /// A file with bearer tokens for HTTP, one a line. A client with one of them may read and
    /// change everything that HTTP offers. It is read again when it changes. Default: none.
    pub http_token_file: Option<PathBuf>,
    /// Whether [`Options::listen`] and [`Options::http`] may have addresses that other machines
    /// reach though nobody has to prove there who they are. Default: no, such a server does not
    /// start.
    pub insecure: bool,
    /// The step of the session clock: a silent session ends within (timeout, timeout + tick].
    /// Default: 200 ms.
    pub tick: Duration,
    /// The shortest session timeout that a client is given. Default: 1 s.
    pub min_session_timeout: Duration,
    /// The longest session timeout that a client is given. Default: 120 s.
    pub max_session_timeout: Duration,
    /// The longest request frame, in bytes, at most 32 MiB; a longer one closes its connection.
    /// Default: 1,048,575.
    pub max_frame_bytes: usize,
    /// Connections from one address at a time; 0 is no limit. Unix sockets are not counted, a /64
    /// network of IPv6 is one address.
    /// Default: 4,096.
    pub max_connections_per_address: usize,
    /// Connections in all; 0 is no limit. Default: 110,000.
    pub max_connections: usize,
    /// Requests of one connection that wait for their place in the log, before its socket is read
    /// no further. Default: 1,024.
    pub max_requests_in_flight: usize,
    /// Bytes of one connection that wait to be written. Past them the server reads no further
    /// requests from it; past sixteen times as many, which only watch events can cause, it closes
    /// the connection. Default: 1 MiB.
    pub max_outbound_bytes: usize,
    /// Bytes of all connections together that wait to be written. Past half of them a connection's
    /// requests wait until its answers have left; past them the server closes the connections that
    /// hold most, and for longest. At least sixteen times [`Options::max_outbound_bytes`]. Default:
    /// 256 MiB.
    pub max_outbound_bytes_in_all: usize,
    /// Bytes of requests that wait for the log, over all connections, before sockets are read no
    /// further. One connection may have a quarter of them; the last eighth is kept for connections
    /// of which nothing waits. Default: 64 MiB.
    pub max_queued_bytes: usize,
    /// Bytes of all connections together that have arrived and are not taken on: requests that are
    /// not whole yet, and whole ones that wait. What one connection has counts from 4 KiB on. Past
    /// the bound the server closes the connections that hold most, and for longest. At least twice
    /// [`Options::max_frame_bytes`]. Default: 64 MiB.
    pub max_unfinished_bytes: usize,
    /// Watches of one connection; each kind on each path counts. One more is refused with
    /// `BadArguments`. Default: 1,000,000.
    pub max_watches: usize,
    /// Watches of all connections together. Default: 4,000,000.
    pub max_watches_in_all: usize,
    /// Bytes that the watches of one connection may take: for each path that it watches, the path
    /// and 64 bytes. Default: 64 MiB.
    pub max_watch_bytes: usize,
    /// The same of all connections together. Default: 256 MiB.
    pub max_watch_bytes_in_all: usize,
    /// Sessions that are open, with a connection or without; 0 is no limit. A client that asks for
    /// one more is disconnected. Default: 100,000.
    pub max_sessions: usize,
    /// Sessions that clients at one address have opened, with a connection or without; 0 is no
    /// limit. A client that asks for one more is disconnected; a session that comes back is always
    /// let in. Unix sockets are not counted, a /64 network of IPv6 is one address. Each server of
    /// an ensemble counts its own clients. Default: 10,000.
    pub max_sessions_per_address: usize,
    /// Time that a connection may take to name its session before it is closed. Default: 10 s.
    pub handshake_timeout: Duration,
    /// Entries of the log after which a snapshot is written. Default: 100,000.
    pub snapshot_every_entries: u64,
    /// Bytes of the log after which a snapshot is written. Default: 256 MiB.
    pub snapshot_every_bytes: u64,
    /// Time for which ZooKeeper's command `snapshot` over HTTP is refused after the last one; zero
    /// for never. Default: 5 min.
    pub snapshot_interval: Duration,
    /// Interval at which empty containers and expired TTL znodes are looked for; zero turns the
    /// search off. Default: 60 s.
    pub reap_interval: Duration,
    /// Time that a container that never had a child is kept; zero keeps it for ever. Default: 5
    /// min.
    pub container_grace: Duration,
    /// The four-letter words that are answered; `*` is all. Default: ZooKeeper's, and those that
    /// cost no more with more watches and ephemerals (see [`DEFAULT_WORDS`]).
    pub four_letter_words: Vec<String>,
    /// The digest id of a superuser, to whom every ACL is open: `user:base64(sha1(user:password))`.
    /// Default: none.
    pub super_digest: Option<String>,
    /// The users that may authenticate by SASL DIGEST-MD5, with their passwords: each is the
    /// identity `sasl:NAME`. Default: none, and SASL is refused.
    pub sasl_users: SaslUsers,
    /// The users of SASL to whom every ACL is open. Default: none.
    pub sasl_super_users: Vec<String>,
    /// Schemes of which a client has to prove an identity before it may ask for anything. Default:
    /// none, and nobody has to.
    pub required_schemes: Vec<String>,
    /// The record of who did what. Default: none.
    pub audit: AuditOptions,
    /// The first byte of every session id this server gives, to tell servers apart; in an ensemble
    /// this server's id. Default: 1.
    pub server_id: u8,
    /// The ensemble of which this server is a member. Default: none, the server runs alone.
    pub ensemble: Option<EnsembleOptions>,
    /// Lines that the four-letter word `conf` shows besides the settings: name and value, as a
    /// zoo.cfg has them, `server.N` among them. They have no effect. Default: none.
    pub conf_lines: Vec<(String, String)>,
    /// An observer of the changes, whose metrics `/metrics` shows besides the server's own. It may
    /// belong to this server alone. Default: none.
    pub observer: Option<Arc<dyn ChangeObserver>>,
    /// A tracer of the writes whose clients trace them. Default: none, and clients are not asked to
    /// say which trace a write belongs to.
    pub tracer: Option<Arc<dyn WriteTracer>>,
    /// The revision of the source that the program was built from, for the log's line at the start
    /// and the metric `baton_build_info`. Default: unknown.
    pub commit: Option<String>,
    /// Lines of the log that the program has lost, for the metric `baton_log_lines_lost`. The
    /// writer of the log counts them here. Default: 0, for ever.
    pub lost_log_lines: Arc<AtomicU64>,
    /// Progress of the start.
    pub progress: Arc<Progress>,
}

/// TLS of a server's ports for clients and for HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTlsOptions {
    /// The server's certificate and key, and the authorities that sign clients' certificates: files
    /// in PEM. A change of them takes effect for new connections, without a restart.
    pub files: Files,
    /// Whether clients have to show a certificate. One that is shown must be valid; its subject is
    /// an identity of the scheme `x509`.
    pub client_auth: ClientAuth,
    /// The subject of the superuser's certificate, to whom every ACL is open, as ZooKeeper writes
    /// it: `CN=admin,O=Example`.
    pub super_subject: Option<String>,
    /// Interval at which the server looks whether the files have changed.
    pub reload_interval: Duration,
}

impl ServerTlsOptions {
    /// TLS with these files. Clients must show a certificate if authorities are named that sign
    /// them, and are not asked for one otherwise.
    #[must_use]
    pub fn new(files: Files) -> Self {
        let client_auth = match files.authorities {
            Some(_) => ClientAuth::Required,
            None => ClientAuth::None,
        };
        Self {
            files,
            client_auth,
            super_subject: None,
            reload_interval: Self::RELOAD_INTERVAL,
        }
    }

    /// The default of [`ServerTlsOptions::reload_interval`].
    pub const RELOAD_INTERVAL: Duration = Duration::from_secs(10);
}

/// TLS between the servers of an ensemble: both ends of a connection show a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerTlsOptions {
    /// This server's certificate and key, and the authorities that sign the certificates of all
    /// servers, which must be there: files in PEM. A host with a certificate of these authorities
    /// for both ends of a connection (`serverAuth` and `clientAuth`) can be a server. A change of
    /// the files takes effect for new connections, without a restart.
    pub files: Files,
    /// Whether this server uses TLS when it connects to the others. Otherwise it only accepts
    /// others that do, while the servers of an ensemble change one after the other.
    pub connects: bool,
    /// Whether servers without TLS are accepted, too.
    pub accepts_plain: bool,
    /// Whether the certificate of a server must be for the host by which this one reaches it.
    pub checks_hosts: bool,
    /// Interval at which the server looks whether the files have changed.
    pub reload_interval: Duration,
}

impl PeerTlsOptions {
    /// TLS only with these files, and with the check of hosts.
    #[must_use]
    pub fn new(files: Files) -> Self {
        Self {
            files,
            connects: true,
            accepts_plain: false,
            checks_hosts: true,
            reload_interval: ServerTlsOptions::RELOAD_INTERVAL,
        }
    }

    fn check(&self) -> Result<(), StartError> {
        let refuse = |setting: &'static str, remedy: &'static str| {
            Err(StartError::Setting { setting, remedy })
        };
        if self.files.authorities.is_none() {
            return refuse(
                "ensemble.tls_ca",
                "must be given: servers show each other certificates, and it names the authorities \
                 that sign them",
            );
        }
        if !self.connects && !self.accepts_plain {
            return refuse(
                "ensemble.tls, ensemble.port_unification",
                "must not both be off where servers have certificates for each other: with the \
                 first one they use TLS, with the second one they accept both kinds of connections",
            );
        }
        if self.reload_interval < Duration::from_millis(1) {
            return refuse("tls_reload_interval", "must be at least 1 ms");
        }
        Ok(())
    }
}

/// Settings of a server that is one of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnsembleOptions {
    /// Every server by its id, with the address `HOST:PORT` at which the others reach it.
    /// [`Options::server_id`] is among them.
    pub servers: BTreeMap<u64, String>,
    /// The ids in [`EnsembleOptions::servers`] of observers: they receive every write and serve
    /// clients, but do not vote. Default: none.
    pub observers: BTreeSet<u64>,
    /// The address for clients of each server, as `/zookeeper/config` shows it behind the
    /// semicolon: `HOST:PORT`. Default: none, and the servers are shown without one.
    pub clients: BTreeMap<u64, String>,
    /// The election port of each server, which only `/zookeeper/config` shows: Baton's servers use
    /// one port. Default: the port of [`EnsembleOptions::servers`].
    pub election_ports: BTreeMap<u64, u16>,
    /// Whether clients with the permission may change the members with `reconfig`; the setting of
    /// the server that leads counts. Default: no.
    pub reconfig: bool,
    /// The address `HOST:PORT` on which this server listens for the others; the host `*` is every
    /// address. Default: its own address in [`EnsembleOptions::servers`].
    pub listen: Option<String>,
    /// Whether addresses of servers may be others than those of loopback, though what servers send
    /// to each other is neither encrypted nor authenticated. Not needed where
    /// [`EnsembleOptions::tls`] lets servers use TLS only. Default: no.
    pub allow_plain_peers: bool,
    /// TLS between the servers. Default: none.
    pub tls: Option<PeerTlsOptions>,
    /// Length of one consensus tick: a leader sends a heartbeat every 4 ticks, and a follower
    /// starts an election after 18 to 28 ticks without one; while nothing is written every 8 ticks,
    /// and after 22 to 32. Default: 25 ms.
    pub tick: Duration,
    /// Whether a server that has no leader answers clients that ask for read-only mode. Default:
    /// no.
    pub read_only_mode: bool,
}

impl EnsembleOptions {
    /// The most voters.
    const MAX_VOTERS: usize = 7;
    /// The most servers.
    const MAX_SERVERS: usize = 64;
    /// The largest id: ids are the first byte of session ids, which are positive.
    const MAX_ID: u64 = 127;

    /// Whether this server makes or accepts connections between servers without TLS.
    #[must_use]
    pub fn has_plain_peers(&self) -> bool {
        let uses_tls_alone = |tls: &PeerTlsOptions| tls.connects && !tls.accepts_plain;
        !self.tls.as_ref().is_some_and(uses_tls_alone)
    }

    /// [`Options::check`] for the server with this id.
    fn check(&self, server_id: u64) -> Result<(), StartError> {
        let refuse = |setting: &'static str, remedy: &'static str| {
            Err(StartError::Setting { setting, remedy })
        };
        let servers = "ensemble.servers";
        if !self
            .observers
            .iter()
            .all(|id| self.servers.contains_key(id))
        {
            return refuse(
                "ensemble.observers",
                "must name servers of ensemble.servers by their ids",
            );
        }
        let voters = self.servers.len() - self.observers.len();
        if voters == 0 || voters > Self::MAX_VOTERS {
            return refuse(servers, "must name 1 to 7 servers that vote");
        }
        if self.servers.len() > Self::MAX_SERVERS {
            return refuse(servers, "must name 64 servers at most");
        }
        if !self
            .clients
            .values()
            .all(|at| at.parse::<ClientAddress>().is_ok())
        {
            return refuse(
                "ensemble.clients",
                "must have an address HOST:PORT for clients of each server that it names",
            );
        }
        if !self.servers.contains_key(&server_id) {
            return refuse(
                "server_id, ensemble.servers",
                "must agree: the id of this server must be among the ids of ensemble.servers",
            );
        }
        if !self
            .servers
            .keys()
            .all(|id| (1..=Self::MAX_ID).contains(id))
        {
            return refuse(servers, "must have ids between 1 and 127");
        }
        let addresses = self.servers.values();
        if !addresses.clone().all(|at| host_and_port(at).is_some()) {
            return refuse(
                servers,
                "must have an address HOST:PORT for each server, with the port that the other \
                 servers connect to; an IPv6 address stands in brackets",
            );
        }
        if addresses.clone().any(|at| is_every_address(at)) {
            return refuse(
                servers,
                "must have an address of its own for each server, at which the others reach it, \
                 not every address; write that, and let ensemble.listen (in a zoo.cfg \
                 quorumListenOnAllIPs=true) listen on every address",
            );
        }
        let different: BTreeSet<_> = addresses.clone().map(|at| at.to_lowercase()).collect();
        if different.len() < self.servers.len() {
            return refuse(
                servers,
                "must not have one address twice; give each server its own",
            );
        }
        if !self.listen.iter().all(|at| host_and_port(at).is_some()) {
            return refuse("ensemble.listen", "must be an address HOST:PORT, or *:PORT");
        }
        if let Some(tls) = &self.tls {
            tls.check()?;
        }
        let mut all = addresses.chain(&self.listen);
        let is_open = self.has_plain_peers() && !self.allow_plain_peers;
        if is_open && !all.all(|at| is_loopback(at)) {
            return refuse(
                "ensemble.allow_plain_peers",
                "must be true (baton serve --allow-plain-peers) where an address of \
                 ensemble.servers or ensemble.listen is not a loopback address and servers connect \
                 without TLS: what they send to each other, every write with its data and every \
                 credential of a session, is neither encrypted nor authenticated then, and any host that \
                 reaches these ports can read and change everything; use TLS only (ensemble.tls \
                 without ensemble.port_unification), or set it if the network keeps strangers away \
                 from them",
            );
        }
        if !(Duration::from_millis(1)..=Duration::from_secs(10)).contains(&self.tick) {
            return refuse("ensemble.tick", "must lie between 1 ms and 10 s");
        }
        Ok(())
    }
}

impl Default for EnsembleOptions {
    /// No server at all, which [`Options::check`] refuses: the list has no default.
    fn default() -> Self {
        Self {
            servers: BTreeMap::new(),
            observers: BTreeSet::new(),
            clients: BTreeMap::new(),
            election_ports: BTreeMap::new(),
            reconfig: false,
            listen: None,
            allow_plain_peers: false,
            tls: None,
            tick: Duration::from_millis(25),
            read_only_mode: false,
        }
    }
}

/// A time between servers that fits the default [`EnsembleOptions::tick`], as much longer as this
/// tick is longer: servers that are far from each other take longer for everything.
pub(crate) fn stretched(time: Duration, tick: Duration) -> Duration {
    let micros = u32::try_from(tick.as_micros()).unwrap_or(u32::MAX);
    time.max(time * micros / 25_000)
}

/// Host and port of `HOST:PORT`, the host without the brackets of an IPv6 address. `None`: it is no
/// such address, or has port 0.
pub(crate) fn host_and_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|port| digits && *port > 0)?;
    let host = match host.strip_prefix('[') {
        Some(rest) => {
            let address = rest.strip_suffix(']')?;
            address.parse::<Ipv6Addr>().is_ok().then_some(address)?
        }
        None => host,
    };
    let bracketed = address.starts_with('[');
    let odd =
        |letter: char| letter.is_whitespace() || letter.is_control() || "/[],;=|".contains(letter);
    let plain = !host.is_empty() && !host.contains(odd) && (bracketed || !host.contains(':'));
    plain.then_some((host, port))
}

/// Whether the address means every address of a machine.
fn is_every_address(address: &str) -> bool {
    host_and_port(address).is_some_and(|(host, _)| {
        host == "*" || host.parse().is_ok_and(|ip: IpAddr| ip.is_unspecified())
    })
}

/// Whether only this machine can reach the address.
fn is_loopback(address: &str) -> bool {
    is_loopback_host(host_and_port(address).map_or("", |(host, _)| host))
}

/// Whether only this machine can reach the host. A name other than `localhost` may mean any
/// machine.
pub(crate) fn is_loopback_host(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback())
}

/// The default of [`Options::four_letter_words`]: words that change nothing and list nothing one by
/// one.
pub const DEFAULT_WORDS: &[&str] = &[
    "ruok", "srvr", "isro", "mntr", "conf", "envi", "wchs", "dirs", "hash", "gtmk",
];

/// The four-letter words that change nothing.
pub const HARMLESS_WORDS: &[&str] = &[
    "ruok", "srvr", "stat", "isro", "mntr", "cons", "conf", "envi", "dump", "wchs", "wchc", "wchp",
    "dirs", "hash", "gtmk",
];

/// The other four-letter words: they reset counters, or set the trace mask.
pub const CHANGING_WORDS: &[&str] = &["srst", "crst", "stmk"];

/// The mode of a unix socket that only its owner may connect to.
pub(crate) const PRIVATE_SOCKET_MODE: u32 = 0o600;

impl Default for Options {
    fn default() -> Self {
        Self {
            storage: StorageChoice::Memory,
            listen: Vec::new(),
            secure_listen: Vec::new(),
            port_unification: false,
            tls: None,
            unix_sockets: Vec::new(),
            unix_socket_mode: PRIVATE_SOCKET_MODE,
            unix_socket_group: None,
            private_socket: None,
            inherited: InheritedSockets::default(),
            http: Vec::new(),
            https: Vec::new(),
            http_token_file: None,
            insecure: false,
            tick: Duration::from_millis(200),
            min_session_timeout: Duration::from_secs(1),
            max_session_timeout: Duration::from_secs(120),
            max_frame_bytes: 1_048_575,
            max_connections_per_address: 4096,
            max_connections: 110_000,
            max_requests_in_flight: 1024,
            max_outbound_bytes: 1 << 20,
            max_outbound_bytes_in_all: 256 << 20,
            max_queued_bytes: 64 << 20,
            max_unfinished_bytes: 64 << 20,
            max_watches: 1_000_000,
            max_watches_in_all: 4_000_000,
            max_watch_bytes: 64 << 20,
            max_watch_bytes_in_all: 256 << 20,
            max_sessions: 100_000,
            max_sessions_per_address: 10_000,
            handshake_timeout: Duration::from_secs(10),
            snapshot_every_entries: 100_000,
            snapshot_every_bytes: 256 << 20,
            snapshot_interval: Duration::from_secs(300),
            reap_interval: Duration::from_secs(60),
            container_grace: Duration::from_secs(300),
            four_letter_words: DEFAULT_WORDS
                .iter()
                .map(|word| (*word).to_owned())
                .collect(),
            super_digest: None,
            sasl_users: SaslUsers::default(),
            sasl_super_users: Vec::new(),
            required_schemes: Vec::new(),
            audit: AuditOptions::default(),
            server_id: 1,
            ensemble: None,
            conf_lines: Vec::new(),
            observer: None,
            tracer: None,
            commit: None,
            lost_log_lines: Arc::default(),
            progress: Arc::default(),
        }
    }
}

impl Options {
    /// Number of times [`Options::max_outbound_bytes`] that may wait for a connection before it is
    /// closed.
    pub(crate) const EVENTS_BEYOND_REPLIES: usize = 16;

    /// Refuses settings that contradict each other.
    ///
    /// # Errors
    /// [`StartError::Setting`] names the setting and what to do.
    pub fn check(&self) -> Result<(), StartError> {
        let refuse = |setting: &'static str, remedy: &'static str| {
            Err(StartError::Setting { setting, remedy })
        };
        if self.unix_socket_mode > 0o777 || self.unix_socket_mode & 0o600 != 0o600 {
            return refuse(
                "unix_socket_mode",
                "must be between 0600 and 0777, and let its owner read and write",
            );
        }
        if self.unix_socket_group.is_some() && self.unix_socket_mode & 0o060 != 0o060 {
            return refuse(
                "unix_socket_group, unix_socket_mode",
                "must go together: the mode must let the group read and write, like 0660",
            );
        }
        let has_tls_port =
            !self.secure_listen.is_empty() || self.port_unification || !self.https.is_empty();
        if has_tls_port && self.tls.is_none() {
            return refuse(
                "tls_cert, tls_key",
                "must be given: secure_listen, port_unification and https need a certificate and \
                 its key in PEM files",
            );
        }
        if self.tls.is_some() && !has_tls_port {
            return refuse(
                "tls_cert, secure_listen",
                "must go together: a certificate needs a port that uses it, so give secure_listen, \
                 port_unification or https, too",
            );
        }
        if self.port_unification && self.listen.is_empty() {
            return refuse(
                "port_unification",
                "must go with listen: it is for clients with TLS and without on these addresses",
            );
        }
        let revoked_of_none = |tls: &ServerTlsOptions| {
            tls.files.revocation_lists.is_some() && tls.client_auth == ClientAuth::None
        };
        if self.tls.as_ref().is_some_and(revoked_of_none) {
            return refuse(
                "tls_crl, tls_client_auth",
                "must go together: no client is asked for a certificate, so none can be revoked; name \
                 the authorities of the clients with tls_ca, too",
            );
        }
        if self
            .tls
            .as_ref()
            .is_some_and(|tls| tls.reload_interval < Duration::from_millis(1))
        {
            return refuse("tls_reload_interval", "must be at least 1 ms");
        }
        if self.tick < Duration::from_millis(1) {
            return refuse("tick", "must be at least 1 ms");
        }
        if self.min_session_timeout < self.tick {
            return refuse("min_session_timeout", "must be at least one tick");
        }
        if self.max_session_timeout < self.min_session_timeout {
            return refuse(
                "max_session_timeout",
                "must not be below min_session_timeout",
            );
        }
        if self.max_session_timeout > Duration::from_millis(i32::MAX as u64) {
            return refuse(
                "max_session_timeout",
                "must be below 24 days: the protocol has 31 bits of milliseconds",
            );
        }
        if !(1024..=(32 << 20)).contains(&self.max_frame_bytes) {
            return refuse("max_frame_bytes", "must lie between 1,024 and 33,554,432");
        }
        if self.max_requests_in_flight == 0
            || self.max_outbound_bytes == 0
            || self.max_queued_bytes == 0
        {
            return refuse(
                "max_requests_in_flight, max_outbound_bytes, max_queued_bytes",
                "must be at least 1",
            );
        }
        if self.max_outbound_bytes_in_all / Self::EVENTS_BEYOND_REPLIES < self.max_outbound_bytes {
            return refuse(
                "max_outbound_bytes_in_all",
                "must be at least 16 times max_outbound_bytes, which is what one connection may have before it is closed",
            );
        }
        if self.max_unfinished_bytes / 2 < self.max_frame_bytes {
            return refuse(
                "max_unfinished_bytes",
                "must be at least twice max_frame_bytes, so that a request of that size can arrive",
            );
        }
        if self.max_watches == 0 || self.max_watch_bytes == 0 {
            return refuse("max_watches, max_watch_bytes", "must be at least 1");
        }
        if self.max_watches_in_all < self.max_watches
            || self.max_watch_bytes_in_all < self.max_watch_bytes
        {
            return refuse(
                "max_watches_in_all, max_watch_bytes_in_all",
                "must not be below max_watches and max_watch_bytes, which one connection may have",
            );
        }
        if self.snapshot_every_entries == 0 || self.snapshot_every_bytes == 0 {
            return refuse(
                "snapshot_every_entries, snapshot_every_bytes",
                "must be at least 1",
            );
        }
        self.check_schemes()?;
        self.audit.check()?;
        if self.server_id == 0 || self.server_id > 127 {
            return refuse("server_id", "must lie between 1 and 127");
        }
        match &self.ensemble {
            Some(ensemble) => ensemble.check(self.server_id.into()),
            None => Ok(()),
        }
    }

    fn check_schemes(&self) -> Result<(), StartError> {
        let refuse = |remedy| {
            let setting = "require_auth";
            Err(StartError::Setting { setting, remedy })
        };
        for scheme in &self.required_schemes {
            match scheme.as_str() {
                "digest" => {}
                "sasl" if self.sasl_users.is_empty() => {
                    return refuse("must not be sasl without the users of sasl_users");
                }
                "sasl" => {}
                "x509" => {
                    let tls = self.tls.as_ref();
                    if tls.is_none_or(|tls| tls.files.authorities.is_none()) {
                        return refuse("must not be x509 without the authorities of tls_ca");
                    }
                    if tls.is_some_and(|tls| tls.client_auth == ClientAuth::None) {
                        return refuse(
                            "must not be x509 where no client is asked for a certificate: let \
                             tls_client_auth be required or optional",
                        );
                    }
                    if self.secure_listen.is_empty() && !self.port_unification {
                        return refuse(
                            "must not be x509 without a port where clients use TLS: give \
                             secure_listen or port_unification",
                        );
                    }
                }
                _ => {
                    return refuse(
                        "must name digest, sasl or x509: clients authenticate by nothing else",
                    );
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for (address, parts) in [
            ("localhost:2888", Some(("localhost", 2888))),
            ("10.0.0.1:1", Some(("10.0.0.1", 1))),
            ("[::1]:2888", Some(("::1", 2888))),
            ("*:2888", Some(("*", 2888))),
            ("::1:2888", None),
            ("[a]:2888", None),
            ("[::1:2888", None),
            ("a:0", None),
            ("a:65536", None),
            ("a:+1", None),
            ("a:", None),
            ("a", None),
            (":1", None),
            ("a b:1", None),
            ("", None),
        ] {
            assert_eq!(host_and_port(address), parts, "{address}");
        }
    }

    #[test]
    fn what_servers_allow_each_other_grows_with_the_step_of_elections() {
        let limit = Duration::from_millis(300);
        let with = |micros| stretched(limit, Duration::from_micros(micros));
        assert_eq!(with(25_000), limit);
        assert_eq!(with(1000), limit);
        assert_eq!(with(62_500), Duration::from_millis(750));
        assert_eq!(with(10_000_000), Duration::from_secs(120));
        assert_eq!(EnsembleOptions::default().tick, Duration::from_millis(25));
    }

    fn of(servers: &[(u64, &str)]) -> EnsembleOptions {
        let servers = servers.iter().map(|(id, at)| (*id, (*at).to_owned()));
        EnsembleOptions {
            servers: servers.collect(),
            ..EnsembleOptions::default()
        }
    }

    #[test]
    fn an_ensemble_that_cannot_be_is_refused_with_the_setting_and_the_remedy() {
        let checked = |ensemble: EnsembleOptions| {
            let options = Options {
                server_id: 2,
                ensemble: Some(ensemble),
                ..Options::default()
            };
            options.check().map_err(|error| error.to_string())
        };
        let (one, two) = ((1, "127.0.0.1:1"), (2, "localhost:2"));
        checked(of(&[one, two, (3, "[::1]:3")])).unwrap();
        checked(of(&[two])).unwrap();
        let open = EnsembleOptions {
            listen: Some("*:2".to_owned()),
            allow_plain_peers: true,
            ..of(&[(1, "zk1:1"), (2, "zk2:1")])
        };
        checked(open.clone()).unwrap();
        // Encrypted connections may come from everywhere.
        let with_tls = |change: fn(&mut PeerTlsOptions)| {
            let mut tls = PeerTlsOptions::new(Files {
                certificates: "c.pem".into(),
                key: "c.key".into(),
                authorities: Some("ca.pem".into()),
                revocation_lists: None,
            });
            change(&mut tls);
            EnsembleOptions {
                tls: Some(tls),
                allow_plain_peers: false,
                ..open.clone()
            }
        };
        checked(with_tls(|_| {})).unwrap();
        let eight: Vec<_> = (1..=8).map(|id| (id, format!("127.0.0.1:{id}"))).collect();
        let eight: Vec<_> = eight.iter().map(|(id, at)| (*id, at.as_str())).collect();
        let closed = EnsembleOptions {
            allow_plain_peers: false,
            ..open.clone()
        };
        let listening = EnsembleOptions {
            listen: Some("*:2".to_owned()),
            ..of(&[one, two])
        };
        let nowhere = EnsembleOptions {
            listen: Some("2888".to_owned()),
            ..of(&[one, two])
        };
        let hasty = EnsembleOptions {
            tick: Duration::ZERO,
            ..of(&[one, two])
        };
        let sleepy = EnsembleOptions {
            tick: Duration::from_secs(11),
            ..of(&[one, two])
        };
        for (ensemble, complaint) in [
            (
                of(&[]),
                "ensemble.servers is not possible: it must name 1 to 7",
            ),
            (of(&eight), "must name 1 to 7"),
            (
                of(&[one, (3, "127.0.0.1:3")]),
                "the id of this server must be among",
            ),
            (of(&[two, (128, "127.0.0.1:3")]), "ids between 1 and 127"),
            (of(&[two, (0, "127.0.0.1:3")]), "ids between 1 and 127"),
            (
                of(&[two, (3, "127.0.0.1")]),
                "an address HOST:PORT for each",
            ),
            (of(&[two, (3, "LOCALHOST:2")]), "one address twice"),
            (of(&[two, (3, "0.0.0.0:3")]), "not every address"),
            (of(&[two, (3, "*:3")]), "not every address"),
            (closed, "neither encrypted nor authenticated"),
            (of(&[two, (3, "10.0.0.1:2")]), "--allow-plain-peers"),
            (with_tls(|tls| tls.accepts_plain = true), "use TLS only"),
            (
                with_tls(|tls| (tls.connects, tls.accepts_plain) = (false, true)),
                "use TLS only",
            ),
            (with_tls(|tls| tls.connects = false), "must not both be off"),
            (
                with_tls(|tls| tls.files.authorities = None),
                "ensemble.tls_ca",
            ),
            (
                with_tls(|tls| tls.reload_interval = Duration::ZERO),
                "tls_reload_interval",
            ),
            (listening, "ensemble.allow_plain_peers"),
            (nowhere, "ensemble.listen"),
            (hasty, "ensemble.tick"),
            (sleepy, "ensemble.tick"),
        ] {
            let refused = checked(ensemble).unwrap_err();
            assert!(refused.contains(complaint), "{refused}");
        }
    }
}
