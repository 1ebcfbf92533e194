//! Refuses a lock that the command runs under already: the wait could never end.
//!
//! Owns what the environment of a command says of the locks that it runs under, through any number
//! of nested `baton`s. The environment alone proves nothing: it is inherited by processes that
//! outlive the lock. So a node counts only while the tree shows that it belongs to the session that
//! the environment names; that also distinguishes servers and chroots.

use baton_client::Session;
use baton_proto::path::{name, parent};

use crate::connection::Connection;
use crate::exit::{self, Failure};

/// The variable that lists all of them: a session and a node on each line, the innermost last.
const HELD: &str = "BATON_HOLDS";

/// One lock that this process runs under, if its environment is right.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Outer {
    session: String,
    node: String,
}

/// The environment variable that lists the locks that a command runs under, this one as the
/// innermost.
pub(crate) fn variable(session: &str, node: &str) -> (&'static str, String) {
    let own = format!("{session} {node}");
    let value = match std::env::var(HELD) {
        Ok(outer) if !outer.is_empty() => format!("{outer}\n{own}"),
        _ => own,
    };
    (HELD, value)
}

/// The kind of a request. It decides which nodes at the path would block it for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockRequest {
    /// An exclusive lock.
    Exclusive,
    /// A read lock: only a writer blocks it.
    Shared,
    /// This number of a semaphore's permits.
    Permits(u32),
}

/// Refuses to wait for what this process's own ancestor holds as long as it waits for this process.
pub(crate) async fn refuse(
    connection: &Connection,
    path: &str,
    request: LockRequest,
) -> Result<(), Failure> {
    let mut outer = outer(
        std::env::var(HELD).ok().as_deref(),
        std::env::var("BATON_SESSION").ok(),
        std::env::var("BATON_NODE").ok(),
    );
    outer.retain(|outer| blocks(outer, path, request));
    if outer.is_empty() {
        return Ok(());
    }
    let session = connection.session().await?;
    if let LockRequest::Permits(permits) = request
        && has_room(&session, path, permits).await
    {
        return Ok(());
    }
    for outer in outer {
        if is_held(&session, &outer).await {
            return Err(Failure::new(
                exit::BATON,
                "nested",
                format!(
                    "{path}: this command runs under it already, as {}, so the wait would never end; leave the inner baton out, \
                     give it a limit with --wait, or, where this process outlives that command, unset {HELD}, BATON_NODE and BATON_SESSION",
                    outer.node
                ),
            ));
        }
    }
    Ok(())
}

/// The outer locks that the environment lists. A `baton` that does not write the list names the
/// innermost lock only.
fn outer(list: Option<&str>, session: Option<String>, node: Option<String>) -> Vec<Outer> {
    let listed = list.into_iter().flat_map(str::lines).filter_map(|line| {
        let (session, node) = line.split_once(' ')?;
        Some(Outer {
            session: session.to_owned(),
            node: node.to_owned(),
        })
    });
    let innermost = session
        .zip(node)
        .map(|(session, node)| Outer { session, node });
    let mut all: Vec<_> = listed.chain(innermost).collect();
    all.dedup();
    all
}

/// Whether that node is at `path`, and of a kind that the request waits for.
fn blocks(outer: &Outer, path: &str, request: LockRequest) -> bool {
    if !outer.node.starts_with('/') || outer.node == "/" {
        return false;
    }
    let folder = parent(&outer.node);
    match request {
        LockRequest::Exclusive => folder == path,
        LockRequest::Shared => folder == path && !name(&outer.node).contains("__READ__"),
        LockRequest::Permits(_) => name(folder) == "leases" && parent(folder) == path,
    }
}

/// Whether the session that the environment names still owns the node.
async fn is_held(session: &Session, outer: &Outer) -> bool {
    match session.exists(&outer.node).await {
        Ok(Some(stat)) => format!("0x{:x}", stat.ephemeral_owner) == outer.session,
        _ => false,
    }
}

/// Whether the semaphore has this number of permits besides one that is held.
async fn has_room(session: &Session, path: &str, permits: u32) -> bool {
    let all = match session.get_data(path).await {
        Ok(read) => std::str::from_utf8(&read.data)
            .ok()
            .and_then(|text| text.trim().parse::<u32>().ok()),
        Err(_) => None,
    };
    all.is_none_or(|all| permits < all)
}

#[cfg(test)]
mod tests {
    use super::{LockRequest, Outer, blocks, outer};

    fn one(node: &str) -> Outer {
        Outer {
            session: "0x1".to_owned(),
            node: node.to_owned(),
        }
    }

    #[test]
    fn all_locks_that_a_command_runs_under_are_known_and_nonsense_is_not() {
        let known = outer(
            Some("0x1 /a b/n1\n0x1 /c/n2\nnonsense\n"),
            Some("0x1".to_owned()),
            Some("/c/n2".to_owned()),
        );
        assert_eq!(known, [one("/a b/n1"), one("/c/n2")]);
        let alone = outer(None, Some("0x1".to_owned()), Some("/a/n".to_owned()));
        assert_eq!(alone, [one("/a/n")]);
        assert_eq!(outer(Some(""), Some("0x1".to_owned()), None), []);
    }

    #[test]
    fn only_a_node_that_is_waited_for_blocks() {
        let lock = "/a/_c_1-lock-0000000001";
        for (node, path, request, expected) in [
            (lock, "/a", LockRequest::Exclusive, true),
            (lock, "/", LockRequest::Exclusive, false),
            (lock, "/a/b", LockRequest::Exclusive, false),
            ("", "/a", LockRequest::Exclusive, false),
            ("/", "/", LockRequest::Exclusive, false),
            (
                "/a/_c_1-__READ__0000000001",
                "/a",
                LockRequest::Shared,
                false,
            ),
            (
                "/a/_c_1-__READ__0000000001",
                "/a",
                LockRequest::Exclusive,
                true,
            ),
            (
                "/a/_c_1-__WRIT__0000000001",
                "/a",
                LockRequest::Shared,
                true,
            ),
            (
                "/a/leases/_c_1-lease-0000000001",
                "/a",
                LockRequest::Permits(1),
                true,
            ),
            (
                "/a/leases/_c_1-lease-0000000001",
                "/a",
                LockRequest::Exclusive,
                false,
            ),
            (lock, "/a", LockRequest::Permits(1), false),
        ] {
            let is = blocks(&one(node), path, request);
            assert_eq!(is, expected, "{node} {path} {request:?}");
        }
    }
}
