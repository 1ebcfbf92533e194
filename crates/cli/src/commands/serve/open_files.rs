//! Number of files that the process may open: each connection is one.

use baton_server::Options;
use rustix::process::{Resource, getrlimit, setrlimit};

/// Files besides connections of clients: of the data folder, of other servers, of HTTP.
const OTHER_FILES: u64 = 256;

/// Takes what the system allows this process: what it begins with is often far less.
pub(super) fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // Refused, it stays as it is, and the next check says what follows from that.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Warns where the limit is reached before that of connections.
pub(super) fn check_limit(options: &Options) {
    let limit = getrlimit(Resource::Nofile).current;
    if let Some((open_files, needed)) = too_few(limit, options.max_connections as u64) {
        tracing::warn!(
            open_files,
            needed,
            max_connections = options.max_connections,
            "the limit of open files is reached before that of connections, and then clients are refused at \
             random; raise it (LimitNOFILE= of the systemd unit, ulimit -Hn) or lower max_connections"
        );
    }
}

/// The limit of open files and how many are needed, if these are more.
fn too_few(limit: Option<u64>, connections: u64) -> Option<(u64, u64)> {
    let needed = connections.saturating_add(OTHER_FILES);
    let limit = limit?;
    // Without a limit on connections, that of files is the only one.
    (connections > 0 && limit < needed).then_some((limit, needed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_has_to_be_enough_for_the_connections_and_the_files_besides() {
        assert_eq!(too_few(Some(1024), 10_000), Some((1024, 10_256)));
        assert_eq!(too_few(Some(10_255), 10_000), Some((10_255, 10_256)));
        assert_eq!(too_few(Some(10_256), 10_000), None);
        assert_eq!(too_few(None, usize::MAX as u64), None);
        assert_eq!(too_few(Some(64), 0), None);
    }
}
