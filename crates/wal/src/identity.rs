//! Identity of a data folder in a cluster of several servers (`docs/internals/format.md`,
//! "Identity").
//!
//! Owns the file `MEMBER` and which states of a folder it permits. A folder without that file is
//! one of a server that stands alone.

use bytes::Bytes;

use crate::FORMAT_VERSION;
use crate::bytes_at::{padded, put, u32_at, u64_at};
use crate::error::{WalError, check_version};
use crate::file_names::MEMBER_FILE;
use crate::storage::Storage;
use crate::{marker, recover, snapshot, whole_file};

const MAGIC: &[u8; 8] = b"BATONMBR";
const FIXED_BYTES: usize = 72;
/// The most bytes of a first membership, as in a snapshot.
const MAX_BIRTH_BYTES: usize = 64 << 10;
const FOUNDED: u32 = 1;

const RESTORE_MEMBER: &str = "restore it from a copy of this folder that is not older than the rest; without one, \
     empty the folder, start the server, and admit it again with `baton server replace`";

/// Identity of a data folder in a cluster of several servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The id of the server that owns the folder; never 0.
    pub server: u64,
    /// Drawn when the folder was made; never 0. The members of the cluster know the folder by it.
    pub incarnation: u128,
    /// The incarnation of the only server from which this folder accepts a first membership; 0: it
    /// has promised that to nobody. Given once in the life of a folder.
    pub promise: u128,
    /// The cluster that the folder belongs to; 0: none yet, and the folder has no log.
    pub cluster: u64,
    /// The first membership of that cluster, as the consensus layer writes it; empty without one.
    pub birth: Bytes,
    /// Whether the first membership is in the log. Only then the server may vote, and from then on
    /// a folder without a log has lost it.
    pub is_founded: bool,
}

impl Identity {
    /// The identity of an empty folder.
    pub(crate) fn new(server: u64, incarnation: u128) -> Identity {
        Identity {
            server,
            incarnation,
            promise: 0,
            cluster: 0,
            birth: Bytes::new(),
            is_founded: false,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; FIXED_BYTES + padded(self.birth.len())];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, &FORMAT_VERSION.to_le_bytes());
        put(&mut bytes, 16, &self.server.to_le_bytes());
        put(&mut bytes, 24, &self.incarnation.to_le_bytes());
        put(&mut bytes, 40, &self.promise.to_le_bytes());
        put(&mut bytes, 56, &self.cluster.to_le_bytes());
        let flags = if self.is_founded { FOUNDED } else { 0 };
        put(&mut bytes, 64, &flags.to_le_bytes());
        let length = u32::try_from(self.birth.len()).unwrap_or(u32::MAX);
        put(&mut bytes, 68, &length.to_le_bytes());
        put(&mut bytes, FIXED_BYTES, &self.birth);
        let crc = crc32c::crc32c(&bytes);
        put(&mut bytes, 12, &crc.to_le_bytes());
        bytes
    }

    fn decode(location: &str, bytes: &[u8]) -> Result<Identity, WalError> {
        let corrupt =
            |offset, what: &str| Err(WalError::corrupt(location, offset, what, RESTORE_MEMBER));
        if bytes.get(..8) != Some(MAGIC) {
            return corrupt(
                0,
                "it does not begin as the identity of a member's data folder",
            );
        }
        check_version(location, u32_at(bytes, 8))?;
        let length = u32_at(bytes, 68) as usize;
        if length > MAX_BIRTH_BYTES {
            return corrupt(68, "the first membership has an impossible length");
        }
        let wide = |at| (u128::from(u64_at(bytes, at + 8)) << 64) | u128::from(u64_at(bytes, at));
        let birth = bytes.get(FIXED_BYTES..FIXED_BYTES + length);
        let identity = Identity {
            server: u64_at(bytes, 16),
            incarnation: wide(24),
            promise: wide(40),
            cluster: u64_at(bytes, 56),
            birth: Bytes::copy_from_slice(birth.unwrap_or_default()),
            is_founded: u32_at(bytes, 64) == FOUNDED,
        };
        if bytes != identity.encode() {
            return corrupt(12, "it does not match its checksum");
        }
        if !identity.is_possible() {
            return corrupt(16, "its fields contradict each other");
        }
        Ok(identity)
    }

    /// The refusal of a folder that has no log, or not all of it, though it is a member's (R17).
    pub(crate) fn log_lost(&self, storage: &dyn Storage) -> WalError {
        WalError::MemberLogLost {
            folder: storage.location(""),
            server: self.server,
            cluster: self.cluster,
        }
    }

    fn is_possible(&self) -> bool {
        let belongs = self.cluster != 0;
        self.server != 0
            && self.incarnation != 0
            && belongs != self.birth.is_empty()
            && (belongs || !self.is_founded)
    }
}

/// The identity of a folder; `None` when it has none.
pub(crate) fn read(storage: &dyn Storage) -> Result<Option<Identity>, WalError> {
    let location = storage.location(MEMBER_FILE);
    let most = FIXED_BYTES + MAX_BIRTH_BYTES + 1;
    let bytes = whole_file::read_beginning(storage, MEMBER_FILE, most)?;
    bytes
        .map(|bytes| Identity::decode(&location, &bytes))
        .transpose()
}

/// Stores an identity durably, in the place of the one before. After an error nobody knows which of
/// the two the next start reads.
pub(crate) fn write(storage: &dyn Storage, identity: &Identity) -> Result<(), WalError> {
    if identity.birth.len() > MAX_BIRTH_BYTES {
        return Err(WalError::TooLarge {
            what: "membership record",
            bytes: identity.birth.len() as u64,
            limit_bytes: MAX_BIRTH_BYTES as u64,
        });
    }
    whole_file::write_atomically(storage, MEMBER_FILE, &identity.encode()).map(drop)
}

/// Refuses the folder of a member, for a server that stands alone.
pub(crate) fn refuse_member(storage: &dyn Storage) -> Result<(), WalError> {
    match read(storage)? {
        None => Ok(()),
        Some(identity) => Err(WalError::MemberFolder {
            folder: storage.location(""),
            server: identity.server,
        }),
    }
}

/// Refuses a folder whose log does not fit its identity: the log of a server that stood alone, or a
/// member's log that is missing.
pub(crate) fn check_log(
    storage: &dyn Storage,
    identity: Option<&Identity>,
) -> Result<(), WalError> {
    let is_marked = marker::read(storage)?.is_some();
    match identity {
        Some(identity) if identity.is_founded && !is_marked => Err(identity.log_lost(storage)),
        Some(identity) if identity.cluster != 0 => Ok(()),
        _ => {
            let has_log = is_marked
                || !recover::sequences(storage)?.is_empty()
                || !snapshot::names(storage)?.is_empty();
            if has_log {
                return Err(WalError::NotAMemberFolder {
                    folder: storage.location(""),
                    file: MEMBER_FILE,
                });
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            server: 3,
            incarnation: 0x4041_4243_4445_4647_4849_4a4b_4c4d_4e4f,
            promise: 0x2021_2223_2425_2627_2829_2a2b_2c2d_2e2f,
            cluster: 0x0123_4567_89ab_cdef,
            birth: Bytes::from_static(b"members"),
            is_founded: true,
        }
    }

    #[test]
    fn the_bytes_of_an_identity_stay_as_they_are() {
        let hex = |bytes: &[u8]| -> String {
            let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
            digits.collect()
        };
        let bytes = identity().encode();
        assert_eq!(
            hex(&bytes),
            concat!(
                "4241544f4e4d4252",
                "01000000",
                "2266794c",
                "0300000000000000",
                "4f4e4d4c4b4a49484746454443424140",
                "2f2e2d2c2b2a29282726252423222120",
                "efcdab8967452301",
                "01000000",
                "07000000",
                "6d656d6265727300",
            )
        );
        assert_eq!(Identity::decode("x", &bytes).unwrap(), identity());
        let new = Identity::new(1, 7);
        assert_eq!(Identity::decode("x", &new.encode()).unwrap(), new);
    }

    #[test]
    fn a_changed_bit_and_a_missing_or_further_byte_are_refused() {
        let whole = identity().encode();
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                let refused = Identity::decode("MEMBER", &bytes).unwrap_err().to_string();
                assert!(refused.starts_with("MEMBER "), "{refused}");
            }
            assert!(Identity::decode("MEMBER", &whole[..at]).is_err());
        }
        assert!(Identity::decode("MEMBER", &[&whole[..], &[0]].concat()).is_err());
    }

    #[test]
    fn fields_that_contradict_each_other_are_refused() {
        let changes: [fn(&mut Identity); 5] = [
            |identity| identity.server = 0,
            |identity| identity.incarnation = 0,
            |identity| identity.cluster = 0,
            |identity| identity.birth = Bytes::new(),
            |identity| (identity.cluster, identity.birth) = (0, Bytes::new()),
        ];
        for change in changes {
            let mut changed = identity();
            change(&mut changed);
            let refused = Identity::decode("MEMBER", &changed.encode()).unwrap_err();
            assert!(refused.to_string().contains("contradict"), "{refused}");
        }
    }
}
