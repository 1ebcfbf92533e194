//! A participant's own node.
//!
//! Owns it until it is deleted: dropped at any point it is taken away, now or as soon as the server
//! can be reached (H10).

use baton_client::{CreateMode, Error, Session};

use crate::wait_queue::{self, AcquireError};

#[derive(Debug)]
pub(super) struct Member {
    pub session: Session,
    pub path: String,
    pub czxid: i64,
    ours_to_delete: bool,
}

impl Member {
    /// Creates an ephemeral node whose name begins with `prefix`, which no other create may use. A
    /// lost answer is resolved.
    pub(super) async fn create(
        session: &Session,
        dir: &str,
        prefix: &str,
        data: &[u8],
        mode: CreateMode,
    ) -> Result<Self, Error> {
        let created = session
            .create_protected(dir, prefix, data, mode, session.acl())
            .await?;
        Ok(Self::adopt(session, created.path, created.stat.czxid))
    }

    /// Takes over a node that is known to be this session's.
    pub(super) fn adopt(session: &Session, path: String, czxid: i64) -> Self {
        Self {
            session: session.clone(),
            path,
            czxid,
            ours_to_delete: true,
        }
    }

    pub(super) fn name(&self) -> &str {
        baton_proto::path::name(&self.path)
    }

    /// The node is gone already.
    pub(super) fn disown(&mut self) {
        self.ours_to_delete = false;
    }

    /// Resolves when the node is gone.
    pub(super) async fn gone(&self) -> Result<(), AcquireError> {
        wait_queue::until_gone(&self.session, &self.path, || {}).await
    }

    /// Deletes the node, and waits for the answer if one can be had soon; else it is deleted in the
    /// background.
    pub(super) async fn withdraw(mut self) {
        match self.session.delete(&self.path, None).await {
            Ok(()) => self.disown(),
            Err(error) if error.is_no_node() => self.disown(),
            Err(_) => {}
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.ours_to_delete {
            drop(self.session.delete_eventually(&self.path, self.czxid));
        }
    }
}
