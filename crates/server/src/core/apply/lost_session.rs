//! The line of the log about a session that expired: whose it was, how long nothing was heard of
//! its client, and what it held. Of the servers of an ensemble the one that has decided it writes
//! the line at the level info, the others at debug.

use baton_tree::Tree;
use tracing::field::display;

use crate::report::escaped::EscapedText;
use crate::report::notice::Notice;
use crate::session::clocks::Clocked;
use crate::state::ServerState;

/// Paths of ephemerals that get into the line.
const SHOWN_PATHS: usize = 3;

/// Holdings of a session that is about to expire.
#[derive(Debug)]
pub(crate) struct LostSession {
    session: i64,
    ephemerals: usize,
    /// Some of their paths.
    paths: Vec<String>,
}

impl LostSession {
    /// Reads what the session holds; `None`: there is no such session. To be read before the end of
    /// the session is applied: what it held is gone then.
    pub(crate) fn read(tree: &Tree, session: i64) -> Option<Self> {
        let info = tree.session(session)?;
        Some(Self {
            session,
            ephemerals: info.ephemerals,
            paths: tree.some_ephemerals(session, SHOWN_PATHS),
        })
    }

    /// Whether it holds anything.
    pub(crate) fn holds(&self) -> bool {
        self.ephemerals > 0
    }

    /// Writes the line, unless its client has caused enough of them. `is_decided_here`: this server
    /// has proposed the end of the session.
    pub(crate) fn log(&self, state: &ServerState, ended: &Clocked, is_decided_here: bool) {
        let now_ms = state.time.now_ms();
        let session = format_args!("0x{:x}", self.session);
        let peer = ended.peer();
        let timeout_ms = ended.timeout_ms;
        let ephemerals = self.ephemerals;
        let paths = self.paths();
        let paths = paths.as_ref().map(display);
        if !is_decided_here {
            tracing::debug!(session, %peer, timeout_ms, ephemerals, paths, "session expired");
            return;
        }
        let (reason, silent_ms) = match ended.silent_since_ms {
            Some(since_ms) => (
                "no request within its timeout",
                Some(now_ms.saturating_sub(since_ms)),
            ),
            None => ("the owner of the server asked for it", None),
        };
        let log = &state.client_log;
        if log.permits(Notice::SessionExpired, ended.group(), now_ms) {
            tracing::info!(
                session,
                %peer,
                server = ended.other_server(),
                timeout_ms,
                silent_ms,
                reason,
                ephemerals,
                paths,
                "session expired"
            );
        }
    }

    /// Some of the paths, separated by commas, for people; `None`: there is none.
    fn paths(&self) -> Option<String> {
        let shown: Vec<_> = self
            .paths
            .iter()
            .map(|path| EscapedText(path).to_string())
            .collect();
        let more = if self.ephemerals > shown.len() {
            ",…"
        } else {
            ""
        };
        (!shown.is_empty()).then(|| shown.join(",") + more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_paths_are_shown_escaped_and_cut() {
        let lost = |ephemerals, paths: &[&str]| LostSession {
            session: 7,
            ephemerals,
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        };
        assert_eq!(lost(0, &[]).paths(), None);
        let two = lost(2, &["/a", "/b\n\u{1b}[2J"]).paths();
        assert_eq!(two.as_deref(), Some("/a,/b\\n\\u{1b}[2J"));
        let long = format!("/{}", "x".repeat(1 << 20));
        let many = lost(100_000, &["/a", "/b", &long]).paths().unwrap();
        assert!(many.len() < 300, "{many}");
        assert!(many.ends_with("bytes),…"), "{many}");
    }
}
