//! The one definition of every setting of `baton serve`. To add one: a row here, and its field in
//! [`baton_server::Options`]. A test compares `docs/operate/configure.md`, which has the keys of
//! zoo.cfg.

use self::Flag::{Named, OfEveryVerb, Own};
use super::Field;
use super::zoo_keys::Unit::{
    self, Count, Folder, Kibibytes, Milliseconds, Text, Timeout, TrueIs, Within, Words,
};

/// Flag of a setting on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flag {
    /// Its own flag, `--` and its name with dashes, whose value is called this in help.
    Own(&'static str),
    /// A flag of this name, whose value is called this in help.
    Named(&'static str, &'static str),
    /// `--data-dir`, which every verb has.
    OfEveryVerb,
}

/// One setting.
pub(crate) struct Setting {
    /// Its name in `baton.toml`.
    pub(crate) name: &'static str,
    /// Its flag.
    pub(crate) flag: Flag,
    /// Its key in `zoo.cfg`, and how its value is read there.
    pub(crate) zoo: Option<(&'static str, Unit)>,
    /// Its type and field. The default is what is there before anything is set.
    pub(crate) field: Field,
    /// Its help text, one sentence.
    pub(crate) help: &'static str,
}

impl Setting {
    /// The flag, without the dashes in front.
    pub(crate) fn flag_name(&self) -> String {
        match self.flag {
            Flag::Named(name, _) => name.to_owned(),
            Flag::Own(_) | Flag::OfEveryVerb => self.name.replace('_', "-"),
        }
    }
}

/// The setting of this name.
#[allow(
    clippy::expect_used,
    reason = "names come from the table or from its readers, which a test compares with it"
)]
pub(crate) fn setting(name: &str) -> &'static Setting {
    let found = SETTINGS.iter().find(|setting| setting.name == name);
    found.expect("a setting of the table")
}

macro_rules! settings {
    (@zoo) => { None };
    (@zoo $key:literal $unit:expr) => { Some(($key, $unit)) };
    ($($name:literal: $kind:ident($($field:tt)+), $flag:expr $(, zoo $key:literal as $unit:expr)?,
        $help:literal;)*) => {
        &[$(Setting {
            name: $name,
            flag: $flag,
            zoo: settings!(@zoo $($key $unit)?),
            field: Field::$kind(|to| &mut to.$($field)+),
            help: $help,
        },)*]
    };
}

/// All settings: the name, its type and field, its flag, its key in a `zoo.cfg`, its help.
pub(crate) static SETTINGS: &[Setting] = settings! {
    "data_dir": Path(data_dir), OfEveryVerb, zoo "dataDir" as Folder,
        "The data folder. From a zoo.cfg: the folder baton in its dataDir. Without it, the user's own";
    "ephemeral": Switch(ephemeral), Own(""),
        "Keep everything in memory: nothing survives the process";
    "listen": Texts(options.listen), Own("HOST:PORT"),
        "Listen on this TCP address; * for every one, of IPv6 and IPv4; port 0 takes a free one. May be repeated";
    "secure_listen": Texts(options.secure_listen), Own("HOST:PORT"),
        "Listen on this TCP address for clients with TLS, with the certificate of tls_cert. May be repeated";
    "port_unification": Switch(options.port_unification), Own(""), zoo "client.portUnification" as Text,
        "Let clients use TLS on the addresses of listen, too";
    "tls_cert": Path(tls.cert), Own("FILE"), zoo "ssl.keyStore.location" as Text,
        "The server's certificate and its chain, in PEM";
    "tls_key": Path(tls.key), Own("FILE"),
        "The private key of tls_cert, in PEM; without it, it is in the file of tls_cert";
    "tls_ca": Path(tls.ca), Own("FILE"), zoo "ssl.trustStore.location" as Text,
        "The authorities that sign the certificates of clients, in PEM";
    "tls_crl": Path(tls.crl), Own("FILE"),
        "The certificate revocation lists (CRLs) of the authorities of tls_ca, one of each, in PEM";
    "tls_client_auth": ClientAuth(tls.client_auth), Own("WHO"), zoo "ssl.clientAuth" as Text,
        "Whether a client with TLS must show a certificate: none, optional or required. Without it, required if there is a tls_ca, else none";
    "tls_super_subject": Text(tls.super_subject), Own("SUBJECT"), zoo "X509AuthenticationProvider.superUser" as Text,
        "The subject of the superuser's certificate, to whom every ACL is open, like CN=admin,O=Example";
    "tls_reload_interval": Duration(tls.reload_interval), Own("DUR"),
        "How often the server checks its TLS files for changes, those between servers too";
    "unix_socket": Paths(options.unix_sockets), Own("PATH"),
        "Listen on this unix socket; unix_socket_mode says who may connect. May be repeated";
    "unix_socket_mode": Mode(options.unix_socket_mode), Own("MODE"),
        "The mode of the files of unix_socket, in octal: 0660 lets the group connect, 0666 every user";
    "unix_socket_group": Group(options.unix_socket_group), Own("GROUP"),
        "The group of the files of unix_socket, a name or a number; its members may connect. The mode is then 0660";
    "http": Texts(options.http), Own("HOST:PORT"),
        "Answer HTTP on this address: /commands, /metrics, /healthz, /readyz. May be repeated";
    "https": Texts(options.https), Own("HOST:PORT"),
        "Answer HTTP with TLS on this address, with the certificate of tls_cert. May be repeated";
    "http_token_file": Path(options.http_token_file), Own("FILE"),
        "Bearer tokens for HTTP, one a line: a caller with a token may read from any address, and use every command";
    "metrics_paths": Count(metrics.most), Own("N"),
        "How many of the busiest locks, and of the busiest queues, have metrics of their own in /metrics; 0 for none, so that it shows no path";
    "metrics_prefixes": Texts(metrics.prefixes), Named("metrics-prefix", "PATH"),
        "Only locks and queues at or below this path have metrics of their own. May be repeated";
    "insecure": Switch(options.insecure), Own(""), zoo "insecure" as Text,
        "Let other machines reach listen and http without authentication";
    "tick": Duration(options.tick), Own("DUR"),
        "The tick of the session clock";
    "min_session_timeout": Duration(options.min_session_timeout), Own("DUR"), zoo "minSessionTimeout" as Timeout,
        "The shortest session timeout that a client gets";
    "max_session_timeout": Duration(options.max_session_timeout), Own("DUR"), zoo "maxSessionTimeout" as Timeout,
        "The longest session timeout that a client gets";
    "handshake_timeout": Duration(options.handshake_timeout), Own("DUR"), zoo "nio.sessionlessCnxnTimeout" as Milliseconds,
        "How long a new connection may take to open or resume its session";
    "max_connections": Count(options.max_connections), Own("N"), zoo "maxCnxns" as Count,
        "The most connections, in all; 0 for no limit";
    "max_connections_per_address": Count(options.max_connections_per_address), Own("N"), zoo "maxClientCnxns" as Count,
        "The most connections from one address; 0 for no limit";
    "max_frame_bytes": Count(options.max_frame_bytes), Own("BYTES"), zoo "jute.maxbuffer" as Within(1024, 32 << 20),
        "The longest request";
    "max_requests_in_flight": Count(options.max_requests_in_flight), Own("N"),
        "The most requests of one connection that wait for the log";
    "max_outbound_bytes": Count(options.max_outbound_bytes), Own("BYTES"),
        "The bytes of answers that may wait for one slow reader, before its requests wait too";
    "max_outbound_bytes_in_all": Count(options.max_outbound_bytes_in_all), Own("BYTES"),
        "The bytes of answers that may wait for all slow readers, before those with the most are closed";
    "max_queued_bytes": Count(options.max_queued_bytes), Own("BYTES"),
        "The bytes of requests of all connections that may wait for the log";
    "max_unfinished_bytes": Count(options.max_unfinished_bytes), Own("BYTES"),
        "The bytes of unfinished or waiting requests of all connections, before the connections with most are closed";
    "max_watches": Count(options.max_watches), Own("N"),
        "The most watches of one connection";
    "max_watches_in_all": Count(options.max_watches_in_all), Own("N"),
        "The most watches of all connections";
    "max_watch_bytes": Count(options.max_watch_bytes), Own("BYTES"),
        "The most bytes of the watches of one connection: 64 for each path, and its length";
    "max_watch_bytes_in_all": Count(options.max_watch_bytes_in_all), Own("BYTES"),
        "The most bytes of all watches";
    "max_sessions": Count(options.max_sessions), Own("N"),
        "The most sessions, with a connection or without; 0 for no limit";
    "max_sessions_per_address": Count(options.max_sessions_per_address), Own("N"),
        "The most sessions of clients at one address; 0 for no limit";
    "snapshot_every_entries": Large(options.snapshot_every_entries), Own("N"), zoo "snapCount" as Within(1, u64::MAX),
        "Write a snapshot after this many log entries";
    "snapshot_every_bytes": Large(options.snapshot_every_bytes), Own("BYTES"), zoo "snapSizeLimitInKb" as Kibibytes,
        "Write a snapshot after this many bytes of log";
    "snapshot_interval": Duration(options.snapshot_interval), Own("DUR"), zoo "admin.rateLimiterIntervalInMS" as Milliseconds,
        "The shortest time between two HTTP commands snapshot; 0 for no limit";
    "reap_interval": Duration(options.reap_interval), Own("DUR"), zoo "znode.container.checkIntervalMs" as Milliseconds,
        "How often empty containers and expired TTL znodes are removed; 0 for never";
    "container_grace": Duration(options.container_grace), Own("DUR"), zoo "znode.container.maxNeverUsedIntervalMs" as Milliseconds,
        "How long a container that never had a child is kept; 0 for ever";
    "four_letter_words": Texts(options.four_letter_words), Own("WORD"), zoo "4lw.commands.whitelist" as Words,
        "A four-letter word that the server answers; * for all. May be repeated";
    "super_digest": Text(options.super_digest), Own("ID"), zoo "DigestAuthenticationProvider.superDigest" as Text,
        "The superuser, to whom every ACL is open: user:base64(sha1(user:password))";
    "sasl_users": Path(sasl_users), Own("FILE"), zoo "java.security.auth.login.config" as Text,
        "The users that may authenticate by SASL DIGEST-MD5: a file with lines NAME:PASSWORD, or the JAAS file of a ZooKeeper server";
    "sasl_super_users": Texts(options.sasl_super_users), Named("sasl-super-user", "NAME"), zoo "superUser" as Text,
        "A user of sasl_users to whom every ACL is open. May be repeated";
    "require_auth": Texts(options.required_schemes), Own("SCHEME"), zoo "enforce.auth.schemes" as Text,
        "Disconnect a client that sends a request before it has authenticated by one of these schemes: digest, sasl, x509. May be repeated";
    "log": LogFilter(log.filter), Own("FILTER"),
        "The level of the log: error, warn, info, debug, trace or off; also per module, as in info,baton_server::net=debug. Without it, info";
    "log_format": LogFormat(log.format), Own("FORM"),
        "The format of the log: text or json. Without it, json with --json, else text";
    "audit": AuditTo(options.audit.to), Own("TO"), zoo "audit.enable" as TrueIs("log"),
        "The audit record of who did what: off, log (within the server's log) or a file";
    "audit_format": AuditFormat(options.audit.format), Own("FORM"),
        "The format of the audit record: text or json";
    "audit_max_bytes": Large(options.audit.max_bytes), Own("BYTES"),
        "The size of a file of the audit record, at which the next one begins";
    "audit_files": Count(options.audit.files), Own("N"),
        "How many older files of the audit record are kept; FILE.1 is the newest";
    "server_id": Small(options.server_id), Own("N"),
        "The first byte of every session id, to tell servers apart; in an ensemble this server's id";
    "ensemble.servers": Servers(ensemble.servers), Named("server", "ID=HOST:PORT"), zoo "server.N" as Text,
        "A server of this server's ensemble, itself included: its id, and its address for the other servers. May be repeated";
    "ensemble.observers": Ids(ensemble.observers), Named("observer", "ID"), zoo "server.N" as Text,
        "A server of ensemble.servers that does not vote. May be repeated";
    "ensemble.clients": Servers(ensemble.clients), Named("client-address", "ID=HOST:PORT"), zoo "server.N" as Text,
        "The address for clients of a server of ensemble.servers, as /zookeeper/config shows it. May be repeated";
    "ensemble.election_ports": Ports(ensemble.election_ports), Named("election-port", "ID=PORT"), zoo "server.N" as Text,
        "The election port of a server of ensemble.servers, which only /zookeeper/config shows. May be repeated";
    "ensemble.reconfig": Switch(ensemble.reconfig), Named("reconfig", ""), zoo "reconfigEnabled" as Text,
        "Let clients that may write /zookeeper/config change the members of the ensemble";
    "ensemble.read_only_mode": Switch(ensemble.read_only_mode), Named("read-only-mode", ""), zoo "readonlymode.enabled" as Text,
        "While no leader is known, serve reads to clients that ask for read-only mode";
    "ensemble.listen": Text(ensemble.listen), Named("peer-listen", "HOST:PORT"),
        "The address to listen on for other servers; without it, this server's in ensemble.servers";
    "ensemble.allow_plain_peers": Switch(ensemble.allow_plain_peers), Named("allow-plain-peers", ""),
        "Let servers connect without encryption and authentication on addresses other than loopback";
    "ensemble.tls": Switch(peer_tls.connects), Named("peer-tls", ""), zoo "sslQuorum" as Text,
        "Use TLS between the servers, with ensemble.tls_cert, tls_key and tls_ca";
    "ensemble.port_unification": Switch(peer_tls.accepts_both), Named("peer-port-unification", ""), zoo "portUnification" as Text,
        "Accept connections of other servers with and without TLS, while the servers change from one to the other";
    "ensemble.tls_cert": Path(peer_tls.cert), Named("peer-tls-cert", "FILE"), zoo "ssl.quorum.keyStore.location" as Text,
        "The certificate that this server presents to the other servers, and its chain, in PEM";
    "ensemble.tls_key": Path(peer_tls.key), Named("peer-tls-key", "FILE"),
        "The private key of ensemble.tls_cert, in PEM; without it, it is in the file of ensemble.tls_cert";
    "ensemble.tls_ca": Path(peer_tls.ca), Named("peer-tls-ca", "FILE"), zoo "ssl.quorum.trustStore.location" as Text,
        "The authorities that sign the certificates of all servers of the ensemble, in PEM";
    "ensemble.tls_crl": Path(peer_tls.crl), Named("peer-tls-crl", "FILE"),
        "The certificate revocation lists (CRLs) of the authorities of ensemble.tls_ca, one of each, in PEM";
    "ensemble.tls_any_host": Switch(peer_tls.any_host), Named("peer-tls-any-host", ""), zoo "ssl.quorum.hostnameVerification" as Text,
        "Accept a server's certificate for any host, not only for the one of its address in ensemble.servers";
    "ensemble.tick": Duration(ensemble.tick), Named("consensus-tick", "DUR"),
        "The tick of elections: a heartbeat every 4 ticks, every 8 at rest, an election after 18 to 28 without one, 4 more at rest; 63ms for servers far apart";
    "core_dumps": Switch(core_dumps), Own(""),
        "Let the system write a crashed server's memory, with its keys and passwords, to a file, and let this user's debuggers attach";
    "exit_when_idle": MaybeDuration(exit_when_idle), Own("DUR"),
        "Stop after this time without a connection or a session";
};
