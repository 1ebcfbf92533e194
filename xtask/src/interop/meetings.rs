//! Barriers, groups and counters that Baton and another library share: step by step, each side once
//! in each part.

use std::time::Duration;

use super::SESSION_TIMEOUT;
use crate::Result;
use crate::peer::{Log, Peer, Spec};

/// In which nobody may go on who has to wait.
const STILL: Duration = Duration::from_millis(700);
const PATIENCE: Duration = Duration::from_secs(20);
const ROUNDS: usize = 3;
const AGREE: &str = "agree";

/// Steps of a group; they return what is worth a note.
type Steps = fn(&mut [Peer]) -> Result<String>;

/// Members of one barrier or group, and what they do.
struct Meeting {
    name: &'static str,
    members: [&'static str; 3],
    steps: Steps,
}

const MEETINGS: &[Meeting] = &[
    Meeting {
        name: "`Barrier` and Curator `DistributedBarrier`",
        members: ["baton-barrier", "curator-barrier", "baton-barrier"],
        steps: barrier,
    },
    Meeting {
        name: "`Barrier` and kazoo `Barrier`",
        members: ["baton-barrier", "kazoo-barrier", "baton-barrier"],
        steps: barrier,
    },
    Meeting {
        name: "`DoubleBarrier` and Curator `DistributedDoubleBarrier`",
        members: [
            "baton-double-barrier",
            "curator-double-barrier",
            "baton-double-barrier",
        ],
        steps: double_barrier,
    },
    Meeting {
        name: "`DoubleBarrier` and kazoo `DoubleBarrier`",
        members: [
            "baton-double-barrier",
            "kazoo-double-barrier",
            "baton-double-barrier",
        ],
        steps: double_barrier,
    },
    Meeting {
        name: "`Membership` and Curator `GroupMember`",
        members: ["baton-group:member", "curator-group", "baton-group:member"],
        steps: group,
    },
    Meeting {
        name: "`Membership` and kazoo `Party`",
        members: ["baton-group:party", "kazoo-party", "baton-group:party"],
        steps: group,
    },
    Meeting {
        name: "`Counter` and Curator `SharedCount`",
        members: [
            "baton-counter:int32",
            "curator-count",
            "baton-counter:int32",
        ],
        steps: count,
    },
    Meeting {
        name: "`Counter` and Curator `DistributedAtomicInteger`",
        members: [
            "baton-counter:int32",
            "curator-atomic",
            "baton-counter:int32",
        ],
        steps: count,
    },
    Meeting {
        name: "`Counter` and kazoo `Counter`",
        members: ["baton-counter", "kazoo-counter", "baton-counter"],
        steps: count,
    },
    Meeting {
        name: "`Counter` and kazoo `Counter` for Curator",
        members: [
            "baton-counter:int32",
            "kazoo-counter-curator",
            "baton-counter:int32",
        ],
        steps: count,
    },
];

/// The head of the table.
pub(super) const HEAD: [&str; 3] = ["shared", "server", "outcome"];

/// Runs every meeting whose name contains the text; its row, and what is wrong.
pub(super) fn run(
    servers: &str,
    server: &str,
    only: &str,
) -> Result<(Vec<Vec<String>>, Vec<String>)> {
    let mut rows = Vec::new();
    let mut failures = Vec::new();
    for (number, meeting) in MEETINGS.iter().enumerate() {
        if !meeting.name.contains(only) {
            continue;
        }
        let outcome = meet(meeting, servers, &format!("/meeting-{number}"));
        let said = match &outcome {
            Ok(note) => note.clone(),
            Err(error) => error.to_string(),
        };
        let row = vec![meeting.name.to_owned(), server.to_owned(), said];
        println!("{}", row.join(", "));
        if let Err(error) = outcome {
            failures.push(format!("{}: {error}", meeting.name));
        }
        rows.push(row);
    }
    Ok((rows, failures))
}

fn meet(meeting: &Meeting, servers: &str, path: &str) -> Result<String> {
    let log = Log::default();
    let mut members = Vec::new();
    for (number, recipe) in meeting.members.into_iter().enumerate() {
        members.push(Peer::start(
            &log,
            &Spec {
                servers,
                recipe,
                path,
                name: &format!("member-{number}"),
                timeout: SESSION_TIMEOUT,
            },
        )?);
    }
    (meeting.steps)(&mut members)
}

/// Sends a command to each, and says who finishes it although others are still to come.
fn too_early(members: &mut [Peer], command: &str) -> Result<Option<String>> {
    for member in members.iter_mut() {
        member.send(command)?;
    }
    std::thread::sleep(STILL);
    for member in members.iter() {
        if member.hear("done", Duration::ZERO)?.is_some() {
            return Ok(Some(member.recipe().to_owned()));
        }
    }
    Ok(None)
}

fn all_wait(members: &mut [Peer], command: &str) -> Result<()> {
    match too_early(members, command)? {
        Some(recipe) => Err(format!("{recipe} did not wait in '{command}'").into()),
        None => Ok(()),
    }
}

fn all_done(members: &[Peer]) -> Result<()> {
    members
        .iter()
        .try_for_each(|member| member.answer("done", PATIENCE).map(|_| ()))
}

/// The first two close and open in turn; the two others of each round wait, and go on only then.
fn barrier(members: &mut [Peer]) -> Result<String> {
    for _ in 0..ROUNDS {
        members.swap(0, 1);
        let Some((opens, waiting)) = members.split_first_mut() else {
            return Err("nobody to wait".into());
        };
        for closes in waiting.iter_mut().take(1) {
            closes.ask("set", "done", PATIENCE)?;
        }
        all_wait(waiting, "wait")?;
        opens.ask("clear", "done", PATIENCE)?;
        all_done(waiting)?;
    }
    Ok(AGREE.to_owned())
}

/// Nobody is in before all have come, nobody out before all leave. Others than Baton may leave
/// early by themselves.
fn double_barrier(members: &mut [Peer]) -> Result<String> {
    let mut left_early = None;
    for round in 0..ROUNDS {
        // Another one comes last each time.
        members.rotate_left(round % members.len());
        let Some((late, early)) = members.split_last_mut() else {
            return Err("nobody to meet".into());
        };
        all_wait(early, "enter")?;
        late.ask("enter", "done", PATIENCE)?;
        all_done(early)?;
        match too_early(early, "leave")? {
            Some(recipe) if recipe.starts_with("baton-") => {
                return Err(format!("{recipe} left before all did").into());
            }
            recipe => left_early = left_early.or(recipe),
        }
        late.ask("leave", "done", PATIENCE)?;
        all_done(early)?;
    }
    Ok(match left_early {
        Some(recipe) => format!("agree, but {recipe} leaves before all do"),
        None => AGREE.to_owned(),
    })
}

/// All see all, and the one that goes, or is killed, is seen to be gone.
fn group(members: &mut [Peer]) -> Result<String> {
    for member in members.iter_mut() {
        member.ask("join", "done", PATIENCE)?;
    }
    see(members, "member-0,member-1,member-2")?;
    let [first, second, third] = members else {
        return Err("three are needed".into());
    };
    third.kill();
    see_each(&mut [first, second], "member-0,member-1")?;
    second.ask("quit", "done", PATIENCE)?;
    see_each(&mut [first], "member-0")?;
    Ok(AGREE.to_owned())
}

/// All add at once, and every increment counts.
fn count(members: &mut [Peer]) -> Result<String> {
    const TIMES: usize = 50;
    for member in members.iter_mut() {
        member.send(&format!("add {TIMES}"))?;
    }
    all_done(members)?;
    let sum = (TIMES * members.len()).to_string();
    see(members, &sum)?;
    Ok(AGREE.to_owned())
}

fn see(members: &mut [Peer], wanted: &str) -> Result<()> {
    let mut members: Vec<&mut Peer> = members.iter_mut().collect();
    see_each(&mut members, wanted)
}

/// Asks each until it lists these.
fn see_each(members: &mut [&mut Peer], wanted: &str) -> Result<()> {
    let end = std::time::Instant::now() + PATIENCE;
    for member in members {
        loop {
            let listed = member.ask("list", "done", PATIENCE)?;
            let listed = listed.rest.trim_start_matches("list").trim().to_owned();
            // kazoo's Party lists the identifiers, in the order of the nodes' names.
            let mut ids: Vec<&str> = listed.split(',').collect();
            ids.sort_unstable();
            if ids.join(",") == wanted {
                break;
            }
            if std::time::Instant::now() > end {
                return Err(format!("{} sees {listed}, not {wanted}", member.recipe()).into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    Ok(())
}
