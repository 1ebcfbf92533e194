//! Messages of a command while it waits: on a terminal, elsewhere, and as JSON.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use crate::common::terminal::Terminal;
use crate::common::{CommandHome, RunningCommand, until};

/// A server of its own that no command starts again, and `baton` on it.
struct Served {
    home: CommandHome,
    server: RunningCommand,
    servers: String,
}

impl Served {
    fn new() -> Self {
        let home = CommandHome::new();
        let mut server = home.spawn(&["serve", "--ephemeral", "--listen", "127.0.0.1:0"]);
        let line = server.line();
        let servers = line.split([' ', ';']).nth(3).unwrap().to_owned();
        Self {
            home,
            server,
            servers,
        }
    }

    fn baton(&self, args: &[&str]) -> Command {
        let mut command = self.home.baton(args);
        command.env("BATON_SERVERS", &self.servers);
        command
    }

    /// Holds a lock, or whatever the arguments say, and has said so.
    fn hold(&self, args: &[&str]) -> RunningCommand {
        let mut holder = RunningCommand::new(self.baton(args));
        holder.line();
        holder
    }

    /// Starts `baton` with a file for its standard error.
    fn waiter(&self, args: &[&str]) -> Waiter {
        static COUNT: Mutex<u32> = Mutex::new(0);
        let mut count = COUNT.lock().unwrap();
        *count += 1;
        let errors = self.home.path(&format!("errors-{count}"));
        let mut command = self.baton(args);
        command
            .stdout(Stdio::null())
            .stderr(File::create(&errors).unwrap());
        Waiter {
            child: command.spawn().unwrap(),
            errors,
        }
    }
}

struct Waiter {
    child: Child,
    errors: PathBuf,
}

impl Waiter {
    fn errors(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap()
    }

    /// Waits for whole lines with all of these in one of them; that line.
    fn line(&self, parts: &[&str]) -> String {
        let mut found = None;
        until(&format!("a line with {parts:?}"), || {
            found = self
                .errors()
                .split_inclusive('\n')
                .find(|line| line.ends_with('\n') && parts.iter().all(|part| line.contains(part)))
                .map(|line| line.trim_end().to_owned());
            found.is_some()
        });
        found.unwrap()
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn who_waits_says_once_who_holds_and_quiet_says_nothing() {
    let served = Served::new();
    let holder = served.hold(&["lock", "/x", "--name", "deployer"]);
    let quiet = served.waiter(&["-q", "lock", "/x", "--", "true"]);
    let waiter = served.waiter(&["lock", "/x", "--", "true"]);
    let json = served.waiter(&["--json", "lock", "/x", "--", "true"]);
    let pid = format!("pid {}", holder.pid());
    let line = waiter.line(&["/x: waiting: held by", &pid, "(deployer)", "place "]);
    assert!(line.starts_with("baton: "), "{line}");
    let event = json.line(&["waiting"]);
    let event: serde_json::Value = serde_json::from_str(&event).unwrap();
    assert_eq!(event["event"], "waiting");
    assert_eq!(event["path"], "/x");
    assert_eq!(event["connected"], true);
    assert_eq!(event["holder"]["pid"], holder.pid());
    assert_eq!(event["holder"]["name"], "deployer");
    assert!(event["place"].as_u64().is_some_and(|place| place >= 1));
    // Nothing changes, so nothing more is said; and what was said is not an error.
    holder.signal("TERM");
    for mut ended in [quiet, waiter, json] {
        assert!(ended.child.wait().unwrap().success());
        let lines = ended.errors().lines().count();
        assert!(lines <= 1, "{}", ended.errors());
    }
}

#[test]
fn each_verb_that_waits_says_what_for() {
    let served = Served::new();
    let _leader = served.hold(&["elect", "/boss", "--name", "eu-1"]);
    let _permit = served.hold(&["sem", "/licences", "--slots", "1", "--name", "first"]);
    let _writer = served.hold(&["lock", "-x", "/prices", "--name", "writer"]);
    let closed = served.baton(&["barrier", "close", "/gate"]).output();
    assert!(closed.unwrap().status.success());
    let waiting: [(&[&str], &[&str]); 6] = [
        (&["elect", "/boss"], &["/boss: waiting: led by", "(eu-1)"]),
        (
            &["sem", "/licences"],
            &["/licences: waiting: held by", "(first)", "place 1 of 1"],
        ),
        (
            &["lock", "-s", "/prices"],
            &["/prices: waiting: held by", "(writer)", "place 1 of 1"],
        ),
        (&["barrier", "wait", "/gate"], &["/gate", "gate is closed"]),
        (
            &["barrier", "/meet", "--count", "3"],
            &["/meet: waiting: 1 of 3 have come"],
        ),
        (&["queue", "take", "/q"], &["/q: waiting: no item"]),
    ];
    let waiting = waiting.map(|(args, parts)| (served.waiter(args), parts));
    for (waiter, parts) in &waiting {
        waiter.line(parts);
    }
}

#[test]
fn a_server_that_does_not_answer_is_named_by_who_holds_and_by_who_watches() {
    let served = Served::new();
    let waiter = served.waiter(&["lock", "--session-timeout", "60s", "/x"]);
    let watcher = served.waiter(&["member", "watch", "/g"]);
    let watched = |path: &str| {
        let stat = served.baton(&["lock", "show", path]).output().unwrap();
        stat.status.success()
    };
    until("the lock is held", || watched("/x"));
    served.server.signal("KILL");
    waiter.line(&["/x: waiting: no server for", &served.servers]);
    watcher.line(&["/g: waiting: no server for", &served.servers]);
}

#[test]
fn on_a_terminal_one_line_is_rewritten_within_its_width_and_cleared_before_the_command_starts() {
    let served = Served::new();
    let name = "a name that is longer than a terminal of forty columns is wide";
    let holder = served.hold(&["lock", "/x", "--name", name]);
    let mut terminal = Terminal::run(&served.baton(&["lock", "/x", "--", "echo", "mine"]), 40);
    until("it is rewritten", || {
        terminal.text().matches("\r").count() >= 3
    });
    let text = terminal.text();
    assert!(text.contains("baton: /x: held by "), "{text:?}");
    assert!(!text.contains('\n'), "one line: {text:?}");
    holder.signal("TERM");
    assert!(terminal.child.wait().unwrap().success());
    until("the command has written", || {
        terminal.text().contains("mine")
    });
    let text = terminal.text();
    let (status, after) = text.rsplit_once("\r\u{1b}[K").unwrap();
    assert_eq!(after.trim(), "mine", "{text:?}");
    for line in status.split('\r') {
        let line = line.trim_end_matches("\u{1b}[K");
        assert!(line.chars().count() < 40, "{line:?}");
    }
}

#[test]
fn on_a_terminal_quiet_shows_nothing_and_a_result_is_not_mixed_with_the_status() {
    let served = Served::new();
    let mut quiet = Terminal::run(
        &served.baton(&["-q", "queue", "take", "/q", "-w", "3s"]),
        80,
    );
    let mut taker = Terminal::run(&served.baton(&["queue", "take", "/other"]), 80);
    until("it waits", || taker.text().contains("/other: no item"));
    let put = served.baton(&["queue", "put", "/other", "an item"]);
    assert!({ put }.status().unwrap().success());
    assert!(taker.child.wait().unwrap().success());
    until("it is printed", || taker.text().contains("an item"));
    let text = taker.text();
    let (_, after) = text.rsplit_once("\r\u{1b}[K").unwrap();
    assert_eq!(after.trim(), "an item", "{text:?}");
    assert_eq!(quiet.child.wait().unwrap().code(), Some(124));
    until("it is said", || quiet.text().ends_with('\n'));
    let text = quiet.text();
    assert!(text.starts_with("baton: /q: no item within 3s"), "{text:?}");
}
