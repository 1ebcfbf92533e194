//! Turns a restored state into one that a server can serve (`docs/internals/backup.md`): its
//! sessions end, and zxids go on beyond every one that can have been given since. The caller passes
//! the time.

use baton_tree::{
    BatchBuilder, CloseReason, Command, Identity, Restore, RestoreError, Tree, Znode,
};
use baton_wal::{BackupReader, WalError};

use crate::progress::Progress;
use crate::time::calendar;

/// 2020-01-01, in milliseconds since 1970. No server of Baton has run before.
const FLOOR_BEGINS_MS: i64 = 1_577_836_800_000;
/// Zxids by which the floor rises in a millisecond: more than a server can give.
const FLOOR_PER_MS: i64 = 1 << 11;
/// Zxids that are left out in any case, as by a forced recovery (R20).
const LEAP: i64 = 1 << 32;
/// The highest zxid beyond which a restored server may go on: half of all are left for what
/// follows.
const HIGHEST: i64 = i64::MAX / 2;
/// Tolerance for a clock of this machine that is behind the time in a backup.
const CLOCK_TOLERANCE_MS: i64 = 5 * 60 * 1000;

/// Outcome of making a state from the past one that can be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoredState {
    /// The zxid of the newest change in the backup.
    pub backup_zxid: i64,
    /// The zxid beyond which the restored server goes on.
    pub zxid: i64,
    /// Sessions that were open in the backup, and have ended.
    pub sessions: usize,
    /// Their ephemerals, which are gone.
    pub ephemerals: usize,
    /// The longest timeout among these sessions, in milliseconds.
    pub longest_timeout_ms: u64,
}

/// A backup cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnreadableBackup {
    /// The file is damaged, foreign, of another version, or cannot be read.
    #[error(transparent)]
    File(#[from] WalError),
    /// The content of the chunks is not a state that this version can read.
    #[error("{0}; use another backup")]
    Content(RestoreError),
}

impl From<RestoreError> for UnreadableBackup {
    fn from(error: RestoreError) -> Self {
        Self::Content(error)
    }
}

/// The state in a backup, read to its end. Each byte is held against its checksum, and the state
/// against its digest. `progress` counts the bytes of its chunks.
///
/// # Errors
/// [`UnreadableBackup`].
pub fn rebuild(reader: &mut BackupReader, progress: &Progress) -> Result<Tree, UnreadableBackup> {
    let mut restore = Restore::new();
    while let Some(chunk) = reader.next_chunk()? {
        restore.chunk(&chunk.payload)?;
        progress.add(chunk.payload.len());
    }
    Ok(restore.finish()?)
}

/// A moment as RFC 3339 writes it, to the millisecond: `2026-11-21T16:01:54.007Z`.
#[must_use]
pub fn timestamp(unix_ms: i64) -> String {
    calendar::timestamp(unix_ms)
}

/// A state from the past cannot be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoringError {
    /// The clock of this machine is wrong, or that of the server was.
    #[error(
        "the backup has changes made {seconds} s after the present time of this machine's clock, by which fencing tokens \
         are kept from repeating: set the clock, then start again; if it is right, those of the servers were wrong, and \
         --clock-is-right gives these changes the present time"
    )]
    ClockBehind {
        /// Difference of the clocks.
        seconds: i64,
    },
    /// Zxids would run out.
    #[error(
        "zxids cannot go on beyond 0x{beyond:x}: name a lower zxid, or use a backup of another server"
    )]
    ZxidTooHigh {
        /// The zxid beyond which they were to go on.
        beyond: i64,
    },
}

/// A zxid that is higher than every one that a server has given until this moment, unless it has
/// given more than [`FLOOR_PER_MS`] a millisecond on average since 2020.
fn floor(now_ms: i64) -> i64 {
    let elapsed_ms = now_ms.saturating_sub(FLOOR_BEGINS_MS).max(0);
    elapsed_ms.saturating_mul(FLOOR_PER_MS)
}

/// Clock that counts where a backup has changes of a time that is still to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockTrust {
    /// Nobody knows: such a backup is refused.
    Unknown,
    /// This machine's, as the operator says: those changes get the present time.
    ThisMachine,
}

/// Ends all sessions of `tree` with their ephemerals, empties its list of servers, and has zxids go
/// on beyond all that can have been given until `now_ms`, and beyond `above`. `taken_ms` is when
/// the state was saved, as far as that is known.
///
/// # Errors
/// [`RestoringError`]; `tree` is then of no use.
pub fn begin_new_cluster(
    tree: &mut Tree,
    taken_ms: i64,
    now_ms: i64,
    above: i64,
    trust: ClockTrust,
) -> Result<RestoredState, RestoringError> {
    let backup_zxid = tree.zxid();
    let newest = newest_change(tree);
    // Before sessions end, each of which takes a zxid: none is left behind the highest.
    let least = backup_zxid.max(newest.zxid).saturating_add(LEAP);
    if least > HIGHEST {
        return Err(RestoringError::ZxidTooHigh { beyond: least });
    }
    let newest_ms = match trust {
        ClockTrust::Unknown => newest.time_ms.max(taken_ms).max(tree.time_ms()),
        ClockTrust::ThisMachine => {
            tree.reset_time(now_ms);
            now_ms
        }
    };
    let behind_ms = newest_ms.saturating_sub(now_ms);
    if behind_ms > CLOCK_TOLERANCE_MS {
        let seconds = behind_ms / 1000;
        return Err(RestoringError::ClockBehind { seconds });
    }
    let ephemerals = tree.ephemeral_count();
    let open: Vec<_> = tree.sessions().collect();
    let longest = open.iter().map(|session| session.timeout_ms).max();
    let nobody = Identity::anonymous();
    let mut builder = BatchBuilder::new(tree.level(), now_ms.max(newest_ms));
    for session in &open {
        let command = Command::CloseSession {
            session_id: session.id,
            reason: CloseReason::Expired,
        };
        builder.begin(session.id, &nobody, None);
        builder.push(0, command);
    }
    if !builder.is_empty() {
        let payload = builder.finish();
        if let Ok(batch) = baton_tree::Batch::decode(&payload) {
            tree.apply_batch(&batch, &mut (), |_, _| {});
        }
    }
    while let Some(session_id) = tree.unfinished_end() {
        let reason = CloseReason::Expired;
        let command = Command::CloseSession { session_id, reason };
        tree.apply(now_ms.max(newest_ms), session_id, &nobody, command, &mut ());
    }
    debug_assert_eq!(tree.sessions().len(), 0, "each was closed by a command");
    let beyond = tree
        .zxid()
        .saturating_add(LEAP)
        .max(least)
        .max(floor(now_ms.max(newest_ms)))
        .max(above);
    if beyond > HIGHEST {
        return Err(RestoringError::ZxidTooHigh { beyond });
    }
    tree.begin_new_cluster(beyond);
    Ok(RestoredState {
        backup_zxid,
        zxid: tree.zxid(),
        sessions: open.len(),
        ephemerals,
        longest_timeout_ms: longest.map_or(0, |timeout| u64::try_from(timeout).unwrap_or(0)),
    })
}

/// The newest changes of znodes.
#[derive(Debug, Clone, Copy, Default)]
struct Newest {
    /// When one was made last.
    time_ms: i64,
    /// The highest zxid of one. In a snapshot of ZooKeeper's it may be above that of the whole.
    zxid: i64,
}

fn newest_change(tree: &Tree) -> Newest {
    let mut newest = Newest::default();
    let visited = tree.visit_znodes(|znode: &Znode<'_>| {
        newest.time_ms = newest.time_ms.max(znode.ctime).max(znode.mtime);
        let zxid = znode.czxid.max(znode.mzxid).max(znode.pzxid);
        newest.zxid = newest.zxid.max(zxid);
        Ok::<(), std::convert::Infallible>(())
    });
    match visited {
        Ok(()) => newest,
    }
}

#[cfg(test)]
mod tests {
    use baton_tree::{Assembly, FormatLevel};

    use super::*;

    const HOUR_MS: i64 = 3_600_000;
    /// 2026-11-24.
    const NOW_MS: i64 = 1_795_478_400_000;

    fn tree(zxid: i64, mtime: i64) -> Tree {
        changed_by(zxid, mtime, 1)
    }

    /// With this zxid of the last change of each znode.
    fn changed_by(zxid: i64, mtime: i64, mzxid: i64) -> Tree {
        let mut assembly = Assembly::new();
        assembly.session(7, [1; 16], 30_000).unwrap();
        assembly.session(8, [2; 16], 90_000).unwrap();
        for (path, owner) in [
            ("/", 0),
            ("/lock", 0),
            ("/lock/a", 7),
            ("/lock/b", 8),
            ("/kept", 0),
        ] {
            let znode = Znode {
                path,
                owner,
                data: Some(b"x"),
                acl: &[],
                czxid: 1,
                mzxid,
                pzxid: 1,
                ctime: 0,
                mtime,
                version: 0,
                aversion: 0,
                creates: 2,
            };
            assembly.znode(&znode).unwrap();
        }
        assembly.finish(zxid).unwrap()
    }

    #[test]
    fn sessions_and_their_ephemerals_end_and_everything_else_stays() {
        let mut tree = tree(9, NOW_MS);
        let restored =
            begin_new_cluster(&mut tree, NOW_MS, NOW_MS, 0, ClockTrust::Unknown).unwrap();
        let expected = (9, 2, 2, 90_000);
        let found = (
            restored.backup_zxid,
            restored.sessions,
            restored.ephemerals,
            restored.longest_timeout_ms,
        );
        assert_eq!(found, expected);
        assert_eq!((tree.sessions().len(), tree.ephemeral_count()), (0, 0));
        let anyone = Identity::anonymous();
        assert!(tree.exists("/lock/a", &anyone).is_err());
        assert_eq!(tree.get_data("/kept", &anyone).unwrap().0, Some(&b"x"[..]));
        assert_eq!(tree.level(), FormatLevel::Initial);
        assert_eq!(tree.zxid(), restored.zxid);
    }

    /// The one who holds a token of the first restore would pass for the one of the second.
    #[test]
    fn r42_no_zxid_is_given_again_however_often_and_in_which_order_backups_are_restored() {
        let restored = |zxid, now_ms| {
            let mut tree = tree(zxid, 0);
            begin_new_cluster(&mut tree, 0, now_ms, 0, ClockTrust::Unknown)
                .unwrap()
                .zxid
        };
        // The server whose backup this is has given a million zxids a second since.
        let mut given = 100 + 3600 * 1_000_000;
        for (seconds, backup) in [
            (3600, 100),
            (3601, 100),
            (3602, 50),
            (7200, 100),
            (32_400_000, 1),
        ] {
            let begins = restored(backup, NOW_MS + seconds * 1000);
            assert!(begins > given, "{seconds}: {begins} {given}");
            // As fast as it can until the next restore, a second later or more.
            given = begins + 1000 * FLOOR_PER_MS - 1;
        }
        // What is written as a number in JSON is exact up to here.
        assert!(given < 1 << 53, "{given}");
    }

    #[test]
    fn r42_a_zxid_of_another_history_is_left_behind_where_the_operator_names_it() {
        let mut tree = tree(9, 0);
        let above = floor(NOW_MS) + 77;
        let restored = begin_new_cluster(&mut tree, 0, NOW_MS, above, ClockTrust::Unknown).unwrap();
        assert_eq!(restored.zxid, above);
        let mut tree = self::tree(9, 0);
        let refused =
            begin_new_cluster(&mut tree, 0, NOW_MS, i64::MAX - 1, ClockTrust::Unknown).unwrap_err();
        assert!(refused.to_string().contains("name a lower zxid"));
    }

    /// The end of a session takes a zxid, and there is none above the highest.
    #[test]
    fn r42_a_backup_whose_zxids_leave_no_room_is_refused_before_any_is_given() {
        for (zxid, mzxid) in [(i64::MAX, 1), (i64::MAX - 1, 1), (9, i64::MAX - 1)] {
            let mut tree = changed_by(zxid, 0, mzxid);
            let refused =
                begin_new_cluster(&mut tree, 0, NOW_MS, 0, ClockTrust::Unknown).unwrap_err();
            assert_eq!(refused, RestoringError::ZxidTooHigh { beyond: i64::MAX });
            assert_eq!(tree.zxid(), zxid);
        }
        let mut tree = changed_by(9, 0, 1 << 60);
        let restored = begin_new_cluster(&mut tree, 0, NOW_MS, 0, ClockTrust::Unknown).unwrap();
        assert_eq!(restored.zxid, (1 << 60) + LEAP);
    }

    #[test]
    fn r42_a_clock_that_is_behind_the_backup_is_refused() {
        for (taken_ms, mtime) in [(NOW_MS + HOUR_MS, 0), (0, NOW_MS + HOUR_MS)] {
            let mut tree = tree(9, mtime);
            let refused = begin_new_cluster(&mut tree, taken_ms, NOW_MS, 0, ClockTrust::Unknown);
            let expected = Err(RestoringError::ClockBehind { seconds: 3600 });
            assert_eq!(refused, expected);
        }
        let mut tree = tree(9, NOW_MS + 1000);
        assert!(
            begin_new_cluster(&mut tree, NOW_MS + 2000, NOW_MS, 0, ClockTrust::Unknown).is_ok()
        );
    }

    /// The clock of a server was ten years ahead, or its ensemble's time was; and nobody can say
    /// whose was right but the operator.
    #[test]
    fn r42_a_backup_of_a_time_that_was_ahead_is_restored_by_a_clock_that_is_said_to_be_right() {
        let ahead_ms = NOW_MS + 10 * 365 * 24 * HOUR_MS;
        for (taken_ms, mtime) in [(NOW_MS - HOUR_MS, ahead_ms), (ahead_ms, ahead_ms)] {
            let mut tree = tree(9, mtime);
            let refused = begin_new_cluster(&mut tree, taken_ms, NOW_MS, 0, ClockTrust::Unknown);
            let text = refused.unwrap_err().to_string();
            assert!(text.contains("--clock-is-right"), "{text}");
            let mut tree = self::tree(9, mtime);
            let trust = ClockTrust::ThisMachine;
            let restored = begin_new_cluster(&mut tree, taken_ms, NOW_MS, 0, trust).unwrap();
            assert_eq!(newest_change(&tree).time_ms, NOW_MS);
            assert!(tree.time_ms() <= NOW_MS);
            // As a restore of a backup whose time was right, now.
            assert_eq!(restored.zxid, floor(NOW_MS));
        }
    }
}
