//! Files of a log that newer snapshots have made needless, on their way out. Owns the order: the
//! oldest segment goes first, each durably, so that there is never a gap.

use std::sync::Arc;

use crate::error::WalError;
use crate::file_names::segment_name;
use crate::recover;
use crate::storage::Storage;
use crate::whole_file;

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
        for name in &self.snapshots {
            self.remove_file(name)?;
        }
        for sequence in recover::sequences(self.storage.as_ref())? {
            if sequence >= self.segments_before {
                break;
            }
            self.remove_file(&segment_name(sequence))?;
        }
        Ok(())
    }

    /// A file may be gone: a removal that was begun later, where the disk is full, comes before one
    /// that waits for another thread.
    fn remove_file(&self, name: &str) -> Result<(), WalError> {
        whole_file::remove_durably(self.storage.as_ref(), name)
            .map_err(|error| WalError::io("remove", self.storage.location(name), error))
    }
}
