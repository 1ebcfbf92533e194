//! The names of the children of a znode that has many, in blocks that a listing shares: a reader
//! gets all names of one moment at the cost of a reference for each block, and encodes them without
//! the tree's lock. Owns the blocks; knows neither znodes nor their data. A listing copies the last
//! block, and a write one block at most, and only while a listing has it.

use std::sync::Arc;

/// Names in one block, and their bytes: a block gets no further name that has as many of either.
const BLOCK_NAMES: usize = 256;
const BLOCK_BYTES: usize = 64 << 10;

/// A child, and its place among its siblings: when it was created.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sibling {
    /// The znode's number.
    pub(crate) id: u32,
    pub(crate) order: (i64, u32),
}

#[derive(Debug, Clone)]
struct Block {
    /// No child of the block comes before that, and all of the blocks before it do.
    from: (i64, u32),
    ids: Vec<u32>,
    /// Beginning of all names of the block.
    prefix: Box<[u8]>,
    /// End of the rest of each name in `text`.
    ends: Vec<u32>,
    text: Vec<u8>,
}

impl Block {
    fn new() -> Self {
        Self {
            from: (i64::MAX, u32::MAX),
            ids: Vec::with_capacity(BLOCK_NAMES),
            prefix: Box::default(),
            ends: Vec::with_capacity(BLOCK_NAMES),
            text: Vec::new(),
        }
    }

    fn is_full(&self) -> bool {
        self.ids.len() >= BLOCK_NAMES || self.text.len() >= BLOCK_BYTES
    }

    fn start_of(&self, place: usize) -> u32 {
        let before = place.checked_sub(1).and_then(|place| self.ends.get(place));
        before.copied().unwrap_or(0)
    }

    /// Name behind the prefix.
    fn rest(&self, place: usize) -> Option<&[u8]> {
        let end = *self.ends.get(place)? as usize;
        self.text.get(self.start_of(place) as usize..end)
    }

    /// Stores once what all names begin with.
    fn share_prefix(&mut self) {
        let mut names = (0..self.ids.len()).filter_map(|place| self.rest(place));
        let first = names.next().unwrap_or_default();
        let shared = names.fold(first, |shared, name| {
            if name.starts_with(shared) {
                return shared;
            }
            let same = shared.iter().zip(name).take_while(|(a, b)| a == b);
            shared.get(..same.count()).unwrap_or_default()
        });
        self.set_prefix([&*self.prefix, shared].concat().into_boxed_slice());
    }

    /// Makes the prefix another one that all names have.
    fn set_prefix(&mut self, prefix: Box<[u8]>) {
        let mut text = Vec::with_capacity(self.text.len());
        let mut ends = Vec::with_capacity(self.ends.len());
        for place in 0..self.ids.len() {
            let rest = self.rest(place).unwrap_or_default();
            let mut left = prefix.len();
            for part in [&*self.prefix, rest] {
                text.extend_from_slice(part.get(left..).unwrap_or_default());
                left = left.saturating_sub(part.len());
            }
            ends.push(text.len() as u32);
        }
        text.shrink_to_fit();
        self.text = text;
        self.ends = ends;
        self.prefix = prefix;
    }

    /// Adds a name behind the others. The block has no prefix yet.
    fn append(&mut self, child: Sibling, name: &[u8]) {
        self.text.extend_from_slice(name);
        self.ids.push(child.id);
        self.ends.push(self.text.len() as u32);
        self.from = self.from.min(child.order);
    }

    fn insert(&mut self, place: usize, child: Sibling, name: &[u8]) {
        if !name.starts_with(&self.prefix) {
            self.set_prefix(Box::default());
        }
        let rest = name.get(self.prefix.len()..).unwrap_or_default();
        let start = self.start_of(place);
        let length = rest.len() as u32;
        let at = start as usize;
        self.text.splice(at..at, rest.iter().copied());
        self.ids.insert(place, child.id);
        self.ends.insert(place, start);
        for end in self.ends.iter_mut().skip(place) {
            *end += length;
        }
        self.from = self.from.min(child.order);
    }

    /// Removes a name, and returns its length.
    fn remove(&mut self, place: usize) -> usize {
        let start = self.start_of(place);
        let end = self.ends.remove(place);
        self.ids.remove(place);
        self.text.drain(start as usize..end as usize);
        for later in self.ends.iter_mut().skip(place) {
            *later -= end - start;
        }
        self.prefix.len() + (end - start) as usize
    }

    /// Takes the second half out.
    fn split_off(&mut self, order_of: impl Fn(u32) -> (i64, u32)) -> Option<Self> {
        let half = self.ids.len() / 2;
        let start = self.start_of(half);
        let from = order_of(*self.ids.get(half)?);
        let ends = self.ends.split_off(half);
        Some(Self {
            from,
            ids: self.ids.split_off(half),
            prefix: self.prefix.clone(),
            ends: ends.into_iter().map(|end| end - start).collect(),
            text: self.text.split_off(start as usize),
        })
    }
}

/// The names, in the order of their creation.
#[derive(Debug)]
pub(crate) struct NameBlocks {
    blocks: Vec<Arc<Block>>,
    /// The block behind all others, which no listing shares: to append a name takes no atomic
    /// operation, which would wait for all that the create has stored before.
    last: Block,
    names: usize,
    bytes: usize,
}

impl Default for NameBlocks {
    fn default() -> Self {
        Self {
            blocks: Vec::new(),
            last: Block::new(),
            names: 0,
            bytes: 0,
        }
    }
}

impl NameBlocks {
    /// Adds the child that was created last.
    pub(crate) fn push(&mut self, child: Sibling, name: &[u8]) {
        if self.last.is_full() {
            let mut full = std::mem::replace(&mut self.last, Block::new());
            full.share_prefix();
            self.blocks.push(Arc::new(full));
        }
        self.names += 1;
        self.bytes += name.len();
        self.last.append(child, name);
    }

    /// Adds a child again that was removed, behind the sibling `prev`. `order_of` says when a child
    /// was created.
    pub(crate) fn put_back(
        &mut self,
        child: Sibling,
        prev: u32,
        name: &[u8],
        order_of: impl Fn(u32) -> (i64, u32),
    ) {
        self.names += 1;
        self.bytes += name.len();
        let at = self.block_of(child);
        let block = self.block_mut(at);
        let before = block.ids.iter().position(|id| *id == prev);
        block.insert(before.map_or(0, |place| place + 1), child, name);
        // Where a block that became empty was removed, another one gets its children.
        if block.ids.len() > 2 * BLOCK_NAMES
            && let Some(half) = block.split_off(order_of)
        {
            if at < self.blocks.len() {
                self.blocks.insert(at + 1, Arc::new(half));
            } else {
                let first = std::mem::replace(&mut self.last, half);
                self.blocks.push(Arc::new(first));
            }
        }
    }

    /// Removes a child. `false`: it is not where it should be.
    pub(crate) fn remove(&mut self, child: Sibling) -> bool {
        let at = self.block_of(child);
        let block = self.blocks.get(at).map_or(&self.last, |block| block);
        let Some(place) = block.ids.iter().position(|id| *id == child.id) else {
            return false;
        };
        let block = self.block_mut(at);
        let removed = block.remove(place);
        let is_empty = block.ids.is_empty();
        self.names -= 1;
        self.bytes -= removed;
        if is_empty && at < self.blocks.len() {
            self.blocks.remove(at);
        } else if is_empty {
            self.last = Block::new();
        }
        true
    }

    /// The block with the names of that time; the last one is behind all that are shared.
    fn block_of(&self, child: Sibling) -> usize {
        if self.blocks.is_empty() || self.last.from <= child.order {
            return self.blocks.len();
        }
        let after = self
            .blocks
            .partition_point(|block| block.from <= child.order);
        after.saturating_sub(1)
    }

    fn block_mut(&mut self, at: usize) -> &mut Block {
        self.blocks
            .get_mut(at)
            .map_or(&mut self.last, Arc::make_mut)
    }

    /// The names as they are now.
    pub(crate) fn listing(&self) -> ChildListing {
        let last = (!self.last.ids.is_empty()).then(|| Arc::new(self.last.clone()));
        ChildListing {
            blocks: self.blocks.iter().cloned().chain(last).collect(),
            names: self.names,
            bytes: self.bytes,
            next: (0, 0),
            name: Vec::new(),
        }
    }
}

/// The names of all children of a znode at one moment, handed out in slices: what changes in the
/// tree meanwhile does not change them.
#[derive(Debug, Clone)]
pub struct ChildListing {
    blocks: Vec<Arc<Block>>,
    names: usize,
    bytes: usize,
    /// The block and the place in it of the next name.
    next: (usize, usize),
    /// Room for a name.
    name: Vec<u8>,
}

impl ChildListing {
    /// Number of all names.
    #[must_use]
    pub const fn names(&self) -> usize {
        self.names
    }

    /// Bytes of all names.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of blocks that the names are in.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }
}

impl Iterator for ChildListing {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut name = String::new();
        self.next_name(|next| next.clone_into(&mut name))
            .then_some(name)
    }
}

impl ChildListing {
    /// Shows the next name to `visit`. `false`: there are no more.
    pub fn next_name(&mut self, visit: impl FnOnce(&str)) -> bool {
        let (block, place) = self.next;
        let found = self.blocks.get(block);
        if let Some((block, rest)) = found.and_then(|it| Some((it, it.rest(place)?))) {
            self.name.clear();
            self.name.extend_from_slice(&block.prefix);
            self.name.extend_from_slice(rest);
            visit(std::str::from_utf8(&self.name).unwrap_or_default());
            self.next.1 += 1;
            return true;
        }
        self.next = (block + 1, 0);
        block + 1 < self.blocks.len() && self.next_name(visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(n: u32) -> Sibling {
        Sibling {
            id: n,
            order: (i64::from(n / 3), n % 3),
        }
    }

    fn name(n: u32) -> String {
        format!("é{n:05}{}", "x".repeat(n as usize % 7))
    }

    fn all(names: &NameBlocks) -> Vec<String> {
        let listing = names.listing();
        assert_eq!(listing.names(), listing.clone().count());
        let bytes: usize = listing.clone().map(|name| name.len()).sum();
        assert_eq!(listing.bytes(), bytes);
        listing.collect()
    }

    #[test]
    fn names_stay_in_order_whatever_is_removed_and_put_back() {
        const ALL: u32 = 6 * BLOCK_NAMES as u32 + 7;
        let mut names = NameBlocks::default();
        for n in 0..ALL {
            names.push(child(n), name(n).as_bytes());
        }
        let listed = names.listing();
        let expected: Vec<String> = (0..ALL).map(name).collect();
        for removed in [0..ALL / 2, 5..6, ALL - 9..ALL] {
            for n in removed.clone() {
                assert!(names.remove(child(n)), "{n}");
                assert!(!names.remove(child(n)), "{n}");
            }
            let left: Vec<String> = (0..ALL)
                .filter(|n| !removed.contains(n))
                .map(name)
                .collect();
            assert_eq!(all(&names), left);
            for n in removed.clone().rev() {
                // As in the tree, a sibling that is there.
                let prev = (0..n).rev().find(|prev| !removed.contains(prev));
                let prev = prev.unwrap_or(u32::MAX);
                names.put_back(child(n), prev, name(n).as_bytes(), |id| child(id).order);
            }
            assert!(
                names
                    .blocks
                    .iter()
                    .all(|it| it.ids.len() <= 2 * BLOCK_NAMES)
            );
            assert_eq!(all(&names), expected);
        }
        assert_eq!(listed.collect::<Vec<_>>(), expected, "as it was");
    }

    #[test]
    fn a_full_block_stores_once_what_its_names_begin_with() {
        const ALL: u32 = 3 * BLOCK_NAMES as u32 + 1;
        let mut names = NameBlocks::default();
        let number = |n: u32| format!("n{:010}", n + 0x100_0000);
        for n in 0..ALL {
            names.push(child(n), number(n).as_bytes());
        }
        let rests: Vec<usize> = names.blocks.iter().map(|block| block.text.len()).collect();
        assert_eq!(rests.len(), 3);
        assert!(
            rests.iter().all(|rest| *rest <= 4 * BLOCK_NAMES),
            "{rests:?}"
        );
        assert_eq!(all(&names), (0..ALL).map(number).collect::<Vec<_>>());
    }

    #[test]
    fn long_names_fill_a_block_by_their_bytes() {
        let mut names = NameBlocks::default();
        let long = "x".repeat(BLOCK_BYTES / 2);
        for n in 0..5 {
            names.push(child(n), long.as_bytes());
        }
        let sizes: Vec<usize> = names.blocks.iter().map(|block| block.ids.len()).collect();
        assert_eq!(sizes, [2, 2]);
        assert_eq!(all(&names).len(), 5);
    }
}
