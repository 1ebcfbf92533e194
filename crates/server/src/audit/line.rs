//! One line of the audit record, as text or as JSON. Owns what keeps a client from forging one: of
//! what a client sends, every character with a meaning is escaped, in both forms everything that is
//! not ASCII, too; and long texts are cut. Passwords and their digests never get into a line.

use std::io::Write;
use std::net::IpAddr;

use baton_proto::{Acl, ErrorCode, Perms};
use baton_tree::Identity;

use crate::options::audit::AuditFormat;
use crate::time::calendar::timestamp;

/// Bytes that a line shows of one text.
const TEXT_BYTES: usize = 1024;
/// Bytes that a line shows of the identities of a client, or of an ACL.
const LIST_BYTES: usize = 2048;
/// Weight of an ACL's entry besides its texts.
const ENTRY_BYTES: usize = 8;

/// Schemes in the order in which a line shows them: what is proved comes first, so that names which
/// anybody can claim do not push it out of the line.
const SCHEMES: [&str; 5] = ["ip", "super", "x509", "sasl", "digest"];

/// Bytes that stand for themselves. The others are written as `%` and two hexadecimal digits.
type Plain = [bool; 256];

/// In the value of a field.
const VALUE: Plain = plain(b"%=\"'\\`");
/// In a part of a value whose parts have commas and colons between them.
const PART: Plain = plain(b"%=\"'\\`,:");
/// In a sentence of the server's own.
const SENTENCE: Plain = visible(b' ', b"%=\"\\");

/// The visible characters of ASCII but these.
const fn plain(but: &[u8]) -> Plain {
    visible(b'!', but)
}

/// The characters of ASCII from `first` on, but these.
#[allow(clippy::indexing_slicing, reason = "evaluated when it is compiled")]
const fn visible(first: u8, but: &[u8]) -> Plain {
    let mut plain = [false; 256];
    let mut byte = first as usize;
    while byte < 0x7f {
        plain[byte] = true;
        byte += 1;
    }
    let mut place = 0;
    while place < but.len() {
        plain[but[place] as usize] = false;
        place += 1;
    }
    plain
}

/// Recorded operation. Names are ZooKeeper's where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Delete,
    SetData,
    SetAcl,
    /// A multi that failed.
    Multi,
    Reconfig,
    /// An ephemeral znode was deleted with its session.
    EphemeralDeletion,
    ServerStart,
    ServerStop,
    /// A client has proved who it is, or failed to.
    Login,
    /// A connection was refused because of who its client is.
    Connect,
    /// A session goes on over another connection, from another address or of another identity, or
    /// somebody tried that.
    SessionReattach,
    /// The superuser has read something.
    Read,
    /// A four-letter word or a command by HTTP that changes something.
    Command,
    /// A snapshot of another server has taken the place of this server's state: what lies between
    /// has no lines here.
    SnapshotInstalled,
    /// Lines that are missing here.
    RecordsLost,
}

impl Operation {
    const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::SetData => "setData",
            Self::SetAcl => "setAcl",
            Self::Multi => "multiOperation",
            Self::Reconfig => "reconfig",
            Self::EphemeralDeletion => "ephemeralZNodeDeletionOnSessionCloseOrExpire",
            Self::ServerStart => "serverStart",
            Self::ServerStop => "serverStop",
            Self::Login => "login",
            Self::Connect => "connect",
            Self::SessionReattach => "sessionReattach",
            Self::Read => "read",
            Self::Command => "command",
            Self::SnapshotInstalled => "snapshotInstalled",
            Self::RecordsLost => "recordsLost",
        }
    }
}

/// End of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Success,
    Failure,
    /// It has been asked for; how it ends is not known yet.
    Invoked,
}

impl Ending {
    pub(crate) const fn of<T, E>(result: &Result<T, E>) -> Self {
        match result {
            Ok(_) => Self::Success,
            Err(_) => Self::Failure,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Invoked => "invoked",
        }
    }
}

/// The time of a line, written once for all lines of a millisecond.
#[derive(Debug, Clone)]
pub(crate) struct Stamp {
    unix_ms: i64,
    text: String,
}

impl Stamp {
    pub(crate) fn at(unix_ms: i64) -> Self {
        Self {
            unix_ms,
            text: timestamp(unix_ms),
        }
    }

    pub(crate) fn advance(&mut self, unix_ms: i64) {
        if unix_ms != self.unix_ms {
            *self = Self::at(unix_ms);
        }
    }
}

/// Fields at the end of some bytes.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    out: &'a mut Vec<u8>,
    format: AuditFormat,
    /// Bytes of texts that were left out because they are long.
    cut_bytes: usize,
}

/// Fields that several lines have.
#[derive(Debug, Default)]
pub(crate) struct Prefix {
    bytes: Vec<u8>,
    cut_bytes: usize,
}

impl Prefix {
    /// Replaces the fields.
    pub(crate) fn set(&mut self, format: AuditFormat, write: impl FnOnce(&mut Fields<'_>)) {
        self.bytes.clear();
        let mut fields = Fields {
            out: &mut self.bytes,
            format,
            cut_bytes: 0,
        };
        write(&mut fields);
        self.cut_bytes = fields.cut_bytes;
    }
}

/// Appends a line to `out`.
pub(crate) fn write_line(
    out: &mut Vec<u8>,
    format: AuditFormat,
    at: &Stamp,
    write: impl FnOnce(&mut Fields<'_>),
) {
    out.extend_from_slice(match format {
        AuditFormat::Text => b"time=",
        AuditFormat::Json => b"{\"time\":\"",
    });
    out.extend_from_slice(at.text.as_bytes());
    if format == AuditFormat::Json {
        out.push(b'"');
    }
    let mut fields = Fields {
        out,
        format,
        cut_bytes: 0,
    };
    write(&mut fields);
    if fields.cut_bytes > 0 {
        let cut_bytes = fields.cut_bytes as u64;
        fields.number("cut_bytes", cut_bytes);
    }
    out.extend_from_slice(match format {
        AuditFormat::Text => b"\n",
        AuditFormat::Json => b"}\n",
    });
}

impl Fields<'_> {
    fn name(&mut self, name: &'static str) {
        match self.format {
            AuditFormat::Text => {
                self.out.push(b'\t');
                self.out.extend_from_slice(name.as_bytes());
                self.out.push(b'=');
            }
            AuditFormat::Json => {
                self.out.extend_from_slice(b",\"");
                self.out.extend_from_slice(name.as_bytes());
                self.out.extend_from_slice(b"\":");
            }
        }
    }

    fn quote(&mut self) {
        if self.format == AuditFormat::Json {
            self.out.push(b'"');
        }
    }

    /// A word of the server's own, of letters and digits.
    pub(crate) fn word(&mut self, name: &'static str, value: &'static str) {
        self.name(name);
        self.quote();
        self.out.extend_from_slice(value.as_bytes());
        self.quote();
    }

    pub(crate) fn operation(&mut self, operation: Operation) {
        self.word("operation", operation.name());
    }

    pub(crate) fn ending(&mut self, ending: Ending) {
        self.word("result", ending.name());
    }

    pub(crate) fn error(&mut self, error: ErrorCode) {
        self.text("error", &format!("{error:?}"));
    }

    pub(crate) fn number(&mut self, name: &'static str, value: u64) {
        self.name(name);
        // Writing to memory does not fail.
        let _ = write!(self.out, "{value}");
    }

    /// A session's id, or a zxid.
    pub(crate) fn hex(&mut self, name: &'static str, value: i64) {
        self.name(name);
        self.quote();
        self.out.extend_from_slice(b"0x");
        // Without the machinery of `write!`: each change has one.
        let digits = 16 - (value as u64 | 1).leading_zeros() / 4;
        for digit in (0..digits).rev() {
            let digit = (value as u64 >> (4 * digit)) as u8 & 0xf;
            self.out.push(match digit {
                0..=9 => b'0' + digit,
                _ => b'a' + (digit - 10),
            });
        }
        self.quote();
    }

    /// Text that a client may have sent.
    pub(crate) fn text(&mut self, name: &'static str, value: &str) {
        self.quoted(name, value, &VALUE);
    }

    /// A sentence of the server's own. Text of a client in it makes no field.
    pub(crate) fn sentence(&mut self, name: &'static str, value: &str) {
        self.quoted(name, value, &SENTENCE);
    }

    /// An address; `None`: a process on this machine, over a unix socket.
    pub(crate) fn address(&mut self, name: &'static str, address: Option<IpAddr>) {
        self.name(name);
        self.quote();
        let _ = match address {
            Some(address) => write!(self.out, "{address}"),
            None => write!(self.out, "unix"),
        };
        self.quote();
    }

    /// Writes the client's identity: its address, and `SCHEME:NAME` for everything else that it has
    /// shown.
    pub(crate) fn users(&mut self, identity: &Identity) {
        self.name("user");
        self.bracket(b'[');
        let mut room = LIST_BYTES;
        let mut is_first = true;
        let place = |scheme: &str| SCHEMES.iter().position(|known| *known == scheme);
        for turn in 0..=SCHEMES.len() {
            for id in identity.ids() {
                if place(&id.scheme).unwrap_or(SCHEMES.len()) != turn {
                    continue;
                }
                let name = self.cut(name_of(&id.scheme, &id.id).unwrap_or_default());
                let bytes = id.scheme.len() + name.len();
                if bytes > room {
                    self.cut_bytes += bytes;
                    continue;
                }
                room -= bytes;
                if !std::mem::take(&mut is_first) {
                    self.out.push(b',');
                }
                self.quote();
                match id.scheme.as_str() {
                    "ip" => self.escaped(name, &VALUE),
                    "super" => self.out.extend_from_slice(b"super"),
                    scheme => {
                        self.escaped(scheme, &PART);
                        self.out.push(b':');
                        self.escaped(name, &PART);
                    }
                }
                self.quote();
            }
        }
        self.bracket(b']');
    }

    /// An ACL as a client has sent it: each entry as `SCHEME:ID:PERMISSIONS`.
    pub(crate) fn acl(&mut self, list: &[Acl<'_>]) {
        self.name("acl");
        self.bracket(b'[');
        let mut room = LIST_BYTES;
        let mut is_first = true;
        for entry in list {
            let scheme = self.cut(&entry.scheme);
            let id = self.cut(name_of(scheme, &entry.id).unwrap_or_default());
            let bytes = scheme.len() + id.len() + ENTRY_BYTES;
            if bytes > room {
                self.cut_bytes += bytes;
                continue;
            }
            room -= bytes;
            if !std::mem::take(&mut is_first) {
                self.out.push(b',');
            }
            match self.format {
                AuditFormat::Text => {
                    self.escaped(scheme, &PART);
                    self.out.push(b':');
                    self.escaped(id, &PART);
                    self.out.push(b':');
                    self.permissions(entry.perms);
                }
                AuditFormat::Json => {
                    self.out.extend_from_slice(b"{\"scheme\":\"");
                    self.escaped(scheme, &PART);
                    self.out.extend_from_slice(b"\",\"id\":\"");
                    self.escaped(id, &PART);
                    self.out.extend_from_slice(b"\",\"perms\":\"");
                    self.permissions(entry.perms);
                    self.out.extend_from_slice(b"\"}");
                }
            }
        }
        self.bracket(b']');
    }

    pub(crate) fn prefix(&mut self, prefix: &Prefix) {
        self.out.extend_from_slice(&prefix.bytes);
        self.cut_bytes += prefix.cut_bytes;
    }

    fn permissions(&mut self, perms: Perms) {
        for (letter, one) in [
            (b'c', Perms::CREATE),
            (b'd', Perms::DELETE),
            (b'r', Perms::READ),
            (b'w', Perms::WRITE),
            (b'a', Perms::ADMIN),
        ] {
            if perms.contains(one) {
                self.out.push(letter);
            }
        }
    }

    /// The bracket of a list, which text has none of.
    fn bracket(&mut self, bracket: u8) {
        if self.format == AuditFormat::Json {
            self.out.push(bracket);
        }
    }

    /// Cuts a text to the part that is shown.
    fn cut<'t>(&mut self, text: &'t str) -> &'t str {
        if text.len() <= TEXT_BYTES {
            return text;
        }
        let end = (0..=TEXT_BYTES).rev().find(|at| text.is_char_boundary(*at));
        let shown = end.and_then(|end| text.get(..end)).unwrap_or_default();
        self.cut_bytes += text.len() - shown.len();
        shown
    }

    /// A field of text, of which the bytes of `plain` need no escape.
    fn quoted(&mut self, name: &'static str, value: &str, plain: &Plain) {
        self.name(name);
        self.quote();
        let shown = self.cut(value);
        self.escaped(shown, plain);
        self.quote();
    }

    fn escaped(&mut self, text: &str, plain: &Plain) {
        match self.format {
            AuditFormat::Text => self.percent(text, plain),
            AuditFormat::Json => self.json(text),
        }
    }

    #[allow(
        clippy::indexing_slicing,
        reason = "a table of all bytes, and places that were found in the text"
    )]
    fn percent(&mut self, text: &str, plain: &Plain) {
        let mut rest = text.as_bytes();
        while let Some(place) = rest.iter().position(|byte| !plain[usize::from(*byte)]) {
            self.out.extend_from_slice(&rest[..place]);
            let _ = write!(self.out, "%{:02X}", rest[place]);
            rest = &rest[place + 1..];
        }
        self.out.extend_from_slice(rest);
    }

    fn json(&mut self, text: &str) {
        for letter in text.chars() {
            match letter {
                '"' | '\\' => self.out.extend_from_slice(&[b'\\', letter as u8]),
                ' '..='~' => self.out.push(letter as u8),
                _ => {
                    for unit in letter.encode_utf16(&mut [0; 2]) {
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
            }
        }
    }
}

/// Returns the shown part of the id of a scheme: nothing that is a password, or its digest. `None`:
/// nothing at all, because nobody knows what it is.
fn name_of<'i>(scheme: &str, id: &'i str) -> Option<&'i str> {
    match scheme {
        "digest" => id.split_once(':').map(|(user, _)| user),
        "world" | "ip" | "sasl" | "x509" => Some(id),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn line(format: AuditFormat, write: impl FnOnce(&mut Fields<'_>)) -> String {
        let mut out = Vec::new();
        write_line(&mut out, format, &Stamp::at(1_795_276_914_007), write);
        String::from_utf8(out).unwrap()
    }

    fn someone() -> Identity {
        let mut identity = Identity::from_ip("10.1.2.3".parse().unwrap());
        identity.add("digest", "alice:hash=");
        identity.add("sasl", "bob");
        identity.add("super", "");
        identity
    }

    fn a_create(fields: &mut Fields<'_>) {
        fields.hex("session", 0x17);
        fields.users(&someone());
        fields.address("ip", Some("10.1.2.3".parse().unwrap()));
        fields.operation(Operation::Create);
        fields.text("znode", "/a b");
        fields.word("znode_type", "ephemeral_sequential");
        fields.acl(&[
            Acl::open_unsafe(),
            Acl::new(Perms::READ | Perms::WRITE, "digest", "carol:hash="),
        ]);
        fields.ending(Ending::Success);
    }

    #[test]
    fn a_line_of_text_has_the_fields_of_zookeeper() {
        let text = line(AuditFormat::Text, a_create);
        assert_eq!(
            text,
            "time=2026-11-21T16:01:54.007Z\tsession=0x17\t\
             user=10.1.2.3,super,sasl:bob,digest:alice\tip=10.1.2.3\toperation=create\t\
             znode=/a%20b\tznode_type=ephemeral_sequential\t\
             acl=world:anyone:cdrwa,digest:carol:rw\tresult=success\n"
        );
    }

    #[test]
    fn a_line_of_json_has_the_same() {
        let text = line(AuditFormat::Json, a_create);
        assert!(text.ends_with("}\n"), "{text}");
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            read,
            json!({
                "time": "2026-11-21T16:01:54.007Z",
                "session": "0x17",
                "user": ["10.1.2.3", "super", "sasl:bob", "digest:alice"],
                "ip": "10.1.2.3",
                "operation": "create",
                "znode": "/a b",
                "znode_type": "ephemeral_sequential",
                "acl": [
                    {"scheme": "world", "id": "anyone", "perms": "cdrwa"},
                    {"scheme": "digest", "id": "carol", "perms": "rw"},
                ],
                "result": "success",
            })
        );
    }

    /// Texts that would be something else where they are not escaped.
    const FORGERIES: [&str; 12] = [
        "/a\ntime=2026-11-21T16:01:54.007Z\toperation=delete",
        "/a\r\n\u{b}\u{c}\u{85}\u{2028}\u{2029}x",
        "/a\tresult=success",
        "/a operation=delete",
        "/a\",\"result\":\"success",
        "/a\\\",\\\"b",
        "/a%0aresult=success",
        "/a\u{202e}nimda\u{202c}\u{2066}\u{feff}",
        "/a\0b\u{1b}[31m\u{7f}",
        "CN=a,O=b\nc",
        "alice,super,x509:CN",
        "ü=1",
    ];

    #[test]
    fn a15_no_text_makes_a_second_line_or_another_field() {
        for forgery in FORGERIES {
            let mut identity = Identity::anonymous();
            for scheme in ["digest", "sasl", "x509"] {
                identity.add(scheme, format!("{forgery}:x"));
            }
            let acl = [
                Acl::new(Perms::ALL, "sasl", forgery),
                Acl::new(Perms::ALL, forgery, "x"),
                Acl::new(Perms::ALL, "digest", format!("{forgery}:x")),
            ];
            let write = |fields: &mut Fields<'_>| {
                fields.users(&identity);
                fields.text("znode", forgery);
                fields.acl(&acl);
                fields.sentence("reason", forgery);
                fields.ending(Ending::Failure);
            };
            let text = line(AuditFormat::Text, write);
            let whole = text.strip_suffix('\n').unwrap();
            assert!(
                whole.bytes().all(|b| matches!(b, b'\t' | b' '..=b'~')),
                "{whole}"
            );
            let names = ["time", "user", "znode", "acl", "reason", "result"];
            let fields: Vec<_> = whole.split('\t').collect();
            assert_eq!(fields.len(), names.len(), "{whole}");
            for (field, name) in fields.iter().zip(names) {
                let (found, value) = field.split_once('=').unwrap();
                assert_eq!(found, name);
                // Nor where somebody splits at spaces.
                assert!(!value.contains('='), "{whole}");
                assert!(name == "reason" || !value.contains(' '), "{whole}");
            }
            // No list has more entries than there were.
            assert_eq!(fields[1].split(',').count(), 3, "{whole}");
            assert!(fields[1].split(',').all(|id| id.split(':').count() == 2));
            assert_eq!(fields[3].split(',').count(), 3, "{whole}");
            assert!(
                fields[3]
                    .split(',')
                    .all(|entry| entry.split(':').count() == 3)
            );

            let json = line(AuditFormat::Json, write);
            assert_eq!(json.matches('\n').count(), 1, "{json}");
            assert!(json.is_ascii());
            let read: Value = serde_json::from_str(&json).unwrap();
            assert_eq!(read.as_object().unwrap().len(), names.len(), "{json}");
            assert_eq!(read["znode"], forgery);
            assert_eq!(read["result"], "failure");
            assert_eq!(read["user"].as_array().unwrap().len(), 3, "{json}");
            assert_eq!(read["acl"][0]["id"], forgery);
        }
    }

    #[test]
    fn a15_an_escaped_text_reads_back_as_itself_only() {
        let shown: std::collections::BTreeSet<String> = FORGERIES
            .iter()
            .chain(&["/a%0a", "/a%250a", "/a\n", "/a", "/A"])
            .map(|text| line(AuditFormat::Text, |fields| fields.text("znode", text)))
            .collect();
        assert_eq!(shown.len(), FORGERIES.len() + 5);
    }

    #[test]
    fn no_password_and_no_digest_gets_into_a_line() {
        for format in [AuditFormat::Text, AuditFormat::Json] {
            let text = line(format, |fields| {
                let mut identity = Identity::anonymous();
                identity.add("digest", baton_tree::digest_id(b"alice:secret"));
                identity.add("token", "secret");
                fields.users(&identity);
                fields.acl(&[
                    Acl::new(Perms::ALL, "digest", "alice:secret"),
                    Acl::new(Perms::ALL, "digest", "alice:secret:more"),
                    Acl::new(Perms::ALL, "digest", "secret"),
                    Acl::new(Perms::ALL, "auth", "alice:secret"),
                    Acl::new(Perms::ALL, "Digest", "secret"),
                ]);
            });
            assert!(!text.contains("secret") && !text.contains("more"), "{text}");
            let digest = baton_tree::digest_id(b"alice:secret");
            let (_, hash) = digest.split_once(':').unwrap();
            assert!(!text.contains(hash.trim_end_matches('=')), "{text}");
            assert!(text.contains("digest:alice"), "{text}");
        }
    }

    #[test]
    fn long_texts_are_cut_and_the_line_says_so() {
        let long = "ü".repeat(1 << 20);
        for format in [AuditFormat::Text, AuditFormat::Json] {
            let mut identity = Identity::from_ip("10.1.2.3".parse().unwrap());
            for n in 0..5_000 {
                identity.add("digest", format!("user{n}:x"));
            }
            identity.add("x509", "CN=the one");
            let acl = vec![Acl::new(Perms::ALL, "sasl", long.as_str()); 3];
            let text = line(format, |fields| {
                fields.users(&identity);
                fields.text("znode", &long);
                fields.acl(&acl);
                fields.sentence("reason", &long);
            });
            assert!(text.len() < 32 << 10, "{}", text.len());
            assert!((text.len() as u64) < crate::options::audit::AuditOptions::LEAST_BYTES);
            assert!(text.contains("cut_bytes"), "{text}");
            assert!(text.contains("x509:CN"), "what is proved is shown");
        }
        let short = line(AuditFormat::Text, |fields| fields.text("znode", "/x"));
        assert!(!short.contains("cut_bytes"), "{short}");
    }

    #[test]
    fn numbers_of_sixteen_digits_are_written_as_rust_does() {
        for value in [
            0,
            1,
            0xf,
            0x10,
            0xabc,
            0x1234_5678_9abc_def0,
            i64::MAX,
            i64::MIN,
            -1,
        ] {
            let text = line(AuditFormat::Text, |fields| fields.hex("zxid", value));
            assert!(text.ends_with(&format!("\tzxid=0x{value:x}\n")), "{text}");
        }
    }

    #[test]
    fn an_address_of_ipv6_and_a_unix_socket_are_shown() {
        let text = line(AuditFormat::Text, |fields| {
            fields.users(&Identity::from_ip("fe80::1".parse().unwrap()));
            fields.address("ip", None);
            fields.address("before", Some("fe80::1".parse().unwrap()));
        });
        assert!(
            text.ends_with("\tuser=fe80::1\tip=unix\tbefore=fe80::1\n"),
            "{text}"
        );
    }
}
