//! Members of the cluster, and the changes of them.
//!
//! Owns the bytes of both: the membership record of a snapshot and the payload of a configuration
//! entry (`docs/internals/format.md`). Never decides whether a change is wise:
//! [`Membership::check`] says whether it is sound.

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::{ChangeError, ConsensusError};

/// One server, as the cluster knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its id; never 0.
    pub id: u64,
    /// Drawn when its data folder was made. A server with this id and another incarnation has lost
    /// its data, and must not vote.
    pub incarnation: u128,
    /// Address at which it listens, as its configuration line has it. The consensus does not read
    /// it.
    pub address: String,
}

/// The members of the cluster. Stored with every snapshot.
///
/// While `outgoing` is not empty the configuration is *joint*: a majority of `voters` and a
/// majority of `outgoing` are needed for each decision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Membership {
    /// Nodes that vote.
    pub voters: Vec<u64>,
    /// Nodes that voted before the change that is under way; empty when none is.
    pub outgoing: Vec<u64>,
    /// Nodes that receive the log and do not vote.
    pub learners: Vec<u64>,
    /// Nodes that become learners when the change that is under way is complete.
    pub learners_next: Vec<u64>,
    /// One record a node. Empty in what a server that stands alone has written.
    pub members: Vec<Member>,
}

/// One part of a [`MembershipChange`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The member votes from now on; it must be a learner already, or vote and be at another
    /// address.
    AddVoter(Member),
    /// The member receives the log and does not vote; a voter stops voting by this.
    AddLearner(Member),
    /// The node with this id is not a member any more.
    Remove(u64),
}

/// Payload of a configuration entry: it enters a joint configuration, or leaves it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MembershipChange {
    /// The parts; none of them for the entry that leaves the joint configuration.
    pub changes: Vec<Change>,
    /// Bytes of the caller that are applied with the change.
    pub context: Bytes,
}

impl Membership {
    const ALONE: u8 = 1;
    const FORMAT: u8 = 2;

    /// One voter and nobody else.
    pub fn sole_voter(id: u64) -> Membership {
        Membership {
            voters: vec![id],
            ..Membership::default()
        }
    }

    /// Returns whether a change is under way.
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Returns whether this node votes, in either half of a joint configuration.
    pub fn votes(&self, id: u64) -> bool {
        self.voters.contains(&id) || self.outgoing.contains(&id)
    }

    /// Returns whether this node decides by itself.
    pub fn is_sole_voter(&self, id: u64) -> bool {
        self.voters == [id] && !self.is_joint()
    }

    /// Returns whether this node belongs to the cluster in any part.
    pub fn contains(&self, id: u64) -> bool {
        self.keeps(id) || self.outgoing.contains(&id)
    }

    /// Returns whether this node belongs to the cluster once the change that is under way is
    /// complete.
    pub fn keeps(&self, id: u64) -> bool {
        let stay = [&self.voters, &self.learners, &self.learners_next];
        stay.iter().any(|ids| ids.contains(&id))
    }

    /// The bytes of a snapshot's membership field (`docs/internals/format.md`).
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        let count = |len: usize| u16::try_from(len).unwrap_or(u16::MAX);
        if !self.is_joint() && self.learners_next.is_empty() && self.members.is_empty() {
            out.put_slice(&[Self::ALONE, 0, 0, 0]);
            out.put_u16_le(count(self.voters.len()));
            out.put_u16_le(count(self.learners.len()));
            for id in self.voters.iter().chain(&self.learners) {
                out.put_u64_le(*id);
            }
            return out.freeze();
        }
        out.put_slice(&[Self::FORMAT, 0, 0, 0]);
        let lists = [
            &self.voters,
            &self.outgoing,
            &self.learners,
            &self.learners_next,
        ];
        for list in lists {
            out.put_u16_le(count(list.len()));
        }
        out.put_u16_le(count(self.members.len()));
        out.put_u16_le(0);
        for id in lists.into_iter().flatten() {
            out.put_u64_le(*id);
        }
        for member in &self.members {
            member.put(&mut out);
        }
        out.freeze()
    }

    /// Reads what [`Membership::encode`] wrote.
    ///
    /// # Errors
    /// [`ConsensusError::MalformedMembership`] when the bytes are not that.
    pub fn decode(bytes: &[u8]) -> Result<Membership, ConsensusError> {
        Self::read(&mut Input(bytes)).ok_or(ConsensusError::MalformedMembership)
    }

    fn read(input: &mut Input<'_>) -> Option<Membership> {
        let [format, 0, 0, 0] = input.take::<4>()? else {
            return None;
        };
        let mut membership = Membership::default();
        match format {
            Self::ALONE => {
                let (voters, learners) = (input.u16()?, input.u16()?);
                membership.voters = input.ids(voters)?;
                membership.learners = input.ids(learners)?;
            }
            Self::FORMAT => {
                let counts = [input.u16()?, input.u16()?, input.u16()?, input.u16()?];
                let [voters, outgoing, learners, learners_next] = counts;
                let members = input.u16()?;
                if input.u16()? != 0 {
                    return None;
                }
                membership.voters = input.ids(voters)?;
                membership.outgoing = input.ids(outgoing)?;
                membership.learners = input.ids(learners)?;
                membership.learners_next = input.ids(learners_next)?;
                for _ in 0..members {
                    membership.members.push(Member::read(input)?);
                }
            }
            _ => return None,
        }
        input.0.is_empty().then_some(membership)
    }

    /// Returns whether a leader may propose this change now. A change passes through a joint
    /// configuration, so the quorums of any two configurations that follow one another meet,
    /// however many voters come and go. Whether enough of the new voters are there, the caller has
    /// to know.
    ///
    /// # Errors
    /// [`ChangeError`] names the part that is not sound.
    pub fn check(&self, change: &MembershipChange) -> Result<(), ChangeError> {
        if change.changes.is_empty() {
            return if self.is_joint() {
                Ok(())
            } else {
                Err(ChangeError::NotJoint)
            };
        }
        if self.is_joint() {
            return Err(ChangeError::InProgress);
        }
        let mut seen: Vec<u64> = Vec::new();
        let (mut added, mut removed) = (0_usize, 0_usize);
        for part in &change.changes {
            let id = part.id();
            if id == 0 {
                return Err(ChangeError::ZeroId);
            }
            if seen.contains(&id) {
                return Err(ChangeError::Twice { id });
            }
            seen.push(id);
            self.check_incarnation(part)?;
            let votes = self.voters.contains(&id);
            match part {
                Change::AddVoter(new) if votes => {
                    if !self.is_elsewhere(new) {
                        return Err(ChangeError::AlreadyVotes { id });
                    }
                }
                Change::AddVoter(_) if !self.learners.contains(&id) => {
                    return Err(ChangeError::NotALearner { id });
                }
                Change::AddVoter(_) => added += 1,
                Change::Remove(_) if !self.contains(id) => {
                    return Err(ChangeError::Unknown { id });
                }
                Change::AddLearner(_) | Change::Remove(_) => removed += usize::from(votes),
            }
        }
        if self.voters.len() + added == removed {
            return Err(ChangeError::LastVoter);
        }
        Ok(())
    }

    /// Returns whether this member is known at another address: it moves then, with its data.
    fn is_elsewhere(&self, moved: &Member) -> bool {
        let known = self.members.iter().find(|known| known.id == moved.id);
        known.is_some_and(|known| known.address != moved.address)
    }

    /// A member keeps its incarnation: the engine would go on counting what the one before had
    /// (R17). A new one comes after the removal.
    fn check_incarnation(&self, part: &Change) -> Result<(), ChangeError> {
        let (Change::AddVoter(new) | Change::AddLearner(new)) = part else {
            return Ok(());
        };
        let same = |known: &Member| known.id != new.id || known.incarnation == new.incarnation;
        if self.members.iter().all(same) {
            Ok(())
        } else {
            Err(ChangeError::OtherIncarnation { id: new.id })
        }
    }

    /// Notes the members after a change. The lists of ids are the engine's affair.
    pub(crate) fn note(&mut self, change: &MembershipChange) {
        for part in &change.changes {
            if let Change::AddVoter(member) | Change::AddLearner(member) = part {
                self.members.retain(|known| known.id != member.id);
                self.members.push(member.clone());
            }
        }
        self.members.sort_by_key(|member| member.id);
    }
}

impl Change {
    const ADD_VOTER: u8 = 1;
    const ADD_LEARNER: u8 = 2;
    const REMOVE: u8 = 3;

    /// The node that this is about.
    pub fn id(&self) -> u64 {
        match self {
            Change::AddVoter(member) | Change::AddLearner(member) => member.id,
            Change::Remove(id) => *id,
        }
    }
}

impl MembershipChange {
    const FORMAT: u8 = 1;

    /// The change that leaves a joint configuration.
    pub fn leave_joint() -> MembershipChange {
        MembershipChange::default()
    }

    /// The payload of a configuration entry (`docs/internals/format.md`).
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_slice(&[Self::FORMAT, 0]);
        out.put_u16_le(u16::try_from(self.changes.len()).unwrap_or(u16::MAX));
        for part in &self.changes {
            match part {
                Change::AddVoter(member) => {
                    out.put_u8(Change::ADD_VOTER);
                    member.put(&mut out);
                }
                Change::AddLearner(member) => {
                    out.put_u8(Change::ADD_LEARNER);
                    member.put(&mut out);
                }
                Change::Remove(id) => {
                    out.put_u8(Change::REMOVE);
                    out.put_u64_le(*id);
                }
            }
        }
        out.put_slice(&self.context);
        out.freeze()
    }

    /// Reads what [`MembershipChange::encode`] wrote.
    ///
    /// # Errors
    /// [`ConsensusError::MalformedMembership`] when the bytes are not that.
    pub fn decode(bytes: &[u8]) -> Result<MembershipChange, ConsensusError> {
        Self::read(&mut Input(bytes)).ok_or(ConsensusError::MalformedMembership)
    }

    fn read(input: &mut Input<'_>) -> Option<MembershipChange> {
        let [Self::FORMAT, 0] = input.take::<2>()? else {
            return None;
        };
        let mut changes = Vec::new();
        for _ in 0..input.u16()? {
            let [kind] = input.take::<1>()?;
            changes.push(match kind {
                Change::ADD_VOTER => Change::AddVoter(Member::read(input)?),
                Change::ADD_LEARNER => Change::AddLearner(Member::read(input)?),
                Change::REMOVE => Change::Remove(input.u64()?),
                _ => return None,
            });
        }
        Some(MembershipChange {
            changes,
            context: Bytes::copy_from_slice(input.0),
        })
    }
}

impl Member {
    fn put(&self, out: &mut BytesMut) {
        let mut end = self.address.len().min(usize::from(u16::MAX));
        while !self.address.is_char_boundary(end) {
            end -= 1;
        }
        let address = self.address.as_bytes().get(..end).unwrap_or_default();
        out.put_u64_le(self.id);
        out.put_u128_le(self.incarnation);
        out.put_u16_le(u16::try_from(end).unwrap_or(u16::MAX));
        out.put_slice(address);
    }

    fn read(input: &mut Input<'_>) -> Option<Member> {
        let id = input.u64()?;
        let incarnation = u128::from_le_bytes(input.take::<16>()?);
        let length = input.u16()?;
        let (address, rest) = input.0.split_at_checked(usize::from(length))?;
        input.0 = rest;
        Some(Member {
            id,
            incarnation,
            address: std::str::from_utf8(address).ok()?.to_owned(),
        })
    }
}

/// Bytes that are read from the front.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// The count is not trusted: nothing is reserved for it.
    fn ids(&mut self, count: u16) -> Option<Vec<u64>> {
        (0..count).map(|_| self.u64()).collect()
    }
}
