//! Batches that a leader is about to put into the log. Owns their order: what the leader does by
//! itself goes first, such as the ends of sessions; then the servers take turns, each with the
//! batches of its clients in their order. Holds them back while much is not committed: what is in
//! the log can be overtaken by nothing.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

use baton_peers::net::FramePermit;
use bytes::Bytes;

use crate::core::batches::backlog::ENTRY_BYTES;

/// Batches of clients that may be in the log and not committed where they have more than
/// [`ENTRY_BYTES`].
const LARGE_BATCHES: usize = 2;

/// Batches of one server, oldest first, with what they hold of the transport's memory.
type Batches = VecDeque<(Bytes, Option<FramePermit>)>;

/// Batches that this leader is about to propose.
#[derive(Debug, Default)]
pub(crate) struct Proposals {
    own: VecDeque<Bytes>,
    /// Batches of clients, by the server that made them; no queue is empty.
    of_servers: BTreeMap<u64, Batches>,
    /// The server that has had its turn.
    last: u64,
    /// Index and bytes of batches that are not known to be committed, oldest first.
    uncommitted: VecDeque<(u64, usize)>,
    uncommitted_bytes: usize,
}

impl Proposals {
    /// Forgets everything: this server leads no more, or in another term.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Adds what the leader does by itself.
    pub(crate) fn push_own(&mut self, payload: Bytes) {
        self.own.push_back(payload);
    }

    /// Adds a batch of clients of `server`.
    pub(crate) fn push(&mut self, server: u64, payload: Bytes, held: Option<FramePermit>) {
        let batches = self.of_servers.entry(server).or_default();
        batches.push_back((payload, held));
    }

    /// Returns the batch that is proposed next, if one may be.
    pub(crate) fn next(&self) -> Option<&Bytes> {
        if let Some(own) = self.own.front() {
            return Some(own);
        }
        let is_full =
            self.uncommitted.len() >= LARGE_BATCHES && self.uncommitted_bytes >= ENTRY_BYTES;
        let batches = self.of_servers.get(&self.next_server()?)?;
        batches
            .front()
            .filter(|_| !is_full)
            .map(|(payload, _)| payload)
    }

    /// The server whose turn it is.
    fn next_server(&self) -> Option<u64> {
        let mut behind = self.of_servers.range((Excluded(self.last), Unbounded));
        let next = behind.next().or_else(|| self.of_servers.first_key_value());
        next.map(|(server, _)| *server)
    }

    /// The next one has been proposed, as the entry of this index.
    pub(crate) fn proposed(&mut self, index: u64) {
        let bytes = self.next().map_or(0, Bytes::len);
        self.uncommitted.push_back((index, bytes));
        self.uncommitted_bytes += bytes;
        self.drop_next();
    }

    /// The next one is not to be proposed any more.
    pub(crate) fn drop_next(&mut self) {
        if self.own.pop_front().is_some() {
            return;
        }
        let Some(server) = self.next_server() else {
            return;
        };
        self.last = server;
        if let Some(batches) = self.of_servers.get_mut(&server) {
            batches.pop_front();
            if batches.is_empty() {
                self.of_servers.remove(&server);
            }
        }
    }

    /// Everything up to this index is committed.
    pub(crate) fn committed(&mut self, commit: u64) {
        while let Some((index, bytes)) = self.uncommitted.front()
            && *index <= commit
        {
            self.uncommitted_bytes -= bytes;
            self.uncommitted.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(server: u8, bytes: usize) -> Bytes {
        Bytes::from(vec![server; bytes])
    }

    /// Proposes what may be proposed, from `index` on; the first byte of each.
    fn propose(proposals: &mut Proposals, index: &mut u64) -> Vec<u8> {
        let mut servers = Vec::new();
        while let Some(next) = proposals.next() {
            servers.push(next[0]);
            *index += 1;
            proposals.proposed(*index);
        }
        servers
    }

    #[test]
    fn a_server_whose_clients_write_little_waits_for_two_large_batches() {
        let mut proposals = Proposals::default();
        let mut index = 0;
        for _ in 0..10 {
            proposals.push(1, payload(1, ENTRY_BYTES), None);
            proposals.push(3, payload(3, ENTRY_BYTES), None);
        }
        assert_eq!(propose(&mut proposals, &mut index), [1, 3]);
        proposals.push(2, payload(2, 10), None);
        assert!(propose(&mut proposals, &mut index).is_empty());
        proposals.committed(1);
        assert_eq!(propose(&mut proposals, &mut index), [1]);
        proposals.committed(2);
        assert_eq!(propose(&mut proposals, &mut index), [2]);
        proposals.committed(3);
        assert_eq!(propose(&mut proposals, &mut index), [3]);
    }

    #[test]
    fn the_leaders_own_entries_wait_for_nothing() {
        let mut proposals = Proposals::default();
        let mut index = 0;
        for _ in 0..10 {
            proposals.push(1, payload(1, 2 * ENTRY_BYTES), None);
        }
        assert_eq!(propose(&mut proposals, &mut index), [1, 1]);
        proposals.push_own(payload(9, 10));
        assert_eq!(propose(&mut proposals, &mut index), [9]);
    }

    #[test]
    fn small_batches_go_at_once_and_each_servers_in_order() {
        let mut proposals = Proposals::default();
        let mut index = 0;
        for number in 0..100 {
            proposals.push(1, payload(number, 10), None);
        }
        proposals.push(2, payload(200, 10), None);
        let proposed = propose(&mut proposals, &mut index);
        assert_eq!(proposed[1], 200);
        assert!(proposed.iter().filter(|it| **it != 200).copied().eq(0..100));
        proposals.committed(index);
        assert_eq!(proposals.uncommitted_bytes, 0);
        assert!(proposals.of_servers.is_empty() && proposals.uncommitted.is_empty());
    }
}
