//! The progress of long work on a data folder, for people who wait for it. The thread that works
//! writes it, another thread reads it; it decides nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

/// Progress of the step that is under way.
#[derive(Debug, Default)]
pub struct Progress {
    step: Mutex<Step>,
    done: AtomicU64,
}

/// One step of the work, and how much there is of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Step {
    /// Activity, like "loading the snapshot".
    pub name: &'static str,
    /// Unit of the count.
    pub unit: Unit,
    /// The total; 0: that is not known.
    pub total: u64,
}

/// Unit of a count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    #[default]
    Bytes,
    /// Log entries.
    Entries,
}

impl Progress {
    /// A step begins.
    pub fn begin(&self, name: &'static str, unit: Unit, total: u64) {
        let mut step = self.step.lock();
        self.done.store(0, Relaxed);
        *step = Step { name, unit, total };
    }

    /// This many more are done.
    pub fn add(&self, count: usize) {
        self.done.fetch_add(count as u64, Relaxed);
    }

    /// The step that is under way, and how much of it is done. Its name is empty before the first.
    #[must_use]
    pub fn read(&self) -> (Step, u64) {
        let step = self.step.lock();
        (*step, self.done.load(Relaxed))
    }
}
