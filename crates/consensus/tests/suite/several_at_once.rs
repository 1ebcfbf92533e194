//! Several voters that come and go with one change, and a voter that moves: at every message of the
//! change, the network parts or nodes crash.

use std::collections::BTreeSet;

use baton_consensus::{Change, ChangeError, Member};
use bytes::Bytes;

use crate::cluster::{Cluster, member};
use crate::several_voters::change;

/// Voters 1 to 3, led by node 1, and learners 4 and 5 that have caught up.
fn three_and_two_learners() -> Cluster {
    let mut cluster = Cluster::new(3, 1);
    cluster.campaign(1);
    cluster.add(4, 1);
    cluster.add(5, 1);
    let learners = [4, 5].map(|id| Change::AddLearner(member(id)));
    let learn = change(learners.to_vec());
    cluster.node(1).consensus.propose_change(&learn).unwrap();
    cluster.settle();
    cluster.save_snapshot(1);
    for _ in 0..8 {
        cluster.tick();
    }
    let membership = cluster.node(1).consensus.membership().clone();
    assert_eq!(membership.learners, [4, 5]);
    let caught_up = cluster.node(1).consensus.commit_index();
    let known = cluster.node(1).consensus.progress();
    assert!(known.iter().all(|peer| peer.matched == caught_up));
    cluster
}

fn voter(id: u64) -> Change {
    Change::AddVoter(member(id))
}

/// Delivers this many messages of a change; `false`: it was complete before.
fn play(cluster: &mut Cluster, messages: usize) -> bool {
    for _ in 0..messages {
        for id in cluster.nodes.keys().copied().collect::<Vec<_>>() {
            cluster.drain(id);
            cluster.sync(id);
        }
        if cluster.deliver_one().is_none() {
            return false;
        }
    }
    true
}

/// Each node that leads proposes a command of its own, and time passes.
fn write_everywhere(cluster: &mut Cluster, ticks: usize, what: &str) {
    for tick in 0..ticks {
        for (id, node) in &mut cluster.nodes {
            let text = Bytes::from(format!("{what}-{id}-{tick}"));
            // Only who leads takes it.
            let _ = node.consensus.propose(text);
        }
        cluster.tick();
    }
}

/// Checks that whatever some node has applied stands at the same index at every other one.
fn one_history(cluster: &Cluster) {
    let mut longest: &[String] = &[];
    for node in cluster.nodes.values() {
        if node.applied.len() > longest.len() {
            longest = &node.applied;
        }
    }
    for (id, node) in &cluster.nodes {
        let same = longest.get(..node.applied.len());
        assert_eq!(same, Some(&node.applied[..]), "node {id}");
    }
}

fn shown(cluster: &Cluster) -> String {
    let of = |(id, node): (&u64, &crate::cluster::Node)| {
        let (status, at) = (node.consensus.status(), node.applied_index);
        format!(
            "{id}: {status:?} at {at}, {:?}\n",
            node.consensus.membership()
        )
    };
    cluster.nodes.iter().map(of).collect()
}

/// The changes that are played: three become five, five become three without the leader, two of
/// three are swapped with the leader among them.
fn changes() -> Vec<(Vec<Change>, Vec<u64>)> {
    vec![
        (vec![voter(4), voter(5)], vec![1, 2, 3, 4, 5]),
        (
            vec![voter(4), voter(5), Change::Remove(1), Change::Remove(2)],
            vec![3, 4, 5],
        ),
        (
            vec![
                voter(4),
                voter(5),
                Change::AddLearner(member(3)),
                Change::Remove(2),
            ],
            vec![1, 4, 5],
        ),
        (vec![Change::Remove(2), Change::Remove(3)], vec![1]),
    ]
}

#[test]
fn r15_several_voters_change_at_once_and_no_two_majorities_decide_apart() {
    let mut partings = 0;
    for (parts, after) in changes() {
        for messages in 0.. {
            let groups = [vec![1, 2], vec![1, 3], vec![1, 4], vec![2, 3], vec![4, 5]];
            for alone in groups.into_iter().skip(messages % 2).step_by(2) {
                let mut cluster = three_and_two_learners();
                let all = change(parts.clone());
                cluster.node(1).consensus.propose_change(&all).unwrap();
                play(&mut cluster, messages);
                for here in 1..=5 {
                    for there in 1..=5 {
                        if alone.contains(&here) != alone.contains(&there) {
                            cluster.cut(here, there);
                        }
                    }
                }
                write_everywhere(&mut cluster, 50, "apart");
                one_history(&cluster);
                cluster.heal();
                // Votes may be split now and then.
                write_everywhere(&mut cluster, 140, "whole");
                one_history(&cluster);
                let now = newest_membership(&cluster);
                assert!(
                    !now.is_joint() && (now.voters == after || now.voters == [1, 2, 3]),
                    "{now:?}"
                );
                let last = cluster.nodes[&now.voters[0]].applied.last().cloned();
                let goes_on = last.is_some_and(|it| it.starts_with("whole"));
                assert!(goes_on, "{messages} {alone:?}: {}", shown(&cluster));
                partings += 1;
            }
            let mut whole = three_and_two_learners();
            let all = change(parts.clone());
            whole.node(1).consensus.propose_change(&all).unwrap();
            if !play(&mut whole, messages) {
                break;
            }
        }
    }
    assert!(partings > 100, "{partings}");
}

#[test]
fn r15_nodes_that_crash_within_a_change_of_several_voters_carry_it_out_or_forget_it() {
    for (parts, after) in changes() {
        let mut outcomes = BTreeSet::new();
        for messages in 0..40 {
            let mut cluster = three_and_two_learners();
            cluster.propose(1, "before");
            cluster.settle();
            let all = change(parts.clone());
            cluster.node(1).consensus.propose_change(&all).unwrap();
            play(&mut cluster, messages);
            for id in 1..=5 {
                cluster.crash(id);
            }
            for id in 1..=5 {
                cluster.restart(id);
            }
            write_everywhere(&mut cluster, 120, "again");
            one_history(&cluster);
            let now = newest_membership(&cluster);
            assert!(!now.is_joint(), "{now:?}");
            let applied = &cluster.nodes[&now.voters[0]].applied;
            assert!(applied.contains(&"before".to_owned()));
            assert!(applied.last().unwrap().starts_with("again"));
            outcomes.insert(now.voters == after);
        }
        assert_eq!(outcomes, BTreeSet::from([false, true]), "both happen");
    }
}

fn newest_membership(cluster: &Cluster) -> baton_consensus::Membership {
    let newest = cluster.nodes.values().max_by_key(|it| it.applied_index);
    newest.unwrap().consensus.membership().clone()
}

#[test]
fn r15_all_voters_may_be_replaced_by_learners() {
    let mut cluster = three_and_two_learners();
    let all = change(vec![
        voter(4),
        voter(5),
        Change::Remove(1),
        Change::Remove(2),
        Change::Remove(3),
    ]);
    cluster.node(1).consensus.propose_change(&all).unwrap();
    cluster.settle();
    write_everywhere(&mut cluster, 60, "after");
    one_history(&cluster);
    let now = newest_membership(&cluster);
    assert_eq!((now.is_joint(), now.voters), (false, vec![4, 5]));
    assert!(cluster.leaders().iter().all(|id| [4, 5].contains(id)));
}

#[test]
fn r17_a_voter_moves_with_its_folder_and_keeps_its_vote() {
    let mut cluster = three_and_two_learners();
    let elsewhere = |id: u64| Member {
        address: "elsewhere".to_owned(),
        ..member(id)
    };
    let move_of = |of: Member| change(vec![Change::AddVoter(of)]);
    let mut refused = |of: Member| {
        let node = &mut cluster.node(1).consensus;
        node.propose_change(&move_of(of)).unwrap_err()
    };
    let same_place = refused(member(2));
    assert_eq!(same_place, ChangeError::AlreadyVotes { id: 2 });
    let other_folder = refused(Member {
        incarnation: 99,
        ..elsewhere(2)
    });
    assert_eq!(other_folder, ChangeError::OtherIncarnation { id: 2 });
    let moved = move_of(elsewhere(2));
    cluster.node(1).consensus.propose_change(&moved).unwrap();
    cluster.settle();
    for id in 1..=3 {
        let now = cluster.node(id).consensus.membership().clone();
        assert_eq!((now.is_joint(), &now.voters[..]), (false, &[1, 2, 3][..]));
        let known: Vec<_> = now.members.iter().filter(|of| of.id == 2).collect();
        assert_eq!(known, [&elsewhere(2)]);
    }
    cluster.crash(1);
    cluster.until_leader(100).unwrap();
    write_everywhere(&mut cluster, 5, "moved");
    assert!(cluster.nodes[&2].applied.len() >= 5);
}
