//! `baton` in front of a terminal, in the shells that people use: keys that end and stop a job,
//! scripts, loops and pipelines.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::terminal::Terminal;
use crate::common::{CommandHome, PATIENCE, hearing, processes, until};

/// The shells of this machine, with the arguments that keep a user's files out.
fn shells() -> Vec<(&'static str, Vec<&'static str>)> {
    let all = [
        ("bash", vec!["--norc", "--noprofile"]),
        ("dash", vec![]),
        ("zsh", vec!["-f"]),
    ];
    let is_here = |name: &str| {
        let found = Command::new("sh")
            .args(["-c", &format!("command -v {name}")])
            .output();
        found.is_ok_and(|found| found.status.success())
    };
    all.into_iter().filter(|(name, _)| is_here(name)).collect()
}

/// A shell on a terminal, in this home, with `baton` as $BATON.
fn shell(home: &CommandHome, (name, args): &(&str, Vec<&str>), more: &[&str]) -> Terminal {
    let plain = home.baton(&[]);
    let mut command = hearing(name);
    command.args(args).args(more);
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
        .env("BATON", env!("CARGO_BIN_EXE_baton"))
        .env("PS1", "ready> ")
        .env("BATON_IDLE", "10m");
    Terminal::run(&command, 200)
}

fn shows(terminal: &Terminal, what: &str) {
    let begun = Instant::now();
    while !terminal.text().contains(what) {
        assert!(
            begun.elapsed() < PATIENCE,
            "no {what:?}: {}",
            terminal.text()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The key goes to all processes of the script: each of them ends by it.
#[test]
fn ctrl_c_ends_the_script_around_a_command_and_around_a_wait() {
    for shell_here in shells() {
        let home = CommandHome::new();
        let mut holder = home.spawn(&["lock", "/held"]);
        holder.line();
        for (path, begun) in [("/x", "begun"), ("/held", "")] {
            let script = format!(
                "while :; do \"$BATON\" lock {path} -- sh -c 'echo be''gun; exec sleep 1000'; \
                 echo round; done"
            );
            let mut terminal = shell(&home, &shell_here, &["-c", &script]);
            match begun {
                "" => until("it waits", || {
                    home.run(&["lock", "show", path]).out.contains("waits")
                }),
                begun => shows(&terminal, begun),
            }
            terminal.keys("\u{3}");
            until(&format!("{shell_here:?} ends"), || {
                terminal.child.try_wait().unwrap().is_some()
            });
            assert!(!terminal.text().contains("round"), "{}", terminal.text());
            until("the lock is free", || {
                !home.run(&["lock", "show", path]).out.contains("waits")
            });
        }
        assert_eq!(home.run(&["lock", "-n", "/x", "--", "true"]).code, 0);
    }
}

/// The other end of the pipe reads the keys while the command runs, like a pager.
#[test]
fn the_rest_of_a_pipeline_has_the_terminal_too() {
    for shell_here in shells() {
        let home = CommandHome::new();
        let mut terminal = shell(&home, &shell_here, &["-i"]);
        terminal.keys(
            "\"$BATON\" lock /x -- sh -c 'echo fi''rst; exec sleep 1000' | sh -c 'read line; \
             echo got $line; read line </dev/tty; echo and $line'\n",
        );
        shows(&terminal, "got first");
        terminal.keys("typed\n");
        shows(&terminal, "and typed");
        terminal.keys("\u{3}");
        terminal.keys("\"$BATON\" lock -n /x -- echo fr''ee\n");
        shows(&terminal, "free");
    }
}

#[test]
fn a_command_in_the_background_that_asks_stops_with_its_job_and_goes_on_with_it() {
    for shell_here in shells() {
        let home = CommandHome::new();
        let name = home.dir.path().file_name().unwrap().to_string_lossy();
        let mut terminal = shell(&home, &shell_here, &["-i"]);
        terminal.keys(&format!(
            "\"$BATON\" lock /{name} --session-timeout 40s -- sh -c \
             'trap \"echo a\"wake CONT; until test \"$line\" = typed; do read line; done; echo got $line' &\n"
        ));
        let is_stopped = |pid: &i32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(')')
                .is_some_and(|(_, rest)| rest.starts_with(" T"))
        };
        until("the job is stopped", || {
            processes(&["lock", &name]).iter().any(is_stopped)
        });
        // A shell that has not yet heard of the stop takes the job for one that runs. What comes
        // too late for the shell is for the command.
        until("the job goes on", || {
            terminal.keys("fg\n");
            std::thread::sleep(Duration::from_millis(20));
            terminal.text().contains("awake")
        });
        terminal.keys("typed\n");
        shows(&terminal, "got typed");
        terminal.keys(&format!("\"$BATON\" lock -n /{name} -- echo fr''ee\n"));
        shows(&terminal, "free");
    }
}

/// Alone in its job, a command under a lock is not suspended: the lock would be held by nothing
/// that moves.
#[test]
fn ctrl_z_suspends_no_command_that_is_alone_in_its_job() {
    for shell_here in shells() {
        let home = CommandHome::new();
        let mut terminal = shell(&home, &shell_here, &["-i"]);
        terminal.keys("\"$BATON\" lock /x -- sh -c 'echo be''gun; read line; echo got $line'\n");
        shows(&terminal, "begun");
        terminal.keys("\u{1a}");
        shows(&terminal, "cannot be suspended");
        terminal.keys("typed\n");
        shows(&terminal, "got typed");
    }
}
