//! Stories of several nodes as text: commands, and what came of each. A reader follows an election
//! or a change of the membership message by message; a change of the behaviour shows as a
//! difference of the text.
//!
//! `BATON_WRITE_TRANSCRIPTS=1 cargo test -p baton-locks-consensus --test suite transcripts::`
//! writes what comes of the commands in the place of what stands there. Read the difference before
//! it is kept.
//!
//! A block is one command a line, then `----`, then the outcome, then an empty line:
//!
//! | command | does |
//! |---|---|
//! | `cluster N` | nodes 1 to N, all of them voters |
//! | `add N` | starts node N, which belongs to nobody |
//! | `campaign N`, `forget-leader N`, `transfer N M`, `tick COUNT` | the call of that name |
//! | `double N` | node N waits twice as long before it campaigns |
//! | `propose N TEXT` | a command |
//! | `change N +voter=4 +learner=4 -5` | the members change; `4@PLACE`: node 4 is there |
//! | `drain N`, `sync N` | what node N has to do; its oldest batch reaches the disk |
//! | `deliver` | all messages on their way, without what comes of them |
//! | `settle` | everything until nothing is left to do |
//! | `cut N`, `heal`, `crash N`, `restart N`, `snapshot N` | as in the name |
//! | `state` | each node: role, term, end of its log, commit, membership, commands |

use std::fmt::Write;
use std::path::{Path, PathBuf};

use baton_consensus::{
    Change, Entry, EntryKind, Member, Membership, MembershipChange, PeerMessage, Role,
};
use bytes::Bytes;

use crate::cluster::{Cluster, member};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
}

#[test]
fn every_story_goes_as_it_is_written() {
    let mut stories: Vec<_> = std::fs::read_dir(folder())
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    stories.sort();
    assert!(stories.len() >= 5, "{stories:?}");
    for path in stories {
        let written = std::fs::read_to_string(&path).unwrap();
        let retold = retell(&written);
        if std::env::var_os("BATON_WRITE_TRANSCRIPTS").is_some() {
            std::fs::write(&path, &retold).unwrap();
        } else {
            assert_eq!(retold, written, "{}", path.display());
        }
    }
}

/// The story with the outcomes that its commands have.
fn retell(written: &str) -> String {
    let mut cluster = Cluster::default();
    let mut retold = String::new();
    let mut lines = written.lines();
    while let Some(line) = lines.next() {
        if line.is_empty() || line.starts_with('#') {
            writeln!(retold, "{line}").unwrap();
            continue;
        }
        let mut outcome = String::new();
        let mut command = line;
        loop {
            writeln!(retold, "{command}").unwrap();
            if command == "----" {
                break;
            }
            outcome += &obey(&mut cluster, command);
            command = lines.next().expect("---- follows the commands");
        }
        retold += if outcome.is_empty() { "ok\n" } else { &outcome };
        retold.push('\n');
        for old in lines.by_ref() {
            if old.is_empty() {
                break;
            }
        }
    }
    retold
}

fn obey(cluster: &mut Cluster, command: &str) -> String {
    let mut words = command.split(' ');
    let name = words.next().unwrap();
    let words: Vec<&str> = words.collect();
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    let refusal = |outcome: Option<String>| outcome.map_or_else(String::new, |why| why + "\n");
    match name {
        "cluster" => *cluster = Cluster::new(number(0), 1),
        "add" => cluster.add(number(0), 1),
        "campaign" => {
            let outcome = cluster.node(number(0)).consensus.campaign();
            return refusal(outcome.err().map(|why| why.to_string()));
        }
        "forget-leader" => cluster.node(number(0)).consensus.forget_leader(),
        "double" => cluster
            .node(number(0))
            .consensus
            .double_campaign_ticks(true),
        "transfer" => cluster.node(number(0)).consensus.transfer_leader(number(1)),
        "tick" => {
            let mut sent = String::new();
            for _ in 0..number(0) {
                for message in cluster.tick() {
                    sent += &shown(&message);
                }
            }
            return sent;
        }
        "propose" => {
            let text = Bytes::copy_from_slice(words[1].as_bytes());
            let outcome = cluster.node(number(0)).consensus.propose(text);
            return refusal(outcome.err().map(|why| why.to_string()));
        }
        "change" => {
            let changes = words[1..].iter().map(|part| parsed(part)).collect();
            let change = MembershipChange {
                changes,
                context: Bytes::new(),
            };
            let outcome = cluster.node(number(0)).consensus.propose_change(&change);
            return refusal(outcome.err().map(|why| why.to_string()));
        }
        "drain" => {
            cluster.drain(number(0));
        }
        "sync" => {
            cluster.sync_one(number(0));
        }
        "deliver" => {
            let mut sent = String::new();
            for _ in 0..cluster.network.len() {
                if let Some(message) = cluster.deliver_one() {
                    sent += &shown(&message);
                }
            }
            return sent;
        }
        "settle" => return cluster.settle().iter().map(shown).collect(),
        "cut" => cluster.isolate(number(0)),
        "heal" => cluster.heal(),
        "crash" => cluster.crash(number(0)),
        "restart" => cluster.restart(number(0)),
        "snapshot" => cluster.save_snapshot(number(0)),
        "state" => return state(cluster),
        _ => panic!("unknown command {command:?}"),
    }
    String::new()
}

fn parsed(part: &str) -> Change {
    if let Some(id) = part.strip_prefix('-') {
        return Change::Remove(id.parse().unwrap());
    }
    let (kind, id) = part.split_once('=').unwrap();
    let (id, place) = id.split_once('@').unwrap_or((id, ""));
    let mut member = member(id.parse().unwrap());
    if !place.is_empty() {
        member.address = place.to_owned();
    }
    match kind {
        "+voter" => Change::AddVoter(member),
        "+learner" => Change::AddLearner(member),
        _ => panic!("unknown part {part:?}"),
    }
}

/// `1 > 2 Append term 2 after 1/1 [2/2 "a"] commit 1`, without what is 0.
fn shown(message: &PeerMessage) -> String {
    let PeerMessage {
        kind,
        from,
        to,
        term,
        index,
        log_term,
        commit,
        reject,
        ..
    } = message;
    let mut line = format!("{from} > {to} {kind:?} term {term}");
    if *index > 0 {
        write!(line, " at {index}").unwrap();
    }
    if *log_term > 0 {
        write!(line, " of term {log_term}").unwrap();
    }
    if *reject {
        write!(line, " refused").unwrap();
    }
    if *commit > 0 {
        write!(line, " commit {commit}").unwrap();
    }
    if let Some(point) = &message.snapshot {
        let members = members(&point.membership);
        write!(
            line,
            " snapshot at {} of term {} {members}",
            point.index, point.term
        )
        .unwrap();
    }
    for entry in &message.entries {
        write!(line, " [{}]", content(entry)).unwrap();
    }
    line + "\n"
}

fn content(entry: &Entry) -> String {
    let Entry {
        index,
        term,
        kind,
        payload,
    } = entry;
    let what = match kind {
        EntryKind::Noop => String::new(),
        EntryKind::Command => format!(" {}", String::from_utf8_lossy(payload)),
        EntryKind::Configuration => {
            let change = MembershipChange::decode(payload).unwrap();
            if change.changes.is_empty() {
                " leave joint".to_owned()
            } else {
                let part = |part: &Change| match part {
                    Change::AddVoter(member) => format!(" +voter={}", named(member)),
                    Change::AddLearner(member) => format!(" +learner={}", named(member)),
                    Change::Remove(id) => format!(" -{id}"),
                };
                change.changes.iter().map(part).collect()
            }
        }
    };
    format!("{index} of term {term}{what}")
}

/// The id, with the address where that is not the usual one.
fn named(of: &Member) -> String {
    if of.address == member(of.id).address {
        of.id.to_string()
    } else {
        format!("{}@{}", of.id, of.address)
    }
}

fn members(membership: &Membership) -> String {
    let mut shown = format!("voters {:?}", membership.voters);
    if membership.is_joint() {
        write!(shown, " outgoing {:?}", membership.outgoing).unwrap();
    }
    if !membership.learners.is_empty() {
        write!(shown, " learners {:?}", membership.learners).unwrap();
    }
    for of in &membership.members {
        if of.address != member(of.id).address {
            write!(shown, " {}", named(of)).unwrap();
        }
    }
    shown
}

fn state(cluster: &Cluster) -> String {
    let mut shown = String::new();
    for (id, node) in &cluster.nodes {
        let status = node.consensus.status();
        let role = match status.role {
            Role::Leader => "leader",
            Role::Candidate => "candidate",
            Role::Follower => "follower",
        };
        writeln!(
            shown,
            "{id} {role} term {} log {} commit {} {} {:?}",
            status.term,
            node.consensus.last_index(),
            node.consensus.commit_index(),
            members(node.consensus.membership()),
            node.applied,
        )
        .unwrap();
        for why in &node.refused {
            writeln!(shown, "{id} refused: {why}").unwrap();
        }
    }
    shown
}
