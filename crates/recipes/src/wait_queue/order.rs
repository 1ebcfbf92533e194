//! The one order of waiters and queue items, for every naming scheme.
//!
//! Owns the answer to "who is before whom". The truth is the order of creation, which is `czxid`.
//! Numbers replace it only where they are known to agree with it: all of them distinct, none at or
//! past the end of the server's counter. It must never break a tie by name alone: past the end, a
//! waiter that comes later may carry the holder's number, and a name that happens to sort first
//! would then be granted while the other still holds (H19–H21).

use baton_client::{Data, Error, Session};

/// The last number that the server's 32-bit counter gives out reliably. From here on Apache
/// ZooKeeper repeats it, or goes negative while a create is in flight, or both in turn.
const COUNTER_END: i64 = i32::MAX as i64;

/// A child with a sequence number in its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SequentialChild {
    /// Name without the directory.
    pub name: String,
    /// The number in the name.
    pub number: i64,
    /// Time at which it was created, once its Stat has been read.
    pub czxid: Option<i64>,
}

/// The numbers alone do not determine the order: the Stat of every child must be read first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NeedsStats;

/// Sorts `children` into the order of creation.
///
/// With every `czxid` known it always succeeds. Without, it succeeds where the numbers are distinct
/// and lie before the end of the counter; there they were given out in order of creation, so both
/// ways agree and clients that use either agree.
pub(crate) fn arrange(children: &mut [SequentialChild]) -> Result<(), NeedsStats> {
    if children.iter().all(|waiter| waiter.czxid.is_some()) {
        // Equal czxid: created in one multi, so neither can have been granted before the other
        // existed.
        children.sort_by(|a, b| {
            (a.czxid, a.number < 0, a.number, &a.name).cmp(&(
                b.czxid,
                b.number < 0,
                b.number,
                &b.name,
            ))
        });
        return Ok(());
    }
    if children
        .iter()
        .any(|waiter| !(0..COUNTER_END).contains(&waiter.number))
    {
        return Err(NeedsStats);
    }
    children.sort_by_key(|waiter| waiter.number);
    let tied = children
        .iter()
        .zip(children.iter().skip(1))
        .any(|(earlier, later)| earlier.number == later.number);
    if tied { Err(NeedsStats) } else { Ok(()) }
}

/// Sorts `children` of `dir`. Where the numbers do not determine the order, every Stat is read, in
/// one packet; children that are gone by then are left out.
pub(crate) async fn arrange_with(
    session: &Session,
    dir: &str,
    children: Vec<SequentialChild>,
) -> Result<Vec<SequentialChild>, Error> {
    arrange_by(session, dir, children, |_, read| read.stat.czxid).await
}

/// [`arrange_with`] for wait queues in which a node may take the position of one that was created
/// earlier: `position` yields, of a node as read, the `czxid` that counts.
pub(crate) async fn arrange_by(
    session: &Session,
    dir: &str,
    mut children: Vec<SequentialChild>,
    position: impl Fn(&SequentialChild, &Data) -> i64,
) -> Result<Vec<SequentialChild>, Error> {
    if arrange(&mut children).is_ok() {
        return Ok(children);
    }
    let asked: Vec<_> = children
        .into_iter()
        .map(|child| {
            let path = baton_proto::path::join(dir, &child.name);
            let reply = session.get_data(&path);
            (child, reply)
        })
        .collect();
    let mut known = Vec::with_capacity(asked.len());
    for (child, reply) in asked {
        match reply.await {
            Ok(read) => known.push(SequentialChild {
                czxid: Some(position(&child, &read)),
                ..child
            }),
            Err(error) if error.is_no_node() => {}
            Err(error) => return Err(error),
        }
    }
    // Every czxid is known now, so this cannot ask for more.
    let _ = arrange(&mut known);
    Ok(known)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Numbers of a server's creates past the end of its counter.
    #[derive(Clone, Copy, Debug)]
    enum OverflowPolicy {
        Sticks,
        Wraps,
        /// Apache ZooKeeper: wraps while an earlier create is in flight, sticks after a pause.
        Mixed,
        Widens,
    }

    fn number(policy: OverflowPolicy, start: i64, nth: usize, in_flight: bool) -> i64 {
        let wide = start + i64::try_from(nth).unwrap();
        if wide <= COUNTER_END {
            return wide;
        }
        let wrapped = i64::from(i32::MIN) + (wide - COUNTER_END - 1);
        match policy {
            OverflowPolicy::Sticks => COUNTER_END,
            OverflowPolicy::Wraps => wrapped,
            OverflowPolicy::Mixed if in_flight => wrapped,
            OverflowPolicy::Mixed => COUNTER_END,
            OverflowPolicy::Widens => wide,
        }
    }

    fn policy() -> impl Strategy<Value = OverflowPolicy> {
        prop_oneof![
            Just(OverflowPolicy::Sticks),
            Just(OverflowPolicy::Wraps),
            Just(OverflowPolicy::Mixed),
            Just(OverflowPolicy::Widens)
        ]
    }

    /// Orders like a client: by number where that is enough, else with every Stat.
    fn as_a_client_sees(alive: &[SequentialChild]) -> Vec<String> {
        let mut children: Vec<_> = alive
            .iter()
            .cloned()
            .map(|c| SequentialChild { czxid: None, ..c })
            .collect();
        if arrange(&mut children).is_err() {
            children = alive.to_vec();
            arrange(&mut children).unwrap();
        }
        children.into_iter().map(|c| c.name).collect()
    }

    proptest! {
        #[test]
        fn h19_the_order_is_that_of_creation_across_the_end_of_the_counter(
            policy in policy(),
            start in prop_oneof![0i64..100, (COUNTER_END - 20)..=COUNTER_END],
            made in prop::collection::vec((any::<bool>(), any::<bool>(), "[a-z]{4}"), 1..40),
            rotate in 0usize..40,
        ) {
            let mut alive = Vec::new();
            let mut expected = Vec::new();
            for (nth, (in_flight, lives, marker)) in made.into_iter().enumerate() {
                let number = number(policy, start, nth, in_flight);
                let name = format!("{marker}{nth}-lock-{number:010}");
                if lives {
                    expected.push(name.clone());
                    let czxid = Some(1000 + i64::try_from(nth).unwrap());
                    alive.push(SequentialChild { name, number, czxid });
                }
            }
            if !alive.is_empty() {
                let by = rotate % alive.len();
                alive.rotate_left(by);
            }
            prop_assert_eq!(as_a_client_sees(&alive), expected);
        }

        #[test]
        fn h21_clients_that_see_different_parts_of_the_queue_agree(
            policy in policy(),
            start in (COUNTER_END - 8)..=COUNTER_END,
            made in prop::collection::vec((any::<bool>(), any::<bool>(), any::<bool>()), 2..16),
        ) {
            let all: Vec<(SequentialChild, bool, bool)> = made
                .into_iter()
                .enumerate()
                .map(|(nth, (in_flight, first, second))| {
                    let number = number(policy, start, nth, in_flight);
                    let czxid = Some(i64::try_from(nth).unwrap());
                    (SequentialChild { name: format!("{nth}"), number, czxid }, first, second)
                })
                .collect();
            let seen = |pick: fn(&(SequentialChild, bool, bool)) -> bool| {
                let part: Vec<_> =
                    all.iter().filter(|c| pick(c)).map(|(c, _, _)| c.clone()).collect();
                as_a_client_sees(&part)
            };
            let (one, other) = (seen(|c| c.1), seen(|c| c.2));
            let common = |children: &[String], with: &[String]| -> Vec<String> {
                children.iter().filter(|name| with.contains(name)).cloned().collect()
            };
            prop_assert_eq!(common(&one, &other), common(&other, &one));
        }
    }

    #[test]
    fn h19_a_later_negative_number_comes_after_the_holder_at_the_end() {
        let at = |name: &str, number, czxid| SequentialChild {
            name: name.to_owned(),
            number,
            czxid: Some(czxid),
        };
        let mut children = vec![
            at("late", i64::from(i32::MIN), 11),
            at("later", i64::from(i32::MIN) + 1, 12),
            at("holder", COUNTER_END, 10),
        ];
        arrange(&mut children).unwrap();
        let names: Vec<_> = children.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["holder", "late", "later"]);
    }

    #[test]
    fn h21_equal_numbers_ask_for_the_stats_and_never_tie_by_name() {
        let at = |name: &str, czxid| SequentialChild {
            name: name.to_owned(),
            number: 7,
            czxid,
        };
        assert_eq!(
            arrange(&mut [at("b", None), at("a", None)]),
            Err(NeedsStats)
        );
        let mut children = [at("a", Some(2)), at("b", Some(1))];
        arrange(&mut children).unwrap();
        assert_eq!(children[0].name, "b");
    }
}
