//! A command that is not well loses its lock, and has ended before (H39).

use crate::common::{CommandHome, number_in, runs, until};

/// Runs a command under `verb` until it is not well, with another waiting behind it.
fn stopped_when_not_well(verb: &[&str], check: &str) {
    let home = CommandHome::new();
    std::fs::write(home.path("well"), "").unwrap();
    let check = format!("echo >> asked; {check}");
    let mut args = verb.to_vec();
    args.extend(["--health-cmd", &check, "--health-every", "800ms"]);
    args.extend(["--", "sh", "-c", "echo $$ > command; echo up; sleep 1000"]);
    let mut running = home.spawn(&args);
    assert_eq!(running.line(), "up");
    let command = number_in(&home.path("command"));
    let mut next = verb.to_vec();
    let alone = "kill -0 $(cat command) 2> none || echo alone";
    next.extend(["--", "sh", "-c", alone]);
    let next = home.spawn(&next);
    until("it is asked twice", || {
        std::fs::read(home.path("asked")).is_ok_and(|asked| asked.len() >= 2)
    });
    assert!(runs(command), "well as long as it says so");
    std::fs::remove_file(home.path("well")).unwrap();
    let ended = running.end();
    assert_eq!(ended.code, 113, "{ended:?}");
    assert!(ended.err.contains("the health command"), "{ended:?}");
    assert!(!runs(command));
    let next = next.end();
    assert_eq!((next.code, next.out.as_str()), (0, "alone\n"), "{next:?}");
}

#[test]
fn h39_a_command_that_is_not_well_is_stopped_and_then_the_lock_passes_on() {
    std::thread::scope(|scope| {
        for (verb, check) in [
            (&["lock", "/x"][..], "test -f well"),
            (&["lock", "/x"], "test -f well || sleep 1000"),
            (&["sem", "/y", "--slots", "1"], "test -f well"),
            (&["elect", "/z"], "test -f well"),
        ] {
            scope.spawn(move || stopped_when_not_well(verb, check));
        }
    });
}

#[test]
fn what_makes_no_sense_about_health_is_said_in_one_line() {
    let home = CommandHome::new();
    for args in [
        &["lock", "/x", "--health-every", "1s", "--", "true"][..],
        &["lock", "/x", "--health-cmd", "true"],
        &[
            "lock",
            "/x",
            "--health-cmd",
            "true",
            "--health-every",
            "0s",
            "--",
            "true",
        ],
        &[
            "lock",
            "/x",
            "--health-cmd",
            "true",
            "--on-lost",
            "ignore",
            "--",
            "true",
        ],
    ] {
        let ran = home.run(args);
        assert_eq!(ran.code, 2, "{args:?}: {ran:?}");
        ran.complaint();
    }
    let well = home.run(&[
        "lock",
        "/x",
        "--health-cmd",
        "true",
        "--",
        "sh",
        "-c",
        "exit 5",
    ]);
    assert_eq!(well.code, 5);
}
