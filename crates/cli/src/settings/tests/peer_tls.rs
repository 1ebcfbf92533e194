//! Settings of TLS between servers: from a `zoo.cfg`, a `baton.toml` and flags.

use super::*;

const STORES: &str =
    "ssl.quorum.keyStore.location=/x/server.pem\nssl.quorum.trustStore.location=/x/ca.pem\n";

/// A member of three with these lines.
fn load_quorum(lines: &str, flags: &[&str]) -> Result<Settings, String> {
    load_member(Some("2"), &format!("{THREE}{lines}"), flags)
}

fn peer_tls(settings: &Settings) -> PeerTlsOptions {
    let ensemble = settings.target().options.ensemble.as_ref().unwrap();
    ensemble.tls.clone().unwrap()
}

#[test]
fn tls_among_the_servers_of_a_zoo_cfg_is_taken_with_the_steps_of_the_change() {
    for (switches, connects, accepts_plain) in [
        ("sslQuorum=false\nportUnification=true\n", false, true),
        ("sslQuorum=true\nportUnification=true\n", true, true),
        ("sslQuorum=true\nportUnification=false\n", true, false),
        ("zookeeper.sslQuorum=TRUE\n", true, false),
    ] {
        let settings = load_quorum(&format!("{switches}{STORES}"), &[]).unwrap();
        assert_eq!(settings.warning, None, "{switches}");
        let tls = peer_tls(&settings);
        assert_eq!((tls.connects, tls.accepts_plain), (connects, accepts_plain));
        assert!(tls.checks_hosts);
        assert_eq!(tls.files.certificates, Path::new("/x/server.pem"));
        assert_eq!(
            tls.files.key,
            Path::new("/x/server.pem"),
            "one file has both"
        );
        assert_eq!(
            tls.files.authorities.as_deref(),
            Some(Path::new("/x/ca.pem"))
        );
        assert_eq!(settings.target().options.tls, None, "clients have none");
        let again = load("baton.toml", &settings.to_toml(), &[]).unwrap();
        assert_eq!(peer_tls(&again), tls);
    }
    let more = "sslQuorumReloadCertFiles=true\nssl.quorum.keyStore.type=PEM\nssl.quorum.clientAuth=need\n\
                ssl.quorum.trustStore.type=PEM\nssl.quorum.hostnameVerification=true\nssl.quorum.protocol=TLSv1.3\n\
                ssl.quorum.enabledProtocols=TLSv1.2,TLSv1.3\nssl.quorum.clientHostnameVerification=true\n\
                ssl.quorum.crl=false\n";
    let settings = load_quorum(&format!("sslQuorum=true\n{STORES}{more}"), &[]).unwrap();
    assert_eq!(settings.warning, None);
    assert!(peer_tls(&settings).checks_hosts);
    let less = "ssl.quorum.hostnameVerification=false\nsslQuorumReloadCertFiles=false\nssl.quorum.clientAuth=none\n\
                ssl.quorum.keyStore.password=hunter2\n";
    let settings = load_quorum(&format!("sslQuorum=true\n{STORES}{less}"), &[]).unwrap();
    assert!(!peer_tls(&settings).checks_hosts);
    let warning = settings.warning.as_deref().unwrap();
    for part in [
        "sslQuorumReloadCertFiles (files of TLS are always read again",
        "ssl.quorum.clientAuth (servers always show each other certificates)",
        "ssl.quorum.keyStore.password (a private key in PEM",
    ] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    assert!(!settings.to_toml().contains("hunter2") && !warning.contains("hunter2"));
    // What is not a word for it leaves the check on.
    let typo = format!("sslQuorum=true\n{STORES}ssl.quorum.hostnameVerification=flase\n");
    assert!(peer_tls(&load_quorum(&typo, &[]).unwrap()).checks_hosts);
}

#[test]
fn tls_alone_does_away_with_the_rule_for_plain_connections_and_both_kinds_do_not() {
    let servers = "clientPort=1\nquorumListenOnAllIPs=true\nserver.1=zk1:1:2\nserver.2=zk2:2:3\nserver.3=zk3:2:3\n";
    let load = |lines: &str, flags: &[&str]| {
        load_member(Some("1"), &format!("{servers}{STORES}{lines}"), flags)
    };
    let alone = load("sslQuorum=true\n", &[]).unwrap();
    assert!(
        !alone
            .target()
            .options
            .ensemble
            .as_ref()
            .unwrap()
            .has_plain_peers()
    );
    for both in [
        "portUnification=true\n",
        "sslQuorum=true\nportUnification=true\n",
    ] {
        let refused = load(both, &[]).map(drop).unwrap_err();
        assert!(
            refused.contains("--allow-plain-peers") && refused.contains("use TLS only"),
            "{refused}"
        );
        load(both, &["--allow-plain-peers"]).unwrap();
    }
}

#[test]
fn keys_of_tls_among_servers_without_effect_are_named_with_the_reason() {
    let settings = load_quorum(&format!("sslQuorum=false\n{STORES}"), &[]).unwrap();
    let ensemble = settings.target().options.ensemble.as_ref().unwrap();
    assert_eq!(ensemble.tls, None);
    let warning = settings.warning.as_deref().unwrap();
    assert!(
        warning.contains("ssl.quorum.trustStore.location (the servers connect without TLS: sslQuorum is not true)"),
        "{warning}"
    );
    let text = format!("{ZOO}sslQuorum=true\n{STORES}");
    let alone = load("zoo.cfg", &text, &[]).unwrap();
    let warning = alone.warning.as_deref().unwrap();
    for key in ["sslQuorum", "ssl.quorum.keyStore.location"] {
        assert!(warning.contains(key), "{warning}");
    }
    assert!(
        warning.contains("(a server alone has no ensemble)"),
        "{warning}"
    );
    // TLS for clients takes nothing from the keys of the other side.
    let clients = load_quorum(
        "secureClientPort=2281\nssl.keyStore.location=/y/server.pem\nssl.clientAuth=none\nssl.quorum.crl=true\n",
        &[],
    )
    .unwrap();
    let tls = clients.target().options.tls.as_ref().unwrap();
    assert_eq!(tls.files.certificates, Path::new("/y/server.pem"));
}

#[test]
fn what_a_zoo_cfg_asks_of_tls_among_servers_in_vain_stops_the_start() {
    for (line, part) in [
        ("ssl.quorum.crl=true", "with --peer-tls-crl"),
        ("ssl.quorum.ocsp=true", "no OCSP responder"),
        ("ssl.quorum.enabledProtocols=TLSv1.1", "TLS 1.2 and 1.3"),
        ("ssl.quorum.protocol=SSLv3", "TLS 1.2 and 1.3"),
        ("ssl.quorum.context.supplier.class=a.B", "no plug-ins"),
        (
            "ssl.quorum.trustStore.location=/x/ca.jks",
            "keytool -importkeystore -srckeystore /x/ca.jks",
        ),
        (
            "ssl.quorum.keyStore.type=PKCS12",
            "openssl pkcs12 -in /x/server.pem -nodes",
        ),
    ] {
        let lines = format!("sslQuorum=true\n{STORES}{line}\n");
        let refused = load_quorum(&lines, &[]).map(drop).unwrap_err();
        assert!(refused.contains(part), "{line}: {refused}");
        assert!(
            refused.contains("zoo.cfg:") && !refused.contains('\n'),
            "{refused}"
        );
    }
    let lists = format!("sslQuorum=true\n{STORES}ssl.quorum.crl=true\n");
    let named = load_quorum(&lists, &["--peer-tls-crl=/x/crl.pem"]).unwrap();
    let ensemble = named.target().options.ensemble.as_ref().unwrap();
    let files = &ensemble.tls.as_ref().unwrap().files;
    assert_eq!(
        files.revocation_lists.as_deref(),
        Some(Path::new("/x/crl.pem"))
    );
    let without = load_quorum("sslQuorum=true\n", &[]).map(drop).unwrap_err();
    assert!(
        without.contains("sslQuorum") && without.contains("--peer-tls-cert"),
        "{without}"
    );
}

#[test]
fn tls_among_servers_is_named_alike_by_a_baton_toml_and_by_flags() {
    let servers = ["--server=1=zk1:1", "--server=2=zk2:1", "--server=3=zk3:1"];
    let text = "tls_reload_interval = \"1m\"\n[ensemble]\ntls = true\ntls_cert = \"/x/c.pem\"\ntls_key = \"/x/k.pem\"\n\
                tls_ca = \"/x/ca.pem\"\ntls_any_host = true\n\
                [ensemble.servers]\n1 = \"zk1:1\"\n2 = \"zk2:1\"\n3 = \"zk3:1\"\n";
    let from_file = load("baton.toml", text, &[]).unwrap();
    let tls = [
        "--peer-tls",
        "--peer-tls-cert=/x/c.pem",
        "--peer-tls-key=/x/k.pem",
        "--peer-tls-ca=/x/ca.pem",
        "--peer-tls-any-host",
        "--tls-reload-interval=1m",
    ];
    let from_flags = load("baton.toml", "", &[&servers[..], &tls].concat()).unwrap();
    assert_eq!(peer_tls(&from_file), peer_tls(&from_flags));
    let tls = peer_tls(&from_file);
    assert_eq!(tls.files.key, Path::new("/x/k.pem"));
    assert_eq!(tls.reload_interval, Duration::from_secs(60));
    assert!(tls.connects && !tls.accepts_plain && !tls.checks_hosts);
    for (flags, part) in [
        (&["--peer-tls"][..], "--peer-tls-cert"),
        (&["--peer-tls", "--peer-tls-cert=/x"], "--peer-tls-ca"),
        (
            &["--peer-port-unification", "--peer-tls-ca=/x"],
            "--peer-tls-cert",
        ),
        (&["--peer-tls-ca=/x"], "has no meaning without ensemble.tls"),
        (
            &["--peer-tls-any-host"],
            "has no meaning without ensemble.tls",
        ),
    ] {
        let refused = load("baton.toml", "", &[&servers, flags].concat()).map(drop);
        let refused = refused.unwrap_err();
        assert!(refused.contains(part), "{flags:?}: {refused}");
        assert!(!refused.contains('\n'), "{refused}");
    }
    let alone = load("baton.toml", "", &["--peer-tls"])
        .map(drop)
        .unwrap_err();
    assert!(
        alone.contains("has no meaning without ensemble.servers"),
        "{alone}"
    );
}
