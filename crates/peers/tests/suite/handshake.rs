//! Admission of servers. Each rule from both sides.

use baton_peers::codec::{Lane, ProtocolRange, Refusal};
use baton_peers::handshake::{KnownMember, LocalServer};

const CLUSTER: u64 = 0xc1;

fn incarnation(id: u64) -> u128 {
    u128::from(id + 0x1000) << 96
}

/// A member of a cluster of servers 1 to 3.
fn member(id: u64) -> LocalServer {
    LocalServer {
        cluster: CLUSTER,
        membership_index: 1,
        last_index: 50,
        members: (1..=3)
            .map(|id| KnownMember {
                id,
                incarnation: incarnation(id),
                acknowledged_index: 0,
            })
            .collect(),
        ..LocalServer::new(id, incarnation(id), 1)
    }
}

/// Returns the answer of `at` when `from` connects to it.
fn connect(from: &LocalServer, at: &LocalServer) -> Result<(), Refusal> {
    at.check(&from.hello(at.id, Lane::Urgent, 1, 0))
}

/// Returns the answer of each to the other.
fn both(one: &LocalServer, other: &LocalServer) -> [Result<(), Refusal>; 2] {
    [connect(one, other), connect(other, one)]
}

#[test]
fn members_of_one_cluster_connect() {
    assert_eq!(both(&member(1), &member(2)), [Ok(()), Ok(())]);
}

#[test]
fn servers_without_a_cluster_connect() {
    let empty = |id| LocalServer::new(id, incarnation(id), 1);
    assert_eq!(both(&empty(1), &empty(2)), [Ok(()), Ok(())]);
}

#[test]
fn another_cluster_is_refused_by_both() {
    let mut other = member(2);
    other.cluster = 0xc2;
    for outcome in both(&member(1), &other) {
        let text = outcome.unwrap_err().to_string();
        assert!(text.contains("00000000000000c1"), "{text}");
        assert!(text.contains("00000000000000c2"), "{text}");
    }
}

#[test]
fn versions_must_overlap() {
    let with = |oldest, newest| {
        let mut server = member(1);
        server.protocol = ProtocolRange { oldest, newest };
        server
    };
    let mut here = member(2);
    here.protocol = ProtocolRange {
        oldest: 2,
        newest: 4,
    };
    for (oldest, newest, common) in [
        (1, 1, None),
        (1, 2, Some(2)),
        (3, 3, Some(3)),
        (1, 9, Some(4)),
        (4, 9, Some(4)),
        (5, 9, None),
    ] {
        let other = with(oldest, newest);
        let outcome = here.check_protocol(other.protocol);
        assert_eq!(outcome.ok(), common, "{oldest} to {newest}");
        for outcome in both(&other, &here) {
            assert_eq!(outcome.is_ok(), common.is_some());
        }
    }
}

#[test]
fn ids_must_be_those_that_were_meant() {
    let hello = member(1).hello(3, Lane::Urgent, 1, 0);
    assert_eq!(
        member(2).check(&hello),
        Err(Refusal::WrongServer {
            expected: 3,
            found: 2
        })
    );
    let hello = member(2).hello(2, Lane::Urgent, 1, 0);
    assert_eq!(member(2).check(&hello), Err(Refusal::SameId { id: 2 }));
    for id in [0, 128, u64::MAX] {
        let hello = LocalServer::new(id, 1, 1).hello(2, Lane::Urgent, 1, 0);
        assert_eq!(member(2).check(&hello), Err(Refusal::BadId { id }));
    }
}

/// The data folder of a member was emptied: it does not come back as the member that it was.
#[test]
fn r17_an_empty_folder_is_refused_as_the_member_it_was() {
    let emptied = LocalServer::new(2, 0xdead << 96, 1);
    for outcome in both(&emptied, &member(1)) {
        assert_eq!(
            outcome,
            Err(Refusal::OtherIncarnation {
                id: 2,
                cluster: CLUSTER,
                member: 0x1002,
                found: 0xdead,
            })
        );
        let text = outcome.unwrap_err().to_string();
        assert!(text.contains("baton server replace 2"), "{text}");
    }
}

/// Not even where the membership was written before there were incarnations.
#[test]
fn r17_an_empty_folder_is_refused_where_its_incarnation_is_not_known() {
    let mut here = member(1);
    here.members[1].incarnation = 0;
    assert_eq!(both(&member(2), &here), [Ok(()), Ok(())]);
    let emptied = LocalServer::new(2, 0xdead << 96, 1);
    assert!(connect(&emptied, &here).is_err());
    assert!(connect(&here, &emptied).is_err());
}

#[test]
fn r17_a_folder_of_another_incarnation_is_refused_although_it_has_the_cluster() {
    let mut exchanged = member(2);
    exchanged.incarnation = 0xbeef;
    for outcome in both(&exchanged, &member(1)) {
        let refusal = outcome.unwrap_err();
        assert!(matches!(refusal, Refusal::OtherIncarnation { id: 2, .. }));
    }
}

/// A server that was admitted again has an empty folder and the incarnation that the members know.
#[test]
fn a_server_that_was_admitted_connects_with_an_empty_folder() {
    let admitted = LocalServer::new(2, incarnation(2), 1);
    assert_eq!(both(&admitted, &member(1)), [Ok(()), Ok(())]);
}

#[test]
fn a_server_that_is_not_a_member_is_refused() {
    let stranger = LocalServer::new(4, incarnation(4), 1);
    for outcome in both(&stranger, &member(1)) {
        assert_eq!(
            outcome,
            Err(Refusal::NotAMember {
                id: 4,
                cluster: CLUSTER,
                membership_index: 1
            })
        );
    }
}

/// A member that lags does not refuse those whose admission it has not applied yet, and they do not
/// refuse it.
#[test]
fn the_newer_membership_decides() {
    let lagging = member(1);
    let mut added = member(4);
    added.membership_index = 9;
    for id in [2, 4] {
        added.members.retain(|member| member.id != id);
        added.members.push(KnownMember {
            id,
            incarnation: incarnation(id),
            acknowledged_index: 0,
        });
    }
    assert_eq!(both(&added, &lagging), [Ok(()), Ok(())]);
    // Replaced: the lagging member knows the old incarnation.
    let mut replaced = member(2);
    replaced.membership_index = 9;
    replaced.incarnation = 0xbeef;
    replaced.members[1].incarnation = 0xbeef;
    assert_eq!(both(&replaced, &lagging), [Ok(()), Ok(())]);
    // Removed: it knows less than those that refuse it.
    let mut after = member(1);
    after.membership_index = 9;
    after.members.retain(|member| member.id != 3);
    let refusal = connect(&member(3), &after).unwrap_err();
    assert!(matches!(refusal, Refusal::NotAMember { id: 3, .. }));
}

#[test]
fn r19_an_older_copy_of_a_folder_is_refused_until_its_server_knows_it() {
    let mut here = member(1);
    here.members[1].acknowledged_index = 50;
    assert_eq!(connect(&member(2), &here), Ok(()));
    let mut older = member(2);
    older.last_index = 49;
    assert_eq!(
        connect(&older, &here),
        Err(Refusal::OlderCopy {
            id: 2,
            acknowledged: 50,
            last: 49
        })
    );
    // Once it knows that, it does not vote, and may receive what it lacks.
    older.proof.acknowledged_index = 49;
    assert!(connect(&older, &here).is_err());
    older.proof.acknowledged_index = 50;
    assert_eq!(connect(&older, &here), Ok(()));
    // A copy of the time before it had anything.
    let empty = LocalServer::new(2, incarnation(2), 1);
    assert!(matches!(
        connect(&empty, &here),
        Err(Refusal::OlderCopy { .. })
    ));
}
