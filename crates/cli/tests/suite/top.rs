//! `baton top` on a pseudo-terminal. On Baton's server, or with BATON_TEST_TARGET=zookeeper on
//! Apache ZooKeeper.

use std::os::unix::process::ExitStatusExt;

use baton::Mutex;
use baton_client::{Client, Config};
use baton_testkit::{Target, TestServer, zookeeper_or_skip};

use crate::common::terminal::Terminal;
use crate::common::{CommandHome, ServedHome, signal, until};

const ENTERED: &str = "\u{1b}[?1049h";
const LEFT: &str = "\u{1b}[?1049l";

#[tokio::test(flavor = "multi_thread")]
async fn it_shows_locks_takes_keys_follows_the_size_and_restores_the_terminal() {
    let served = ServedHome::new().await;
    let mut holder = served.spawn(&["lock", "/deploy", "--name", "first"]);
    assert!(holder.line().starts_with("held "));
    let mut top = Terminal::run(&served.baton(&["top"]), 100);
    until("the lock is shown", || {
        let text = top.text();
        text.contains("/deploy") && text.contains("(first)")
    });
    assert!(top.text().contains(ENTERED) && !top.is_restored());
    top.keys("\r");
    until("it is unfolded", || top.text().contains("held by"));
    top.resize(30, 5);
    until("it is too small", || top.text().contains("too small: 30x5"));
    let drawn = top.text().len();
    top.resize(80, 24);
    until("it is drawn again", || {
        top.text()[drawn..].contains("/deploy")
    });
    top.keys("q");
    assert_eq!(top.child.wait().unwrap().code(), Some(0));
    until("the screen is left", || top.text().contains(LEFT));
    assert!(top.is_restored());
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_and_control_c_restore_the_terminal() {
    let served = ServedHome::new().await;
    for (how, number) in [("\u{3}", 2), ("TERM", 15), ("HUP", 1)] {
        let mut top = Terminal::run(&served.baton(&["top"]), 80);
        // Blank cells are not written: of "no locks" there is the second word.
        until("it is drawn", || top.text().contains("locks"));
        if how == "\u{3}" {
            top.keys(how);
        } else {
            signal(i32::try_from(top.child.id()).unwrap(), how);
        }
        let status = top.child.wait().unwrap();
        assert_eq!(
            (status.code(), status.signal()),
            (None, Some(number)),
            "{how}"
        );
        until("the screen is left", || top.text().contains(LEFT));
        assert!(top.is_restored(), "{how}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_lost_is_said_and_the_last_survey_stays() {
    let served = ServedHome::new().await;
    let mut holder = served.spawn(&["lock", "/deploy"]);
    assert!(holder.line().starts_with("held "));
    let mut top = Terminal::run(&served.baton(&["top"]), 100);
    until("the lock is shown", || top.text().contains("/deploy"));
    drop(served.server);
    until("it is said", || top.text().contains("no server answers"));
    top.keys("q");
    assert_eq!(top.child.wait().unwrap().code(), Some(0));
    assert!(top.is_restored());
}

/// Apache ZooKeeper answers only the words that its list allows; nothing else differs.
#[tokio::test(flavor = "multi_thread")]
async fn it_follows_locks_and_deadlocks_of_an_apache_zookeeper() {
    if !zookeeper_or_skip() {
        return;
    }
    let server = TestServer::start(Target::ZooKeeper).await.unwrap();
    let served = ServedHome {
        home: CommandHome::new(),
        servers: server.connect_string(),
        server,
    };
    let client = async || Client::connect(Config::new(&served.servers).unwrap()).await;
    let (one, other) = (client().await.unwrap(), client().await.unwrap());
    let lock = |client: &Client, path: &str| Mutex::new(client, path).unwrap().name("teller");
    let _first = lock(&one, "/a").acquire().await.unwrap();
    let _second = lock(&other, "/b").acquire().await.unwrap();
    let waiting = [lock(&one, "/b"), lock(&other, "/a")]
        .map(|lock| tokio::spawn(async move { lock.acquire().await.map(|_| ()) }));
    let mut top = Terminal::run(&served.baton(&["top"]), 110);
    until("the deadlock is counted", || {
        let text = top.text();
        text.contains("(teller)") && text.contains("Deadlocks 1")
    });
    top.keys("7\r");
    until("it is unfolded", || {
        top.text().contains("2 sessions wait for each other")
    });
    top.keys("6");
    until("the server is named", || top.text().contains("standalone"));
    top.keys("q");
    assert_eq!(top.child.wait().unwrap().code(), Some(0));
    let found = served.run(&["deadlocks"]);
    assert_eq!(found.code, 1, "{found:?}");
    assert!(found.out.contains("shortest way out: ask"), "{found:?}");
    let locks = served.run(&["lock", "ls"]).out;
    let row = locks.lines().find(|line| line.starts_with("/a ")).unwrap();
    let cells: Vec<_> = row.split_whitespace().collect();
    assert_eq!(cells[2..5], ["(teller)", "1", "1"], "{locks}");
    for task in waiting {
        task.abort();
    }
}

#[test]
fn without_a_terminal_it_names_what_works_without() {
    let home = CommandHome::new();
    let refused = home.run(&["top"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.complaint().contains("baton console"), "{refused:?}");
    let refused = home.run(&["top", "--json"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("baton lock ls --json"), "{refused:?}");
    let mut dumb = home.baton(&["top"]);
    dumb.args(["--interval", "0s"]);
    assert_eq!(dumb.output().unwrap().status.code(), Some(2));
}
