//! What a command shows while it waits: on a terminal, elsewhere, and as JSON.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::common::{Home, Running, until};

/// A server of its own that no command starts again, and `baton` on it.
struct Served {
    home: Home,
    server: Running,
    servers: String,
}

impl Served {
    fn new() -> Self {
        let home = Home::new();
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
    fn hold(&self, args: &[&str]) -> Running {
        let mut holder = Running::new(self.baton(args));
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

/// A pseudo-terminal of this many columns with `baton` in front of it, and all that it writes
/// there.
struct Terminal {
    child: Child,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn run(served: &Served, columns: u16, args: &[&str]) -> Self {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        use rustix::termios::{Winsize, tcsetwinsize};
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = Winsize {
            ws_row: 24,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&master, size).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = File::options()
            .read(true)
            .write(true)
            .open(name.to_str().unwrap())
            .unwrap();
        let baton = served.baton(args);
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(baton.get_program());
        command.args(baton.get_args());
        for (name, value) in baton.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
            .env("TERM", "xterm")
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave);
        let child = command.spawn().unwrap();
        drop(command);
        let written = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&written);
        let mut master = File::from(master);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // It ends with an error when nobody has the terminal open any more.
            while let Ok(read @ 1..) = master.read(&mut buffer) {
                kept.lock().unwrap().extend_from_slice(&buffer[..read]);
            }
        });
        Self { child, written }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn on_a_terminal_one_line_is_rewritten_within_its_width_and_cleared_before_the_command_starts() {
    let served = Served::new();
    let name = "a name that is longer than a terminal of forty columns is wide";
    let holder = served.hold(&["lock", "/x", "--name", name]);
    let mut terminal = Terminal::run(&served, 40, &["lock", "/x", "--", "echo", "mine"]);
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
    let mut quiet = Terminal::run(&served, 80, &["-q", "queue", "take", "/q", "-w", "3s"]);
    let mut taker = Terminal::run(&served, 80, &["queue", "take", "/other"]);
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
