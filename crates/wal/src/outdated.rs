//! Files of a log that newer snapshots have made needless, on their way out. Owns the order: the
//! oldest segment goes first, each durably, so that there is never a gap.

use std::fs::File;
use std::sync::Arc;

use crate::error::WalError;
use crate::file_names::segment_name;
use crate::recover;
use crate::storage::Storage;
use crate::whole_file;

/// Bytes that are freed at once. Where ext4 discards what it frees, a segment in one piece kept
/// every sync waiting for 80 to 180 ms; parts of this size with 5 ms between them did not.
const PART_BYTES: u64 = 1 << 20;

/// Files that the log counts on no more.
#[derive(Debug)]
#[must_use = "the files stay until they are removed"]
pub struct Outdated {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) snapshots: Vec<String>,
    /// The sequence of the first segment that stays.
    pub(crate) segments_before: u64,
}

impl Outdated {
    /// Removes the files, and segments that an earlier call has left.
    ///
    /// # Errors
    /// [`WalError`] when the disk refuses; the rest is then still there, which does no harm.
    pub fn remove(self) -> Result<(), WalError> {
        self.remove_in_parts(|| false)
    }

    /// Removes them like [`remove`](Outdated::remove), and frees their bytes in small parts, since
    /// what frees much at once keeps every sync on the same disk waiting. `pause` waits between two
    /// parts, and returns whether to go on so: otherwise the rest is freed at once.
    ///
    /// # Errors
    /// Those of [`remove`](Outdated::remove).
    pub fn remove_in_parts(self, pause: impl Fn() -> bool) -> Result<(), WalError> {
        for name in &self.snapshots {
            self.remove_file(name, &pause)?;
        }
        for sequence in recover::sequences(self.storage.as_ref())? {
            if sequence >= self.segments_before {
                break;
            }
            self.remove_file(&segment_name(sequence), &pause)?;
        }
        Ok(())
    }

    /// A file may be gone: a removal that was begun later, where the disk is full, comes before one
    /// that waits for another thread.
    fn remove_file(&self, name: &str, pause: &dyn Fn() -> bool) -> Result<(), WalError> {
        let file = whole_file::remove_open_durably(self.storage.as_ref(), name)
            .map_err(|error| WalError::io("remove", self.storage.location(name), error))?;
        if let Some(file) = file {
            free(&file, pause);
        }
        Ok(())
    }
}

/// Frees the bytes of a file without a name. What it leaves is free once the file is closed.
fn free(file: &File, pause: &dyn Fn() -> bool) {
    let mut left = file.metadata().map_or(0, |file| file.len());
    while left > PART_BYTES && pause() {
        left -= PART_BYTES;
        if file.set_len(left).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use super::*;
    use crate::file_names::segment_sequence;
    use crate::storage::DirStorage;

    /// A folder with a segment of ten parts and a half, and the removal of that segment.
    fn outdated(folder: &std::path::Path) -> Outdated {
        let storage = DirStorage::open(folder).unwrap();
        assert!(segment_sequence(&segment_name(1)).is_some());
        let content = vec![7; usize::try_from(PART_BYTES * 21 / 2).unwrap()];
        fs::write(folder.join(segment_name(1)), content).unwrap();
        Outdated {
            storage: Arc::new(storage),
            snapshots: Vec::new(),
            segments_before: 2,
        }
    }

    #[test]
    fn bytes_are_freed_in_parts_once_the_name_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let outdated = outdated(folder.path());
        let parts = Cell::new(0);
        let pause = || {
            assert!(!folder.path().join(segment_name(1)).exists());
            parts.set(parts.get() + 1);
            true
        };
        outdated.remove_in_parts(pause).unwrap();
        assert_eq!(parts.get(), 10);
    }

    #[test]
    fn parts_are_freed_from_the_end_until_there_is_a_hurry() {
        let folder = tempfile::tempdir().unwrap();
        let _outdated = outdated(folder.path());
        let segment = folder.path().join(segment_name(1));
        let file = File::options().write(true).open(&segment).unwrap();
        let left = Cell::new(3);
        let pause = || {
            left.set(left.get() - 1);
            left.get() > 0
        };
        free(&file, &pause);
        assert_eq!(fs::metadata(&segment).unwrap().len(), PART_BYTES * 17 / 2);
    }

    #[test]
    fn bytes_that_have_another_name_stay() {
        let folder = tempfile::tempdir().unwrap();
        let outdated = outdated(folder.path());
        let (segment, copy) = (folder.path().join(segment_name(1)), folder.path().join("x"));
        fs::hard_link(&segment, &copy).unwrap();
        let before = fs::read(&copy).unwrap();
        outdated.remove_in_parts(|| true).unwrap();
        assert!(!segment.exists());
        assert!(fs::read(&copy).unwrap() == before, "the copy has changed");
    }
}
