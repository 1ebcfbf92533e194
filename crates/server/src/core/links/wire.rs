//! Interface of the core to the connections of the other servers. A server has
//! [`Peers`](baton_peers::net::Peers), a simulation has links of its own.

use std::collections::BTreeMap;
use std::fmt;

use baton_consensus::PeerMessage;
use baton_peers::codec::Frame;
use baton_peers::handshake::LocalServer;
use baton_peers::net::{Peers, SendError, Unsent};

/// The connections to the other servers. Its calls do not block.
pub(crate) trait Wire: fmt::Debug + Send + Sync {
    /// Sends messages of the consensus; returns what was not sent.
    fn send_raft(&self, messages: Vec<PeerMessage>) -> Vec<Unsent>;

    /// Sends a frame, after those that wait for the same server and lane.
    ///
    /// # Errors
    /// [`SendError`]: the frame was not queued.
    fn send(&self, to: u64, frame: Frame) -> Result<(), SendError>;

    /// Changes what this server says of itself, and knows of the members.
    fn update_local(&self, change: &mut dyn FnMut(&mut LocalServer));

    /// The servers to connect to, by id. Connections to others end.
    fn set_addresses(&self, addresses: &BTreeMap<u64, String>);
}

impl Wire for Peers {
    fn send_raft(&self, messages: Vec<PeerMessage>) -> Vec<Unsent> {
        Peers::send_raft(self, messages)
    }

    fn send(&self, to: u64, frame: Frame) -> Result<(), SendError> {
        Peers::send(self, to, frame)
    }

    fn update_local(&self, change: &mut dyn FnMut(&mut LocalServer)) {
        Peers::update_local(self, change);
    }

    fn set_addresses(&self, addresses: &BTreeMap<u64, String>) {
        Peers::set_addresses(self, addresses);
    }
}

/// The wire of a server that stands alone.
#[derive(Debug)]
pub(crate) struct NoPeers;

impl Wire for NoPeers {
    fn send_raft(&self, messages: Vec<PeerMessage>) -> Vec<Unsent> {
        let unsent = |message: PeerMessage| Unsent {
            to: message.to,
            kind: message.kind,
            error: SendError::NotConnected,
        };
        messages.into_iter().map(unsent).collect()
    }

    fn send(&self, _: u64, _: Frame) -> Result<(), SendError> {
        Err(SendError::NotConnected)
    }

    fn update_local(&self, _: &mut dyn FnMut(&mut LocalServer)) {}

    fn set_addresses(&self, _: &BTreeMap<u64, String>) {}
}
