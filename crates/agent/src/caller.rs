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

    /// The name of what this caller holds, where it gave none: its program.
    pub(crate) fn program(&self) -> String {
        let comm = |pid| std::fs::read_to_string(format!("/proc/{pid}/comm"));
        let program = self.pid.and_then(|pid| comm(pid).ok()).unwrap_or_default();
        match program.trim() {
            "" => format!("uid {}", self.uid),
            program => program.to_owned(),
        }
    }

    /// The process that others see as the holder; 0 where its number is not known here.
    pub(crate) fn shown_pid(&self) -> u32 {
        self.pid.and_then(|pid| pid.try_into().ok()).unwrap_or(0)
    }
}
