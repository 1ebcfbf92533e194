//! Changes of one znode. Owns what goes with each of them: the digest, the indexes of ephemerals,
//! containers and TTL znodes, the snapshot under way, and the way back.

use crate::arena::{LastWrite, NodeId};
use crate::digest;
use crate::kind::Kind;
use crate::recorder::{Recorder, Undo};
use crate::sessions::Ephemeral;
use crate::tree::Tree;

impl Tree {
    /// Puts other data into a znode.
    pub(crate) fn replace_data(
        &mut self,
        path: &str,
        id: NodeId,
        data: Option<&[u8]>,
        recorder: &mut impl Recorder,
        write: LastWrite,
    ) {
        self.save(id);
        let hash = digest::hash_path(path);
        let node = self.arena.node(id);
        self.digest.remove(digest::data_term(hash, node));
        if let Some(journal) = recorder.journal() {
            let before = node.last_write();
            let old = self.arena.swap_data(id, data);
            journal.push(Undo::Set { id, old, before });
        } else {
            self.arena.set_data(id, data);
        }
        self.arena.note_write(id, write);
        self.digest
            .add(digest::data_term(hash, self.arena.node(id)));
    }

    /// Sets the time back to `to_ms` where it is ahead of that, and with it the date of each znode
    /// that is later: it was made while time was ahead, and would be due by that time. Looks at
    /// every znode. Returns how many it has changed.
    pub fn reset_time(&mut self, to_ms: i64) -> usize {
        let mut later = Vec::new();
        // It fails for none.
        let _ = self.arena.walk(|path, id, node| {
            if node.details().mtime > to_ms || node.ctime() > to_ms {
                later.push((digest::hash_path(path), id));
            }
            Ok::<(), std::convert::Infallible>(())
        });
        for (hash, id) in &later {
            self.save(*id);
            self.digest
                .remove(digest::data_term(*hash, self.arena.node(*id)));
            self.arena.limit_times(*id, to_ms);
            self.digest
                .add(digest::data_term(*hash, self.arena.node(*id)));
        }
        self.time_ms = self.time_ms.min(to_ms);
        later.len()
    }

    /// Before a change of a znode's ACL, count of creates or pzxid.
    pub(crate) fn begin_family_change(&mut self, path: &str, id: NodeId) {
        self.save(id);
        let term = self.family_term(digest::hash_path(path), self.arena.node(id));
        self.digest.remove(term);
    }

    /// After that change.
    pub(crate) fn end_family_change(&mut self, path: &str, id: NodeId) {
        let term = self.family_term(digest::hash_path(path), self.arena.node(id));
        self.digest.add(term);
    }

    /// Enters a znode where its kind is looked up.
    pub(crate) fn note_kind(&mut self, kind: Kind, id: NodeId) {
        match kind {
            Kind::Persistent => {}
            Kind::Ephemeral(session) => {
                let ephemeral = Ephemeral::new(id, self.arena.node(id));
                self.sessions.add_ephemeral(session, ephemeral);
            }
            Kind::Container | Kind::Ttl(_) => {
                self.reaped.insert(id);
            }
        }
    }

    /// Undoes [`Tree::note_kind`].
    pub(crate) fn forget_kind(&mut self, kind: Kind, id: NodeId) {
        match kind {
            Kind::Persistent => {}
            Kind::Ephemeral(session) => {
                let ephemeral = Ephemeral::new(id, self.arena.node(id));
                self.sessions.remove_ephemeral(session, ephemeral);
            }
            Kind::Container | Kind::Ttl(_) => {
                self.reaped.remove(&id);
            }
        }
    }

    /// Adds a new znode's terms to the digest.
    pub(crate) fn count_in(&mut self, path: &str, id: NodeId) {
        let hash = digest::hash_path(path);
        let node = self.arena.node(id);
        self.digest.add(digest::data_term(hash, node));
        self.digest.add(self.family_term(hash, node));
    }

    /// Takes a znode's terms out of the digest.
    pub(crate) fn count_out(&mut self, path: &str, id: NodeId) {
        let hash = digest::hash_path(path);
        let node = self.arena.node(id);
        self.digest.remove(digest::data_term(hash, node));
        self.digest.remove(self.family_term(hash, node));
    }
}
