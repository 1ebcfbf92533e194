//! Inheritance: what `baton` takes over from the process that starts it, and what the processes
//! that it starts take over from it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::common::{CommandHome, RunningCommand, number_in, processes, runs, signal, until};

/// `baton` in this home, started by `env` with these flags.
fn with_signals(home: &CommandHome, flags: &[&str], args: &[&str]) -> Command {
    let plain = home.baton(args);
    let mut command = Command::new("env");
    command
        .args(flags)
        .arg(env!("CARGO_BIN_EXE_baton"))
        .args(args)
        .stdin(Stdio::null())
        .current_dir(home.dir.path());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Waits for the end of a process, which has to come.
fn ended(mut running: RunningCommand) -> ExitStatus {
    let mut status = None;
    until("it ends", || {
        status = running.child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

/// Supervisors ignore SIGCHLD, so that the system reaps their children, and block what they wait
/// for.
#[test]
fn a_verb_with_a_command_ends_under_a_parent_that_ignores_sigchld() {
    let home = CommandHome::new();
    assert_eq!(home.run(&["queue", "put", "/q", "item"]).code, 0);
    for flags in ["--ignore-signal=CHLD", "--block-signal=CHLD"] {
        for args in [
            &["lock", "/x", "--", "true"][..],
            &[
                "lock",
                "/x",
                "--health-cmd",
                "echo > well",
                "--health-every",
                "2s",
                "-c",
                "rm -f well; until test -s well; do sleep 0.01; done",
            ],
            &["sem", "/s", "--slots", "1", "--", "true"],
            &[
                "elect",
                "/e",
                "--on-elected",
                "true",
                "--on-demoted",
                "true",
                "--",
                "true",
            ],
            &["barrier", "/b", "--count", "1", "--", "true"],
            &["member", "join", "/m", "--", "true"],
            &["queue", "work", "/w", "--until-empty", "--", "true"],
        ] {
            let running = RunningCommand::new(with_signals(&home, &[flags], args));
            let ran = running.end();
            assert_eq!(ran.code, 0, "{flags} {args:?}: {ran:?}");
        }
    }
}

#[test]
fn a_stop_that_a_parent_has_blocked_ends_a_verb_all_the_same() {
    let home = CommandHome::new();
    let script = "echo up; exec sleep 1000";
    for args in [&["lock", "/x"][..], &["lock", "/x", "-c", script]] {
        let mut running = RunningCommand::new(with_signals(&home, &["--block-signal=TERM"], args));
        assert_ne!(running.line(), "");
        running.signal("TERM");
        let status = ended(running);
        let code = if args.len() == 2 { Some(0) } else { None };
        assert_eq!(status.code(), code, "{args:?}: {status}");
    }
}

/// A shell, `make` and `xargs` go on after a program that has exited, whatever its code.
#[test]
fn a_verb_that_a_signal_interrupts_dies_by_it() {
    let home = CommandHome::new();
    let mut holder = home.spawn(&["lock", "/held"]);
    holder.line();
    let waits = |path: &str| home.run(&["lock", "show", path]).out.contains("waits");
    let waiter = home.spawn(&["lock", "/held", "--", "true"]);
    until("it waits", || waits("/held"));
    waiter.signal("INT");
    assert_eq!(ended(waiter).signal(), Some(2));
    assert!(!waits("/held"));

    let script = "echo up; exec sleep 1000";
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1), ("QUIT", 3)] {
        let mut running = home.spawn(&["lock", "/x", "-c", script]);
        assert_eq!(running.line(), "up");
        running.signal(name);
        assert_eq!(ended(running).signal(), Some(number), "{name}");
        assert_eq!(home.run(&["lock", "-n", "/x", "--", "true"]).code, 0);
    }
    for (args, verbose) in [
        (&["watch", "/w", "-v"][..], "watching"),
        (&["queue", "take", "/q", "-v"], "session"),
        (&["elect", "watch", "/e", "-v"], "session"),
        (&["counter", "watch", "/c", "-v"], "session"),
        (&["member", "watch", "/m", "-v"], "session"),
        (
            &["serve", "--ephemeral", "--listen", "127.0.0.1:0"],
            "serving",
        ),
    ] {
        let mut command = home.baton(args);
        command.stderr(Stdio::piped());
        // What says that it has begun is on either of them.
        let errors = home.path("errors");
        command
            .stdout(std::fs::File::create(&errors).unwrap())
            .stderr(std::fs::File::options().append(true).open(&errors).unwrap());
        let mut child = command.spawn().unwrap();
        until(&format!("{args:?} has begun"), || {
            std::fs::read_to_string(&errors).unwrap().contains(verbose)
        });
        signal(i32::try_from(child.id()).unwrap(), "INT");
        assert_eq!(child.wait().unwrap().signal(), Some(2), "{args:?}");
    }
    // A command that has handled the signal decides.
    let script = "trap 'exit 130' INT; echo up; while :; do sleep 0.01; done";
    let mut running = home.spawn(&["lock", "/x", "-c", script]);
    assert_eq!(running.line(), "up");
    running.signal("INT");
    assert_eq!(ended(running).code(), Some(130));
    // A death that is not a request to stop is an exit code.
    let killed = home.spawn(&["lock", "/x", "-c", "kill -KILL $$"]);
    assert_eq!(ended(killed).code(), Some(137));
}

#[test]
fn a_server_that_a_command_starts_takes_nothing_of_it_along() {
    let home = CommandHome::new();
    std::fs::create_dir(home.path("inside")).unwrap();
    // A lock on a file, a limit, signals that are ignored, a secret, a folder that cannot be
    // removed while a process works there.
    let script = r#"
        exec 9>held; flock 9 2>/dev/null
        ulimit -S -t 1000; ulimit -S -f 100000; umask 0
        cd inside; trap '' TERM INT HUP
        export SECRET=word LC_ALL=C BATON_HTTP_TOKEN_FILE=/none
        exec "$BATON" create /x
    "#;
    let mut command = with_signals(&home, &[], &[]);
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(home.dir.path());
    for (name, value) in command.env("BATON", env!("CARGO_BIN_EXE_baton")).get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.env("BATON_IDLE", "10m");
    let started = RunningCommand::new(shell).end();
    assert_eq!(started.code, 0, "{started:?}");
    let folder = home.state().to_string_lossy().into_owned();
    let server = processes(&["serve", &folder])[0];
    let about = PathBuf::from(format!("/proc/{server}"));
    let read = |name: &str| std::fs::read_to_string(about.join(name)).unwrap();
    let link = |path: &str| std::fs::read_link(about.join(path)).unwrap();
    assert_eq!(link("cwd"), home.state());
    assert_eq!(link("fd/0"), Path::new("/dev/null"));
    until("its output is nobody's", || {
        link("fd/1") == Path::new("/dev/null")
    });
    for entry in std::fs::read_dir(about.join("fd")).unwrap() {
        let open = std::fs::read_link(entry.unwrap().path()).unwrap_or_default();
        assert!(!open.ends_with("held"), "{}", open.display());
    }
    let environment = read("environ");
    for name in ["SECRET", "LC_ALL", "BATON_HTTP_TOKEN_FILE"] {
        assert!(!environment.contains(name), "{environment}");
    }
    for line in read("limits").lines() {
        let is_one_of_them = line.contains("cpu time") || line.contains("file size");
        assert!(!is_one_of_them || line.contains("unlimited  "), "{line}");
    }
    let stat = read("stat");
    let fields: Vec<_> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    let (group, session) = (fields[2], fields[3]);
    assert_eq!(
        (group, session),
        (&*server.to_string(), &*server.to_string())
    );
    signal(server, "TERM");
    until("a signal that its starter ignored ends it", || {
        !runs(server)
    });
}

#[test]
fn no_command_under_a_lock_sees_the_password_of_baton() {
    let home = CommandHome::new();
    let print = "echo ${BATON_AUTH-none} >> seen";
    for args in [
        &["lock", "/x", "-c", print][..],
        &[
            "elect",
            "/e",
            "--on-elected",
            print,
            "--on-demoted",
            print,
            "-c",
            print,
        ],
        &["member", "join", "/m", "-c", print],
        &[
            "lock",
            "/x",
            "--health-every",
            "2s",
            "--health-cmd",
            "echo ${BATON_AUTH-none} > asked",
            "-c",
            "until test -s asked; do sleep 0.01; done; cat asked >> seen",
        ],
    ] {
        let mut command = home.baton(args);
        let ran = RunningCommand::new({
            command.env("BATON_AUTH", "super:word");
            command
        })
        .end();
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
    }
    let seen = std::fs::read_to_string(home.path("seen")).unwrap();
    assert_eq!(seen, "none\n".repeat(6));
}

/// Runs where this user may make a PID namespace.
#[test]
fn the_first_process_of_a_container_reaps_orphans_and_ends_with_a_signal() {
    let home = CommandHome::new();
    let make = [
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--kill-child",
    ];
    let tried = Command::new("unshare").args(make).arg("true").output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        return;
    }
    let plain = home.baton(&["lock", "/x", "--json"]);
    let mut command = Command::new("unshare");
    command
        .args(make)
        .arg(env!("CARGO_BIN_EXE_baton"))
        .args(["lock", "/x", "--json"])
        .current_dir(home.dir.path())
        .stdin(Stdio::null());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut container = RunningCommand::new(command);
    assert!(container.line().contains("token"));
    let children = |pid: i32| {
        let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let list = list.unwrap_or_default();
        let pids = list
            .split_whitespace()
            .map(|pid| pid.parse::<i32>().unwrap());
        pids.collect::<Vec<_>>()
    };
    let first = children(container.pid())[0];
    let before = children(first);
    // As a second process that is run in a container does: its child outlives it.
    let orphan = home.path("orphan");
    let script = format!(
        "sh -c 'readlink /proc/self > {0}.new; mv {0}.new {0}; exec sleep 1000' >/dev/null 2>&1 &",
        orphan.display()
    );
    let entered = Command::new("nsenter")
        .args([
            "--target",
            &first.to_string(),
            "--user",
            "--preserve-credentials",
            "--pid",
        ])
        .args(["sh", "-c", &script])
        .output()
        .unwrap();
    assert!(entered.status.success(), "{entered:?}");
    let mut orphans = Vec::new();
    until("the orphan is its child", || {
        orphans = children(first);
        orphans.retain(|pid| !before.contains(pid));
        !orphans.is_empty()
    });
    let _ = number_in(&orphan);
    signal(orphans[0], "KILL");
    let about = PathBuf::from(format!("/proc/{}", orphans[0]));
    until("it is reaped", || !about.exists());
    signal(first, "TERM");
    assert_eq!(container.end().code, 0);
}

/// Arguments, variables and paths of a shell may be any bytes.
#[test]
fn what_is_no_text_is_carried_through_or_refused_in_one_line() {
    let home = CommandHome::new();
    let odd = OsStr::from_bytes(b"/o\xffdd");
    let refused: [(&[&str], Option<&str>); 8] = [
        (&[], None),
        (&["lock"], None),
        (&["lock", "/x", "--name"], None),
        (&["ls", "/", "--data-dir"], None),
        (&["serve", "--print-config", "--config"], None),
        (&["serve", "--print-config", "--http-token-file"], None),
        (&["ls", "/"], Some("BATON_SERVERS")),
        (&["ls", "/"], Some("BATON_CONTEXT")),
    ];
    for (args, variable) in refused {
        let mut command = home.baton(args);
        match variable {
            Some(name) => command.env(name, odd),
            None => command.arg(odd),
        };
        let ran = RunningCommand::new(command).end();
        assert_eq!(ran.code, 2, "{args:?} {variable:?}: {ran:?}");
        let complaint = ran.complaint();
        let named = variable.unwrap_or(r"/o\xFFdd");
        let is_named = complaint.contains(named) || complaint.contains("/o\u{fffd}dd");
        assert!(is_named, "{args:?} {variable:?}: {complaint}");
    }
    let mut server = home.baton(&["server", "ls", "--servers", "127.0.0.1:1"]);
    let ran = RunningCommand::new({
        server.env("BATON_AUTH", odd);
        server
    })
    .end();
    assert!(!ran.err.contains("panicked"), "{ran:?}");
    let mut carried = home.baton(&["lock", "/x", "--", "printf", "%s"]);
    let output = carried.arg(odd).output().unwrap();
    assert_eq!(output.stdout, odd.as_bytes());
}

/// `sudo -E` leaves the variables of the user before. Only the superuser can try that.
#[test]
fn nothing_of_another_user_is_used_for_the_superuser() {
    let home = CommandHome::new();
    let theirs = home.path("theirs");
    let config = theirs.join(".config/baton");
    std::fs::create_dir_all(&config).unwrap();
    let text = "[context.theirs]\nservers = \"127.0.0.1:1\"\n";
    let file = config.join("config.toml");
    std::fs::write(&file, text).unwrap();
    for path in [&theirs, &file] {
        if std::os::unix::fs::chown(path, Some(12345), None).is_err() {
            return;
        }
    }
    let run = |args: &[&str], variable: &str, value: &Path| {
        let mut command = home.baton(args);
        command.env_remove("XDG_STATE_HOME").env(variable, value);
        RunningCommand::new(command).end()
    };
    let listed = run(&["context", "ls"], "HOME", &theirs);
    assert!(!listed.out.contains("theirs"), "{listed:?}");
    let elsewhere = [
        "ls",
        "/",
        "--servers",
        "127.0.0.1:1",
        "--connect-timeout",
        "1ms",
    ];
    let ran = run(&elsewhere, "HOME", &theirs);
    assert!(
        ran.err.contains("HOME in the environment is ignored"),
        "{ran:?}"
    );
    assert!(!theirs.join(".local").exists());
    let named = run(&["context", "ls"], "BATON_CONFIG", &file);
    assert_eq!(named.code, 2, "{named:?}");
    assert!(
        named.complaint().contains("belongs to another user"),
        "{named:?}"
    );
}
