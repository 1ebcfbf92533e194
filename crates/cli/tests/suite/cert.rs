//! `baton cert`: which files it makes, for whom, and what it refuses.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use crate::common::CommandHome;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn read(home: &CommandHome, name: &str) -> String {
    std::fs::read_to_string(home.path(name)).unwrap()
}

#[test]
fn one_command_makes_an_authority_and_the_lines_to_paste() {
    let home = CommandHome::new();
    let made = home.run(&["cert", "init", "tls", "zk1.example", "10.0.0.1"]);
    assert_eq!(made.code, 0, "{made:?}");
    for name in ["ca", "server", "client"] {
        let key = home.path(&format!("tls/{name}.key"));
        assert_eq!(mode(&key), 0o600, "{name}");
        assert!(
            std::fs::read_to_string(&key)
                .unwrap()
                .contains("PRIVATE KEY")
        );
        assert!(read(&home, &format!("tls/{name}.pem")).starts_with("-----BEGIN CERTIFICATE"));
    }
    assert_eq!(mode(&home.path("tls")), 0o700);
    let mut left = std::fs::read_dir(home.path("tls")).unwrap();
    assert_eq!(left.by_ref().count(), 6, "nothing else");
    for part in [
        "zk1.example, 10.0.0.1",
        "baton serve --secure-listen 0.0.0.0:2281 --tls-cert /",
        "baton lock --servers tls://zk1.example:2281 --tls-ca /",
        "\n  tls_ca = ",
        "\n  tls_key = ",
        "\n  [ensemble]\n  tls = true\n  tls_cert = ",
    ] {
        assert!(made.out.contains(part), "{part}: {made:?}");
    }
    assert!(!made.out.contains("PRIVATE"), "{made:?}");

    let again = home.run(&["cert", "init", "tls"]);
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.complaint().contains("exists"), "{again:?}");
}

#[test]
fn more_certificates_come_from_the_same_authority_and_replace_old_ones_only_if_asked() {
    let home = CommandHome::new();
    assert_eq!(home.run(&["cert", "init", "tls"]).code, 0);
    let made = home.run(&[
        "cert",
        "server",
        "tls",
        "zk2.example",
        "::1",
        "--json",
        "--days",
        "7",
    ]);
    assert_eq!(made.code, 0, "{made:?}");
    let made: Value = serde_json::from_str(&made.out).unwrap();
    assert_eq!(made["names"], serde_json::json!(["zk2.example", "::1"]));
    assert_eq!(made["days"], 7);
    assert!(
        made["key"]
            .as_str()
            .unwrap()
            .ends_with("/tls/zk2.example.key")
    );
    let first = read(&home, "tls/zk2.example.pem");
    let lines = home.run(&["cert", "server", "tls", "zk3.example"]);
    for part in [
        "[ensemble]",
        "tls_cert = \"",
        "tls/zk3.example.key",
        "tls/ca.pem",
    ] {
        assert!(lines.out.contains(part), "{part}: {lines:?}");
    }

    let again = home.run(&["cert", "server", "tls", "zk2.example"]);
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.complaint().contains("--replace"), "{again:?}");
    assert_eq!(read(&home, "tls/zk2.example.pem"), first);
    let replaced = home.run(&["cert", "server", "tls", "zk2.example", "--replace"]);
    assert_eq!(replaced.code, 0, "{replaced:?}");
    assert_ne!(read(&home, "tls/zk2.example.pem"), first);
    assert_eq!(mode(&home.path("tls/zk2.example.key")), 0o600);

    let client = home.run(&["cert", "client", "tls", "alice"]);
    assert_eq!(client.code, 0, "{client:?}");
    assert!(
        client.out.contains("for CN=alice, valid for 365 days"),
        "{client:?}"
    );
}

#[test]
fn what_cannot_be_made_is_refused_in_one_line() {
    let home = CommandHome::new();
    let absent = home.run(&["cert", "client", "tls", "alice"]);
    assert_eq!(absent.code, 125, "{absent:?}");
    assert!(absent.complaint().contains("baton cert init"), "{absent:?}");
    assert!(!home.path("tls").exists());

    assert_eq!(home.run(&["cert", "init", "tls"]).code, 0);
    for args in [
        &["client", "tls", "../alice"][..],
        &["client", "tls", "ca"],
        &["server", "tls"],
        &["server", "tls", "zk1", "a b"],
        &["client", "tls", "alice", "--days", "0"],
    ] {
        let ran = home.run(&[&["cert"], args].concat());
        assert_eq!(ran.code, 2, "{ran:?}");
        ran.complaint();
    }
    let key = home.path("tls/ca.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let exposed = home.run(&["cert", "client", "tls", "alice"]);
    assert_eq!(exposed.code, 125, "{exposed:?}");
    assert!(exposed.complaint().contains("chmod 600"), "{exposed:?}");
}
