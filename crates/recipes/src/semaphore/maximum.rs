//! Number of permits: one number in the tree, on which all participants agree.
//!
//! Owns the data of the semaphore's node. Leases are created only under a check of that node's
//! version, so nobody ever takes one under a number that is not the tree's (H48). Must never
//! overwrite a number that somebody else has stored meanwhile.

use std::sync::{Arc, Mutex, PoisonError};

use baton_client::{CreateMode, Data, Error, Session};
use baton_proto::Stat;

use super::SemaphoreError;
use crate::acquire::LockError;
use crate::kind::{FolderMarks, Kind};
use crate::parents::{ParentKind, ensure_parents};
use crate::retry;

/// Number of bytes of foreign data that are shown.
const SHOWN_BYTES: usize = 40;

/// The number, as one state of the semaphore's node had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AgreedMaximum {
    pub permits: u32,
    pub version: i32,
    czxid: i64,
}

impl AgreedMaximum {
    /// Returns whether the node with this record still has it.
    pub(super) fn is_that_of(&self, stat: &Stat) -> bool {
        (self.version, self.czxid) == (stat.version, stat.czxid)
    }
}

/// Knowledge of one handle about the number.
#[derive(Debug)]
pub(super) struct Maximum {
    path: Arc<str>,
    /// Number that the handle was made with.
    declared: Option<u32>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Number as last read.
    known: Option<AgreedMaximum>,
    /// Whether ours was the tree's at some time. From then on the tree's rules.
    compared: bool,
}

impl Maximum {
    pub(super) fn new(path: &Arc<str>, declared: Option<u32>) -> Self {
        Self {
            path: Arc::clone(path),
            declared,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number as last read, or else as it is now; stores ours where there is none.
    pub(super) async fn agree(&self, session: &Session) -> Result<AgreedMaximum, SemaphoreError> {
        let known = self.state().known;
        match known {
            Some(known) => Ok(known),
            None => self.read_or_store(session).await,
        }
    }

    /// Forgets what was read, which turned out to be old.
    pub(super) fn forget(&self) {
        self.state().known = None;
    }

    /// The number that this state of the node has.
    ///
    /// # Errors
    /// It has none, or not the one we were made with.
    pub(super) fn read(&self, node: &Data) -> Result<AgreedMaximum, SemaphoreError> {
        let permits = std::str::from_utf8(&node.data)
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .filter(|permits| *permits > 0);
        let Some(permits) = permits else {
            let shown = node.data.get(..SHOWN_BYTES).unwrap_or(&node.data);
            return Err(SemaphoreError::ForeignData {
                path: self.path.to_string(),
                data: String::from_utf8_lossy(shown).into_owned(),
            });
        };
        let agreed = AgreedMaximum {
            permits,
            version: node.stat.version,
            czxid: node.stat.czxid,
        };
        let mut state = self.state();
        if let Some(ours) = self.declared.filter(|ours| *ours != permits)
            && !state.compared
        {
            return Err(SemaphoreError::MaximumDiffers {
                path: self.path.to_string(),
                ours,
                stored: permits,
            });
        }
        state.compared = true;
        state.known = Some(agreed);
        Ok(agreed)
    }

    async fn read_or_store(&self, session: &Session) -> Result<AgreedMaximum, SemaphoreError> {
        loop {
            let outcome = match session.get_data(&self.path).await {
                // Made by a library that keeps no number there, or as the parent of something.
                Ok(node) if node.data.is_empty() => {
                    let ours = self.ours()?;
                    if node.stat.num_children > 0 {
                        match FolderMarks::read(session, &self.path).await {
                            Ok(marks) => self.refuse_others(&marks)?,
                            Err(error) => {
                                self.passes(session, error).await?;
                                continue;
                            }
                        }
                    }
                    let set = session.set_data(&self.path, &ours, Some(node.stat.version));
                    set.await.map(drop)
                }
                Ok(node) => return self.read(&node),
                Err(error) if error.is_no_node() => self.create(session).await?,
                Err(error) => Err(error),
            };
            // Whether ours was stored or another's, and whether the answer came or not: the next
            // read shows.
            match outcome {
                Err(error) if error.is_bad_version() || error.is_no_node() => {}
                Err(error) => self.passes(session, error).await?,
                Ok(()) => {}
            }
        }
    }

    fn refuse_others(&self, marks: &FolderMarks) -> Result<(), SemaphoreError> {
        match marks.kind() {
            None | Some(Kind::Semaphore) => Ok(()),
            Some(kind) => Err(SemaphoreError::OtherRecipe {
                path: self.path.to_string(),
                what: kind.to_string(),
            }),
        }
    }

    /// Persistent, unlike a lock's directory: a number that was changed must outlive the pauses
    /// between uses.
    async fn create(&self, session: &Session) -> Result<Result<(), Error>, SemaphoreError> {
        let ours = self.ours()?;
        let created = session.create(&self.path, &ours, CreateMode::Persistent);
        Ok(match created.await {
            Ok(_) => Ok(()),
            Err(error) if error.is_node_exists() => Ok(()),
            Err(error) if error.is_no_node() => {
                let above = baton_proto::path::parent(&self.path);
                // That the node is missing is expected; that what is above it cannot be made is.
                match ensure_parents(session, above, ParentKind::Container).await {
                    Ok(()) => Ok(()),
                    Err(error) => return self.passes(session, error).await.map(Ok),
                }
            }
            Err(error) => Err(error),
        })
    }

    fn ours(&self) -> Result<Vec<u8>, SemaphoreError> {
        let ours = self.declared.ok_or_else(|| SemaphoreError::NoMaximum {
            path: self.path.to_string(),
        })?;
        Ok(ours.to_string().into_bytes())
    }

    /// Changes the number to `permits`, and returns the one before.
    pub(super) async fn change(
        &self,
        session: &Session,
        permits: u32,
    ) -> Result<u32, SemaphoreError> {
        // Anyone who changes the number is not bound to the old one; who failed to change it is as
        // before.
        let mut unchanged = RebindOnDrop {
            of: self,
            bound: !std::mem::replace(&mut self.state().compared, true),
        };
        let before = self.change_to(session, permits).await?;
        unchanged.bound = false;
        Ok(before)
    }

    async fn change_to(&self, session: &Session, permits: u32) -> Result<u32, SemaphoreError> {
        let data = permits.to_string();
        loop {
            let before = self.read_or_store(session).await?;
            let set = session.set_data(&self.path, data.as_bytes(), Some(before.version));
            let error = match set.await {
                Ok(_) => {
                    self.forget();
                    return Ok(before.permits);
                }
                Err(error) if error.is_bad_version() || error.is_no_node() => continue,
                Err(error) => error,
            };
            if !error.is_maybe_applied() {
                self.passes(session, error).await?;
                continue;
            }
            let sync = || session.sync(&self.path);
            retry::resolve(session, error.clone(), sync)
                .await
                .map_err(|error| self.client(error))?;
            let now = self.read_or_store(session).await?;
            if now.permits == permits {
                return Ok(before.permits);
            }
            if now.version != before.version {
                // Ours was overtaken by another's change, or never applied: to repeat it could undo
                // that one.
                return Err(self.client(error));
            }
        }
    }

    /// Returns once the operation may be tried again. A create or a set whose outcome is open may,
    /// because the next read comes first.
    async fn passes(&self, session: &Session, error: Error) -> Result<(), SemaphoreError> {
        retry::until_readable(session, error)
            .await
            .map_err(|error| self.client(error))
    }

    fn client(&self, source: Error) -> SemaphoreError {
        let path = self.path.to_string();
        LockError::Client { path, source }.into()
    }
}

/// Binds the handle to its own number again, unless it has changed the tree's.
struct RebindOnDrop<'a> {
    of: &'a Maximum,
    bound: bool,
}

impl Drop for RebindOnDrop<'_> {
    fn drop(&mut self) {
        if self.bound {
            *self.of.state() = State::default();
        }
    }
}
