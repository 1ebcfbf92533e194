//! Seeded bugs of a simulated server, by which the simulator shows that it finds them, and the
//! counts of what they did. Nothing of it is in a server that is built without the feature
//! `simulation`.

use std::fmt::Debug;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use baton_consensus::{Effects, Membership, MessageKind, PeerMessage, Role, RoleChange};
use baton_tree::Unapplied;
use parking_lot::Mutex;

/// A known mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerBug {
    /// A command that was sent twice is applied twice.
    AppliesDuplicates,
    /// A command is applied though one before it is missing.
    AppliesAfterGap,
    /// A command of a connection that has lost its session is applied.
    AppliesOfOldAttachment,
    /// A server answers pings without asking the leader.
    AnswersPingsAlone,
    /// The leader answers touches without asking a quorum.
    CountsTouchesAlone,
    /// A new leader ends sessions by what it knew of them when it followed.
    KeepsOldClocks,
    /// A server announces to its clients that reads, too, are answered by the leader.
    AnnouncesThatReadsCount,
    /// A deposed leader has the next one end the sessions that it had decided to end.
    ForwardsItsExpiries,
    /// A follower acknowledges entries before they are synced.
    AcknowledgesUnsynced,
    /// Term and vote are not stored.
    ForgetsVotes,
    /// The leader counts itself before its own disk has the entry.
    CountsItselfUnsynced,
}

/// Observer of a server's turn. Its calls must not call the server.
pub trait CoreObserver: Debug + Send + Sync + 'static {
    /// The consensus hands this out, and none of it is stored or sent yet.
    fn handed_out(&self, effects: &Effects);

    /// The log has found its disk full, and tries again now.
    fn disk_full(&self);
}

/// The cluster as the core of one server sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemberView {
    /// The members.
    pub membership: Membership,
    /// On the leader: the last entry up to which each other member is known to have the log.
    pub matched: Vec<(u64, u64)>,
    /// Whether the server shows that its log lacks committed entries.
    pub shows_gap: bool,
}

/// Commands of the log that were not applied, by the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnappliedCounts {
    /// Another connection owned the session.
    pub moved: u64,
    /// They had been applied before.
    pub duplicates: u64,
    /// A command before them was missing.
    pub after_gap: u64,
}

/// Counts of what changes of the leader have met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeCounts {
    /// Sessions that a leader had decided to end, and did not end because it led no more.
    pub void_expiries: u64,
    /// Pings that waited for an earlier leader's answer, and were sent to the next one.
    pub moved_pings: u64,
    /// Snapshots of other servers that took the place of the state.
    pub installed_snapshots: u64,
}

/// Progress of a server of an ensemble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberProgress {
    /// Role, term and leader, as it knows them.
    pub role: RoleChange,
    /// The newest entry that it has applied.
    pub applied: u64,
    /// The newest entry that it knows to be committed.
    pub commit: u64,
    /// The last entry of its log.
    pub last: u64,
    /// The newest committed entry that its folder is known to have acknowledged and lost.
    pub lost: Option<u64>,
    /// The digest of its tree there.
    pub digest: u64,
    /// The time of the newest entry there, in milliseconds since 1970.
    pub time_ms: i64,
    /// A checksum of the members there; `None` while it knows those of a later entry already,
    /// because it installs a snapshot.
    pub members: Option<u64>,
    /// Whether it is in read-only mode.
    pub is_read_only: bool,
    /// Whether it leads and has applied everything that was committed before its term.
    pub acts_as_leader: bool,
    /// Whether its clocks decide which sessions end.
    pub ends_sessions: bool,
    /// Commands that it has not applied, since it started.
    pub unapplied: UnappliedCounts,
    /// Counts of what changes of the leader have met, since it started.
    pub changes: ChangeCounts,
}

/// A checksum of bytes: FNV-1a, since nobody chooses them with intent.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A server's part in a simulation.
#[derive(Debug, Default)]
pub(crate) struct Simulated {
    /// The mistake that it makes, if any.
    pub(crate) mistake: OnceLock<ServerBug>,
    /// Sees what the consensus hands out.
    pub(crate) observer: OnceLock<Arc<dyn CoreObserver>>,
    /// Changes of the members up to this entry are in the membership of the start already.
    pub(crate) members_taken_over: AtomicU64,
    moved: AtomicU64,
    duplicates: AtomicU64,
    after_gap: AtomicU64,
    void_expiries: AtomicU64,
    moved_pings: AtomicU64,
    installed_snapshots: AtomicU64,
    /// Sessions that have expired, until the simulation asks.
    expired: Mutex<Vec<i64>>,
    /// Sessions whose decided end has become void, until the simulation asks.
    void: Mutex<Vec<i64>>,
    /// Seeded bug: sessions for the next leader to end.
    forwarded: Mutex<Vec<i64>>,
}

impl Simulated {
    /// Counts a command that is not to be applied. Whether it is applied all the same, by mistake.
    pub(crate) fn ignores(&self, why: Unapplied) -> bool {
        let (counter, mistake) = match why {
            Unapplied::SessionMoved => (&self.moved, ServerBug::AppliesOfOldAttachment),
            Unapplied::Duplicate => (&self.duplicates, ServerBug::AppliesDuplicates),
            Unapplied::AfterGap => (&self.after_gap, ServerBug::AppliesAfterGap),
        };
        counter.fetch_add(1, Relaxed);
        self.makes(mistake)
    }

    /// Shows what the consensus hands out, and spoils it by mistake.
    pub(crate) fn hands_out(&self, effects: &mut Effects) {
        if let Some(observer) = self.observer.get() {
            observer.handed_out(effects);
        }
        let early: &[MessageKind] = match self.mistake.get() {
            Some(ServerBug::AcknowledgesUnsynced) => &[MessageKind::AppendResponse],
            Some(ServerBug::ForgetsVotes) => {
                effects.hard_state = None;
                &[MessageKind::Vote, MessageKind::VoteResponse]
            }
            _ => return,
        };
        let is_early = |message: &mut PeerMessage| early.contains(&message.kind);
        let early = effects.send_after_sync.extract_if(.., is_early);
        effects.send_now.extend(early);
    }

    /// The log has found its disk full.
    pub(crate) fn disk_full(&self) {
        if let Some(observer) = self.observer.get() {
            observer.disk_full();
        }
    }

    /// Seeded bug: whether the leader counts itself at once.
    pub(crate) fn counts_itself(&self, role: Role) -> bool {
        role == Role::Leader && self.makes(ServerBug::CountsItselfUnsynced)
    }

    /// Seeded bug: whether the change of this entry is in force already.
    pub(crate) fn has_taken_over(&self, index: u64) -> bool {
        index <= self.members_taken_over.load(Relaxed)
    }

    /// Whether the server makes this mistake.
    pub(crate) fn makes(&self, mistake: ServerBug) -> bool {
        self.mistake.get() == Some(&mistake)
    }

    /// Another server may lead: counts what that meets.
    pub(crate) fn leader_changed(&self, void_expiries: &[i64], moved_pings: u64) {
        let count = u64::try_from(void_expiries.len()).unwrap_or(u64::MAX);
        self.void_expiries.fetch_add(count, Relaxed);
        self.moved_pings.fetch_add(moved_pings, Relaxed);
        self.void.lock().extend_from_slice(void_expiries);
        if self.makes(ServerBug::ForwardsItsExpiries) {
            self.forwarded.lock().extend_from_slice(void_expiries);
        }
    }

    /// Seeded bug: takes the sessions for the leader to end.
    pub(crate) fn take_forwarded(&self) -> Vec<i64> {
        std::mem::take(&mut *self.forwarded.lock())
    }

    /// Notes that a session has expired.
    pub(crate) fn expired(&self, session: i64) {
        self.expired.lock().push(session);
    }

    pub(crate) fn take_expired(&self) -> Vec<i64> {
        std::mem::take(&mut *self.expired.lock())
    }

    pub(crate) fn take_void(&self) -> Vec<i64> {
        std::mem::take(&mut *self.void.lock())
    }

    /// Notes that a snapshot of another server has taken the place of the state.
    pub(crate) fn installed_snapshot(&self) {
        self.installed_snapshots.fetch_add(1, Relaxed);
    }

    pub(crate) fn changes(&self) -> ChangeCounts {
        ChangeCounts {
            void_expiries: self.void_expiries.load(Relaxed),
            moved_pings: self.moved_pings.load(Relaxed),
            installed_snapshots: self.installed_snapshots.load(Relaxed),
        }
    }

    pub(crate) fn unapplied(&self) -> UnappliedCounts {
        UnappliedCounts {
            moved: self.moved.load(Relaxed),
            duplicates: self.duplicates.load(Relaxed),
            after_gap: self.after_gap.load(Relaxed),
        }
    }
}
