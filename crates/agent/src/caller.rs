//! The caller behind a connection: a process of this machine, as the kernel knows it, or an
//! identity that a server has admitted. Owns which of them own the same sessions and guards.

use std::sync::{Arc, OnceLock};

use baton::Config;
use baton::session::Transport;
use tokio::net::UnixStream;

/// The sender of a request, as an extension of it.
#[derive(Clone)]
pub struct Caller(Sender);

#[derive(Clone)]
enum Sender {
    Process {
        uid: u32,
        /// `None` where the process is outside of this process's PID namespace.
        pid: Option<i32>,
        /// Read once for a connection.
        program: Arc<OnceLock<String>>,
    },
    Identity {
        key: Arc<str>,
        name: Arc<str>,
        transport: Arc<dyn Transport>,
    },
}

/// Owner of sessions and of what is held in them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Owner {
    User(u32),
    Identity(Arc<str>),
}

impl Caller {
    /// A caller that a server has admitted. Callers with the same `key` share sessions and guards;
    /// `name` is what others see, and `transport` connects to the server with the caller's
    /// identity.
    #[must_use]
    pub fn admitted(key: &str, name: &str, transport: Arc<dyn Transport>) -> Self {
        Self(Sender::Identity {
            key: key.into(),
            name: name.into(),
            transport,
        })
    }

    /// Returns the peer of a unix socket.
    pub(crate) fn of(stream: &UnixStream) -> std::io::Result<Self> {
        let peer = stream.peer_cred()?;
        Ok(Self::process(peer.uid(), peer.pid()))
    }

    pub(crate) fn process(uid: u32, pid: Option<i32>) -> Self {
        Self(Sender::Process {
            uid,
            pid,
            program: Arc::default(),
        })
    }

    pub(crate) fn owner(&self) -> Owner {
        match &self.0 {
            Sender::Process { uid, .. } => Owner::User(*uid),
            Sender::Identity { key, .. } => Owner::Identity(Arc::clone(key)),
        }
    }

    /// Whether this user of the machine has connected.
    pub(crate) fn is_user(&self, user: u32) -> bool {
        matches!(self.0, Sender::Process { uid, .. } if uid == user)
    }

    /// The settings of a session of this caller.
    pub(crate) fn settings(&self, config: Config) -> Config {
        match &self.0 {
            Sender::Process { .. } => config,
            Sender::Identity { transport, .. } => config.transport(Arc::clone(transport)),
        }
    }

    /// The name of what this caller holds, where it gave none: its program, or its identity.
    pub(crate) fn program(&self) -> String {
        match &self.0 {
            Sender::Process { uid, pid, program } => {
                let read = || {
                    let comm = |pid| std::fs::read_to_string(format!("/proc/{pid}/comm"));
                    let program = pid.and_then(|pid| comm(pid).ok()).unwrap_or_default();
                    match program.trim() {
                        "" => format!("uid {uid}"),
                        program => program.to_owned(),
                    }
                };
                program.get_or_init(read).clone()
            }
            Sender::Identity { name, .. } => name.to_string(),
        }
    }

    /// The process that others see as the holder; 0 where its number is not known here.
    pub(crate) fn shown_pid(&self) -> u32 {
        match &self.0 {
            Sender::Process { pid, .. } => pid.and_then(|pid| pid.try_into().ok()).unwrap_or(0),
            Sender::Identity { .. } => 0,
        }
    }
}
