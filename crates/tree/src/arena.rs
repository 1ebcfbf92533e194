//! The znodes in memory: a slab of fixed-size records that know their name but not their path, one
//! index from (parent, name) to record, and links between siblings. Owns memory layout and links;
//! knows no rule of the protocol. Numbers of znodes are local to this process: neither digest nor
//! replies may depend on them.
//!
//! A leaf takes 48 bytes in the slab, about 10 in the index, and a slot for name and data together
//! ([`crate::payloads`]). What most leaves have not ([`Details`]), and what only parents need
//! ([`Family`]), are records of their own, made when they are first needed. The names of many
//! children are kept in blocks, too.

use std::collections::BTreeMap;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::acl_table::AclId;
use crate::child_names::{ChildListing, NameBlocks, Sibling};
use crate::executor::{Executor, Piece};
use crate::payloads::Payloads;
use crate::record::{Details, NONE};
pub(crate) use crate::record::{Family, LastWrite, NewNode, NodeId, Payload, Record, Total};

/// The number of `/`.
pub(crate) const ROOT: NodeId = 0;

/// The index is split so that growing it never moves more than a small part at once.
const SHARDS: usize = 64;

/// Children from which on a znode has [`NameBlocks`], and below which it has none any more.
pub(crate) const MANY_CHILDREN: u32 = 4096;
const FEW_CHILDREN: u32 = MANY_CHILDREN / 2;

/// One znode.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node<'a> {
    arena: &'a Arena,
    record: &'a Record,
}

impl<'a> Node<'a> {
    pub(crate) const fn czxid(self) -> i64 {
        self.record.czxid
    }

    pub(crate) const fn ctime(self) -> i64 {
        self.record.ctime
    }

    pub(crate) const fn acl(self) -> AclId {
        self.record.acl
    }

    pub(crate) const fn parent(self) -> NodeId {
        self.record.parent
    }

    pub(crate) fn details(self) -> Details {
        self.arena.details_of(self.record)
    }

    pub(crate) fn last_write(self) -> LastWrite {
        let Details {
            mzxid,
            mtime,
            version,
            ..
        } = self.details();
        LastWrite {
            mzxid,
            mtime,
            version,
        }
    }

    pub(crate) fn name(self) -> &'a [u8] {
        self.arena.name_of(self.record)
    }

    pub(crate) fn data(self) -> Option<&'a [u8]> {
        let payload = &self.record.payload;
        let bytes = self.arena.payloads.get(payload.id, payload.len());
        payload
            .has_data()
            .then(|| bytes.get(payload.name_len as usize..).unwrap_or_default())
    }

    pub(crate) const fn data_len(self) -> usize {
        self.record.payload.data_len()
    }
}

/// The znodes.
#[derive(Debug)]
pub(crate) struct Arena {
    slots: Vec<Option<Record>>,
    free: Vec<NodeId>,
    payloads: Payloads,
    details: Vec<Details>,
    free_details: Vec<u32>,
    families: Vec<Family>,
    free_families: Vec<u32>,
    index: Box<[HashTable<NodeId>; SHARDS]>,
    /// Seed of the index, which is never iterated: replicas differ in it.
    seed: u64,
    /// The names of the children of znodes that have many.
    names: BTreeMap<NodeId, NameBlocks>,
    payload_bytes: usize,
}

impl Arena {
    /// An arena with `/` in it.
    pub(crate) fn new(root: NewNode, data: Option<&[u8]>, seed: u64) -> Self {
        let mut arena = Self::vacant(seed);
        arena.place(root, NONE, b"", data);
        arena
    }

    /// An arena without anything, to be filled by [`Arena::place`], `/` first.
    pub(crate) fn vacant(seed: u64) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            payloads: Payloads::new(),
            details: Vec::new(),
            free_details: Vec::new(),
            families: Vec::new(),
            free_families: Vec::new(),
            index: Box::new([const { HashTable::new() }; SHARDS]),
            seed,
            names: BTreeMap::new(),
            payload_bytes: 0,
        }
    }

    /// Makes room for `nodes` more znodes at once, which avoids moving them as the arena grows.
    pub(crate) fn reserve(&mut self, nodes: usize) {
        self.slots.reserve_exact(nodes);
        let per_shard = nodes / SHARDS;
        let names = Names::of(&self.slots, &self.payloads, self.seed);
        for shard in self.index.iter_mut() {
            shard.reserve(per_shard, |id| names.hash(*id));
        }
    }

    /// Stores a znode without linking it. `parent` may be any number until [`Arena::adopt`].
    pub(crate) fn place(
        &mut self,
        new: NewNode,
        parent: NodeId,
        name: &[u8],
        data: Option<&[u8]>,
    ) -> NodeId {
        let mut record = Record {
            czxid: new.czxid,
            ctime: new.ctime,
            payload: self.store_payload(name, data),
            parent,
            next: NONE,
            prev: NONE,
            acl: new.acl,
            details: NONE,
        };
        let details = Details {
            mzxid: new.mzxid,
            mtime: new.mtime,
            owner: new.owner,
            version: new.version,
            aversion: new.aversion,
            birth: new.birth,
            family: NONE,
        };
        if details != Details::of(&record) {
            record.details = self.store_details(details);
        }
        self.payload_bytes += record.payload.len();
        self.occupy(record)
    }

    fn store_payload(&mut self, name: &[u8], data: Option<&[u8]>) -> Payload {
        let id = self.payloads.store(name, data.unwrap_or_default());
        Payload::new(id, name, data)
    }

    fn store_details(&mut self, details: Details) -> u32 {
        let Some(place) = self.free_details.pop() else {
            self.details.push(details);
            return (self.details.len() - 1) as u32;
        };
        if let Some(slot) = self.details.get_mut(place as usize) {
            *slot = details;
        }
        place
    }

    fn occupy(&mut self, record: Record) -> NodeId {
        if let Some(id) = self.free.pop() {
            if let Some(slot) = self.slots.get_mut(id as usize) {
                *slot = Some(record);
            }
            id
        } else {
            self.slots.push(Some(record));
            (self.slots.len() - 1) as NodeId
        }
    }

    /// Puts a stored znode under a parent, after its other children. The parent has none of this
    /// name. The totals and the names of the parent are left to [`Arena::complete`].
    pub(crate) fn adopt(&mut self, parent: NodeId, id: NodeId) {
        self.link(parent, id);
        self.enter(id);
    }

    /// [`Arena::adopt`] of a znode that is in the index, or will be by [`Arena::enter_all`].
    pub(crate) fn link(&mut self, parent: NodeId, id: NodeId) {
        let family = self.family_mut(parent);
        let last = family.last;
        family.last = id;
        family.num_children += 1;
        if last == NONE {
            family.first = id;
        } else {
            self.record_mut(last).next = id;
        }
        let node = self.record_mut(id);
        node.parent = parent;
        node.prev = last;
        node.next = NONE;
    }

    /// Notes the parent of a stored znode, for [`Arena::enter_all`].
    pub(crate) fn set_parent(&mut self, id: NodeId, parent: NodeId) {
        self.record_mut(id).parent = parent;
    }

    /// Enters every znode but `/` into the empty index. Returns `false` where two have one parent
    /// and one name.
    pub(crate) fn enter_all(&mut self, executor: &dyn Executor) -> bool {
        let names = Names::of(&self.slots, &self.payloads, self.seed);
        let share = SHARDS.div_ceil(executor.width().max(1));
        let mut are_distinct = vec![true; SHARDS.div_ceil(share)];
        let shares = self.index.chunks_mut(share).zip(&mut are_distinct);
        let pieces = shares
            .enumerate()
            .map(|(at, (shards, are_distinct))| -> Piece<'_> {
                Box::new(move || *are_distinct = enter_share(names, at * share, shards))
            });
        executor.run(pieces.collect());
        are_distinct.into_iter().all(|distinct| distinct)
    }

    /// Stores a znode under a parent, after its other children.
    pub(crate) fn insert(
        &mut self,
        new: NewNode,
        parent: NodeId,
        name: &[u8],
        data: Option<&[u8]>,
    ) -> NodeId {
        let id = self.place(new, parent, name, data);
        self.adopt(parent, id);
        let own = Total::of(self.record(id));
        self.change_above(id, |below| below.plus(own));
        let many = self.family(self.node(parent)).num_children >= MANY_CHILDREN;
        let sibling = self.sibling(id);
        match self.names.get_mut(&parent) {
            Some(names) => {
                names.push(sibling, name);
            }
            None if many => self.collect_names(parent),
            None => {}
        }
        id
    }

    /// Changes the totals of all znodes above this one.
    fn change_above(&mut self, id: NodeId, change: impl Fn(Total) -> Total) {
        let mut at = id;
        while at != ROOT {
            at = self.record(at).parent;
            let family = self.family_mut(at);
            family.below = change(family.below);
        }
    }

    /// Sums up what is below each znode, and collects the names of the children of those that have
    /// many, once all znodes are linked and sorted. Returns every znode that can be reached, each
    /// parent before its children, and these together.
    pub(crate) fn complete(&mut self) -> Vec<NodeId> {
        let mut order = vec![ROOT];
        let mut place = 0;
        while let Some(id) = order.get(place).copied() {
            place += 1;
            let node = self.node(id);
            order.extend(self.children(node).map(|(child, _)| child));
            let family = self.family(node);
            if family.num_children > 0 {
                self.family_mut(id).below = Total::default();
            }
            if family.num_children >= MANY_CHILDREN {
                self.collect_names(id);
            }
        }
        // Children before their parents.
        for id in order.iter().skip(1).rev() {
            let node = self.node(*id);
            let (parent, own) = (node.parent(), Total::of(node.record));
            let whole = own.plus(self.family(node).below);
            let above = self.family_mut(parent);
            above.below = above.below.plus(whole);
        }
        order
    }

    fn collect_names(&mut self, parent: NodeId) {
        let mut names = NameBlocks::default();
        for (id, node) in self.children(self.node(parent)) {
            names.push(self.sibling(id), node.name());
        }
        self.names.insert(parent, names);
    }

    fn sibling(&self, id: NodeId) -> Sibling {
        let node = self.node(id);
        Sibling {
            id,
            order: (node.czxid(), node.details().birth),
        }
    }

    /// The names of the children of a znode that has many.
    pub(crate) fn listing(&self, id: NodeId) -> Option<ChildListing> {
        self.names.get(&id).map(NameBlocks::listing)
    }

    /// The znode and all that is below it.
    pub(crate) fn total(&self, id: NodeId) -> Total {
        let node = self.node(id);
        Total::of(node.record).plus(self.family(node).below)
    }

    /// Takes a znode out. Its payload, details and family stay with it, for [`Arena::put_back`] or
    /// [`Arena::free_removed`].
    #[allow(clippy::expect_used, reason = "callers hold the number of a znode")]
    pub(crate) fn take_out(&mut self, id: NodeId) -> Record {
        self.leave(id);
        let own = Total::of(self.record(id));
        self.change_above(id, |below| below.minus(own));
        let sibling = self.sibling(id);
        let slot = self.slots.get_mut(id as usize);
        let record = slot.and_then(Option::take).expect("a live znode");
        self.free.push(id);
        self.payload_bytes -= record.payload.len();
        let family = self.family_mut(record.parent);
        family.num_children -= 1;
        let are_few = family.num_children < FEW_CHILDREN;
        if record.prev == NONE {
            family.first = record.next;
        }
        if record.next == NONE {
            family.last = record.prev;
        }
        if record.prev != NONE {
            self.record_mut(record.prev).next = record.next;
        }
        if record.next != NONE {
            self.record_mut(record.next).prev = record.prev;
        }
        if let Some(names) = self.names.get_mut(&record.parent)
            && (are_few || !names.remove(sibling))
        {
            self.names.remove(&record.parent);
        }
        record
    }

    /// Undoes [`Arena::take_out`], everything later having been undone before. Returns the znode's
    /// number.
    pub(crate) fn put_back(&mut self, record: Record) -> NodeId {
        let (parent, prev, next) = (record.parent, record.prev, record.next);
        self.payload_bytes += record.payload.len();
        let id = self.occupy(record);
        let family = self.family_mut(parent);
        family.num_children += 1;
        if prev == NONE {
            family.first = id;
        }
        if next == NONE {
            family.last = id;
        }
        if prev != NONE {
            self.record_mut(prev).next = id;
        }
        if next != NONE {
            self.record_mut(next).prev = id;
        }
        self.enter(id);
        let own = Total::of(self.record(id));
        self.change_above(id, |below| below.plus(own));
        if let Some(mut names) = self.names.remove(&parent) {
            let order_of = |id: NodeId| self.sibling(id).order;
            names.put_back(self.sibling(id), prev, self.node(id).name(), order_of);
            self.names.insert(parent, names);
        }
        id
    }

    /// Gives up what a taken-out znode still holds.
    pub(crate) fn free_removed(&mut self, record: &Record) {
        self.free_payload(&record.payload);
        if record.details == NONE {
            return;
        }
        self.free_details.push(record.details);
        let family = self.details_of(record).family;
        if family != NONE {
            self.free_families.push(family);
        }
    }

    /// Replaces the data, in place where the size allows it.
    pub(crate) fn set_data(&mut self, id: NodeId, data: Option<&[u8]>) {
        let bytes = data.unwrap_or_default();
        let payload = &self.record(id).payload;
        let (place, name_len) = (payload.id, payload.name_len as usize);
        let (before, after) = (payload.len(), name_len + bytes.len());
        if !self.payloads.is_same_size(place, before, after) {
            let old = self.swap_data(id, data);
            self.free_payload(&old);
            return;
        }
        if let Some(place) = self.payloads.get_mut(place, after).get_mut(name_len..) {
            place.copy_from_slice(bytes);
        }
        self.record_mut(id).payload.set_data(data);
        self.count_resized(id, before, after);
    }

    /// Replaces the data and hands back what was there, for [`Arena::restore_data`] or
    /// [`Arena::free_payload`].
    pub(crate) fn swap_data(&mut self, id: NodeId, data: Option<&[u8]>) -> Payload {
        let name = self.node(id).name().to_vec();
        let new = self.store_payload(&name, data);
        self.exchange_payload(id, new)
    }

    fn exchange_payload(&mut self, id: NodeId, new: Payload) -> Payload {
        let after = new.len();
        let old = std::mem::replace(&mut self.record_mut(id).payload, new);
        self.count_resized(id, old.len(), after);
        old
    }

    /// Counts a payload that has another length now.
    fn count_resized(&mut self, id: NodeId, before: usize, after: usize) {
        self.payload_bytes = self.payload_bytes + after - before;
        let (less, more) = (before as u64, after as u64);
        if less != more {
            self.change_above(id, |below| Total {
                bytes: below.bytes.wrapping_add(more).wrapping_sub(less),
                ..below
            });
        }
    }

    /// Undoes [`Arena::swap_data`].
    pub(crate) fn restore_data(&mut self, id: NodeId, old: Payload) {
        let new = self.exchange_payload(id, old);
        self.free_payload(&new);
    }

    /// Gives up a payload that no znode has any more.
    pub(crate) fn free_payload(&mut self, payload: &Payload) {
        self.payloads.free(payload.id, payload.len());
    }

    /// Notes a write of the data.
    pub(crate) fn note_write(&mut self, id: NodeId, write: LastWrite) {
        let details = self.details_mut(id);
        details.mzxid = write.mzxid;
        details.mtime = write.mtime;
        details.version = write.version;
    }

    /// Makes both times of a znode this one where they are later.
    pub(crate) fn limit_times(&mut self, id: NodeId, to_ms: i64) {
        let details = self.details_mut(id);
        details.mtime = details.mtime.min(to_ms);
        let record = self.record_mut(id);
        record.ctime = record.ctime.min(to_ms);
    }

    /// Notes another ACL, and returns the number of the one before.
    pub(crate) fn replace_acl(&mut self, id: NodeId, acl: AclId) -> AclId {
        std::mem::replace(&mut self.record_mut(id).acl, acl)
    }

    pub(crate) fn set_aversion(&mut self, id: NodeId, aversion: i32) {
        self.details_mut(id).aversion = aversion;
    }

    pub(crate) fn node(&self, id: NodeId) -> Node<'_> {
        Node {
            arena: self,
            record: self.record(id),
        }
    }

    #[allow(
        clippy::expect_used,
        reason = "numbers come from the index and from links"
    )]
    fn record(&self, id: NodeId) -> &Record {
        record_in(&self.slots, id).expect("a live znode")
    }

    #[allow(
        clippy::expect_used,
        reason = "numbers come from the index and from links"
    )]
    fn record_mut(&mut self, id: NodeId) -> &mut Record {
        let slot = self.slots.get_mut(id as usize);
        slot.and_then(Option::as_mut).expect("a live znode")
    }

    fn details_of(&self, record: &Record) -> Details {
        let details = self.details.get(record.details as usize);
        details.copied().unwrap_or_else(|| Details::of(record))
    }

    /// The details of a znode, to be changed.
    #[allow(
        clippy::expect_used,
        reason = "made just before, if they were not there"
    )]
    fn details_mut(&mut self, id: NodeId) -> &mut Details {
        let record = self.record(id);
        let mut place = record.details;
        if place == NONE {
            place = self.store_details(Details::of(record));
            self.record_mut(id).details = place;
        }
        self.details
            .get_mut(place as usize)
            .expect("a record of details")
    }

    fn name_of(&self, record: &Record) -> &[u8] {
        name_in(&self.payloads, record)
    }

    /// The znode in this slot, if there is one.
    pub(crate) fn find(&self, id: NodeId) -> Option<Node<'_>> {
        let record = record_in(&self.slots, id)?;
        Some(Node {
            arena: self,
            record,
        })
    }

    /// Slots, used and free: every znode's number is below.
    pub(crate) fn slots(&self) -> NodeId {
        self.slots.len() as NodeId
    }

    /// The state of a znode as a parent.
    pub(crate) fn family(&self, node: Node<'_>) -> Family {
        self.families
            .get(node.details().family as usize)
            .copied()
            .unwrap_or(Family {
                first: NONE,
                last: NONE,
                num_children: 0,
                creates: 0,
                pzxid: node.czxid(),
                below: Total::default(),
            })
    }

    /// The state of a znode as a parent, to be changed.
    #[allow(clippy::expect_used, reason = "made just before, if it was not there")]
    pub(crate) fn family_mut(&mut self, id: NodeId) -> &mut Family {
        let mut place = self.node(id).details().family;
        if place == NONE {
            let family = self.family(self.node(id));
            place = self.free_families.pop().unwrap_or_else(|| {
                self.families.push(family);
                (self.families.len() - 1) as u32
            });
            if let Some(slot) = self.families.get_mut(place as usize) {
                *slot = family;
            }
            self.details_mut(id).family = place;
        }
        self.families
            .get_mut(place as usize)
            .expect("a family record")
    }

    /// The child with this name.
    pub(crate) fn child(&self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        let hash = hash_of(self.seed, parent, name);
        self.index
            .get(shard_of(hash))?
            .find(hash, |id| {
                let record = self.record(*id);
                record.parent == parent && self.name_of(record) == name
            })
            .copied()
    }

    /// The znode at this path; none for what is not a legal path.
    pub(crate) fn lookup(&self, path: &str) -> Option<NodeId> {
        let names = path.strip_prefix('/')?;
        if names.is_empty() {
            return Some(ROOT);
        }
        names
            .split('/')
            .try_fold(ROOT, |id, name| self.child(id, name.as_bytes()))
    }

    /// The children, in the order of their creation.
    pub(crate) fn children(&self, node: Node<'_>) -> Children<'_> {
        let family = self.family(node);
        Children {
            arena: self,
            next: family.first,
            left: family.num_children as usize,
        }
    }

    /// The path of a znode.
    pub(crate) fn path_of(&self, id: NodeId) -> String {
        let mut names = Vec::new();
        let mut at = id;
        while at != ROOT {
            let node = self.node(at);
            names.push(node.name());
            at = node.parent();
        }
        if names.is_empty() {
            return "/".to_owned();
        }
        let mut path = String::with_capacity(names.iter().map(|name| name.len() + 1).sum());
        for name in names.iter().rev() {
            path.push('/');
            path.push_str(&String::from_utf8_lossy(name));
        }
        path
    }

    /// Puts the children of a znode in the order of their creation again.
    pub(crate) fn sort_children(&mut self, parent: NodeId) {
        let mut order: Vec<NodeId> = self.children(self.node(parent)).map(|(id, _)| id).collect();
        order.sort_by_key(|id| self.sibling(*id).order);
        let family = self.family_mut(parent);
        family.first = order.first().copied().unwrap_or(NONE);
        family.last = order.last().copied().unwrap_or(NONE);
        let mut prev = NONE;
        for (place, id) in order.iter().enumerate() {
            let node = self.record_mut(*id);
            node.prev = prev;
            node.next = order.get(place + 1).copied().unwrap_or(NONE);
            prev = *id;
        }
    }

    /// The child that was linked last.
    pub(crate) fn last_child(&self, parent: NodeId) -> Option<Node<'_>> {
        self.find(self.family(self.node(parent)).last)
    }

    /// Znodes.
    pub(crate) const fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Bytes of all names and data.
    pub(crate) const fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Returns whether every payload and record belongs to a znode.
    #[cfg(test)]
    pub(crate) fn is_tight(&self) -> bool {
        let nodes = || (0..self.slots()).filter_map(|id| self.find(id));
        let detailed = nodes().filter(|node| node.record.details != NONE);
        let parents = nodes().filter(|node| node.details().family != NONE);
        self.payloads.len() == self.len()
            && self.details.len() - self.free_details.len() == detailed.count()
            && self.families.len() - self.free_families.len() == parents.count()
    }

    fn enter(&mut self, id: NodeId) {
        let names = Names::of(&self.slots, &self.payloads, self.seed);
        let hash = names.hash(id);
        if let Some(shard) = self.index.get_mut(shard_of(hash)) {
            shard.insert_unique(hash, id, |other| names.hash(*other));
        }
    }

    fn leave(&mut self, id: NodeId) {
        let node = self.node(id);
        let hash = hash_of(self.seed, node.parent(), node.name());
        if let Some(shard) = self.index.get_mut(shard_of(hash))
            && let Ok(entry) = shard.find_entry(hash, |other| *other == id)
        {
            entry.remove();
        }
    }
}

fn record_in(slots: &[Option<Record>], id: NodeId) -> Option<&Record> {
    slots.get(id as usize).and_then(Option::as_ref)
}

fn name_in<'a>(payloads: &'a Payloads, record: &Record) -> &'a [u8] {
    let payload = &record.payload;
    let bytes = payloads.get(payload.id, payload.len());
    bytes.get(..payload.name_len as usize).unwrap_or_default()
}

/// The parents and names of all znodes, which the index finds.
#[derive(Debug, Clone, Copy)]
struct Names<'a> {
    slots: &'a [Option<Record>],
    payloads: &'a Payloads,
    seed: u64,
}

impl<'a> Names<'a> {
    const fn of(slots: &'a [Option<Record>], payloads: &'a Payloads, seed: u64) -> Self {
        Self {
            slots,
            payloads,
            seed,
        }
    }

    fn get(&self, id: NodeId) -> Option<(NodeId, &'a [u8])> {
        let record = record_in(self.slots, id)?;
        Some((record.parent, name_in(self.payloads, record)))
    }

    /// The hash of the znode in this slot.
    fn hash(&self, id: NodeId) -> u64 {
        let found = self.get(id);
        found.map_or(0, |(parent, name)| hash_of(self.seed, parent, name))
    }
}

/// Enters the znodes whose shards are these into them; the first of them is number `first`. Returns
/// `false` where two have one parent and one name.
fn enter_share(names: Names<'_>, first: usize, shards: &mut [HashTable<NodeId>]) -> bool {
    for id in ROOT + 1..names.slots.len() as NodeId {
        let Some((parent, name)) = names.get(id) else {
            continue;
        };
        let hash = hash_of(names.seed, parent, name);
        let shard = shard_of(hash).checked_sub(first);
        let Some(shard) = shard.and_then(|at| shards.get_mut(at)) else {
            continue;
        };
        let is_same = |other: &NodeId| names.get(*other) == Some((parent, name));
        match shard.entry(hash, is_same, |other| names.hash(*other)) {
            Entry::Occupied(_) => return false,
            Entry::Vacant(place) => drop(place.insert(id)),
        }
    }
    true
}

/// Walks over the children of a znode.
#[derive(Debug, Clone)]
pub(crate) struct Children<'a> {
    arena: &'a Arena,
    next: NodeId,
    left: usize,
}

impl<'a> Iterator for Children<'a> {
    type Item = (NodeId, Node<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let id = self.next;
        let node = self.arena.find(id)?;
        self.next = node.record.next;
        self.left = self.left.saturating_sub(1);
        Some((id, node))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Children<'_> {}

fn hash_of(seed: u64, parent: NodeId, name: &[u8]) -> u64 {
    xxh3_64_with_seed(name, seed ^ u64::from(parent))
}

/// The table uses the lowest and the highest bits, so the shard comes from between.
const fn shard_of(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_znode_record_takes_48_bytes() {
        assert_eq!(size_of::<Option<Record>>(), 48);
        assert_eq!(size_of::<Details>(), 40);
        assert_eq!(size_of::<Family>(), 48);
    }

    #[test]
    fn znodes_are_found_after_room_was_made_for_more() {
        let new = || NewNode {
            czxid: 0,
            mzxid: 0,
            ctime: 0,
            mtime: 0,
            owner: 0,
            acl: 0,
            version: 0,
            aversion: 0,
            birth: 0,
        };
        let mut arena = Arena::new(new(), None, 7);
        let names: Vec<String> = (0..2_000).map(|number| format!("n{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            if number == 1_000 {
                arena.reserve(1 << 16);
            }
            arena.insert(new(), ROOT, name.as_bytes(), None);
        }
        for name in &names {
            let found = arena.child(ROOT, name.as_bytes()).unwrap();
            assert_eq!(arena.node(found).name(), name.as_bytes());
        }
    }
}
