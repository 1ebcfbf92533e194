//! Members that grow out of one, are removed while they lead, come back, and are brought up to
//! date: what the simulated ensemble has found there.

use baton_consensus::{
    Change, ChangeError, Config, Consensus, ConsensusError, Entry, EntryKind, HardState, Member,
    Membership, MembershipChange, MessageKind, PeerMessage, Recovered, Role, SnapshotPoint,
};
use bytes::Bytes;

use crate::cluster::{Cluster, member, message};
use crate::several_voters::{change, three, three_and_a_learner};

#[test]
fn r02_a_sole_voter_sends_nothing_of_a_term_that_a_crash_could_make_it_forget() {
    let mut cluster = Cluster::new(1, 1);
    cluster.campaign(1);
    cluster.add(2, 1);
    let learn = change(vec![Change::AddLearner(member(2))]);
    cluster.node(1).consensus.propose_change(&learn).unwrap();
    cluster.settle();
    cluster.save_snapshot(1);
    for _ in 0..8 {
        cluster.tick();
    }
    assert_eq!(cluster.nodes[&2].applied, cluster.nodes[&1].applied);
    cluster.crash(1);
    cluster.restart(1);
    // It wins by its own vote, and has somebody to send its entries to.
    cluster.node(1).consensus.campaign().unwrap();
    cluster.propose(1, "a");
    let before = cluster.node(1).disk.hard_state.term;
    cluster.drain(1);
    let newer = |message: &PeerMessage| message.term > before;
    assert!(!cluster.network.iter().any(newer), "{:?}", cluster.network);
    cluster.sync_one(1);
    assert_eq!(cluster.node(1).disk.hard_state.term, before + 1);
    assert!(cluster.network.iter().any(newer));
    // From here on it sends in parallel to its disk, as any leader.
    cluster.settle();
    cluster.propose(1, "b");
    cluster.drain(1);
    assert!(cluster.network.iter().any(newer));
}

#[test]
fn r15_a_restart_knows_that_a_change_before_another_one_is_committed() {
    let node = |commit| {
        let membership = Membership {
            voters: vec![1],
            learners: vec![2],
            members: vec![member(1), member(2)],
            ..Membership::default()
        };
        let swap = change(vec![Change::AddVoter(member(2)), Change::Remove(1)]);
        let leave = MembershipChange::leave_joint();
        let entry = |index, change: &MembershipChange| Entry {
            index,
            term: 2,
            kind: EntryKind::Configuration,
            payload: change.encode(),
        };
        let recovered = Recovered {
            snapshot: Some(SnapshotPoint {
                index: 1,
                term: 1,
                membership,
            }),
            hard_state: HardState { term: 2, vote: 1 },
            commit,
            entries: vec![entry(2, &swap), entry(3, &leave)],
        };
        Consensus::new(&Config::member(1, 1), recovered).unwrap()
    };
    // What a torn write leaves: both entries, and not the commit index that was stored with them.
    let mut node = node(1);
    assert_eq!(node.commit_index(), 2);
    let effects = node.drain().unwrap();
    assert_eq!(effects.committed.len(), 1);
    let change = MembershipChange::decode(&effects.committed[0].payload).unwrap();
    node.apply_change(2, &change, true).unwrap();
    node.applied(2).unwrap();
    // By itself it is no majority any more, so it cannot lead and commit its own removal.
    for _ in 0..100 {
        node.tick();
        while let Some(effects) = node.drain() {
            node.persisted(effects.token);
        }
    }
    assert_eq!(
        (node.status().role, node.commit_index()),
        (Role::Candidate, 2)
    );
}

#[test]
fn r17_a_new_folder_that_reads_of_the_time_of_the_one_before_does_not_lead() {
    // The log of a new folder of server 1 ends where the one before it was the only voter.
    let node = |incarnation| {
        let membership = Membership {
            voters: vec![1],
            members: vec![member(1)],
            ..Membership::default()
        };
        let recovered = Recovered {
            snapshot: Some(SnapshotPoint {
                index: 1,
                term: 1,
                membership,
            }),
            hard_state: HardState { term: 1, vote: 0 },
            commit: 1,
            entries: Vec::new(),
        };
        let config = Config {
            incarnation: Some(incarnation),
            ..Config::member(1, 1)
        };
        Consensus::new(&config, recovered).unwrap()
    };
    let wait = |node: &mut Consensus| {
        for _ in 0..100 {
            node.tick();
            while let Some(effects) = node.drain() {
                node.persisted(effects.token);
            }
        }
        node.status()
    };
    let own = member(1).incarnation;
    assert_eq!(wait(&mut node(own)).role, Role::Leader);
    let mut new = node(own + 1);
    assert_eq!(wait(&mut new).role, Role::Follower);
    let refused = new.campaign();
    assert!(
        matches!(refused, Err(ConsensusError::NotAVoter { node_id: 1 })),
        "{refused:?}"
    );
    new.step(message(MessageKind::Heartbeat, 2, 1, 2)).unwrap();
    new.step(message(MessageKind::TimeoutNow, 2, 1, 2)).unwrap();
    let status = wait(&mut new);
    assert_eq!((status.role, status.term), (Role::Follower, 2));
    // It is not as if it heard of that leader for ever: it grants its vote to the next one.
    new.step(PeerMessage {
        index: 1,
        log_term: 1,
        ..message(MessageKind::Vote, 3, 1, 3)
    })
    .unwrap();
    let granted = new.drain().unwrap();
    let answers: Vec<_> = granted
        .send_now
        .iter()
        .chain(&granted.send_after_sync)
        .collect();
    assert!(
        matches!(answers[..], [answer] if answer.to == 3 && !answer.reject),
        "{answers:?}"
    );
}

#[test]
fn r16_a_leader_that_is_removed_and_hears_of_nobody_steps_down() {
    let mut cluster = three();
    let removal = change(vec![Change::Remove(1)]);
    cluster.node(1).consensus.propose_change(&removal).unwrap();
    cluster.settle();
    assert!(!cluster.node(1).consensus.membership().votes(1));
    cluster.isolate(1);
    for _ in 0..40 {
        cluster.tick();
    }
    assert_eq!(cluster.node(1).consensus.status().role, Role::Follower);
    cluster.until_leader(60).unwrap();
}

#[test]
fn r16_a_leader_that_is_removed_with_entries_on_their_way_steps_down_and_another_one_leads() {
    let mut cluster = three();
    let remove = change(vec![Change::Remove(1)]);
    cluster.node(1).consensus.propose_change(&remove).unwrap();
    let mut rounds = 0;
    while cluster.node(1).consensus.membership().votes(1) {
        let payload = Bytes::from_static(b"on its way");
        let _ = cluster.node(1).consensus.propose(payload);
        for id in 1..=3 {
            cluster.drain(id);
            cluster.sync_one(id);
        }
        for _ in 0..3 {
            cluster.deliver_one();
        }
        rounds += 1;
        assert!(rounds < 100, "the change comes to no end");
    }
    let leader = &cluster.node(1).consensus;
    assert!(leader.last_index() > cluster.nodes[&1].applied_index);
    cluster.settle();
    let (leader, _) = cluster.until_leader(60).unwrap();
    assert_ne!(leader, 1);
    cluster.propose(leader, "after");
    cluster.settle();
    assert!(cluster.node(leader).applied.contains(&"after".to_owned()));
}

#[test]
fn r17_a_member_keeps_its_folder_and_another_one_comes_after_its_removal() {
    let mut cluster = three_and_a_learner();
    let other_folder = |id| Member {
        incarnation: 99,
        ..member(id)
    };
    // The leader would go on counting what the folder that is gone had.
    for part in [
        Change::AddLearner(other_folder(3)),
        Change::AddLearner(other_folder(4)),
        Change::AddVoter(other_folder(4)),
    ] {
        let id = part.id();
        let refused = cluster
            .node(1)
            .consensus
            .propose_change(&change(vec![part]));
        assert_eq!(refused, Err(ChangeError::OtherIncarnation { id }));
    }
    let remove = change(vec![Change::Remove(4)]);
    cluster.node(1).consensus.propose_change(&remove).unwrap();
    cluster.settle();
    cluster.tick();
    let again = change(vec![Change::AddLearner(other_folder(4))]);
    cluster.node(1).consensus.propose_change(&again).unwrap();
}

#[test]
fn r17_a_node_that_does_not_vote_refuses_to_campaign_and_does_not_panic() {
    let mut cluster = three_and_a_learner();
    cluster.add(5, 1);
    for node_id in [4, 5] {
        let refused = cluster.node(node_id).consensus.campaign();
        assert_eq!(refused, Err(ConsensusError::NotAVoter { node_id }));
    }
    cluster.settle();
    assert_eq!(cluster.leaders(), [1]);
}

#[test]
fn r25_a_voter_that_installs_a_snapshot_campaigns_only_when_it_has() {
    let mut cluster = Cluster::with_window(3, 1, 0);
    cluster.campaign(1);
    cluster.isolate(3);
    for text in ["a", "b", "c"] {
        cluster.propose(1, text);
        cluster.settle();
    }
    cluster.save_snapshot(1);
    cluster.heal();
    let mut rounds = 0;
    while !cluster.is_snapshot_next(3) {
        cluster.node(1).consensus.tick();
        for id in 1..=3 {
            cluster.drain(id);
            if !cluster.is_snapshot_next(id) {
                cluster.sync_one(id);
            }
        }
        while cluster.deliver_one().is_some() {}
        cluster.drain(3);
        rounds += 1;
        assert!(rounds < 100, "no snapshot comes");
    }
    // Its disk is slow, and the leader falls silent; then another one hands over to it.
    let refused = cluster.node(3).consensus.campaign();
    assert_eq!(
        refused,
        Err(ConsensusError::CampaignBeforeSync { node_id: 3 })
    );
    for _ in 0..100 {
        cluster.node(3).consensus.tick();
    }
    let term = cluster.node(3).consensus.status().term;
    let campaign = message(MessageKind::TimeoutNow, 1, 3, term);
    cluster.node(3).consensus.step(campaign).unwrap();
    assert_eq!(cluster.node(3).consensus.status().role, Role::Follower);
    cluster.sync(3);
    assert_eq!(cluster.nodes[&3].applied, ["a", "b", "c"]);
    cluster.node(3).consensus.forget_leader();
    cluster.node(3).consensus.campaign().unwrap();
    assert_eq!(cluster.node(3).consensus.status().role, Role::Candidate);
}

#[test]
fn r22_what_follows_a_snapshot_on_its_way_stays_in_memory_within_a_bound() {
    // The window holds four commands, and four times as many are kept.
    for (keeps, commands, needs_snapshot) in
        [(false, 10, true), (true, 10, false), (true, 17, true)]
    {
        let mut cluster = Cluster::with_window(3, 1, 4);
        cluster.campaign(1);
        cluster.settle();
        let reached = cluster.nodes[&3].applied_index;
        cluster.isolate(3);
        cluster
            .node(1)
            .consensus
            .keep_after(keeps.then_some(reached));
        for _ in 0..commands {
            cluster.propose(1, "a");
            cluster.settle();
        }
        cluster.heal();
        for _ in 0..8 {
            cluster.tick();
        }
        let wants = cluster.nodes[&1].wants_snapshot.contains(&3);
        assert_eq!(wants, needs_snapshot, "{keeps} {commands}");
        if !needs_snapshot {
            assert_eq!(cluster.nodes[&3].applied, cluster.nodes[&1].applied);
        }
        // Without a snapshot on its way the window is as small as ever.
        cluster.node(1).consensus.keep_after(None);
    }
}

/// The only voter of the newest membership has forgotten that the change to it is committed, and
/// of those whose votes it needs only one is left, which knows.
#[test]
fn r44_a_removed_voter_that_is_asked_for_its_vote_says_what_is_committed() {
    for (gone, left) in [(1, 2), (2, 1)] {
        let mut cluster = three();
        cluster.campaign(1);
        cluster.settle();
        let swap = change(vec![Change::Remove(1), Change::Remove(2)]);
        cluster.node(1).consensus.propose_change(&swap).unwrap();
        cluster.settle();
        let is_alone = |cluster: &mut Cluster, id| {
            let membership = cluster.node(id).consensus.membership().clone();
            membership.is_sole_voter(3)
        };
        assert!(is_alone(&mut cluster, left) && is_alone(&mut cluster, 3));
        // The commit index is stored with what comes next, and nothing has come to its disk.
        let last = cluster.node(3).consensus.last_index();
        cluster.node(3).disk.commit = last - 1;
        cluster.crash(gone);
        cluster.crash(3);
        cluster.restart(3);
        cluster.settle();
        assert!(!is_alone(&mut cluster, 3), "it needs the votes of others");
        let leads = (0..400).any(|_| {
            cluster.tick();
            cluster.leaders() == [3]
        });
        assert!(leads && is_alone(&mut cluster, 3), "{left} is left");
    }
}
