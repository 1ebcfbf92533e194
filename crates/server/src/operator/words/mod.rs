//! Four-letter words: a client's first four bytes may be one of them instead of a frame's length
//! (protocol.md §7.1). Answers in the shapes that ZooKeeper's tools parse. Never changes anything
//! but counters and the trace mask, and never does anything on a socket's thread that takes longer
//! with more connections, sessions or watches.

mod lists;
mod server;
mod text;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use self::text::line;
use crate::operator::facts;
use crate::operator::members;
use crate::operator::metrics;
use crate::options::{CHANGING_WORDS, HARMLESS_WORDS, Options};
use crate::report::listings::{Listing, ListingName, Refusal, Source};
use crate::state::ServerState;

/// A word that the server knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(&'static str);

impl std::fmt::Display for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl Word {
    /// Its name, if it changes something.
    pub(crate) fn changes(self) -> Option<&'static str> {
        Some(self.0).filter(|word| CHANGING_WORDS.contains(word))
    }

    /// Whether the settings let it be answered.
    pub(crate) fn is_allowed(self, options: &Options) -> bool {
        let mut allowed = options.four_letter_words.iter();
        allowed.any(|allowed| allowed == self.0 || allowed == "*")
    }

    /// The number that follows the word, if it takes one; 0 if it takes none. `None`: it has not
    /// arrived yet.
    pub(crate) fn argument(self, input: &[u8]) -> Option<i64> {
        if self.0 != "stmk" {
            return Some(0);
        }
        input
            .get(4..)
            .and_then(<[u8]>::first_chunk::<8>)
            .map(|bytes| i64::from_be_bytes(*bytes))
    }
}

/// The word that these bytes are, if they are one. No frame that the server would take has such a
/// length.
pub(crate) fn recognise(bytes: [u8; 4]) -> Option<Word> {
    HARMLESS_WORDS
        .iter()
        .chain(CHANGING_WORDS)
        .find(|word| word.as_bytes() == bytes)
        .map(|word| Word(word))
}

/// The answer to a four-letter word.
#[derive(Debug)]
pub(crate) enum Answer {
    Text(String),
    Listing(Listing),
}

impl Answer {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Answer::Text(text) => text.as_bytes(),
            Answer::Listing(listing) => listing.as_bytes(),
        }
    }
}

/// Answers a word: at once what costs little, as a listing what costs more. A word that is not
/// allowed, and a listing that there is not, are refused in one line.
pub(crate) async fn answer(state: &Arc<ServerState>, word: Word, argument: i64) -> Answer {
    let is_allowed = word.is_allowed(&state.options);
    let Word(word) = word;
    if !is_allowed {
        return refused(word, &"it is not in the whitelist.");
    }
    let (source, make): (Source, Make) = match word {
        "mntr" => (Source::Memory, monitor),
        "stat" => (Source::Memory, server::with_clients),
        "cons" => (Source::Memory, lists::connections_text),
        "crst" => (Source::Memory, reset_connections),
        "dump" => (Source::Memory, lists::sessions),
        "wchs" => (Source::Memory, lists::watch_counts),
        "wchc" => (Source::Memory, lists::watches_by_session_text),
        "wchp" => (Source::Memory, lists::watches_by_path_text),
        "conf" => (Source::Folder, server::configuration_text),
        "dirs" => (Source::Folder, directories),
        _ => return Answer::Text(at_once(state, word, argument)),
    };
    match state.list(ListingName::Word(word), source, make).await {
        Ok(listing) => Answer::Listing(listing),
        Err(refusal) => refused(word, &refusal),
    }
}

type Make = fn(&ServerState) -> Result<String, Refusal>;

/// In the words of ZooKeeper.
fn refused(word: &str, why: &dyn std::fmt::Display) -> Answer {
    Answer::Text(format!("{word} is not executed because {why}\n"))
}

/// The words whose answers cost no more with more connections, sessions and watches.
fn at_once(state: &ServerState, word: &str, argument: i64) -> String {
    match word {
        "ruok" => "imok".to_owned(),
        "isro" if state.is_read_only() => "ro".to_owned(),
        // What ZooKeeper says while it serves nobody.
        "isro" if !members::has_leader(state) => "null".to_owned(),
        "isro" => "rw".to_owned(),
        "srvr" => server::summary_text(state),
        "envi" => server::environment_text(),
        // A line for each digest that was kept, and none is kept.
        "hash" => String::new(),
        "gtmk" => state.stats.trace_mask.load(Relaxed).to_string(),
        "stmk" => {
            state.stats.trace_mask.store(argument, Relaxed);
            argument.to_string()
        }
        "srst" => {
            state.stats.reset();
            "Server stats reset.\n".to_owned()
        }
        _ => String::new(),
    }
}

fn monitor(state: &ServerState) -> Result<String, Refusal> {
    let mut out = String::new();
    line(&mut out, format_args!("zk_version\t{}", facts::version()));
    let mode = members::mode(state);
    line(&mut out, format_args!("zk_server_state\t{mode}"));
    if let Some(state) = members::peer_state(state) {
        line(&mut out, format_args!("zk_peer_state\t{state}"));
    }
    metrics::as_lines(state, &mut out);
    Ok(out)
}

fn directories(state: &ServerState) -> Result<String, Refusal> {
    let (snapshots, log) = facts::file_bytes(state);
    Ok(format!("datadir_size: {snapshots}\nlogdir_size: {log}\n"))
}

fn reset_connections(state: &ServerState) -> Result<String, Refusal> {
    for conn in state.all_connections() {
        conn.stats.reset();
    }
    Ok("Connection stats reset.\n".to_owned())
}

#[cfg(test)]
mod tests {
    use baton_consensus::Role;

    use super::*;

    #[test]
    fn a_trace_mask_is_waited_for_and_nothing_else_is() {
        let mask = recognise(*b"stmk").unwrap();
        assert_eq!(mask.argument(b"stmk\0\0\0"), None);
        assert_eq!(mask.argument(b"stmk\0\0\0\0\0\0\x01\0"), Some(256));
        assert_eq!(recognise(*b"ruok").unwrap().argument(b"ruok"), Some(0));
        assert_eq!(recognise(*b"what"), None);
    }

    #[test]
    fn a_member_shows_its_part_in_the_ensemble() {
        let follower = members::tests::member(Role::Follower, Some(1));
        let summary = server::summary_text(&follower);
        assert!(summary.contains("\nMode: follower\n"), "{summary}");
        assert_eq!(at_once(&follower, "isro", 0), "rw");
        let monitor = monitor(&follower).unwrap();
        for line in [
            "zk_server_state\tfollower\n",
            "zk_peer_state\tfollowing - broadcast\n",
            "zk_quorum_size\t3\n",
            "zk_baton_leader_id\t1\n",
            "zk_baton_server_connected_3\t0\n",
        ] {
            assert!(monitor.contains(line), "{line}: {monitor}");
        }
        assert!(!monitor.contains("zk_synced_followers"), "{monitor}");
        let configuration = server::configuration_text(&follower).unwrap();
        assert!(
            configuration.contains("serverId=2\ninitLimit=10\nquorumPort=2889\n"),
            "{configuration}"
        );
        let candidate = members::tests::member(Role::Candidate, None);
        assert_eq!(at_once(&candidate, "isro", 0), "null");
        candidate.ensemble.as_ref().unwrap().lock().is_read_only = true;
        assert_eq!(at_once(&candidate, "isro", 0), "ro");
        let summary = server::summary_text(&candidate);
        let (first, rest) = summary.split_once('\n').unwrap();
        assert!(first.starts_with("Zookeeper version: "), "{summary}");
        assert!(
            rest.starts_with("READ-ONLY mode; serving only read-only clients\nLatency"),
            "{summary}"
        );
        assert!(summary.contains("\nMode: read-only\n"), "{summary}");
    }
}
