//! The one definition of every setting of `baton serve`. To add one: a row here, and its field in
//! [`baton_server::Options`]; `docs/operate/configure.md` is checked against the rows.

use super::Field;
use super::zoo_keys::Unit;

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

/// All settings.
pub(crate) static SETTINGS: &[Setting] = &[
    Setting {
        name: "data_dir",
        flag: Flag::OfEveryVerb,
        zoo: Some(("dataDir", Unit::Folder)),
        field: Field::Path(|to| &mut to.data_dir),
        help: "The data folder; of a zoo.cfg's dataDir, the folder baton in it. Without it, the user's own",
    },
    Setting {
        name: "ephemeral",
        flag: Flag::Own(""),
        zoo: None,
        field: Field::Switch(|to| &mut to.ephemeral),
        help: "Keep everything in memory: nothing survives the process",
    },
    Setting {
        name: "listen",
        flag: Flag::Own("HOST:PORT"),
        zoo: None,
        field: Field::Texts(|to| &mut to.options.listen),
        help: "Listen on this TCP address; * for every one, of IPv6 and IPv4; port 0 takes a free one. May be repeated",
    },
    Setting {
        name: "secure_listen",
        flag: Flag::Own("HOST:PORT"),
        zoo: None,
        field: Field::Texts(|to| &mut to.options.secure_listen),
        help: "Listen on this TCP address for clients with TLS, with the certificate of tls_cert. May be repeated",
    },
    Setting {
        name: "port_unification",
        flag: Flag::Own(""),
        zoo: Some(("client.portUnification", Unit::Text)),
        field: Field::Switch(|to| &mut to.options.port_unification),
        help: "Let clients use TLS on the addresses of listen, too",
    },
    Setting {
        name: "tls_cert",
        flag: Flag::Own("FILE"),
        zoo: Some(("ssl.keyStore.location", Unit::Text)),
        field: Field::Path(|to| &mut to.tls.cert),
        help: "The server's certificate and its chain, in PEM",
    },
    Setting {
        name: "tls_key",
        flag: Flag::Own("FILE"),
        zoo: None,
        field: Field::Path(|to| &mut to.tls.key),
        help: "The private key of tls_cert, in PEM; without it, it is in the file of tls_cert",
    },
    Setting {
        name: "tls_ca",
        flag: Flag::Own("FILE"),
        zoo: Some(("ssl.trustStore.location", Unit::Text)),
        field: Field::Path(|to| &mut to.tls.ca),
        help: "The authorities that sign the certificates of clients, in PEM",
    },
    Setting {
        name: "tls_crl",
        flag: Flag::Own("FILE"),
        zoo: None,
        field: Field::Path(|to| &mut to.tls.crl),
        help: "The lists of certificates that the authorities of tls_ca have revoked, in PEM. It needs a list of each authority",
    },
    Setting {
        name: "tls_client_auth",
        flag: Flag::Own("WHO"),
        zoo: Some(("ssl.clientAuth", Unit::Text)),
        field: Field::ClientAuth(|to| &mut to.tls.client_auth),
        help: "Whether a client with TLS must show a certificate: none, optional or required. Without it, required if there is a tls_ca, else none",
    },
    Setting {
        name: "tls_super_subject",
        flag: Flag::Own("SUBJECT"),
        zoo: Some(("X509AuthenticationProvider.superUser", Unit::Text)),
        field: Field::Text(|to| &mut to.tls.super_subject),
        help: "The subject of the certificate to whose client every ACL is open, like CN=admin,O=Example",
    },
    Setting {
        name: "tls_reload_interval",
        flag: Flag::Own("DUR"),
        zoo: None,
        field: Field::Duration(|to| &mut to.tls.reload_interval),
        help: "How often the server looks whether the files of TLS have changed, those between servers too",
    },
    Setting {
        name: "unix_socket",
        flag: Flag::Own("PATH"),
        zoo: None,
        field: Field::Paths(|to| &mut to.options.unix_sockets),
        help: "Listen on this unix socket; unix_socket_mode says who may connect. May be repeated",
    },
    Setting {
        name: "unix_socket_mode",
        flag: Flag::Own("MODE"),
        zoo: None,
        field: Field::Mode(|to| &mut to.options.unix_socket_mode),
        help: "The mode of the files of unix_socket, in octal: 0660 lets the group connect, 0666 every user",
    },
    Setting {
        name: "unix_socket_group",
        flag: Flag::Own("GROUP"),
        zoo: None,
        field: Field::Group(|to| &mut to.options.unix_socket_group),
        help: "The group of the files of unix_socket, whose members may connect: a name or a number. It makes unix_socket_mode 0660",
    },
    Setting {
        name: "http",
        flag: Flag::Own("HOST:PORT"),
        zoo: None,
        field: Field::Texts(|to| &mut to.options.http),
        help: "Answer HTTP on this address: /commands, /metrics, /healthz, /readyz. May be repeated",
    },
    Setting {
        name: "https",
        flag: Flag::Own("HOST:PORT"),
        zoo: None,
        field: Field::Texts(|to| &mut to.options.https),
        help: "Answer HTTP with TLS on this address, with the certificate of tls_cert. May be repeated",
    },
    Setting {
        name: "http_token_file",
        flag: Flag::Own("FILE"),
        zoo: None,
        field: Field::Path(|to| &mut to.options.http_token_file),
        help: "Bearer tokens for HTTP, one a line: callers who have one may read from anywhere, and give every command",
    },
    Setting {
        name: "metrics_paths",
        flag: Flag::Own("N"),
        zoo: None,
        field: Field::Count(|to| &mut to.metrics.most),
        help: "The locks, and the queues, that have metrics of their own in /metrics: the busiest; 0 for none, so that no path is shown there",
    },
    Setting {
        name: "metrics_prefixes",
        flag: Flag::Named("metrics-prefix", "PATH"),
        zoo: None,
        field: Field::Texts(|to| &mut to.metrics.prefixes),
        help: "Only locks and queues at or below this path have metrics of their own. May be repeated",
    },
    Setting {
        name: "insecure",
        flag: Flag::Own(""),
        zoo: Some(("insecure", Unit::Text)),
        field: Field::Switch(|to| &mut to.options.insecure),
        help: "Let other machines reach listen and http though nobody has to prove there who they are",
    },
    Setting {
        name: "tick",
        flag: Flag::Own("DUR"),
        zoo: None,
        field: Field::Duration(|to| &mut to.options.tick),
        help: "The step of the session clock",
    },
    Setting {
        name: "min_session_timeout",
        flag: Flag::Own("DUR"),
        zoo: Some(("minSessionTimeout", Unit::Timeout)),
        field: Field::Duration(|to| &mut to.options.min_session_timeout),
        help: "The shortest session timeout a client is given",
    },
    Setting {
        name: "max_session_timeout",
        flag: Flag::Own("DUR"),
        zoo: Some(("maxSessionTimeout", Unit::Timeout)),
        field: Field::Duration(|to| &mut to.options.max_session_timeout),
        help: "The longest session timeout a client is given",
    },
    Setting {
        name: "handshake_timeout",
        flag: Flag::Own("DUR"),
        zoo: Some(("nio.sessionlessCnxnTimeout", Unit::Milliseconds)),
        field: Field::Duration(|to| &mut to.options.handshake_timeout),
        help: "How long a connection may take to name its session",
    },
    Setting {
        name: "max_connections",
        flag: Flag::Own("N"),
        zoo: Some(("maxCnxns", Unit::Count)),
        field: Field::Count(|to| &mut to.options.max_connections),
        help: "The most connections, in all; 0 for no limit",
    },
    Setting {
        name: "max_connections_per_address",
        flag: Flag::Own("N"),
        zoo: Some(("maxClientCnxns", Unit::Count)),
        field: Field::Count(|to| &mut to.options.max_connections_per_address),
        help: "The most connections from one address; 0 for no limit",
    },
    Setting {
        name: "max_frame_bytes",
        flag: Flag::Own("BYTES"),
        zoo: Some(("jute.maxbuffer", Unit::Within(1024, 32 << 20))),
        field: Field::Count(|to| &mut to.options.max_frame_bytes),
        help: "The longest request",
    },
    Setting {
        name: "max_requests_in_flight",
        flag: Flag::Own("N"),
        zoo: None,
        field: Field::Count(|to| &mut to.options.max_requests_in_flight),
        help: "The requests of one connection that may wait for the log",
    },
    Setting {
        name: "max_outbound_bytes",
        flag: Flag::Own("BYTES"),
        zoo: None,
        field: Field::Count(|to| &mut to.options.max_outbound_bytes),
        help: "The bytes that may wait for one slow reader before its requests do",
    },
    Setting {
        name: "max_outbound_bytes_in_all",
        flag: Flag::Own("BYTES"),
        zoo: None,
        field: Field::Count(|to| &mut to.options.max_outbound_bytes_in_all),
        help: "The bytes that may wait for all slow readers before those with most are closed",
    },
    Setting {
        name: "max_queued_bytes",
        flag: Flag::Own("BYTES"),
        zoo: None,
        field: Field::Count(|to| &mut to.options.max_queued_bytes),
        help: "The bytes of requests that may wait for the log, over all connections",
    },
    Setting {
        name: "max_unfinished_bytes",
        flag: Flag::Own("BYTES"),
        zoo: None,
        field: Field::Count(|to| &mut to.options.max_unfinished_bytes),
        help: "The bytes of requests that have arrived in part or wait to be taken on, over all connections, before those with most are closed",
    },
    Setting {
        name: "max_watches",
        flag: Flag::Own("N"),
        zoo: None,
        field: Field::Count(|to| &mut to.options.max_watches),
        help: "The watches that one connection may have",
    },
    Setting {
        name: "max_watches_in_all",
        flag: Flag::Own("N"),
        zoo: None,
        field: Field::Count(|to| &mut to.options.max_watches_in_all),
        help: "The watches that all connections may have",
    },
    Setting {
        name: "max_watch_bytes",
        flag: Flag::Own("BYTES"),
        zoo: None,
        field: Field::Count(|to| &mut to.options.max_watch_bytes),
        help: "The bytes that the watches of one connection may take: 64 and the path for each path",
    },
    Setting {
        name: "max_watch_bytes_in_all",
        flag: Flag::Own("BYTES"),
        zoo: None,
        field: Field::Count(|to| &mut to.options.max_watch_bytes_in_all),
        help: "The bytes that all watches may take",
    },
    Setting {
        name: "max_sessions",
        flag: Flag::Own("N"),
        zoo: None,
        field: Field::Count(|to| &mut to.options.max_sessions),
        help: "The most sessions, with a connection or without; 0 for no limit",
    },
    Setting {
        name: "max_sessions_per_address",
        flag: Flag::Own("N"),
        zoo: None,
        field: Field::Count(|to| &mut to.options.max_sessions_per_address),
        help: "The most sessions of clients at one address; 0 for no limit",
    },
    Setting {
        name: "snapshot_every_entries",
        flag: Flag::Own("N"),
        zoo: Some(("snapCount", Unit::Within(1, u64::MAX))),
        field: Field::Large(|to| &mut to.options.snapshot_every_entries),
        help: "Write a snapshot after this many log entries",
    },
    Setting {
        name: "snapshot_every_bytes",
        flag: Flag::Own("BYTES"),
        zoo: Some(("snapSizeLimitInKb", Unit::Kibibytes)),
        field: Field::Large(|to| &mut to.options.snapshot_every_bytes),
        help: "Write a snapshot after this many bytes of log",
    },
    Setting {
        name: "snapshot_interval",
        flag: Flag::Own("DUR"),
        zoo: Some(("admin.rateLimiterIntervalInMS", Unit::Milliseconds)),
        field: Field::Duration(|to| &mut to.options.snapshot_interval),
        help: "How long the HTTP command snapshot is refused after the last one; 0 for never",
    },
    Setting {
        name: "reap_interval",
        flag: Flag::Own("DUR"),
        zoo: Some(("znode.container.checkIntervalMs", Unit::Milliseconds)),
        field: Field::Duration(|to| &mut to.options.reap_interval),
        help: "How often empty containers and outlived TTL znodes are removed; 0 for never",
    },
    Setting {
        name: "container_grace",
        flag: Flag::Own("DUR"),
        zoo: Some(("znode.container.maxNeverUsedIntervalMs", Unit::Milliseconds)),
        field: Field::Duration(|to| &mut to.options.container_grace),
        help: "How long a container that never had a child is kept; 0 for ever",
    },
    Setting {
        name: "four_letter_words",
        flag: Flag::Own("WORD"),
        zoo: Some(("4lw.commands.whitelist", Unit::Words)),
        field: Field::Texts(|to| &mut to.options.four_letter_words),
        help: "The four-letter words that are answered; * for all. May be repeated",
    },
    Setting {
        name: "super_digest",
        flag: Flag::Own("ID"),
        zoo: Some(("DigestAuthenticationProvider.superDigest", Unit::Text)),
        field: Field::Text(|to| &mut to.options.super_digest),
        help: "Whom every ACL is open to: user:base64(sha1(user:password))",
    },
    Setting {
        name: "sasl_users",
        flag: Flag::Own("FILE"),
        zoo: Some(("java.security.auth.login.config", Unit::Text)),
        field: Field::Path(|to| &mut to.sasl_users),
        help: "The users that may authenticate by SASL DIGEST-MD5: a file with lines NAME:PASSWORD, or the JAAS file of a ZooKeeper server",
    },
    Setting {
        name: "sasl_super_users",
        flag: Flag::Named("sasl-super-user", "NAME"),
        zoo: Some(("superUser", Unit::Text)),
        field: Field::Texts(|to| &mut to.options.sasl_super_users),
        help: "A user of sasl_users to whom every ACL is open. May be repeated",
    },
    Setting {
        name: "require_auth",
        flag: Flag::Own("SCHEME"),
        zoo: Some(("enforce.auth.schemes", Unit::Text)),
        field: Field::Texts(|to| &mut to.options.required_schemes),
        help: "Close a client that asks for anything before it has authenticated by one of these schemes: digest, sasl, x509. May be repeated",
    },
    Setting {
        name: "log",
        flag: Flag::Own("FILTER"),
        zoo: None,
        field: Field::LogFilter(|to| &mut to.log.filter),
        help: "What the log shows: error, warn, info, debug, trace or off; also for parts, as in info,baton_server::net=debug. Without it, info",
    },
    Setting {
        name: "log_format",
        flag: Flag::Own("FORM"),
        zoo: None,
        field: Field::LogFormat(|to| &mut to.log.format),
        help: "The form of the lines of the log: text or json. Without it, json with --json, else text",
    },
    Setting {
        name: "audit",
        flag: Flag::Own("TO"),
        zoo: Some(("audit.enable", Unit::TrueIs("log"))),
        field: Field::AuditTo(|to| &mut to.options.audit.to),
        help: "Record who did what: off, log (with the server's log) or a file",
    },
    Setting {
        name: "audit_format",
        flag: Flag::Own("FORM"),
        zoo: None,
        field: Field::AuditFormat(|to| &mut to.options.audit.format),
        help: "The form of the lines of the audit record: text or json",
    },
    Setting {
        name: "audit_max_bytes",
        flag: Flag::Own("BYTES"),
        zoo: None,
        field: Field::Large(|to| &mut to.options.audit.max_bytes),
        help: "The bytes of a file of the audit record, before the next one is begun",
    },
    Setting {
        name: "audit_files",
        flag: Flag::Own("N"),
        zoo: None,
        field: Field::Count(|to| &mut to.options.audit.files),
        help: "The older files of the audit record that are kept: FILE.1 is the newest",
    },
    Setting {
        name: "server_id",
        flag: Flag::Own("N"),
        zoo: None,
        field: Field::Small(|to| &mut to.options.server_id),
        help: "The first byte of every session id, to tell servers apart; in an ensemble this server's id",
    },
    Setting {
        name: "ensemble.servers",
        flag: Flag::Named("server", "ID=HOST:PORT"),
        zoo: Some(("server.N", Unit::Text)),
        field: Field::Servers(|to| &mut to.ensemble.servers),
        help: "A server of the ensemble that this one belongs to, itself among them: its id, and where the others reach it. May be repeated",
    },
    Setting {
        name: "ensemble.observers",
        flag: Flag::Named("observer", "ID"),
        zoo: Some(("server.N", Unit::Text)),
        field: Field::Ids(|to| &mut to.ensemble.observers),
        help: "A server of ensemble.servers that does not vote. May be repeated",
    },
    Setting {
        name: "ensemble.clients",
        flag: Flag::Named("client-address", "ID=HOST:PORT"),
        zoo: Some(("server.N", Unit::Text)),
        field: Field::Servers(|to| &mut to.ensemble.clients),
        help: "Where clients reach a server of ensemble.servers, as /zookeeper/config shows it. May be repeated",
    },
    Setting {
        name: "ensemble.election_ports",
        flag: Flag::Named("election-port", "ID=PORT"),
        zoo: Some(("server.N", Unit::Text)),
        field: Field::Ports(|to| &mut to.ensemble.election_ports),
        help: "The election port of a server of ensemble.servers, which only /zookeeper/config shows. May be repeated",
    },
    Setting {
        name: "ensemble.reconfig",
        flag: Flag::Named("reconfig", ""),
        zoo: Some(("reconfigEnabled", Unit::Text)),
        field: Field::Switch(|to| &mut to.ensemble.reconfig),
        help: "Let whoever may write /zookeeper/config change which servers are members",
    },
    Setting {
        name: "ensemble.read_only_mode",
        flag: Flag::Named("read-only-mode", ""),
        zoo: Some(("readonlymode.enabled", Unit::Text)),
        field: Field::Switch(|to| &mut to.ensemble.read_only_mode),
        help: "Serve clients that ask for it reads while no leader is known",
    },
    Setting {
        name: "ensemble.listen",
        flag: Flag::Named("peer-listen", "HOST:PORT"),
        zoo: None,
        field: Field::Text(|to| &mut to.ensemble.listen),
        help: "Listen here for the other servers; without it, on this server's address in ensemble.servers",
    },
    Setting {
        name: "ensemble.allow_plain_peers",
        flag: Flag::Named("allow-plain-peers", ""),
        zoo: None,
        field: Field::Switch(|to| &mut to.ensemble.allow_plain_peers),
        help: "Let servers talk over other addresses than loopback's, with neither encryption nor authentication",
    },
    Setting {
        name: "ensemble.tls",
        flag: Flag::Named("peer-tls", ""),
        zoo: Some(("sslQuorum", Unit::Text)),
        field: Field::Switch(|to| &mut to.peer_tls.connects),
        help: "Use TLS between the servers, with ensemble.tls_cert, tls_key and tls_ca",
    },
    Setting {
        name: "ensemble.port_unification",
        flag: Flag::Named("peer-port-unification", ""),
        zoo: Some(("portUnification", Unit::Text)),
        field: Field::Switch(|to| &mut to.peer_tls.accepts_both),
        help: "Accept connections of other servers both with TLS and without, while the servers change from one to the other",
    },
    Setting {
        name: "ensemble.tls_cert",
        flag: Flag::Named("peer-tls-cert", "FILE"),
        zoo: Some(("ssl.quorum.keyStore.location", Unit::Text)),
        field: Field::Path(|to| &mut to.peer_tls.cert),
        help: "The certificate that this server shows to the other servers, and its chain, in PEM",
    },
    Setting {
        name: "ensemble.tls_key",
        flag: Flag::Named("peer-tls-key", "FILE"),
        zoo: None,
        field: Field::Path(|to| &mut to.peer_tls.key),
        help: "The private key of ensemble.tls_cert, in PEM; without it, it is in the file of ensemble.tls_cert",
    },
    Setting {
        name: "ensemble.tls_ca",
        flag: Flag::Named("peer-tls-ca", "FILE"),
        zoo: Some(("ssl.quorum.trustStore.location", Unit::Text)),
        field: Field::Path(|to| &mut to.peer_tls.ca),
        help: "The authorities that sign the certificates of all servers of the ensemble, in PEM",
    },
    Setting {
        name: "ensemble.tls_crl",
        flag: Flag::Named("peer-tls-crl", "FILE"),
        zoo: None,
        field: Field::Path(|to| &mut to.peer_tls.crl),
        help: "The lists of certificates that the authorities of ensemble.tls_ca have revoked, in PEM. It needs a list of each authority",
    },
    Setting {
        name: "ensemble.tls_any_host",
        flag: Flag::Named("peer-tls-any-host", ""),
        zoo: Some(("ssl.quorum.hostnameVerification", Unit::Text)),
        field: Field::Switch(|to| &mut to.peer_tls.any_host),
        help: "Accept certificates of servers for any host, not only for that of their address in ensemble.servers",
    },
    Setting {
        name: "ensemble.tick",
        flag: Flag::Named("consensus-tick", "DUR"),
        zoo: None,
        field: Field::Duration(|to| &mut to.ensemble.tick),
        help: "The step of elections: a heartbeat every 4, an election after 18 to 28 without one; 63ms for servers far apart",
    },
    Setting {
        name: "core_dumps",
        flag: Flag::Own(""),
        zoo: None,
        field: Field::Switch(|to| &mut to.core_dumps),
        help: "Let the system write the memory of a server that crashes to a file, with its keys and passwords, and let debuggers of this user attach",
    },
    Setting {
        name: "exit_when_idle",
        flag: Flag::Own("DUR"),
        zoo: None,
        field: Field::MaybeDuration(|to| &mut to.exit_when_idle),
        help: "End after this long without a connection or a session",
    },
];
