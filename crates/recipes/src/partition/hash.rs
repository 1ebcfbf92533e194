//! Assignment of items: rendezvous hashing.
//!
//! Owns the score of a member for an item. It is part of the layout: all members of a group must
//! compute the same one, on every machine and in every version, so it must never change.

/// Returns the member with the highest score for `item`. When members come or go, only the items of
/// those change hands.
pub(super) fn winner<'m>(members: impl Iterator<Item = &'m str>, item: &str) -> Option<&'m str> {
    members.max_by_key(|member| (score(member, item), *member))
}

/// FNV-1a of member and item, then the finalizer of SplitMix64, which lets every bit of the one
/// reach every bit of the other.
fn score(member: &str, item: &str) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    // No byte of a UTF-8 text.
    const BETWEEN: u8 = 0xff;
    let bytes = member.bytes().chain([BETWEEN]).chain(item.bytes());
    let hash = bytes.fold(BASIS, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    });
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(prefix: &str, count: usize) -> Vec<String> {
        (0..count).map(|nth| format!("{prefix}{nth}")).collect()
    }

    fn shares(members: &[String], items: &[String]) -> Vec<String> {
        let of = |item: &String| winner(members.iter().map(String::as_str), item);
        items
            .iter()
            .map(|item| of(item).unwrap().to_owned())
            .collect()
    }

    #[test]
    fn only_the_items_of_who_comes_or_goes_change_hands() {
        let (members, items) = (names("member-", 7), names("item-", 500));
        let before = shares(&members, &items);
        for gone in &members {
            let rest: Vec<_> = members.iter().filter(|m| *m != gone).cloned().collect();
            let after = shares(&rest, &items);
            for (was, is) in before.iter().zip(&after) {
                assert!(was == is || was == gone);
            }
        }
        assert_eq!(winner(std::iter::empty(), "item"), None);
    }

    #[test]
    fn items_spread_evenly_whatever_the_order_of_the_members() {
        let (mut members, items) = (names("10.0.0.", 5), names("shard/", 2000));
        let owners = shares(&members, &items);
        for member in &members {
            let share = owners.iter().filter(|owner| *owner == member).count();
            assert!((300..=500).contains(&share), "{member}: {share} of 2000");
        }
        members.reverse();
        assert_eq!(shares(&members, &items), owners);
    }

    #[test]
    fn the_score_is_the_one_that_other_versions_compute() {
        assert_eq!(score("a", "x"), 0x458b_ee57_aaf3_158c);
    }
}
