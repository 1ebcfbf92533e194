//! Received bytes that the owner holds: their limit, and what the owner receives meanwhile.

use std::time::Duration;

use baton_peers::codec::{Frame, Lane};
use baton_peers::handshake::LocalServer;
use baton_peers::net::PeerEvent;
use tokio::time::{Instant, sleep};

use crate::connections::{append, disconnected, frame, heartbeat};
use crate::memory::{Network, Server, incarnation, options, pair};

/// An owner that does not keep up is not flooded: beyond the limit nothing is read, and heartbeats
/// still arrive.
#[tokio::test(start_paused = true)]
async fn received_bytes_that_the_owner_holds_have_a_limit() {
    let network = Network::default();
    let (one, mut two) = pair(&network).await;
    let mut held = Vec::new();
    let mut bytes = 0;
    loop {
        // As much as there is room for.
        while one.peers.send_raft([append(1, 2, 1 << 20)]).is_empty() {}
        sleep(Duration::from_millis(100)).await;
        let mut arrived = 0;
        for event in two.so_far() {
            if let PeerEvent::Frame { held: guard, .. } = event {
                held.push(guard);
                arrived += 1 << 20;
            }
        }
        if arrived == 0 {
            break;
        }
        bytes += arrived;
        assert!(bytes <= 32 << 20);
    }
    assert!(bytes >= 30 << 20, "{bytes}");
    assert_eq!(one.peers.send_raft([heartbeat(1, 2, 1)]), []);
    let (link, _) = two.until(frame).await;
    assert_eq!(link.lane, Lane::Urgent);
    // That the owner is slow is no reason to end a connection.
    sleep(Duration::from_secs(60)).await;
    assert!(
        two.so_far()
            .into_iter()
            .filter_map(disconnected)
            .next()
            .is_none()
    );
    held.clear();
    let (link, _) = two.until(frame).await;
    assert_eq!(link.lane, Lane::Log);
}

/// Frames of one read that are more than the owner may hold: it receives the first ones before the
/// reader waits, or it would never release them.
#[tokio::test(start_paused = true)]
async fn the_owner_handles_the_first_frames_of_a_read_before_the_next_wait_for_room() {
    let network = Network::default();
    let one = Server::start(&network, 1, 2);
    let mut options = options(2);
    options.limits.inbound_urgent_bytes = 1;
    let local = LocalServer::new(2, incarnation(2), 1);
    let mut two = Server::start_as(&network, local, options, 2);
    while !one.peers.open_lanes(2).contains(&Lane::Urgent) {
        sleep(Duration::from_millis(1)).await;
    }
    let begun = Instant::now();
    for term in 1..=5 {
        assert_eq!(one.peers.send_raft([heartbeat(1, 2, term)]), []);
    }
    for term in 1..=5 {
        let (_, received) = two.until(frame).await;
        assert_eq!(received, Frame::Raft(vec![heartbeat(1, 2, term)]));
    }
    // The next sign of life on any connection would hand them over, too.
    assert_eq!(begun.elapsed(), Duration::ZERO);
}
