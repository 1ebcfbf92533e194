//! One node's data, written so that the outcome is known.
//!
//! Owns the conditional write. Each one is a multi with a receipt, so a lost answer is resolved,
//! whatever the data looks like: the values of other libraries have no room for a writer's tag
//! (H77, H78). Must never write twice for one call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use baton_client::{Client, CreateMode, Data, Error, Op, Session, path};
use bytes::Bytes;

use super::error::ValueError;
use crate::kind::FolderMarks;
use crate::parents::{ParentKind, ensure_parents};
use crate::receipt::{Outcome, Receipts};
use crate::recipe_path;
use crate::retry;

#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) client: Client,
    pub(super) path: Arc<str>,
    receipts: Arc<Receipts>,
    /// Whether a write has found no other recipe at the path.
    is_own: Arc<AtomicBool>,
}

/// State that a node must have for a write to it to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpectedNode {
    Absent,
    Version(i32),
    Anything,
}

impl Cell {
    pub(super) fn new(client: &Client, path: &str) -> Result<Self, ValueError> {
        recipe_path::check(path, "cannot be a value")
            .map_err(|why| ValueError::bad_path(path, why))?;
        Ok(Self {
            client: client.clone(),
            path: Arc::from(path),
            receipts: Arc::default(),
            is_own: Arc::default(),
        })
    }

    /// The node, if it is there.
    pub(super) async fn read(&self) -> Result<Option<Data>, ValueError> {
        loop {
            let session = self.session().await?;
            let read = match session.get_data(&self.path).await {
                Ok(data) => return Ok(Some(data)),
                Err(error) if error.is_no_node() => return Ok(None),
                Err(error) => error,
            };
            self.after(&session, read).await?;
        }
    }

    /// Writes `data` if the node is as expected: `false` if it is not.
    ///
    /// Goes on in the background if the caller goes away.
    pub(super) async fn write(
        &self,
        expected: ExpectedNode,
        data: &Bytes,
    ) -> Result<bool, ValueError> {
        let mut absent = expected == ExpectedNode::Absent;
        loop {
            let session = self.session().await?;
            if !self.is_own.load(Ordering::Relaxed) {
                match FolderMarks::read(&session, &self.path).await {
                    Ok(marks) => self.refuse_others(&marks)?,
                    Err(error) => {
                        self.after(&session, error).await?;
                        continue;
                    }
                }
                self.is_own.store(true, Ordering::Relaxed);
            }
            let parts = if absent {
                vec![Op::create(
                    &*self.path,
                    data.clone(),
                    CreateMode::Persistent,
                )]
            } else {
                self.replacement(expected, data)?
            };
            match self.receipts.apply(&session, &self.path, parts).await {
                Outcome::Applied => return Ok(true),
                Outcome::NotApplied => {}
                Outcome::Refused(error) if error.is_no_node() && absent => {
                    let above = path::parent(&self.path);
                    if let Err(error) =
                        ensure_parents(&session, above, ParentKind::Persistent).await
                    {
                        self.after(&session, error).await?;
                    }
                }
                // Somebody was faster.
                Outcome::Refused(error)
                    if error.is_no_node() || error.is_node_exists() || error.is_bad_version() =>
                {
                    if expected != ExpectedNode::Anything {
                        return Ok(false);
                    }
                    absent = error.is_no_node();
                }
                Outcome::Refused(source) => return Err(self.client_error(source)),
                Outcome::Failed(error) => self.after(&session, error).await?,
                Outcome::Unknown(source) => {
                    return Err(ValueError::Unknown {
                        path: self.path.to_string(),
                        source,
                    });
                }
            }
        }
    }

    fn refuse_others(&self, marks: &FolderMarks) -> Result<(), ValueError> {
        match marks.kind() {
            None => Ok(()),
            Some(kind) => Err(ValueError::Foreign {
                path: self.path.to_string(),
                what: kind.to_string(),
            }),
        }
    }

    fn replacement(&self, expected: ExpectedNode, data: &Bytes) -> Result<Vec<Op>, ValueError> {
        let set = |version| Op::set_data(&*self.path, data.clone(), version);
        match expected {
            // The next version would be -1, which nobody can ask for: two writes at one instant
            // leave it behind (H24).
            ExpectedNode::Version(-2) => Ok(vec![set(Some(-2)), set(None)]),
            ExpectedNode::Version(-1) => Err(ValueError::VersionUnusable {
                path: self.path.to_string(),
            }),
            ExpectedNode::Version(version) => Ok(vec![set(Some(version))]),
            ExpectedNode::Absent | ExpectedNode::Anything => Ok(vec![set(None)]),
        }
    }

    async fn session(&self) -> Result<Session, ValueError> {
        self.client
            .session()
            .await
            .map_err(|source| ValueError::connect(&self.path, source))
    }

    fn client_error(&self, source: Error) -> ValueError {
        ValueError::client(&self.path, source)
    }

    /// Returns once it makes sense to try again, on another session where this one is over.
    async fn after(&self, session: &Session, error: Error) -> Result<(), ValueError> {
        let retried = retry::until_next_attempt(session, error).await;
        retried.map_err(|source| self.client_error(source))
    }
}

#[cfg(test)]
mod tests {
    use baton_client::Config;

    use super::*;

    #[test]
    fn h24_a_version_of_minus_one_is_stepped_over_and_never_asked_for() {
        let client = Client::lazy(Config::new("127.0.0.1:1").unwrap());
        let cell = Cell::new(&client, "/v").unwrap();
        let data = Bytes::from_static(b"x");
        let versions = |version| {
            let ops = cell
                .replacement(ExpectedNode::Version(version), &data)
                .unwrap();
            let version = |op: &Op| match op {
                Op::SetData { version, .. } => *version,
                other => panic!("{other:?}"),
            };
            ops.iter().map(version).collect::<Vec<_>>()
        };
        assert_eq!(versions(7), [Some(7)]);
        assert_eq!(versions(i32::MIN), [Some(i32::MIN)]);
        assert_eq!(versions(-3), [Some(-3)]);
        assert_eq!(versions(-2), [Some(-2), None]);
        assert!(matches!(
            cell.replacement(ExpectedNode::Version(-1), &data),
            Err(ValueError::VersionUnusable { .. })
        ));
    }
}
