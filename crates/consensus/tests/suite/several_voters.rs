//! Several voters, driven by hand: what is sent when, what a crash may forget, which changes of the
//! membership are taken.

use baton_consensus::{
    Change, ChangeError, Config, Consensus, ConsensusError, EntryKind, MembershipChange,
    MessageKind, PeerMessage, ProposeError, ReadError, Recovered, Role, StepError,
};
use bytes::Bytes;

use crate::cluster::{Cluster, member, message};

pub fn change(changes: Vec<Change>) -> MembershipChange {
    MembershipChange {
        changes,
        context: Bytes::new(),
    }
}

/// Three voters, of which 1 leads.
pub fn three() -> Cluster {
    let mut cluster = Cluster::new(3, 1);
    cluster.campaign(1);
    assert_eq!(cluster.leaders(), [1]);
    cluster
}

/// [`three`] and node 4 as a learner that has caught up.
pub fn three_and_a_learner() -> Cluster {
    let mut cluster = three();
    cluster.add(4, 1);
    // What the learner lacks was never in the log.
    cluster.save_snapshot(1);
    let learn = change(vec![Change::AddLearner(member(4))]);
    cluster.node(1).consensus.propose_change(&learn).unwrap();
    cluster.settle();
    for _ in 0..4 {
        let wanted = !cluster.node(1).wants_snapshot.is_empty();
        if wanted {
            cluster.node(1).wants_snapshot.clear();
            cluster.save_snapshot(1);
        }
        cluster.tick();
    }
    let membership = cluster.node(1).consensus.membership().clone();
    assert_eq!(
        (membership.voters, membership.learners),
        (vec![1, 2, 3], vec![4])
    );
    assert_eq!(
        cluster.nodes[&4].applied_index,
        cluster.nodes[&1].applied_index
    );
    cluster
}

#[test]
fn r01_a_follower_acknowledges_entries_only_when_they_are_durable() {
    let mut cluster = three();
    cluster.propose(1, "a");
    cluster.drain(1);
    let appends: Vec<_> = cluster.network.iter().map(|m| (m.kind, m.to)).collect();
    assert_eq!(
        appends,
        [(MessageKind::Append, 2), (MessageKind::Append, 3)]
    );
    assert_eq!(
        cluster.node(1).consensus.commit_index(),
        2,
        "its own disk has not answered"
    );
    while cluster.deliver_one().is_some() {}
    cluster.drain(2);
    assert!(cluster.network.is_empty(), "an answer before the sync");
    cluster.sync(2);
    let answers: Vec<_> = cluster.network.iter().map(|m| (m.kind, m.from)).collect();
    assert_eq!(answers, [(MessageKind::AppendResponse, 2)]);
    assert_eq!(cluster.node(2).disk.entries.last().unwrap().payload, "a");
}

#[test]
fn a_follower_answers_heartbeats_while_its_disk_is_busy() {
    let mut cluster = three();
    cluster.propose(1, "a");
    cluster.drain(1);
    cluster.sync(1);
    while cluster.deliver_one().is_some() {}
    for id in [2, 3] {
        assert!(cluster.drain(id), "its entry waits for the disk");
    }
    for _ in 0..100 {
        cluster.node(1).consensus.tick();
        for id in [1, 2, 3] {
            cluster.drain(id);
        }
        while let Some(message) = cluster.deliver_one() {
            assert_ne!(message.kind, MessageKind::AppendResponse);
        }
    }
    assert_eq!(cluster.leaders(), [1], "it hears of a majority");
    cluster.settle();
    assert!(cluster.node(2).applied.contains(&"a".to_owned()));
}

#[test]
fn r02_a_vote_is_durable_before_it_is_sent_and_a_crash_forgets_none_that_was() {
    for sync_before_crash in [false, true] {
        let mut cluster = Cluster::new(3, 1);
        cluster.cut(1, 3);
        cluster.node(1).consensus.campaign().unwrap();
        // The pre-vote changes nothing; then node 2 is asked for its vote.
        loop {
            cluster.drain(1);
            cluster.sync(1);
            let asked = cluster
                .network
                .iter()
                .any(|message| message.kind == MessageKind::Vote && message.to == 2);
            if asked {
                break;
            }
            cluster.deliver_one().unwrap();
            cluster.drain(2);
            cluster.sync(2);
        }
        while cluster.deliver_one().is_some() {}
        cluster.drain(2);
        assert!(
            cluster
                .network
                .iter()
                .all(|m| m.kind != MessageKind::VoteResponse),
            "a vote before the sync"
        );
        if sync_before_crash {
            cluster.sync(2);
            assert_eq!(cluster.node(2).disk.hard_state.vote, 1);
        }
        cluster.crash(2);
        cluster.restart(2);
        // Another candidate of the same term.
        cluster.isolate(1);
        let term = cluster.node(2).consensus.status().term;
        let other_candidate = PeerMessage {
            log_term: 1,
            index: 1,
            ..message(MessageKind::Vote, 3, 2, term.max(2))
        };
        cluster.node(2).consensus.step(other_candidate).unwrap();
        cluster.drain(2);
        cluster.sync(2);
        let answer = cluster.network.pop_back().unwrap();
        assert_eq!(answer.kind, MessageKind::VoteResponse);
        assert_eq!(answer.reject, sync_before_crash, "one vote a term");
    }
}

#[test]
fn r03_an_entry_of_an_older_term_is_not_committed_by_counting_copies() {
    // Figure 8 of the Raft paper, with five nodes.
    let mut cluster = Cluster::new(5, 1);
    cluster.campaign(1);
    for other in 3..=5 {
        cluster.cut(1, other);
    }
    cluster.propose(1, "old");
    cluster.settle();
    let old = cluster.node(2).consensus.last_index();
    assert_eq!(cluster.node(1).consensus.commit_index(), old - 1);
    cluster.crash(1);
    // Node 5 leads with an entry that nobody else gets.
    for other in 1..=4 {
        cluster.cut(5, other);
    }
    cluster.heal();
    for _ in 0..40 {
        cluster.node(5).consensus.tick();
        cluster.node(3).consensus.tick();
        cluster.node(4).consensus.tick();
    }
    cluster.settle();
    cluster.restart(1);
    let (leader, _) = cluster.until_leader(200).unwrap();
    // A leader has committed its own first entry, and by that all before it, on a majority:
    // never the old entry alone.
    for _ in 0..5 {
        cluster.tick();
    }
    let status = cluster.node(leader).consensus.status();
    let commit = cluster.node(leader).consensus.commit_index();
    let newest = cluster
        .node(leader)
        .disk
        .entries
        .iter()
        .rfind(|entry| entry.index <= commit);
    assert_eq!(newest.unwrap().term, status.term);
}

#[test]
fn r03_the_commit_waits_for_an_entry_of_the_leaders_own_term() {
    let mut cluster = three();
    cluster.isolate(3);
    cluster.propose(1, "old");
    // The entry is on two of three disks, and its leader ends before it knows that.
    cluster.drain(1);
    cluster.sync(1);
    while cluster.deliver_one().is_some() {}
    cluster.drain(2);
    cluster.sync(2);
    cluster.crash(1);
    cluster.heal();
    cluster.node(2).consensus.forget_leader();
    cluster.node(3).consensus.forget_leader();
    cluster.node(2).consensus.campaign().unwrap();
    let old = cluster.node(2).consensus.last_index();
    let mut led = false;
    for _ in 0..40 {
        for id in [2, 3] {
            cluster.drain(id);
            // Node 2's own first entry does not reach its disk, nor any other.
            led |= cluster.node(2).consensus.status().role == Role::Leader;
            if id == 3 || !led {
                cluster.sync(id);
            }
        }
        let own = |m: &PeerMessage| {
            m.kind == MessageKind::Append && m.entries.iter().any(|entry| entry.index > old)
        };
        cluster.network.retain(|message| !own(message));
        cluster.deliver_one();
    }
    assert!(led);
    assert_eq!(cluster.node(2).consensus.commit_index(), old - 1);
    cluster.settle();
    for _ in 0..5 {
        cluster.tick();
    }
    assert_eq!(cluster.node(3).applied, ["old"]);
}

#[test]
fn r06_two_survivors_elect_one_of_them_in_a_bounded_number_of_ticks_for_every_seed() {
    for seed in 0..300 {
        let mut cluster = Cluster::new(3, seed);
        let (leader, first) = cluster.until_leader(150).unwrap();
        assert!(
            first >= 18,
            "seed {seed}: within the time that a leader is trusted for"
        );
        cluster.crash(leader);
        let (next, ticks) = cluster
            .until_leader(150)
            .unwrap_or_else(|| panic!("seed {seed}"));
        assert_ne!(next, leader);
        assert!((16..150).contains(&ticks), "seed {seed}: {ticks}");
    }
}

/// Returns the number of ticks until one of two candidates that asked at once leads.
fn ticks_after_a_split_vote(seed: u64) -> u32 {
    let mut cluster = Cluster::new(3, seed);
    cluster.crash(3);
    cluster.node(1).consensus.campaign().unwrap();
    cluster.node(2).consensus.campaign().unwrap();
    cluster.settle();
    assert_eq!(cluster.leaders(), [] as [u64; 0], "seed {seed}");
    let (_, ticks) = cluster.until_leader(150).unwrap();
    ticks
}

#[test]
fn r06_a_split_vote_is_followed_by_a_second_campaign_soon() {
    let ticks: Vec<u32> = (0..300).map(ticks_after_a_split_vote).collect();
    assert!(ticks.iter().all(|ticks| *ticks >= 6), "{ticks:?}");
    // Who draws the same again waits for a whole timeout.
    let soon = ticks.iter().filter(|ticks| **ticks <= 12).count();
    assert!(soon >= 225, "{soon} of 300: {ticks:?}");
}

#[test]
fn r06_a_leader_that_is_known_to_be_gone_is_replaced_at_once() {
    let mut cluster = three();
    cluster.crash(1);
    // Trusted for some time yet: nobody votes.
    cluster.campaign(2);
    assert_eq!(cluster.leaders(), [] as [u64; 0]);
    cluster.node(2).consensus.forget_leader();
    cluster.node(3).consensus.forget_leader();
    cluster.campaign(2);
    assert_eq!(cluster.leaders(), [2]);
}

#[test]
fn r07_a_node_that_comes_back_does_not_depose_the_leader() {
    let mut cluster = three();
    cluster.isolate(3);
    let term = cluster.node(1).consensus.status().term;
    for _ in 0..200 {
        cluster.tick();
    }
    assert_eq!(
        cluster.node(3).consensus.status().term,
        term,
        "a pre-vote raises no term"
    );
    cluster.heal();
    for _ in 0..10 {
        cluster.tick();
    }
    assert_eq!(cluster.leaders(), [1]);
    assert_eq!(cluster.node(1).consensus.status().term, term);
}

#[test]
fn r09_a_leader_that_hears_of_no_majority_steps_down_and_commits_nothing() {
    let mut cluster = three();
    let commit = cluster.node(1).consensus.commit_index();
    cluster.isolate(1);
    cluster.propose(1, "lost");
    cluster.node(1).consensus.read_index().unwrap();
    for _ in 0..=32 {
        cluster.tick();
    }
    assert_ne!(cluster.node(1).consensus.status().role, Role::Leader);
    assert_eq!(cluster.node(1).consensus.commit_index(), commit);
    assert_eq!(cluster.node(1).reads, [] as [u64; 0]);
    cluster.heal();
    let (leader, _) = cluster.until_leader(100).unwrap();
    cluster.propose(leader, "kept");
    for _ in 0..40 {
        cluster.tick();
    }
    for id in 1..=3 {
        assert_eq!(cluster.node(id).applied, ["kept"]);
    }
}

#[test]
fn r11_a_refused_append_of_an_earlier_connection_takes_nothing_back() {
    let mut cluster = three();
    // Of node 3 less is known, so that its progress cannot be taken for that of node 2.
    cluster.isolate(3);
    cluster.propose(1, "a");
    cluster.propose(1, "b");
    cluster.settle();
    let before = cluster.node(1).consensus.progress();
    let status = cluster.node(1).consensus.status();
    for index in 0..=before[0].matched {
        let late = PeerMessage {
            log_term: 1,
            index,
            reject: true,
            reject_hint: index.saturating_sub(1),
            ..message(MessageKind::AppendResponse, 2, 1, status.term)
        };
        cluster.node(1).consensus.step(late).unwrap();
    }
    assert_eq!(
        cluster.node(1).consensus.stale_rejects(),
        before[0].matched + 1
    );
    assert_eq!(cluster.node(1).consensus.progress(), before);
    cluster.propose(1, "c");
    cluster.settle();
    assert_eq!(cluster.node(2).applied, ["a", "b", "c"]);
}

/// So the message is written before the leader answers its client, and reads at another server lag
/// behind the answer by no more than that server itself does.
#[test]
fn the_commit_leaves_for_all_followers_when_the_leader_is_handed_the_entry() {
    let mut cluster = three();
    cluster.propose(1, "a");
    cluster.drain(1);
    cluster.sync(1);
    while cluster.deliver_one().is_some() {}
    cluster.drain(2);
    cluster.sync(2);
    assert!(cluster.deliver_one().is_some(), "the acknowledgement of 2");
    let leader = &mut cluster.node(1).consensus;
    let mut handed_out = Vec::new();
    while let Some(effects) = leader.drain() {
        let last = effects.committed.last().map(|entry| entry.index);
        if let Some(last) = last {
            let says = |message: &&PeerMessage| message.commit >= last;
            let mut to: Vec<u64> = effects
                .send_now
                .iter()
                .filter(says)
                .map(|it| it.to)
                .collect();
            to.sort_unstable();
            assert_eq!(to, [2, 3]);
        }
        handed_out.extend(last);
        leader.persisted(effects.token);
    }
    assert_eq!(handed_out, [leader.last_index()]);
}

#[test]
fn what_is_committed_is_said_to_a_follower_and_not_acknowledged_again() {
    let mut cluster = three();
    cluster.propose(1, "a");
    let answers = |messages: &[PeerMessage]| {
        let is_answer = |message: &&PeerMessage| message.kind == MessageKind::AppendResponse;
        messages.iter().filter(is_answer).count()
    };
    let delivered = cluster.settle();
    assert_eq!(answers(&delivered), 2, "{delivered:?}");
    assert_eq!(cluster.node(2).applied, ["a"]);
    assert_eq!(cluster.node(3).applied, ["a"]);
}

/// The leader does not know then what the follower has, and asks again: that is answered.
#[test]
fn an_acknowledgement_that_was_lost_is_made_up_for() {
    for says_unreachable in [false, true] {
        let mut cluster = three();
        cluster.propose(1, "a");
        // What node 3 says is lost; what is said to it arrives.
        cluster.cut(3, 1);
        cluster.settle();
        let last = cluster.node(1).consensus.last_index();
        assert_eq!(cluster.node(3).applied, ["a"]);
        cluster.heal();
        if says_unreachable {
            cluster.node(1).consensus.report_unreachable(3);
        }
        for _ in 0..6 {
            cluster.tick();
            cluster.settle();
        }
        let progress = cluster.node(1).consensus.progress();
        let third = progress.iter().find(|peer| peer.id == 3).unwrap();
        assert_eq!(third.matched, last, "{says_unreachable}");
    }
}

#[test]
fn r12_no_change_before_an_entry_of_the_leaders_own_term_is_applied() {
    let mut cluster = three_and_a_learner();
    cluster.node(2).consensus.forget_leader();
    cluster.node(3).consensus.forget_leader();
    cluster.crash(1);
    cluster.node(2).consensus.campaign().unwrap();
    while cluster.node(2).consensus.status().role != Role::Leader {
        for id in 2..=4 {
            cluster.drain(id);
            cluster.sync(id);
        }
        cluster.deliver_one();
    }
    let promote = change(vec![Change::AddVoter(member(4))]);
    let early = cluster.node(2).consensus.propose_change(&promote);
    assert_eq!(early, Err(ChangeError::TooEarly));
    cluster.settle();
    cluster.node(2).consensus.propose_change(&promote).unwrap();
}

#[test]
fn r13_a_second_change_is_refused_loudly_and_appends_nothing() {
    let mut cluster = three_and_a_learner();
    let promote = change(vec![Change::AddVoter(member(4))]);
    cluster.node(1).consensus.propose_change(&promote).unwrap();
    let last = cluster.node(1).consensus.last_index();
    let second = change(vec![Change::Remove(3)]);
    let refused = cluster.node(1).consensus.propose_change(&second);
    assert_eq!(refused, Err(ChangeError::InProgress));
    assert_eq!(cluster.node(1).consensus.last_index(), last);
    // Joint, and the entry that leaves it not committed: still under way.
    while !cluster.node(1).consensus.membership().is_joint() {
        for id in 1..=4 {
            cluster.drain(id);
            cluster.sync(id);
        }
        cluster.deliver_one();
    }
    let refused = cluster.node(1).consensus.propose_change(&second);
    assert_eq!(refused, Err(ChangeError::InProgress));
    cluster.settle();
    cluster.node(1).consensus.propose_change(&second).unwrap();
    cluster.settle();
    assert_eq!(cluster.node(1).consensus.membership().voters, [1, 2, 4]);
}

#[test]
fn r14_the_next_leader_leaves_the_joint_configuration_that_another_has_entered() {
    let mut cluster = three_and_a_learner();
    let promote = change(vec![Change::AddVoter(member(4)), Change::Remove(3)]);
    cluster.node(1).consensus.propose_change(&promote).unwrap();
    while !cluster.node(2).consensus.membership().is_joint() {
        for id in 1..=4 {
            cluster.drain(id);
            cluster.sync(id);
        }
        // The entry that leaves the joint configuration goes nowhere.
        let leaves = |m: &PeerMessage| {
            m.entries.iter().any(|entry| {
                entry.kind == EntryKind::Configuration
                    && MembershipChange::decode(&entry.payload)
                        .unwrap()
                        .changes
                        .is_empty()
            })
        };
        cluster.network.retain(|message| !leaves(message));
        cluster.deliver_one();
        cluster.node(1).consensus.tick();
    }
    cluster.crash(1);
    let (leader, _) = cluster.until_leader(300).unwrap();
    for _ in 0..60 {
        cluster.tick();
    }
    let membership = cluster.node(leader).consensus.membership().clone();
    assert!(!membership.is_joint(), "{membership:?}");
    assert_eq!(membership.voters, [1, 2, 4]);
    let known: Vec<u64> = membership.members.iter().map(|member| member.id).collect();
    assert_eq!(known, [1, 2, 4]);
}

#[test]
fn r15_a_change_passes_through_a_joint_configuration() {
    let mut cluster = three_and_a_learner();
    let node = &mut cluster.node(1).consensus;
    let mut refused = |changes| node.propose_change(&change(changes)).unwrap_err();
    assert_eq!(
        refused(vec![Change::AddVoter(member(4)), Change::Remove(4)]),
        ChangeError::Twice { id: 4 }
    );
    assert_eq!(
        refused(vec![Change::AddVoter(member(5))]),
        ChangeError::NotALearner { id: 5 }
    );
    assert_eq!(
        refused(vec![Change::AddVoter(member(2))]),
        ChangeError::AlreadyVotes { id: 2 }
    );
    assert_eq!(
        refused(vec![Change::Remove(9)]),
        ChangeError::Unknown { id: 9 }
    );
    assert_eq!(refused(vec![Change::Remove(0)]), ChangeError::ZeroId);
    assert_eq!(refused(Vec::new()), ChangeError::NotJoint);
    // Every node is joint on the way.
    let swap = change(vec![Change::AddVoter(member(4)), Change::Remove(3)]);
    cluster.node(1).consensus.propose_change(&swap).unwrap();
    cluster.drain(1);
    let mut joint = false;
    for _ in 0..100 {
        for id in 1..=4 {
            cluster.drain(id);
            cluster.sync(id);
            joint |= cluster.node(id).consensus.membership().is_joint();
        }
        cluster.deliver_one();
    }
    assert!(joint);
    assert_eq!(cluster.node(1).consensus.membership().voters, [1, 2, 4]);
}

#[test]
fn r15_the_last_voter_stays() {
    let mut cluster = Cluster::new(1, 1);
    cluster.campaign(1);
    let removal = change(vec![Change::Remove(1)]);
    let refused = cluster.node(1).consensus.propose_change(&removal);
    assert_eq!(refused, Err(ChangeError::LastVoter));
    let mut cluster = three();
    let removal = change((1..=3).map(Change::Remove).collect());
    let refused = cluster.node(1).consensus.propose_change(&removal);
    assert_eq!(refused, Err(ChangeError::LastVoter));
}

#[test]
fn r16_a_leader_that_is_removed_hands_over_and_takes_no_proposal() {
    let mut cluster = three();
    let removal = change(vec![Change::Remove(1)]);
    cluster.node(1).consensus.propose_change(&removal).unwrap();
    cluster.settle();
    for _ in 0..3 {
        cluster.tick();
    }
    let refused = cluster.node(1).consensus.propose(Bytes::from_static(b"x"));
    assert!(
        matches!(refused, Err(ProposeError::NotLeader { .. })),
        "{refused:?}"
    );
    let refused = cluster.node(1).consensus.read_index();
    assert!(
        matches!(refused, Err(ReadError::NotLeader { .. })),
        "{refused:?}"
    );
    let leader = cluster.leaders()[0];
    assert_ne!(leader, 1);
    let term = cluster.node(leader).consensus.status().term;
    // The removed node hears of nobody, and disturbs nobody.
    for _ in 0..100 {
        cluster.tick();
    }
    assert_eq!(cluster.leaders(), [leader]);
    assert_eq!(cluster.node(leader).consensus.status().term, term);
    cluster.propose(leader, "after");
    cluster.settle();
    assert_eq!(cluster.node(2).applied, ["after"]);
}

#[test]
fn r17_a_node_that_has_lost_acknowledged_entries_says_so_and_does_not_panic() {
    let mut cluster = three();
    cluster.propose(1, "a");
    cluster.settle();
    cluster.crash(3);
    cluster.add(3, 1);
    cluster.heartbeat();
    let refused = &cluster.node(3).refused;
    assert!(
        refused
            .iter()
            .any(|why| matches!(why, StepError::LostLog { last: 0, .. })),
        "{refused:?}"
    );
    assert_eq!(cluster.node(3).applied, [] as [&str; 0]);
}

#[test]
fn r21_no_snapshot_is_sent_that_lacks_its_receiver() {
    let mut cluster = three();
    cluster.save_snapshot(1);
    cluster.add(4, 1);
    let learn = change(vec![Change::AddLearner(member(4))]);
    cluster.node(1).consensus.propose_change(&learn).unwrap();
    cluster.settle();
    for _ in 0..8 {
        let sent = cluster.tick();
        assert!(
            sent.iter()
                .all(|message| message.kind != MessageKind::Snapshot)
        );
    }
    assert!(cluster.node(1).wants_snapshot.contains(&4));
    cluster.save_snapshot(1);
    let mut sent = Vec::new();
    for _ in 0..8 {
        sent.extend(cluster.tick());
    }
    let points: Vec<_> = sent.iter().filter_map(|m| m.snapshot.as_ref()).collect();
    assert_eq!(points.len(), 1);
    assert!(points[0].membership.contains(4));
    assert_eq!(
        cluster.nodes[&4].applied_index,
        cluster.nodes[&1].applied_index
    );
    assert_eq!(
        cluster.nodes[&4].consensus.membership(),
        cluster.nodes[&1].consensus.membership()
    );
}

#[test]
fn r30_a_read_index_is_answered_by_a_round_of_a_majority_and_each_id_once() {
    let mut cluster = three();
    cluster.isolate(3);
    let first = cluster.node(1).consensus.read_index().unwrap();
    let second = cluster.node(1).consensus.read_index().unwrap();
    assert_ne!(first, second);
    cluster.drain(1);
    assert_eq!(
        cluster.node(1).reads,
        [] as [u64; 0],
        "before anybody has answered"
    );
    cluster.settle();
    let commit = cluster.node(1).consensus.commit_index();
    assert_eq!(cluster.node(1).reads, [commit, commit]);
}

#[test]
fn a_handover_moves_leadership_without_an_election_timeout_and_refuses_proposals_meanwhile() {
    let mut cluster = three();
    cluster.propose(1, "a");
    cluster.settle();
    cluster.node(1).consensus.transfer_leader(2);
    let refused = cluster.node(1).consensus.propose(Bytes::from_static(b"b"));
    assert_eq!(refused, Err(ProposeError::HandingOver { to: 2 }));
    cluster.settle();
    assert_eq!(cluster.leaders(), [2]);
    cluster.propose(2, "b");
    cluster.settle();
    assert_eq!(cluster.node(1).applied, ["a", "b"]);
}

#[test]
fn a_change_that_the_state_machine_refuses_leaves_the_membership_as_it_is_on_every_node() {
    let mut cluster = three_and_a_learner();
    let refused = MembershipChange {
        changes: vec![Change::AddVoter(member(4))],
        context: Bytes::from_static(b"refuse me"),
    };
    cluster.node(1).consensus.propose_change(&refused).unwrap();
    cluster.settle();
    for id in 1..=4 {
        let membership = cluster.node(id).consensus.membership();
        assert_eq!(
            (&membership.voters[..], &membership.learners[..]),
            (&[1, 2, 3][..], &[4][..])
        );
    }
    let promote = change(vec![Change::AddVoter(member(4))]);
    cluster.node(1).consensus.propose_change(&promote).unwrap();
    cluster.settle();
    for id in 1..=4 {
        assert_eq!(cluster.node(id).consensus.membership().voters, [1, 2, 3, 4]);
    }
}

#[test]
fn a_configuration_entry_that_was_passed_over_is_found() {
    let mut cluster = three();
    let learn = change(vec![Change::AddLearner(member(4))]);
    let position = cluster.node(1).consensus.propose_change(&learn).unwrap();
    let node = &mut cluster.node(1).consensus;
    let wrong = node.apply_change(position.index, &learn, true).unwrap_err();
    assert_eq!(
        wrong,
        ConsensusError::ConfigurationOrder {
            expected: None,
            given: position.index
        }
    );
}

#[test]
fn all_nodes_have_the_same_log_after_any_order_of_crashes_and_cuts() {
    for seed in 0..60_u64 {
        let mut cluster = Cluster::new(3, seed);
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut number = 0;
        for _ in 0..400 {
            let id = 1 + draw(3);
            let up = cluster.nodes.contains_key(&id);
            match draw(12) {
                0 if up && cluster.nodes.len() == 3 => cluster.crash(id),
                0 if !up => cluster.restart(id),
                1 => cluster.isolate(id),
                2 => cluster.heal(),
                3 if up => {
                    number += 1;
                    let text = Bytes::from(format!("{number}"));
                    let _ = cluster.node(id).consensus.propose(text);
                }
                4..=6 if up => cluster.node(id).consensus.tick(),
                7 if up => {
                    cluster.drain(id);
                }
                8 if up => {
                    cluster.sync_one(id);
                }
                9 if up && cluster.node(id).consensus.status().role == Role::Leader => {
                    cluster.save_snapshot(id);
                }
                _ => {
                    cluster.deliver_one();
                }
            }
        }
        cluster.heal();
        for id in 1..=3 {
            if !cluster.nodes.contains_key(&id) {
                cluster.restart(id);
            }
        }
        let (leader, _) = cluster
            .until_leader(300)
            .unwrap_or_else(|| panic!("seed {seed}"));
        cluster.propose(leader, "last");
        for _ in 0..120 {
            for id in 1..=3 {
                if !std::mem::take(&mut cluster.node(id).wants_snapshot).is_empty() {
                    cluster.save_snapshot(id);
                }
            }
            cluster.tick();
        }
        let expected = cluster.node(leader).applied.clone();
        assert_eq!(
            expected.last().map(String::as_str),
            Some("last"),
            "seed {seed}"
        );
        for id in 1..=3 {
            assert_eq!(cluster.node(id).applied, expected, "seed {seed}, node {id}");
        }
    }
}

#[test]
fn settings_that_cannot_work_are_refused_by_name() {
    let refused = |config: &Config| match Consensus::new(config, Recovered::default()) {
        Err(ConsensusError::Config { name, .. }) => name,
        other => panic!("{other:?}"),
    };
    let config = Config::member(1, 0);
    assert_eq!(
        refused(&Config {
            campaign_ticks: (15, 28),
            ..config.clone()
        }),
        "campaign_ticks"
    );
    assert_eq!(
        refused(&Config {
            campaign_ticks: (28, 18),
            ..config.clone()
        }),
        "campaign_ticks"
    );
    assert_eq!(
        refused(&Config {
            election_ticks: 8,
            ..config
        }),
        "election_ticks"
    );
}

#[test]
fn who_becomes_the_only_voter_campaigns_only_when_its_log_is_durable() {
    let mut cluster = Cluster::new(2, 1);
    cluster.campaign(1);
    let removal = change(vec![Change::Remove(1)]);
    cluster.node(1).consensus.propose_change(&removal).unwrap();
    while !cluster.node(1).consensus.membership().is_joint() {
        for id in [1, 2] {
            cluster.drain(id);
            cluster.sync(id);
        }
        cluster.deliver_one();
    }
    // Behind the entry that leaves the joint configuration, one that reaches no disk of node 2.
    cluster.drain(1);
    cluster.propose(1, "late");
    cluster.drain(1);
    cluster.sync(1);
    for _ in 0..100 {
        cluster.drain(1);
        cluster.sync(1);
        cluster.deliver_one();
        cluster.drain(2);
        // What comes before it is synced.
        let late = cluster.node(2).consensus.last_index();
        while cluster.next_to_sync(2).is_some_and(|last| last < late) {
            cluster.sync_one(2);
        }
    }
    let membership = cluster.node(2).consensus.membership();
    assert!(membership.voters == [2] && !membership.is_joint());
    let early = cluster.node(2).consensus.campaign();
    assert_eq!(
        early,
        Err(ConsensusError::CampaignBeforeSync { node_id: 2 })
    );
    for _ in 0..100 {
        cluster.node(2).consensus.tick();
    }
    cluster.crash(1);
    cluster.sync(2);
    cluster.campaign(2);
    assert_eq!(cluster.leaders(), [2]);
    assert_eq!(cluster.node(2).applied, ["late"]);
}

/// Returns the number of ticks that a node makes until it asks for votes.
pub(crate) fn ticks_until_it_campaigns(cluster: &mut Cluster, id: u64) -> u32 {
    let candidate = |cluster: &mut Cluster| {
        let role = cluster.node(id).consensus.status().role;
        role == Role::Candidate
    };
    let mut ticks = 0;
    while !candidate(cluster) {
        cluster.tick();
        ticks += 1;
        assert!(ticks < 100, "node {id} does not campaign");
    }
    ticks
}

#[test]
fn r06_a_node_whose_ticks_are_late_campaigns_later_for_as_long_as_it_is_told_to() {
    for seed in 0..50 {
        let mut cluster = Cluster::new(3, seed);
        cluster.campaign(1);
        cluster.settle();
        cluster.node(2).consensus.double_campaign_ticks(true);
        cluster.crash(1);
        cluster.crash(3);
        let ticks = ticks_until_it_campaigns(&mut cluster, 2);
        assert!((48..=68).contains(&ticks), "{ticks}");
        let mut cluster = Cluster::new(3, seed);
        cluster.campaign(1);
        cluster.settle();
        cluster.node(2).consensus.double_campaign_ticks(true);
        cluster.node(2).consensus.double_campaign_ticks(false);
        cluster.crash(1);
        cluster.crash(3);
        let ticks = ticks_until_it_campaigns(&mut cluster, 2);
        assert!((30..=40).contains(&ticks), "{ticks}");
    }
}

#[test]
fn r09_a_leader_whose_ticks_are_late_steps_down_as_soon_as_any_other() {
    let mut cluster = Cluster::new(3, 1);
    cluster.campaign(1);
    cluster.settle();
    cluster.node(1).consensus.double_campaign_ticks(true);
    cluster.isolate(1);
    let bases = 2 * Config::member(1, 1).election_ticks;
    for _ in 0..bases {
        cluster.node(1).consensus.tick();
    }
    assert_ne!(cluster.node(1).consensus.status().role, Role::Leader);
}

/// The core of an idle server sleeps through these ticks.
#[test]
fn nothing_comes_of_idle_ticks_and_something_of_the_one_behind_them() {
    for id in 1..=3 {
        let mut cluster = three();
        let idle = cluster.node(id).consensus.idle_ticks();
        assert!(idle > 0);
        for _ in 0..idle {
            cluster.node(id).consensus.tick();
        }
        assert_eq!(cluster.node(id).consensus.idle_ticks(), 0);
        // A leader's heartbeats on the way are nothing that anybody waits for.
        assert_eq!(cluster.drain(id), id == 1, "{id}");
        let sent = cluster.network.drain(..).map(|message| message.kind);
        assert!(sent.eq([MessageKind::Heartbeat; 2].into_iter().filter(|_| id == 1)));
        cluster.node(id).consensus.tick();
        assert!(cluster.drain(id), "{id}: a heartbeat, or a campaign");
        let campaigns = cluster.node(id).consensus.status().role == Role::Candidate;
        assert!(!campaigns || cluster.node(id).consensus.idle_ticks() == 0);
    }
}

#[test]
fn no_tick_is_idle_while_an_entry_is_not_committed() {
    let mut cluster = three();
    cluster.propose(1, "entry");
    assert_eq!(cluster.node(1).consensus.idle_ticks(), 0);
    cluster.settle();
    assert!(cluster.node(1).consensus.idle_ticks() > 0);
}
