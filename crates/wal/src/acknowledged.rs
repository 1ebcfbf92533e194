//! The file that says which entries the members of a cluster have acknowledged (R19): this folder's
//! server to others, where it has lost them, and the others to this one. One line of text with a
//! checksum, as the marker has. It may lag behind what is true, and never claims more.

use std::fmt::Write;

use crate::error::WalError;
use crate::file_names::ACKNOWLEDGED_FILE;
use crate::storage::Storage;
use crate::{FORMAT_VERSION, whole_file};

const LONGEST: usize = 16 << 10;

/// Committed entries that members are known to have acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Acknowledged {
    /// The newest one that this folder's server has acknowledged and whose entry it lacks since the
    /// folder was rolled back; 0 for none.
    pub lost: u64,
    /// Newest entry of each other server, with its id and the incarnation of its folder.
    pub members: Vec<(u64, u128, u64)>,
}

/// Reads the folder's record; an empty one where it has no such file.
pub(crate) fn read(storage: &dyn Storage) -> Result<Acknowledged, WalError> {
    let Some(buffer) = whole_file::read_beginning(storage, ACKNOWLEDGED_FILE, LONGEST)? else {
        return Ok(Acknowledged::default());
    };
    let text = String::from_utf8(buffer).unwrap_or_default();
    parse(&text)
        .filter(|acknowledged| text == line(acknowledged))
        .ok_or_else(|| {
            let location = storage.location(ACKNOWLEDGED_FILE);
            let what = "it does not say which entries were acknowledged";
            let remedy =
                "remove it if no data folder of this ensemble was ever put back from a copy";
            WalError::corrupt(&location, 0, what, remedy)
        })
}

/// Stores it durably, in the place of what was there before.
pub(crate) fn write(storage: &dyn Storage, acknowledged: &Acknowledged) -> Result<(), WalError> {
    whole_file::write_atomically(storage, ACKNOWLEDGED_FILE, line(acknowledged).as_bytes())
        .map(drop)
}

fn parse(text: &str) -> Option<Acknowledged> {
    let mut acknowledged = Acknowledged::default();
    for word in text.split(' ') {
        let Some((name, value)) = word.split_once('=') else {
            continue;
        };
        if name == "lost" {
            acknowledged.lost = value.parse().ok()?;
        } else if let Some((id, incarnation)) = name.split_once(':') {
            acknowledged.members.push((
                id.parse().ok()?,
                u128::from_str_radix(incarnation, 16).ok()?,
                value.parse().ok()?,
            ));
        }
    }
    Some(acknowledged)
}

fn line(acknowledged: &Acknowledged) -> String {
    let mut text = format!(
        "baton-acknowledged format={FORMAT_VERSION} lost={}",
        acknowledged.lost
    );
    for (id, incarnation, index) in &acknowledged.members {
        // Into a string it always succeeds.
        let _ = write!(text, " {id}:{incarnation:032x}={index}");
    }
    format!("{text} crc32c={:08x}\n", crc32c::crc32c(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FaultStorage;

    #[test]
    fn what_was_stored_is_read_and_damage_is_named() {
        let disk = FaultStorage::new();
        assert_eq!(read(&disk).unwrap(), Acknowledged::default());
        let stored = Acknowledged {
            lost: 7,
            members: vec![(2, 0x0a << 120, 9), (3, 1, u64::MAX)],
        };
        write(&disk, &stored).unwrap();
        assert_eq!(read(&disk).unwrap(), stored);
        let length = disk.content(ACKNOWLEDGED_FILE).unwrap().len() as u64;
        for offset in 0..length {
            let damaged = disk.kill();
            damaged.flip_bit(ACKNOWLEDGED_FILE, offset, 1);
            let refused = read(&damaged).unwrap_err().to_string();
            assert!(refused.contains("ACKNOWLEDGED"), "{refused}");
        }
    }
}
