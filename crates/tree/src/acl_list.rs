//! A stored ACL in the form in which it is checked (protocol.md §1.4): identities and ranges of
//! addresses are parsed once, when the list is stored. Owns what a list lets an identity do. A
//! check costs a search for each identity of the connection, however long the list is.

use core::net::IpAddr;
use std::borrow::Cow;

use baton_proto::{Acl, Perms};

use crate::identity::{Identity, Name, name_hash};

/// An access-control list as stored with a znode: validated, and `auth` expanded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AclList {
    entries: Box<[Acl<'static>]>,
    /// Permissions of everybody.
    world: Perms,
    names: Box<[NameRule]>,
    addresses: Box<[AddressRule]>,
    hash: u64,
}

/// Permissions of one identity. Sorted by hash, then by the identity itself.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NameRule {
    hash: u64,
    /// Place of an entry that names it.
    entry: u32,
    perms: Perms,
}

/// Permissions of the addresses from this one up to that of the next rule. Sorted by address.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AddressRule {
    from: Address,
    perms: Perms,
}

/// An address, or the first one behind a range: whether it is of IPv6, and its number.
type Address = (bool, u128);

impl AclList {
    /// A list of these entries, whose content has that hash, which is the same on every replica.
    pub(crate) fn new(entries: Vec<Acl<'static>>, hash: u64) -> Self {
        // A list without entries allows everything.
        let mut world = Perms(if entries.is_empty() { -1 } else { 0 });
        let mut names = Vec::new();
        let mut ranges = Vec::new();
        for (place, entry) in entries.iter().enumerate() {
            match entry.scheme.as_ref() {
                "world" if entry.id == "anyone" => world = world | entry.perms,
                "ip" => ranges.extend(
                    parse_range(&entry.id)
                        .map(|(address, bits)| (range_of(address, bits), entry.perms)),
                ),
                scheme => names.push(NameRule {
                    hash: name_hash(scheme, &entry.id),
                    entry: place as u32,
                    perms: entry.perms,
                }),
            }
        }
        let text = |rule: &NameRule| text_of(&entries, rule);
        names.sort_unstable_by(|a, b| a.hash.cmp(&b.hash).then_with(|| text(a).cmp(&text(b))));
        names.dedup_by(|later, kept| {
            let is_same = later.hash == kept.hash && text(later) == text(kept);
            if is_same {
                kept.perms = kept.perms | later.perms;
            }
            is_same
        });
        Self {
            world,
            names: names.into(),
            addresses: address_rules(ranges).into(),
            hash,
            entries: entries.into(),
        }
    }

    /// Returns whether the list allows some permission of `wanted` to `identity`.
    #[must_use]
    pub fn permits(&self, identity: &Identity, wanted: Perms) -> bool {
        self.world.intersects(wanted)
            || identity.is_super()
            || self.permits_name(identity.names(), wanted)
            || (!self.addresses.is_empty() && self.permits_address(identity, wanted))
    }

    fn permits_name(&self, names: &[Name], wanted: Perms) -> bool {
        match &*self.names {
            [] => false,
            // The most frequent one of the lists that are not open: the znode's creator.
            [only] => {
                let mut names = names.iter().filter(|name| name.hash() == only.hash);
                only.perms.intersects(wanted) && names.any(|name| self.is_rule_of(only, name))
            }
            _ => names.iter().any(|name| {
                let rule = self.rule_of(name);
                rule.is_some_and(|rule| rule.perms.intersects(wanted))
            }),
        }
    }

    fn rule_of(&self, name: &Name) -> Option<&NameRule> {
        let first = self.names.partition_point(|rule| {
            comparisons::count();
            rule.hash < name.hash()
        });
        let first = self.names.get(first);
        let first = first.filter(|rule| rule.hash == name.hash())?;
        if self.is_rule_of(first, name) {
            return Some(first);
        }
        // Other names have that hash, too; somebody may have sought them.
        let own = (name.id().scheme.as_str(), name.id().id.as_str());
        let place = self.names.binary_search_by(|rule| {
            comparisons::count();
            let by_hash = rule.hash.cmp(&name.hash());
            by_hash.then_with(|| text_of(&self.entries, rule).cmp(&own))
        });
        self.names.get(place.ok()?)
    }

    fn is_rule_of(&self, rule: &NameRule, name: &Name) -> bool {
        comparisons::count();
        let (scheme, id) = text_of(&self.entries, rule);
        scheme == name.id().scheme && id == name.id().id
    }

    fn permits_address(&self, identity: &Identity, wanted: Perms) -> bool {
        let permits = |address: IpAddr| {
            let address = number_of(address);
            let after = self.addresses.partition_point(|rule| {
                comparisons::count();
                rule.from <= address
            });
            let rule = after.checked_sub(1).and_then(|at| self.addresses.get(at));
            rule.is_some_and(|rule| rule.perms.intersects(wanted))
        };
        let mut addresses = identity.names().iter().filter_map(Name::address);
        addresses.any(permits)
    }

    /// The most comparisons that a check of this list makes for `identity`.
    #[must_use]
    pub fn most_comparisons(&self, identity: &Identity) -> usize {
        let search = |rules: usize| rules.checked_ilog2().map_or(0, |log| log as usize + 2);
        let names = identity.names();
        let of_names = names.len() * search(self.names.len());
        if self.addresses.is_empty() {
            return of_names;
        }
        let addresses = names.iter().filter_map(Name::address).count();
        of_names + addresses * search(self.addresses.len())
    }

    /// The entries, in the order in which they were set.
    #[must_use]
    pub fn entries(&self) -> &[Acl<'static>] {
        &self.entries
    }

    /// The entries as shown to somebody without the permission ADMIN: digests hide their hash.
    pub(crate) fn masked(&self) -> Vec<Acl<'static>> {
        let masked = |entry: &Acl<'static>| {
            let mut entry = entry.clone();
            if entry.scheme == "digest" {
                let user = entry.id.split(':').next().unwrap_or_default();
                entry.id = Cow::Owned(format!("{user}:x"));
            }
            entry
        };
        self.entries.iter().map(masked).collect()
    }

    /// Hash of the content, the same on every replica.
    pub(crate) const fn content_hash(&self) -> u64 {
        self.hash
    }
}

fn text_of<'a>(entries: &'a [Acl<'static>], rule: &NameRule) -> (&'a str, &'a str) {
    let entry = entries.get(rule.entry as usize);
    entry.map_or(("", ""), |entry| (&entry.scheme, &entry.id))
}

/// The address and the prefix length of an id of the scheme `ip`.
pub(crate) fn parse_range(text: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        Some(bits) => bits.parse().ok().filter(|bits| *bits <= width)?,
        None => width,
    };
    Some((address, bits))
}

fn number_of(address: IpAddr) -> Address {
    match address {
        IpAddr::V4(address) => (false, address.to_bits().into()),
        IpAddr::V6(address) => (true, address.to_bits()),
    }
}

/// The first and the last of the addresses that share the first `bits` bits with this one.
fn range_of(address: IpAddr, bits: u32) -> (Address, Address) {
    let width = if address.is_ipv4() { 32 } else { 128 };
    let others = u128::MAX.checked_shl(width - bits.min(width)).unwrap_or(0);
    let (is_ipv6, number) = number_of(address);
    let last = match is_ipv6 {
        true => number | !others,
        false => number | (!others & u128::from(u32::MAX)),
    };
    ((is_ipv6, number & others), (is_ipv6, last))
}

/// The rules for ranges, of which each two are disjoint or one within the other: what several allow
/// adds up.
fn address_rules(mut ranges: Vec<((Address, Address), Perms)>) -> Vec<AddressRule> {
    // A range comes before those within it.
    ranges.sort_unstable_by_key(|((first, last), _)| (*first, std::cmp::Reverse(*last)));
    let mut rules = Vec::new();
    let mut open: Vec<(Address, Perms)> = Vec::new();
    for ((first, last), perms) in ranges {
        end_ranges(&mut open, Some(first), &mut rules);
        let above = open.last().map_or(Perms(0), |(_, perms)| *perms);
        open.push((last, perms | above));
        begin_rule(first, perms | above, &mut rules);
    }
    end_ranges(&mut open, None, &mut rules);
    rules
}

/// Ends the open ranges that end before this address, or all.
fn end_ranges(
    open: &mut Vec<(Address, Perms)>,
    before: Option<Address>,
    rules: &mut Vec<AddressRule>,
) {
    while let Some(((is_ipv6, last), _)) =
        open.pop_if(|(last, _)| before.is_none_or(|first| *last < first))
    {
        let left = open.last().map_or(Perms(0), |(_, perms)| *perms);
        // Nothing comes behind the last address of all.
        if let Some(next) = last.checked_add(1) {
            begin_rule((is_ipv6, next), left, rules);
        }
    }
}

fn begin_rule(from: Address, perms: Perms, rules: &mut Vec<AddressRule>) {
    match rules.last_mut() {
        Some(last) if last.from == from => last.perms = perms,
        _ => rules.push(AddressRule { from, perms }),
    }
}

/// Comparisons of entries, counted for tests of what a list costs.
pub(crate) mod comparisons {
    #[cfg(test)]
    thread_local! {
        static MADE: core::cell::Cell<usize> = const { core::cell::Cell::new(0) };
    }

    pub(crate) fn count() {
        #[cfg(test)]
        MADE.set(MADE.get() + 1);
    }

    /// Counts those that `work` makes.
    #[cfg(test)]
    pub(crate) fn of(work: impl FnOnce()) -> usize {
        let before = MADE.get();
        work();
        MADE.get() - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::digest_id;

    fn acl(scheme: &'static str, id: &'static str) -> Acl<'static> {
        Acl::new(Perms::READ, scheme, id)
    }

    fn listed(entries: Vec<Acl<'static>>) -> AclList {
        AclList::new(entries, 0)
    }

    fn permits(list: &[Acl<'static>], identity: &Identity, wanted: Perms) -> bool {
        listed(list.to_vec()).permits(identity, wanted)
    }

    fn someone() -> Identity {
        let mut identity = Identity::from_ip("10.1.2.3".parse().unwrap());
        identity.add("digest", digest_id(b"user:password"));
        identity
    }

    #[test]
    fn address_ranges_match_by_prefix() {
        let someone = someone();
        for (range, expected) in [
            ("10.1.2.3", true),
            ("10.1.2.4", false),
            ("10.1.2.3/32", true),
            ("10.1.2.4/32", false),
            ("10.1.2.3/33", false),
            ("10.1.0.0/16", true),
            ("10.1.255.255/16", true),
            ("10.2.0.0/16", false),
            ("0.0.0.0/0", true),
            ("::/0", false),
        ] {
            let list = [acl("ip", range)];
            assert_eq!(permits(&list, &someone, Perms::READ), expected, "{range}");
            let among = [acl("ip", "192.168.0.0/16"), acl("ip", range)];
            assert_eq!(permits(&among, &someone, Perms::READ), expected, "{range}");
        }
    }

    #[test]
    fn addresses_of_ipv6_have_ranges_and_an_ipv4_one_stays_what_it_is() {
        for (address, range, expected) in [
            ("fe80::1", "fe80::1", true),
            ("fe80::1", "FE80:0::0:1", true),
            ("fe80::1", "fe80::1/128", true),
            ("fe80::1", "fe80::1/129", false),
            ("fe80::1", "fe80::/10", true),
            ("fe80::1", "fec0::/10", false),
            ("fe80::1", "::/0", true),
            ("fe80::1", "0.0.0.0/0", false),
            ("::ffff:10.1.2.3", "10.1.0.0/16", true),
            ("::ffff:10.1.2.3", "::ffff:0:0/96", false),
        ] {
            let identity = Identity::from_ip(address.parse().unwrap());
            let permitted = permits(&[acl("ip", range)], &identity, Perms::READ);
            assert_eq!(permitted, expected, "{address} in {range}");
        }
    }

    #[test]
    fn ranges_within_ranges_add_up_and_end_where_they_end() {
        let range = |perms, id: &'static str| Acl::new(perms, "ip", id);
        let list = listed(vec![
            range(Perms::READ, "10.0.0.0/8"),
            range(Perms::WRITE, "10.1.0.0/16"),
            range(Perms::CREATE, "10.1.0.0/24"),
            range(Perms::DELETE, "10.1.0.0/24"),
            range(Perms::ADMIN, "255.255.255.255"),
            range(Perms::WRITE, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            range(Perms::READ, "ffff::/16"),
        ]);
        let all = [
            Perms::READ,
            Perms::WRITE,
            Perms::CREATE,
            Perms::DELETE,
            Perms::ADMIN,
        ];
        for (address, expected) in [
            ("9.255.255.255", &[][..]),
            ("10.0.0.0", &all[..1]),
            ("10.1.0.0", &all[..4]),
            ("10.1.0.255", &all[..4]),
            ("10.1.1.0", &all[..2]),
            ("10.1.255.255", &all[..2]),
            ("10.2.0.0", &all[..1]),
            ("10.255.255.255", &all[..1]),
            ("11.0.0.0", &[]),
            ("255.255.255.254", &[]),
            ("255.255.255.255", &all[4..]),
            ("::ffff", &[]),
            ("ffff::1", &all[..1]),
            ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", &all[..2]),
        ] {
            let identity = Identity::from_ip(address.parse().unwrap());
            let permitted = all.iter().filter(|perms| list.permits(&identity, **perms));
            let permitted: Vec<_> = permitted.copied().collect();
            assert_eq!(permitted, expected, "{address}");
        }
    }

    #[test]
    fn a_check_costs_one_search_for_addresses_however_many_lengths_their_prefixes_have() {
        let mut entries = Vec::new();
        for bits in 0..=128 {
            entries.push(Acl::new(Perms::WRITE, "ip", format!("8000::1/{bits}")));
            let bits = bits.min(32);
            entries.push(Acl::new(Perms::WRITE, "ip", format!("200.0.0.1/{bits}")));
        }
        let list = listed(entries);
        let identity = Identity::from_ip("200.0.0.1".parse().unwrap());
        let most = list.most_comparisons(&identity);
        assert!(most <= 12, "{most}");
        let made = comparisons::of(|| assert!(!list.permits(&identity, Perms::READ)));
        assert!(made <= most, "{made} of {most}");
    }

    #[test]
    fn permissions_not_named_are_not_given() {
        let list = [Acl::read_unsafe()];
        assert!(permits(&list, &someone(), Perms::READ));
        assert!(!permits(&list, &someone(), Perms::WRITE));
        assert!(permits(&list, &someone(), Perms::READ | Perms::ADMIN));
        let mut superuser = Identity::anonymous();
        superuser.add("super", "");
        assert!(permits(&list, &superuser, Perms::WRITE));
    }

    #[test]
    fn entries_of_one_name_or_range_add_up_and_those_of_others_do_not() {
        let user = digest_id(b"user:password");
        let digest = |perms, id: &str| Acl::new(perms, "digest", id.to_owned());
        let ip = |perms, id: &'static str| Acl::new(perms, "ip", id);
        let mut list: Vec<Acl<'static>> = (0..100)
            .map(|n| digest(Perms::ALL, &format!("user{n}:x")))
            .collect();
        list.push(digest(Perms::READ, &user));
        list.push(Acl::new(Perms::ALL, "sasl", user.clone()));
        list.push(digest(Perms::CREATE, &user));
        list.push(ip(Perms::WRITE, "10.1.0.0/16"));
        list.push(ip(Perms::DELETE, "10.1.9.9/16"));
        list.push(ip(Perms::ADMIN, "10.1.2.4"));
        let list = listed(list);
        for (perms, expected) in [
            (Perms::READ, true),
            (Perms::CREATE, true),
            (Perms::WRITE, true),
            (Perms::DELETE, true),
            (Perms::ADMIN, false),
        ] {
            assert_eq!(list.permits(&someone(), perms), expected, "{perms:?}");
        }
    }

    #[test]
    fn a_check_makes_a_search_for_each_name_however_long_the_list_is() {
        let mut entries: Vec<Acl<'static>> = (0..4000)
            .map(|n| Acl::new(Perms::READ, "digest", format!("user{n}:x")))
            .collect();
        for n in 0..96 {
            entries.push(Acl::new(Perms::READ, "ip", format!("10.{n}.0.0/16")));
        }
        let list = listed(entries);
        let mut identity = Identity::from_ip("192.168.0.1".parse().unwrap());
        for n in 0..64 {
            identity.add("digest", format!("other{n}:x"));
        }
        let made = comparisons::of(|| assert!(!list.permits(&identity, Perms::READ)));
        assert!(made <= 65 * 14, "{made} comparisons");
        assert!(made <= list.most_comparisons(&identity), "{made}");
        let one = listed(vec![acl("digest", "user:x")]);
        let mut user = Identity::anonymous();
        user.add("digest", "user:x");
        let made = comparisons::of(|| assert!(one.permits(&user, Perms::READ)));
        assert_eq!(made, 1);
    }

    #[test]
    fn names_of_one_hash_are_told_apart() {
        let users = ["a:x", "b:x", "c:x", "d:x"];
        let perms = [Perms::READ, Perms::WRITE, Perms::CREATE, Perms::DELETE];
        let entries = users.iter().zip(perms);
        let entries = entries.map(|(user, perms)| Acl::new(perms, "digest", *user));
        let mut list = listed(entries.collect());
        for user in users.iter().chain(&["e:x"]) {
            for rule in &mut list.names {
                rule.hash = name_hash("digest", user);
            }
            let entries = list.entries.clone();
            list.names
                .sort_unstable_by_key(|rule| entries[rule.entry as usize].id.clone());
            let mut identity = Identity::anonymous();
            identity.add("digest", *user);
            for (other, wanted) in users.iter().zip(perms) {
                assert_eq!(list.permits(&identity, wanted), user == other, "{user}");
            }
        }
    }

    #[test]
    fn only_world_anyone_with_all_permissions_opens_a_list_to_whoever_asks() {
        let list = |scheme, id, perms| listed(vec![Acl::new(perms, scheme, id)]);
        let stranger = Identity::anonymous();
        for refused in [
            list("sasl", "anyone", Perms::ALL),
            list("world", "someone", Perms::ALL),
            list("world", "anyone", Perms::WRITE),
        ] {
            assert!(!refused.permits(&stranger, Perms::READ), "{refused:?}");
        }
        let open = list("world", "anyone", Perms::ALL);
        assert!(open.permits(&stranger, Perms::READ));
        assert!(listed(Vec::new()).permits(&stranger, Perms::READ));
    }

    #[test]
    fn masked_digest_keeps_the_user() {
        let masked = |scheme, id| listed(vec![acl(scheme, id)]).masked();
        assert_eq!(masked("digest", "user:hash")[0].id, "user:x");
        assert_eq!(masked("ip", "10.0.0.1")[0].id, "10.0.0.1");
    }
}
