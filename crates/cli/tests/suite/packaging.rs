//! The files of `packaging/`: a server understands what they say, and would start.

use std::path::{Path, PathBuf};

use crate::common::CommandHome;

fn packaging(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("../../packaging").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(packaging(name)).unwrap()
}

/// Settings of `serve` with these arguments.
fn printed(home: &CommandHome, args: &[&str]) -> String {
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
    let home = CommandHome::new();
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

/// The ports of a list like `["127.0.0.1:8081:8080"]`, inside the container.
fn published(ports: &[String]) -> Vec<&str> {
    let inner = ports.iter().filter_map(|port| port.rsplit(':').next());
    inner.collect()
}

#[test]
fn containers_listen_for_other_machines_at_each_port_that_they_publish() {
    let home = CommandHome::new();
    let dockerfile = text("docker/Dockerfile");
    let exposed = dockerfile
        .lines()
        .find_map(|line| line.strip_prefix("EXPOSE "));
    let exposed: Vec<&str> = exposed.unwrap().split(' ').collect();
    let image = commands(&dockerfile, "CMD").into_iter();
    let image = image.filter(|command| command.first().is_some_and(|verb| verb == "serve"));
    let mut services: Vec<(Vec<String>, Vec<String>)> = image
        .map(|command| {
            (
                command,
                exposed.iter().map(|&port| port.to_owned()).collect(),
            )
        })
        .collect();
    for file in ["docker/compose.yaml", "docker/compose-three.yaml"] {
        let text = text(file);
        let (commands, ports) = (commands(&text, "command:"), commands(&text, "ports:"));
        assert_eq!(commands.len(), ports.len(), "{file}");
        for command in &commands {
            let token = command.iter().position(|arg| arg == "--http-token-file");
            let path = token.map(|at| command[at + 1].as_str());
            assert_eq!(path, Some("/run/secrets/http.token"), "{file}");
        }
        // Nobody but the user of the image may read the token, else the server refuses it.
        assert!(dockerfile.contains(":nonroot"));
        let secret = r#"target: http.token, uid: "65532", gid: "65532", mode: 0400}"#;
        assert!(text.contains(secret), "{file}");
        services.extend(commands.into_iter().zip(ports));
    }
    assert_eq!(services.len(), 5);
    for (command, ports) in &services {
        let args: Vec<&str> = command.iter().map(String::as_str).collect();
        let config = printed(&home, &args);
        let ports = published(ports);
        assert_eq!(ports, ["2181", "8080"], "{command:?}");
        for port in ports {
            let everywhere = format!("\"0.0.0.0:{port}\"");
            assert!(config.contains(&everywhere), "{port}: {config}");
        }
    }
}

#[test]
fn the_package_has_a_completion_for_each_shell() {
    let list = text("debian/files");
    for to in [
        "usr/share/bash-completion/completions/baton",
        "usr/share/zsh/vendor-completions/_baton",
        "usr/share/fish/vendor_completions.d/baton.fish",
    ] {
        assert!(list.contains(&format!(" {to} ")), "{to}");
    }
}

#[test]
fn the_unit_starts_what_the_package_installs() {
    let unit = text("systemd/baton.service");
    assert!(unit.contains("ExecStart=/usr/bin/baton serve --config /etc/baton/server.toml\n"));
    let list = text("debian/files");
    for installed in [" usr/bin/baton ", " etc/baton/server.toml ", "systemd/* "] {
        assert!(list.contains(installed), "{installed}");
    }
    let backup = text("systemd/baton-backup.service");
    let command = backup
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/usr/bin/baton "));
    let args: Vec<&str> = command.unwrap().split(' ').collect();
    // There is neither such a file nor a server here; a flag that is unknown would be a 2.
    let ran = CommandHome::new().run(&args);
    assert_eq!((ran.code, args[0]), (2, "backup"), "{ran:?}");
    assert!(ran.err.contains("/etc/baton/backup.token"), "{ran:?}");
    // The path at which commands look for the machine's server.
    let socket = text("systemd/baton.socket");
    assert!(socket.contains("ListenStream=/run/baton/baton.sock\n"));
}
