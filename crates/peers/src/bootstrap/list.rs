//! The static list of voters that a server is started with, and what is wrong with one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::codec::ListFingerprint;
use crate::handshake::MAX_SERVER_ID;

/// The voters that a server is started with, by id, with their addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticList {
    servers: Arc<BTreeMap<u64, String>>,
    fingerprint: ListFingerprint,
}

/// Error in a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// It has no server.
    #[error("the list of servers is empty: name each server, this one included")]
    Empty,
    /// An id that no server can have.
    #[error("the list of servers has the id {id}: use ids from 1 to 127")]
    BadId {
        /// The id.
        id: u64,
    },
    /// An id is there twice.
    #[error("the list of servers has the id {id} twice: give each server an id of its own")]
    SameId {
        /// The id.
        id: u64,
    },
    /// Two servers have one address.
    #[error(
        "the list of servers has the address {address} for server {one} and for server {other}: correct one of them"
    )]
    SameAddress {
        /// The address.
        address: String,
        /// One server.
        one: u64,
        /// The other one.
        other: u64,
    },
    /// This server is not in its own list.
    #[error("the list of servers lacks this server, {id}: add it, or correct the id")]
    LacksThisServer {
        /// This server.
        id: u64,
    },
}

impl StaticList {
    /// A list of ids and addresses, in any order.
    ///
    /// # Errors
    /// [`ListError`].
    pub fn new(servers: impl IntoIterator<Item = (u64, String)>) -> Result<StaticList, ListError> {
        let mut list = BTreeMap::new();
        let mut by_address: BTreeMap<String, u64> = BTreeMap::new();
        for (id, address) in servers {
            if id == 0 || id > MAX_SERVER_ID {
                return Err(ListError::BadId { id });
            }
            if let Some(one) = by_address.insert(address.clone(), id)
                && one != id
            {
                return Err(ListError::SameAddress {
                    address,
                    one,
                    other: id,
                });
            }
            if list.insert(id, address).is_some() {
                return Err(ListError::SameId { id });
            }
        }
        if list.is_empty() {
            return Err(ListError::Empty);
        }
        Ok(StaticList {
            fingerprint: fingerprint_of(&list),
            servers: Arc::new(list),
        })
    }

    /// The servers, by id.
    pub fn servers(&self) -> &BTreeMap<u64, String> {
        &self.servers
    }

    /// The server that gives birth to the cluster: the one with the lowest id.
    pub fn lowest(&self) -> u64 {
        self.servers.keys().next().copied().unwrap_or(0)
    }

    /// Returns whether the number of voters is even: it tolerates no more failures than the odd
    /// number below it.
    pub fn is_even(&self) -> bool {
        self.servers.len().is_multiple_of(2)
    }

    /// The same for the same ids and addresses.
    pub fn fingerprint(&self) -> ListFingerprint {
        self.fingerprint
    }
}

/// FNV-1a of 64 bits over ids and addresses.
fn fingerprint_of(servers: &BTreeMap<u64, String>) -> ListFingerprint {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut take = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    for (id, address) in servers {
        take(&id.to_le_bytes());
        take(address.as_bytes());
        take(b"\n");
    }
    ListFingerprint(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(servers: &[(u64, &str)]) -> Result<StaticList, ListError> {
        StaticList::new(servers.iter().map(|(id, name)| (*id, (*name).to_owned())))
    }

    #[test]
    fn the_order_of_a_list_does_not_count() {
        let one = list(&[(1, "a:1"), (2, "b:1")]).unwrap();
        let other = list(&[(2, "b:1"), (1, "a:1")]).unwrap();
        assert_eq!(one.fingerprint(), other.fingerprint());
        assert_eq!(one.lowest(), 1);
        // Builds that start a cluster together have to agree.
        assert_eq!(one.fingerprint(), ListFingerprint(0x6ce5_52be_9899_9085));
        assert!(one.is_even());
        for different in [
            &[(1, "a:1")][..],
            &[(1, "a:1"), (3, "b:1")],
            &[(1, "a:1"), (2, "b:2")],
            &[(1, "b:1"), (2, "a:1")],
        ] {
            assert_ne!(list(different).unwrap().fingerprint(), one.fingerprint());
        }
    }

    #[test]
    fn what_is_wrong_with_a_list_is_named() {
        assert_eq!(list(&[]), Err(ListError::Empty));
        assert_eq!(list(&[(0, "a")]), Err(ListError::BadId { id: 0 }));
        assert_eq!(list(&[(128, "a")]), Err(ListError::BadId { id: 128 }));
        assert!(list(&[(127, "a")]).is_ok());
        let same = list(&[(1, "a"), (1, "b")]);
        assert_eq!(same, Err(ListError::SameId { id: 1 }));
        let same = list(&[(1, "a"), (1, "a")]);
        assert_eq!(same, Err(ListError::SameId { id: 1 }));
        assert_eq!(
            list(&[(1, "a"), (2, "a")]),
            Err(ListError::SameAddress {
                address: "a".to_owned(),
                one: 1,
                other: 2
            })
        );
    }
}
