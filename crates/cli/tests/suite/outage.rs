//! Servers that are away for longer than a session lives: verbs that wait or work on go on once
//! servers are back, and a wait with a limit does not blame another for their absence.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{CommandHome, RunningCommand, until, word};

/// Time for which a verb tries to connect at its start. One that treated an outage alike would end
/// so long after its session.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A server in memory on a port that it has again after a restart.
struct Served {
    home: CommandHome,
    addr: SocketAddr,
    server: Option<RunningCommand>,
}

impl Served {
    fn new() -> Self {
        let mut served = Self {
            home: CommandHome::new(),
            addr: baton_testkit::free_addr().unwrap(),
            server: None,
        };
        served.start();
        served
    }

    fn start(&mut self) {
        let addr = self.addr.to_string();
        let mut server = self
            .home
            .spawn(&["serve", "--ephemeral", "--listen", &addr]);
        server.line();
        self.server = Some(server);
    }

    fn baton(&self, args: &[&str]) -> Command {
        let mut command = self.home.baton(args);
        command.env("BATON_SERVERS", self.addr.to_string());
        command
    }

    fn spawn(&self, args: &[&str]) -> RunningCommand {
        RunningCommand::new(self.baton(args))
    }

    fn run(&self, args: &[&str]) -> String {
        let output = self.baton(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Number of nodes at the path.
    fn children(&self, path: &str) -> usize {
        let output = self.baton(&["ls", path]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().count()
    }

    /// Number of connections that have a watch.
    fn watching_connections(&self) -> usize {
        let answer = word(&self.addr.to_string(), "wchs");
        answer.split(' ').next().unwrap().parse().unwrap()
    }
}

/// The id of the session that a client asks for: 0 for a new one.
fn asked_session(mut client: TcpStream) -> Option<i64> {
    client
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    // The length, the version, the last zxid, the timeout, and the session's id.
    let mut head = [0; 4 + 4 + 8 + 4 + 8];
    client.read_exact(&mut head).ok()?;
    Some(i64::from_be_bytes(head[20..].try_into().unwrap()))
}

/// Stands in for the server, and takes nobody in, until clients have asked for new sessions for as
/// long as this.
fn turn_all_away_for(addr: SocketAddr, long: Duration) {
    let listener = TcpListener::bind(addr).unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut first = None;
    until("clients have asked for new sessions for long", || {
        match listener.accept() {
            Ok((client, _)) => {
                client.set_nonblocking(false).unwrap();
                if asked_session(client) == Some(0) {
                    let first: Instant = *first.get_or_insert_with(Instant::now);
                    return first.elapsed() > long;
                }
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
        false
    });
}

#[test]
fn verbs_that_wait_outlive_an_outage_longer_than_their_session() {
    let mut served = Served::new();
    let connect_timeout = format!("{}ms", CONNECT_TIMEOUT.as_millis());
    let options = ["--connect-timeout", &connect_timeout, "-q"];
    let with = |args: &[&'static str]| -> Vec<&str> {
        let (verb, rest) = args.split_at(1);
        [verb, options.as_slice(), rest].concat()
    };
    // They have what the others wait for.
    let held = served.spawn(&["lock", "/lock"]);
    let led = served.spawn(&["elect", "/elect"]);
    until("both are held", || {
        served.children("/lock") == 1 && served.children("/elect") == 1
    });
    let waiting = [
        (&["watch", "/seen", "--count", "1"][..], "NodeCreated /seen"),
        (&["lock", "/lock", "--", "echo", "locked"], "locked"),
        (&["elect", "/elect", "--", "echo", "leads"], "leads"),
        (&["queue", "take", "/queue"], "item"),
    ];
    let mut running: Vec<_> = waiting
        .iter()
        .map(|(args, expected)| (served.spawn(&with(args)), *expected))
        .collect();
    let mut worker = served.spawn(&with(&[
        "queue",
        "work",
        "/work",
        "--",
        "sh",
        "-c",
        "cat; echo",
    ]));
    let impatient = served.spawn(&with(&["watch", "/seen", "--give-up-after", "300ms"]));
    // A verb that the outage meets before it has a session gives up.
    let all = 2 + running.len() + 2;
    until("all wait", || served.watching_connections() == all);
    served.server = None;
    turn_all_away_for(served.addr, 3 * CONNECT_TIMEOUT);
    let gave_up = impatient.end();
    assert_eq!(gave_up.code, 125, "{gave_up:?}");
    for (one, expected) in &mut running {
        let ended = one.child.try_wait().unwrap();
        assert!(ended.is_none(), "{expected}: {ended:?}");
    }
    drop((held, led));
    served.start();
    served.run(&["queue", "put", "/queue", "item"]);
    served.run(&["queue", "work", "put", "/work", "worked"]);
    assert_eq!(worker.line(), "worked");
    // A watch shows what happens once it is set again.
    let (watch, _) = &mut running[0];
    assert!(watch.line().starts_with("Resync /seen"));
    served.run(&["create", "/seen"]);
    for (mut one, expected) in running {
        assert_eq!(one.line(), expected);
        let ended = one.end();
        assert_eq!(ended.code, 0, "{expected}: {ended:?}");
    }
}

/// Stops the server while four verbs wait with limits of this many seconds; `false` if the time of
/// one was up before.
fn waits_end_while_the_server_stands_still(short: u64, long: u64) -> bool {
    let served = Served::new();
    let _held = served.spawn(&["lock", "/lock"]);
    let _full = served.spawn(&["sem", "/sem", "--slots", "1"]);
    until("both are held", || {
        served.children("/lock") == 1 && served.children("/sem") > 0
    });
    let (short, long) = (format!("{short}s"), format!("{long}s"));
    let waits: [&[&str]; 4] = [
        &["lock", "/lock", "--wait", &short, "-E", "0", "--", "true"],
        &["sem", "/sem", "--wait", &short, "-E", "0", "--", "true"],
        // Nobody asks the server while a queue is empty, but for a ping each third of the session
        // timeout.
        &["queue", "take", "/queue", "--wait", &long],
        &["queue", "work", "take", "/work", "--wait", &long],
    ];
    let mut waiting: Vec<_> = waits.iter().map(|args| served.spawn(args)).collect();
    let mut any_has_ended = || {
        let mut ended = waiting.iter_mut().map(|one| one.child.try_wait().unwrap());
        ended.any(|status| status.is_some())
    };
    until("all have come, or one has ended", || {
        any_has_ended() || (served.children("/lock") == 2 && served.children("/work") > 0)
    });
    served.server.as_ref().unwrap().signal("STOP");
    if any_has_ended() {
        return false;
    }
    for (one, args) in waiting.into_iter().zip(waits) {
        let ended = one.end();
        assert_eq!(ended.code, 125, "{args:?}: {ended:?}");
        let said = ended.err.contains("no server has answered");
        assert!(said, "{args:?}: {ended:?}");
    }
    true
}

#[test]
fn a_wait_that_ends_while_the_server_stands_still_is_no_busy_lock() {
    // The longer ones are for a machine that is too busy for the shorter ones.
    let limits = [(4, 9), (10, 20), (25, 40)];
    let stopped_in_time = limits
        .into_iter()
        .any(|(short, long)| waits_end_while_the_server_stands_still(short, long));
    assert!(stopped_in_time);
}
