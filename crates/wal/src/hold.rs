//! The file that says that a folder was made from a backup, and that its server has yet to wait
//! until the leases of the sessions before the restore have ended. One line of text with a
//! checksum, as the marker has.

use crate::error::WalError;
use crate::file_names::HOLD_FILE;
use crate::storage::Storage;
use crate::{FORMAT_VERSION, whole_file};

const LONGEST: usize = 256;

/// Condition that a restored folder's server waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// The longest timeout of a session that is known from before the restore, in milliseconds. The
    /// server waits at least as long, and as long as its own longest timeout.
    pub longest_timeout_ms: u64,
    /// Time at which the folder was made, in milliseconds since 1970.
    pub made_ms: i64,
}

/// Returns the condition that the folder's server waits for, if there is one.
///
/// # Errors
/// [`WalError`] when the file cannot be read or is damaged.
pub fn read_hold(storage: &dyn Storage) -> Result<Option<Hold>, WalError> {
    let location = storage.location(HOLD_FILE);
    let Some(buffer) = whole_file::read_beginning(storage, HOLD_FILE, LONGEST)? else {
        return Ok(None);
    };
    let text = String::from_utf8(buffer).unwrap_or_default();
    let field = |name: &str| {
        let mut words = text.split(' ');
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    let hold = field("longest_timeout_ms")
        .zip(field("made_ms"))
        .and_then(|(longest, made)| {
            Some(Hold {
                longest_timeout_ms: longest.parse().ok()?,
                made_ms: made.parse().ok()?,
            })
        });
    hold.filter(|hold| text == line(*hold))
        .map(Some)
        .ok_or_else(|| {
            let remedy = "remove it once the servers from before the restore have been stopped for longer than the \
                          longest timeout of a session";
            let what = "it is not the mark of a restored folder";
            WalError::corrupt(&location, 0, what, remedy)
        })
}

/// Writes the file durably.
///
/// # Errors
/// [`WalError`] when the disk refuses.
pub fn write_hold(storage: &dyn Storage, hold: Hold) -> Result<(), WalError> {
    whole_file::write_atomically(storage, HOLD_FILE, line(hold).as_bytes()).map(drop)
}

/// Removes the file durably, if it is there: the leases have ended.
///
/// # Errors
/// [`WalError`] when the disk refuses.
pub fn remove_hold(storage: &dyn Storage) -> Result<(), WalError> {
    whole_file::remove_durably(storage, HOLD_FILE)
        .map_err(|error| WalError::io("remove", storage.location(HOLD_FILE), error))
}

fn line(hold: Hold) -> String {
    let Hold {
        longest_timeout_ms,
        made_ms,
    } = hold;
    let text = format!(
        "baton-restored format={FORMAT_VERSION} longest_timeout_ms={longest_timeout_ms} made_ms={made_ms}"
    );
    format!("{text} crc32c={:08x}\n", crc32c::crc32c(text.as_bytes()))
}
