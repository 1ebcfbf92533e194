//! A notice that a command uses a local server while others on the machine use another one: they
//! share no lock, and would not notice it otherwise.

use std::io;
use std::path::PathBuf;

use nix::unistd::{Uid, User};
use serde::Serialize;

use crate::output::Output;
use crate::servers::machine::Machine;
use crate::servers::marker;

/// At most this number of users is named; the others are counted.
const NAMED: usize = 3;

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
/// there and cannot be used, or local servers of other users.
pub(crate) fn report(output: &Output, machine: &Machine, silent: Option<(PathBuf, io::Error)>) {
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
    if others.is_empty() {
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
    use super::who_runs_servers;

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
