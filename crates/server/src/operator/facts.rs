//! Facts that several four-letter words and HTTP commands show: version, folder, sessions and when
//! they expire. Only reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use baton_tree::{EphemeralCursor, SessionInfo};
use baton_wal::FileKind;

use crate::connections::conn::Conn;
use crate::options::StorageChoice;
use crate::report::listings::{self, Refusal, SLICE_BYTES, SLICE_ITEMS, SizeLimit};
use crate::state::ServerState;
use crate::time::calendar::moment;
use crate::watch::table::WatchedPath;

/// Bytes of one thing in a listing besides its text, about.
const THING_BYTES: usize = 64;

/// The version of ZooKeeper whose clients find what they expect, Baton's own, and the time of the
/// build: parsers of ZooKeeper's line look for what is behind the comma.
pub(crate) fn version() -> String {
    let seconds = env!("BATON_BUILT_SECONDS").parse().unwrap_or(0);
    let at = moment(seconds);
    format!(
        "3.9.5-baton-{}, built on {}-{:02}-{:02} {:02}:{:02} UTC",
        env!("CARGO_PKG_VERSION"),
        at.year,
        at.month,
        at.day,
        at.second / 3600,
        at.second / 60 % 60,
    )
}

/// The data folder, as the operator named it.
pub(crate) fn folder(state: &ServerState) -> String {
    match &state.options.storage {
        StorageChoice::Memory => "(memory)".to_owned(),
        StorageChoice::Folder(path) => path.display().to_string(),
    }
}

/// The port of the first TCP listener, as it was asked for.
pub(crate) fn client_port(state: &ServerState) -> i64 {
    let listen = state.options.listen.first();
    listen
        .and_then(|listen| listen.rsplit(':').next()?.parse().ok())
        .unwrap_or(-1)
}

/// Bytes of the files in the data folder: snapshots, and the log.
pub(crate) fn file_bytes(state: &ServerState) -> (u64, u64) {
    let StorageChoice::Folder(path) = &state.options.storage else {
        return (0, 0);
    };
    let Ok(files) = std::fs::read_dir(path) else {
        return (0, 0);
    };
    let mut bytes = (0, 0);
    for file in files.filter_map(Result::ok) {
        let length = file.metadata().map_or(0, |data| data.len());
        match FileKind::of(&file.file_name().to_string_lossy()) {
            Some(FileKind::Snapshot) => bytes.0 += length,
            Some(FileKind::Segment) => bytes.1 += length,
            None => {}
        }
    }
    bytes
}

/// Bytes of the last, the smallest and the largest answer; -1 before the first, as ZooKeeper has
/// it.
pub(crate) fn reply_sizes(state: &ServerState) -> (i64, i64, i64) {
    state.stats.requests.sizes.signed()
}

/// The first name of a path: `team` of `/team/queue`.
pub(crate) fn namespace(path: &str) -> &str {
    path.split('/').nth(1).unwrap_or_default()
}

/// Time until the first session of these connections expires if it sends nothing more; 0 if
/// none has a session.
pub(crate) fn least_time_left_ms(state: &ServerState, connections: &[Arc<Conn>]) -> u64 {
    let now_ms = state.time.now_ms();
    let attached = connections.iter().filter_map(|conn| conn.attached());
    let left = attached.map(|attached| {
        let due_ms = attached
            .touch
            .last_ms()
            .saturating_add(attached.timeout_ms.into());
        due_ms.saturating_sub(now_ms)
    });
    // One that is being ended has no last touch.
    left.filter(|left| *left <= u64::from(u32::MAX))
        .min()
        .unwrap_or(0)
}

/// The wall clock at a moment of the server's time, past or future.
pub(crate) fn wall_ms(state: &ServerState, at_ms: u64) -> i64 {
    let now = i64::try_from(state.time.now_ms()).unwrap_or(i64::MAX);
    let at = i64::try_from(at_ms).unwrap_or(i64::MAX);
    state.time.wall_ms().saturating_add(at.saturating_sub(now))
}

/// Sessions and connections by the time at which they end if they send nothing more.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    /// Milliseconds since 1970, rounded up to the session clock's tick.
    pub(crate) attached: BTreeMap<i64, Vec<Arc<Conn>>>,
    /// Sessions whose client is away: each ends within its timeout.
    pub(crate) away: Vec<i64>,
    /// Connections without a session.
    pub(crate) nameless: Vec<Arc<Conn>>,
}

pub(crate) fn ends(state: &ServerState, size: &mut SizeLimit) -> Result<Ends, Refusal> {
    let tick = i64::try_from(state.options.tick.as_millis())
        .unwrap_or(i64::MAX)
        .max(1);
    let mut ends = Ends::default();
    let mut attached_ids = std::collections::HashSet::new();
    for conn in listings::slice(|| state.all_connections()) {
        size.count(THING_BYTES)?;
        let Some(attached) = conn.attached() else {
            ends.nameless.push(conn);
            continue;
        };
        attached_ids.insert(attached.session);
        let due = attached
            .touch
            .last_ms()
            .saturating_add(attached.timeout_ms.into());
        let bucket = (wall_ms(state, due) / tick)
            .saturating_add(1)
            .saturating_mul(tick);
        ends.attached.entry(bucket).or_default().push(conn);
    }
    each_session(state, |session| {
        if !attached_ids.contains(&session.id) {
            ends.away.push(session.id);
        }
    });
    size.count(ends.away.len() * THING_BYTES)?;
    Ok(ends)
}

/// Hands over every session, in slices.
pub(crate) fn each_session(state: &ServerState, mut hand: impl FnMut(SessionInfo)) {
    let mut after = None;
    loop {
        let slice: Vec<SessionInfo> = listings::slice(|| {
            let tree = state.tree.read();
            let sessions = tree.sessions_after(after);
            sessions.take(SLICE_ITEMS).collect()
        });
        let Some(last) = slice.last() else {
            return;
        };
        after = Some(last.id);
        slice.into_iter().for_each(&mut hand);
    }
}

/// Sessions with ephemerals, and these.
pub(crate) fn ephemerals(
    state: &ServerState,
    size: &mut SizeLimit,
) -> Result<BTreeMap<i64, Vec<String>>, Refusal> {
    let mut cursor = EphemeralCursor::default();
    let mut owners = BTreeMap::<i64, Vec<String>>::new();
    let mut more = true;
    while more {
        let mut slice = Vec::new();
        more = listings::slice(|| {
            let tree = state.tree.read();
            let (items, bytes) = (SLICE_ITEMS, SLICE_BYTES);
            tree.next_ephemerals(&mut cursor, items, bytes, &mut slice)
        });
        for (session, path) in slice {
            size.count(THING_BYTES + path.len())?;
            owners.entry(session).or_default().push(path);
        }
    }
    for paths in owners.values_mut() {
        paths.sort_unstable();
    }
    Ok(owners)
}

/// Watched paths with the sessions that watch them, in order of path.
pub(crate) fn watches_by_path(
    state: &ServerState,
    size: &mut SizeLimit,
) -> Result<Vec<WatchedPath>, Refusal> {
    let mut all = Vec::new();
    let mut from = Some(0);
    while let Some(slot) = from {
        let mut slice = Vec::new();
        from = listings::slice(|| {
            state
                .watches
                .lock()
                .next_watched(slot, (SLICE_ITEMS, SLICE_BYTES), &mut slice)
        });
        for watched in &slice {
            size.count(watched.path.len() + (1 + watched.sessions.len()) * THING_BYTES)?;
        }
        all.append(&mut slice);
    }
    all.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(all)
}

/// Sessions with the paths that they watch.
pub(crate) fn watches_by_session(
    state: &ServerState,
    size: &mut SizeLimit,
) -> Result<BTreeMap<i64, Vec<Box<str>>>, Refusal> {
    let mut by_session = BTreeMap::<i64, Vec<Box<str>>>::new();
    for watched in watches_by_path(state, size)? {
        // A path is in the answer once for each of its sessions.
        let more = watched.sessions.len().saturating_sub(1);
        size.count(more.saturating_mul(watched.path.len()))?;
        for session in watched.sessions {
            by_session
                .entry(session)
                .or_default()
                .push(watched.path.clone());
        }
    }
    Ok(by_session)
}

/// Every connection, in order of id.
pub(crate) fn connections(
    state: &ServerState,
    size: &mut SizeLimit,
) -> Result<Vec<Arc<Conn>>, Refusal> {
    let all = listings::slice(|| state.all_connections());
    // The entry of one is a line of some 200 bytes, or an object of twice as many.
    size.count(all.len() * 400)?;
    Ok(all)
}

/// The answer to `envi`, without what is Java's.
pub(crate) fn environment() -> Vec<(&'static str, String)> {
    let host = rustix::system::uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let folder = std::env::current_dir().unwrap_or_default();
    vec![
        ("zookeeper.version", version()),
        ("baton.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("host.name", text(host.nodename())),
        ("os.name", text(host.sysname())),
        ("os.arch", text(host.machine())),
        ("os.version", text(host.release())),
        ("user.dir", folder.display().to_string()),
    ]
}

/// Number of files that the process has open; 0 where the system does not say. Linux has it as the
/// folder's size since 6.2; listing a file takes 3 µs, and each connection is one.
pub(crate) fn open_files() -> u64 {
    let folder = "/proc/self/fd";
    match std::fs::metadata(folder).map_or(0, |folder| folder.len()) {
        0 => std::fs::read_dir(folder).map_or(0, |files| files.count() as u64),
        size => size,
    }
}

/// Number of files that the process may open; `None`: no limit.
pub(crate) fn open_files_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// ZooKeeper's name for the last operation of a connection.
pub(crate) fn last_op(conn: &Conn) -> &'static str {
    use std::sync::atomic::Ordering::Relaxed;

    use baton_proto::OpCode;
    if conn.stats.last_response_ms.load(Relaxed) == 0 && conn.stats.sent.load(Relaxed) == 0 {
        return "NA";
    }
    let op = conn.stats.last_op.load(Relaxed) as u32 as i32;
    let Ok(op) = OpCode::try_from(op) else {
        return "NA";
    };
    match op {
        // No request has come yet: the answer was that of the session's opening.
        OpCode::Notification | OpCode::CreateSession => "SESS",
        OpCode::Ping => "PING",
        OpCode::Auth => "AUTH",
        OpCode::Multi => "MULT",
        OpCode::MultiRead => "MLTR",
        OpCode::Create | OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl => "CREA",
        OpCode::Delete | OpCode::DeleteContainer => "DELE",
        OpCode::SetData => "SETD",
        OpCode::Reconfig => "RECO",
        OpCode::SetAcl => "SETA",
        OpCode::CloseSession => "CLOS",
        OpCode::Sync => "SYNC",
        OpCode::Check => "CHEC",
        OpCode::Exists => "EXIS",
        OpCode::GetData => "GETD",
        OpCode::SetWatches => "SETW",
        OpCode::SetWatches2 => "STW2",
        OpCode::AddWatch => "ADDW",
        OpCode::GetAcl => "GETA",
        OpCode::GetChildren | OpCode::GetChildren2 => "GETC",
        OpCode::GetAllChildrenNumber => "GETACN",
        OpCode::CheckWatches => "CHKW",
        OpCode::RemoveWatches => "REMW",
        OpCode::WhoAmI => "HOMI",
        OpCode::GetEphemerals => "GETE",
        OpCode::Sasl => "SASL",
    }
}

/// A moment as ZooKeeper writes it: `Sat Nov 21 16:01:54 UTC 2026`.
pub(crate) fn date(unix_ms: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let at = moment(unix_ms.div_euclid(1000));
    let name = |names: &[&'static str], place: i64| {
        usize::try_from(place)
            .ok()
            .and_then(|place| names.get(place).copied())
            .unwrap_or("?")
    };
    format!(
        "{} {} {:02} {:02}:{:02}:{:02} UTC {}",
        name(&DAYS, at.days.rem_euclid(7)),
        name(&MONTHS, at.month - 1),
        at.day,
        at.second / 3600,
        at.second / 60 % 60,
        at.second % 60,
        at.year,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, written) in [
            (0, "Thu Jan 01 00:00:00 UTC 1970"),
            (951_782_399, "Mon Feb 28 23:59:59 UTC 2000"),
            (951_782_400, "Tue Feb 29 00:00:00 UTC 2000"),
            (951_868_800, "Wed Mar 01 00:00:00 UTC 2000"),
            (1_795_276_914, "Sat Nov 21 16:01:54 UTC 2026"),
            (-1, "Wed Dec 31 23:59:59 UTC 1969"),
        ] {
            assert_eq!(date(seconds * 1000), written);
        }
    }
    #[test]
    fn open_files_are_as_many_as_are_listed() {
        let before = open_files();
        let held: Vec<_> = (0..1_000)
            .map(|_| std::fs::File::open("/dev/null").unwrap())
            .collect();
        let listed = std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64);
        // Other tests open and close files meanwhile.
        assert!(open_files().abs_diff(listed) < 300, "{listed}");
        assert!(open_files() > before + 700 || listed == 0);
        drop(held);
    }
}
