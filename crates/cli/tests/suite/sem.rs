//! `baton sem`: a limited number of commands at once, on the terms of `baton lock`.

use crate::common::{CommandHome, RunningCommand};

fn holder(home: &CommandHome, args: &[&str]) -> RunningCommand {
    let mut all = args.to_vec();
    all.extend(["--", "sh", "-c", "echo up; sleep 1000"]);
    let mut running = home.spawn(&all);
    assert_eq!(running.line(), "up");
    running
}

#[test]
fn one_command_per_slot_runs_at_once_and_the_next_one_waits_or_is_refused() {
    let home = CommandHome::new();
    let first = holder(&home, &["sem", "/s", "--slots", "2"]);
    // The same semaphore by its other name.
    let second = holder(&home, &["lock", "/s", "-N", "2"]);
    for args in [
        &["sem", "-n", "/s", "--slots", "2", "--", "true"][..],
        &["sem", "-w", "1500ms", "/s", "--", "true"],
        &["lock", "-n", "-N", "2", "/s", "--", "true"],
    ] {
        let refused = home.run(args);
        assert_eq!(refused.code, 124, "{refused:?}");
        assert!(refused.complaint().contains("1 permit(s) not acquired"));
    }
    let other_code = home.run(&["sem", "-n", "-E", "9", "/s", "--", "true"]);
    assert_eq!(other_code.code, 9);
    let next = home.spawn(&["sem", "/s", "--", "sh", "-c", "echo in; exit 7"]);
    first.signal("TERM");
    assert_eq!(first.end().code, 143);
    let next = next.end();
    assert_eq!((next.code, next.out.as_str()), (7, "in\n"));
    second.signal("TERM");
    assert_eq!(second.end().code, 143);
}

#[test]
fn several_permits_are_held_at_once_and_the_command_receives_its_token() {
    let home = CommandHome::new();
    let heavy = holder(&home, &["sem", "/s", "--slots", "3", "--permits", "2"]);
    let two = home.run(&["sem", "-n", "/s", "--permits", "2", "--", "true"]);
    assert_eq!(two.code, 124);
    let script = "echo $BATON_PATH $BATON_TOKEN $BATON_NODE $BATON_SESSION $BATON_ACQUIRED_AT";
    let one = home.run(&["sem", "-n", "/s", "-c", script]);
    assert_eq!(one.code, 0, "{one:?}");
    let words: Vec<&str> = one.out.split_whitespace().collect();
    assert_eq!((words.len(), words[0]), (5, "/s"));
    assert!(words[1].parse::<u64>().unwrap() > 0);
    assert!(words[2].starts_with("/s/leases/_c_"));
    drop(heavy);
}

#[test]
fn h48_another_number_is_refused_and_a_resize_is_for_all() {
    let home = CommandHome::new();
    assert_eq!(
        home.run(&["sem", "/s", "--slots", "1", "--", "true"]).code,
        0
    );
    let other = home.run(&["sem", "/s", "--slots", "2", "--", "true"]);
    assert_eq!(other.code, 125);
    assert!(
        other
            .complaint()
            .contains("its number of permits is 1, not 2")
    );
    let held = holder(&home, &["sem", "/s"]);
    let waiting = home.spawn(&["sem", "/s", "--", "echo", "in"]);
    let resized = home.run(&["sem", "resize", "/s", "2"]);
    assert_eq!(
        (resized.code, resized.out.as_str()),
        (0, "/s has 2 permits; before 1\n")
    );
    let waited = waiting.end();
    assert_eq!((waited.code, waited.out.as_str()), (0, "in\n"));
    assert_eq!(home.run(&["sem", "-n", "/s", "--", "true"]).code, 0);
    drop(held);
}

#[test]
fn what_makes_no_sense_is_said_in_one_line() {
    let home = CommandHome::new();
    for args in [
        &["sem"][..],
        &["sem", "relative", "--slots", "2", "--", "true"],
        &["sem", "/s", "--slots", "0", "--", "true"],
        &["sem", "/s", "--slots", "2", "--permits", "3", "--", "true"],
        &["sem", "resize", "/s", "0"],
    ] {
        let ran = home.run(args);
        assert_eq!(ran.code, 2, "{args:?}: {ran:?}");
        ran.complaint();
    }
    let nothing = home.run(&["sem", "/none", "--", "true"]);
    assert_eq!(nothing.code, 125);
    assert!(nothing.complaint().contains("no semaphore there yet"));
    assert_eq!(home.run(&["sem", "resize", "/none", "2"]).code, 1);
}

/// Semaphores, elections, barriers and queues are listed alike, each by its own verb.
#[test]
fn each_recipe_lists_its_own_and_shows_one() {
    let home = CommandHome::new();
    let rows = |args: &[&str]| -> Vec<Vec<String>> {
        let ran = home.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        let cells = |line: &str| {
            let cells = line
                .split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty());
            cells.map(str::to_owned).collect()
        };
        ran.out.lines().map(cells).collect()
    };
    let none = home.run(&["sem", "ls"]);
    assert_eq!((none.code, none.out.as_str()), (0, ""), "{none:?}");
    assert!(none.err.contains("there are none below /"), "{none:?}");
    let _permit = holder(&home, &["sem", "/a/sem", "--slots", "3", "--name", "one"]);
    let _leader = holder(&home, &["elect", "/a/elect", "--name", "two"]);
    assert_eq!(home.run(&["barrier", "close", "/a/gate"]).code, 0);
    assert_eq!(home.run(&["queue", "put", "/a/plain", "x", "y"]).code, 0);
    assert_eq!(home.run(&["queue", "work", "put", "/a/work", "x"]).code, 0);

    let listed = rows(&["sem", "ls"]);
    assert_eq!(listed[0], ["PATH", "HELD", "HOLDER", "WAITING"]);
    assert_eq!(
        (listed.len(), &*listed[1][0], &*listed[1][1]),
        (2, "/a/sem", "1 of 3")
    );
    assert!(listed[1][2].ends_with("(one)"), "{listed:?}");
    assert_eq!(listed[1][3], "0");
    let shown = rows(&["sem", "show", "/a/sem"]);
    assert_eq!((&*shown[0][0], &*shown[1][0]), ("STATE", "holds"));

    let listed = rows(&["elect", "ls", "/a"]);
    assert_eq!(listed[0], ["PATH", "LEADER", "TERM", "TOKEN", "WAITING"]);
    assert_eq!(
        (listed.len(), &*listed[1][0], &*listed[1][2]),
        (2, "/a/elect", "1")
    );
    assert!(listed[1][1].ends_with("(two)"), "{listed:?}");
    // Beside the prefix, not below it.
    assert_eq!(home.run(&["elect", "ls", "/a/el"]).out, "");

    let listed = rows(&["barrier", "ls"]);
    assert_eq!(listed[1][..3], ["/a/gate", "gate", "closed"]);
    let shown = home.run(&["barrier", "show", "/a/gate"]);
    assert_eq!(shown.out, "/a/gate is closed\n");
    assert_eq!(home.run(&["barrier", "show", "/a/none"]).code, 1);

    let listed = rows(&["queue", "ls"]);
    assert_eq!(listed[0][..3], ["PATH", "LAYOUT", "ITEMS"]);
    assert_eq!(listed[1][..3], ["/a/plain", "qn", "2"]);
    assert_eq!(listed[2][..3], ["/a/work", "work", "1"]);
    let json = home.run(&["queue", "ls", "--json"]).out;
    assert!(
        json.lines()
            .all(|line| line.starts_with(r#"{"recipe":"queue""#)),
        "{json}"
    );
    assert_eq!(
        home.run(&["queue", "ls", "/a/plain"]).out.lines().count(),
        2
    );
}
