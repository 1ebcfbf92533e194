//! Sockets that listen before the server starts, because its parent process has opened them:
//! systemd does so for a service with a socket unit. Connections that come while the server starts,
//! or starts again, wait in them.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

/// Sockets that listen already, see [`Options::inherited`](crate::Options::inherited). Clones share
/// them: a server that starts takes those whose address or path it is to listen on.
#[derive(Clone, Default)]
pub struct InheritedSockets(Arc<Mutex<Open>>);

#[derive(Default)]
struct Open {
    tcp: Vec<(SocketAddr, TcpListener)>,
    unix: Vec<(PathBuf, UnixListener)>,
}

impl fmt::Debug for InheritedSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.0.lock();
        f.debug_list()
            .entries(open.tcp.iter().map(|(address, _)| address))
            .entries(open.unix.iter().map(|(path, _)| path))
            .finish()
    }
}

impl InheritedSockets {
    /// Adds a TCP socket that listens. Returns its address: name it in
    /// [`Options::listen`](crate::Options::listen) or another setting, so that it is used.
    ///
    /// # Errors
    /// What the system says of the socket.
    pub fn add_tcp(&self, listener: TcpListener) -> io::Result<SocketAddr> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        self.0.lock().tcp.push((address, listener));
        Ok(address)
    }

    /// Adds a unix socket that listens. Returns its path: name it in
    /// [`Options::unix_sockets`](crate::Options::unix_sockets), so that it is used. Who may connect
    /// is decided by the mode and the group of its file.
    ///
    /// # Errors
    /// What the system says of the socket, or that it has no path.
    pub fn add_unix(&self, listener: UnixListener) -> io::Result<PathBuf> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let path = address.as_pathname().map(Path::to_owned);
        let path = path.ok_or_else(|| {
            let what = "it has no path in the file system";
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })?;
        self.0.lock().unix.push((path.clone(), listener));
        Ok(path)
    }

    pub(crate) fn take_tcp(&self, address: &str) -> Option<TcpListener> {
        let address: SocketAddr = address.parse().ok()?;
        let tcp = &mut self.0.lock().tcp;
        let at = tcp.iter().position(|(own, _)| *own == address)?;
        Some(tcp.swap_remove(at).1)
    }

    pub(crate) fn take_unix(&self, path: &Path) -> Option<UnixListener> {
        let unix = &mut self.0.lock().unix;
        let at = unix.iter().position(|(own, _)| own == path)?;
        Some(unix.swap_remove(at).1)
    }

    pub(crate) fn has_unix(&self, path: &Path) -> bool {
        self.0.lock().unix.iter().any(|(own, _)| own == path)
    }
}
