//! A lock that is asked for by a command that runs under it already: a wait that can never end.
//!
//! Owns what `baton` tells a command of the locks that it runs under, over any number of `baton`s
//! within each other. The environment alone proves nothing: it is inherited by processes that
//! outlive the lock. So a node counts only while the tree shows that it belongs to the session that
//! the environment names; that also tells one server, and one chroot, from another.

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

/// What the environment of a command says of the locks that it runs under, of which this one is the
/// innermost.
pub(crate) fn variable(session: &str, node: &str) -> (&'static str, String) {
    let own = format!("{session} {node}");
    let value = match std::env::var(HELD) {
        Ok(outer) if !outer.is_empty() => format!("{outer}\n{own}"),
        _ => own,
    };
    (HELD, value)
}

/// What is asked for, and so which of the nodes at its path are in the way for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// To be alone there.
    Alone,
    /// To read: only one who writes is in the way.
    ToRead,
    /// So many permits, of so many as there are.
    Permits(u32),
}

/// Refuses to wait for what this process's own ancestor holds as long as it waits for this process.
pub(crate) async fn refuse(
    connection: &Connection,
    path: &str,
    asked: Asked,
) -> Result<(), Failure> {
    let mut outer = outer(
        std::env::var(HELD).ok().as_deref(),
        std::env::var("BATON_SESSION").ok(),
        std::env::var("BATON_NODE").ok(),
    );
    outer.retain(|outer| is_in_the_way(outer, path, asked));
    if outer.is_empty() {
        return Ok(());
    }
    let session = connection.session().await?;
    if let Asked::Permits(permits) = asked
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

/// What the environment says. A `baton` that does not write the list tells of the innermost lock
/// only.
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

/// Whether that node is at `path`, and one that is waited for.
fn is_in_the_way(outer: &Outer, path: &str, asked: Asked) -> bool {
    if !outer.node.starts_with('/') || outer.node == "/" {
        return false;
    }
    let folder = parent(&outer.node);
    match asked {
        Asked::Alone => folder == path,
        Asked::ToRead => folder == path && !name(&outer.node).contains("__READ__"),
        Asked::Permits(_) => name(folder) == "leases" && parent(folder) == path,
    }
}

/// Whether the session that the environment names still owns the node.
async fn is_held(session: &Session, outer: &Outer) -> bool {
    match session.exists(&outer.node).await {
        Ok(Some(stat)) => format!("0x{:x}", stat.ephemeral_owner) == outer.session,
        _ => false,
    }
}

/// Whether the semaphore has so many permits beside one that is held.
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
    use super::{Asked, Outer, is_in_the_way, outer};

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
    fn only_a_node_that_is_waited_for_is_in_the_way() {
        let lock = "/a/_c_1-lock-0000000001";
        for (node, path, asked, expected) in [
            (lock, "/a", Asked::Alone, true),
            (lock, "/", Asked::Alone, false),
            (lock, "/a/b", Asked::Alone, false),
            ("", "/a", Asked::Alone, false),
            ("/", "/", Asked::Alone, false),
            ("/a/_c_1-__READ__0000000001", "/a", Asked::ToRead, false),
            ("/a/_c_1-__READ__0000000001", "/a", Asked::Alone, true),
            ("/a/_c_1-__WRIT__0000000001", "/a", Asked::ToRead, true),
            (
                "/a/leases/_c_1-lease-0000000001",
                "/a",
                Asked::Permits(1),
                true,
            ),
            ("/a/leases/_c_1-lease-0000000001", "/a", Asked::Alone, false),
            (lock, "/a", Asked::Permits(1), false),
        ] {
            let is = is_in_the_way(&one(node), path, asked);
            assert_eq!(is, expected, "{node} {path} {asked:?}");
        }
    }
}
