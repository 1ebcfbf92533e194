//! The settings as a whole: precedence, both kinds of file, and the tables in the documents.

mod audit;
mod auth;
mod peer_tls;
mod tls;

use std::fmt::Write as _;

use clap::{Args, FromArgMatches};

use super::*;

fn flags(arguments: &[&str]) -> SettingFlags {
    let command = SettingFlags::augment_args(clap::Command::new("serve"));
    let matches = command.try_get_matches_from([&["serve"], arguments].concat());
    SettingFlags::from_arg_matches(&matches.unwrap()).unwrap()
}

fn load(name: &str, text: &str, arguments: &[&str]) -> Result<Settings, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, text).unwrap();
    Settings::load(Some(&file), &flags(arguments), None).map_err(|failure| failure.to_string())
}

fn origin<'a>(settings: &'a Settings, name: &str) -> &'a str {
    let list = settings.list();
    list.iter().find(|shown| shown.name == name).unwrap().origin
}

const ZOO: &str = "dataDir=/var/lib/zookeeper\nclientPort=2181\n";

#[test]
fn what_a_zoo_cfg_says_is_taken_and_the_rest_is_named_in_one_line() {
    let text = "# a comment\ntickTime = 2000\ndataDir=/var/lib/zookeeper\nclientPort=2181\ninitLimit=10\n\
         maxClientCnxns=0\nserver.1=localhost:2888:3888\n4lw.commands.whitelist=ruok, srvr, nosuch, crst\n\
         syncLimit=5\nforceSync=yes\nskipACL=yes\nmyOwnKey=3\nautopurge.purgeInterval=1\nsnapSizeLimitInKb=1024\n";
    let settings = load("zoo.cfg", text, &[]).unwrap();
    let target = settings.target();
    let options = &target.options;
    assert_eq!(options.listen, ["*:2181"]);
    assert_eq!(options.min_session_timeout, Duration::from_secs(4));
    assert_eq!(options.max_session_timeout, Duration::from_secs(40));
    assert_eq!(options.max_connections_per_address, 0);
    assert_eq!(options.four_letter_words, ["ruok", "srvr", "crst"]);
    assert_eq!(options.snapshot_every_bytes, 1 << 20);
    assert_eq!(
        target.data_dir.as_deref(),
        Some(Path::new("/var/lib/zookeeper/baton"))
    );
    let warning = settings.warning.as_deref().unwrap();
    assert!(!warning.contains('\n'));
    let (_, said) = warning.split_once("without effect: ").unwrap();
    assert_eq!(
        said,
        "initLimit, syncLimit (a server alone has no ensemble); 4lw.commands.whitelist=nosuch (no such word here); \
         skipACL (ACLs are checked); myOwnKey (unknown); \
         autopurge.purgeInterval (files that a newer snapshot covers are always removed)"
    );
}

#[test]
fn the_last_line_with_a_key_counts() {
    let text = "dataDir=/a\nclientPort=2181\nclientPort=2182\nclientPortAddress=::1\nminSessionTimeout=-1\n\
         maxSessionTimeout=90000\njute.maxbuffer=0x400000\n4lw.commands.whitelist=*\n\
         DigestAuthenticationProvider.superDigest=super:x=\n";
    let settings = load("zoo.cfg", text, &[]).unwrap();
    let options = &settings.target().options;
    assert_eq!(options.listen, ["[::1]:2182"]);
    assert_eq!(options.min_session_timeout, Duration::from_secs(6));
    assert_eq!(options.max_session_timeout, Duration::from_secs(90));
    assert_eq!(options.max_frame_bytes, 4 << 20);
    assert_eq!(options.four_letter_words, ["*"]);
    assert_eq!(options.super_digest.as_deref(), Some("super:x="));
    assert_eq!(settings.warning, None);
    assert!(!settings.to_toml().contains("super:x="));
}

#[test]
fn the_port_may_stand_in_the_line_of_the_only_server_and_that_in_a_file_of_its_own() {
    for (line, expected) in [
        ("server.1=a:2888:3888;2191", "*:2191"),
        ("server.1=a:2888:3888;0.0.0.0:2191", "*:2191"),
        ("server.1=a:2888:3888;[::1]:2191", "[::1]:2191"),
        (
            "server.1=a:2888:3888:participant;127.0.0.1:2191",
            "127.0.0.1:2191",
        ),
    ] {
        let settings = load("zoo.cfg", &format!("dataDir=/x\n{line}\n"), &[]).unwrap();
        assert_eq!(settings.target().options.listen, [expected]);
    }
    let folder = tempfile::tempdir().unwrap();
    let dynamic = folder.path().join("zoo.cfg.dynamic");
    std::fs::write(&dynamic, "server.1=a:1:2;3\nserver.2=b:1:2;3\nversion=10\n").unwrap();
    let text = format!("dataDir=/x\ndynamicConfigFile={}\n", dynamic.display());
    assert!(
        load("zoo.cfg", &text, &[])
            .unwrap_err()
            .contains("names 2 servers")
    );
}

#[test]
fn a_flag_outweighs_the_file_and_the_file_the_default() {
    let settings = load(
        "zoo.cfg",
        ZOO,
        &["--listen", "127.0.0.1:1", "--tick", "50ms"],
    )
    .unwrap();
    assert_eq!(settings.target().options.listen, ["127.0.0.1:1"]);
    assert_eq!(origin(&settings, "listen"), "--listen");
    assert!(origin(&settings, "data_dir").ends_with("zoo.cfg:1 dataDir"));
    assert_eq!(origin(&settings, "max_frame_bytes"), "default");
    let given = Settings::load(None, &flags(&[]), Some(Path::new("/given"))).unwrap();
    assert_eq!(given.target().folder(), Some(Path::new("/given")));
}

#[test]
fn a_short_session_timeout_takes_the_tick_with_it() {
    let settings = load("zoo.cfg", &format!("{ZOO}tickTime=50\n"), &[]).unwrap();
    assert_eq!(settings.target().options.tick, Duration::from_millis(100));
}

#[test]
fn what_is_printed_is_a_baton_toml_that_says_the_same() {
    let arguments = [
        "--unix-socket=/run/a \"b\"",
        "--exit-when-idle=90s",
        "--tick=75ms",
        "--listen=a:1",
        "--listen=b:2",
    ];
    let one = load("zoo.cfg", ZOO, &arguments).unwrap();
    let two = load("baton.toml", &one.to_toml(), &[]).unwrap();
    let values = |settings: &Settings| -> Vec<Option<String>> {
        settings
            .list()
            .into_iter()
            .map(|shown| shown.value)
            .collect()
    };
    assert_eq!(values(&one), values(&two));
    assert_eq!(two.target().options.listen, ["a:1", "b:2"]);
    assert_eq!(two.target().exit_when_idle, Some(Duration::from_secs(90)));
}

#[test]
fn what_cannot_be_served_is_refused_with_its_line_and_the_remedy() {
    for (name, text, complaint) in [
        ("zoo.cfg", "clientPort=2181", "add dataDir="),
        ("zoo.cfg", "dataDir=/x", "add clientPort=2181"),
        (
            "zoo.cfg",
            "dataDir=/x\nclientPort=70000",
            "zoo.cfg:2: clientPort=70000 is not a port",
        ),
        (
            "zoo.cfg",
            "dataDir=/x\n\n# c\ntickTime=two",
            "zoo.cfg:4: tickTime=two is not a number",
        ),
        (
            "zoo.cfg",
            "dataDir=/x\nsnapCount=many",
            "zoo.cfg:2: snapCount=many",
        ),
        (
            "zoo.cfg",
            "dataDir",
            "zoo.cfg:1: 'dataDir' is not a key=value",
        ),
        (
            "zoo.cfg",
            "server.1=a:1:2\nserver.2=b:1:2",
            "names 2 servers and no dataDir",
        ),
        (
            "zoo.cfg",
            "tickTime=0",
            "zoo.cfg:1: tickTime=0 is not a tick",
        ),
        (
            "zoo.cfg",
            "dataDir=/x\nclientPort=1\nminSessionTimeout=9000\nmaxSessionTimeout=8000",
            "max_session_timeout",
        ),
        ("baton.toml", "a = 1\ntick = \n", "baton.toml:2:"),
        (
            "baton.toml",
            "tick = \"1s\"\n\ntik = \"1s\"",
            "baton.toml:3 tik: unknown setting; a similar one exists: tick",
        ),
        (
            "baton.toml",
            "# c\n\"max-conections\" = 5",
            "baton.toml:2 max-conections: unknown setting; a similar one exists: max_connections",
        ),
        ("baton.toml", "xyzzy = 5", "unknown setting; baton serve"),
        (
            "baton.toml",
            "\n[server]\ntick = \"1s\"",
            "baton.toml:2 server: a baton.toml has no tables",
        ),
        (
            "baton.toml",
            "[ensemble]\nservers = 3",
            "baton.toml:2 ensemble.servers: '3' names no server; write ID=HOST:PORT",
        ),
        (
            "baton.toml",
            "[ensemble]\nservers = { 1 = 2888 , 2 = [] }",
            "baton.toml:2 ensemble.servers: the value is a table; write a table of addresses by id",
        ),
        (
            "baton.toml",
            "[ensemble]\n\nserver = \"1=a:1\"",
            "baton.toml:3 ensemble.server: unknown setting; a similar one exists: ensemble.servers",
        ),
        (
            "baton.toml",
            "ensemble.listen = \"127.0.0.1:1\"",
            "has no meaning without ensemble.servers",
        ),
        (
            "baton.toml",
            "ensemble.servers = { 2 = \"127.0.0.1:1\" }",
            "must agree: the only server is another one",
        ),
        (
            "baton.toml",
            "ephemeral = true\nlisten = \"127.0.0.1:1\"\n\
             [ensemble.servers]\n1 = \"127.0.0.1:1\"\n2 = \"127.0.0.1:2\"",
            "baton.toml:1 ephemeral) is not possible in an ensemble",
        ),
        (
            "baton.toml",
            "[ensemble.servers]\n1 = \"127.0.0.1:1\"\n2 = \"127.0.0.1:1\"",
            "baton.toml:1 ensemble.servers) must not have one address twice",
        ),
        (
            "baton.toml",
            "[ensemble.servers]\n1 = \"127.0.0.1:1\"\n2 = \"zk2:1\"",
            "ensemble.allow_plain_peers = false (default) must be true (baton serve --allow-plain-peers)",
        ),
        (
            "baton.toml",
            "server_id = 1\ntick = 5",
            "baton.toml:2 tick: '5' is not a duration; write a number and a unit",
        ),
        (
            "baton.toml",
            "tick = [\"5s\"]",
            "baton.toml:1 tick: the value is a list; write a duration",
        ),
        (
            "baton.toml",
            "tick = \"1s\"\nmin_session_timeout = \"4s\"\nmax_session_timeout = \"3s\"",
            "baton.toml:3 max_session_timeout) must not be below min_session_timeout",
        ),
        ("baton.toml", "ephemeral = true", "has no address"),
        (
            "baton.toml",
            "server_id = 300",
            "baton.toml:1 server_id: '300' is not a whole number up to 255",
        ),
    ] {
        let error = load(name, text, &[]).unwrap_err();
        assert!(error.contains(complaint), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

/// Takes any number, like ZooKeeper: one that is not possible becomes the nearest and is named.
#[test]
fn a_number_that_is_not_possible_becomes_the_nearest_and_is_named() {
    for (line, setting, value) in [
        ("jute.maxbuffer=100", "max_frame_bytes", "1024"),
        ("jute.maxbuffer=0x7fffffff", "max_frame_bytes", "33554432"),
        ("snapCount=0", "snapshot_every_entries", "1"),
        ("minSessionTimeout=0", "min_session_timeout", "\"1ms\""),
    ] {
        let settings = load("zoo.cfg", &format!("{ZOO}{line}\n"), &[]).unwrap();
        let list = settings.list();
        let shown = list.iter().find(|shown| shown.name == setting).unwrap();
        assert_eq!(shown.value.as_deref(), Some(value), "{line}");
        let warning = settings.warning.as_deref().unwrap_or_default();
        let named = format!("{line} (the nearest value that is possible is taken)");
        assert!(warning.contains(&named), "{warning}");
    }
}

#[test]
fn a_zoo_cfg_that_asks_for_protection_stops_the_start_and_names_every_such_line() {
    let text = format!(
        "{ZOO}ensembleAuthName=mine\nznodeGroupAcl.setX509ClientIdAsAcl=true\n# c\nkerberos.removeHostFromPrincipal=true\n\
         quorum.auth.enableSasl=true\nmetricsProvider.ssl.keyStore.password=hunter2\nskipACL=yes\n"
    );
    let refused = load("zoo.cfg", &text, &[]).unwrap_err();
    for part in [
        "zoo.cfg:3 ensembleAuthName, ",
        "zoo.cfg:4 znodeGroupAcl.setX509ClientIdAsAcl (clients are known by ip, digest, x509 and SASL DIGEST-MD5 only)",
        "zoo.cfg:6 kerberos.removeHostFromPrincipal (there is no Kerberos; ",
        "zoo.cfg:7 quorum.auth.enableSasl (servers authenticate each other by certificates (sslQuorum), not by SASL)",
        "zoo.cfg:8 metricsProvider.ssl.keyStore.password",
        "then remove these lines",
    ] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    assert!(
        !refused.contains("hunter2") && !refused.contains("skipACL"),
        "{refused}"
    );
    assert!(!refused.contains('\n'), "{refused}");
    // Flags do not turn it off, and neither does a TLS port without a plain one ask for a plain
    // one.
    assert!(load("zoo.cfg", &text, &["--listen", "127.0.0.1:1"]).is_err());
    let only_tls = load("zoo.cfg", "dataDir=/x\nsecureClientPort=2281\n", &[]).unwrap_err();
    assert!(
        only_tls.contains("tls_cert")
            && only_tls.contains("must be given")
            && !only_tls.contains("add clientPort"),
        "{only_tls}"
    );
}

/// Every key of ZooKeeper 3.8 and 3.9 that protects.
#[test]
fn each_protecting_key_stops_the_start_by_itself_and_its_off_value_does_not() {
    const SASL: &str = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
    const DIGEST: &str = "org.apache.zookeeper.server.auth.DigestAuthenticationProvider";
    for (key, on, off) in [
        ("fips-mode", "true", "false"),
        ("quorum.auth.enableSasl", "true", "false"),
        ("quorum.auth.learnerRequireSasl", "true", "false"),
        ("quorum.auth.serverRequireSasl", "true", "false"),
        ("quorum.auth.server.saslLoginContext", "QuorumServer", ""),
        (
            "quorum.auth.kerberos.servicePrincipal",
            "servicename/_HOST",
            "",
        ),
        ("authProvider.1", SASL, DIGEST),
        ("authProvider.sasl", SASL, DIGEST),
        (
            "authProvider.ensemble",
            "org.apache.zookeeper.server.auth.EnsembleAuthenticationProvider",
            "",
        ),
        ("ensembleAuthName", "mine", ""),
        ("sessionRequireClientSASLAuth", "true", "false"),
        ("enforce.auth.enabled", "true", "false"),
        ("requireKerberosConfig", "true", "false"),
        ("kerberos.removeHostFromPrincipal", "true", "false"),
        ("kerberos.removeRealmFromPrincipal", "true", "false"),
        ("security.auth_to_local", "RULE:[1:$1]", ""),
        ("sasl.serverconfig", "ZkServer", "Server"),
        ("znodeGroupAcl.setX509ClientIdAsAcl", "true", "false"),
        ("DigestAuthenticationProvider.enabled", "false", "true"),
        ("DigestAuthenticationProvider.digestAlg", "SHA-256", "SHA1"),
        ("admin.needClientAuth", "true", "false"),
        ("admin.forceHttps", "true", "false"),
        ("admin.portUnification", "true", "false"),
        ("metricsProvider.httpsPort", "7443", ""),
        ("metricsProvider.ssl.keyStore.location", "/x", ""),
        ("metricsProvider.needClientAuth", "true", "false"),
    ] {
        let with = |value: &str| load("zoo.cfg", &format!("{ZOO}{key}={value}\n"), &[]);
        let refused = with(on).map(|settings| settings.warning).unwrap_err();
        assert!(
            refused.contains(&format!(
                "zoo.cfg:3 {}",
                key.trim_start_matches("zookeeper.")
            )),
            "{refused}"
        );
        let taken = with(off).unwrap_or_else(|refused| panic!("{key}={off}: {refused}"));
        assert_eq!(taken.warning, None, "{key}={off} says what happens");
    }
    // The last line counts, and a switch that is off turns its details off.
    for (lines, named) in [
        (
            "enforce.auth.enabled=true\nenforce.auth.enabled=false\n",
            None,
        ),
        (
            "enforce.auth.enabled=false\nenforce.auth.schemes=sasl\n",
            Some("enforce.auth.schemes"),
        ),
        (
            "quorum.auth.enableSasl=false\nquorum.auth.server.saslLoginContext=Q\n",
            Some("quorum.auth.server.saslLoginContext"),
        ),
        (
            "admin.enableServer=false\nadmin.forceHttps=true\n",
            Some("admin.forceHttps"),
        ),
    ] {
        let settings = load("zoo.cfg", &format!("{ZOO}{lines}"), &[]).unwrap();
        let warning = settings.warning.as_deref();
        assert_eq!(warning.is_some(), named.is_some(), "{warning:?}");
        assert!(
            warning
                .unwrap_or_default()
                .contains(named.unwrap_or_default())
        );
    }
    assert!(
        load(
            "zoo.cfg",
            &format!("{ZOO}enforce.auth.enabled=false\nenforce.auth.enabled=true\n"),
            &[]
        )
        .is_err()
    );
}

#[test]
fn the_admin_server_and_the_metrics_of_a_zoo_cfg_become_http_addresses() {
    let http = |more: &str| {
        let settings = load("zoo.cfg", &format!("{ZOO}{more}"), &[]).unwrap();
        assert_eq!(settings.warning, None, "{more}");
        settings.target().options.http.clone()
    };
    assert_eq!(http("admin.serverPort=1\n"), <[&str; 0]>::default());
    assert_eq!(http("admin.enableServer=true\n"), ["*:8080"]);
    assert_eq!(
        http("admin.enableServer=true\nadmin.serverAddress=::1\nadmin.serverPort=9\n"),
        ["[::1]:9"]
    );
    let prometheus = "metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider\n\
                      metricsProvider.httpPort=7000\nmetricsProvider.httpHost=127.0.0.1\n";
    assert_eq!(http(prometheus), ["127.0.0.1:7000"]);
    assert_eq!(
        http(&format!("admin.enableServer=true\n{prometheus}")),
        ["*:8080", "127.0.0.1:7000"]
    );
    let refused = load("zoo.cfg", &format!("{ZOO}admin.serverPort=x\n"), &[]);
    assert!(refused.unwrap_err().contains("is not a port"));
}

/// A dataDir with this content of its file `myid`, and a zoo.cfg for it: these lines, and the
/// address of the clients.
fn load_member(myid: Option<&str>, lines: &str, flags: &[&str]) -> Result<Settings, String> {
    let folder = tempfile::tempdir().unwrap();
    if let Some(myid) = myid {
        std::fs::write(folder.path().join("myid"), myid).unwrap();
    }
    let text = format!("dataDir={}\n{lines}", folder.path().display());
    load("zoo.cfg", &text, flags)
}

const THREE: &str = "clientPort=2181\nserver.1=127.0.0.1:2888:3888\nserver.2=localhost:2889:3889:participant\n\
                     server.3=[::1]:2890:3890\n";

#[test]
fn the_servers_of_a_zoo_cfg_are_an_ensemble_and_myid_says_which_one_this_is() {
    let text =
        format!("initLimit=10\nstandaloneEnabled=false\nsyncLimit=5\nelectionAlg=3\n{THREE}");
    let settings = load_member(Some("2\n"), &text, &[]).unwrap();
    let options = &settings.target().options;
    assert_eq!(options.server_id, 2);
    assert!(origin(&settings, "server_id").ends_with("/myid"));
    let ensemble = options.ensemble.as_ref().unwrap();
    let servers: Vec<_> = ensemble
        .servers
        .iter()
        .map(|(id, at)| (*id, at.as_str()))
        .collect();
    assert_eq!(
        servers,
        [
            (1, "127.0.0.1:2888"),
            (2, "localhost:2889"),
            (3, "[::1]:2890")
        ]
    );
    assert_eq!(ensemble.listen, None);
    assert!(!ensemble.allow_plain_peers);
    assert!(origin(&settings, "ensemble.servers").contains("server.1, "));
    assert_eq!(options.listen, ["*:2181"]);
    let shown: Vec<_> = options
        .conf_lines
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    let wanted = [
        "initLimit",
        "syncLimit",
        "electionPort",
        "server.1",
        "server.2",
        "server.3",
    ];
    assert_eq!(shown, wanted);
    assert_eq!(options.conf_lines[2].1, "3889");
    assert_eq!(options.conf_lines[4].1, "localhost:2889:3889:participant");
    let warnings: Vec<_> = settings.warnings().collect();
    let [warning] = &warnings[..] else {
        panic!("{warnings:?}");
    };
    assert!(
        warning.ends_with("without effect: initLimit, syncLimit, electionAlg (servers agree in Baton's own way: one vote each, times by ensemble.tick)"),
        "{warning}"
    );
    // A flag outweighs the file.
    let settings = load_member(Some("2"), THREE, &["--server-id", "3"]).unwrap();
    assert_eq!(settings.target().options.server_id, 3);
    assert_eq!(origin(&settings, "server_id"), "--server-id");
}

#[test]
fn the_address_for_clients_is_that_of_the_servers_own_line_which_the_port_must_not_contradict() {
    let with = |id: &str, lines: &str| {
        let lines = format!("{lines}server.2=localhost:2889:3889\n");
        load_member(Some(id), &lines, &[]).map(|settings| settings.target().options.listen.clone())
    };
    let own = |client: &str| format!("server.1=127.0.0.1:2888:3888;{client}\n");
    assert_eq!(with("1", &own("2181")).unwrap(), ["*:2181"]);
    assert_eq!(
        with("1", &own("127.0.0.1:2181")).unwrap(),
        ["127.0.0.1:2181"]
    );
    // A port alone is every address, and the line says which of them.
    let both = format!("clientPort=2181\n{}", own("127.0.0.1:2181"));
    assert_eq!(with("1", &both).unwrap(), ["127.0.0.1:2181"]);
    assert_eq!(with("2", &both).unwrap(), ["*:2181"]);
    for text in [
        format!("clientPort=2182\n{}", own("2181")),
        format!(
            "clientPort=2181\nclientPortAddress=10.0.0.1\n{}",
            own("2181")
        ),
    ] {
        let refused = with("1", &text).unwrap_err();
        assert!(refused.contains("write the same in both"), "{refused}");
    }
    let refused = with("2", &own("2181")).unwrap_err();
    assert!(refused.contains("add clientPort=2181"), "{refused}");
}

#[test]
fn a_list_of_servers_that_cannot_be_is_refused_with_its_lines_and_the_remedy() {
    for (myid, lines, complaint) in [
        (None, THREE, "names 3 servers, and /"),
        (
            None,
            THREE,
            "write the number of this server's line into it",
        ),
        (Some("one"), THREE, "'one' is not a number from 1 to 127"),
        (Some(""), THREE, "'' is not a number"),
        (Some("128"), THREE, "'128' is not a number from 1 to 127"),
        (Some("4"), THREE, "this is server 4, and "),
        (Some("4"), THREE, "has the servers 1, 2, 3; correct"),
        (
            Some("1"),
            "clientPort=1\nserver.1=127.0.0.1:1:2\nserver.1=127.0.0.1:3:4\n",
            "zoo.cfg:4: server.1=127.0.0.1:3:4 names server 1 a second time, after ",
        ),
        (
            Some("1"),
            "clientPort=1\nserver.1=127.0.0.1:1:2\nserver.2=127.0.0.1:1:4\n",
            "must not have one address twice",
        ),
        (
            Some("1"),
            "clientPort=1\nserver.1=127.0.0.1:1:2\nserver.200=127.0.0.1:2:4\n",
            "must have ids between 1 and 127",
        ),
        (
            Some("1"),
            "clientPort=1\nserver.1=127.0.0.1:1:2\nserver.two=127.0.0.1:2:4\n",
            "zoo.cfg:4: server.two=127.0.0.1:2:4: there is no number behind server.",
        ),
        (
            Some("1"),
            "clientPort=1\nserver.1=127.0.0.1:1:2\nserver.2=127.0.0.1\n",
            "zoo.cfg:4: server.2=127.0.0.1 has no host and port",
        ),
        (
            Some("1"),
            "clientPort=1\npeerType=observer\nserver.1=127.0.0.1:1:2\nserver.2=127.0.0.1:2:3\n",
            "zoo.cfg:3 peerType: it says observer, but",
        ),
        (
            Some("1"),
            "clientPort=1\nserver.1=127.0.0.1:1:2|127.0.0.2:1:2\nserver.2=127.0.0.1:2:3\n",
            "has several addresses of one server",
        ),
        (
            Some("1"),
            "clientPort=1\nserver.1=127.0.0.1:1:2;2181;2281\nserver.2=127.0.0.1:2:3\n",
            "name the port in secureClientPort",
        ),
        (
            Some("1"),
            "clientPort=1\nserver.1=0.0.0.0:1:2\nserver.2=127.0.0.1:2:3\n",
            "quorumListenOnAllIPs=true",
        ),
        (
            Some("1"),
            "clientPort=1\nserver.1=zk1:1:2\nserver.2=zk2:2:3\n",
            "neither encrypted nor authenticated",
        ),
        (
            Some("1"),
            "clientPort=1\nquorumListenOnAllIPs=true\nserver.1=127.0.0.1:1:2\nserver.2=127.0.0.1:2:3\n",
            "baton serve --allow-plain-peers",
        ),
    ] {
        let refused = load_member(myid, lines, &[]).map(drop).unwrap_err();
        assert!(refused.contains(complaint), "{lines}: {refused}");
        assert!(!refused.contains('\n'), "{refused}");
    }
    let lines = "clientPort=1\nquorumListenOnAllIPs=true\nserver.1=zk1:1:2\nserver.2=zk2:2:3\n";
    let settings = load_member(Some("1"), lines, &["--allow-plain-peers"]).unwrap();
    let ensemble = settings.target().options.ensemble.clone().unwrap();
    assert_eq!(ensemble.listen.as_deref(), Some("*:1"));
    let warnings: Vec<_> = settings.warnings().collect();
    assert_eq!(
        warnings,
        [
            "an ensemble of 2 servers goes on after the failure of 0, no more than one of 1 does; \
             take an odd number of servers"
        ]
    );
}

#[test]
fn observers_client_addresses_and_what_ensembles_may_do_are_taken_from_a_zoo_cfg() {
    let lines = "clientPort=2181\nreconfigEnabled=true\nreadonlymode.enabled=true\npeerType=observer\n\
                 server.1=127.0.0.1:1:2;2181\nserver.2=127.0.0.1:2:3:participant;127.0.0.1:2182\n\
                 server.3=127.0.0.1:3:4\nserver.4=127.0.0.1:4:5:observer\n";
    let settings = load_member(Some("4"), lines, &[]).unwrap();
    let ensemble = settings.target().options.ensemble.clone().unwrap();
    assert_eq!(ensemble.servers.len(), 4);
    assert_eq!(ensemble.observers.iter().copied().collect::<Vec<_>>(), [4]);
    let clients: Vec<_> = ensemble.clients.values().map(String::as_str).collect();
    assert_eq!(clients, ["0.0.0.0:2181", "127.0.0.1:2182"]);
    let ports: Vec<_> = ensemble.election_ports.values().copied().collect();
    assert_eq!(ports, [2, 3, 4, 5]);
    assert!(ensemble.reconfig && ensemble.read_only_mode);
    assert!(origin(&settings, "ensemble.reconfig").ends_with("zoo.cfg:3 reconfigEnabled"));
    // Three vote, and nothing else is to be said.
    assert_eq!(settings.warnings().count(), 0);
    // What is printed is read back.
    let again = load("baton.toml", &settings.to_toml(), &[]).unwrap();
    assert_eq!(again.target().options.ensemble, Some(ensemble));
    let off = lines
        .replace("=true", "=false")
        .replace("peerType=observer\n", "");
    let settings = load_member(Some("1"), &off, &[]).unwrap();
    let ensemble = settings.target().options.ensemble.clone().unwrap();
    assert!(!ensemble.reconfig && !ensemble.read_only_mode);
    let flags = flags(&[
        "--server-id=2",
        "--server=1=127.0.0.1:1,2=127.0.0.1:2,3=127.0.0.1:3",
        "--observer=3",
        "--client-address=1=127.0.0.1:2181",
        "--reconfig",
        "--read-only-mode",
    ]);
    let settings = Settings::load(None, &flags, Some(Path::new("/x"))).unwrap();
    let ensemble = settings.target().options.ensemble.clone().unwrap();
    assert!(ensemble.observers.contains(&3) && ensemble.reconfig && ensemble.read_only_mode);
    assert_eq!(ensemble.clients[&1], "127.0.0.1:2181");
    let warnings: Vec<_> = settings.warnings().collect();
    assert!(
        warnings[0].starts_with("an ensemble of 2 servers"),
        "{warnings:?}"
    );
}

#[test]
fn the_servers_of_a_dynamic_file_are_taken_with_its_version() {
    let folder = tempfile::tempdir().unwrap();
    let dynamic = folder.path().join("zoo.cfg.dynamic.100000000");
    std::fs::write(
        &dynamic,
        "server.1=127.0.0.1:1:2:participant;127.0.0.1:2181\n\
         server.2=127.0.0.1:2:3:observer;127.0.0.1:2182\nversion=100000000\n",
    )
    .unwrap();
    let lines = format!("dynamicConfigFile={}\n", dynamic.display());
    let settings = load_member(Some("1"), &lines, &[]).unwrap();
    let ensemble = settings.target().options.ensemble.clone().unwrap();
    assert_eq!(ensemble.servers.len(), 2);
    assert!(ensemble.observers.contains(&2));
    assert_eq!(settings.target().options.listen, ["127.0.0.1:2181"]);
    let missing = "dynamicConfigFile=/nowhere/zoo.cfg.dynamic\n";
    let refused = load_member(Some("1"), missing, &[]).map(drop).unwrap_err();
    assert!(refused.contains("/nowhere/zoo.cfg.dynamic"), "{refused}");
}

#[test]
fn one_server_line_stands_alone_and_needs_no_myid() {
    let lines = "clientPort=2181\nserver.5=zk1:2888:3888\n";
    let settings = load_member(None, lines, &[]).unwrap();
    let options = &settings.target().options;
    assert_eq!((&options.ensemble, options.server_id), (&None, 1));
    assert!(options.conf_lines.is_empty());
    assert_eq!(options.listen, ["*:2181"]);
}

#[test]
fn one_server_to_which_others_may_be_added_is_an_ensemble_of_one() {
    let lines = "standaloneEnabled=false\nreconfigEnabled=true\nserver.5=127.0.0.1:1:2;2181\n";
    let settings = load_member(Some("5"), lines, &[]).unwrap();
    let options = &settings.target().options;
    assert_eq!(options.ensemble.as_ref().unwrap().servers.len(), 1);
    assert_eq!(options.server_id, 5);
    assert_eq!(settings.warnings().count(), 0);
    for one in ["standaloneEnabled=false\n", "reconfigEnabled=true\n"] {
        let settings = load_member(Some("5"), &lines.replace(one, ""), &[]).unwrap();
        assert_eq!(settings.target().options.ensemble, None, "without {one}");
    }
    let flags = flags(&["--server=1=127.0.0.1:1", "--reconfig"]);
    let settings = Settings::load(None, &flags, Some(Path::new("/x"))).unwrap();
    assert!(settings.target().options.ensemble.is_some());
}

#[test]
fn an_ensemble_is_named_alike_by_a_baton_toml_and_by_flags() {
    let text = "server_id = 2\n[ensemble]\nlisten = \"127.0.0.1:9\"\ntick = \"50ms\"\n\
                [ensemble.servers]\n1 = \"127.0.0.1:1\"\n10 = \"127.0.0.1:3\"\n2 = \"127.0.0.1:2\"\n";
    let from_file = load("baton.toml", text, &[]).unwrap();
    assert_eq!(
        origin(&from_file, "ensemble.tick"),
        origin(&from_file, "ensemble.listen")
            .replace(":3 ", ":4 ")
            .replace("listen", "tick")
    );
    let flags = flags(&[
        "--server-id=2",
        "--server=1=127.0.0.1:1",
        "--server=2=127.0.0.1:2,10=127.0.0.1:3",
        "--peer-listen=127.0.0.1:9",
        "--consensus-tick=50ms",
    ]);
    let from_flags = Settings::load(None, &flags, Some(Path::new("/x"))).unwrap();
    let one = from_file.target().options.ensemble.clone().unwrap();
    let two = from_flags.target().options.ensemble.clone().unwrap();
    assert_eq!(one, two);
    assert_eq!(one.servers.keys().copied().collect::<Vec<_>>(), [1, 2, 10]);
    assert_eq!(one.tick, Duration::from_millis(50));
    assert_eq!(origin(&from_flags, "ensemble.servers"), "--server");
    // What is printed is read back.
    let again = load("baton.toml", &from_flags.to_toml(), &[]).unwrap();
    assert_eq!(again.target().options.ensemble, Some(two));
}

/// The table of `docs/operate/configure.md`: the settings that a zoo.cfg can name.
fn table() -> String {
    let mut table = String::from("| zoo.cfg | setting |\n|---|---|\n");
    for setting in SETTINGS {
        if let Some((key, _)) = setting.zoo {
            let _ = writeln!(table, "| `{key}` | `{}` |", setting.name);
        }
    }
    table
}

#[test]
fn the_documents_have_every_key_of_a_zoo_cfg() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate/configure.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let table = table();
    assert!(
        text.contains(&table),
        "docs/operate/configure.md lacks this table, or has another state of it:\n{table}"
    );
}

/// Takes the files of distributions, images and projects as they ship them, without their comments;
/// and one of a cluster that was made a server alone.
#[test]
fn files_that_are_in_use_are_taken_and_what_they_ask_for_in_vain_is_named() {
    const QUORUM: &str = "initLimit, syncLimit (a server alone has no ensemble)";
    const PURGE: &str = "autopurge.snapRetainCount, autopurge.purgeInterval (files that a newer snapshot covers are always removed)";
    let debian =
        "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=/tmp/zookeeper\nclientPort=2181\n";
    let kafka =
        "dataDir=/tmp/zookeeper\nclientPort=2181\nmaxClientCnxns=0\nadmin.enableServer=false\n";
    let solr = format!(
        "{debian}autopurge.snapRetainCount=3\nautopurge.purgeInterval=1\n4lw.commands.whitelist=mntr,conf,ruok\n\
         metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider\n\
         metricsProvider.httpPort=7000\nmetricsProvider.exportJvmInfo=true\n"
    );
    let image = "dataDir=/data\ndataLogDir=/datalog\ntickTime=2000\ninitLimit=5\nsyncLimit=2\nautopurge.snapRetainCount=3\n\
                 autopurge.purgeInterval=0\nmaxClientCnxns=60\nstandaloneEnabled=true\nadmin.enableServer=true\n\
                 server.1=localhost:2888:3888;2181\n";
    let bitnami = "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=/bitnami/zookeeper/data\nclientPort=2181\nmaxClientCnxns=60\n\
                   preAllocSize=65536\nsnapCount=100000\nmaxCnxns=0\nreconfigEnabled=false\nquorumListenOnAllIPs=false\n\
                   4lw.commands.whitelist=srvr, mntr\nmaxSessionTimeout=40000\nadmin.serverPort=8080\nadmin.enableServer=true\n";
    let unsecured = "maxSessionTimeout = 60000000\ndataDir : /opt/zookeeper/data \nclientPort:2181\nsecureClientPort=0\n\
                   ssl.keyStore.location=/x\nauthProvider.1=org.apache.zookeeper.server.auth.DigestAuthenticationProvider\n\
                   readonlymode.enabled=true\nreconfigEnabled=true\nlocalSessionsEnabled=true\nskipACL=yes\njute.maxbuffer=4194304\n";
    for (name, text, said) in [
        ("zoo.cfg", debian, QUORUM.to_owned()),
        ("zookeeper.properties", kafka, String::new()),
        (
            "zoo.cfg",
            &solr,
            format!(
                "{QUORUM}; {PURGE}; metricsProvider.exportJvmInfo (HTTP is plain and has one set of paths on all its ports)"
            ),
        ),
        (
            "zoo.cfg",
            image,
            format!("dataLogDir (the log is in the data folder); {QUORUM}; {PURGE}"),
        ),
        (
            "zoo.cfg",
            bitnami,
            "initLimit, syncLimit, quorumListenOnAllIPs (a server alone has no ensemble); \
             preAllocSize (the log's files are allocated in its own way)"
                .to_owned(),
        ),
        (
            "zoo.cfg",
            unsecured,
            "readonlymode.enabled (a server that stands alone has no read-only mode); \
             reconfigEnabled (reconfig is refused); localSessionsEnabled (every session is a global one); \
             skipACL (ACLs are checked); ssl.keyStore.location (no port uses TLS)"
                .to_owned(),
        ),
    ] {
        let settings = load(name, text, &[]).unwrap();
        let warning = settings.warning.as_deref().unwrap_or_default();
        let named = warning.split_once("without effect: ").map_or("", |(_, named)| named);
        assert_eq!(named, said, "{text}");
        assert_eq!(settings.target().options.listen, ["*:2181"], "{text}");
        let again = load("baton.toml", &settings.to_toml(), &[]).unwrap();
        assert_eq!(again.to_toml().lines().count(), settings.to_toml().lines().count());
    }
}
