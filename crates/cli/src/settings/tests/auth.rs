//! Settings of who clients are: from a `zoo.cfg`, the JAAS file of its servers, and flags.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use super::*;

const SASL: &str = "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n";

/// A zoo.cfg with these lines, in which `JAAS` is the path of a JAAS file with these options of
/// users.
fn load_auth(lines: &str, users: &str, arguments: &[&str]) -> Result<Settings, String> {
    let folder = tempfile::tempdir().unwrap();
    let jaas = folder.path().join("jaas.conf");
    let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
    let text = format!("Server {{\n  {module} required\n  {users};\n}};\n");
    std::fs::write(&jaas, text).unwrap();
    std::fs::set_permissions(&jaas, Permissions::from_mode(0o600)).unwrap();
    let path = jaas.display().to_string();
    let arguments = arguments
        .iter()
        .map(|argument| argument.replace("JAAS", &path));
    let arguments: Vec<_> = arguments.collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let text = format!("{ZOO}{}", lines.replace("JAAS", &path));
    load("zoo.cfg", &text, &arguments)
}

const USERS: &str = "user_bob=\"secret\" user_super=\"hunter2\"";

fn schemes(settings: &Settings) -> &[String] {
    &settings.target().options.required_schemes
}

#[test]
fn sasl_of_a_zoo_cfg_is_taken_with_the_users_of_its_jaas_file() {
    let lines = format!(
        "{SASL}requireClientAuthScheme=sasl\njaasLoginRenew=3600000\njava.security.auth.login.config=JAAS\n\
         superUser=super\nsuperUser.2=bob\n"
    );
    let by_file = load_auth(&lines, USERS, &[]).unwrap();
    let options = &by_file.target().options;
    assert!(!options.sasl_users.is_empty());
    assert_eq!(options.sasl_super_users, ["super", "bob"]);
    assert!(schemes(&by_file).is_empty(), "as in ZooKeeper");
    let warning = by_file.warning.as_deref().unwrap();
    assert!(
        warning.contains("requireClientAuthScheme, jaasLoginRenew (ZooKeeper does not read it"),
        "{warning}"
    );
    assert!(!by_file.to_toml().contains("hunter2"));

    let by_flag = load_auth(SASL, USERS, &["--sasl-users", "JAAS"]).unwrap();
    assert!(!by_flag.target().options.sasl_users.is_empty());
    assert_eq!(by_flag.warning, None);
    assert!(by_flag.target().options.sasl_super_users.is_empty());
}

#[test]
fn what_a_zoo_cfg_requires_of_clients_is_required() {
    let jaas = "java.security.auth.login.config=JAAS\n";
    for (lines, required) in [
        ("sessionRequireClientSASLAuth=true\n", &["sasl"][..]),
        ("zookeeper.sessionRequireClientSASLAuth=TRUE\n", &["sasl"]),
        ("sessionRequireClientSASLAuth=false\n", &[]),
        (
            "enforce.auth.enabled=true\nenforce.auth.schemes=sasl, digest\n",
            &["sasl", "digest"],
        ),
        (
            "zookeeper.enforce.auth.enabled=true\nenforce.auth.schemes=digest\n",
            &["digest"],
        ),
        ("enforce.auth.enabled=false\nenforce.auth.enabled=\n", &[]),
        (
            "sessionRequireClientSASLAuth=true\nenforce.auth.schemes=digest\n",
            &["sasl"],
        ),
    ] {
        let settings = load_auth(&format!("{lines}{jaas}"), USERS, &[]).unwrap();
        assert_eq!(schemes(&settings), required, "{lines}");
        assert_eq!(settings.warning, None, "{lines}");
    }
    for (lines, named) in [
        (
            "enforce.auth.enabled=false\nenforce.auth.schemes=sasl\n",
            "enforce.auth.schemes (enforce.auth.enabled is not true",
        ),
        (
            "sessionRequireClientSASLAuth=true\nenforce.auth.enabled=true\njava.security.auth.login.config=JAAS\n",
            "enforce.auth.enabled (sessionRequireClientSASLAuth requires SASL)",
        ),
        (
            "superUser=bob\n",
            "superUser (nobody authenticates by SASL)",
        ),
    ] {
        let settings = load_auth(lines, USERS, &[]).unwrap();
        let warning = settings.warning.as_deref().unwrap_or_default();
        assert!(warning.contains(named), "{warning}");
    }
    let certificates = "secureClientPort=2281\nssl.keyStore.location=/x\nenforce.auth.enabled=true\n\
                        enforce.auth.schemes=x509\n";
    let refused = load_auth(certificates, USERS, &[]).unwrap_err();
    assert!(refused.contains("tls_ca"), "{refused}");
    let trusting = format!("{certificates}ssl.trustStore.location=/ca\n");
    let settings = load_auth(&trusting, USERS, &[]).unwrap();
    assert_eq!(schemes(&settings), ["x509"]);
    // Nobody could ever be let in.
    for (lines, named) in [
        (format!("{trusting}ssl.clientAuth=none\n"), "tls_client_auth"),
        (
            "ssl.keyStore.location=/x\nssl.trustStore.location=/ca\nenforce.auth.enabled=true\nenforce.auth.schemes=x509\n"
                .to_owned(),
            "tls_ca",
        ),
    ] {
        let refused = load_auth(&lines, USERS, &[]).unwrap_err();
        assert!(refused.contains(named), "{refused}");
    }
    let plain = [
        "--https=127.0.0.1:0",
        "--tls-cert=/x",
        "--tls-ca=/ca",
        "--require-auth=x509",
    ];
    let refused = load_auth("", USERS, &plain).unwrap_err();
    assert!(
        refused.contains("secure_listen or port_unification"),
        "{refused}"
    );
}

#[test]
fn what_cannot_be_required_stops_the_start_with_its_line_and_without_a_password() {
    let jaas = "java.security.auth.login.config=JAAS\n";
    for (lines, users, parts) in [
        (
            SASL,
            USERS,
            &["zoo.cfg:3 authProvider.1: ", "--sasl-users"][..],
        ),
        (
            "enforce.auth.enabled=true\nenforce.auth.schemes=digest,sasl\n",
            USERS,
            &["zoo.cfg:4 enforce.auth.schemes: ", "--sasl-users"],
        ),
        (
            "enforce.auth.enabled=true\n",
            USERS,
            &["zoo.cfg:3 enforce.auth.enabled: no scheme is named"],
        ),
        (
            "enforce.auth.enabled=true\nenforce.auth.schemes=ip\n",
            USERS,
            &["zoo.cfg:4 enforce.auth.schemes", "digest, sasl or x509"],
        ),
        (
            "sessionRequireClientSASLAuth=true\n",
            USERS,
            &["zoo.cfg:3 sessionRequireClientSASLAuth: ", "--sasl-users"],
        ),
        (
            jaas,
            "user_bob=",
            &["jaas.conf: line 3: user_bob has no value"],
        ),
        (
            jaas,
            "com.sun.security.auth.module.Krb5LoginModule required keyTab=\"secret\"",
            &[
                "jaas.conf: line 3: the section Server asks for Kerberos",
                "user_NAME",
            ],
        ),
        (
            "java.security.auth.login.config=/none/jaas.conf\n",
            USERS,
            &["/none/jaas.conf"],
        ),
    ] {
        let refused = load_auth(lines, users, &[]).map(|_| ()).unwrap_err();
        for part in parts {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        assert!(
            !refused.contains('\n') && !refused.contains("secret"),
            "{refused}"
        );
    }
    let alone = load_auth("", USERS, &["--sasl-super-user", "bob"]).map(|_| ());
    let refused = alone.unwrap_err();
    assert!(
        refused.contains("sasl_super_users") && refused.contains("--sasl-users"),
        "{refused}"
    );
}
