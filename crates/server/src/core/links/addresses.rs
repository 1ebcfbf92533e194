//! Addresses of the other servers: those of the membership, unless the settings of this server name
//! another address of a first member.

use std::collections::BTreeMap;

use baton_consensus::{Member, Membership};

/// Addresses of the settings, for the members that the cluster began with.
#[derive(Debug, Clone, Default)]
pub(crate) struct PeerAddresses {
    listed: BTreeMap<u64, (Member, String)>,
}

impl PeerAddresses {
    /// The addresses of the settings. A server that was added later, or again, has the address that
    /// it was added with: the settings may be older.
    pub(crate) fn new(first: &Membership, settings: &BTreeMap<u64, String>) -> PeerAddresses {
        let listed = first.members.iter().filter_map(|member| {
            let address = settings.get(&member.id)?;
            Some((member.id, (member.clone(), address.clone())))
        });
        PeerAddresses {
            listed: listed.collect(),
        }
    }

    /// The address of each of these members.
    pub(crate) fn of(&self, membership: &Membership) -> BTreeMap<u64, String> {
        let members = membership.members.iter().map(|member| {
            let listed = self.listed.get(&member.id);
            let listed = listed.filter(|(first, _)| first == member);
            let address = listed.map_or(&member.address, |(_, address)| address);
            (member.id, address.clone())
        });
        members.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_count_for_first_members_as_long_as_they_are_those() {
        let member = |id, incarnation, address: &str| Member {
            id,
            incarnation,
            address: address.to_owned(),
        };
        let of = |members: Vec<Member>| Membership {
            voters: members.iter().map(|member| member.id).collect(),
            members,
            ..Membership::default()
        };
        let first = of(vec![member(1, 10, "a:1"), member(2, 20, "b:1")]);
        let settings = [(1, "here:1"), (2, "there:1"), (3, "nowhere:1")];
        let settings = settings.map(|(id, at)| (id, at.to_owned())).into();
        let addresses = PeerAddresses::new(&first, &settings);
        let now = of(vec![
            member(1, 10, "a:1"),
            member(2, 21, "b:2"),
            member(3, 30, "c:1"),
        ]);
        let expected = [(1, "here:1"), (2, "b:2"), (3, "c:1")];
        let expected = expected.map(|(id, at)| (id, at.to_owned())).into();
        assert_eq!(addresses.of(&now), expected);
    }
}
