//! Help, completions and manual pages: every verb has them, and they teach by example.

use crate::common::Home;

fn verbs(home: &Home) -> Vec<String> {
    let help = home.run(&["-h"]).out;
    let commands = help
        .split("Commands:")
        .nth(1)
        .unwrap()
        .split("Options:")
        .next()
        .unwrap();
    commands
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .filter(|word| word.chars().all(char::is_lowercase))
        .collect()
}

#[test]
fn every_verb_has_help() {
    let home = Home::new();
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
        "bench",
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
    let help = Home::new().run(&["lock", "--help"]).out;
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
    let home = Home::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = home.run(&["completions", shell]);
        assert_eq!(script.code, 0);
        // The scripts of these shells ask the command; see completion.rs.
        assert!(script.out.contains(&format!("baton complete {shell}")));
    }
    for shell in ["elvish", "powershell"] {
        assert!(
            home.run(&["completions", shell]).out.contains("elect"),
            "{shell}"
        );
    }
    let written = home.run(&["man", "pages"]);
    assert_eq!(written.code, 0);
    let page = std::fs::read_to_string(home.path("pages/baton-lock.1")).unwrap();
    assert!(page.contains("BATON_TOKEN"));
}

#[test]
fn nothing_at_all_shows_the_help_and_says_2() {
    let ran = Home::new().run(&[]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("baton lock /demo -- echo held"), "{ran:?}");
}

#[test]
fn help_is_a_verb_too_for_verbs_at_any_depth() {
    let home = Home::new();
    for words in [&["lock"][..], &["queue", "work", "take"]] {
        let asked = home.run(&[&["help"][..], words].concat());
        let flag = home.run(&[words, &["--help"]].concat());
        assert_eq!((asked.code, &asked.out), (0, &flag.out), "{asked:?}");
    }
    let unknown = home.run(&["help", "lcok"]);
    assert_eq!(unknown.code, 2, "{unknown:?}");
    assert!(unknown.complaint().contains("lcok"), "{unknown:?}");
}
