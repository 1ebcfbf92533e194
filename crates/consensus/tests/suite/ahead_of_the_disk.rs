//! Entries that a majority has stored and a node's own disk has not: they are applied there. And
//! heartbeats that a leader leaves out while all have everything.

use baton_consensus::{Change, MessageKind, PeerMessage};

use crate::cluster::{Cluster, member};
use crate::several_voters::{change, three};

/// Nodes exchange messages until all know what is committed; only those of `synced` use their
/// disks.
fn commit_without_disks(cluster: &mut Cluster, synced: &[u64]) {
    cluster.drain(1);
    for _ in 0..3 {
        while cluster.deliver_one().is_some() {}
        for id in 1..=3 {
            cluster.drain(id);
            if synced.contains(&id) {
                cluster.sync(id);
            }
        }
    }
}

#[test]
fn what_a_majority_has_is_applied_before_the_node_s_own_disk_has_it() {
    for (slow, synced) in [(3, [1, 2]), (1, [2, 3])] {
        let mut cluster = three();
        cluster.propose(1, "a");
        commit_without_disks(&mut cluster, &synced);
        for id in 1..=3 {
            assert_eq!(cluster.nodes[&id].applied, ["a"], "node {id}");
        }
        let stored = cluster.nodes[&slow].consensus.durable_index();
        assert!(stored < cluster.nodes[&slow].consensus.applied_index());
        cluster.sync(slow);
        let node = &cluster.nodes[&slow].consensus;
        assert_eq!(node.durable_index(), node.applied_index());
        cluster.settle();
        assert_eq!(cluster.nodes[&slow].applied, ["a"], "once");
    }
}

#[test]
fn a_crash_forgets_what_was_applied_and_not_stored_and_the_leader_sends_it_again() {
    let mut cluster = three();
    cluster.propose(1, "a");
    commit_without_disks(&mut cluster, &[1, 2]);
    assert_eq!(cluster.nodes[&3].applied, ["a"]);
    cluster.crash(3);
    cluster.restart(3);
    assert!(cluster.nodes[&3].applied.is_empty());
    cluster.propose(1, "b");
    cluster.settle();
    assert_eq!(cluster.nodes[&3].applied, ["a", "b"]);
}

#[test]
fn a_leader_applies_only_a_few_writes_that_its_own_disk_lacks() {
    let mut cluster = three();
    let texts: Vec<String> = (0..10).map(|number| number.to_string()).collect();
    for text in &texts {
        cluster.propose(1, text);
        commit_without_disks(&mut cluster, &[2, 3]);
    }
    assert_eq!(cluster.nodes[&2].applied, texts);
    let applied = cluster.nodes[&1].applied.len();
    assert!((1..10).contains(&applied), "{applied}");
    cluster.settle();
    assert_eq!(cluster.nodes[&1].applied, texts);
}

#[test]
fn a_change_of_the_members_and_what_is_behind_it_wait_for_the_node_s_own_disk() {
    let mut cluster = three();
    let learn = change(vec![Change::AddLearner(member(4))]);
    cluster.node(1).consensus.propose_change(&learn).unwrap();
    cluster.propose(1, "a");
    commit_without_disks(&mut cluster, &[1, 2]);
    assert_eq!(cluster.nodes[&2].applied, ["a"]);
    assert!(cluster.nodes[&3].applied.is_empty());
    assert!(!cluster.nodes[&3].consensus.membership().contains(4));
    cluster.sync(3);
    cluster.drain(3);
    assert_eq!(cluster.nodes[&3].applied, ["a"]);
    assert!(cluster.nodes[&3].consensus.membership().contains(4));
}

/// The ticks, of 32, in which the leader sends node 2 a heartbeat.
fn heartbeats_of_32_ticks(cluster: &mut Cluster) -> Vec<u32> {
    let is_sent = |messages: Vec<PeerMessage>| {
        let mut kinds = messages.iter().map(|message| (message.kind, message.to));
        kinds.any(|sent| sent == (MessageKind::Heartbeat, 2))
    };
    (1..=32).filter(|_| is_sent(cluster.tick())).collect()
}

#[test]
fn a_leader_leaves_out_every_second_heartbeat_while_all_have_the_whole_log() {
    let mut cluster = three();
    assert_eq!(heartbeats_of_32_ticks(&mut cluster), [8, 16, 24, 32]);
    cluster.cut(1, 3);
    cluster.propose(1, "a");
    cluster.settle();
    let each: Vec<u32> = (1..=8).map(|beat| 4 * beat).collect();
    assert_eq!(
        heartbeats_of_32_ticks(&mut cluster),
        each,
        "node 3 lacks it"
    );
    cluster.heal();
    cluster.heartbeat();
    assert_eq!(cluster.node(3).applied, ["a"]);
    // Wherever the beats lie, no two in turn are left out.
    cluster.tick();
    cluster.node(1).consensus.transfer_leader(3);
    cluster.settle();
    let sent = heartbeats_of_32_ticks(&mut cluster);
    let gaps = sent.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(sent.len() >= 4 && gaps.max() <= Some(8), "{sent:?}");
}
