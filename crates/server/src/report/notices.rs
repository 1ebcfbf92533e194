//! What the log hears of peers: what they did wrong and which limit they met, one line each with
//! the peer and the cause. Each peer has no more than so many lines of each kind in a while, so
//! that nobody who sends garbage by the million fills the disk with it, or hides what others do;
//! how many were left out is told at the while's end. Nothing that a peer sent gets into a line
//! unescaped or in full length.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use baton_proto::{Decoder, ErrorCode, Limits};
use parking_lot::Mutex;

use crate::connections::conn::{Conn, Peer};
use crate::report::rate_limit::{LineBudget, Source};
use crate::state::Shared;

/// Characters of a peer's text that get into a line.
const SHOWN_CHARS: usize = 100;

/// What a line is about: each kind has lines of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Notice {
    /// A connection that was refused.
    ConnectionRefused,
    /// A connection that named no session in time.
    NoSession,
    /// A session that was asked for and could not be written down in time.
    NotOpened,
    /// Bytes that are no frame, no handshake, or a request that ends the connection.
    BadFrame,
    /// A request that cannot be decoded.
    BadRecord,
    /// A request over the limit of bytes.
    LargeRequest,
    /// Credentials that prove nothing, or a wrong password of a session.
    BadCredentials,
    /// A request that an ACL forbids, or an ACL that cannot be.
    Denied,
    /// A client that does not read.
    SlowReader,
    /// Requests that do not become whole, or wait, while too many others do.
    Unfinished,
    /// A watch over a bound.
    Watches,
    /// A session over the bound.
    Sessions,
    /// A write over a quota.
    Quota,
    /// Sockets that were served late.
    Lag,
    /// A session that expired. Nobody's fault, perhaps.
    SessionExpired,
}

impl Notice {
    /// What happens to sound clients and servers, too: told, but no warning.
    const fn is_routine(self) -> bool {
        matches!(self, Self::Denied | Self::SessionExpired)
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Notice::ConnectionRefused => "refused connections",
            Notice::NoSession => "connections without a session",
            Notice::NotOpened => "sessions that were not opened",
            Notice::BadFrame => "bad frames",
            Notice::BadRecord => "bad records",
            Notice::LargeRequest => "large requests",
            Notice::BadCredentials => "bad credentials",
            Notice::Denied => "denied requests",
            Notice::SlowReader => "slow readers",
            Notice::Unfinished => "unfinished requests",
            Notice::Watches => "refused watches",
            Notice::Sessions => "refused sessions",
            Notice::Quota => "quotas",
            Notice::Lag => "late service of sockets",
            Notice::SessionExpired => "expired sessions",
        })
    }
}

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Notices {
    budget: Mutex<LineBudget>,
    due_ms: AtomicU64,
}

impl Default for Notices {
    fn default() -> Self {
        Self {
            budget: Mutex::default(),
            due_ms: AtomicU64::new(u64::MAX),
        }
    }
}

impl Notices {
    /// Server time at which something that was left out is to be told; `u64::MAX` if nothing was.
    pub(crate) fn due_ms(&self) -> u64 {
        self.due_ms.load(Relaxed)
    }
}

impl Shared {
    /// Writes a line about `peer` into the log, unless there have been enough. `None`: about the
    /// server, or about a client that is away.
    pub(crate) fn notice(&self, notice: Notice, peer: Option<&Peer>, what: fmt::Arguments<'_>) {
        let now_ms = self.time.now_ms();
        self.tell_left_out(now_ms);
        {
            let mut budget = self.notices.budget.lock();
            if !budget.permit(Source::of(peer), notice, now_ms) {
                self.notices.due_ms.store(budget.ends_ms(), Relaxed);
                self.stats.lines_left_out.fetch_add(1, Relaxed);
                return;
            }
        }
        let peer = Named(peer);
        if notice.is_routine() {
            tracing::info!(%peer, "{what}");
        } else {
            tracing::warn!(%peer, "{what}");
        }
    }

    /// Tells how many lines were left out, if it is time for that.
    pub(crate) fn tell_left_out(&self, now_ms: u64) {
        let mut told = Vec::new();
        if let Some(mut budget) = self.notices.budget.try_lock() {
            told = budget.settle(now_ms);
            if !told.is_empty() {
                self.notices.due_ms.store(u64::MAX, Relaxed);
            }
        }
        for left_out in told {
            if left_out.notice.is_routine() {
                tracing::info!("{left_out}");
            } else {
                tracing::warn!("{left_out}");
            }
        }
    }

    /// The line for a request that was answered with `code`, if that is one for the log.
    pub(crate) fn refused(&self, conn: &Conn, op: &dyn fmt::Display, body: &[u8], code: ErrorCode) {
        match code {
            ErrorCode::MarshallingError => self.notice(
                Notice::BadRecord,
                Some(&conn.peer),
                format_args!("refused {op}: its record cannot be decoded"),
            ),
            ErrorCode::NoAuth | ErrorCode::InvalidAcl => self.notice(
                Notice::Denied,
                Some(&conn.peer),
                format_args!("refused {op}{}: {code}", Of(first_path(body))),
            ),
            _ => {}
        }
    }
}

/// The path that a record begins with, as those of most operations do.
fn first_path(body: &[u8]) -> Option<&str> {
    Decoder::new(body, &Limits::default())
        .string("path")
        .ok()
        .filter(|path| path.starts_with('/'))
}

struct Of<'a>(Option<&'a str>);

impl fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(path) => write!(f, " of {}", Shown(path)),
            None => Ok(()),
        }
    }
}

struct Named<'a>(Option<&'a Peer>);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(peer) => write!(f, "{peer}"),
            None => f.write_str("none"),
        }
    }
}

/// Text of a peer's, for the log.
pub(crate) struct Shown<'a>(pub(crate) &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shown(text) = self;
        match text.char_indices().nth(SHOWN_CHARS) {
            None => write!(f, "{}", text.escape_debug()),
            Some((end, _)) => {
                let shown = text.get(..end).unwrap_or_default();
                write!(f, "{}… ({} bytes)", shown.escape_debug(), text.len())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::report::rate_limit::LINES_EACH;
    use crate::state::tests::shared;

    #[test]
    fn a_peers_text_makes_no_lines_of_its_own_and_is_cut() {
        assert_eq!(
            Shown("/a\n2026 WARN all is well").to_string(),
            "/a\\n2026 WARN all is well"
        );
        assert_eq!(Shown("/\u{1b}[31m").to_string(), "/\\u{1b}[31m");
        let long = "ü".repeat(1 << 20);
        let shown = Shown(&long).to_string();
        assert!(shown.len() < 300, "{shown}");
        assert!(shown.ends_with("… (2097152 bytes)"), "{shown}");
    }

    #[test]
    fn the_path_of_a_record_is_found_where_there_is_one() {
        let mut body = Vec::new();
        baton_proto::wire::put_string(&mut body, "/secret");
        body.push(1);
        assert_eq!(first_path(&body), Some("/secret"));
        assert_eq!(first_path(b"\0\0\0\x0e\0\xff\xff\xff\xff"), None);
        assert_eq!(first_path(b""), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_left_out_is_due_once_and_then_nothing_is() {
        let shared = shared(Options::default());
        let notice = || {
            let peer = Some(&Peer::Local);
            shared.notice(Notice::BadFrame, peer, format_args!("a bad frame"));
        };
        for _ in 0..LINES_EACH {
            notice();
        }
        assert_eq!(shared.notices.due_ms(), u64::MAX, "nothing was left out");
        notice();
        let due_ms = shared.notices.due_ms();
        assert_eq!(shared.stats.lines_left_out.load(Relaxed), 1);
        shared.tell_left_out(due_ms - 1);
        assert_eq!(shared.notices.due_ms(), due_ms);
        shared.tell_left_out(due_ms);
        assert_eq!(shared.notices.due_ms(), u64::MAX);
    }
}
