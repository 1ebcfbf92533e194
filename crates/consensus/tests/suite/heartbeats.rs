//! Heartbeats of a leader that has nothing to say, and what a follower makes of fewer of them.

use baton_consensus::{MessageKind, PeerMessage, Role};

use crate::cluster::Cluster;
use crate::several_voters::{three, ticks_until_it_campaigns};

/// The ticks, of 32, in which the leader sends node 2 a heartbeat.
fn heartbeats_of_32_ticks(cluster: &mut Cluster) -> Vec<u32> {
    let mut is_sent = || {
        let sent = cluster.tick();
        let mut kinds = sent.iter().map(|message| (message.kind, message.to));
        kinds.any(|sent| sent == (MessageKind::Heartbeat, 2))
    };
    (1..=32).filter(|_| is_sent()).collect()
}

#[test]
fn a_leader_sends_half_the_heartbeats_while_all_have_the_whole_log() {
    let mut cluster = three();
    assert_eq!(heartbeats_of_32_ticks(&mut cluster), [8, 16, 24, 32]);
    cluster.cut(1, 3);
    cluster.propose(1, "a");
    cluster.settle();
    let all: Vec<u32> = (1..=8).map(|beat| 4 * beat).collect();
    let sent = heartbeats_of_32_ticks(&mut cluster);
    assert_eq!(sent, all, "node 3 lacks it");
    cluster.heal();
    cluster.heartbeat();
    assert_eq!(cluster.node(3).applied, ["a"]);
    assert_eq!(heartbeats_of_32_ticks(&mut cluster), [8, 16, 24, 32]);
    cluster.node(1).consensus.report_unreachable(3);
    assert_eq!(heartbeats_of_32_ticks(&mut cluster)[0], 4);
}

#[test]
fn a_leader_sleeps_from_heartbeat_to_heartbeat_while_one_lacks_something() {
    let mut cluster = three();
    cluster.cut(1, 3);
    cluster.propose(1, "a");
    cluster.settle();
    let mut idle = Vec::new();
    for _ in 0..8 {
        idle.push(cluster.node(1).consensus.idle_ticks());
        cluster.tick();
    }
    assert_eq!(idle, [3, 2, 1, 0, 3, 2, 1, 0]);
}

/// The time for answers is the whole one between two looks, wherever the heartbeats lie.
#[test]
fn r09_a_leader_sends_a_heartbeat_after_each_look_for_a_majority() {
    let mut cluster = three();
    for _ in 0..3 {
        cluster.tick();
    }
    cluster.cut(1, 3);
    cluster.node(1).consensus.transfer_leader(3);
    cluster.settle();
    let sent = heartbeats_of_32_ticks(&mut cluster);
    assert_eq!(sent, [5, 13, 16, 21, 29, 32]);
    assert_eq!(cluster.leaders(), [1]);
}

/// A tick of all nodes, of which node 1 sleeps through those that nobody waits for.
fn tick_asleep(cluster: &mut Cluster, slept: &mut u32) -> Vec<PeerMessage> {
    let followers = cluster.nodes.iter_mut().filter(|(id, _)| **id != 1);
    followers.for_each(|(_, node)| node.consensus.tick());
    *slept += 1;
    let leader = &mut cluster.node(1).consensus;
    if *slept > leader.idle_ticks() {
        (0..std::mem::take(slept)).for_each(|_| leader.tick());
    }
    cluster.settle()
}

#[test]
fn a_leader_that_sleeps_sends_heartbeats_with_its_looks_for_a_majority_only() {
    let mut cluster = three();
    let mut slept = 0;
    let mut beats = Vec::new();
    for tick in 1..=64 {
        let sent = tick_asleep(&mut cluster, &mut slept);
        beats.extend((!sent.is_empty()).then_some(tick));
    }
    assert_eq!(beats, [16, 32, 48, 64]);
    assert_eq!(cluster.leaders(), [1]);
}

#[test]
fn r06_a_leader_that_stands_still_for_325_ms_is_not_replaced_whether_it_is_idle_or_not() {
    for seed in 0..30 {
        for (begin, is_idle) in (0..16).flat_map(|begin| [(begin, true), (begin, false)]) {
            let mut cluster = Cluster::new(3, seed);
            cluster.campaign(1);
            cluster.settle();
            if !is_idle {
                cluster.crash(3);
                cluster.propose(1, "node 3 lacks it");
                cluster.settle();
            }
            let follows = |cluster: &mut Cluster| {
                let status = cluster.node(2).consensus.status();
                let shown = format!("seed {seed}, from tick {begin}, idle {is_idle}: {status:?}");
                let expected = (Role::Follower, Some(1));
                assert_eq!((status.role, status.leader), expected, "{shown}");
            };
            let mut slept = 0;
            for _ in 0..begin {
                tick_asleep(&mut cluster, &mut slept);
            }
            for _ in 0..13 {
                cluster.node(2).consensus.tick();
                follows(&mut cluster);
            }
            slept += 13;
            // The end of a sleep may be due only later.
            for _ in 0..16 {
                tick_asleep(&mut cluster, &mut slept);
                follows(&mut cluster);
            }
        }
    }
}

#[test]
fn r06_a_follower_waits_no_longer_for_a_leader_that_has_something_to_say() {
    let mut shortest = 100;
    for seed in 0..50 {
        let mut cluster = Cluster::new(3, seed);
        cluster.campaign(1);
        cluster.settle();
        cluster.propose(1, "not committed at node 2");
        cluster.drain(1);
        cluster.sync(1);
        cluster.deliver_one();
        cluster.deliver_one();
        cluster.crash(1);
        cluster.crash(3);
        let ticks = ticks_until_it_campaigns(&mut cluster, 2);
        assert!((18..=28).contains(&ticks), "{ticks}");
        shortest = shortest.min(ticks);
    }
    assert_eq!(shortest, 18);
}
