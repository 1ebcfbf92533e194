//! Servers that are dialled, with their addresses: those that the owner names, and for a time those
//! that have connected and that this server does not know yet, because its membership lags (R41).

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::codec::{CloseReason, Hello};
use crate::net::events::Direction;
use crate::net::peer::Peer;
use crate::net::shared::TransportState;

/// Starts the diallers of one peer, at an address that may change; they end when the second
/// receiver says so.
pub(crate) type StartDiallers =
    dyn Fn(Arc<Peer>, &watch::Receiver<String>, &watch::Receiver<bool>) + Send + Sync;

/// Owns the diallers.
pub(crate) struct Diallers {
    shared: Arc<TransportState>,
    dial: Box<StartDiallers>,
    lists: Mutex<Lists>,
}

#[derive(Default)]
struct Lists {
    /// Servers that the owner names.
    named: BTreeMap<u64, String>,
    /// Hellos of servers that this one may have to call back; at most one for each id.
    unknown: BTreeMap<u64, Hello>,
    dialled: BTreeMap<u64, DialledPeer>,
}

/// A peer that is connected to.
struct DialledPeer {
    address: watch::Sender<String>,
    removed: watch::Sender<bool>,
}

impl Diallers {
    /// Dials nobody yet.
    pub(crate) fn new(shared: Arc<TransportState>, dial: Box<StartDiallers>) -> Diallers {
        Diallers {
            shared,
            dial,
            lists: Mutex::default(),
        }
    }

    /// The owner names the servers to connect to.
    pub(crate) fn name(&self, addresses: &BTreeMap<u64, String>) {
        self.shared.set_addresses(addresses);
        let mut lists = self.lists.lock();
        addresses.clone_into(&mut lists.named);
        self.dial_listed(&mut lists);
    }

    /// A server has connected, and said this.
    pub(crate) fn connected_from(&self, hello: &Hello) {
        if !self.shared.local.lock().calls_back(hello) {
            return;
        }
        let mut lists = self.lists.lock();
        lists.unknown.insert(hello.from, hello.clone());
        self.dial_listed(&mut lists);
    }

    /// Notes that this server's knowledge of the members has changed.
    pub(crate) fn members_changed(&self) {
        let mut lists = self.lists.lock();
        if !lists.unknown.is_empty() {
            self.dial_listed(&mut lists);
        }
    }

    /// Dials who is listed, and ends the connections to others. Those to a server that moves stay.
    fn dial_listed(&self, lists: &mut Lists) {
        let own = {
            let local = self.shared.local.lock();
            lists.unknown.retain(|_, hello| local.calls_back(hello));
            local.id
        };
        let mut addresses = lists.named.clone();
        for (id, hello) in &lists.unknown {
            addresses.insert(*id, hello.address.clone());
        }
        addresses.remove(&own);
        let unknown = &lists.unknown;
        lists.dialled.retain(|id, known| {
            if let Some(address) = addresses.get(id) {
                let is_new = *known.address.borrow() != *address;
                // Who has the id of a member and another data folder has not moved.
                if !is_new || !unknown.contains_key(id) {
                    known.address.send_if_modified(|known| {
                        known.clone_from(address);
                        is_new
                    });
                    return true;
                }
            }
            let _ = known.removed.send(true);
            if let Some(peer) = self.shared.known_peer(*id) {
                peer.end_where(CloseReason::Removed, |link, _| {
                    link.direction == Direction::Outbound
                });
            }
            false
        });
        for (id, address) in addresses {
            if lists.dialled.contains_key(&id) {
                continue;
            }
            let removed = watch::Sender::new(false);
            let address = watch::Sender::new(address);
            let peer = self.shared.peer(id);
            (self.dial)(peer, &address.subscribe(), &removed.subscribe());
            lists.dialled.insert(id, DialledPeer { address, removed });
        }
    }
}
