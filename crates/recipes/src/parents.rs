//! The directories above our nodes.
//!
//! Owns their creation on demand (H14). Lock directories are containers, so that the server removes
//! them once they are empty (H17); queue directories are persistent, because a directory that is
//! removed and made again gives out its numbers again, and an item could then be taken for another
//! of the same name (H09).

use baton_client::{CreateMode, Error, ErrorCode, Session};

/// Kind of node that a missing directory becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParentKind {
    /// Removed by the server once empty.
    Container,
    /// Kept until somebody deletes it.
    Persistent,
}

/// Makes `dir` and what is missing above it. Succeeds where all of it exists already.
pub(crate) async fn ensure_parents(
    session: &Session,
    dir: &str,
    kind: ParentKind,
) -> Result<(), Error> {
    let mut missing = vec![dir];
    while let Some(&path) = missing.last() {
        match make(session, path, kind).await {
            Ok(()) => {
                missing.pop();
            }
            Err(error) if error.is_no_node() => match baton_proto::path::parent(path) {
                "/" => return Err(error),
                above => missing.push(above),
            },
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Makes one directory. A "maybe applied" need not be resolved: making it again is harmless, its
/// name is not ours alone.
async fn make(session: &Session, path: &str, kind: ParentKind) -> Result<(), Error> {
    let mut mode = match kind {
        ParentKind::Container => CreateMode::Container,
        ParentKind::Persistent => CreateMode::Persistent,
    };
    loop {
        match session.create(path, &[], mode).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_node_exists() => return Ok(()),
            Err(error) if error.is_maybe_applied() => {}
            // Servers before 3.5 know no containers.
            Err(error)
                if error.code() == Some(ErrorCode::Unimplemented)
                    && mode == CreateMode::Container =>
            {
                mode = CreateMode::Persistent;
            }
            Err(error) => return Err(error),
        }
    }
}
