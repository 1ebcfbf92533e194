//! Creates whose outcome can be resolved after a lost answer (`hazards.md` §6.1, rule 3).
//!
//! Owns the search for the created node: by a marker in its name *and* by the owner session. It
//! must never conclude "not created" without `sync` (`H02`), nor take another session's node for
//! its own (`H03`, `H06`).

use baton_proto::{Acl, CreateMode, ErrorCode, path};

use crate::error::Error;
use crate::session::Session;
use crate::values::CreatedNode;

impl Session {
    /// Searches for the node that a create with this parent and name prefix has made: by the prefix
    /// and by this session as the owner. `None` is certain: the create was not applied, and will
    /// not be.
    ///
    /// Only for ephemeral nodes, and for a prefix that no other create has used: put a random
    /// marker in it. A node with the prefix that belongs to another session is a leftover of this
    /// process; it is ignored, and deleted in the background.
    ///
    /// # Errors
    /// As the reads that it consists of: `sync`, `children`, `exists`.
    pub async fn recover_create(
        &self,
        parent: &str,
        prefix: &str,
    ) -> Result<Option<CreatedNode>, Error> {
        // One after the other on the session's own order: behind the create, and behind what the
        // new server has yet to receive.
        let listing = self.read_latest(parent, |session| session.children(parent));
        let names = match listing.await {
            Ok(children) => children.names,
            Err(e) if e.is_no_node() => return Ok(None),
            Err(e) if e.code() == Some(ErrorCode::NoAuth) => {
                self.own_below(parent, prefix, e).await?
            }
            Err(e) => return Err(e),
        };
        for name in names.iter().filter(|name| name.starts_with(prefix)) {
            let found = path::join(parent, name);
            match self.exists(&found).await? {
                Some(stat) if stat.ephemeral_owner == self.id() => {
                    return Ok(Some(CreatedNode { path: found, stat }));
                }
                Some(stat) => drop(self.delete_eventually(&found, stat.czxid)),
                None => {}
            }
        }
        Ok(None)
    }

    /// The names of this session's own nodes below a parent that may not be listed. Servers that
    /// do not know leave it at `refusal`.
    async fn own_below(
        &self,
        parent: &str,
        prefix: &str,
        refusal: Error,
    ) -> Result<Vec<String>, Error> {
        match self.ephemerals(&path::join(parent, prefix)).await {
            Ok(paths) => Ok(paths
                .iter()
                .filter(|found| path::parent(found) == parent)
                .map(|found| path::name(found).to_owned())
                .collect()),
            Err(e) if e.code() == Some(ErrorCode::Unimplemented) => Err(refusal),
            Err(e) => Err(e),
        }
    }

    /// Creates an ephemeral node so that the outcome is always known: after a lost answer it
    /// searches for the node, and creates it again only if it is certainly not there.
    ///
    /// The name is `prefix`, which must hold a random marker that no other create uses, plus the
    /// number for a sequential mode. Cancellation at any point leaves nothing behind: the session
    /// deletes in the background what may have been created.
    ///
    /// # Errors
    /// A refusal, or the end of the session, or the handle's deadline; in each case no node stays
    /// behind.
    pub async fn create_protected(
        &self,
        parent: &str,
        prefix: &str,
        data: &[u8],
        mode: CreateMode,
        acl: &[Acl<'_>],
    ) -> Result<CreatedNode, Error> {
        let mut unresolved = UnresolvedCreate {
            session: self,
            parent,
            prefix,
            armed: true,
        };
        let result = self
            .create_until_known(parent, prefix, data, mode, acl)
            .await;
        unresolved.armed = match &result {
            Ok(_) => false,
            Err(e) => {
                !matches!(e, Error::Rejected { .. } | Error::NotSent { .. })
                    && !e.is_session_ended()
            }
        };
        result
    }

    async fn create_until_known(
        &self,
        parent: &str,
        prefix: &str,
        data: &[u8],
        mode: CreateMode,
        acl: &[Acl<'_>],
    ) -> Result<CreatedNode, Error> {
        let path = path::join(parent, prefix);
        loop {
            match self.create_with_acl(&path, data, mode, acl).await {
                Err(e)
                    if e.is_maybe_applied() && !e.is_session_ended() && !e.is_deadline_passed() => {
                }
                outcome => return outcome,
            }
            match self.recover_create(parent, prefix).await {
                Ok(Some(created)) => return Ok(created),
                Ok(None) => {}
                // The search failed too, so the outcome is still unknown.
                Err(e) => return Err(unknown(&path, e)),
            }
        }
    }
}

fn unknown(path: &str, e: Error) -> Error {
    match e.reason() {
        Some(reason) => Error::MaybeApplied {
            op: baton_proto::OpCode::Create2,
            path: path.to_owned(),
            reason: reason.clone(),
        },
        None => e,
    }
}

/// Discards the create when it is dropped before its outcome was known.
struct UnresolvedCreate<'a> {
    session: &'a Session,
    parent: &'a str,
    prefix: &'a str,
    armed: bool,
}

impl Drop for UnresolvedCreate<'_> {
    fn drop(&mut self) {
        if self.armed {
            drop(self.session.discard_create(self.parent, self.prefix));
        }
    }
}
