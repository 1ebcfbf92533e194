//! Servers whose states differ, which only a defect does to them: here a test changes a tree behind
//! the log's back.

use std::collections::BTreeMap;
use std::net::TcpListener;

use baton_consensus::Role;
use baton_proto::{ConnectRequest, PASSWORD_BYTES, frame};
use baton_tree::{Command, Identity};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::*;
use crate::options::EnsembleOptions;

/// A guard against waiting for ever; nothing takes as long.
const LONG: Duration = Duration::from_secs(120);

/// Three servers that are one, with their data in memory.
async fn three() -> BTreeMap<u64, Server> {
    let held: Vec<TcpListener> = (0..3)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let servers: BTreeMap<u64, String> = (1..)
        .zip(&held)
        .map(|(id, held)| (id, held.local_addr().unwrap().to_string()))
        .collect();
    drop(held);
    let starting: Vec<_> = (1..=3)
        .map(|id| {
            let options = Options {
                listen: vec!["127.0.0.1:0".to_owned()],
                server_id: id,
                ensemble: Some(EnsembleOptions {
                    servers: servers.clone(),
                    ..EnsembleOptions::default()
                }),
                ..Options::default()
            };
            let storage = Arc::new(MemoryStorage::new());
            let start = tokio::spawn(Server::start_with(options, storage));
            (u64::from(id), start)
        })
        .collect();
    let mut started = BTreeMap::new();
    for (id, start) in starting {
        let server = timeout(LONG, start).await.unwrap().unwrap().unwrap();
        started.insert(id, server);
    }
    started
}

/// The id of the server that leads.
async fn leader(servers: &BTreeMap<u64, Server>) -> u64 {
    let found = async {
        loop {
            for (id, server) in servers {
                let status = server.state.ensemble.as_ref().unwrap().lock().role;
                if status == Role::Leader {
                    return *id;
                }
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, found).await.unwrap()
}

/// Gives a server another state than the log says.
fn corrupt(server: &Server) {
    let command = Command::OpenSession {
        session_id: 0x7f00_0000_0000_0001,
        password: [7; PASSWORD_BYTES],
        timeout_ms: 60_000,
    };
    let mut tree = server.state.tree.write();
    tree.apply(1, 0, &Identity::anonymous(), command, &mut ());
}

/// Opens a session, which is an entry of the log: states are those after entries. A server that has
/// no leader for the moment closes the connection, and is asked again.
async fn open_session(server: &Server) {
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        timeout_ms: 30_000,
        session_id: 0,
        password: &[0; 16],
        read_only: None,
    };
    let mut bytes = Vec::new();
    frame::write_connect_request(&mut bytes, &request);
    let opened = async {
        loop {
            let mut client = TcpStream::connect(server.local_addr().unwrap())
                .await
                .unwrap();
            let mut answer = [0; 4];
            if client.write_all(&bytes).await.is_ok()
                && client.read_exact(&mut answer).await.is_ok()
            {
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, opened).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn r39_a_follower_with_another_state_stops_and_the_others_go_on() {
    let servers = three().await;
    let leads = leader(&servers).await;
    let wrong = *servers.keys().find(|id| **id != leads).unwrap();
    corrupt(&servers[&wrong]);
    open_session(&servers[&leads]).await;
    let why = timeout(LONG, servers[&wrong].failed()).await.unwrap();
    assert!(matches!(why, ServerError::Diverged { .. }), "{why}");
    // Both others serve.
    for (id, server) in &servers {
        if *id != wrong {
            open_session(server).await;
        }
    }
    let found = &servers[&leads].state.stats.digest_mismatches;
    assert!(found.load(Relaxed) > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn r39_a_leader_with_another_state_stops_and_another_leads() {
    let mut servers = three().await;
    let wrong = leader(&servers).await;
    corrupt(&servers[&wrong]);
    let other = *servers.keys().find(|id| **id != wrong).unwrap();
    open_session(&servers[&other]).await;
    let why = timeout(LONG, servers[&wrong].failed()).await.unwrap();
    assert!(matches!(why, ServerError::Diverged { .. }), "{why}");
    servers.remove(&wrong);
    assert_ne!(leader(&servers).await, wrong);
    for server in servers.values() {
        open_session(server).await;
    }
}
