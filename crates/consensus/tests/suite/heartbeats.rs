//! Heartbeats that a leader leaves out while all have everything.

use baton_consensus::{MessageKind, PeerMessage};

use crate::cluster::Cluster;
use crate::several_voters::three;

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
