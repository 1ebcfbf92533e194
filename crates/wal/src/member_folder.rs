//! The data folder of a server of several: its identity, then its log.
//!
//! Owns the order in which a folder becomes a member's. Each step is one file that is replaced
//! whole, so a crash leaves the step before or the step after; what the log of a new member begins
//! with is made of the identity, as often as it takes.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::WalError;
use crate::file_names::MEMBER_FILE;
use crate::identity::{self, Identity};
use crate::options::WalOptions;
use crate::record::{HardState, Record};
use crate::recover::Recovered;
use crate::snapshot::{SnapshotInfo, SnapshotMeta, SnapshotWriter};
use crate::storage::{LockGuard, Storage};
use crate::wal::{self, Wal};

/// Index and term of the snapshot that a cluster begins with. Not 0: a new member would otherwise
/// receive the log from its first entry on, which does not say who the first members are.
const FIRST: u64 = 1;

/// The data folder of a server of several, taken for this process.
///
/// What a method has stored is durable when it returns. After an error the folder is in one of the
/// two states; drop it and open it again.
#[derive(Debug)]
pub struct MemberFolder {
    storage: Arc<dyn Storage>,
    identity: Identity,
    lock: LockGuard,
}

impl MemberFolder {
    /// Takes the folder for the server with this id. An empty folder gets `new_incarnation`, a
    /// random number that is not 0.
    ///
    /// # Errors
    /// [`WalError`]: in use, the folder of another server or of one that stands alone, a member's
    /// log that is missing, or a disk that refuses. Nothing but the lock is changed then.
    pub fn open(
        storage: Arc<dyn Storage>,
        server: u64,
        new_incarnation: u128,
    ) -> Result<MemberFolder, WalError> {
        let lock = wal::lock(storage.as_ref())?;
        let found = identity::read(storage.as_ref())?;
        if let Some(identity) = found.as_ref().filter(|found| found.server != server) {
            return Err(WalError::OtherServer {
                folder: storage.location(""),
                found: identity.server,
                expected: server,
            });
        }
        identity::check_log(storage.as_ref(), found.as_ref())?;
        let identity = match found {
            Some(identity) => {
                // The process before may have been killed between the rename and its sync.
                storage
                    .sync_dir()
                    .map_err(|error| WalError::io("sync", storage.location(""), error))?;
                identity
            }
            None => {
                let identity = Identity::new(server, new_incarnation);
                check(
                    &identity,
                    "an id and an incarnation are not 0",
                    |identity| identity.server != 0 && identity.incarnation != 0,
                )?;
                identity::write(storage.as_ref(), &identity)?;
                identity
            }
        };
        Ok(MemberFolder {
            storage,
            identity,
            lock,
        })
    }

    /// The stored identity.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Stores the promise to accept a first membership from this incarnation only.
    ///
    /// # Errors
    /// [`WalError::Identity`] if the folder has promised already or belongs to a cluster;
    /// otherwise the disk refuses.
    pub fn promise(&mut self, to: u128) -> Result<(), WalError> {
        check(
            &self.identity,
            "a folder promises once, before it belongs to a cluster",
            |old| to != 0 && old.promise == 0 && old.cluster == 0,
        )?;
        self.store(Identity {
            promise: to,
            ..self.identity.clone()
        })
    }

    /// Stores the cluster and its first membership. The log does not have it yet:
    /// [`open_log`](Self::open_log) sees to that.
    ///
    /// # Errors
    /// [`WalError::Identity`] if the folder belongs to a cluster already; [`WalError::TooLarge`];
    /// otherwise the disk refuses.
    pub fn store_birth(&mut self, cluster: u64, membership: Bytes) -> Result<(), WalError> {
        let is_whole = cluster != 0 && !membership.is_empty();
        check(
            &self.identity,
            "a folder belongs to one cluster, and has its first membership",
            |old| is_whole && old.cluster == 0,
        )?;
        self.store(Identity {
            cluster,
            birth: membership,
            ..self.identity.clone()
        })
    }

    /// Opens the log. That of a new member begins with a snapshot of the first membership, into
    /// which `first_state` writes the chunks of the first state; they are durable, and stored as
    /// such, when this returns. Of `options` the cluster is ignored.
    ///
    /// # Errors
    /// [`WalError::Identity`] if the folder belongs to no cluster; otherwise as [`Wal::open`].
    pub fn open_log(
        self,
        options: WalOptions,
        first_state: impl FnOnce(&mut SnapshotWriter) -> Result<(), WalError>,
    ) -> Result<(Wal, Recovered), WalError> {
        self.open_or_found(FIRST, options, first_state)
    }

    /// [`open_log`](Self::open_log) of a cluster that begins with the state of another one. Its
    /// first entry is a later one, so that a new member, whose log begins with an empty state,
    /// receives a snapshot.
    ///
    /// # Errors
    /// As [`open_log`](Self::open_log).
    pub fn found_log(
        self,
        options: WalOptions,
        first_state: impl FnOnce(&mut SnapshotWriter) -> Result<(), WalError>,
    ) -> Result<(Wal, Recovered), WalError> {
        self.open_or_found(FIRST + 1, options, first_state)
    }

    fn open_or_found(
        self,
        first: u64,
        options: WalOptions,
        first_state: impl FnOnce(&mut SnapshotWriter) -> Result<(), WalError>,
    ) -> Result<(Wal, Recovered), WalError> {
        check(
            &self.identity,
            "a folder has a log once it belongs to a cluster",
            |identity| identity.cluster != 0,
        )?;
        let options = WalOptions {
            cluster_id: Some(self.identity.cluster),
            ..options
        };
        let storage = Arc::clone(&self.storage);
        let (mut wal, mut recovered) = Wal::open_locked(storage, options, self.lock)?;
        let identity = self.identity;
        let is_empty = recovered.entries.is_empty() && recovered.commit == 0;
        if recovered.snapshot.is_none() {
            if identity.is_founded || !is_empty {
                return Err(identity.log_lost(self.storage.as_ref()));
            }
            let membership = identity.birth.clone();
            recovered.snapshot = Some(found(&mut wal, first, membership, first_state)?);
            recovered.commit = first;
            recovered.hard_state = FIRST_STATE;
        }
        if !identity.is_founded {
            let founded = Identity {
                is_founded: true,
                ..identity
            };
            identity::write(self.storage.as_ref(), &founded)?;
        }
        Ok((wal, recovered))
    }

    fn store(&mut self, identity: Identity) -> Result<(), WalError> {
        identity::write(self.storage.as_ref(), &identity)?;
        self.identity = identity;
        Ok(())
    }
}

/// Nobody has voted in the first term.
const FIRST_STATE: HardState = HardState {
    term: FIRST,
    vote: 0,
};

/// Puts the first membership in the place of an empty log.
fn found(
    wal: &mut Wal,
    index: u64,
    membership: Bytes,
    first_state: impl FnOnce(&mut SnapshotWriter) -> Result<(), WalError>,
) -> Result<SnapshotInfo, WalError> {
    let mut writer = wal.snapshots().receiver(SnapshotMeta {
        index,
        term: FIRST,
        zxid: 0,
        time_ms: 0,
        membership,
    })?;
    first_state(&mut writer)?;
    let received = writer.finish()?;
    wal.append(&[Record::HardState(FIRST_STATE)])?;
    wal.append_received(&received)?;
    wal.sync()?;
    wal.finish_received(&received)
}

fn check(
    identity: &Identity,
    rule: &'static str,
    holds: impl FnOnce(&Identity) -> bool,
) -> Result<(), WalError> {
    if holds(identity) {
        return Ok(());
    }
    Err(WalError::Identity {
        file: MEMBER_FILE,
        rule,
    })
}
