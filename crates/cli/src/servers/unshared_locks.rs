//! A notice that a command uses a local server while others on the machine use another one: they
//! share no lock, and would not notice it otherwise.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};
use serde::Serialize;

use crate::output::Output;
use crate::servers::machine::Machine;
use crate::servers::marker;

/// At most this number of users is named; the others are counted.
const NAMED: usize = 3;

/// The file of the users who were named, an id a line.
const NAMED_BEFORE: &str = "unshared-users";

/// The event, for programs.
#[derive(Default, Serialize)]
struct LocksNotShared<'a> {
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    users: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    socket: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// The event's name.
const EVENT: &str = "locks_not_shared";

/// Says in one line which other servers this machine has: the machine's socket, if it is
/// there and cannot be used, or local servers of other users. Of these it says so once, until there
/// are others: `folder`, this user's own, keeps who was named.
pub(crate) fn report(
    output: &Output,
    machine: &Machine,
    silent: Option<(PathBuf, io::Error)>,
    folder: &Path,
) {
    if output.quiet() {
        return;
    }
    if let Some((socket, error)) = silent {
        let record = LocksNotShared {
            event: EVENT,
            socket: Some(socket.display().to_string()),
            why: Some(error.to_string()),
            ..LocksNotShared::default()
        };
        let text = format!(
            "the machine's server at {} cannot be used ({error}): a local server of your own is \
             used, which shares no locks with other users; have the machine's server started, or \
             ask for the right to connect",
            socket.display()
        );
        output.event(&record, text);
        return;
    }
    let me = rustix::process::geteuid().as_raw();
    let others = marker::other_users(&machine.shared_folders(), me);
    if others.is_empty() || !is_news(&others, &folder.join(NAMED_BEFORE)) {
        return;
    }
    let users: Vec<String> = others.into_iter().map(name).collect();
    let record = LocksNotShared {
        event: EVENT,
        users: Some(&users),
        ..LocksNotShared::default()
    };
    let text = format!(
        "{} on this machine: your locks are not shared with theirs; to share them, run one \
         baton serve --unix-socket {} --unix-socket-mode 0666 for all, or name the same servers \
         with --servers",
        who_runs_servers(&users),
        machine.socket().display()
    );
    output.event(&record, text);
}

/// Whether any of these users has not been named before. Adds them to those in the file.
fn is_news(users: &BTreeSet<u32>, file: &Path) -> bool {
    let before = std::fs::read_to_string(file).unwrap_or_default();
    let mut named: BTreeSet<u32> = before.lines().filter_map(|id| id.parse().ok()).collect();
    if users.is_subset(&named) {
        return false;
    }
    named.extend(users);
    let lines: String = named.iter().map(|id| format!("{id}\n")).collect();
    // Where it cannot be kept, it is said again.
    let _ = std::fs::write(file, lines);
    true
}

fn name(id: u32) -> String {
    match User::from_uid(Uid::from_raw(id)) {
        Ok(Some(user)) => user.name,
        _ => format!("with id {id}"),
    }
}

/// The beginning of the sentence.
fn who_runs_servers(users: &[String]) -> String {
    let (named, more) = users.split_at(users.len().min(NAMED));
    match (named, more.len()) {
        ([one], _) => format!("user {one} runs a local server"),
        (several, 0) => {
            let (last, first) = several
                .split_last()
                .map_or(("", several), |(last, first)| (last.as_str(), first));
            format!("users {} and {last} run local servers", first.join(", "))
        }
        (several, more) => format!(
            "users {} and {more} more run local servers",
            several.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_news_once_also_after_another_and_where_the_file_cannot_be_kept_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(NAMED_BEFORE);
        let news = |users: &[u32]| is_news(&users.iter().copied().collect(), &file);
        let said = [&[7][..], &[7], &[7, 8], &[8], &[7]].map(news);
        assert_eq!(said, [true, false, true, false, false]);
        let nowhere = folder.path().join("missing").join(NAMED_BEFORE);
        let users = BTreeSet::from([7]);
        assert!(is_news(&users, &nowhere) && is_news(&users, &nowhere));
    }

    #[test]
    fn users_are_named_and_many_are_counted() {
        let users = ["a", "b", "c", "d", "e"].map(str::to_owned);
        for (count, text) in [
            (1, "user a runs a local server"),
            (2, "users a and b run local servers"),
            (3, "users a, b and c run local servers"),
            (5, "users a, b, c and 2 more run local servers"),
        ] {
            assert_eq!(who_runs_servers(&users[..count]), text);
        }
    }
}
