//! What the log hears of peers: what they did wrong and which limit they met, one line each with the peer and the cause.
//! Of each kind there are no more than so many lines in a while, so that nobody who sends garbage by the million fills the
//! disk with it; how many were left out is told with the kind's next line. Nothing that a peer sent gets into a line
//! unescaped or in full length.

use std::fmt;

use baton_proto::{Decoder, ErrorCode, Limits};
use parking_lot::Mutex;

use super::conn::Conn;
use super::shared::Shared;

/// Lines of one kind in a while.
const LINES: u32 = 20;
/// How long that while is.
const WHILE_MS: u64 = 10_000;
/// Characters of a peer's text that get into a line.
const SHOWN_CHARS: usize = 100;

/// What a line is about: each kind has lines of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    /// A connection that was refused.
    ConnectionRefused,
    /// A connection that named no session in time.
    NoSession,
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
    /// A write over a quota.
    Quota,
    /// A session that expired. Nobody's fault, perhaps.
    SessionExpired,
}

const KINDS: usize = Notice::SessionExpired as usize + 1;

#[derive(Debug, Default, Clone, Copy)]
struct Spent {
    /// Server time at which the while ends.
    until_ms: u64,
    lines: u32,
    left_out: u64,
}

/// See the module's page.
#[derive(Debug, Default)]
pub(crate) struct Notices([Mutex<Spent>; KINDS]);

impl Notices {
    /// Whether there may be a line now, and then how many were left out since the last one.
    fn permit(&self, notice: Notice, now_ms: u64) -> Option<u64> {
        let mut spent = self.0.get(notice as usize)?.lock();
        if now_ms >= spent.until_ms {
            spent.until_ms = now_ms + WHILE_MS;
            spent.lines = 0;
        }
        if spent.lines >= LINES {
            spent.left_out += 1;
            return None;
        }
        spent.lines += 1;
        Some(std::mem::take(&mut spent.left_out))
    }
}

impl Shared {
    /// Writes a line about `peer` into the log, unless there have been enough of its kind.
    pub(crate) fn notice(&self, notice: Notice, peer: &dyn fmt::Display, what: fmt::Arguments<'_>) {
        let Some(left_out) = self.notices.permit(notice, self.time.now_ms()) else {
            return;
        };
        let more = LeftOut(left_out);
        match notice {
            Notice::Denied | Notice::SessionExpired => tracing::info!(%peer, "{what}{more}"),
            _ => tracing::warn!(%peer, "{what}{more}"),
        }
    }

    /// The line for a request that was answered with `code`, if that is one for the log.
    pub(crate) fn refused(&self, conn: &Conn, op: &dyn fmt::Display, body: &[u8], code: ErrorCode) {
        match code {
            ErrorCode::MarshallingError => self.notice(
                Notice::BadRecord,
                &conn.peer,
                format_args!("refused {op}: its record cannot be decoded"),
            ),
            ErrorCode::NoAuth | ErrorCode::InvalidAcl => self.notice(
                Notice::Denied,
                &conn.peer,
                format_args!("refused {op}{}: {code}", Named(first_path(body))),
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

struct Named<'a>(Option<&'a str>);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(path) => write!(f, " of {}", Shown(path)),
            None => Ok(()),
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

struct LeftOut(u64);

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            lines => write!(f, " ({lines} lines like this were left out)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_gets_its_lines_and_then_a_number() {
        let notices = Notices::default();
        let told = (0..1_000_000)
            .filter(|_| notices.permit(Notice::BadFrame, 5).is_some())
            .count();
        assert_eq!(told, LINES as usize);
        assert_eq!(
            notices.permit(Notice::Denied, 5),
            Some(0),
            "the others have their own"
        );
        let later = 5 + WHILE_MS;
        let left_out = 1_000_000 - u64::from(LINES);
        assert_eq!(notices.permit(Notice::BadFrame, later), Some(left_out));
        assert_eq!(notices.permit(Notice::BadFrame, later), Some(0));
    }

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
}
