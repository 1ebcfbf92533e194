//! Users of this machine that may connect to a unix socket. The system asks for the right to write
//! to the socket's file, which its owner may have changed since; the server asks the system who the
//! peer is (`SO_PEERCRED`), and decides by the mode and the group that the file had when it was
//! made.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;

use tokio::net::unix::UCred;

use crate::options::PRIVATE_SOCKET_MODE;

/// The superuser of the machine.
const ROOT: u32 = 0;
/// The right to connect, in the mode of the socket's file.
const GROUP_MAY: u32 = 0o020;
const OTHERS_MAY: u32 = 0o002;

/// Users that may connect to a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SocketAccess {
    /// The mode of the file.
    mode: u32,
    /// The group of the file; `None`: that of the process.
    group: Option<u32>,
    /// The user whose server it is.
    owner: u32,
}

/// A process at the other end of a socket.
#[derive(Debug, Clone, Copy)]
struct Process {
    user: u32,
    group: u32,
    id: Option<i32>,
}

impl SocketAccess {
    /// A socket whose file has this mode and this group.
    pub(crate) fn new(mode: u32, group: Option<u32>) -> Self {
        Self {
            mode,
            group,
            owner: rustix::process::geteuid().as_raw(),
        }
    }

    /// A socket of this user alone.
    pub(crate) fn private() -> Self {
        Self::new(PRIVATE_SOCKET_MODE, None)
    }

    pub(crate) const fn mode(self) -> u32 {
        self.mode
    }

    pub(crate) const fn group(self) -> Option<u32> {
        self.group
    }

    /// With the group that the file has in fact.
    pub(crate) fn of_file(self, about: &Metadata) -> Self {
        Self {
            group: Some(about.gid()),
            ..self
        }
    }

    /// Whether the process at the other end may connect.
    ///
    /// # Errors
    /// Who it is, and who may.
    pub(crate) fn check(self, peer: io::Result<UCred>) -> Result<(), String> {
        let peer = peer.map_err(|error| {
            format!(
                "the system does not say which user is at the other end of the unix socket: {error}"
            )
        })?;
        let peer = Process {
            user: peer.uid(),
            group: peer.gid(),
            id: peer.pid(),
        };
        if self.admits(peer, further_groups) {
            return Ok(());
        }
        let id = peer
            .id
            .map_or(String::new(), |id| format!(" (process {id})"));
        let group = match self.group {
            Some(group) if self.mode & GROUP_MAY != 0 => format!(" and group {group}"),
            _ => String::new(),
        };
        Err(format!(
            "user {}{id} may not use this unix socket, which is for user {}{group}; a socket of unix_socket lets others in by \
             unix_socket_mode and unix_socket_group",
            peer.user, self.owner
        ))
    }

    /// `further_groups` are those of a process besides its first.
    fn admits(self, peer: Process, further_groups: impl FnOnce(i32) -> Vec<u32>) -> bool {
        if peer.user == self.owner || peer.user == ROOT || self.mode & OTHERS_MAY != 0 {
            return true;
        }
        let Some(group) = self.group.filter(|_| self.mode & GROUP_MAY != 0) else {
            return false;
        };
        peer.group == group
            || peer
                .id
                .is_some_and(|id| further_groups(id).contains(&group))
    }
}

/// The groups of a process besides its first. It has not ended, or nobody gets an answer.
fn further_groups(process: i32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mut lines = status.lines();
    let groups = lines.find_map(|line| line.strip_prefix("Groups:"));
    let groups = groups.unwrap_or_default().split_whitespace();
    groups.filter_map(|group| group.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: u32 = 1000;

    fn access(mode: u32, group: Option<u32>) -> SocketAccess {
        SocketAccess {
            mode,
            group,
            owner: OWNER,
        }
    }

    fn process(user: u32, group: u32) -> Process {
        Process {
            user,
            group,
            id: Some(1),
        }
    }

    #[test]
    fn a17_who_may_connect_follows_from_user_group_and_mode() {
        let others = |_| vec![50, 51];
        for (access, user, group, admitted) in [
            (access(0o600, None), OWNER, 1, true),
            (access(0o600, None), ROOT, 0, true),
            (access(0o600, None), 1001, 1, false),
            // The group of a file that the group may not use.
            (access(0o600, Some(1)), 1001, 1, false),
            (access(0o640, Some(1)), 1001, 1, false),
            (access(0o660, Some(1)), 1001, 1, true),
            (access(0o660, Some(51)), 1001, 1, true),
            (access(0o660, Some(52)), 1001, 1, false),
            (access(0o666, Some(52)), 1001, 1, true),
        ] {
            let peer = process(user, group);
            assert_eq!(access.admits(peer, others), admitted, "{access:?} {peer:?}");
        }
        let hidden = Process {
            id: None,
            ..process(1001, 1)
        };
        assert!(!access(0o660, Some(51)).admits(hidden, others));
    }

    #[test]
    fn this_process_may_use_its_own_socket_and_has_groups() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let _guard = runtime.enter();
        let one = tokio::net::UnixStream::from_std(one).unwrap();
        SocketAccess::private().check(one.peer_cred()).unwrap();
        let refused = SocketAccess::private().check(Err(io::ErrorKind::Other.into()));
        assert!(refused.unwrap_err().contains("does not say which user"));
        assert!(further_groups(i32::MAX).is_empty());
    }
}
