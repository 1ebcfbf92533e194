//! The commands of `docs/operate/backup.md`, run as the page writes them.

use crate::common::{RunningCommand, until};
use crate::page_machines::{Machines, block_behind, inline};

const PAGE: &str = include_str!("../../../../docs/operate/backup.md");
const TOKEN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// The machines with the settings and the tokens that the page asks for. Clients of before are
/// waited for shortly.
fn machines() -> Machines {
    let mut machines = Machines::new();
    let etc = machines.folder("zk1.example", "/etc/baton");
    std::fs::create_dir_all(&etc).unwrap();
    std::fs::create_dir_all(machines.folder("zk1.example", "/var/backups")).unwrap();
    for name in ["http.token", "backup.token"] {
        let secret = machines.home.write_secret(name, TOKEN);
        std::fs::rename(secret, etc.join(name)).unwrap();
    }
    machines.settings = format!(
        "http_token_file = {:?}\nmax_session_timeout = \"4s\"\n",
        etc.join("http.token")
    );
    machines
}

/// The words of a line that do not depend on what is backed up.
fn fixed_words(line: &str) -> Vec<&str> {
    let words = line.split(|c: char| !c.is_ascii_alphabetic());
    let words = words.filter(|word| word.len() > 3);
    words.map(|word| word.trim_end_matches('s')).collect()
}

/// Runs the page's first commands, and returns the path of the backup.
fn back_up(machines: &mut Machines) -> String {
    let mut lines = block_behind(PAGE, "## Back up and restore").lines();
    let [take, printed, verify] = [(); 3].map(|()| lines.next().unwrap());
    assert_eq!(lines.next(), None);
    let ran = machines.run(take.strip_prefix("$ ").unwrap());
    assert_eq!(ran.code, 0, "{ran:?}");
    let out = ran.out.lines().next().unwrap();
    let at = out.find("/var/backups/").expect(out);
    let (backup, _) = out[at..].split_once(": ").unwrap();
    assert_eq!(fixed_words(&out[at..]), fixed_words(printed));
    let (written, _) = printed.split_once(": ").unwrap();
    let verify = verify.strip_prefix("$ ").unwrap();
    assert!(verify.contains(written), "{verify}");
    let ran = machines.run(&verify.replace(written, backup));
    assert_eq!(ran.code, 0, "{ran:?}");
    backup.to_owned()
}

/// The same text with the backup in the place of the page's names of one.
fn of_backup(text: &str, backup: &str) -> String {
    let text = text.replace("/var/lib/baton-backups/LATEST.backup", backup);
    text.replace("LATEST.backup", backup)
}

fn until_kept(machines: &mut Machines, host: &str) {
    let get = format!("baton get /kept --servers {host}:2181");
    until(&format!("{host} has what was backed up"), || {
        machines.run(&get).out.trim_end() == "x"
    });
}

fn make_kept(machines: &mut Machines) {
    until("it serves", || {
        let create = "baton create /kept x --servers zk1.example:2181";
        machines.run(create).code == 0
    });
}

#[test]
fn a_server_is_backed_up_restored_and_tried_as_the_page_says() {
    let mut machines = machines();
    machines.serve("zk1.example", "/var/lib/baton", &[]);
    make_kept(&mut machines);
    let backup = back_up(&mut machines);
    let set = machines.run("baton set /kept later --servers zk1.example:2181");
    assert_eq!(set.code, 0, "{set:?}");
    machines.obey(&of_backup(block_behind(PAGE, "One server alone:"), &backup));
    until_kept(&mut machines, "zk1.example");

    let old = "/var/lib/baton.old";
    for verb in ["baton wal verify", "baton wal dump"] {
        let command = inline(PAGE, verb).replace("DIR", old);
        let ran = machines.run(&command);
        assert_eq!(ran.code, 0, "{command}: {ran:?}");
    }

    let drill = inline(PAGE, "baton restore F").replace(" F ", &format!(" {backup} "));
    let ran = machines.run(&drill);
    assert_eq!(ran.code, 0, "{drill}: {ran:?}");
    let serve = inline(PAGE, "baton serve --data-dir");
    let folder = machines.folder("zk1.example", "/tmp/drill");
    let args = machines
        .located(serve)
        .replace("/tmp/drill", folder.to_str().unwrap());
    let args: Vec<&str> = args.split_whitespace().skip(1).collect();
    let tried = RunningCommand::new(machines.home.baton(&args));
    let list = inline(PAGE, "baton ls / --servers");
    until("the drill shows what was backed up", || {
        machines.run(list).out.contains("kept")
    });
    tried.signal("TERM");
    assert_eq!(tried.end().code, 0);
}

#[test]
fn three_servers_are_restored_as_the_page_says() {
    let mut machines = machines();
    for id in 1..=3 {
        machines.serve(&format!("zk{id}.example"), "/var/lib/baton", &[1, 2, 3]);
    }
    machines.until_all_serve(3);
    make_kept(&mut machines);
    let backup = back_up(&mut machines);
    let set = machines.run("baton set /kept later --servers zk1.example:2181");
    assert_eq!(set.code, 0, "{set:?}");
    let steps = block_behind(PAGE, "Of three servers, make");
    machines.obey(&of_backup(steps, &backup));
    machines.until_all_serve(3);
    for id in 1..=3 {
        until_kept(&mut machines, &format!("zk{id}.example"));
    }
}
