//! `baton console` and `baton deadlocks`. On Baton's server, or with BATON_TEST_TARGET=zookeeper on
//! Apache ZooKeeper.

use std::io::{Read, Write};
use std::net::TcpStream;

use baton::Mutex;
use baton_client::{Client, Config};

use crate::common::{ServedHome, until};

/// A session of its own.
async fn client(served: &ServedHome) -> Client {
    let config = Config::new(&served.servers).unwrap();
    Client::connect(config).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_is_printed_with_a_way_out_and_none_is_nothing() {
    let served = ServedHome::new().await;
    let none = served.run(&["deadlocks"]);
    assert_eq!((none.code, none.out.as_str()), (0, ""), "{none:?}");
    let (one, other) = (client(&served).await, client(&served).await);
    let lock = |client: &Client, path: &str| Mutex::new(client, path).unwrap().name("teller");
    let first = lock(&one, "/a").acquire().await.unwrap();
    let second = lock(&other, "/b").acquire().await.unwrap();
    let waiting = [lock(&one, "/b"), lock(&other, "/a")]
        .map(|lock| tokio::spawn(async move { lock.acquire().await.map(|_| ()) }));
    until("the deadlock is found", || {
        served.run(&["deadlocks"]).code == 1
    });
    let found = served.run(&["deadlocks"]).out;
    assert!(found.contains("2 sessions wait for each other"), "{found}");
    assert!(
        found.contains("(teller)") && found.contains("shortest way out: ask"),
        "{found}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&served.run(&["deadlocks", "--json"]).out).unwrap();
    assert_eq!(json["steps"].as_array().unwrap().len(), 2);
    first.release().await.unwrap();
    until("it is over", || served.run(&["deadlocks"]).code == 0);
    drop(second);
    for task in waiting {
        task.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_console_is_for_those_who_have_the_link_and_on_this_machine() {
    let served = ServedHome::new().await;
    let refused = served.run(&["console", "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.complaint().contains("this machine only"));
    let mut console = served.spawn(&["console", "--listen", "127.0.0.1:0", "--json"]);
    let said: serde_json::Value = serde_json::from_str(&console.line()).unwrap();
    let url = said["url"].as_str().unwrap();
    let (address, token) = url
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once("/#token="))
        .unwrap();
    let ask = |path: &str, token: &str| {
        let mut socket = TcpStream::connect(address).unwrap();
        write!(
            socket,
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ask("/", "").contains("<title>Baton console</title>"));
    assert!(ask("/console/api/node?path=/", "").starts_with("HTTP/1.1 401"));
    let wrong = token.replace(|digit: char| digit != '0', "0");
    assert!(ask("/console/api/node?path=/", &wrong).starts_with("HTTP/1.1 401"));
    assert!(ask("/console/api/node?path=/", token).contains(r#""children":["#));
    assert!(ask("/console/api/who", token).contains(r#""may_act":true"#));
    console.signal("INT");
    assert_eq!(console.end().code, 128 + 2);
}
