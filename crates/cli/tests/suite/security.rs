//! A server with TLS, and znodes with ACLs, as the verbs meet them: who is let in, and what
//! others read.

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use baton_client::{Acl, Client, Config, CreateMode, Perms};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

use crate::common::{CommandHome, Ran, RunningCommand, ServedHome};

/// The options that name the authority, and the client's own certificate.
const OWN: [&str; 6] = [
    "--tls-ca",
    "tls/ca.pem",
    "--tls-cert",
    "tls/client.pem",
    "--tls-key",
    "tls/client.key",
];

/// A home with an authority, and a server that accepts only TLS.
struct Secured {
    home: CommandHome,
    _server: RunningCommand,
    port: u16,
}

impl Secured {
    /// The certificate is for these hosts; `args` are more flags of the server.
    fn new(hosts: &[&str], args: &[&str]) -> Self {
        let home = CommandHome::new();
        let made = home.run(&[&["cert", "init", "tls"], hosts].concat());
        assert_eq!(made.code, 0, "{made:?}");
        let serve = [
            "serve",
            "--ephemeral",
            "--secure-listen",
            "127.0.0.1:0",
            "--tls-cert",
            "tls/server.pem",
            "--tls-key",
            "tls/server.key",
        ];
        let mut server = home.spawn(&[&serve, args].concat());
        let line = server.line();
        let place = line
            .split_whitespace()
            .find(|word| word.starts_with("tls://"));
        let port = place
            .unwrap_or_else(|| panic!("{line}"))
            .trim_end_matches(';');
        let port = port.rsplit(':').next().unwrap().parse().unwrap();
        Self {
            home,
            _server: server,
            port,
        }
    }

    fn servers(&self) -> String {
        format!("tls://localhost:{}", self.port)
    }

    fn run(&self, args: &[&str]) -> Ran {
        let servers = self.servers();
        self.run_on(&servers, args)
    }

    fn run_on(&self, servers: &str, args: &[&str]) -> Ran {
        let mut command = self.home.baton(args);
        command.env("BATON_SERVERS", servers);
        Ran::from(command.output().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.home.path(name).display().to_string()
    }
}

/// A file with `digest:me:secret`, and one with other credentials.
fn credentials(home: &CommandHome) -> [PathBuf; 2] {
    [
        home.write_secret("mine", "# me\ndigest:me:secret\n"),
        home.write_secret("theirs", "digest:them:secret\n"),
    ]
}

#[test]
fn verbs_reach_a_server_with_tls_by_flags_by_variables_and_by_the_config_file() {
    let secured = Secured::new(&[], &[]);
    let held = secured.run(&["lock", "--tls-ca", "tls/ca.pem", "/l", "--", "echo", "held"]);
    assert_eq!((held.code, held.out.as_str()), (0, "held\n"), "{held:?}");

    // A list without tls:// uses it too, as soon as authorities are named.
    let plain = format!("127.0.0.1:{}", secured.port);
    let mut by_variable = secured.home.baton(&["create", "/x", "1"]);
    by_variable
        .env("BATON_SERVERS", &plain)
        .env("BATON_TLS_CA", secured.path("tls/ca.pem"));
    let ran = Ran::from(by_variable.output().unwrap());
    assert_eq!(ran.code, 0, "{ran:?}");

    let file = secured.home.path(".config/baton/config.toml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let text = format!(
        "servers = \"{}\"\ntls_ca = \"../../tls/ca.pem\"\n",
        secured.servers()
    );
    std::fs::write(&file, text).unwrap();
    let read = secured.home.run(&["get", "/x"]);
    assert_eq!((read.code, read.out.as_str()), (0, "1\n"), "{read:?}");
    let ls = secured.home.run(&["server", "ls"]);
    assert_eq!(ls.code, 0, "{ls:?}");
    assert!(ls.out.contains("standalone"), "{ls:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a22_the_files_of_a_config_file_are_for_its_servers_alone() {
    let served = ServedHome::new().await;
    let home = &served.home;
    assert_eq!(home.run(&["cert", "init", "tls"]).code, 0);
    credentials(home);
    let file = home.path(".config/baton/config.toml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let config = Config::new(&served.servers)
        .unwrap()
        .auth("digest", b"me:secret");
    let client = Client::connect(config).await.unwrap();
    let only_me = [Acl::new(Perms::ALL, "auth", "")];
    let session = client.session().await.unwrap().with_acl(&only_me);
    session
        .create("/mine", b"1", CreateMode::Persistent)
        .await
        .unwrap();

    // The servers come from the environment: the file's credentials do not go there.
    std::fs::write(
        &file,
        "servers = \"elsewhere:1\"\nauth_file = \"../../mine\"\n",
    )
    .unwrap();
    let refused = served.run(&["get", "/mine"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    let named = format!(
        "servers = \"{}\"\nauth_file = \"../../mine\"\n",
        served.servers
    );
    std::fs::write(&file, named).unwrap();
    let read = home.run(&["get", "/mine"]);
    assert_eq!((read.code, read.out.as_str()), (0, "1\n"), "{read:?}");
    // Nor do its authorities: a list with TLS needs them from where it comes.
    std::fs::write(
        &file,
        "servers = \"elsewhere:1\"\ntls_ca = \"../../tls/ca.pem\"\n",
    )
    .unwrap();
    let mut with_tls = home.baton(&["get", "/mine"]);
    with_tls.env("BATON_SERVERS", "tls://localhost:1");
    let ran = Ran::from(with_tls.output().unwrap());
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.complaint().contains("--tls-ca"), "{ran:?}");
}

#[test]
fn each_reason_why_a_server_with_tls_is_not_used_is_one_line() {
    let secured = Secured::new(&["zk1.example"], &[]);
    let within = ["--connect-timeout", "500ms"];
    let failing = |servers: &str, args: &[&str], parts: &[&str]| {
        let ran = secured.run_on(servers, &[&["get", "/x"], args, &within].concat());
        assert_eq!(ran.code, 125, "{ran:?}");
        for part in parts {
            assert!(ran.complaint().contains(part), "{part}: {ran:?}");
        }
    };
    let servers = secured.servers();
    let trusting = ["--tls-ca", "tls/ca.pem"];
    failing(
        &servers,
        &trusting,
        &["localhost", "zk1.example", "subjectAltName"],
    );
    let other = secured.home.run(&["cert", "init", "other"]);
    assert_eq!(other.code, 0, "{other:?}");
    failing(
        &servers,
        &["--tls-ca", "other/ca.pem"],
        &["no authority", "CA file"],
    );
    // Plain to a port with TLS, and the reverse.
    failing(&format!("127.0.0.1:{}", secured.port), &[], &["tls://"]);
    let plain = CommandHome::new();
    let mut server = plain.spawn(&["serve", "--ephemeral", "--listen", "127.0.0.1:0"]);
    let line = server.line();
    let address = line
        .split_whitespace()
        .nth(3)
        .unwrap()
        .trim_end_matches(';');
    failing(&format!("tls://{address}"), &trusting, &["TLS"]);
    failing(address, &trusting, &["TLS is used because of --tls-ca"]);
}

#[test]
fn a_server_that_wants_certificates_lets_those_in_that_its_authority_has_signed() {
    let secured = Secured::new(&[], &["--tls-ca", "tls/ca.pem"]);
    let get =
        |more: &[&str]| secured.run(&[&["ls", "/", "--connect-timeout", "500ms"], more].concat());
    assert_eq!(get(&OWN).code, 0);
    let without = get(&OWN[..2]);
    assert_eq!(without.code, 125, "{without:?}");
    assert!(without.complaint().contains("certificate"), "{without:?}");
    // A certificate of the same authority that was replaced is read again.
    let replaced = secured
        .home
        .run(&["cert", "client", "tls", "client", "--replace"]);
    assert_eq!(replaced.code, 0, "{replaced:?}");
    assert_eq!(get(&OWN).code, 0);
}

#[test]
fn a06_a_certificate_of_ones_own_that_has_expired_is_named_with_its_remedy() {
    let secured = Secured::new(&[], &["--tls-ca", "tls/ca.pem"]);
    let read = |name: &str| std::fs::read_to_string(secured.path(name)).unwrap();
    let authority = KeyPair::from_pem(&read("tls/ca.key")).unwrap();
    let authority = Issuer::from_ca_cert_pem(&read("tls/ca.pem"), authority).unwrap();
    let key = KeyPair::from_pem(&read("tls/client.key")).unwrap();
    let mut params = CertificateParams::default();
    params.not_after = date_time_ymd(2020, 2, 3);
    let expired = params.signed_by(&key, &authority).unwrap();
    std::fs::write(secured.path("tls/client.pem"), expired.pem()).unwrap();
    for verb in [
        &["get", "/"][..],
        &["lock", "/x", "--", "true"],
        &["doctor"],
    ] {
        let ran = secured.run(&[&OWN, verb].concat());
        assert_eq!(ran.code, 2, "{ran:?}");
        for part in ["tls/client.pem", "expired", "2020", "put a new one"] {
            assert!(ran.complaint().contains(part), "{part}: {ran:?}");
        }
    }
}

#[test]
fn doctor_warns_of_an_intermediate_authority_that_ends_soon() {
    let secured = Secured::new(&[], &["--tls-ca", "tls/ca.pem"]);
    let read = |name: &str| std::fs::read_to_string(secured.path(name)).unwrap();
    let root = KeyPair::from_pem(&read("tls/ca.key")).unwrap();
    let root = Issuer::from_ca_cert_pem(&read("tls/ca.pem"), root).unwrap();
    let mut between = CertificateParams::default();
    between.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let day_and_a_half = Duration::from_secs(36 * 3600);
    between.not_after = date_time_ymd(1970, 1, 1) + UNIX_EPOCH.elapsed().unwrap() + day_and_a_half;
    let between_key = KeyPair::generate().unwrap();
    let signed = between.signed_by(&between_key, &root).unwrap();
    let between = Issuer::new(between, between_key);
    let key = KeyPair::from_pem(&read("tls/client.key")).unwrap();
    let own = CertificateParams::default();
    let own = own.signed_by(&key, &between).unwrap();
    let chain = own.pem() + &signed.pem();
    std::fs::write(secured.path("tls/client.pem"), chain).unwrap();
    let ran = secured.run(&[&OWN[..], &["doctor"]].concat());
    assert!(
        ran.out.contains("the certificate ends in 1 days"),
        "{ran:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_with_digest_acls_is_open_to_whoever_has_the_credentials() {
    let served = ServedHome::new().await;
    let [mine, theirs] = credentials(&served.home);
    let config = Config::new(&served.servers)
        .unwrap()
        .auth("digest", b"me:secret");
    let client = Client::connect(config).await.unwrap();
    let only_me = [Acl::new(Perms::ALL, "auth", "")];
    let session = client.session().await.unwrap().with_acl(&only_me);
    for path in ["/mine", "/mine/locks"] {
        session
            .create(path, b"1", CreateMode::Persistent)
            .await
            .unwrap();
    }
    let refused = served.run(&["get", "/mine"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.complaint().contains("permission read on /mine"),
        "{refused:?}"
    );
    let others = served.run(&["get", "/mine", "--auth-file", theirs.to_str().unwrap()]);
    assert_eq!(others.code, 1, "{others:?}");

    let mine = mine.to_str().unwrap();
    let read = served.run(&["get", "/mine", "--auth-file", mine]);
    assert_eq!((read.code, read.out.as_str()), (0, "1\n"), "{read:?}");
    for verb in [
        &["set", "/mine", "2"][..],
        &["lock", "/mine/locks/x", "--", "true"],
        &["counter", "add", "/mine/n", "1"],
        &["queue", "put", "/mine/q", "item"],
        &["rm", "-r", "--yes", "/mine/q"],
        &["acl", "/mine"],
    ] {
        let mut command = served.baton(verb);
        command.env("BATON_AUTH_FILE", mine);
        let ran = Ran::from(command.output().unwrap());
        assert_eq!(ran.code, 0, "{verb:?}: {ran:?}");
    }
}

/// Whether the system has written the memory of a server that was ended by SIGABRT.
fn is_dumped(flags: &[&str]) -> bool {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    let home = CommandHome::new();
    let mut server = Command::new("sh")
        .args(["-c", r#"ulimit -c unlimited; exec "$0" "$@""#])
        .arg(env!("CARGO_BIN_EXE_baton"))
        .args(["serve", "--ephemeral", "--listen", "127.0.0.1:0"])
        .args(flags)
        .current_dir(home.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(server.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    assert!(line.contains("serving"), "{line}");
    let pid = i32::try_from(server.id()).unwrap();
    crate::common::signal(pid, "ABRT");
    let status = server.wait().unwrap();
    assert!(status.signal().is_some(), "{status}");
    status.core_dumped()
}

#[test]
fn a25_the_memory_of_a_server_that_crashes_is_written_nowhere_unless_that_is_wanted() {
    if !is_dumped(&["--core-dumps"]) {
        eprintln!("skipped: this system writes no core dumps");
        return;
    }
    assert!(!is_dumped(&[]));
}

#[test]
fn a21_files_that_are_missing_wrong_or_open_to_others_are_named_before_anything_is_started() {
    use std::os::unix::fs::PermissionsExt;

    let home = CommandHome::new();
    assert_eq!(home.run(&["cert", "init", "tls"]).code, 0);
    std::fs::write(home.path("open"), "digest:me:secret\n").unwrap();
    let readable = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(home.path("open"), readable.clone()).unwrap();
    std::fs::copy(home.path("tls/client.key"), home.path("open.key")).unwrap();
    std::fs::set_permissions(home.path("open.key"), readable).unwrap();
    home.write_secret("bare", "me:secret\ndigest:secret\n");
    home.write_secret("junk", "no certificate\n");
    for (args, parts) in [
        (&["--auth-file", "none"][..], &["--auth-file: ", "none"][..]),
        (&["--auth-file", "open"], &["chmod 600", "0644"]),
        (&["--auth-file", "bare"], &["bare:2:"]),
        (&["--tls-ca", "none"], &["none"]),
        (&["--tls-ca", "junk"], &["junk", "certificate"]),
        (&["--tls-cert", "tls/client.pem"], &["--tls-ca"]),
        (
            &["--tls-ca", "tls/ca.pem", "--tls-key", "tls/client.key"],
            &["--tls-cert"],
        ),
        (
            &[
                "--tls-ca",
                "tls/ca.pem",
                "--tls-cert",
                "tls/client.pem",
                "--tls-key",
                "open.key",
            ],
            &["open.key", "chmod 600"],
        ),
        (
            &[
                "--tls-ca",
                "tls/ca.pem",
                "--tls-cert",
                "tls/client.pem",
                "--tls-key",
                "tls/ca.key",
            ],
            &["does not belong"],
        ),
    ] {
        let ran = home.run(&[&["get", "/x"], args].concat());
        assert_eq!(ran.code, 2, "{ran:?}");
        for part in parts {
            assert!(ran.complaint().contains(part), "{part}: {ran:?}");
        }
        assert!(!ran.err.contains("secret"), "{ran:?}");
    }
    assert!(!home.state().exists(), "no local server was started");
    // A list that asks for TLS is never reached without.
    let ran = home.run(&["get", "/x", "--servers", "tls://127.0.0.1:1"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.complaint().contains("--tls-ca"), "{ran:?}");
}
