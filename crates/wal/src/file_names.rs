//! The names of the files of a data folder, and which names are Baton's.

/// The file that carries the lock.
pub(crate) const LOCK_FILE: &str = "LOCK";
/// The file that says that the folder is a data folder.
pub(crate) const MARKER_FILE: &str = "FORMAT";
/// The file that says what the folder is to a cluster of several servers.
pub(crate) const MEMBER_FILE: &str = "MEMBER";
/// The file of end marks.
pub(crate) const END_MARK_FILE: &str = "SYNCED";
/// The file that says that the folder was made from a backup, and no session may be served yet.
pub(crate) const HOLD_FILE: &str = "RESTORED";
/// The file that says which entries the members of the cluster have acknowledged.
pub(crate) const ACKNOWLEDGED_FILE: &str = "ACKNOWLEDGED";
/// The file that says that another cluster has begun with the folder's data.
pub(crate) const SUPERSEDED_FILE: &str = "SUPERSEDED";
/// The files that are replaced whole.
const WHOLE_FILES: [&str; 6] = [
    MARKER_FILE,
    MEMBER_FILE,
    END_MARK_FILE,
    HOLD_FILE,
    ACKNOWLEDGED_FILE,
    SUPERSEDED_FILE,
];
const SEGMENT_PREFIX: &str = "log-";
const SNAPSHOT_PREFIX: &str = "snap-";
/// Prefix of a snapshot that has come from another server and is not the log's begin yet.
const RECEIVED_PREFIX: &str = "recv-";
/// The end of a file's name while the file is not whole.
pub(crate) const UNFINISHED_SUFFIX: &str = ".tmp";

/// The name of a segment.
pub(crate) fn segment_name(sequence: u64) -> String {
    format!("{SEGMENT_PREFIX}{sequence:016}")
}

/// The sequence in a segment's name; `None` for any other file.
pub(crate) fn segment_sequence(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(SEGMENT_PREFIX)?;
    (digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok())
        .flatten()
}

/// The name of a snapshot.
pub(crate) fn snapshot_name(index: u64, term: u64) -> String {
    point_name(SNAPSHOT_PREFIX, index, term)
}

/// Index and term in a snapshot's name; `None` for any other file.
pub(crate) fn snapshot_point(name: &str) -> Option<(u64, u64)> {
    point_in(SNAPSHOT_PREFIX, name)
}

/// The name of a snapshot from another server, before the log has its mark.
pub(crate) fn received_name(index: u64, term: u64) -> String {
    point_name(RECEIVED_PREFIX, index, term)
}

/// Index and term in the name of a received snapshot; `None` for any other file.
pub(crate) fn received_point(name: &str) -> Option<(u64, u64)> {
    point_in(RECEIVED_PREFIX, name)
}

fn point_name(prefix: &str, index: u64, term: u64) -> String {
    format!("{prefix}{index:016}-{term:010}")
}

fn point_in(prefix: &str, name: &str) -> Option<(u64, u64)> {
    if name.ends_with(UNFINISHED_SUFFIX) {
        return None;
    }
    let (index, term) = name.strip_prefix(prefix)?.split_once('-')?;
    let point = (index.parse().ok()?, term.parse().ok()?);
    (point_name(prefix, point.0, point.1) == name).then_some(point)
}

/// Kind of a file of a data folder, for adding up sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A segment of the log.
    Segment,
    /// A whole snapshot.
    Snapshot,
}

impl FileKind {
    /// The kind of the file with this name; `None` for a file that is neither a segment nor a whole
    /// snapshot.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        let segment = segment_sequence(name).map(|_| Self::Segment);
        segment.or_else(|| snapshot_point(name).map(|_| Self::Snapshot))
    }
}

/// Returns whether this is the name of a file of ours that is not whole yet.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name.strip_suffix(UNFINISHED_SUFFIX).is_some_and(|whole| {
        segment_sequence(whole).is_some()
            || snapshot_point(whole).is_some()
            || received_point(whole).is_some()
            || WHOLE_FILES.contains(&whole)
    })
}

/// Returns whether this is a file of a data folder.
pub(crate) fn is_ours(name: &str) -> bool {
    name == LOCK_FILE
        || WHOLE_FILES.contains(&name)
        || segment_sequence(name).is_some()
        || snapshot_point(name).is_some()
        || received_point(name).is_some()
        || is_unfinished(name)
}
