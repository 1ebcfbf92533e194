//! Lines on their way to the thread that writes them. Owns the bound: the thread that has a
//! line never waits, and a line that finds no room is lost and counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Bytes of lines that may wait.
pub(super) const MOST_BYTES: usize = 4 << 20;
/// Further bytes, for lines that are no changes: no flood of writes hides a login.
pub(super) const RESERVE_BYTES: usize = 1 << 20;
/// Memory that an empty queue keeps.
const KEEP_BYTES: usize = 1 << 20;

/// Whole lines, and how many they are.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) bytes: Vec<u8>,
    pub(crate) lines: u64,
}

#[derive(Debug, Default)]
struct QueuedLines {
    page: Page,
    /// Lines that found no room and were not reported yet.
    lost: u64,
    /// Whether the writer sleeps until there is something.
    is_writer_idle: bool,
    is_ending: bool,
    has_ended: bool,
}

/// Lines that [`Queue::take`] returned.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TakenLines {
    /// Lines that found no room, behind those that were taken.
    pub(super) lost: u64,
    /// Nothing comes after this.
    pub(super) is_last: bool,
}

/// The queue between those who record and the writer.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<QueuedLines>,
    arrived: Condvar,
    ending: Condvar,
    ended: Condvar,
    recorded: AtomicU64,
    lost: AtomicU64,
}

impl Queue {
    /// Takes lines over, and empties the page. They are lost where more than `most` bytes would
    /// wait, or where the record has ended.
    pub(super) fn put(&self, page: &mut Page, most: usize) {
        if page.lines == 0 {
            return;
        }
        let mut waiting = self.waiting.lock();
        let bytes = waiting.page.bytes.len() + page.bytes.len();
        if bytes > most || waiting.is_ending {
            waiting.lost += page.lines;
            self.lost.fetch_add(page.lines, Relaxed);
        } else {
            waiting.page.bytes.extend_from_slice(&page.bytes);
            waiting.page.lines += page.lines;
            self.recorded.fetch_add(page.lines, Relaxed);
        }
        let wakes = std::mem::take(&mut waiting.is_writer_idle);
        drop(waiting);
        if wakes {
            self.arrived.notify_one();
        }
        page.bytes.clear();
        page.lines = 0;
    }

    /// Waits for lines, and takes all that there are in place of what `page` has.
    pub(super) fn take(&self, page: &mut Page) -> TakenLines {
        page.bytes.clear();
        page.bytes.shrink_to(KEEP_BYTES);
        page.lines = 0;
        let mut waiting = self.waiting.lock();
        while waiting.page.lines == 0 && waiting.lost == 0 && !waiting.is_ending {
            waiting.is_writer_idle = true;
            self.arrived.wait(&mut waiting);
        }
        waiting.is_writer_idle = false;
        std::mem::swap(&mut waiting.page, page);
        TakenLines {
            lost: std::mem::take(&mut waiting.lost),
            is_last: waiting.is_ending,
        }
    }

    /// Waits this long, or until the record ends.
    pub(super) fn pause(&self, pause: Duration) {
        let mut waiting = self.waiting.lock();
        if !waiting.is_ending {
            let _ = self.ending.wait_for(&mut waiting, pause);
        }
    }

    /// Lines that were taken could not be written.
    pub(super) fn lose(&self, lines: u64) {
        self.recorded.fetch_sub(lines, Relaxed);
        self.lost.fetch_add(lines, Relaxed);
    }

    /// Nothing more comes. What waits is still written.
    pub(super) fn end(&self) {
        self.waiting.lock().is_ending = true;
        self.ending.notify_all();
        self.arrived.notify_all();
    }

    /// The writer has ended.
    pub(super) fn ended(&self) {
        self.waiting.lock().has_ended = true;
        self.ended.notify_all();
    }

    /// Waits until the writer has ended, for `patience` at most.
    pub(super) fn wait_for_end(&self, patience: Duration) {
        let mut waiting = self.waiting.lock();
        let _ = self
            .ended
            .wait_while_for(&mut waiting, |waiting| !waiting.has_ended, patience);
    }

    #[cfg(test)]
    pub(super) fn has_ended(&self) -> bool {
        self.waiting.lock().has_ended
    }

    /// Lines that were recorded, and lines that were lost.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.recorded.load(Relaxed), self.lost.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(lines: u64, bytes: usize) -> Page {
        Page {
            bytes: vec![b'x'; bytes],
            lines,
        }
    }

    #[test]
    fn what_finds_no_room_is_lost_and_counted_and_nobody_waits() {
        let queue = Queue::default();
        let mut first = page(2, MOST_BYTES);
        queue.put(&mut first, MOST_BYTES);
        assert_eq!(
            (first.lines, first.bytes.len()),
            (0, 0),
            "it is empty again"
        );
        queue.put(&mut page(3, 1), MOST_BYTES);
        queue.put(&mut page(1, 1), MOST_BYTES + RESERVE_BYTES);
        queue.put(&mut page(0, 0), MOST_BYTES);
        assert_eq!(queue.counts(), (3, 3));
        let mut taken = Page::default();
        let first = queue.take(&mut taken);
        assert_eq!(
            first,
            TakenLines {
                lost: 3,
                is_last: false
            }
        );
        assert_eq!((taken.lines, taken.bytes.len()), (3, MOST_BYTES + 1));
        // Room again.
        queue.put(&mut page(1, 1), MOST_BYTES);
        queue.lose(1);
        assert_eq!(queue.counts(), (3, 4));
    }

    #[test]
    fn what_waits_at_the_end_is_taken_and_nothing_comes_after() {
        let queue = Queue::default();
        queue.put(&mut page(1, 10), MOST_BYTES);
        queue.end();
        queue.put(&mut page(1, 10), MOST_BYTES);
        let mut taken = Page::default();
        assert_eq!(
            queue.take(&mut taken),
            TakenLines {
                lost: 1,
                is_last: true
            }
        );
        assert_eq!(taken.lines, 1);
        queue.pause(Duration::from_secs(1000));
        queue.ended();
        queue.wait_for_end(Duration::from_secs(1000));
    }

    #[test]
    fn a_writer_that_waits_gets_what_comes() {
        let queue = Queue::default();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut taken = Page::default();
                let first = queue.take(&mut taken);
                (first, taken.lines)
            });
            queue.put(&mut page(4, 4), MOST_BYTES);
            let (first, lines) = writer.join().unwrap();
            assert_eq!((first.lost, lines), (0, 4));
        });
    }
}
