//! The files of `packaging/`: a server understands what they say, and would start.

use std::path::{Path, PathBuf};

use crate::common::Home;

fn packaging(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("../../packaging").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(packaging(name)).unwrap()
}

/// What `serve` with these arguments comes to.
fn printed(home: &Home, args: &[&str]) -> String {
    let ran = home.run(&[args, &["--print-config"]].concat());
    assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
    assert!(!ran.err.contains("does not start"), "{args:?}: {ran:?}");
    ran.out
}

/// The lists of words in brackets behind this word.
fn commands(text: &str, word: &str) -> Vec<Vec<String>> {
    let lines = text.lines().map(str::trim);
    let lists = lines.filter_map(|line| line.strip_prefix(word)?.trim().strip_prefix('['));
    lists
        .map(|list| serde_json::from_str(&format!("[{list}")).unwrap())
        .collect()
}

#[test]
fn the_settings_of_the_service_are_understood_also_those_in_comments() {
    let home = Home::new();
    let settings = text("server.toml");
    let as_it_is = printed(
        &home,
        &[
            "serve",
            "--config",
            packaging("server.toml").to_str().unwrap(),
        ],
    );
    assert!(
        as_it_is.contains("data_dir = \"/var/lib/baton\""),
        "{as_it_is}"
    );
    let mut all = String::new();
    for line in settings.lines() {
        let bare = line.strip_prefix("# ").unwrap_or(line);
        let is_setting = bare
            .split_once(" = ")
            .is_some_and(|(name, _)| !name.contains(' '));
        all += if is_setting { bare } else { line };
        all += "\n";
    }
    assert_ne!(all, settings);
    let file = home.path("server.toml");
    std::fs::write(&file, all).unwrap();
    let with_all = printed(&home, &["serve", "--config", file.to_str().unwrap()]);
    for wanted in [
        "secure_listen = [\"0.0.0.0:2281\"]",
        "http = [\"127.0.0.1:8080\"]",
    ] {
        assert!(with_all.contains(wanted), "{with_all}");
    }
}

#[test]
fn the_commands_of_containers_are_understood() {
    let home = Home::new();
    let mut found = 0;
    for (file, word) in [
        ("docker/Dockerfile", "CMD"),
        ("docker/compose.yaml", "command:"),
        ("docker/compose-three.yaml", "command:"),
    ] {
        for command in commands(&text(file), word) {
            let args: Vec<&str> = command.iter().map(String::as_str).collect();
            if args.first() == Some(&"serve") {
                found += 1;
                printed(&home, &args);
            }
        }
    }
    assert_eq!(found, 5);
}

#[test]
fn the_unit_starts_what_the_package_installs() {
    let unit = text("systemd/baton.service");
    assert!(unit.contains("ExecStart=/usr/bin/baton serve --config /etc/baton/server.toml\n"));
    let manifest = include_str!("../../Cargo.toml");
    for installed in ["\"usr/bin/\"", "\"etc/baton/\"", "/baton-backup.*\""] {
        assert!(manifest.contains(installed), "{installed}");
    }
    let backup = text("systemd/baton-backup.service");
    let command = backup
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/usr/bin/baton "));
    let args: Vec<&str> = command.unwrap().split(' ').collect();
    // There is neither such a file nor a server here; a flag that is unknown would be a 2.
    let ran = Home::new().run(&args);
    assert_eq!((ran.code, args[0]), (2, "backup"), "{ran:?}");
    assert!(ran.err.contains("/etc/baton/backup.token"), "{ran:?}");
    // The path at which commands look for the machine's server.
    let socket = text("systemd/baton.socket");
    assert!(socket.contains("ListenStream=/run/baton/baton.sock\n"));
}
