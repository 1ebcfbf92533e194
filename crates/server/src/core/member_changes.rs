//! From a list of servers to a change of the consensus's members: which servers become learners
//! first, which parts the change has, and why there may be none; who leads after a leader. Pure.

use std::collections::BTreeSet;

use baton_consensus::{Change, Member, Membership, PeerProgress};
use baton_tree::{ListedServer, ServerList};

/// The most voters of an ensemble.
const MAX_VOTERS: usize = 7;
/// The highest id of a server.
const MAX_ID: u64 = 127;

/// Driver of the members towards a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct MemberChanges {
    /// Voters of the list that this cluster does not know, and that have not asked to join.
    pub(crate) unknown_voters: Vec<u64>,
    /// Voters of the list that have to become learners first, and to catch up.
    pub(crate) learners_first: Vec<Member>,
    /// Learners that vote by the list.
    pub(crate) promoted: Vec<u64>,
    /// Members that vote by the list, and have another address by it.
    pub(crate) moved: Vec<u64>,
    /// The parts of the change.
    pub(crate) parts: Vec<Change>,
}

/// The changes that `next` asks for. `waiting` says under which incarnation a server waits to be
/// admitted.
///
/// # Errors
/// Why the members cannot follow this list in one step.
pub(crate) fn member_changes(
    membership: &Membership,
    next: &ServerList,
    waiting: impl Fn(u64) -> Option<u128>,
) -> Result<MemberChanges, &'static str> {
    let mut changes = MemberChanges::default();
    for (id, listed) in &next.servers {
        let id = *id;
        if !(1..=MAX_ID).contains(&id) {
            return Err("a server has an id that is not between 1 and 127");
        }
        let known = membership.members.iter().find(|member| member.id == id);
        let votes = membership.voters.contains(&id);
        let moves = known.is_some_and(|known| is_elsewhere(known, listed));
        let member = |incarnation| Member {
            id,
            incarnation,
            address: listed.address.clone(),
        };
        let incarnation = known.map(|known| known.incarnation);
        match (listed.is_observer, votes) {
            (false, true) => {
                if let Some(incarnation) = incarnation.filter(|_| moves) {
                    changes.moved.push(id);
                    changes.parts.push(Change::AddVoter(member(incarnation)));
                }
            }
            (false, false) => {
                if let Some(incarnation) = incarnation {
                    if moves {
                        changes.moved.push(id);
                    }
                    changes.promoted.push(id);
                    changes.parts.push(Change::AddVoter(member(incarnation)));
                } else if let Some(incarnation) = waiting(id) {
                    changes.learners_first.push(member(incarnation));
                } else {
                    changes.unknown_voters.push(id);
                }
            }
            (true, true) => {
                let same = member(incarnation.unwrap_or_default());
                changes.parts.push(Change::AddLearner(same));
            }
            (true, false) => {
                if let Some(incarnation) = incarnation.or_else(|| waiting(id))
                    && (known.is_none() || moves)
                {
                    changes.parts.push(Change::AddLearner(member(incarnation)));
                }
            }
        }
    }
    let members: BTreeSet<u64> = membership
        .voters
        .iter()
        .chain(&membership.learners)
        .copied()
        .collect();
    for id in members {
        if !next.servers.contains_key(&id) {
            changes.parts.push(Change::Remove(id));
        }
    }
    if voters(next).count() > MAX_VOTERS {
        return Err("an ensemble has 7 voters at most: add an observer");
    }
    if !voters(next).any(|id| membership.voters.contains(&id)) {
        return Err(
            "none of the voters would stay: change them in two steps, so that one of them can lead",
        );
    }
    Ok(changes)
}

/// Returns the voter with the longest log among those that `may_lead`: who is to lead next.
pub(crate) fn successor(
    membership: &Membership,
    progress: &[PeerProgress],
    may_lead: impl Fn(&PeerProgress) -> bool,
) -> Option<u64> {
    let voters = progress
        .iter()
        .filter(|peer| membership.voters.contains(&peer.id) && may_lead(peer));
    voters.max_by_key(|peer| peer.matched).map(|best| best.id)
}

/// The servers of a list that vote.
pub(crate) fn voters(list: &ServerList) -> impl Iterator<Item = u64> {
    let voters = list
        .servers
        .iter()
        .filter(|(_, server)| !server.is_observer);
    voters.map(|(id, _)| *id)
}

fn is_elsewhere(known: &Member, listed: &ListedServer) -> bool {
    !known.address.eq_ignore_ascii_case(&listed.address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64, incarnation: u128) -> Member {
        Member {
            id,
            incarnation,
            address: format!("host{id}:1"),
        }
    }

    /// Voters 1 to 3 and learner 4, with incarnations of ten times their ids.
    fn membership() -> Membership {
        Membership {
            voters: vec![1, 2, 3],
            learners: vec![4],
            members: (1..=4).map(|id| member(id, u128::from(id) * 10)).collect(),
            ..Membership::default()
        }
    }

    /// These voters and observers.
    fn list(voters: &[u64], observers: &[u64]) -> ServerList {
        let listed = |is_observer| {
            move |id: &u64| {
                let server = ListedServer {
                    address: format!("host{id}:1"),
                    election_port: 1,
                    is_observer,
                    client: None,
                };
                (*id, server)
            }
        };
        let voters = voters.iter().map(listed(false));
        ServerList {
            servers: voters.chain(observers.iter().map(listed(true))).collect(),
            version: 1,
        }
    }

    fn changes(next: &ServerList) -> Result<MemberChanges, &'static str> {
        // Servers 5 and 7 wait to be admitted.
        let waits = |id| [5, 7].contains(&id).then_some(u128::from(id) * 10);
        member_changes(&membership(), next, waits)
    }

    #[test]
    fn members_that_are_as_listed_stay() {
        assert_eq!(
            changes(&list(&[1, 2, 3], &[4])),
            Ok(MemberChanges::default())
        );
    }

    #[test]
    fn r15_new_voters_are_learners_first() {
        let learner = changes(&list(&[1, 2, 3, 5, 7], &[4])).unwrap();
        assert_eq!(learner.learners_first, [member(5, 50), member(7, 70)]);
        assert_eq!(learner.parts, []);
        let voter = changes(&list(&[1, 2, 3, 4], &[])).unwrap();
        assert_eq!(voter.learners_first, []);
        assert_eq!(voter.parts, [Change::AddVoter(member(4, 40))]);
        assert_eq!(voter.promoted, [4]);
        // One of them has caught up before the other one has asked to join.
        let both = changes(&list(&[1, 2, 3, 4, 5], &[])).unwrap();
        assert_eq!(
            (both.promoted, both.learners_first),
            (vec![4], vec![member(5, 50)])
        );
    }

    #[test]
    fn r17_a_voter_that_nobody_has_met_has_no_incarnation_and_is_not_added() {
        let unknown = changes(&list(&[1, 2, 3, 6], &[4])).unwrap();
        assert_eq!(unknown.unknown_voters, [6]);
        assert_eq!(unknown.parts, []);
    }

    #[test]
    fn an_observer_is_added_when_it_is_there_and_is_listed_before() {
        let next = changes(&list(&[1, 2, 3], &[4, 5, 6])).unwrap();
        assert_eq!(next.parts, [Change::AddLearner(member(5, 50))]);
    }

    #[test]
    fn servers_leave_and_voters_become_observers() {
        let next = changes(&list(&[1, 2], &[])).unwrap();
        assert_eq!(next.parts, [Change::Remove(3), Change::Remove(4)]);
        let next = changes(&list(&[1, 2], &[3, 4])).unwrap();
        assert_eq!(next.parts, [Change::AddLearner(member(3, 30))]);
        let next = changes(&list(&[1, 2, 4], &[])).unwrap();
        let swapped = [Change::AddVoter(member(4, 40)), Change::Remove(3)];
        assert_eq!(next.parts, swapped, "one in and one out");
        let next = changes(&list(&[1], &[2])).unwrap();
        let gone = [3, 4].map(Change::Remove);
        let demoted = Change::AddLearner(member(2, 20));
        assert_eq!(next.parts, [&[demoted][..], &gone].concat(), "two leave");
    }

    #[test]
    fn what_no_single_step_can_do_is_refused() {
        let refused =
            |voters: &[u64], observers: &[u64]| changes(&list(voters, observers)).unwrap_err();
        assert!(refused(&[1, 2, 3, 128], &[4]).contains("between 1 and 127"));
        let most: Vec<u64> = (1..=8).collect();
        assert!(refused(&most, &[]).contains("7 voters at most"));
        assert!(changes(&list(&most[..7], &[])).is_ok());
        assert!(refused(&[4, 5], &[1, 2, 3]).contains("none of the voters would stay"));
        assert!(changes(&list(&[3, 4, 5], &[])).is_ok());
    }

    #[test]
    fn the_voter_with_the_longest_log_leads_next_and_no_observer() {
        let progress: Vec<PeerProgress> = [(2, 7), (3, 8), (4, 9), (9, 9)]
            .map(|(id, matched)| PeerProgress {
                id,
                matched,
                active: id != 3,
                snapshot: 0,
            })
            .to_vec();
        let of = |may_lead: &dyn Fn(&PeerProgress) -> bool| {
            successor(&membership(), &progress, may_lead)
        };
        assert_eq!(of(&|_| true), Some(3), "4 is a learner, 9 is unknown");
        assert_eq!(of(&|peer| peer.active), Some(2));
        assert_eq!(of(&|peer| peer.id > 3), None);
    }

    #[test]
    fn a_server_moves_with_its_incarnation() {
        let elsewhere = |id: u64| Member {
            address: "elsewhere:1".to_owned(),
            ..member(id, u128::from(id) * 10)
        };
        let moved = |id: u64| {
            let mut moved = list(&[1, 2, 3], &[4]);
            moved.servers.get_mut(&id).unwrap().address = "elsewhere:1".to_owned();
            changes(&moved).unwrap()
        };
        let voter = moved(2);
        assert_eq!(voter.parts, [Change::AddVoter(elsewhere(2))]);
        assert_eq!((voter.moved, voter.promoted), (vec![2], vec![]));
        let observer = moved(4);
        assert_eq!(observer.parts, [Change::AddLearner(elsewhere(4))]);
        assert!(observer.moved.is_empty());
        let mut promoted = list(&[1, 2, 3, 4], &[]);
        promoted.servers.get_mut(&4).unwrap().address = "elsewhere:1".to_owned();
        let promoted = changes(&promoted).unwrap();
        assert_eq!((promoted.moved, promoted.promoted), (vec![4], vec![4]));
        let mut same = list(&[1, 2, 3], &[4]);
        same.servers.get_mut(&2).unwrap().address = "HOST2:1".to_owned();
        assert_eq!(changes(&same), Ok(MemberChanges::default()));
    }
}
