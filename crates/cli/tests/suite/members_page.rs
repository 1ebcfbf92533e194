//! The commands of `docs/operate/ensemble.md` that change members, run as the page writes them.

use std::collections::BTreeSet;

use crate::common::{CommandHome, until};
use crate::page_machines::{Machines, block_behind, inline};

const PAGE: &str = include_str!("../../../../docs/operate/ensemble.md");

/// A fenced command of the page that no test runs is one that nobody has tried.
#[test]
fn members_come_and_go_as_the_page_says() {
    let mut machines = Machines::new();
    for id in 1..=3 {
        machines.serve(&format!("zk{id}.example"), "/var/lib/baton", &[1, 2, 3]);
    }
    machines.until_all_serve(3);

    // The page shows server 2 as the leader, and server 3 stopped.
    let transferred = machines.run(inline(PAGE, "baton server transfer 2"));
    assert_eq!(transferred.out, "server 2 leads\n", "{transferred:?}");
    machines.stop("zk3.example");
    let listing = block_behind(PAGE, "### Changing the members");
    let (command, expected) = listing.split_once('\n').unwrap();
    let ran = machines.run(command.strip_prefix("$ ").unwrap());
    let columns = |text: &str| -> Vec<Vec<String>> {
        let rows = text.lines().map(|line| {
            let cells = line
                .split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty());
            cells.map(str::to_owned).collect()
        });
        rows.collect()
    };
    let (expected, printed) = (columns(&machines.located(expected)), columns(&ran.out));
    assert_eq!(printed[0], expected[0]);
    assert_eq!(printed.len(), expected.len(), "{ran:?}");
    for (printed, expected) in printed.iter().zip(&expected) {
        // Neither the newest change nor the version.
        let kept = |row: &[String]| [0, 1, 2, 6, 7].map(|cell| row[cell].clone());
        assert_eq!(kept(printed), kept(expected), "{ran:?}");
    }
    machines.serve("zk3.example", "/var/lib/baton", &[1, 2, 3]);
    machines.until_all_serve(3);

    machines.follow(block_behind(PAGE, "From three voters to five"));
    machines.remove(inline(PAGE, "baton server remove"));
    machines.follow(block_behind(PAGE, "**Adding a server.**"));
    machines.remove("baton server remove 4");
    let reset = machines.run(inline(PAGE, "baton server reset-time"));
    assert_eq!(reset.code, 0, "{reset:?}");
    machines.follow(block_behind(PAGE, "**Moving a server**"));
    machines.until_all_serve(3);
    machines.follow(block_behind(PAGE, "**Replacing a machine"));
    machines.until_all_serve(3);
    let tried: BTreeSet<_> = machines.verbs.into_iter().collect();
    let help = CommandHome::new().run(&["server", "--help"]).out;
    let (_, verbs) = help.split_once("Commands:\n").unwrap();
    let verbs = verbs.lines().take_while(|line| !line.is_empty());
    // Further lines of a verb are indented more.
    let verbs = verbs.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let verbs = verbs.filter(|verb| !verb.is_empty() && *verb != "help");
    let untried: Vec<_> = verbs.filter(|verb| !tried.contains(*verb)).collect();
    assert_eq!(untried, ["recover"], "{help}");
}

#[test]
fn r34_one_server_becomes_three_and_one_that_is_left_a_new_cluster_as_the_page_says() {
    let mut machines = Machines::new();
    machines.serve("zk1.example", "/var/lib/baton", &[]);
    until("it serves", || {
        let made = machines.run("baton create /kept x --servers zk1.example:2181");
        made.code == 0
    });
    machines.follow(block_behind(PAGE, "**From one server to three"));
    machines.until_all_serve(3);
    let get = "baton get /kept --servers zk3.example:2181";
    until("server 3 has it", || {
        machines.run(get).out.trim_end() == "x"
    });

    for id in [1, 2, 3] {
        drop(machines.running.remove(&format!("zk{id}.example")));
    }
    let recover = inline(PAGE, "baton server recover --majority-lost");
    let recover = recover.replace("OLD", "/var/lib/baton");
    let recovered = machines.run(&recover.replace("NEW", "/var/lib/baton-3"));
    assert_eq!(recovered.code, 0, "{recovered:?}");
    machines.serve("zk3.example", "/var/lib/baton-3", &[3]);
    until("it serves", || machines.run(get).out.trim_end() == "x");
    // "No server starts on OLD any more."
    machines.serve("zk3.example", "/var/lib/baton", &[3]);
    let refused = machines.running.remove("zk3.example").unwrap().end();
    assert_eq!(refused.code, 125, "{refused:?}");
    assert!(refused.err.contains("/var/lib/baton-3"), "{refused:?}");
}
