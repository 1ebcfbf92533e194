//! Work that one server of several does by itself: it compares its state with the others', and only
//! the leader deletes what is due. Where states differ, which only a defect brings about, a test
//! has changed a tree behind the log's back.

use std::collections::BTreeMap;
use std::net::{TcpListener, UdpSocket};

use baton_consensus::Role;
use baton_proto::{Acl, ConnectRequest, Create, CreateMode, PASSWORD_BYTES, Request, frame};
use baton_tree::{Command, Identity};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::*;
use crate::options::EnsembleOptions;

/// A guard against waiting for ever; nothing takes as long.
const LONG: Duration = Duration::from_secs(120);

/// Each server looks for what is due this often, if it leads.
const REAP_INTERVAL: Duration = Duration::from_millis(20);

/// An address that is free, and not among those that the system gives to outgoing connections.
/// Another test that asks meanwhile gets another one.
fn free_address() -> String {
    loop {
        let address = format!("127.0.0.1:{}", fastrand::u16(15_000..28_000));
        if let Ok(held) = UdpSocket::bind(&address)
            && TcpListener::bind(&address).is_ok()
        {
            // Until the process ends.
            std::mem::forget(held);
            return address;
        }
    }
}

/// The settings of a server of several, with a port for clients that the system chooses.
fn member(server_id: u8, servers: &BTreeMap<u64, String>) -> Options {
    Options {
        listen: vec!["127.0.0.1:0".to_owned()],
        server_id,
        ensemble: Some(EnsembleOptions {
            servers: servers.clone(),
            ..EnsembleOptions::default()
        }),
        reap_interval: REAP_INTERVAL,
        ..Options::default()
    }
}

/// Addresses for three servers.
fn three_addresses() -> BTreeMap<u64, String> {
    (1..=3).map(|id| (id, free_address())).collect()
}

/// An ensemble of three servers, with their data in memory.
async fn three() -> BTreeMap<u64, Server> {
    let servers = three_addresses();
    let starting: Vec<_> = (1..=3)
        .map(|id| {
            let options = member(id, &servers);
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
async fn open_session(server: &Server) -> TcpStream {
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
            if client.write_all(&bytes).await.is_ok() && read_frame(&mut client).await.is_some() {
                return client;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, opened).await.unwrap()
}

/// The next frame's bytes; `None` when the connection is closed.
async fn read_frame(client: &mut TcpStream) -> Option<Vec<u8>> {
    let length = client.read_u32().await.ok()?;
    let mut bytes = vec![0; length as usize];
    client.read_exact(&mut bytes).await.ok()?;
    Some(bytes)
}

/// It may wait for long; the others of a client's list do not.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_waits_for_others_leaves_no_client_without_an_answer() {
    let mut options = member(1, &three_addresses());
    let address = free_address();
    options.listen = vec![address.clone()];
    let start = Server::start_with(options, Arc::new(MemoryStorage::new()));
    let start = tokio::spawn(start);
    // It listens soon, and starts never.
    let asked = async {
        for _connection in 0..3 {
            let mut client = loop {
                match TcpStream::connect(&address).await {
                    Ok(client) => break client,
                    Err(_) => sleep(Duration::from_millis(5)).await,
                }
            };
            assert_eq!(read_frame(&mut client).await, None);
        }
    };
    timeout(LONG, asked).await.unwrap();
    start.abort();
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

/// Sends a request, and awaits the answer.
async fn call(client: &mut TcpStream, request: &Request<'_>) {
    let mut bytes = Vec::new();
    frame::write_request(&mut bytes, 1, request);
    client.write_all(&bytes).await.unwrap();
    let answer = timeout(LONG, read_frame(client)).await.unwrap().unwrap();
    assert_eq!(answer.get(12..16), Some(&[0; 4][..]), "refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn r40_only_the_leader_deletes_what_is_due() {
    let servers = three().await;
    let leads = leader(&servers).await;
    let follower = *servers.keys().find(|id| **id != leads).unwrap();
    let mut client = open_session(&servers[&follower]).await;
    for (path, mode) in [
        ("/due", CreateMode::Container),
        ("/due/x", CreateMode::Persistent),
    ] {
        let acl = vec![Acl::open_unsafe()];
        let create = Create::new(path, Some(b""), acl, mode);
        call(&mut client, &Request::Create(create)).await;
    }
    let path = "/due/x";
    call(&mut client, &Request::Delete { path, version: -1 }).await;
    let nobody = Identity::anonymous();
    let has = |server: &Server| server.state.tree.read().exists("/due", &nobody).is_ok();
    let gone = async {
        while servers.values().any(has) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, gone).await.unwrap();
    for (id, server) in &servers {
        let proposed = server.state.stats.reaped.load(Relaxed);
        assert_eq!(
            proposed > 0,
            *id == leads,
            "server {id} proposed {proposed}"
        );
    }
}
