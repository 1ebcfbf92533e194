//! The bytes of memberships and of their changes: what was written is read again, and nothing else
//! is read at all.

use baton_consensus::{
    Change, ConsensusError, Entry, EntryKind, Member, Membership, MembershipChange, Recovered,
};
use baton_consensus::{Config, Consensus};
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

fn a_member() -> impl Strategy<Value = Member> {
    (any::<u64>(), any::<u128>(), ".{0,40}").prop_map(|(id, incarnation, address)| Member {
        id,
        incarnation,
        address,
    })
}

fn a_membership() -> impl Strategy<Value = Membership> {
    let ids = || vec(any::<u64>(), 0..8);
    (ids(), ids(), ids(), ids(), vec(a_member(), 0..8)).prop_map(
        |(voters, outgoing, learners, learners_next, members)| Membership {
            voters,
            outgoing,
            learners,
            learners_next,
            members,
        },
    )
}

fn a_change() -> impl Strategy<Value = MembershipChange> {
    let part = prop_oneof![
        a_member().prop_map(Change::AddVoter),
        a_member().prop_map(Change::AddLearner),
        any::<u64>().prop_map(Change::Remove),
    ];
    (vec(part, 0..6), vec(any::<u8>(), 0..60)).prop_map(|(changes, context)| MembershipChange {
        changes,
        context: Bytes::from(context),
    })
}

proptest! {
    #[test]
    fn a_membership_reads_back_and_no_other_length_is_read(membership in a_membership()) {
        let bytes = membership.encode();
        prop_assert_eq!(Membership::decode(&bytes), Ok(membership));
        for length in 0..bytes.len() {
            prop_assert!(Membership::decode(&bytes[..length]).is_err());
        }
        let mut longer = bytes.to_vec();
        longer.push(0);
        prop_assert!(Membership::decode(&longer).is_err());
    }

    #[test]
    fn a_change_reads_back(change in a_change()) {
        prop_assert_eq!(MembershipChange::decode(&change.encode()), Ok(change));
    }

    #[test]
    fn bytes_of_any_kind_are_read_or_refused(bytes in vec(any::<u8>(), 0..200), head in 0..3_u8) {
        // Half of them begin as a record does.
        for begin in [&[][..], &[head, 0, 0, 0], &[head, 0, 2, 0]] {
            let bytes = [begin, &bytes[..]].concat();
            if let Ok(membership) = Membership::decode(&bytes) {
                prop_assert_eq!(&membership.encode()[..], &bytes[..]);
            }
            if let Ok(change) = MembershipChange::decode(&bytes) {
                prop_assert_eq!(&change.encode()[..], &bytes[..]);
            }
        }
    }
}

#[test]
fn what_a_server_that_stands_alone_writes_has_the_bytes_it_always_had() {
    assert_eq!(
        Membership::sole_voter(1).encode()[..],
        [1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    );
}

#[test]
fn a_server_that_stands_alone_refuses_a_log_that_changes_the_membership() {
    let entry = Entry {
        index: 1,
        term: 1,
        kind: EntryKind::Configuration,
        payload: MembershipChange::leave_joint().encode(),
    };
    let recovered = Recovered {
        entries: vec![entry],
        ..Recovered::default()
    };
    let refused = Consensus::new(&Config::sole_voter(1), recovered).unwrap_err();
    assert_eq!(refused, ConsensusError::NotAlone { index: 1 });
    assert!(
        refused.to_string().contains("run it as a member"),
        "{refused}"
    );
}
