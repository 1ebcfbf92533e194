//! The names and data of the znodes: slots of equal size in pages, so that a payload takes little
//! more than its bytes and its number four. Owns where a payload lies; the caller keeps its length.
//! A payload that is longer than the largest slot has a block of its own.

use std::num::NonZeroU32;

/// Capacity of a page.
const PAGE_BYTES: usize = 64 << 10;

/// Slots are by `FINE_STEP` apart up to `FINE_BYTES`, and by `COARSE_STEP` up to `COARSE_BYTES`.
const FINE_STEP: usize = 8;
const FINE_BYTES: usize = 256;
const COARSE_STEP: usize = 32;
const COARSE_BYTES: usize = 1024;

const FINE_CLASSES: usize = FINE_BYTES / FINE_STEP;
const CLASSES: usize = FINE_CLASSES + (COARSE_BYTES - FINE_BYTES) / COARSE_STEP;

/// Bits of a number that say which slot of its page it is.
const SLOT_BITS: u32 = 13;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
/// Set in the number of a payload with a block of its own.
const OWN_BLOCK: u32 = 1 << 31;
/// Pages that numbers can tell apart; what comes after them gets blocks of its own.
const MOST_PAGES: usize = 1 << (31 - SLOT_BITS);

/// The number of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PayloadId(NonZeroU32);

impl PayloadId {
    /// The payload with this place; 0 is none's, so that a number is not zero.
    fn of(place: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(place))
    }

    const fn place(self) -> u32 {
        self.0.get() - 1
    }
}

/// Kind of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Class {
    number: usize,
    slot_bytes: usize,
}

impl Class {
    /// The smallest slot for this many bytes; `None` where no slot is large enough.
    const fn of(bytes: usize) -> Option<Self> {
        let steps = if bytes <= FINE_STEP {
            1
        } else {
            bytes.div_ceil(FINE_STEP)
        };
        if steps <= FINE_CLASSES {
            return Some(Self {
                number: steps - 1,
                slot_bytes: steps * FINE_STEP,
            });
        }
        let steps = (bytes - FINE_BYTES).div_ceil(COARSE_STEP);
        if bytes > COARSE_BYTES {
            return None;
        }
        Some(Self {
            number: FINE_CLASSES + steps - 1,
            slot_bytes: FINE_BYTES + steps * COARSE_STEP,
        })
    }
}

/// Slots of one class. A slot that is free again has the number of the next such slot, plus one, in
/// its first bytes.
#[derive(Debug, Default)]
struct Page {
    bytes: Vec<u8>,
    slot_bytes: u16,
    used: u32,
    /// The first slot that is free again, plus one; 0: there is none.
    free: u16,
    /// Position among the pages of its class that have room.
    position: u32,
}

impl Page {
    fn new(class: Class) -> Self {
        Self {
            bytes: Vec::with_capacity(PAGE_BYTES),
            slot_bytes: class.slot_bytes as u16,
            ..Self::default()
        }
    }

    fn has_room(&self) -> bool {
        self.free != 0 || self.bytes.len() + usize::from(self.slot_bytes) <= PAGE_BYTES
    }

    const fn start_of(&self, slot: u32) -> usize {
        slot as usize * self.slot_bytes as usize
    }

    /// Takes a slot. The page has room.
    fn take(&mut self) -> u32 {
        self.used += 1;
        let Some(slot) = self.free.checked_sub(1).map(u32::from) else {
            let end = self.bytes.len();
            self.bytes.resize(end + usize::from(self.slot_bytes), 0);
            return (end / usize::from(self.slot_bytes)) as u32;
        };
        let bytes = self.bytes.get(self.start_of(slot)..);
        let next = bytes.and_then(<[u8]>::first_chunk);
        self.free = u16::from_le_bytes(next.copied().unwrap_or_default());
        slot
    }

    fn give_back(&mut self, slot: u32) {
        self.used -= 1;
        let start = self.start_of(slot);
        if let Some(next) = self.bytes.get_mut(start..start + 2) {
            next.copy_from_slice(&self.free.to_le_bytes());
        }
        self.free = slot as u16 + 1;
    }
}

/// The payloads.
#[derive(Debug)]
pub(crate) struct Payloads {
    pages: Vec<Page>,
    /// Numbers of pages that have no memory.
    free_pages: Vec<u32>,
    /// The pages of each class that have room.
    with_room: [Vec<u32>; CLASSES],
    blocks: Vec<Box<[u8]>>,
    free_blocks: Vec<u32>,
}

impl Payloads {
    pub(crate) const fn new() -> Self {
        Self {
            pages: Vec::new(),
            free_pages: Vec::new(),
            with_room: [const { Vec::new() }; CLASSES],
            blocks: Vec::new(),
            free_blocks: Vec::new(),
        }
    }

    /// Stores a payload that consists of these two parts.
    pub(crate) fn store(&mut self, name: &[u8], data: &[u8]) -> PayloadId {
        let length = name.len() + data.len();
        let id = Class::of(length).and_then(|class| self.take_slot(class));
        let Some(id) = id else {
            return self.store_block([name, data].concat().into_boxed_slice());
        };
        let place = self.get_mut(id, length);
        if let Some((first, second)) = place.split_at_mut_checked(name.len()) {
            first.copy_from_slice(name);
            second.copy_from_slice(data);
        }
        id
    }

    fn store_block(&mut self, block: Box<[u8]>) -> PayloadId {
        let number = match self.free_blocks.pop() {
            Some(number) => {
                if let Some(place) = self.blocks.get_mut(number as usize) {
                    *place = block;
                }
                number
            }
            None => {
                self.blocks.push(block);
                (self.blocks.len() - 1) as u32
            }
        };
        PayloadId::of(number | OWN_BLOCK)
    }

    fn take_slot(&mut self, class: Class) -> Option<PayloadId> {
        let with_room = self.with_room.get_mut(class.number)?;
        let number = match with_room.last() {
            Some(number) => *number,
            None => {
                let number = match self.free_pages.pop() {
                    Some(number) => number,
                    None if self.pages.len() < MOST_PAGES => {
                        self.pages.push(Page::default());
                        (self.pages.len() - 1) as u32
                    }
                    None => return None,
                };
                if let Some(page) = self.pages.get_mut(number as usize) {
                    *page = Page::new(class);
                }
                with_room.push(number);
                number
            }
        };
        let page = self.pages.get_mut(number as usize)?;
        let slot = page.take();
        if !page.has_room() {
            with_room.pop();
        }
        Some(PayloadId::of(number << SLOT_BITS | slot))
    }

    /// The payload of this length.
    pub(crate) fn get(&self, id: PayloadId, length: usize) -> &[u8] {
        let place = id.place();
        let (bytes, start) = if place & OWN_BLOCK != 0 {
            let block = self.blocks.get((place & !OWN_BLOCK) as usize);
            (block.map(|block| &**block), 0)
        } else {
            let page = self.pages.get((place >> SLOT_BITS) as usize);
            (
                page.map(|page| page.bytes.as_slice()),
                page.map_or(0, |page| page.start_of(place & SLOT_MASK)),
            )
        };
        let bytes = bytes.and_then(|bytes| bytes.get(start..start + length));
        bytes.unwrap_or_default()
    }

    pub(crate) fn get_mut(&mut self, id: PayloadId, length: usize) -> &mut [u8] {
        let place = id.place();
        let (bytes, start) = if place & OWN_BLOCK != 0 {
            let block = self.blocks.get_mut((place & !OWN_BLOCK) as usize);
            (block.map(|block| &mut **block), 0)
        } else {
            let page = self.pages.get_mut((place >> SLOT_BITS) as usize);
            let start = page
                .as_ref()
                .map_or(0, |page| page.start_of(place & SLOT_MASK));
            (page.map(|page| page.bytes.as_mut_slice()), start)
        };
        let bytes = bytes.and_then(|bytes| bytes.get_mut(start..start + length));
        bytes.unwrap_or_default()
    }

    /// Returns whether a payload of one length may become one of the other where it is.
    pub(crate) fn is_same_size(&self, id: PayloadId, before: usize, after: usize) -> bool {
        let is_block = id.place() & OWN_BLOCK != 0;
        before == after || !is_block && Class::of(before) == Class::of(after)
    }

    /// Gives up a payload of this length. A page without any gives its memory back, unless it is
    /// the only one of its class with room: what comes and goes does not pay for a page each time.
    pub(crate) fn free(&mut self, id: PayloadId, length: usize) {
        let place = id.place();
        if place & OWN_BLOCK != 0 {
            let number = place & !OWN_BLOCK;
            if let Some(block) = self.blocks.get_mut(number as usize) {
                *block = Box::default();
                self.free_blocks.push(number);
            }
            return;
        }
        let number = place >> SLOT_BITS;
        let page = self.pages.get_mut(number as usize);
        let (Some(class), Some(page)) = (Class::of(length), page) else {
            return;
        };
        let Some(with_room) = self.with_room.get_mut(class.number) else {
            return;
        };
        if !page.has_room() {
            page.position = with_room.len() as u32;
            with_room.push(number);
        }
        page.give_back(place & SLOT_MASK);
        if page.used == 0 && with_room.len() > 1 {
            let position = page.position;
            *page = Page::default();
            self.free_pages.push(number);
            with_room.swap_remove(position as usize);
            let moved = with_room.get(position as usize);
            if let Some(page) = moved.and_then(|moved| self.pages.get_mut(*moved as usize)) {
                page.position = position;
            }
        }
    }

    /// Payloads that are stored.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let in_pages: u32 = self.pages.iter().map(|page| page.used).sum();
        in_pages as usize + self.blocks.len() - self.free_blocks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_the_smallest_that_holds_its_payload() {
        let mut before = 0;
        for bytes in 0..=COARSE_BYTES {
            let class = Class::of(bytes).unwrap();
            assert!(class.slot_bytes >= bytes, "{bytes}");
            let step = if bytes <= FINE_BYTES {
                FINE_STEP
            } else {
                COARSE_STEP
            };
            assert!(class.slot_bytes < bytes + step || bytes == 0, "{bytes}");
            assert!(
                class.number == before || class.number == before + 1,
                "{bytes}"
            );
            before = class.number;
        }
        assert_eq!(before, CLASSES - 1);
        assert_eq!(Class::of(COARSE_BYTES + 1), None);
        const { assert!(PAGE_BYTES / FINE_STEP <= 1 << SLOT_BITS) };
    }

    #[test]
    fn payloads_are_what_was_stored_whatever_comes_and_goes() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut payloads = Payloads::new();
        let mut stored: Vec<(PayloadId, Vec<u8>)> = Vec::new();
        for round in 0..60_000_u32 {
            // The number of payloads swings between none and thousands, so that pages go, too.
            let grows = random.u32(..8) < if round / 10_000 % 2 == 0 { 6 } else { 2 };
            if grows || stored.is_empty() {
                let longest = [9, 130, 300, 2_000][random.usize(..4)];
                let bytes: Vec<u8> = (0..random.usize(..longest))
                    .map(|_| random.u8(..))
                    .collect();
                let (name, data) = bytes.split_at(random.usize(..=bytes.len()));
                stored.push((payloads.store(name, data), bytes));
            } else {
                let (id, bytes) = stored.swap_remove(random.usize(..stored.len()));
                assert_eq!(payloads.get(id, bytes.len()), bytes);
                payloads.free(id, bytes.len());
            }
            assert_eq!(payloads.len(), stored.len());
        }
        for (id, bytes) in &stored {
            assert_eq!(payloads.get(*id, bytes.len()), bytes);
        }
        for (id, bytes) in stored {
            payloads.free(id, bytes.len());
        }
        let held = payloads
            .pages
            .iter()
            .filter(|page| page.bytes.capacity() > 0);
        assert!(held.count() <= CLASSES, "a page of each class at most");
        assert!(payloads.blocks.iter().all(|block| block.is_empty()));
    }
}
