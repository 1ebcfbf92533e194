//! How many sessions each client has, as limits count clients. Sessions of unix sockets, and those
//! whose client is not known at this server, count in none.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::connections::peer::PeerGroup;

/// Sessions of each client.
#[derive(Debug, Default)]
pub(crate) struct SessionCounts {
    of: HashMap<PeerGroup, usize, RandomState>,
}

impl SessionCounts {
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

    pub(crate) fn clear(&mut self) {
        self.of.clear();
    }
}
