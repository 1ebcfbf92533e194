//! Nodes whose disks go back to an earlier state, as a restored snapshot of a machine does (R19).

use baton_consensus::{
    ConsensusError, HardState, LogGap, MessageKind, PeerMessage, Position, StepError,
};

use crate::cluster::{Cluster, Disk, message};
use crate::several_voters::three;

/// Three nodes of which 1 leads, and what the disks of all had before the newest two entries.
fn three_and_earlier_disks() -> (Cluster, Vec<Disk>) {
    let mut cluster = three();
    cluster.propose(1, "a");
    cluster.settle();
    cluster.tick();
    let earlier = (1..=3).map(|id| cluster.node(id).disk.clone()).collect();
    for text in ["b", "c"] {
        cluster.propose(1, text);
        cluster.settle();
    }
    for _ in 0..4 {
        cluster.tick();
    }
    (cluster, earlier)
}

/// The handshakes of a start: each node hears what the others know to be committed.
fn say_hello(cluster: &mut Cluster) {
    let said: Vec<(u64, Position)> = cluster
        .nodes
        .iter()
        .map(|(id, node)| {
            let index = node.consensus.commit_index();
            (*id, Position { index, term: 0 })
        })
        .collect();
    for (from, commit) in said {
        for (to, node) in &mut cluster.nodes {
            if *to != from {
                node.consensus.note_commit(from, commit);
                node.consensus.release_votes();
            }
        }
    }
}

fn roll_back(cluster: &mut Cluster, id: u64, disk: &Disk) {
    cluster.crash(id);
    cluster.restart_with(id, disk.clone());
    cluster.node(id).consensus.hold_votes(100);
}

#[test]
fn r19_two_rolled_back_of_three_do_not_elect_one_of_them() {
    let (mut cluster, earlier) = three_and_earlier_disks();
    for id in [1, 2] {
        roll_back(&mut cluster, id, &earlier[usize::try_from(id).unwrap() - 1]);
    }
    for _ in 0..60 {
        cluster.tick();
        assert_eq!(cluster.leaders().iter().find(|id| **id != 3), None);
    }
    say_hello(&mut cluster);
    let (leader, _) = cluster.until_leader(300).unwrap();
    assert_eq!(leader, 3);
    cluster.propose(3, "d");
    cluster.settle();
    for _ in 0..4 {
        cluster.tick();
    }
    for id in 1..=3 {
        assert_eq!(cluster.node(id).applied, ["a", "b", "c", "d"], "{id}");
    }
}

#[test]
fn r19_a_node_that_has_acknowledged_more_than_it_has_neither_votes_nor_leads() {
    let (mut cluster, earlier) = three_and_earlier_disks();
    let newest = cluster.node(1).consensus.commit_index();
    for id in [1, 2] {
        roll_back(&mut cluster, id, &earlier[usize::try_from(id).unwrap() - 1]);
        let node = &mut cluster.node(id).consensus;
        node.release_votes();
        node.note_acknowledged(newest);
        let gap = node.log_gap().unwrap();
        assert!(
            matches!(gap, LogGap::RolledBack { acknowledged, .. } if acknowledged == newest),
            "{gap:?}"
        );
        let refused = node.campaign();
        assert!(matches!(refused, Err(ConsensusError::MayNotLead { .. })));
    }
    // Not even for the node that has everything: who knows what it has forgotten of its votes.
    assert_eq!(cluster.until_leader(200), None);
}

#[test]
fn r19_a_rolled_back_node_votes_again_when_a_leader_has_sent_it_the_rest() {
    let (mut cluster, earlier) = three_and_earlier_disks();
    let newest = cluster.node(1).consensus.commit_index();
    roll_back(&mut cluster, 2, &earlier[1]);
    cluster.node(2).consensus.note_acknowledged(newest);
    let last = cluster.node(2).consensus.last_index();
    cluster.node(1).consensus.log_restarted(2, last);
    cluster.propose(1, "d");
    cluster.settle();
    // The leader has forgotten entries that everybody had.
    assert!(cluster.node(1).wants_snapshot.contains(&2));
    cluster.save_snapshot(1);
    for _ in 0..8 {
        cluster.tick();
    }
    let applied_index = cluster.node(1).applied_index;
    assert_eq!(cluster.node(2).applied_index, applied_index);
    assert_eq!(cluster.node(2).consensus.log_gap(), None);
    cluster.node(2).consensus.release_votes();
    cluster.crash(1);
    assert!(cluster.until_leader(200).is_some());
}

/// A leader counts on entries of a follower that has lost them, and has not heard of its restart.
#[test]
fn r19_a_heartbeat_that_counts_on_lost_entries_shows_a_node_that_it_is_rolled_back() {
    let (mut cluster, earlier) = three_and_earlier_disks();
    roll_back(&mut cluster, 2, &earlier[1]);
    cluster.heartbeat();
    let gap = cluster.node(2).consensus.log_gap();
    assert!(matches!(gap, Some(LogGap::RolledBack { .. })), "{gap:?}");
    assert!(cluster.node(2).refused.is_empty());
}

/// Two of three were rolled back and have led on before the third is heard: that one keeps what it
/// has committed, and the leader that lacks it steps down.
#[test]
fn r19_a_node_that_has_more_committed_follows_no_leader_that_has_less() {
    let (mut cluster, earlier) = three_and_earlier_disks();
    for id in [1, 2] {
        roll_back(&mut cluster, id, &earlier[usize::try_from(id).unwrap() - 1]);
        cluster.node(id).consensus.release_votes();
    }
    cluster.isolate(3);
    let (leader, _) = cluster.until_leader(200).unwrap();
    for text in ["x", "y", "z", "w"] {
        cluster.propose(leader, text);
        cluster.settle();
    }
    cluster.heal();
    let term = cluster.node(leader).consensus.status().term;
    let forked = cluster.node(leader).disk.entries.clone();
    let first = forked.iter().position(|entry| entry.term == term).unwrap();
    let before = &forked[first - 1];
    let append = PeerMessage {
        index: before.index,
        log_term: before.term,
        entries: forked[first..].to_vec(),
        ..message(MessageKind::Append, leader, 3, term)
    };
    let commit = cluster.node(3).consensus.commit_index();
    let refused = cluster.node(3).consensus.step(append);
    assert!(
        matches!(refused, Err(StepError::LeaderLacks { .. })),
        "{refused:?}"
    );
    let gap = cluster.node(3).consensus.log_gap();
    assert!(matches!(gap, Some(LogGap::LeaderLacks { .. })), "{gap:?}");
    let mut sent = Vec::new();
    for _ in 0..200 {
        sent.extend(cluster.tick());
    }
    let node = cluster.node(3);
    assert_eq!(node.consensus.commit_index(), commit);
    assert_eq!(node.applied, ["a", "b", "c"]);
    for id in [1, 2] {
        let gap = cluster.node(id).consensus.log_gap();
        assert!(
            matches!(gap, Some(LogGap::Lacks { node: 3, .. })),
            "{gap:?}"
        );
    }
    // Nobody leads: whose entries count, an operator has to say.
    assert_eq!(cluster.leaders(), [] as [u64; 0]);
    let acknowledged = sent
        .iter()
        .filter(|it| it.from == 3 && it.kind == MessageKind::AppendResponse && !it.reject);
    assert_eq!(acknowledged.count(), 0);
}

/// Returns whether a node gives the vote that this message asks for.
fn gives_vote(cluster: &mut Cluster, request: PeerMessage) -> bool {
    let voter = &mut cluster.node(request.to).consensus;
    voter.step(request).unwrap();
    let effects = std::iter::from_fn(|| voter.drain());
    let sent = effects.flat_map(|it| it.send_now.into_iter().chain(it.send_after_sync));
    sent.filter(|it| it.kind == MessageKind::VoteResponse)
        .any(|it| !it.reject)
}

/// A candidate of this term, whose log has everything.
fn candidate(cluster: &mut Cluster, from: u64, to: u64, term: u64) -> PeerMessage {
    let commit = cluster.node(1).consensus.commit_position();
    PeerMessage {
        index: commit.index,
        log_term: commit.term,
        ..message(MessageKind::Vote, from, to, term)
    }
}

/// To an empty log every candidate's log is as new as its own.
#[test]
fn r19_a_node_whose_whole_log_was_rolled_back_gives_no_vote() {
    let (mut cluster, _) = three_and_earlier_disks();
    let newest = cluster.node(1).consensus.commit_index();
    roll_back(&mut cluster, 2, &Disk::default());
    cluster.node(2).consensus.release_votes();
    let request = candidate(&mut cluster, 3, 2, 9);
    cluster.node(2).consensus.note_acknowledged(newest);
    assert!(!gives_vote(&mut cluster, request));
}

/// The vote that its folder has forgotten made another one the leader of that term.
#[test]
fn r19_a_node_gives_no_vote_in_a_term_that_others_had_reached_before_its_start() {
    let (mut cluster, earlier) = three_and_earlier_disks();
    let term = cluster.node(1).consensus.status().term;
    let before_its_vote = Disk {
        entries: Vec::new(),
        hard_state: HardState::default(),
        commit: 1,
        ..earlier[1].clone()
    };
    for (asked, is_given) in [(term, false), (term + 1, true)] {
        roll_back(&mut cluster, 2, &before_its_vote);
        let node = &mut cluster.node(2).consensus;
        node.note_term(term);
        node.release_votes();
        let request = candidate(&mut cluster, 3, 2, asked);
        assert_eq!(gives_vote(&mut cluster, request), is_given, "{asked}");
    }
}
