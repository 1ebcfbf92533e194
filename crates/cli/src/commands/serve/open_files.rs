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

/// A default limit on connections that the system does not allow is lowered without a warning down
/// to this.
const MANY_CONNECTIONS: usize = 10_000;

/// Lowers the limit on connections to what the limit of open files allows: a refused client
/// gets the reason, where one for whom there is no file would wait.
pub(super) fn fit_connections(options: &mut Options) {
    let asked = options.max_connections;
    let open_files = getrlimit(Resource::Nofile).current;
    let Some(fitting) = fitting_connections(open_files, asked) else {
        return;
    };
    options.max_connections = fitting;
    if fitting < MANY_CONNECTIONS || asked != Options::default().max_connections {
        tracing::warn!(
            open_files,
            asked,
            max_connections = fitting,
            "the limit of open files allows fewer connections than max_connections, and clients beyond are refused; \
             raise it (LimitNOFILE= of the systemd unit, ulimit -Hn) or lower max_connections"
        );
    }
}

/// The connections for which there are files, if these are fewer than `asked`; 0 asks for no limit
/// but that of files.
fn fitting_connections(open_files: Option<u64>, asked: usize) -> Option<usize> {
    let fitting = open_files?.saturating_sub(OTHER_FILES).max(1);
    let fitting = usize::try_from(fitting).unwrap_or(usize::MAX);
    (asked > fitting).then_some(fitting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_connections_as_files_besides_those_of_the_server() {
        assert_eq!(fitting_connections(Some(1024), 10_000), Some(768));
        assert_eq!(fitting_connections(Some(10_255), 10_000), Some(9999));
        assert_eq!(fitting_connections(Some(10_256), 10_000), None);
        assert_eq!(fitting_connections(None, usize::MAX), None);
        assert_eq!(fitting_connections(Some(64), 0), None);
        assert_eq!(fitting_connections(Some(64), 10), Some(1));
    }
}
