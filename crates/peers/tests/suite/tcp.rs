//! The same over TCP, on loopback.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use baton_peers::codec::{Frame, Lane, Touch};
use baton_peers::handshake::LocalServer;
use baton_peers::net::{Exposure, PeerEvent, PeerEvents, Peers, TcpAcceptor, TcpConnector};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::memory::{incarnation, options};

struct Channel(mpsc::UnboundedSender<PeerEvent>);

impl PeerEvents for Channel {
    fn event(&self, event: PeerEvent) {
        let _ = self.0.send(event);
    }
}

/// A guard against waiting for ever; nothing takes as long.
async fn next(events: &mut mpsc::UnboundedReceiver<PeerEvent>) -> PeerEvent {
    let next = timeout(Duration::from_secs(120), events.recv());
    next.await.unwrap().unwrap()
}

#[tokio::test]
async fn servers_connect_over_tcp_and_notice_the_end_of_a_process() {
    let mut addresses = BTreeMap::new();
    let mut servers = Vec::new();
    for id in [1, 2] {
        let acceptor = TcpAcceptor::bind("127.0.0.1:0", Exposure::LoopbackOnly)
            .await
            .unwrap();
        addresses.insert(id, acceptor.local_addr().unwrap().to_string());
        let (sender, events) = mpsc::unbounded_channel();
        let local = LocalServer::new(id, incarnation(id), id);
        let events_to = Arc::new(Channel(sender));
        let peers = Peers::start(options(id), local, TcpConnector, acceptor, events_to);
        servers.push((peers, events));
    }
    for (peers, _) in &servers {
        peers.set_addresses(&addresses);
    }
    let (two, mut two_events) = servers.pop().unwrap();
    let (one, mut one_events) = servers.pop().unwrap();
    let mut open = 0;
    while open < 6 {
        if let PeerEvent::Connected { .. } = next(&mut one_events).await {
            open += 1;
        }
    }
    assert_eq!(one.open_lanes(2).len(), Lane::ALL.len());
    let touch = Frame::Touch(Touch {
        batch: 1,
        sessions: (0..10_000).collect(),
    });
    one.send(2, touch.clone()).unwrap();
    loop {
        if let PeerEvent::Frame { frame, .. } = next(&mut two_events).await {
            assert_eq!(frame, touch);
            break;
        }
    }
    two.stop().await;
    loop {
        if let PeerEvent::Gone { peer } = next(&mut one_events).await {
            assert_eq!(peer, 2);
            break;
        }
    }
}
