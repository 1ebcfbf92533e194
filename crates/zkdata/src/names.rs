//! The names of ZooKeeper's files, and which of them make up the newest state. Owns the rule; sees
//! no file.

/// Kind of a file in a data folder, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// The tree after this zxid, or not long after it.
    Snapshot(i64),
    /// Transactions from this zxid on.
    Log(i64),
}

impl FileKind {
    /// The kind of a file of this name; `None` for unknown names.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        snapshot_file_zxid(name)
            .map(Self::Snapshot)
            .or_else(|| log_file_zxid(name).map(Self::Log))
    }
}

fn hex(text: &str) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| i64::from_str_radix(text, 16).ok()).flatten()
}

/// The zxid in the name of a snapshot, compressed or not.
#[must_use]
pub fn snapshot_file_zxid(name: &str) -> Option<i64> {
    let rest = name.strip_prefix("snapshot.")?;
    let rest = rest
        .strip_suffix(".gz")
        .or_else(|| rest.strip_suffix(".snappy"));
    hex(rest.unwrap_or_else(|| name.strip_prefix("snapshot.").unwrap_or_default()))
}

/// The zxid in the name of a transaction log.
#[must_use]
pub fn log_file_zxid(name: &str) -> Option<i64> {
    name.strip_prefix("log.").and_then(hex)
}

/// The snapshots among these names, newest first.
#[must_use]
pub fn snapshots_newest_first(names: &[String]) -> Vec<(i64, String)> {
    let mut found = with_zxids(names, snapshot_file_zxid);
    found.reverse();
    found
}

/// The logs that may hold transactions after `zxid`, oldest first: the last that begins at or
/// before the next one, and all after it.
#[must_use]
pub fn logs_to_read(names: &[String], zxid: i64) -> Vec<(i64, String)> {
    let mut logs = with_zxids(names, log_file_zxid);
    let begun = logs
        .iter()
        .filter(|(first, _)| *first <= zxid.saturating_add(1))
        .count();
    logs.drain(..begun.saturating_sub(1));
    logs
}

fn with_zxids(names: &[String], zxid_of: fn(&str) -> Option<i64>) -> Vec<(i64, String)> {
    let mut found: Vec<(i64, String)> = names
        .iter()
        .filter_map(|name| Some((zxid_of(name)?, name.clone())))
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn names_are_hexadecimal_and_others_are_left_alone() {
        assert_eq!(FileKind::of("snapshot.1f.gz"), Some(FileKind::Snapshot(31)));
        assert_eq!(FileKind::of("snapshot.0"), Some(FileKind::Snapshot(0)));
        assert_eq!(
            FileKind::of("log.100000001"),
            Some(FileKind::Log(0x1_0000_0001))
        );
        for other in [
            "snapshot.",
            "snapshot.x",
            "log",
            "log.-1",
            "log.1.gz",
            "acceptedEpoch",
        ] {
            assert_eq!(FileKind::of(other), None, "{other}");
        }
    }

    #[test]
    fn the_log_that_holds_the_next_transaction_is_the_first_to_read() {
        let names = names(&["log.a", "log.1", "snapshot.9", "log.20", "log.5"]);
        let logs = |zxid| {
            logs_to_read(&names, zxid)
                .into_iter()
                .map(|(first, _)| first)
        };
        assert_eq!(logs(0).collect::<Vec<_>>(), [1, 5, 10, 32]);
        assert_eq!(logs(9).collect::<Vec<_>>(), [10, 32]);
        assert_eq!(logs(8).collect::<Vec<_>>(), [5, 10, 32]);
        assert_eq!(logs(99).collect::<Vec<_>>(), [32]);
    }
}
