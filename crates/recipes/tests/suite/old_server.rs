//! The recipes with a server that lacks an operation: one before ZooKeeper 3.5 knows no containers.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use baton_client::OpCode;
use baton_proto::ErrorCode;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{LONG, Stage, connect, mutex, session, within};

/// Forwards frames, each with what `change` makes of it.
async fn relay(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut change: impl FnMut(Vec<u8>) -> Vec<u8>,
) {
    while let Ok(length) = from.read_u32().await {
        let mut frame = vec![0; usize::try_from(length).unwrap()];
        if from.read_exact(&mut frame).await.is_err() {
            return;
        }
        let frame = change(frame);
        let length = u32::try_from(frame.len()).unwrap().to_be_bytes();
        if to.write_all(&[&length[..], &frame].concat()).await.is_err() {
            return;
        }
    }
}

/// Starts a proxy that presents the server at `addr` as one that refuses to make containers.
async fn without_containers(addr: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (from_client, to_client) = client.into_split();
            let server = TcpStream::connect(addr).await.unwrap();
            let (from_server, to_server) = server.into_split();
            let refused = Arc::new(Mutex::new(HashSet::new()));
            let seen = Arc::clone(&refused);
            let container = OpCode::CreateContainer.code().to_be_bytes();
            tokio::spawn(relay(from_client, to_server, move |mut frame| {
                if frame.get(4..8) == Some(&container) {
                    seen.lock().unwrap().insert(frame[..4].to_vec());
                    // An `exists` of the root instead, so that the refusal comes in its turn.
                    frame.truncate(4);
                    frame.extend(OpCode::Exists.code().to_be_bytes());
                    frame.extend(b"\0\0\0\x01/\0");
                }
                frame
            }));
            tokio::spawn(relay(from_server, to_client, move |mut frame| {
                if refused.lock().unwrap().remove(&frame[..4]) {
                    frame.truncate(12);
                    frame.extend(ErrorCode::Unimplemented.code().to_be_bytes());
                }
                frame
            }));
        }
    });
    here
}

#[tokio::test]
async fn h17_a_server_that_knows_no_containers_gets_plain_directories() {
    let stage = Stage::new("old").await;
    let client = connect(without_containers(stage.addr).await, LONG).await;
    let path = format!("{}/above/lock", stage.path);
    let guard = within(mutex(&client, &path).acquire()).await.unwrap();
    let admin = session(&stage.client().await).await;
    for dir in [&stage.path, &path] {
        assert!(within(admin.exists(dir)).await.unwrap().is_some(), "{dir}");
    }
    within(guard.release()).await.unwrap();
}
