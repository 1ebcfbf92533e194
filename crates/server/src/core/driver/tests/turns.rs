//! Fairness of the next entry: requests and ends of sessions beside one connection that has queued
//! much.

use super::*;
use crate::connections::inbox::Expiration;

/// A write of a mebibyte by each of `count` requests.
fn bulk(count: usize) -> Vec<(Kind, Vec<u8>)> {
    (0..count)
        .map(|number| create(&format!("/bulk{number}"), 1 << 20))
        .collect()
}

#[test]
fn a_bystanders_write_waits_for_two_entries_at_most_while_64_mib_are_queued() {
    let runtime = paused();
    let _clock = runtime.enter();
    let (state, mut core) = driven_by(&FaultStorage::new(), simulated());
    let (writer, bystander) = (opened(&state, &mut core), opened(&state, &mut core));
    let bulk = bulk(64);
    let (write, mine) = create("/mine", 1);
    let mut requests: Vec<(&Arc<Conn>, Kind, &[u8])> = bulk
        .iter()
        .map(|(kind, body)| (&writer, *kind, &**body))
        .collect();
    requests.push((&bystander, write, &mine));
    let (zxid, entries) = (state.zxid(), core.consensus.applied_index());
    turn(&mut core, &requests);
    assert!(exists(&state, "/mine"));
    assert!(core.consensus.applied_index() <= entries + 2);
    assert!(state.zxid() <= zxid + 3, "an entry has a bound");
    // So does a client that comes while the queue is being worked off.
    let (_, late) = create("/late", 1);
    turn(&mut core, &[(&bystander, write, &late)]);
    assert!(exists(&state, "/late") && !exists(&state, "/bulk63"));
    while core.deadline().is_some_and(|due| due <= state.time.now()) {
        turn(&mut core, &[]);
    }
    assert_eq!(state.zxid(), zxid + 66, "nothing was lost");
    for number in 0..64 {
        assert!(exists(&state, &format!("/bulk{number}")));
    }
    assert!(core.backlog.is_empty());
    assert!(taken(&writer).1.is_none());
}

#[test]
fn the_end_of_a_session_does_not_wait_behind_a_bulk_writer() {
    let runtime = paused();
    let _clock = runtime.enter();
    let (state, mut core) = driven_by(&FaultStorage::new(), simulated());
    let (writer, other) = (opened(&state, &mut core), opened(&state, &mut core));
    let session = other.session();
    let bulk = bulk(10);
    let requests: Vec<(&Arc<Conn>, Kind, &[u8])> = bulk
        .iter()
        .map(|(kind, body)| (&writer, *kind, &**body))
        .collect();
    let (applied, _outcome) = tokio::sync::oneshot::channel();
    state.inbox.expire(Expiration { session, applied });
    turn(&mut core, &requests);
    assert!(state.tree.read().session(session).is_none());
    assert!(exists(&state, "/bulk0") && !exists(&state, "/bulk9"));
}

#[test]
fn a_session_does_not_end_while_its_re_attachment_waits_for_an_entry() {
    let runtime = paused();
    let _clock = runtime.enter();
    let (state, mut core) = driven_by(&FaultStorage::new(), simulated());
    let session = opened(&state, &mut core).session();
    runtime.block_on(tokio::time::advance(Duration::from_secs(3600)));
    let others = [(); 4].map(|()| state.open(Peer::Local).unwrap());
    let again = state.open(Peer::Local).unwrap();
    let reattach = Kind::Reattach {
        session,
        timeout_ms: 1000,
        mirror_read_only: false,
    };
    // Each of the others fills an entry, and all of them a turn.
    let large = vec![7; 1 << 20];
    let others = others.iter().map(|other| (other, open_session(), &*large));
    let mut requests: Vec<(&Arc<Conn>, Kind, &[u8])> = others.collect();
    requests.push((&again, reattach, &[7; PASSWORD_BYTES]));
    turn(&mut core, &requests);
    assert!(core.backlog.has_handshakes());
    while core.backlog.has_handshakes() {
        turn(&mut core, &[]);
    }
    turn(&mut core, &[]);
    assert!(state.tree.read().session(session).is_some());
    assert_eq!(again.session(), session);
}
