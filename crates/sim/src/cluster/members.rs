//! The effect of a membership change, computed beside the engine, which seeded bugs go around; who
//! can decide.

use baton_consensus::{Change, Membership, MembershipChange};

/// The membership after a change that was accepted.
pub(super) fn after(before: &Membership, change: &MembershipChange) -> Membership {
    let mut now = before.clone();
    if change.changes.is_empty() {
        now.outgoing.clear();
        let next = std::mem::take(&mut now.learners_next);
        now.learners.extend(next);
    } else {
        now.outgoing.clone_from(&before.voters);
        for part in &change.changes {
            let id = part.id();
            now.learners.retain(|known| *known != id);
            let voted = before.voters.contains(&id);
            match part {
                Change::AddVoter(_) => {
                    if !voted {
                        now.voters.push(id);
                    }
                }
                Change::AddLearner(_) => {
                    now.voters.retain(|known| *known != id);
                    if voted {
                        now.learners_next.push(id);
                    } else {
                        now.learners.push(id);
                    }
                }
                Change::Remove(_) => now.voters.retain(|known| *known != id),
            }
            if let Change::AddVoter(member) | Change::AddLearner(member) = part {
                now.members.retain(|known| known.id != id);
                now.members.push(member.clone());
            }
        }
    }
    tidy(&mut now);
    now
}

fn tidy(membership: &mut Membership) {
    membership.voters.sort_unstable();
    membership.learners.sort_unstable();
    membership.learners_next.sort_unstable();
    let mut members = std::mem::take(&mut membership.members);
    members.retain(|member| membership.contains(member.id));
    members.sort_by_key(|member| member.id);
    membership.members = members;
}

/// Whether those for which `has` says yes can decide alone.
pub(super) fn is_quorum(membership: &Membership, has: impl Fn(u64) -> bool) -> bool {
    let majority = |voters: &[u64]| {
        let count = voters.iter().filter(|id| has(**id)).count();
        voters.is_empty() || 2 * count > voters.len()
    };
    !membership.voters.is_empty() && majority(&membership.voters) && majority(&membership.outgoing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_joint_configuration_needs_both_majorities() {
        let joint = Membership {
            voters: vec![1, 2, 4],
            outgoing: vec![1, 2, 3],
            ..Membership::default()
        };
        let has = |ids: &'static [u64]| is_quorum(&joint, |id| ids.contains(&id));
        assert!(has(&[1, 2]) && has(&[1, 3, 4]) && !has(&[1, 4]) && !has(&[1, 3]));
        assert!(!is_quorum(&Membership::default(), |_| true));
    }
}
