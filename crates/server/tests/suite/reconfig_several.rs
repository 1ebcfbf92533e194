//! Several servers come and go with one change, and servers move, while clients write.

use std::time::Duration;

use baton_proto::{ErrorCode, Request};

use crate::reconfig::{
    SEQUENTIAL, asks_to_join, change, children, list_at, make, reconfig, superuser,
};
use crate::support::PATIENCE;
use crate::support::ensemble::{Ensemble, sync};

fn ids_of(list: &str) -> Vec<u64> {
    let lines = list.lines().filter_map(|line| line.strip_prefix("server."));
    let ids = lines.map(|line| line.split('=').next().unwrap().parse().unwrap());
    ids.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn r15_voters_join_leave_and_are_swapped_by_twos_while_clients_write() {
    let mut ensemble = Ensemble::start(3).await;
    let mut wire = superuser(&ensemble, 2).await;
    wire.create("/q", b"", 0).await.unwrap();
    let mut created = 0;
    // Three become five.
    let two = [4, 5].map(|id| ensemble.name(id, "participant"));
    let waiting = [4, 5].map(|id| (id, ensemble.start_waiting(id)));
    let list = make(&mut wire, &two, &[]).await;
    assert_eq!(ids_of(&list), [1, 2, 3, 4, 5]);
    for (id, waiting) in waiting {
        ensemble.admitted(id, waiting).await;
    }
    // Any two may fail now.
    ensemble.kill(1).await;
    ensemble.kill(3).await;
    let mut wire = superuser(&ensemble, 4).await;
    wire.create("/q/n-", b"", SEQUENTIAL).await.unwrap();
    created += 1;
    ensemble.start_all(&[1, 3]).await;
    // Two of five are swapped, and the leader is one of those who leave.
    let leader = ensemble.leader().await;
    let other = (1..=5).find(|id| *id != leader).unwrap();
    let stays = (1..=5).find(|id| ![leader, other].contains(id)).unwrap();
    let two = [6, 7].map(|id| ensemble.name(id, "participant"));
    let waiting = [6, 7].map(|id| (id, ensemble.start_waiting(id)));
    let mut wire = superuser(&ensemble, stays).await;
    let list = make(&mut wire, &two, &[leader, other]).await;
    let now = ids_of(&list);
    assert_eq!(now.len(), 5);
    assert!(!now.contains(&leader) && !now.contains(&other));
    for (id, waiting) in waiting {
        ensemble.admitted(id, waiting).await;
    }
    ensemble.kill(leader).await;
    ensemble.kill(other).await;
    ensemble.leader().await;
    wire.create("/q/n-", b"", SEQUENTIAL).await.unwrap();
    created += 1;
    // Five become three, and one of these may fail.
    let leader = ensemble.leader().await;
    let leave: Vec<u64> = now.iter().copied().filter(|id| *id != leader).collect();
    let mut wire = superuser(&ensemble, leader).await;
    let list = make(&mut wire, &[], &leave[..2]).await;
    assert_eq!(ids_of(&list).len(), 3);
    for id in &leave[..3] {
        ensemble.kill(*id).await;
    }
    wire.create("/q/n-", b"", SEQUENTIAL).await.unwrap();
    created += 1;
    for id in ensemble.ids() {
        let mut wire = ensemble.open(id).await;
        sync(&mut wire).await;
        assert_eq!(children(&mut wire, "/q").await, created);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r15_of_two_that_are_named_the_one_that_is_there_votes_at_once_and_the_other_later() {
    let mut ensemble = Ensemble::start(3).await;
    let two = [4, 5].map(|id| ensemble.name(id, "participant"));
    let waiting = ensemble.start_waiting(4);
    asks_to_join(&ensemble, &two[0]).await;
    let leader = ensemble.leader().await;
    let others: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    let mut wire = superuser(&ensemble, leader).await;
    let list = reconfig(&mut wire, change(Some(&two.join(",")), None)).await;
    assert_eq!(ids_of(&list.unwrap()), [1, 2, 3, 4, 5]);
    ensemble.admitted(4, waiting).await;
    // Three of four go on, as three of five would.
    ensemble.kill(others[0]).await;
    wire.create("/three-of-four", b"", 0).await.unwrap();
    let waiting = ensemble.start_waiting(5);
    ensemble.admitted(5, waiting).await;
    ensemble.kill(others[1]).await;
    wire.create("/three-of-five", b"", 0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn r15_those_who_stay_must_be_a_majority_that_is_up() {
    let mut ensemble = Ensemble::start(5).await;
    list_at(&ensemble, 1).await;
    let leader = ensemble.leader().await;
    let others: Vec<u64> = (1..=5).filter(|id| *id != leader).collect();
    ensemble.kill(others[0]).await;
    ensemble.kill(others[1]).await;
    let mut wire = superuser(&ensemble, leader).await;
    // One of three would be up, without whom nothing could be decided any more.
    let live = format!("{},{}", others[2], others[3]);
    let refused = reconfig(&mut wire, change(None, Some(&live))).await;
    assert_eq!(refused, Err(ErrorCode::NewConfigNoQuorum));
    wire.create("/goes-on", b"", 0).await.unwrap();
    // The two that are gone may be removed at once.
    let gone = format!("{},{}", others[0], others[1]);
    let list = reconfig(&mut wire, change(None, Some(&gone))).await;
    assert_eq!(ids_of(&list.unwrap()).len(), 3);
    ensemble.kill(others[2]).await;
    wire.create("/with-two-of-three", b"", 0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_the_voters_stays() {
    let mut ensemble = Ensemble::start(1).await;
    let second = ensemble.name(2, "participant");
    let waiting = ensemble.start_waiting(2);
    let mut wire = superuser(&ensemble, 1).await;
    let swapped = async {
        loop {
            match reconfig(&mut wire, change(Some(&second), Some("1"))).await {
                Err(ErrorCode::BadArguments) => return,
                other => assert_eq!(other, Err(ErrorCode::NewConfigNoQuorum)),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let swapped = tokio::time::timeout(PATIENCE, swapped).await;
    swapped.expect("refused, once the server waits");
    // With another one it joins the one that is alone, both with one change.
    let third = ensemble.name(3, "participant");
    let waiting = [(2, waiting), (3, ensemble.start_waiting(3))];
    let list = make(&mut wire, &[second, third], &[]).await;
    assert_eq!(ids_of(&list), [1, 2, 3]);
    for (id, waiting) in waiting {
        ensemble.admitted(id, waiting).await;
    }
    ensemble.kill(1).await;
    let mut wire = ensemble.open(3).await;
    wire.create("/without-the-first", b"", 0).await.unwrap();
}

/// The address is changed first, and the server moves later; then the other way round.
#[tokio::test(flavor = "multi_thread")]
async fn a_voter_moves_with_its_folder_and_its_vote() {
    let mut ensemble = Ensemble::start(3).await;
    let leader = ensemble.leader().await;
    let others: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    let mut wire = superuser(&ensemble, others[0]).await;
    // Two at once are refused: nobody knows yet whether they are reached.
    let before = list_at(&ensemble, leader).await;
    let old: Vec<String> = (1..=3).map(|id| ensemble.peer_address(id)).collect();
    ensemble.move_away(leader);
    ensemble.move_away(others[1]);
    let two = [leader, others[1]].map(|id| ensemble.name(id, "participant"));
    let refused = reconfig(&mut wire, change(Some(&two.join(",")), None)).await;
    assert_eq!(refused, Err(ErrorCode::NewConfigNoQuorum));
    assert_eq!(list_at(&ensemble, leader).await, before);
    // The leader leads on where it is, then it moves.
    let list = reconfig(&mut wire, change(Some(&two[0]), None))
        .await
        .unwrap();
    assert!(list.contains(&ensemble.peer_address(leader)), "{list}");
    assert!(!list.contains(&old[usize::try_from(leader).unwrap() - 1]));
    for _ in 0..20 {
        wire.send(&[Request::Ping]).await;
        wire.reply().await;
        wire.create("/w", b"", SEQUENTIAL).await.unwrap();
    }
    ensemble.stop(leader).await;
    ensemble.start_all(&[leader]).await;
    // Another one has moved before its address is changed.
    ensemble.kill(others[1]).await;
    let mut wire = superuser(&ensemble, others[0]).await;
    wire.create("/kept", b"1", 0).await.unwrap();
    let moving = ensemble.start_waiting(others[1]);
    let list = make(&mut wire, &two[1..], &[]).await;
    assert!(list.contains(&ensemble.peer_address(others[1])), "{list}");
    ensemble.admitted(others[1], moving).await;
    // Both vote where they are now.
    ensemble.kill(others[0]).await;
    let mut wire = ensemble.open(others[1]).await;
    sync(&mut wire).await;
    assert_eq!(wire.get("/kept").await.unwrap(), b"1");
    wire.create("/voted", b"", 0).await.unwrap();
    // A restart finds them there, too, though the one that was down has older settings.
    ensemble.start_all(&[others[0]]).await;
    ensemble.kill(leader).await;
    let mut wire = ensemble.open(others[0]).await;
    wire.create("/voted-again", b"", 0).await.unwrap();
}

/// Nobody knows whether servers are reached where they are to move, so most of the voters stay.
#[tokio::test(flavor = "multi_thread")]
async fn two_of_five_move_at_once_and_three_do_not() {
    let mut ensemble = Ensemble::start(5).await;
    list_at(&ensemble, 1).await;
    let leader = ensemble.leader().await;
    let others: Vec<u64> = (1..=5).filter(|id| *id != leader).collect();
    let (moved, stay) = others.split_at(2);
    for id in moved {
        ensemble.move_away(*id);
    }
    let mut two: Vec<String> = Vec::new();
    for id in moved {
        two.push(ensemble.name(*id, "participant"));
    }
    let nowhere = format!("server.{}=127.0.0.1:9:9:participant;127.0.0.1:9", stay[0]);
    let three = format!("{},{nowhere}", two.join(","));
    let mut wire = superuser(&ensemble, stay[0]).await;
    let refused = reconfig(&mut wire, change(Some(&three), None)).await;
    assert_eq!(refused, Err(ErrorCode::NewConfigNoQuorum));
    make(&mut wire, &two, &[]).await;
    for id in moved {
        ensemble.kill(*id).await;
    }
    ensemble.start_all(moved).await;
    // Both vote where they are now.
    ensemble.kill(leader).await;
    ensemble.kill(stay[1]).await;
    let mut wire = ensemble.open(stay[0]).await;
    wire.create("/voted", b"", 0).await.unwrap();
    for id in moved {
        let mut wire = ensemble.open(*id).await;
        sync(&mut wire).await;
        assert!(wire.exists("/voted").await);
    }
}
