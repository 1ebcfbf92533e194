//! While a server starts, HTTP shows that it lives, that it is not ready, and how far it is.

use std::net::SocketAddr;
use std::sync::Arc;

use baton_server::{Options, Server, StartError};
use tokio::net::TcpStream;

use crate::support::ensemble::free_address;
use crate::support::gate::{Gate, GatedStorage};
use crate::support::{PATIENCE, Wire, http, in_memory};

fn options(http: SocketAddr) -> Options {
    in_memory().http(http.to_string()).options().clone()
}

async fn answers(to: SocketAddr) {
    let answers = async {
        while TcpStream::connect(to).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, answers).await.unwrap();
}

#[tokio::test]
async fn a_server_that_reads_its_data_is_alive_and_not_ready_and_says_what_it_does() {
    let gate = Gate::default();
    let storage = GatedStorage::new(&gate);
    let first = Server::start_with(options(free_address()), Arc::new(storage.clone()))
        .await
        .unwrap();
    let mut wire = Wire::open(&first.connect_string()).await;
    wire.create("/kept", b"", 0).await.unwrap();
    first.shutdown().await.unwrap();

    let shut = gate.shut();
    let to = free_address();
    let starting = tokio::spawn(Server::start_with(options(to), Arc::new(storage)));
    answers(to).await;
    let stage = "the server starts: reading the log\n".to_owned();
    assert_eq!(http::get(to, "/healthz").await, (200, stage.clone()));
    for path in ["/readyz", "/metrics"] {
        assert_eq!(http::get(to, path).await, (503, stage.clone()), "{path}");
    }
    let (status, answer) = http::get(to, "/commands/monitor").await;
    assert_eq!(status, 503);
    assert!(answer.contains(stage.trim()), "{answer}");
    assert!(!starting.is_finished());

    drop(shut);
    let server = tokio::time::timeout(PATIENCE, starting).await;
    let server = server.unwrap().unwrap().unwrap();
    assert_eq!(server.http_addr(), Some(to));
    for path in ["/healthz", "/readyz"] {
        assert_eq!(http::get(to, path).await, (200, "ok\n".to_owned()));
    }
    assert_eq!(http::get(to, "/metrics").await.0, 200);
    let mut wire = Wire::open(&server.connect_string()).await;
    assert!(wire.exists("/kept").await);
}

#[tokio::test]
async fn a_start_that_fails_or_is_given_up_leaves_no_http_behind() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("FORMAT"), "no format of ours").unwrap();
    let to = free_address();
    let start = Server::builder()
        .data_dir(folder.path())
        .http(to.to_string())
        .start();
    assert!(matches!(start.await.unwrap_err(), StartError::Log(_)));
    gone(to).await;

    let gate = Gate::default();
    let shut = gate.shut();
    let to = free_address();
    let storage = Arc::new(GatedStorage::new(&gate));
    let starting = tokio::spawn(Server::start_with(options(to), storage));
    answers(to).await;
    starting.abort();
    gone(to).await;
    drop(shut);
}

async fn gone(to: SocketAddr) {
    let gone = async {
        while TcpStream::connect(to).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
}
