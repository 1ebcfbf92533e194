//! ACLs, each distinct list stored once and counted (protocol.md §1.6). Owns the lists and their
//! numbers, which are local to this process: neither digest nor replies may depend on them.

use baton_proto::Acl;
use hashbrown::HashTable;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::acl_list::AclList;

/// The number of a list in the table.
pub(crate) type AclId = u32;

/// The number of the list that allows everything to anyone, which most znodes have. Never freed.
pub(crate) const OPEN: AclId = 0;

#[derive(Debug)]
struct Slot {
    list: AclList,
    /// Hash of its content, by which this table finds it.
    key: u64,
    users: u32,
}

/// The table.
#[derive(Debug)]
pub(crate) struct AclTable {
    slots: Vec<Option<Slot>>,
    free: Vec<AclId>,
    by_content: HashTable<AclId>,
    /// Seed of the keys: lists of equal keys, which clients would seek, are as good as unknown.
    seed: u64,
    /// While a snapshot is under way no number may change its meaning: what becomes unused waits
    /// here.
    held: Option<Vec<AclId>>,
}

impl AclTable {
    /// A table that holds the open list only.
    pub(crate) fn new(seed: u64) -> Self {
        let mut table = Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_content: HashTable::new(),
            seed,
            held: None,
        };
        table.acquire(vec![Acl::open_unsafe()]);
        table
    }

    /// The number of this list, with one more user.
    pub(crate) fn acquire(&mut self, entries: Vec<Acl<'static>>) -> AclId {
        let mut content = Vec::new();
        Acl::encode_list(Some(&entries), &mut content);
        let key = xxh3_64_with_seed(&content, self.seed);
        let slots = &self.slots;
        let found = self.by_content.find(key, |id| {
            slot(slots, *id).is_some_and(|slot| slot.list.entries() == entries)
        });
        if let Some(id) = found.copied() {
            self.share(id);
            return id;
        }
        let new = Some(Slot {
            list: AclList::new(entries, xxh3_64(&content)),
            key,
            users: 1,
        });
        let id = match self.free.pop() {
            Some(id) => {
                if let Some(place) = self.slots.get_mut(id as usize) {
                    *place = new;
                }
                id
            }
            None => {
                self.slots.push(new);
                (self.slots.len() - 1) as AclId
            }
        };
        let slots = &self.slots;
        self.by_content
            .insert_unique(key, id, |id| slot(slots, *id).map_or(0, |slot| slot.key));
        id
    }

    /// One more user of a list that has one already.
    pub(crate) fn share(&mut self, id: AclId) {
        if let Some(Some(slot)) = self.slots.get_mut(id as usize) {
            slot.users += 1;
        }
    }

    /// One user less; a list without users goes.
    pub(crate) fn release(&mut self, id: AclId) {
        if id == OPEN {
            return;
        }
        let Some(Some(slot)) = self.slots.get_mut(id as usize) else {
            return;
        };
        slot.users = slot.users.saturating_sub(1);
        if slot.users == 0 {
            match &mut self.held {
                Some(held) => held.push(id),
                None => self.free_if_unused(id),
            }
        }
    }

    fn free_if_unused(&mut self, id: AclId) {
        let Some(slot) = slot(&self.slots, id).filter(|slot| slot.users == 0) else {
            return;
        };
        if let Ok(entry) = self.by_content.find_entry(slot.key, |other| *other == id) {
            entry.remove();
        }
        if let Some(place) = self.slots.get_mut(id as usize) {
            *place = None;
        }
        self.free.push(id);
    }

    /// The list with this number.
    #[allow(clippy::expect_used, reason = "a znode's ACL is counted as used")]
    pub(crate) fn get(&self, id: AclId) -> &AclList {
        &slot(&self.slots, id).expect("a list in use").list
    }

    /// From now on no number changes its meaning. Returns how many numbers there are.
    pub(crate) fn hold(&mut self) -> AclId {
        self.held = Some(Vec::new());
        self.slots.len() as AclId
    }

    /// Ends [`AclTable::hold`].
    pub(crate) fn let_go(&mut self) {
        for id in self.held.take().unwrap_or_default() {
            self.free_if_unused(id);
        }
    }

    /// The list with this number, if it has one.
    pub(crate) fn find(&self, id: AclId) -> Option<&AclList> {
        slot(&self.slots, id).map(|slot| &slot.list)
    }

    /// Distinct lists in use.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

fn slot(slots: &[Option<Slot>], id: AclId) -> Option<&Slot> {
    slots.get(id as usize).and_then(Option::as_ref)
}

#[cfg(test)]
mod tests {
    use baton_proto::Perms;

    use super::*;

    fn reader(user: &str) -> Vec<Acl<'static>> {
        vec![Acl::new(Perms::READ, "digest", format!("{user}:x"))]
    }

    #[test]
    fn equal_lists_share_a_number_until_the_last_user_goes() {
        let mut table = AclTable::new(7);
        let first = table.acquire(reader("a"));
        assert_eq!(table.acquire(reader("a")), first);
        assert_ne!(table.acquire(reader("b")), first);
        assert_eq!(table.len(), 3);
        table.release(first);
        table.release(first);
        assert_eq!(table.len(), 2);
        assert_eq!(table.acquire(reader("c")), first);
        assert_eq!(table.acquire(vec![Acl::open_unsafe()]), OPEN);
    }

    #[test]
    fn numbers_keep_their_meaning_while_held() {
        let mut table = AclTable::new(7);
        let first = table.acquire(reader("a"));
        table.hold();
        table.release(first);
        assert_ne!(table.acquire(reader("b")), first);
        assert_eq!(table.acquire(reader("a")), first);
        table.let_go();
        assert_eq!(table.get(first).entries(), reader("a"));
    }

    #[test]
    fn a_list_released_twice_while_held_is_freed_once() {
        let mut table = AclTable::new(7);
        let first = table.acquire(reader("a"));
        table.hold();
        table.release(first);
        table.acquire(reader("a"));
        table.release(first);
        table.let_go();
        assert_eq!(table.len(), 1);
        assert_ne!(table.acquire(reader("b")), table.acquire(reader("c")));
    }
}
