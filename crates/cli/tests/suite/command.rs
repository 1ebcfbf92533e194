//! The command under the lock: exit codes, signals, environment, and that it never outlives `baton`
//! (H86, H87).

use crate::common::{CommandHome, number_in, runs, signal, until};

#[test]
fn h86_the_exit_code_is_the_commands_own() {
    let home = CommandHome::new();
    for (line, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 113", 113),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
    ] {
        assert_eq!(
            home.run(&["lock", "/x", "--", "sh", "-c", line]).code,
            code,
            "{line}"
        );
        assert_eq!(
            home.run(&["lock", "/x", "-c", line]).code,
            code,
            "-c {line}"
        );
    }
}

#[test]
fn h86_what_cannot_be_run_is_said_in_one_line_with_the_shells_codes() {
    let home = CommandHome::new();
    let missing = home.run(&["lock", "/x", "--", "no-such-command"]);
    assert_eq!(missing.code, 127);
    assert!(missing.complaint().contains("no-such-command"));
    std::fs::write(home.path("plain"), "no program").unwrap();
    let plain = home.run(&["lock", "/x", "--", "./plain"]);
    assert_eq!(plain.code, 126);
    assert!(plain.complaint().contains("./plain"));
    let json = home.run(&["--json", "lock", "/x", "--", "no-such-command"]);
    let error: serde_json::Value = serde_json::from_str(json.err.trim()).unwrap();
    assert_eq!(error["exit_code"], 127);
}

#[test]
fn h86_two_dashes_end_the_options() {
    let home = CommandHome::new();
    let ran = home.run(&["lock", "/x", "--", "echo", "--wait", "-n", "--", "--json"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "--wait -n -- --json\n"));
    let forgotten = home.run(&["lock", "/x", "echo", "hi"]);
    assert_eq!(forgotten.code, 2);
    assert!(forgotten.complaint().contains("after two dashes: -- echo"));
}

#[test]
fn h86_signals_reach_the_commands_whole_group() {
    let home = CommandHome::new();
    for (name, code) in [("TERM", 143), ("INT", 130), ("HUP", 129), ("USR1", 138)] {
        let script = "sleep 1000 >/dev/null 2>&1 & echo $! > grandchild; echo up; wait";
        let mut running = home.spawn(&["lock", "/x", "--", "sh", "-c", script]);
        assert_eq!(running.line(), "up");
        let grandchild = number_in(&home.path("grandchild"));
        running.signal(name);
        assert_eq!(running.end().code, code, "{name}");
        // A non-interactive shell makes its background jobs deaf to INT; those it leaves behind are
        // not ours to end.
        if name == "INT" {
            signal(grandchild, "KILL");
        }
        until("the grandchild got the signal, too", || !runs(grandchild));
        std::fs::remove_file(home.path("grandchild")).unwrap();
    }
}

#[test]
fn h86_a_command_that_handles_the_signal_decides_the_exit_code() {
    let home = CommandHome::new();
    let script = "trap 'exit 42' TERM; echo up; while :; do sleep 0.01; done";
    let mut running = home.spawn(&["lock", "/x", "--", "sh", "-c", script]);
    assert_eq!(running.line(), "up");
    running.signal("TERM");
    assert_eq!(running.end().code, 42);
}

#[test]
fn h87_kill_9_of_baton_ends_the_command_and_all_its_descendants() {
    let home = CommandHome::new();
    // One grandchild in the group, one that has left group and session.
    let script = "sleep 1000 >/dev/null 2>&1 & echo $! > inside; setsid sh -c 'echo $$ > outside; exec sleep 1000' >/dev/null 2>&1 & echo $$ > command; wait";
    let running = home.spawn(&["lock", "/x", "--", "sh", "-c", script]);
    let pids = ["command", "inside", "outside"].map(|file| number_in(&home.path(file)));
    running.signal("KILL");
    for pid in pids {
        until("all of the command's processes are gone", || !runs(pid));
    }
}

#[test]
fn h87_kill_9_of_the_guardian_ends_the_command_too() {
    let home = CommandHome::new();
    let running = home.spawn(&[
        "lock",
        "/x",
        "--",
        "sh",
        "-c",
        "sleep 1000 >/dev/null 2>&1 & echo $! > inside; echo $$ > command; wait",
    ]);
    let pids = ["command", "inside"].map(|file| number_in(&home.path(file)));
    let status = std::fs::read_to_string(format!("/proc/{}/status", pids[0])).unwrap();
    let guardian = status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    signal(guardian, "KILL");
    let ran = running.end();
    assert_eq!(ran.code, 125);
    assert!(ran.complaint().contains("guards the command"));
    for pid in pids {
        assert!(
            !runs(pid),
            "the lock was given up before the command had ended"
        );
    }
}

#[test]
fn the_lock_is_released_only_after_the_command_was_reaped() {
    let home = CommandHome::new();
    // The first ignores TERM for a while: the second must not start meanwhile.
    let first = "trap '' TERM; echo up; sleep 0.5; echo end >> order";
    let mut running = home.spawn(&["lock", "/x", "--", "sh", "-c", first]);
    assert_eq!(running.line(), "up");
    let second = home.spawn(&["lock", "/x", "--", "sh", "-c", "echo begin >> order"]);
    running.signal("TERM");
    assert_eq!(running.end().code, 0);
    assert_eq!(second.end().code, 0);
    assert_eq!(
        std::fs::read_to_string(home.path("order")).unwrap(),
        "end\nbegin\n"
    );
}

#[test]
fn the_command_finds_the_lock_in_its_environment_and_tokens_grow() {
    let home = CommandHome::new();
    let print = "echo $BATON_PATH $BATON_NODE $BATON_TOKEN $BATON_SESSION $BATON_ACQUIRED_AT";
    let mut last = 0;
    for _ in 0..3 {
        let ran = home.run(&["lock", "/x", "-c", print]);
        let words: Vec<&str> = ran.out.split_whitespace().collect();
        assert_eq!(words.len(), 5, "{ran:?}");
        assert_eq!(words[0], "/x");
        assert!(words[1].starts_with("/x/"));
        let token: u64 = words[2].parse().unwrap();
        assert!(token > last);
        last = token;
        assert!(words[3].starts_with("0x"));
        assert!(words[4].parse::<u64>().unwrap() > 1_600_000_000_000);
    }
}

#[test]
fn standard_input_is_the_commands() {
    let home = CommandHome::new();
    let mut command = home.baton(&["lock", "/x", "--", "cat"]);
    std::fs::write(home.path("in"), "through").unwrap();
    command.stdin(std::fs::File::open(home.path("in")).unwrap());
    assert_eq!(
        String::from_utf8(command.output().unwrap().stdout).unwrap(),
        "through"
    );
}

#[test]
fn without_a_command_the_first_line_is_the_record_and_a_signal_ends_it() {
    let home = CommandHome::new();
    let mut holder = home.spawn(&["lock", "/x", "--json", "--name", "me"]);
    let record: serde_json::Value = serde_json::from_str(&holder.line()).unwrap();
    assert_eq!(record["path"], "/x");
    let busy = home.run(&["lock", "-n", "/x", "--", "true"]);
    assert_eq!(busy.code, 124);
    assert!(busy.complaint().contains("/x not acquired"));
    assert_eq!(
        home.run(&["lock", "-w", "1500ms", "-E", "9", "/x", "--", "true"])
            .code,
        9
    );
    let shown = home.run(&["lock", "show", "/x"]);
    assert!(
        shown.out.contains("\nholds ") && shown.out.contains("(me)"),
        "{shown:?}"
    );
    holder.signal("TERM");
    assert_eq!(holder.end().code, 0);
    assert_eq!(home.run(&["lock", "-n", "/x", "--", "true"]).code, 0);
    assert_eq!(home.run(&["lock", "show", "/x"]).code, 1);
}

#[test]
fn a_broken_lock_stops_its_command_and_says_113() {
    let home = CommandHome::new();
    let mut holder = home.spawn(&["lock", "/x", "-c", "echo $BATON_TOKEN; exec sleep 1000"]);
    let token = holder.line();
    let other = home.run(&["lock", "break", "/x", "--token", "999999"]);
    assert_eq!(other.code, 1);
    assert!(other.complaint().contains("not held with token"));
    assert_eq!(
        home.run(&["lock", "break", "/x", "--token", &token]).code,
        0
    );
    let ran = holder.end();
    assert_eq!(ran.code, 113);
    assert!(ran.err.contains("deleted by somebody"), "{ran:?}");
}

#[test]
fn waiting_ends_with_a_signal_and_leaves_no_waiter_behind() {
    let home = CommandHome::new();
    let mut holder = home.spawn(&["lock", "/x"]);
    holder.line();
    let waiter = home.spawn(&["lock", "/x", "--", "true"]);
    until("the waiter is in the queue", || {
        home.run(&["lock", "show", "/x"]).out.contains("waits")
    });
    waiter.signal("INT");
    assert_eq!(waiter.end().code, 130);
    assert!(!home.run(&["lock", "show", "/x"]).out.contains("waits"));
}

#[test]
fn on_a_terminal_the_command_is_in_front_and_cannot_be_suspended() {
    let home = CommandHome::new();
    // `script` gives the terminal. The command says who is in front; then a Ctrl-Z goes by without
    // effect.
    let inner = format!(
        "{} lock /x -- sh -c 'ps -o pgid=,tpgid= -p $$; kill -TSTP $$; echo went on'",
        env!("CARGO_BIN_EXE_baton")
    );
    let mut command = std::process::Command::new("script");
    command.args(["-qec", &inner, "/dev/null"]).envs(
        home.baton(&[])
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let Ok(output) = command.stdin(std::process::Stdio::null()).output() else {
        return;
    };
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let groups = out
        .lines()
        .find(|line| line.split_whitespace().count() == 2 && !line.contains("baton"));
    let groups: Vec<&str> = groups.unwrap_or_default().split_whitespace().collect();
    assert_eq!(groups.first(), groups.get(1), "{out}");
    assert!(groups.len() == 2 && out.contains("went on"), "{out}");
}
