//! Knowledge of one server's log: entries that its disk must give back, promises to others, entries
//! that its folder has lost.

use std::collections::BTreeMap;

use baton_consensus::{EntryKind, Membership, MembershipChange};
use baton_peers::handshake::LocalServer;
use baton_server::simulation::MemberView;
use baton_wal::testing::FaultStorage;
use baton_wal::{Entry, Recovered};

use super::bug::SeededBug;
use super::image::{LogImage, Written};
use super::members;

/// A copy of a folder.
pub(super) struct FolderCopy {
    pub(super) disk: FaultStorage,
    pub(super) image: LogImage,
    pub(super) incarnation: u128,
}

/// The newest committed entry, and the newest term, that handshakes have shown to a process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ShownPosition {
    pub(super) index: u64,
    pub(super) term: u64,
}

impl ShownPosition {
    /// Position of a server that describes itself so, whether or not it does by a seeded bug.
    pub(super) fn by(local: &LocalServer) -> Self {
        Self {
            index: local.proof.commit_index,
            term: local.term,
        }
    }
}

/// A vote, for the judgement of what it elects.
#[derive(Clone, Copy, Debug)]
pub(super) struct CastVote {
    pub(super) shown: ShownPosition,
    /// Whether the voter's folder lacked entries or votes of before.
    pub(super) is_forgetful: bool,
}

/// Entries that a server had committed when rolled-back folders elected a leader without them.
pub(super) struct KeptCommit {
    pub(super) id: u64,
    pub(super) life: u64,
    pub(super) index: u64,
    pub(super) term: u64,
}

/// The log of one server. What is not said to be of its process outlives that.
#[derive(Default)]
pub(super) struct ServerLog {
    /// Image that the disk must give back.
    pub(super) image: LogImage,
    /// Other states that it may give back, if the process ended within a write.
    pub(super) candidates: Vec<LogImage>,
    /// Images of this server on disks that are gone.
    pub(super) lost: Vec<LogImage>,
    /// Entries that it has acknowledged to others: index and term.
    pub(super) acknowledged: BTreeMap<u64, u64>,
    /// Term, and vote in it, that others know of.
    pub(super) promised: (u64, u64),
    /// The newest entry that it had before its folder was rolled back, until it has received that
    /// again.
    pub(super) forgotten: Option<u64>,
    /// Up to this term it may have given votes that its folder does not have.
    pub(super) forgotten_term: u64,
    pub(super) was_rolled_back: bool,
    pub(super) copy: Option<FolderCopy>,
    /// Entries as it last had them, and those that were replaced by others (B20).
    pub(super) entries: BTreeMap<u64, Entry>,
    pub(super) replaced: BTreeMap<u64, Entry>,
    /// The membership that a restart takes over, and the entry up to which it contains all changes
    /// (B17, B18).
    pub(super) belief: Option<(Membership, u64)>,
    /// Newest change of the members that the process was handed (B17).
    pub(super) news: u64,
    /// Log of the process as it will be once everything handed out is stored, and the steps to
    /// there.
    pub(super) log: LogImage,
    pub(super) pending: Vec<Written>,
    /// Last committed entry of the process that was compared.
    pub(super) compared: u64,
    /// Positions that others have shown to the process, and what it finds out by its next turn.
    pub(super) shown: ShownPosition,
    pub(super) next_shown: ShownPosition,
    /// View of the newest turn.
    pub(super) view: MemberView,
}

impl ServerLog {
    /// The log of a folder that has only the snapshot that the cluster is born with.
    pub(super) fn born() -> Self {
        let mut log = Self::default();
        let (index, term) = (crate::birth::BORN_INDEX, crate::birth::BORN_TERM);
        log.image.write(&Written::Installed { index, term });
        log.image.write(&Written::HardState { term, vote: 0 });
        log
    }

    /// The process has ended, within a write if that `may_be_torn`.
    pub(super) fn ended(&mut self, may_be_torn: bool) {
        self.candidates.clear();
        let mut image = self.image.clone();
        for step in self.pending.drain(..) {
            image.write(&step);
            if may_be_torn {
                self.candidates.push(image.clone());
            }
        }
    }

    /// Whether a write may have been cut off.
    pub(super) fn may_be_torn(&self) -> bool {
        !self.candidates.is_empty()
    }

    /// Whether an entry is durable here, was so before a folder was lost, or may be so where a
    /// write was cut off: what follows from a sync leaves before the end of the log is marked.
    pub(super) fn is_durable(&self, index: u64, term: u64) -> bool {
        let images = std::iter::once(&self.image).chain(&self.lost);
        let mut images = images.chain(&self.candidates);
        images.any(|image| image.has(index, term))
    }

    /// Whether its folder may lack entries, or votes of this term, that others rely on.
    pub(super) fn forgets(&self, term: u64) -> bool {
        self.forgotten.is_some() || term <= self.forgotten_term
    }

    /// Whether term and vote of this term are in the log, or on their way to it.
    pub(super) fn has_stored(&self, term: u64) -> bool {
        let mut pending = self.pending.iter();
        self.log.term == term && !pending.any(|step| matches!(step, Written::HardState { .. }))
    }

    /// Term and vote that others know of, and entries that they count on, outlive every end.
    pub(super) fn kept_promises(&self, id: u64) -> Result<(), String> {
        let image = &self.image;
        let (term, vote) = self.promised;
        if image.term < term || (image.term == term && vote != 0 && image.vote != vote) {
            return Err(format!(
                "server {id} has promised term {term} and its vote for {vote}, and starts with term {} and vote {}",
                image.term, image.vote
            ));
        }
        let mut acknowledged = self.acknowledged.iter();
        match acknowledged.find(|(index, term)| !image.has(**index, **term)) {
            Some((index, term)) => Err(format!(
                "server {id} has acknowledged entry {index} of term {term}, and starts with a log that ends at {:?}",
                image.position()
            )),
            None => Ok(()),
        }
    }

    /// The members that a restart takes over by mistake: of entries that are not committed (B17),
    /// or at once (B18).
    pub(super) fn take_over(
        &mut self,
        found: &mut Recovered,
        bug: Option<SeededBug>,
        known: &Membership,
    ) {
        if bug == Some(SeededBug::B17) {
            let mut now = known.clone();
            for entry in found.entries.iter().filter(|it| it.index > found.commit) {
                if entry.kind == EntryKind::Configuration.as_byte()
                    && let Ok(change) = MembershipChange::decode(&entry.payload)
                {
                    now = members::after(&now, &change);
                    self.belief = Some((now.clone(), entry.index));
                }
            }
        }
        if let (Some((membership, _)), Some(info)) = (&self.belief, &mut found.snapshot) {
            info.meta.membership = membership.encode();
        }
    }
}
