//! Four-letter words: a client's first four bytes may be one of them instead of a frame's length (protocol.md §7.1).
//! Answers in the shapes that ZooKeeper's tools parse. Never changes anything but counters and the trace mask.

mod lists;
mod server;

use std::sync::atomic::Ordering::Relaxed;

use super::{facts, metrics};
use crate::core::shared::Shared;
use crate::options::{CHANGING_WORDS, HARMLESS_WORDS};

/// A word that the server knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(&'static str);

impl Word {
    /// The number that follows the word, if it takes one; 0 if it takes none. `None`: it has not arrived yet.
    pub(super) fn argument(self, input: &[u8]) -> Option<i64> {
        if self.0 != "stmk" {
            return Some(0);
        }
        input
            .get(4..)
            .and_then(<[u8]>::first_chunk::<8>)
            .map(|bytes| i64::from_be_bytes(*bytes))
    }
}

/// The word that these bytes are, if they are one. No frame that the server would take has such a length.
pub(super) fn recognise(bytes: [u8; 4]) -> Option<Word> {
    HARMLESS_WORDS
        .iter()
        .chain(CHANGING_WORDS)
        .find(|word| word.as_bytes() == bytes)
        .map(|word| Word(word))
}

/// What the server says to it.
pub(super) fn answer(shared: &Shared, word: Word, argument: i64) -> String {
    let Word(word) = word;
    if !shared
        .options
        .four_letter_words
        .iter()
        .any(|allowed| allowed == word || allowed == "*")
    {
        return format!("{word} is not executed because it is not in the whitelist.\n");
    }
    let mut out = String::new();
    match word {
        "ruok" => out.push_str("imok"),
        "isro" => out.push_str("rw"),
        "srvr" => server::summary(shared, &mut out, false),
        "stat" => server::summary(shared, &mut out, true),
        "mntr" => {
            line(&mut out, format_args!("zk_version\t{}", facts::version()));
            line(&mut out, format_args!("zk_server_state\tstandalone"));
            metrics::as_lines(shared, &mut out);
        }
        "cons" => lists::connections(shared, &mut out),
        "conf" => server::configuration(shared, &mut out),
        "envi" => server::environment(&mut out),
        "dump" => lists::sessions(shared, &mut out),
        "wchs" => lists::watch_counts(shared, &mut out),
        "wchc" => lists::watches_by_session(shared, &mut out),
        "wchp" => lists::watches_by_path(shared, &mut out),
        "dirs" => {
            let (snapshots, log) = facts::file_bytes(shared);
            line(&mut out, format_args!("datadir_size: {snapshots}"));
            line(&mut out, format_args!("logdir_size: {log}"));
        }
        // A line for each digest that was kept, and none is kept.
        "hash" => {}
        "gtmk" => out.push_str(&shared.stats.trace_mask.load(Relaxed).to_string()),
        "stmk" => {
            shared.stats.trace_mask.store(argument, Relaxed);
            out.push_str(&argument.to_string());
        }
        "srst" => {
            shared.stats.reset();
            out.push_str("Server stats reset.\n");
        }
        "crst" => {
            for conn in shared.all_connections() {
                conn.stats.reset();
            }
            out.push_str("Connection stats reset.\n");
        }
        _ => {}
    }
    out
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    use std::fmt::Write as _;
    let _ = writeln!(out, "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_mask_is_waited_for_and_nothing_else_is() {
        let mask = recognise(*b"stmk").unwrap();
        assert_eq!(mask.argument(b"stmk\0\0\0"), None);
        assert_eq!(mask.argument(b"stmk\0\0\0\0\0\0\x01\0"), Some(256));
        assert_eq!(recognise(*b"ruok").unwrap().argument(b"ruok"), Some(0));
        assert_eq!(recognise(*b"what"), None);
    }
}
