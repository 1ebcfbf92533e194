//! The agent's listening socket. Owns who may connect, how many connections there may be, and what
//! a stop does: it releases what is held.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use baton::Config;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::caller::Caller;
use crate::connection::serve;
use crate::routes::router;
use crate::state::Shared;

/// Pause after the system had no file descriptor left for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Settings of an agent.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AgentOptions {
    /// The servers, credentials and leases of the sessions. Its session timeout counts where a
    /// caller asks for none.
    pub config: Config,
    /// The session timeout of callers who ask for none.
    pub session_timeout: Duration,
    /// Connections at a time. A lock that is held is one.
    pub max_connections: usize,
    /// Whether every user of the machine may connect, each with sessions of its own; else the
    /// agent's own user and root.
    pub is_shared: bool,
    /// Time without connections and without holds after which the agent ends; `None`: it stays.
    pub exit_when_idle: Option<Duration>,
}

impl AgentOptions {
    /// The usual settings: a session timeout of 10 s, 20,000 connections, for the agent's own
    /// user, and no end without a signal.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            session_timeout: Duration::from_secs(10),
            max_connections: 20_000,
            is_shared: false,
            exit_when_idle: None,
        }
    }
}

/// Reason why an agent does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Another agent listens there.
    #[error("{}: an agent listens there already; use it, or give another socket", .0.display())]
    Taken(PathBuf),
    /// The socket cannot be made.
    #[error("{}: the socket cannot be made: {cause}; give a folder that you may write to", path.display())]
    Listen {
        /// The socket's path.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
}

/// An agent that listens. Dropping it ends its connections; what they held is released as far as
/// its runtime goes on.
#[derive(Debug)]
pub struct Agent {
    listener: UnixListener,
    socket: Option<BoundSocket>,
    options: AgentOptions,
    shared: Shared,
}

impl Agent {
    /// Listens on a unix socket, which is replaced if nobody listens on it any more. Needs a tokio
    /// runtime.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn bind(path: &Path, options: AgentOptions) -> Result<Self, StartError> {
        let listen = |cause| StartError::Listen {
            path: path.to_owned(),
            cause,
        };
        let listener = match UnixListener::bind(path) {
            Ok(listener) => listener,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if UnixStream::connect(path).await.is_ok() {
                    return Err(StartError::Taken(path.to_owned()));
                }
                let is_socket =
                    std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
                if !is_socket {
                    return Err(listen(error));
                }
                std::fs::remove_file(path).map_err(listen)?;
                UnixListener::bind(path).map_err(listen)?
            }
            Err(error) => return Err(listen(error)),
        };
        let mode = if options.is_shared { 0o666 } else { 0o600 };
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).map_err(listen)?;
        let socket = BoundSocket {
            path: path.to_owned(),
            file: BoundSocket::file_at(path).map_err(listen)?,
        };
        Ok(Self::on(listener, Some(socket), options))
    }

    /// Uses a socket that is open already, as one of systemd's.
    #[must_use]
    pub fn inherit(listener: UnixListener, options: AgentOptions) -> Self {
        Self::on(listener, None, options)
    }

    fn on(listener: UnixListener, socket: Option<BoundSocket>, options: AgentOptions) -> Self {
        let shared = Shared::new(options.config.clone(), options.session_timeout);
        Self {
            listener,
            socket,
            options,
            shared,
        }
    }

    /// Answers callers until `stop`, or until nobody needs the agent. Then releases what is held,
    /// and closes the sessions.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self {
            listener,
            socket,
            options,
            shared,
        } = self;
        let (sessions, holds) = (Arc::clone(&shared.sessions), Arc::clone(&shared.holds));
        let routes = router(shared);
        let places = Arc::new(Semaphore::new(options.max_connections));
        let own = rustix::process::geteuid().as_raw();
        let may_connect =
            |caller: &Caller| options.is_shared || caller.is_user(own) || caller.is_user(0);
        let mut connections = JoinSet::new();
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut stop => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
                () = pause(options.exit_when_idle), if connections.is_empty() => {
                    if holds.count() == 0 {
                        break;
                    }
                    continue;
                }
                accepted = listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "no connection can be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let caller = match Caller::of(&stream) {
                Ok(caller) if may_connect(&caller) => caller,
                _ => continue,
            };
            // Over the bound the connection ends at once.
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                tracing::warn!(
                    connections = options.max_connections,
                    "a connection is refused: the limit on connections is reached"
                );
                continue;
            };
            let routes = routes.clone();
            connections.spawn(async move {
                let _place = place;
                serve(stream, caller, routes).await;
            });
        }
        if let Some(socket) = socket {
            socket.remove();
        }
        connections.shutdown().await;
        sessions.close().await;
    }
}

/// The file of a socket that this agent has made.
#[derive(Debug)]
struct BoundSocket {
    path: PathBuf,
    /// Device and inode.
    file: (u64, u64),
}

impl BoundSocket {
    fn file_at(path: &Path) -> io::Result<(u64, u64)> {
        let file = std::fs::symlink_metadata(path)?;
        Ok((file.dev(), file.ino()))
    }

    /// Removes the file, unless it is gone or another agent's.
    fn remove(&self) {
        if Self::file_at(&self.path).is_ok_and(|file| file == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Resolves after this time; never without one.
async fn pause(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use axum::Extension;
    use axum::body::Body;
    use axum::http::{Request, StatusCode};
    use baton::embedded::Embedded;
    use serde_json::Value;
    use tower::ServiceExt;

    use super::*;
    use crate::sessions::Sessions;

    /// A request of this user to the agent: its status, and the first object of its answer.
    async fn ask(
        shared: &Shared,
        uid: u32,
        method: &str,
        path: &str,
        body: &'static str,
    ) -> (StatusCode, Value, Body) {
        let caller = Caller::process(uid, None);
        let router = router(shared.clone()).layer(Extension(caller));
        let request = Request::builder().method(method).uri(path);
        let response = router
            .oneshot(request.body(Body::from(body)).unwrap())
            .await;
        let response = response.unwrap();
        let status = response.status();
        let mut body = response.into_body();
        let mut first = Vec::new();
        while !first.contains(&b'}') {
            let frame = std::future::poll_fn(|cx| {
                axum::body::HttpBody::poll_frame(std::pin::Pin::new(&mut body), cx)
            });
            let Some(frame) = frame.await else { break };
            first.extend_from_slice(frame.unwrap().data_ref().unwrap());
        }
        (status, serde_json::from_slice(&first).unwrap(), body)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_session_that_nobody_uses_is_closed_and_one_that_holds_something_is_not() {
        let server = Embedded::in_memory().await.unwrap();
        let config = baton::Config::new(&server.connect_string()).unwrap();
        let mut shared = Shared::new(config.clone(), Duration::from_secs(10));
        let sessions = Sessions::new(config, Duration::from_secs(10));
        shared.sessions = Arc::new(sessions.lingering(Duration::from_millis(5)));
        drop(ask(&shared, 1, "POST", "/v1/queue/jobs/put", "{}").await);
        let mut open = Vec::new();
        let requests = [
            ("POST", "/v1/lock/a", ""),
            ("POST", "/v1/elect/b", ""),
            ("POST", "/v1/member/c", r#"{"id": "a"}"#),
            ("GET", "/v1/member/c", ""),
            ("POST", "/v1/queue/jobs/take", ""),
            ("POST", "/v1/hold/d", r#"{"ttl_ms": 600000}"#),
        ];
        for (user, (method, path, body)) in (1..).zip(requests) {
            let (status, _, rest) = ask(&shared, user, method, path, body).await;
            assert_eq!(status, StatusCode::OK, "{path}");
            open.push(rest);
        }
        drop(ask(&shared, 100, "GET", "/v1/counter/e", "").await);
        while shared.sessions.count() > requests.len() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(shared.sessions.count(), requests.len());
        drop(open);
        // The lock that outlives its request.
        while shared.sessions.count() > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(shared.holds.count(), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a73_no_user_sees_or_ends_what_another_one_holds() {
        let server = Embedded::in_memory().await.unwrap();
        let config = baton::Config::new(&server.connect_string()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let options = AgentOptions::new(config);
        let agent = Agent::bind(&folder.path().join("sock"), options).await;
        let shared = agent.unwrap().shared;
        let (status, held, _open) = ask(&shared, 1001, "POST", "/v1/lock/a", "").await;
        assert_eq!((status, &held["event"]), (StatusCode::OK, &"held".into()));
        let guard = held["guard"].as_str().unwrap();
        for action in ["renew", "release"] {
            let path = format!("/v1/guard/{guard}/{action}");
            let (status, other, _) = ask(&shared, 1002, "POST", &path, "").await;
            let none = "/v1/guard/00000000000000000000000000000000/renew";
            let (unknown, _, _) = ask(&shared, 1002, "POST", none, "").await;
            assert_eq!(
                (status, unknown),
                (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND)
            );
            assert_eq!(other["code"], "refused");
        }
        let path = format!("/v1/guard/{guard}/renew");
        let (status, _, _) = ask(&shared, 1001, "POST", &path, "").await;
        assert_eq!(status, StatusCode::OK);
    }
}
