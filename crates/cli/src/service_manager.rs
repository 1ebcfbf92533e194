//! Exchange with a service manager such as systemd: sockets that listen already (`LISTEN_FDS`), and
//! the server's state (`NOTIFY_SOCKET`). Without those variables nothing happens here.

use baton_server::Options;
use listenfd::ListenFd;
use sd_notify::NotifyState;

use crate::exit::Failure;

/// The names of the sockets, separated by `:`; `FileDescriptorName=` of a socket unit.
const NAMES: &str = "LISTEN_FDNAMES";

/// Has the server listen on the sockets that it inherits: for clients, unless their name says for
/// what else, which are the names of the settings `secure_listen`, `http` and `https`.
pub(crate) fn take_sockets(options: &mut Options) -> Result<(), Failure> {
    let names = std::env::var_os(NAMES).unwrap_or_default();
    let names = names.to_string_lossy();
    let mut names = names.split(':');
    let mut sockets = ListenFd::from_env();
    for index in 0..sockets.len() {
        let name = names.next().unwrap_or_default();
        let refused = |error: &dyn std::fmt::Display| {
            Failure::baton(format!(
                "the socket {name:?} (number {} of LISTEN_FDS) cannot be used: {error}; a server takes TCP and unix sockets \
                 that listen for streams (ListenStream=)",
                index + 1
            ))
        };
        if let Ok(Some(listener)) = sockets.take_tcp_listener(index) {
            let address = options.inherited.add_tcp(listener);
            let address = address.map_err(|error| refused(&error))?.to_string();
            let addresses = match name {
                "secure_listen" => &mut options.secure_listen,
                "http" => &mut options.http,
                "https" => &mut options.https,
                _ => &mut options.listen,
            };
            if !addresses.contains(&address) {
                addresses.push(address);
            }
            continue;
        }
        let listener = sockets.take_unix_listener(index);
        let listener = listener.map_err(|error| refused(&error))?;
        let listener = listener.ok_or_else(|| refused(&"it was taken before"))?;
        let path = options.inherited.add_unix(listener);
        let path = path.map_err(|error| refused(&error))?;
        if !options.unix_sockets.contains(&path) {
            options.unix_sockets.push(path);
        }
    }
    Ok(())
}

/// The server answers.
pub(crate) fn is_ready() {
    tell(NotifyState::Ready);
}

/// The server has begun to stop.
pub(crate) fn is_stopping() {
    tell(NotifyState::Stopping);
}

/// A service manager that does not hear it takes the server for one that is still starting.
fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!("cannot reach the service manager at NOTIFY_SOCKET: {error}");
    }
}
