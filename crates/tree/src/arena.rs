//! The znodes in memory: a slab of fixed-size records that know their name but not their path, one
//! index from (parent, name) to record, and links between siblings. Owns memory layout and links;
//! knows no rule of the protocol. Numbers of znodes are local to this process: neither digest nor
//! replies may depend on them.
//!
//! A leaf takes 96 bytes in the slab, about 10 in the index, and one heap block for name and data
//! together. What only parents need (list of children, count of creates, pzxid, what is below) is a
//! record of its own, made at the first child. The names of many children are kept in blocks, too.

use std::collections::BTreeMap;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::acl_table::AclId;
use crate::child_names::{ChildListing, NameBlocks, Sibling};
use crate::executor::{Executor, Piece};

/// The number of a znode.
pub(crate) type NodeId = u32;

/// No znode, no family.
const NONE: u32 = u32::MAX;

/// The number of `/`.
pub(crate) const ROOT: NodeId = 0;

/// The index is split so that growing it never moves more than a small part at once.
const SHARDS: usize = 64;

/// Children from which on a znode has [`NameBlocks`], and below which it has none any more.
pub(crate) const MANY_CHILDREN: u32 = 4096;
const FEW_CHILDREN: u32 = MANY_CHILDREN / 2;

/// Set in `name_len` if the data is null rather than empty.
const NULL_DATA: u32 = 1 << 31;

/// One znode.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    /// Kind of the znode, as [`crate::kind::Kind`] encodes it.
    pub(crate) owner: i64,
    /// Name, then data.
    payload: Box<[u8]>,
    parent: NodeId,
    next: NodeId,
    prev: NodeId,
    family: u32,
    pub(crate) acl: AclId,
    pub(crate) version: i32,
    pub(crate) aversion: i32,
    name_len: u32,
    /// Number of the operation in its command that created it: with `czxid` the order among
    /// siblings.
    pub(crate) birth: u32,
    /// The snapshot epoch in which it was last written or created.
    pub(crate) epoch: u32,
}

/// State of a znode that has or had children.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Family {
    first: NodeId,
    last: NodeId,
    pub(crate) num_children: u32,
    /// Children ever created: ZooKeeper's internal cversion, in 64 bits.
    pub(crate) creates: i64,
    pub(crate) pzxid: i64,
    /// All descendants.
    pub(crate) below: Total,
}

/// A number of znodes, and the bytes of their data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Total {
    pub(crate) nodes: u64,
    pub(crate) bytes: u64,
}

impl Total {
    const fn of(node: &Node) -> Self {
        Self {
            nodes: 1,
            bytes: node.data_len() as u64,
        }
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            nodes: self.nodes.wrapping_add(other.nodes),
            bytes: self.bytes.wrapping_add(other.bytes),
        }
    }

    const fn minus(self, other: Self) -> Self {
        Self {
            nodes: self.nodes.wrapping_sub(other.nodes),
            bytes: self.bytes.wrapping_sub(other.bytes),
        }
    }
}

/// A znode before it has a place.
pub(crate) struct NewNode {
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    pub(crate) owner: i64,
    pub(crate) acl: AclId,
    pub(crate) version: i32,
    pub(crate) aversion: i32,
    pub(crate) birth: u32,
    pub(crate) epoch: u32,
}

/// A payload that was replaced, for the way back.
#[derive(Debug)]
pub(crate) struct OldPayload {
    payload: Box<[u8]>,
    name_len: u32,
}

impl Node {
    const fn name_len(&self) -> usize {
        (self.name_len & !NULL_DATA) as usize
    }

    pub(crate) fn name(&self) -> &[u8] {
        self.payload.get(..self.name_len()).unwrap_or_default()
    }

    pub(crate) fn data(&self) -> Option<&[u8]> {
        if self.name_len & NULL_DATA == 0 {
            self.payload.get(self.name_len()..)
        } else {
            None
        }
    }

    pub(crate) const fn data_len(&self) -> usize {
        self.payload.len() - self.name_len()
    }

    pub(crate) const fn parent(&self) -> NodeId {
        self.parent
    }

    const fn sibling(&self, id: NodeId) -> Sibling {
        Sibling {
            id,
            order: (self.czxid, self.birth),
        }
    }
}

fn pack(name: &[u8], data: Option<&[u8]>) -> (Box<[u8]>, u32) {
    let data_bytes = data.unwrap_or_default();
    let mut payload = Vec::with_capacity(name.len() + data_bytes.len());
    payload.extend_from_slice(name);
    payload.extend_from_slice(data_bytes);
    let null = if data.is_none() { NULL_DATA } else { 0 };
    (payload.into_boxed_slice(), name.len() as u32 | null)
}

/// The znodes.
#[derive(Debug)]
pub(crate) struct Arena {
    slots: Vec<Option<Node>>,
    free: Vec<NodeId>,
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
        let (slots, seed) = (&self.slots, self.seed);
        for shard in self.index.iter_mut() {
            shard.reserve(per_shard, |id| hash_in(slots, seed, *id));
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
        let (payload, name_len) = pack(name, data);
        self.payload_bytes += payload.len();
        self.occupy(Node {
            czxid: new.czxid,
            mzxid: new.mzxid,
            ctime: new.ctime,
            mtime: new.mtime,
            owner: new.owner,
            payload,
            parent,
            next: NONE,
            prev: NONE,
            family: NONE,
            acl: new.acl,
            version: new.version,
            aversion: new.aversion,
            name_len,
            birth: new.birth,
            epoch: new.epoch,
        })
    }

    fn occupy(&mut self, node: Node) -> NodeId {
        if let Some(id) = self.free.pop() {
            if let Some(slot) = self.slots.get_mut(id as usize) {
                *slot = Some(node);
            }
            id
        } else {
            self.slots.push(Some(node));
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
            self.node_mut(last).next = id;
        }
        let node = self.node_mut(id);
        node.parent = parent;
        node.prev = last;
        node.next = NONE;
    }

    /// Notes the parent of a stored znode, for [`Arena::enter_all`].
    pub(crate) fn set_parent(&mut self, id: NodeId, parent: NodeId) {
        self.node_mut(id).parent = parent;
    }

    /// Enters every znode but `/` into the empty index. Returns `false` where two have one parent
    /// and one name.
    pub(crate) fn enter_all(&mut self, executor: &dyn Executor) -> bool {
        let (slots, seed) = (self.slots.as_slice(), self.seed);
        let share = SHARDS.div_ceil(executor.width().max(1));
        let mut are_distinct = vec![true; SHARDS.div_ceil(share)];
        let shares = self.index.chunks_mut(share).zip(&mut are_distinct);
        let pieces = shares
            .enumerate()
            .map(|(at, (shards, are_distinct))| -> Piece<'_> {
                Box::new(move || *are_distinct = enter_share(slots, seed, at * share, shards))
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
        let own = Total::of(self.node(id));
        self.change_above(id, |below| below.plus(own));
        let many = self.family(self.node(parent)).num_children >= MANY_CHILDREN;
        match self.names.get_mut(&parent) {
            Some(names) => {
                let sibling = self.slots.get(id as usize).and_then(Option::as_ref);
                if let Some(node) = sibling {
                    names.push(node.sibling(id), node.name());
                }
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
            at = self.node(at).parent;
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
            let (parent, own) = (node.parent, Total::of(node));
            let whole = own.plus(self.family(node).below);
            let above = self.family_mut(parent);
            above.below = above.below.plus(whole);
        }
        order
    }

    fn collect_names(&mut self, parent: NodeId) {
        let mut names = NameBlocks::default();
        for (id, node) in self.children(self.node(parent)) {
            names.push(node.sibling(id), node.name());
        }
        self.names.insert(parent, names);
    }

    /// The names of the children of a znode that has many.
    pub(crate) fn listing(&self, id: NodeId) -> Option<ChildListing> {
        self.names.get(&id).map(NameBlocks::listing)
    }

    /// The znode and all that is below it.
    pub(crate) fn total(&self, id: NodeId) -> Total {
        let node = self.node(id);
        Total::of(node).plus(self.family(node).below)
    }

    /// Takes a znode out. Its family record stays with it, for [`Arena::put_back`] or
    /// [`Arena::free_removed`].
    #[allow(clippy::expect_used, reason = "callers hold the number of a znode")]
    pub(crate) fn take_out(&mut self, id: NodeId) -> Node {
        self.leave(id);
        let own = Total::of(self.node(id));
        self.change_above(id, |below| below.minus(own));
        let slot = self.slots.get_mut(id as usize);
        let node = slot.and_then(Option::take).expect("a live znode");
        self.free.push(id);
        self.payload_bytes -= node.payload.len();
        let family = self.family_mut(node.parent);
        family.num_children -= 1;
        let are_few = family.num_children < FEW_CHILDREN;
        if node.prev == NONE {
            family.first = node.next;
        }
        if node.next == NONE {
            family.last = node.prev;
        }
        if node.prev != NONE {
            self.node_mut(node.prev).next = node.next;
        }
        if node.next != NONE {
            self.node_mut(node.next).prev = node.prev;
        }
        if let Some(names) = self.names.get_mut(&node.parent)
            && (are_few || !names.remove(node.sibling(id)))
        {
            self.names.remove(&node.parent);
        }
        node
    }

    /// Undoes [`Arena::take_out`], everything later having been undone before. Returns the znode's
    /// number.
    pub(crate) fn put_back(&mut self, node: Node) -> NodeId {
        let (parent, prev, next) = (node.parent, node.prev, node.next);
        self.payload_bytes += node.payload.len();
        let id = self.occupy(node);
        let family = self.family_mut(parent);
        family.num_children += 1;
        if prev == NONE {
            family.first = id;
        }
        if next == NONE {
            family.last = id;
        }
        if prev != NONE {
            self.node_mut(prev).next = id;
        }
        if next != NONE {
            self.node_mut(next).prev = id;
        }
        self.enter(id);
        let own = Total::of(self.node(id));
        self.change_above(id, |below| below.plus(own));
        let (slots, names) = (&self.slots, self.names.get_mut(&parent));
        if let (Some(Some(node)), Some(names)) = (slots.get(id as usize), names) {
            let order_of = |id: NodeId| match slots.get(id as usize) {
                Some(Some(node)) => (node.czxid, node.birth),
                _ => (0, 0),
            };
            names.put_back(node.sibling(id), prev, node.name(), order_of);
        }
        id
    }

    /// Gives up what a taken-out znode still holds.
    pub(crate) fn free_removed(&mut self, node: &Node) {
        if node.family != NONE {
            self.free_families.push(node.family);
        }
    }

    /// Replaces the data, in place where the size allows it.
    pub(crate) fn set_data(&mut self, id: NodeId, data: Option<&[u8]>) {
        let bytes = data.unwrap_or_default();
        let node = self.node_mut(id);
        let name_len = node.name_len();
        if node.data_len() == bytes.len() {
            if let Some(place) = node.payload.get_mut(name_len..) {
                place.copy_from_slice(bytes);
            }
            let null = if data.is_none() { NULL_DATA } else { 0 };
            node.name_len = name_len as u32 | null;
        } else {
            self.swap_data(id, data);
        }
    }

    /// Replaces the data and hands back what was there.
    pub(crate) fn swap_data(&mut self, id: NodeId, data: Option<&[u8]>) -> OldPayload {
        let node = self.node_mut(id);
        let (payload, name_len) = pack(node.name(), data);
        let new_len = payload.len();
        let old = OldPayload {
            payload: std::mem::replace(&mut node.payload, payload),
            name_len: std::mem::replace(&mut node.name_len, name_len),
        };
        self.count_resized(id, old.payload.len(), new_len);
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
    pub(crate) fn restore_data(&mut self, id: NodeId, old: OldPayload) {
        let node = self.node_mut(id);
        let new_len = node.payload.len();
        let old_len = old.payload.len();
        node.payload = old.payload;
        node.name_len = old.name_len;
        self.count_resized(id, new_len, old_len);
    }

    #[allow(
        clippy::expect_used,
        reason = "numbers come from the index and from links"
    )]
    pub(crate) fn node(&self, id: NodeId) -> &Node {
        self.find(id).expect("a live znode")
    }

    #[allow(
        clippy::expect_used,
        reason = "numbers come from the index and from links"
    )]
    pub(crate) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        let slot = self.slots.get_mut(id as usize);
        slot.and_then(Option::as_mut).expect("a live znode")
    }

    /// The znode in this slot, if there is one.
    pub(crate) fn find(&self, id: NodeId) -> Option<&Node> {
        self.slots.get(id as usize).and_then(Option::as_ref)
    }

    /// Slots, used and free: every znode's number is below.
    pub(crate) fn slots(&self) -> NodeId {
        self.slots.len() as NodeId
    }

    /// The state of a znode as a parent.
    pub(crate) fn family(&self, node: &Node) -> Family {
        self.families
            .get(node.family as usize)
            .copied()
            .unwrap_or(Family {
                first: NONE,
                last: NONE,
                num_children: 0,
                creates: 0,
                pzxid: node.czxid,
                below: Total::default(),
            })
    }

    /// The state of a znode as a parent, to be changed.
    #[allow(clippy::expect_used, reason = "made just before, if it was not there")]
    pub(crate) fn family_mut(&mut self, id: NodeId) -> &mut Family {
        let mut place = self.node(id).family;
        if place == NONE {
            let family = self.family(self.node(id));
            place = self.free_families.pop().unwrap_or_else(|| {
                self.families.push(family);
                (self.families.len() - 1) as u32
            });
            if let Some(slot) = self.families.get_mut(place as usize) {
                *slot = family;
            }
            self.node_mut(id).family = place;
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
                let node = self.node(*id);
                node.parent == parent && node.name() == name
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
    pub(crate) fn children(&self, node: &Node) -> Children<'_> {
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
            at = node.parent;
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
        order.sort_by_key(|id| {
            let node = self.node(*id);
            (node.czxid, node.birth)
        });
        let family = self.family_mut(parent);
        family.first = order.first().copied().unwrap_or(NONE);
        family.last = order.last().copied().unwrap_or(NONE);
        let mut prev = NONE;
        for (place, id) in order.iter().enumerate() {
            let node = self.node_mut(*id);
            node.prev = prev;
            node.next = order.get(place + 1).copied().unwrap_or(NONE);
            prev = *id;
        }
    }

    /// The child that was linked last.
    pub(crate) fn last_child(&self, parent: NodeId) -> Option<&Node> {
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

    fn enter(&mut self, id: NodeId) {
        let (slots, seed) = (&self.slots, self.seed);
        let hash = hash_in(slots, seed, id);
        if let Some(shard) = self.index.get_mut(shard_of(hash)) {
            shard.insert_unique(hash, id, |other| hash_in(slots, seed, *other));
        }
    }

    fn leave(&mut self, id: NodeId) {
        let node = self.node(id);
        let hash = hash_of(self.seed, node.parent, node.name());
        if let Some(shard) = self.index.get_mut(shard_of(hash))
            && let Ok(entry) = shard.find_entry(hash, |other| *other == id)
        {
            entry.remove();
        }
    }
}

/// Enters the znodes whose shards are these into them; the first of them is number `first`. Returns
/// `false` where two have one parent and one name.
fn enter_share(
    slots: &[Option<Node>],
    seed: u64,
    first: usize,
    shards: &mut [HashTable<NodeId>],
) -> bool {
    let find = |id: NodeId| slots.get(id as usize).and_then(Option::as_ref);
    for id in ROOT + 1..slots.len() as NodeId {
        let Some(node) = find(id) else {
            continue;
        };
        let hash = hash_of(seed, node.parent, node.name());
        let shard = shard_of(hash).checked_sub(first);
        let Some(shard) = shard.and_then(|at| shards.get_mut(at)) else {
            continue;
        };
        let is_same = |other: &NodeId| {
            find(*other).is_some_and(|it| it.parent == node.parent && it.name() == node.name())
        };
        match shard.entry(hash, is_same, |other| hash_in(slots, seed, *other)) {
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
    type Item = (NodeId, &'a Node);

    fn next(&mut self) -> Option<Self::Item> {
        let id = self.next;
        let node = self.arena.find(id)?;
        self.next = node.next;
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

/// The hash of the znode in this slot.
fn hash_in(slots: &[Option<Node>], seed: u64, id: NodeId) -> u64 {
    let node = slots.get(id as usize).and_then(Option::as_ref);
    node.map_or(0, |node| hash_of(seed, node.parent, node.name()))
}

/// The table uses the lowest and the highest bits, so the shard comes from between.
const fn shard_of(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_znode_record_takes_96_bytes() {
        assert_eq!(size_of::<Option<Node>>(), 96);
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
            epoch: 0,
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
