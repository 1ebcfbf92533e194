//! Numbers of connections and sessions of each client, as limits count clients. Those of unix
//! sockets, and sessions whose client is not known at this server, count in none.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::connections::peer::PeerGroup;

/// A number for each client.
#[derive(Debug, Default)]
pub(crate) struct ClientCounts {
    of: HashMap<PeerGroup, usize, RandomState>,
}

impl ClientCounts {
    pub(crate) fn add(&mut self, client: PeerGroup) {
        if client.is_counted() {
            *self.of.entry(client).or_insert(0) += 1;
        }
    }

    pub(crate) fn remove(&mut self, client: PeerGroup) {
        if let Entry::Occupied(mut count) = self.of.entry(client) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    pub(crate) fn of(&self, client: PeerGroup) -> usize {
        self.of.get(&client).copied().unwrap_or(0)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.of.clear();
    }
}
