//! Oracle: promises that must hold of all servers after each turn of one. Knows everything, also
//! what no server can know.

use std::collections::BTreeMap;

use baton_consensus::Membership;

use crate::birth::BORN_INDEX;

/// Knowledge of the whole cluster.
#[derive(Debug, Default)]
pub(crate) struct ClusterOracle {
    /// Node that led each term, and the life of it that did.
    leaders: BTreeMap<u64, (u64, u64)>,
    /// Content of the entry at an index in a term, and the term of the entry before it.
    entries: BTreeMap<(u64, u64), (u32, u64)>,
    /// Term and content of each committed entry after the birth.
    committed: Vec<(u64, u32)>,
    /// The term of the leader that committed each of them.
    committed_in: Vec<u64>,
    /// The tree's digest after each entry.
    digests: BTreeMap<u64, u64>,
    /// The membership from each index on.
    memberships: BTreeMap<u64, Membership>,
}

type Holds = Result<(), String>;

impl ClusterOracle {
    /// A server leads; whether that is new.
    pub(crate) fn leads(&mut self, term: u64, id: u64, life: u64) -> Result<bool, String> {
        match self.leaders.get(&term) {
            Some((known, of)) if (*known, *of) != (id, life) => Err(format!(
                "two leaders in term {term}: server {known} and server {id}, in lives {of} and {life}"
            )),
            Some(_) => Ok(false),
            None => {
                self.leaders.insert(term, (id, life));
                Ok(true)
            }
        }
    }

    /// Returns the leader of the newest term before this one.
    pub(crate) fn leader_before(&self, term: u64) -> Option<u64> {
        let before = self.leaders.range(..term).next_back();
        before.map(|(_, (id, _))| *id)
    }

    /// Log matching: an entry of one index and term is one entry, and has one before it.
    pub(crate) fn appended(
        &mut self,
        id: u64,
        (index, term): (u64, u64),
        content: u32,
        before: u64,
    ) -> Holds {
        let known = self
            .entries
            .entry((index, term))
            .or_insert((content, before));
        if before > term {
            return Err(format!(
                "server {id} has entry {index} of term {term} behind one of term {before}"
            ));
        }
        if *known == (content, before) {
            Ok(())
        } else {
            Err(format!(
                "server {id} has another entry {index} of term {term} than other servers, or another one before it: content and \
                 term before are {:?}, of others {known:?}",
                (content, before)
            ))
        }
    }

    /// The newest index that is known to be committed.
    pub(crate) fn commit(&self) -> u64 {
        BORN_INDEX + self.committed.len() as u64
    }

    pub(crate) fn committed(&self, index: u64) -> Option<(u64, u32)> {
        let at = index.checked_sub(BORN_INDEX + 1)?;
        self.committed.get(usize::try_from(at).ok()?).copied()
    }

    /// The next entry is committed, by a leader of `term`.
    pub(crate) fn commit_next(&mut self, entry: (u64, u32), term: u64) {
        self.committed.push(entry);
        self.committed_in.push(term);
    }

    /// The term of an entry that a leader of `term` must have: it was committed before.
    pub(crate) fn owed_to(&self, index: u64, term: u64) -> Option<u64> {
        let at = usize::try_from(index.checked_sub(BORN_INDEX + 1)?).ok()?;
        let committed_in = *self.committed_in.get(at)?;
        let (of, _) = self.committed(index)?;
        (committed_in < term).then_some(of)
    }

    /// Committed entries never change.
    pub(crate) fn agrees(&self, id: u64, index: u64, entry: (u64, u32)) -> Holds {
        match self.committed(index) {
            Some(known) if known != entry => Err(format!(
                "server {id} has entry {index} of term {} as committed, which was committed of term {}{}",
                entry.0,
                known.0,
                if known.0 == entry.0 {
                    " with another content"
                } else {
                    ""
                }
            )),
            _ => Ok(()),
        }
    }

    /// Nodes that have applied the same entries have the same tree.
    pub(crate) fn digest(&mut self, id: u64, index: u64, digest: u64) -> Holds {
        let known = *self.digests.entry(index).or_insert(digest);
        if known == digest {
            Ok(())
        } else {
            Err(format!(
                "server {id} has another tree at entry {index} than other servers"
            ))
        }
    }

    /// Nodes that have applied the same entries know the same members.
    pub(crate) fn membership(&mut self, id: u64, index: u64, now: &Membership) -> Holds {
        let known = self.memberships.entry(index).or_insert_with(|| now.clone());
        if known == now {
            Ok(())
        } else {
            Err(format!(
                "server {id} has the members {now:?} at entry {index}, others {known:?}"
            ))
        }
    }

    /// The memberships that are known of these entries.
    pub(crate) fn memberships(
        &self,
        entries: std::ops::RangeInclusive<u64>,
    ) -> impl DoubleEndedIterator<Item = &Membership> {
        self.memberships.range(entries).map(|(_, known)| known)
    }

    /// The newest index at which a tree is known.
    pub(crate) fn applied(&self) -> u64 {
        self.digests.keys().next_back().copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_is_broken_by_what_breaks_it() {
        let mut oracle = ClusterOracle::default();
        assert_eq!(
            (oracle.leads(3, 1, 1), oracle.leads(3, 1, 1)),
            (Ok(true), Ok(false))
        );
        assert!(oracle.leads(3, 2, 1).is_err() && oracle.leads(4, 2, 1).is_ok());
        assert!(oracle.leads(3, 1, 2).is_err());
        oracle.appended(1, (2, 3), 7, 1).unwrap();
        oracle.appended(2, (2, 3), 7, 1).unwrap();
        assert!(oracle.appended(2, (2, 3), 8, 1).is_err());
        assert!(oracle.appended(2, (2, 3), 7, 2).is_err());
        assert!(oracle.appended(2, (5, 3), 7, 4).is_err());
        oracle.commit_next((3, 7), 4);
        assert_eq!(
            (oracle.owed_to(2, 4), oracle.owed_to(2, 5)),
            (None, Some(3))
        );
        assert_eq!((oracle.commit(), oracle.committed(2)), (2, Some((3, 7))));
        assert!(oracle.agrees(1, 2, (3, 7)).is_ok() && oracle.agrees(1, 2, (3, 8)).is_err());
        oracle.digest(1, 2, 5).unwrap();
        assert!(oracle.digest(2, 2, 6).is_err());
        let members = Membership::sole_voter(1);
        oracle.membership(1, 2, &members).unwrap();
        assert!(oracle.membership(2, 2, &Membership::sole_voter(2)).is_err());
        assert_eq!(oracle.memberships(1..=9).count(), 1);
    }
}
