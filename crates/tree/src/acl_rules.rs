//! ACLs that a znode may get (protocol.md §1.6): validation, expansion of `auth`, and the bounds
//! that keep a list from costing more than the request that sent it. Owns the bounds. The server of
//! a client and the tree apply the same rule: the one before a request goes into the log, the other
//! when it is applied.
//!
//! Before level 5 no bound was in force, so a log may have lists of any length. When it is applied
//! again, only those lists are refused that no tree can have had for long: a snapshot could not
//! hold the list, or the server had no memory for the lists of one command.

use std::borrow::Cow;
use std::cell::Cell;

use baton_proto::{Acl, ErrorCode, Perms};

use crate::acl_list::{comparisons, parse_range};
use crate::identity::{AuthId, Identity};
use crate::level::FormatLevel;

/// Entries and bytes of ACLs. The bytes are the fewest that a snapshot takes for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Weight {
    entries: usize,
    bytes: usize,
}

impl Weight {
    const NONE: Self = Self {
        entries: 0,
        bytes: 0,
    };

    const fn of_entry(scheme: &str, id: &str) -> Self {
        Self {
            entries: 1,
            bytes: 3 + scheme.len() + id.len(),
        }
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            entries: self.entries.saturating_add(other.entries),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    const fn is_within(self, bound: Self) -> bool {
        self.entries <= bound.entries && self.bytes <= bound.bytes
    }
}

/// One list, from level 5 on.
const LIST: Weight = Weight {
    entries: 4096,
    bytes: 256 << 10,
};
/// All lists of one command, from level 5 on.
const COMMAND: Weight = Weight {
    entries: 16_384,
    bytes: 1 << 20,
};
/// One list before level 5: the chunk of a snapshot that has a longer one cannot be stored.
const EARLIER_LIST: Weight = Weight {
    entries: usize::MAX,
    bytes: 16 << 20,
};
/// All lists of one command before level 5.
const EARLIER_COMMAND: Weight = Weight {
    entries: usize::MAX,
    bytes: 256 << 20,
};

/// Room for the ACLs of one command, counted as they would be stored: `auth` once for each identity
/// that it stands for.
#[derive(Debug)]
pub struct AclAllowance {
    taken: Cell<Weight>,
    is_bounded: bool,
}

impl AclAllowance {
    /// The room that a command has in a tree of this level.
    #[must_use]
    pub const fn at(level: FormatLevel) -> Self {
        Self {
            taken: Cell::new(Weight::NONE),
            is_bounded: level.number() >= FormatLevel::BoundedCommands.number(),
        }
    }

    /// Returns whether the ACLs of a request of this length could be over the bounds. Looks at
    /// nothing but the two lengths.
    #[must_use]
    pub fn could_be_exceeded(request_bytes: usize, identity: &Identity) -> bool {
        let entries = request_bytes / Acl::MIN_BYTES;
        let expanded = Weight {
            entries: entries.saturating_mul(identity.names().len().max(1)),
            bytes: entries
                .saturating_mul(identity.bytes() + 3 * identity.names().len())
                .saturating_add(request_bytes),
        };
        !expanded.is_within(LIST)
    }

    /// Returns whether this list of a client of this identity is within the bounds, together with
    /// those that were asked about before it.
    #[must_use]
    pub fn admits(&self, list: &[Acl<'_>], identity: &Identity) -> bool {
        is_open(list) || self.take(list.iter(), identity).is_ok()
    }

    fn take<'l>(
        &self,
        list: impl Iterator<Item = &'l Acl<'l>>,
        identity: &Identity,
    ) -> Result<(), ErrorCode> {
        let names = identity.ids().filter(|id| is_authentication(id));
        let of_auth = names.fold(Weight::NONE, |sum, id| {
            sum.plus(Weight::of_entry(&id.scheme, &id.id))
        });
        let weight = list.fold(Weight::NONE, |sum, entry| {
            sum.plus(match entry.scheme.as_ref() {
                "auth" => of_auth,
                scheme => Weight::of_entry(scheme, &entry.id),
            })
        });
        let taken = self.taken.get().plus(weight);
        self.taken.set(taken);
        let (of_list, of_command) = match self.is_bounded {
            true => (LIST, COMMAND),
            false => (EARLIER_LIST, EARLIER_COMMAND),
        };
        match weight.is_within(of_list) && taken.is_within(of_command) {
            true => Ok(()),
            false => Err(ErrorCode::InvalidAcl),
        }
    }
}

/// Returns whether this is the one list that most znodes have: anyone may do anything.
fn is_open(list: &[Acl<'_>]) -> bool {
    matches!(list, [only] if only.scheme == "world" && only.id == "anyone" && only.perms == Perms::ALL)
}

/// The list to store for a list as sent; `None` is the open one, which needs no look at the table.
///
/// # Errors
/// As [`fix_up`].
pub(crate) fn checked(
    list: Option<&[Acl<'_>]>,
    identity: &Identity,
    allowance: &AclAllowance,
) -> Result<Option<Vec<Acl<'static>>>, ErrorCode> {
    if list.is_some_and(is_open) {
        return Ok(None);
    }
    fix_up(list, identity, allowance).map(Some)
}

/// The list to store for a list as sent: without repeats, `auth` replaced by the connection's
/// identities.
///
/// # Errors
/// [`ErrorCode::InvalidAcl`]: null, empty, an unknown scheme, an id that its scheme does not allow,
/// `auth` from a connection that has authenticated as nobody, more than `allowance` has room for,
/// or, from level 5 on, a permission that is unknown.
fn fix_up(
    list: Option<&[Acl<'_>]>,
    identity: &Identity,
    allowance: &AclAllowance,
) -> Result<Vec<Acl<'static>>, ErrorCode> {
    let list = list
        .filter(|list| !list.is_empty())
        .ok_or(ErrorCode::InvalidAcl)?;
    if allowance.is_bounded {
        // Before anything is made of the list; a repeated entry counts.
        allowance.take(list.iter(), identity)?;
        if list.iter().any(|entry| !Perms::ALL.contains(entry.perms)) {
            return Err(ErrorCode::InvalidAcl);
        }
    }
    let distinct = without_repeats(list);
    if !allowance.is_bounded {
        allowance.take(distinct.iter().copied(), identity)?;
    }
    let mut fixed: Vec<Acl<'static>> = Vec::with_capacity(distinct.len());
    for entry in distinct {
        match entry.scheme.as_ref() {
            "world" if entry.id == "anyone" => fixed.push(own(entry, "world")),
            "auth" => {
                let before = fixed.len();
                for id in identity.ids().filter(|id| is_authentication(id)) {
                    fixed.push(Acl::new(entry.perms, id.scheme.clone(), id.id.clone()));
                }
                if fixed.len() == before {
                    return Err(ErrorCode::InvalidAcl);
                }
            }
            "digest" if is_digest(&entry.id) => fixed.push(own(entry, "digest")),
            "ip" if parse_range(&entry.id).is_some() => fixed.push(own(entry, "ip")),
            // The server has seen to it that these are enabled where the client is connected.
            "sasl" if !entry.id.is_empty() => fixed.push(own(entry, "sasl")),
            "x509" if entry.id.contains('=') => fixed.push(own(entry, "x509")),
            _ => return Err(ErrorCode::InvalidAcl),
        }
    }
    Ok(fixed)
}

/// The entries, each where it stands first. Sorts, so that no choice of entries makes it slow.
fn without_repeats<'l, 'a>(list: &'l [Acl<'a>]) -> Vec<&'l Acl<'a>> {
    let key = |entry: &'l Acl<'a>| {
        comparisons::count();
        (entry.scheme.as_ref(), entry.id.as_ref(), entry.perms.0)
    };
    let mut entries: Vec<(usize, &Acl<'a>)> = list.iter().enumerate().collect();
    entries.sort_unstable_by(|(one, a), (other, b)| key(a).cmp(&key(b)).then(one.cmp(other)));
    entries.dedup_by(|(_, later), (_, first)| later == first);
    entries.sort_unstable_by_key(|(place, _)| *place);
    entries.into_iter().map(|(_, entry)| entry).collect()
}

/// Returns whether `auth` in an ACL stands for this identity: an address proves nothing, `super` is
/// not a name.
fn is_authentication(id: &AuthId) -> bool {
    !matches!(id.scheme.as_str(), "ip" | "super" | "world")
}

fn is_digest(id: &str) -> bool {
    id.split_once(':')
        .is_some_and(|(_, hash)| !hash.is_empty() && !hash.contains(':'))
}

fn own(entry: &Acl<'_>, scheme: &'static str) -> Acl<'static> {
    Acl::new(entry.perms, scheme, Cow::Owned(entry.id.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::digest_id;

    fn now() -> AclAllowance {
        AclAllowance::at(FormatLevel::NEWEST)
    }

    fn acl(scheme: &'static str, id: &'static str) -> Acl<'static> {
        Acl::new(Perms::READ, scheme, id)
    }

    fn someone() -> Identity {
        let mut identity = Identity::from_ip("10.1.2.3".parse().unwrap());
        identity.add("digest", digest_id(b"user:password"));
        identity
    }

    /// A list of this many distinct entries.
    fn distinct(entries: usize) -> Vec<Acl<'static>> {
        let entry = |n| Acl::new(Perms::READ, "digest", format!("{n}:x"));
        (0..entries).map(entry).collect()
    }

    #[test]
    fn lists_are_validated_deduplicated_and_expanded() {
        let identity = someone();
        let fixed = fix_up(
            Some(&[
                acl("auth", "ignored"),
                acl("world", "anyone"),
                acl("world", "anyone"),
            ]),
            &identity,
            &now(),
        )
        .unwrap();
        assert_eq!(fixed.len(), 2);
        assert_eq!(fixed[0].scheme, "digest");
        for bad in [
            None,
            Some(&[][..]),
            Some(&[acl("world", "everyone")][..]),
            Some(&[acl("nonsense", "x")][..]),
            Some(&[acl("digest", "user")][..]),
            Some(&[acl("digest", "user:")][..]),
            Some(&[acl("digest", "a:b:c")][..]),
            Some(&[acl("ip", "10.0.0.0/33")][..]),
            Some(&[acl("ip", "localhost")][..]),
        ] {
            assert_eq!(
                fix_up(bad, &identity, &now()),
                Err(ErrorCode::InvalidAcl),
                "{bad:?}"
            );
        }
        let stranger = Identity::from_ip("10.1.2.3".parse().unwrap());
        assert_eq!(
            fix_up(Some(&[acl("auth", "")]), &stranger, &now()),
            Err(ErrorCode::InvalidAcl)
        );
    }

    #[test]
    fn the_first_of_equal_entries_stays_at_its_place() {
        let entry = |perms, id: &'static str| Acl::new(Perms(perms), "digest", id);
        let list = [
            entry(1, "z:x"),
            entry(1, "a:x"),
            entry(2, "z:x"),
            entry(1, "z:x"),
            entry(1, "b:x"),
            entry(1, "a:x"),
        ];
        let fixed = fix_up(Some(&list), &someone(), &now()).unwrap();
        let kept = [
            entry(1, "z:x"),
            entry(1, "a:x"),
            entry(2, "z:x"),
            entry(1, "b:x"),
        ];
        assert_eq!(fixed, kept);
    }

    #[test]
    fn a_list_and_all_lists_of_a_command_have_bounds() {
        let identity = someone();
        let allowance = AclAllowance::at(FormatLevel::BoundedCommands);
        let longest = distinct(LIST.entries);
        for _ in 0..COMMAND.entries + 1 {
            // Weighs nothing.
            assert!(allowance.admits(&[Acl::open_unsafe()], &identity));
        }
        for _ in 0..COMMAND.entries / LIST.entries {
            assert!(fix_up(Some(&longest), &identity, &allowance).is_ok());
        }
        let one_more = fix_up(Some(&[acl("auth", "")]), &identity, &allowance);
        assert_eq!(one_more, Err(ErrorCode::InvalidAcl));
        let refused = |list: &[Acl<'_>]| {
            let allowance = AclAllowance::at(FormatLevel::BoundedCommands);
            fix_up(Some(list), &identity, &allowance) == Err(ErrorCode::InvalidAcl)
        };
        assert!(refused(&distinct(LIST.entries + 1)));
        let wide = |bytes| Acl::new(Perms::READ, "sasl", "n".repeat(bytes));
        assert!(!refused(&[wide(LIST.bytes - "sasl".len() - 3)]));
        assert!(refused(&[wide(LIST.bytes - "sasl".len() - 2)]));
    }

    #[test]
    fn no_request_over_the_bounds_is_passed_as_short() {
        let mut identity = Identity::from_ip("10.1.2.3".parse().unwrap());
        for names in [1, 4, 64] {
            while identity.ids().len() < names + 1 {
                identity.add("digest", format!("{}:x", identity.ids().len()));
            }
            // The entries of `auth` are the shortest for what they expand to.
            for entries in [1, LIST.entries / names, LIST.entries / names + 1, 20_000] {
                let list = vec![acl("auth", ""); entries];
                let mut body = Vec::new();
                Acl::encode_list(Some(&list), &mut body);
                let admitted = AclAllowance::at(FormatLevel::NEWEST).admits(&list, &identity);
                let could = AclAllowance::could_be_exceeded(body.len(), &identity);
                assert!(admitted || could, "{names} names, {entries} entries");
            }
        }
        assert!(!AclAllowance::could_be_exceeded(1024, &someone()));
    }

    #[test]
    fn unknown_permissions_are_refused_from_level_5_on() {
        let unknown = [Acl::new(Perms(99), "world", "anyone")];
        for (level, expected) in [
            (FormatLevel::BoundSessions, Ok(unknown.to_vec())),
            (FormatLevel::BoundedCommands, Err(ErrorCode::InvalidAcl)),
        ] {
            let fixed = fix_up(Some(&unknown), &someone(), &AclAllowance::at(level));
            assert_eq!(fixed, expected, "{level:?}");
        }
    }

    #[test]
    fn repeats_in_a_long_list_are_found_without_comparing_all_pairs() {
        let list = distinct(38_000);
        let made = comparisons::of(|| assert_eq!(without_repeats(&list).len(), list.len()));
        // Two keys for each comparison of a sort, which makes at most about n · log n of them.
        assert!(made < 38_000 * 2 * 2 * 16, "{made} comparisons");
    }

    #[test]
    fn an_earlier_list_counts_without_repeats() {
        let mut identity = someone();
        identity.add("sasl", "n".repeat(EARLIER_LIST.bytes / 2));
        let earlier = |list: &[Acl<'_>]| {
            let allowance = AclAllowance::at(FormatLevel::BoundSessions);
            fix_up(Some(list), &identity, &allowance).map(|list| list.len())
        };
        assert_eq!(earlier(&[acl("auth", ""), acl("auth", "")]), Ok(2));
        let both = [acl("auth", ""), Acl::new(Perms::WRITE, "auth", "")];
        assert_eq!(earlier(&both), Err(ErrorCode::InvalidAcl));
    }
}
