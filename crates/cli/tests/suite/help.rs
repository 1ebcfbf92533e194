//! Help, completions and manual pages: every verb has them, and they teach by example.

use crate::common::CommandHome;

fn verbs(home: &CommandHome) -> Vec<String> {
    let help = home.run(&["--help"]).out;
    let verbs = help.lines().filter_map(|line| line.strip_prefix("  "));
    verbs
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_verb_has_help() {
    let home = CommandHome::new();
    let verbs = verbs(&home);
    for verb in [
        "lock",
        "elect",
        "queue",
        "member",
        "counter",
        "serve",
        "ls",
        "get",
        "set",
        "create",
        "rm",
        "stat",
        "watch",
        "wal",
        "completions",
    ] {
        assert!(
            verbs.iter().any(|known| known == verb),
            "{verb} is missing in {verbs:?}"
        );
        let help = home.run(&[verb, "--help"]);
        assert_eq!((help.code, help.err.as_str()), (0, ""), "{verb}");
    }
    for verb in ["lock", "elect", "queue", "serve", "wal"] {
        let help = home.run(&[verb, "--help"]).out;
        assert!(
            help.contains("Examples:") && help.contains("Exit codes:"),
            "{verb}: {help}"
        );
    }
}

#[test]
fn the_help_of_lock_states_what_scripts_rely_on() {
    let help = CommandHome::new().run(&["lock", "--help"]).out;
    for word in [
        "BATON_TOKEN",
        "113",
        "124",
        "125",
        "--kill-after",
        "--on-lost",
        "baton lock show",
    ] {
        assert!(help.contains(word), "{word}");
    }
}

#[test]
fn completions_and_manual_pages_know_the_verbs() {
    let home = CommandHome::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = home.run(&["completions", shell]);
        assert_eq!(script.code, 0);
        // The scripts ask the command; see completion.rs.
        assert!(script.out.contains("BATON_COMPLETE"), "{shell}");
    }
    let written = home.run(&["man", "pages"]);
    assert_eq!(written.code, 0);
    let page = std::fs::read_to_string(home.path("pages/baton-lock.1")).unwrap();
    assert!(page.contains("BATON_TOKEN"));
    // The foot of each page names the release.
    let release = format!("\"baton {}\"", env!("CARGO_PKG_VERSION"));
    for file in written.out.lines() {
        let page = std::fs::read_to_string(home.path(file)).unwrap();
        let title = page.lines().find(|line| line.starts_with(".TH"));
        assert!(title.unwrap().contains(&release), "{file}: {title:?}");
    }
}

#[test]
fn baton_alone_prints_its_help_and_a_verb_without_its_verb_is_a_mistake() {
    let home = CommandHome::new();
    let alone = home.run(&[]);
    assert_eq!((alone.code, alone.err.as_str()), (0, ""), "{alone:?}");
    assert_eq!(alone.out, home.run(&["--help"]).out);
    assert!(alone.out.contains("Locks and queues:"), "{alone:?}");
    let unfinished = home.run(&["queue"]);
    assert_eq!((unfinished.code, unfinished.out.as_str()), (2, ""));
    assert!(unfinished.err.contains("baton queue"), "{unfinished:?}");
}

/// `baton --help | head -1` is no failure, whichever verb's page it is.
#[test]
fn a_reader_that_has_gone_is_no_failure() {
    for words in [
        &["--help"][..],
        &[],
        &["lock", "-h"],
        &["version"],
        &["completions", "bash"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_baton"));
        let ran = command.args(words).stdout(writer).output().unwrap();
        assert_eq!(ran.status.code(), Some(0), "{words:?}: {ran:?}");
        assert_eq!(ran.stderr, b"", "{words:?}");
    }
}

#[test]
fn the_options_of_every_verb_and_all_settings_have_pages() {
    let home = CommandHome::new();
    let page = home.run(&["help", "options"]);
    assert_eq!(page.code, 0);
    assert!(page.out.contains("--connect-timeout") && page.out.contains("--wide"));
    let page = home.run(&["help", "settings"]);
    assert!(page.out.contains("--max-watch-bytes-in-all"), "{page:?}");
    assert!(home.run(&["help", "lease"]).out.contains("--ensemble-tick"));
    assert!(
        !home
            .run(&["serve", "--help"])
            .out
            .contains("--max-watch-bytes")
    );
}

#[test]
fn help_is_a_verb_too_for_verbs_at_any_depth() {
    let home = CommandHome::new();
    for words in [&["lock"][..], &["queue", "work", "take"]] {
        let asked = home.run(&[&["help"][..], words].concat());
        let flag = home.run(&[words, &["--help"]].concat());
        assert_eq!((asked.code, &asked.out), (0, &flag.out), "{asked:?}");
    }
    let unknown = home.run(&["help", "lcok"]);
    assert_eq!(unknown.code, 2, "{unknown:?}");
    assert!(unknown.complaint().contains("lcok"), "{unknown:?}");
}
