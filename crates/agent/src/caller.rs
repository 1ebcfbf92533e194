//! The user behind a connection, as the kernel knows it.

use tokio::net::UnixStream;

/// The process that has connected, as an extension of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    /// `None` where the process is outside of this process's PID namespace.
    pub(crate) pid: Option<i32>,
}

impl Caller {
    /// Returns the peer of a unix socket.
    pub(crate) fn of(stream: &UnixStream) -> std::io::Result<Self> {
        let peer = stream.peer_cred()?;
        Ok(Self {
            uid: peer.uid(),
            pid: peer.pid(),
        })
    }

    /// The name of what this caller holds, where it gave none: its program and its pid.
    pub(crate) fn label(&self) -> String {
        let Some(pid) = self.pid else {
            return format!("uid {}", self.uid);
        };
        let program = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        match program.trim() {
            "" => format!("pid {pid}"),
            program => format!("{program} (pid {pid})"),
        }
    }
}
