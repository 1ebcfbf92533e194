//! A command that asks for the lock that it runs under: refused at once where it would wait for
//! ever.

use crate::common::{CommandHome, Ran};

/// Runs `line` under `outer`, with `baton` on its PATH.
fn under(home: &CommandHome, outer: &[&str], line: &str) -> Ran {
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_baton"));
    let path = std::env::var("PATH").unwrap();
    let mut command = home.baton(&[outer, &["-c", line]].concat());
    command.env(
        "PATH",
        format!("{}:{path}", bin.parent().unwrap().display()),
    );
    Ran::from(command.output().unwrap())
}

#[test]
fn a_wait_for_what_its_own_command_holds_is_refused_at_once() {
    let home = CommandHome::new();
    home.run(&["create", "/started"]);
    for (outer, inner) in [
        (&["lock", "/x"][..], "baton lock /x -- echo inside"),
        // Over another lock, a member and a shell.
        (
            &["lock", "/x"],
            "baton lock /y -- sh -c 'baton member join /g -- baton lock /x -- echo inside'",
        ),
        (&["lock", "-x", "/rw"], "baton lock -s /rw -- echo inside"),
        (&["lock", "-s", "/rw"], "baton lock -x /rw -- echo inside"),
        (
            &["sem", "/s", "--slots", "1"],
            "baton sem /s --slots 1 -- echo inside",
        ),
        (
            &["sem", "/s3", "--slots", "3"],
            "baton sem /s3 --permits 3 -- echo inside",
        ),
        (&["elect", "/boss"], "baton elect /boss -- echo inside"),
    ] {
        let ran = under(&home, outer, inner);
        assert_eq!((ran.code, ran.out.as_str()), (125, ""), "{inner}: {ran:?}");
        let line = ran.complaint();
        for part in ["runs under it already", "never end", "unset"] {
            assert!(line.contains(part), "{inner}: {line}");
        }
    }
}

#[test]
fn a_wait_that_can_end_is_waited_for_under_another_lock() {
    let home = CommandHome::new();
    home.run(&["create", "/started"]);
    for (outer, inner, code) in [
        (&["lock", "/x"][..], "baton lock /x/below -- echo inside", 0),
        (
            &["lock", "-s", "/rw"],
            "baton lock -s /rw -- echo inside",
            0,
        ),
        (
            &["sem", "/s", "--slots", "2"],
            "baton sem /s -- echo inside",
            0,
        ),
        (&["lock", "/x"], "baton lock -n /x -- echo inside", 124),
        (
            &["lock", "/x"],
            "baton lock -w 1500ms /x -- echo inside",
            124,
        ),
        // Of another server's lock the environment says nothing here.
        (
            &["lock", "/x"],
            "baton --data-dir other lock -w 20s /x -- echo inside",
            0,
        ),
        (
            &["lock", "/x"],
            "baton --data-dir other lock /x -- echo inside",
            0,
        ),
    ] {
        let ran = under(&home, outer, inner);
        assert_eq!(ran.code, code, "{inner}: {ran:?}");
        assert_eq!(ran.out.trim() == "inside", code == 0, "{inner}: {ran:?}");
    }
}

#[test]
fn an_environment_that_outlives_the_lock_is_no_reason_to_refuse() {
    let home = CommandHome::new();
    let kept = under(
        &home,
        &["lock", "/x"],
        "echo $BATON_SESSION; echo $BATON_NODE; echo \"$BATON_HOLDS\"",
    );
    let lines: Vec<&str> = kept.out.lines().collect();
    assert_eq!(lines.len(), 3, "{kept:?}");
    assert_eq!(lines[2], format!("{} {}", lines[0], lines[1]));
    let mut other = home.spawn(&["lock", "/y"]);
    other.line();
    for holds in [lines[2], "", "nonsense", "0x0 /x/lock-0000000001\n\n/ /"] {
        let mut command = home.baton(&["lock", "/x", "--", "echo", "held"]);
        command
            .env("BATON_SESSION", lines[0])
            .env("BATON_NODE", lines[1])
            .env("BATON_HOLDS", holds);
        let ran = Ran::from(command.output().unwrap());
        assert_eq!((ran.code, ran.out.as_str()), (0, "held\n"), "{ran:?}");
    }
}
