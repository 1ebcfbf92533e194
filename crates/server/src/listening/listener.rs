//! Listening sockets, TCP and unix, of clients and of HTTP: binding them, and the file of a unix
//! socket. The file has its mode before anybody can connect. A socket file that nobody listens on
//! any more is replaced; one that is in use never is.

use std::fmt;
use std::fs::Metadata;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use rustix::fs::Mode;
use tokio::net::{TcpListener, UnixListener};

use crate::error::StartError;
use crate::listening::socket_access::SocketAccess;
use crate::options::BACKLOG;
use crate::options::inherited::InheritedSockets;

/// A socket that listens.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        access: SocketAccess,
        /// Held for its drop; an inherited socket's file is not this server's.
        _file: Option<SocketFile>,
    },
}

/// A unix socket's file, removed with the listener unless another file has replaced it.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Listens on `HOST:PORT`, with an inherited socket where there is one. Needs a tokio runtime.
pub(crate) async fn tcp(
    address: &str,
    inherited: &InheritedSockets,
) -> Result<(TcpListener, SocketAddr), StartError> {
    let Some(open) = inherited.take_tcp(address) else {
        let is_unresolved = |error: &StartError| match error {
            StartError::Listen { source, .. } => is_unresolved(source),
            _ => false,
        };
        return once_resolved(address, is_unresolved, || bind(address)).await;
    };
    let taken = || -> io::Result<(TcpListener, SocketAddr)> {
        let local = open.local_addr()?;
        Ok((TcpListener::from_std(open)?, local))
    };
    taken().map_err(|source| StartError::Listen {
        address: address.to_owned(),
        source,
    })
}

/// Pause between two attempts to resolve a name.
const RESOLVE_PAUSE: Duration = Duration::from_secs(1);
/// Attempts between two lines about it.
const RESOLVES_PER_LINE: u32 = 60;

/// Whether a name had no address: it may have one later, when the DNS server answers again.
pub(crate) fn is_unresolved(error: &io::Error) -> bool {
    // The resolver's failures have no number of the system's.
    error.raw_os_error().is_none()
        && !matches!(
            error.kind(),
            io::ErrorKind::InvalidInput | io::ErrorKind::AddrNotAvailable
        )
}

/// Binds to an address of this server, again and again while its name is not resolved. A restart
/// would have to wait for the same.
pub(crate) async fn once_resolved<T, E: fmt::Display, F: Future<Output = Result<T, E>>>(
    address: &str,
    is_unresolved: impl Fn(&E) -> bool,
    mut bind: impl FnMut() -> F,
) -> Result<T, E> {
    let mut failures = 0_u32;
    loop {
        let error = match bind().await {
            Err(error) if is_unresolved(&error) => error,
            outcome => return outcome,
        };
        if failures.is_multiple_of(RESOLVES_PER_LINE) {
            tracing::warn!(
                address,
                "waiting until the name of an own address is resolved; check the name and the DNS server: {error}"
            );
        }
        failures += 1;
        tokio::time::sleep(RESOLVE_PAUSE).await;
    }
}

/// Binds `HOST:PORT` and listens. The host `*` is every address: of IPv6 and
/// IPv4, or of IPv4 alone where there is no IPv6.
pub(crate) async fn bind(address: &str) -> Result<(TcpListener, SocketAddr), StartError> {
    let refused = |source| StartError::Listen {
        address: address.to_owned(),
        source,
    };
    if let Some(port) = address.strip_prefix("*:") {
        let port = port
            .parse::<u16>()
            .map_err(|_| refused(io::Error::new(io::ErrorKind::InvalidInput, "no such port")))?;
        let every = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        return match listen(every, Some(false)) {
            Err(error) if is_without_ipv6(&error) => {
                listen((Ipv4Addr::UNSPECIFIED, port).into(), None).map_err(refused)
            }
            outcome => outcome.map_err(refused),
        };
    }
    let mut addresses = tokio::net::lookup_host(address).await.map_err(refused)?;
    let first = addresses
        .next()
        .ok_or_else(|| refused(io::ErrorKind::AddrNotAvailable.into()))?;
    listen(first, None).map_err(refused)
}

/// Whether a socket of IPv6 failed because the system has no IPv6.
fn is_without_ipv6(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let absent = [
        Errno::AFNOSUPPORT,
        Errno::ADDRNOTAVAIL,
        Errno::PROTONOSUPPORT,
    ];
    absent
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// `only_v6`: whether a socket of IPv6 takes no connections of IPv4; `None` leaves that to the
/// system.
fn listen(at: SocketAddr, only_v6: Option<bool>) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(at),
        socket2::Type::STREAM,
        None,
    )?;
    if let Some(only) = only_v6 {
        socket.set_only_v6(only)?;
    }
    // A port whose last connections are still fading may be taken; one that is listened on may not.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    let listener = TcpListener::from_std(socket.into())?;
    let local = listener.local_addr()?;
    Ok((listener, local))
}

/// The address as it is when the socket is of IPv4: a socket for both shows such a peer as
/// `::ffff:10.0.0.1`.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Whether a unix socket can be made at this path: its folder is there, and no living server has
/// it. Returns whether a socket file that nobody listens on any more is there.
///
/// # Errors
/// [`StartError::UnixSocket`] says what is in the way.
pub(crate) fn check_unix(path: &Path) -> Result<bool, StartError> {
    let refused = |source| StartError::UnixSocket {
        path: path.to_owned(),
        source,
    };
    let other = |kind, what: String| Err(refused(io::Error::new(kind, what)));
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    match std::fs::metadata(folder) {
        Ok(about) if about.is_dir() => {}
        Ok(_) => {
            let what = format!("{} is not a folder", folder.display());
            return other(io::ErrorKind::NotADirectory, what);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let what = format!("the folder {} does not exist", folder.display());
            return other(io::ErrorKind::NotFound, what);
        }
        Err(error) => return Err(refused(error)),
    }
    let Ok(file) = std::fs::symlink_metadata(path) else {
        return Ok(false);
    };
    if !file.file_type().is_socket() {
        let what = "a file that is not a socket is there".to_owned();
        return other(io::ErrorKind::AlreadyExists, what);
    }
    match connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(refused(error)),
        _ => {
            let what = "a running server listens there".to_owned();
            other(io::ErrorKind::AddrInUse, what)
        }
    }
}

/// Connects without waiting: a server whose backlog is full is a server that listens.
fn connect(path: &Path) -> io::Result<()> {
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&socket2::SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        outcome => outcome,
    }
}

/// The inherited unix socket with this path, if there is one. Needs a tokio runtime.
///
/// # Errors
/// What the system says of it.
pub(crate) fn inherited_unix(
    path: &Path,
    inherited: &InheritedSockets,
) -> Result<Option<Listener>, StartError> {
    let Some(open) = inherited.take_unix(path) else {
        return Ok(None);
    };
    let taken = || -> io::Result<Listener> {
        let about = std::fs::symlink_metadata(path)?;
        Ok(Listener::Unix {
            listener: UnixListener::from_std(open)?,
            access: SocketAccess::new(about.mode() & 0o777, Some(about.gid())),
            _file: None,
        })
    };
    let refused = |source| StartError::UnixSocket {
        path: path.to_owned(),
        source,
    };
    taken().map(Some).map_err(refused)
}

/// Listens on a unix socket whose file has this mode and group. Needs a tokio runtime.
///
/// # Errors
/// As [`check_unix`], and for what the system refuses.
pub(crate) fn unix(path: &Path, access: SocketAccess) -> Result<Listener, StartError> {
    let refused = |source| StartError::UnixSocket {
        path: path.to_owned(),
        source,
    };
    if check_unix(path)? {
        std::fs::remove_file(path).map_err(refused)?;
    }
    let hidden = hidden_name(path);
    let _ = std::fs::remove_file(&hidden);
    let bind = || -> io::Result<(UnixListener, Metadata)> {
        let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        // Bound under another name, and listening only after the change of mode: nobody can connect
        // with the mode of the umask.
        socket.bind(&socket2::SockAddr::unix(&hidden)?)?;
        if let Some(group) = access.group() {
            chown(&hidden, None, Some(group)).map_err(|error| {
                let what = format!(
                    "its group cannot be {group}, of which this user has to be a member ({error})"
                );
                io::Error::new(error.kind(), what)
            })?;
        }
        rustix::fs::chmod(&hidden, Mode::from_raw_mode(access.mode()))?;
        let about = std::fs::symlink_metadata(&hidden)?;
        socket.listen(BACKLOG)?;
        let listener = UnixListener::from_std(std::os::fd::OwnedFd::from(socket).into())?;
        std::fs::rename(&hidden, path)?;
        Ok((listener, about))
    };
    match bind() {
        Ok((listener, about)) => Ok(Listener::Unix {
            listener,
            access: access.of_file(&about),
            _file: Some(SocketFile {
                path: path.to_owned(),
                inode: about.ino(),
            }),
        }),
        Err(error) => {
            let _ = std::fs::remove_file(&hidden);
            Err(refused(error))
        }
    }
}

/// Temporary path of a new socket: in the same folder, under a name that no other
/// server of this machine has. It is short, because the system bounds the length of a socket's
/// path.
fn hidden_name(path: &Path) -> PathBuf {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Relaxed);
    path.with_file_name(format!(".{:x}.{number:x}", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_name_that_is_not_resolved_yet_is_waited_for_and_nothing_else_is() {
        let outage = || io::Error::other("failed to lookup address information");
        let mut attempts = 0;
        let bound = once_resolved("zk1:1", is_unresolved, || {
            attempts += 1;
            let is_back = attempts > 200;
            async move { if is_back { Ok(7) } else { Err(outage()) } }
        });
        assert_eq!(bound.await.unwrap(), 7);
        assert_eq!(attempts, 201);
        for error in [
            io::Error::from(io::ErrorKind::InvalidInput),
            io::Error::from_raw_os_error(rustix::io::Errno::ADDRINUSE.raw_os_error()),
        ] {
            let kind = error.kind();
            let mut error = Some(error);
            let refused: io::Result<()> = once_resolved("zk1:1", is_unresolved, || {
                let error = error.take().unwrap();
                async move { Err(error) }
            })
            .await;
            assert_eq!(refused.unwrap_err().kind(), kind);
        }
    }
}
