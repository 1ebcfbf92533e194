//! Settings of TLS: from a `zoo.cfg`, a `baton.toml` and flags.

use super::*;

/// A file of ZooKeeper's with a port for TLS, and these lines.
fn load_tls(lines: &str) -> Result<Settings, String> {
    let text = format!("{ZOO}secureClientPort=2281\nssl.keyStore.location=/x/server.pem\n{lines}");
    load("zoo.cfg", &text, &[])
}

#[test]
fn tls_of_a_zoo_cfg_is_taken_with_zookeepers_defaults() {
    let settings = load_tls("ssl.trustStore.location=/x/ca.pem\n").unwrap();
    assert_eq!(settings.warning, None);
    let options = &settings.target().options;
    assert_eq!(options.secure_listen, ["*:2281"]);
    assert_eq!(options.listen, ["*:2181"]);
    assert!(!options.port_unification);
    let tls = options.tls.as_ref().unwrap();
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
    assert_eq!(tls.client_auth, ClientAuth::Required);
    assert_eq!(origin(&settings, "tls_client_auth"), "ZooKeeper's default");
    assert!(origin(&settings, "secure_listen").ends_with("zoo.cfg:3 secureClientPort"));

    let more = "secureClientPortAddress=10.0.0.1\nclient.portUnification=true\nssl.clientAuth=want\n\
                zookeeper.X509AuthenticationProvider.superUser=CN=admin\nssl.hostnameVerification=true\n\
                ssl.keyStore.type=PEM\nssl.protocol=TLSv1.2\nssl.enabledProtocols=TLSv1.2,TLSv1.3\n\
                client.certReload=true\nssl.crl=false\nssl.ocsp=false\n\
                authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider\n";
    let settings = load_tls(&format!("ssl.trustStore.location=/x/ca.pem\n{more}")).unwrap();
    assert_eq!(settings.warning, None);
    let options = &settings.target().options;
    assert_eq!(options.secure_listen, ["10.0.0.1:2281"]);
    assert!(options.port_unification);
    let tls = options.tls.as_ref().unwrap();
    assert_eq!(tls.client_auth, ClientAuth::Optional);
    assert_eq!(tls.super_subject.as_deref(), Some("CN=admin"));

    // TLS only, as in ZooKeeper.
    let text = "dataDir=/x\nsecureClientPort=2281\nssl.keyStore.location=/x/server.pem\nssl.clientAuth=none\n";
    let settings = load("zoo.cfg", text, &[]).unwrap();
    assert!(settings.target().options.listen.is_empty());
    let password = load_tls("ssl.keyStore.password=hunter2\nssl.ciphersuites=A,B\n").unwrap();
    let warning = password.warning.as_deref().unwrap();
    for part in [
        "ssl.keyStore.password (a private key in PEM",
        "ssl.ciphersuites (only ciphers",
    ] {
        assert!(warning.contains(part), "{warning}");
    }
    assert!(!password.to_toml().contains("hunter2") && !warning.contains("hunter2"));
}

#[test]
fn lists_of_revoked_certificates_that_a_zoo_cfg_asks_for_are_named_by_a_flag() {
    let text = "dataDir=/x\nsecureClientPort=2281\nssl.keyStore.location=/x/server.pem\n\
                ssl.trustStore.location=/x/ca.pem\nssl.crl=true\n";
    let settings = load("zoo.cfg", text, &["--tls-crl=/x/crl.pem"]).unwrap();
    let tls = settings.target().options.tls.as_ref().unwrap();
    let lists = tls.files.revocation_lists.as_deref();
    assert_eq!(lists, Some(Path::new("/x/crl.pem")));
    let tls_port = ["--listen=127.0.0.1:0", "--secure-listen=127.0.0.1:0"];
    let alone = [&tls_port[..], &["--tls-crl=/x/crl.pem"]].concat();
    let refused = load("baton.toml", "", &alone).unwrap_err();
    assert!(refused.contains("tls_cert"), "{refused}");
    let without_ca = [&alone[..], &["--tls-cert=/x/server.pem"]].concat();
    let refused = load("baton.toml", "", &without_ca).unwrap_err();
    assert!(
        refused.contains("tls_crl = ") && refused.contains("tls_ca"),
        "{refused}"
    );
}

#[test]
fn what_a_zoo_cfg_asks_of_tls_in_vain_stops_the_start_with_its_line_and_the_remedy() {
    for (line, part) in [
        ("ssl.crl=true", "with --tls-crl"),
        ("ssl.ocsp=true", "no OCSP responder"),
        ("ssl.enabledProtocols=TLSv1.1", "TLS 1.2 and 1.3"),
        ("ssl.enabledProtocols=TLSv1.3", "TLS 1.2 and 1.3"),
        ("ssl.protocol=SSLv3", "TLS 1.2 and 1.3"),
        (
            "ssl.clientHostnameVerification=true",
            "names in certificates of clients",
        ),
        ("ssl.hostnameVerification=false", "always checked"),
        ("ssl.authProvider=mine", "subjects of their certificates"),
        ("ssl.context.supplier.class=a.B", "no plug-ins"),
        ("ssl.clientAuth=perhaps", "none, optional or required"),
        (
            "ssl.trustStore.location=/x/ca.jks",
            "keytool -importkeystore -srckeystore /x/ca.jks",
        ),
        (
            "ssl.trustStore.location=/x/ca.p12",
            "openssl pkcs12 -in /x/ca.p12 -nokeys",
        ),
        (
            "ssl.keyStore.type=JKS",
            "keytool -importkeystore -srckeystore /x/server.pem",
        ),
        (
            "ssl.keyStore.type=PKCS12",
            "openssl pkcs12 -in /x/server.pem -nodes",
        ),
        ("secureClientPort=x", "is not a port"),
    ] {
        let refused = load_tls(&format!("{line}\n")).unwrap_err();
        assert!(refused.contains(part), "{line}: {refused}");
        assert!(
            refused.contains("zoo.cfg:") && !refused.contains('\n'),
            "{refused}"
        );
    }
    // Where no port uses TLS, none of it has an effect, as in ZooKeeper.
    for off in ["", "secureClientPort=0\n", "client.portUnification=false\n"] {
        let text = format!("{ZOO}{off}ssl.crl=true\nssl.trustStore.location=/x/ca.jks\n");
        let settings = load("zoo.cfg", &text, &[]).unwrap();
        let warning = settings.warning.as_deref().unwrap();
        assert!(
            warning.contains("ssl.crl, ssl.trustStore.location (no port uses TLS)"),
            "{warning}"
        );
        assert_eq!(settings.target().options.tls, None);
    }
}

#[test]
fn tls_is_named_alike_by_a_baton_toml_and_by_flags() {
    let text = "secure_listen = \"127.0.0.1:2281\"\ntls_cert = \"/x/c.pem\"\ntls_key = \"/x/k.pem\"\n\
                tls_ca = \"/x/ca.pem\"\ntls_client_auth = \"optional\"\nport_unification = true\n\
                listen = \"127.0.0.1:2181\"\nhttps = [\"127.0.0.1:8443\"]\ntls_reload_interval = \"1m\"\n";
    let from_file = load("baton.toml", text, &[]).unwrap();
    let from_flags = load(
        "baton.toml",
        "",
        &[
            "--secure-listen=127.0.0.1:2281",
            "--tls-cert=/x/c.pem",
            "--tls-key=/x/k.pem",
            "--tls-ca=/x/ca.pem",
            "--tls-client-auth=optional",
            "--port-unification",
            "--listen=127.0.0.1:2181",
            "--https=127.0.0.1:8443",
            "--tls-reload-interval=1m",
        ],
    )
    .unwrap();
    let (one, two) = (&from_file.target().options, &from_flags.target().options);
    assert_eq!(one.tls, two.tls);
    assert_eq!(one.secure_listen, two.secure_listen);
    assert_eq!(one.https, two.https);
    let tls = one.tls.as_ref().unwrap();
    assert_eq!(tls.client_auth, ClientAuth::Optional);
    assert_eq!(tls.reload_interval, Duration::from_secs(60));
    let again = load("baton.toml", &from_flags.to_toml(), &[]).unwrap();
    assert_eq!(again.target().options.tls, two.tls);
    // With authorities clients must show a certificate, without they are not asked.
    for (ca, expected) in [
        ("tls_ca = \"/x/ca.pem\"", ClientAuth::Required),
        ("", ClientAuth::None),
    ] {
        let text = format!("secure_listen = \"127.0.0.1:1\"\ntls_cert = \"/x/c.pem\"\n{ca}\n");
        let settings = load("baton.toml", &text, &[]).unwrap();
        assert_eq!(
            settings.target().options.tls.as_ref().unwrap().client_auth,
            expected
        );
    }
}

#[test]
fn settings_of_tls_that_do_not_go_together_are_refused() {
    for (text, part) in [
        ("secure_listen = \"127.0.0.1:1\"", "must be given"),
        ("https = \"127.0.0.1:1\"", "must be given"),
        ("tls_cert = \"/x/c.pem\"", "secure_listen"),
        ("tls_key = \"/x/k.pem\"", "has no meaning without tls_cert"),
        ("tls_ca = \"/x/ca.pem\"", "has no meaning without tls_cert"),
        ("tls_client_auth = \"maybe\"", "none, optional or required"),
        (
            "tls_cert = \"/x/c.pem\"\nport_unification = true",
            "must go with listen",
        ),
    ] {
        let refused = load("baton.toml", text, &[]).unwrap_err();
        assert!(refused.contains(part), "{text}: {refused}");
        assert!(!refused.contains('\n'), "{refused}");
    }
}
