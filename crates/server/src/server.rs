//! A running server: what its owner can ask of it, and how it ends.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use baton_peers::net::Peers;
use baton_tls::ServerTls;
use baton_tree::Tree;
use baton_wal::{DirStorage, FolderError, Hold, MemoryStorage, Storage, WalOptions};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::audit::line::{Ending, Operation};
use crate::audit::record::{Audit, Principal};
use crate::auth::attempts::Attempts;
use crate::auth::tokens::Tokens;
use crate::connections::conn::{CloseReason, Conn};
use crate::connections::inbound::Inbound;
use crate::connections::inbox::{Expiration, Inbox};
use crate::connections::outbound::Outbound;
use crate::connections::registry::Connections;
use crate::core::driver::CoreDriver;
use crate::core::links::Links;
use crate::core::log::Log;
use crate::core::snapshots::Snapshots;
use crate::core::start::starting::{Stage, Starting};
use crate::core::start::{join, recover};
use crate::core::turns::CoreTurns;
use crate::error::{ServerError, StartError};
use crate::listening::listener::{self, Listener};
use crate::listening::socket_access::SocketAccess;
use crate::listening::tls::{Certificates, Tls};
use crate::net::tls_handshake::PortTls;
use crate::net::{accept, lag};
use crate::operator::http;
use crate::operator::http::access::Readers;
use crate::options::{Options, StorageChoice};
use crate::report::client_log::ClientLog;
use crate::report::listings::Listings;
use crate::session::rounds::Rounds;
use crate::state::ServerState;
use crate::state::backups::Backups;
use crate::state::ensemble_status::EnsembleStatus;
use crate::stats::counters::Stats;
use crate::stats::progress::Progress;
use crate::time::{ServerTime, micros};
use crate::watch::table::{WatchBounds, WatchTable};

pub(crate) mod builder;
mod folder_watch;
pub mod pages;
mod start_line;

/// Time for which a graceful stop waits for clients to fetch their last replies.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest time between a restore and the folder's first start: zxids begin beyond all that were
/// given until it was made (R42).
const RESTORED_AT_MOST_MS: i64 = 3_600_000;

/// Result of the core; `None` while it runs.
type CoreResult = Option<Result<(), ServerError>>;

/// A server that listens. Dropping it stops it at once, as a crash would: what was acknowledged is
/// on disk, what was not may be lost. [`Server::shutdown`] stops it gracefully.
pub struct Server {
    state: Arc<ServerState>,
    site: Arc<http::Site>,
    local_addrs: Vec<SocketAddr>,
    secure_addrs: Vec<SocketAddr>,
    http_addrs: Vec<SocketAddr>,
    https_addrs: Vec<SocketAddr>,
    unix_sockets: Vec<PathBuf>,
    accepting: Mutex<JoinSet<()>>,
    core: Mutex<Option<JoinHandle<()>>>,
    ended: watch::Receiver<CoreResult>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("connect_string", &self.connect_string())
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Starts a server on the calling tokio runtime: opens the data, recovers, then listens. HTTP
    /// answers from the beginning: that the process lives, and what it is doing. A member of an
    /// ensemble closes clients' connections meanwhile, so that they try another server.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running. Cancelling leaves nothing running either.
    pub async fn start(options: Options) -> Result<Server, StartError> {
        options.check()?;
        let storage: Arc<dyn Storage> = match &options.storage {
            StorageChoice::Memory => Arc::new(MemoryStorage::new()),
            StorageChoice::Folder(path) => {
                let folder = DirStorage::create(path.clone());
                Arc::new(folder.map_err(|error| match error {
                    FolderError::Io { folder, source } => StartError::Folder {
                        path: folder,
                        source,
                    },
                    error => StartError::FolderNotPrivate(error),
                })?)
            }
        };
        Server::start_with(options, storage).await
    }

    /// Starts a server like [`Server::start`], with this storage in place of the one that the
    /// options name: for tests that break it.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub async fn start_with(
        options: Options,
        storage: Arc<dyn Storage>,
    ) -> Result<Server, StartError> {
        options.check()?;
        options.check_exposure()?;
        let audit = Audit::open(&options.audit)?;
        let started = Server::start_recorded(options, storage, audit.clone()).await;
        if let (Err(error), Some(audit)) = (&started, &audit) {
            let now_ms = ServerTime::new().wall_ms();
            let (start, failure) = (Operation::ServerStart, Ending::Failure);
            audit.add(now_ms, &Principal::server(), start, failure, |fields| {
                fields.sentence("reason", &error.to_string());
            });
            end_record(audit).await;
        }
        started
    }

    async fn start_recorded(
        options: Options,
        storage: Arc<dyn Storage>,
        audit: Option<Arc<Audit>>,
    ) -> Result<Server, StartError> {
        let tls = options.tls.as_ref().map(Tls::load).transpose()?;
        let tokens = options.http_token_file.as_deref().map(Tokens::load);
        let tokens = tokens.transpose().map_err(StartError::Tokens)?;
        let mut listeners = Vec::new();
        let mut local_addrs = Vec::new();
        let on_plain_port = tls.as_ref().filter(|_| options.port_unification);
        let on_plain_port = on_plain_port.map(|tls| PortTls::new(Arc::clone(&tls.clients), true));
        for address in &options.listen {
            let (listener, local) = listener::tcp(address, &options.inherited).await?;
            listeners.push((Listener::Tcp(listener), on_plain_port.clone()));
            local_addrs.push(local);
        }
        let mut secure_addrs = Vec::new();
        if let Some(tls) = &tls {
            let port = PortTls::new(Arc::clone(&tls.clients), false);
            for address in &options.secure_listen {
                let (listener, local) = listener::tcp(address, &options.inherited).await?;
                listeners.push((Listener::Tcp(listener), Some(port.clone())));
                secure_addrs.push(local);
            }
        }
        let starting = Arc::new(Starting::of(Arc::clone(&options.progress)));
        let readers = match options.insecure && tokens.is_none() {
            true => Readers::Everybody,
            false => Readers::Known,
        };
        let progress = Arc::clone(&starting);
        let site = http::Site::new(Arc::clone(&starting), tokens);
        let mut accepting = JoinSet::new();
        let mut http_addrs = Vec::new();
        for address in &options.http {
            let (listener, local) = listener::tcp(address, &options.inherited).await?;
            accepting.spawn(http::serve(Arc::clone(&site), listener, None, readers));
            http_addrs.push(local);
        }
        let mut https_addrs = Vec::new();
        if let Some(tls) = &tls {
            for address in &options.https {
                let (listener, local) = listener::tcp(address, &options.inherited).await?;
                let tls = Some(Arc::clone(&tls.http));
                let site = Arc::clone(&site);
                accepting.spawn(http::serve(site, listener, tls, Readers::Known));
                https_addrs.push(local);
            }
            let site = Arc::clone(&site);
            let changed = move |tls: &ServerTls| {
                if let Ok(state) = site.state() {
                    let is_refused = |conn: &Conn| tls.verify(conn.certificates()).is_err();
                    state.close_connections_of(is_refused, CloseReason::CertificateRefused);
                }
            };
            accepting.spawn(tls.clone().keep_current(changed));
        }
        let private = options.private_socket.iter();
        let private = private.map(|path| (path.clone(), SocketAccess::private()));
        let shared = SocketAccess::new(options.unix_socket_mode, options.unix_socket_group);
        let unix_sockets: Vec<(PathBuf, SocketAccess)> = private
            .chain(
                options
                    .unix_sockets
                    .iter()
                    .map(|path| (path.clone(), shared)),
            )
            .collect();
        let inherited = options.inherited.clone();
        let paths = options.unix_sockets.iter();
        for path in paths.filter(|path| !inherited.has_unix(path)) {
            // Before the log is read, which may take long. It is looked at again when the socket is
            // made.
            listener::check_unix(path)?;
        }
        let (held, watched) = (Arc::clone(&storage), Arc::clone(&storage));
        let hold = hold_of(Arc::clone(&storage)).await?;
        let (started, outcome) = tokio::sync::oneshot::channel();
        let (end, ended) = watch::channel(None);
        let cancelled = StopWhenCancelled(Arc::default());
        let stop = Arc::clone(&cancelled.0);
        let is_member = options.ensemble.is_some();
        let core = std::thread::Builder::new()
            .name("baton-core".to_owned())
            .spawn(move || match &options.ensemble {
                None => {
                    let begun = prepare(options, audit, storage, ServerTime::new(), &starting);
                    core_thread(begun, started, &end);
                }
                Some(_) => member_thread(options, audit, storage, &starting, &stop, started, &end),
            })?;
        let outcome = tokio::select! {
            outcome = outcome => outcome,
            never = accept::turn_away(&listeners), if is_member => match never {},
        };
        let state = match outcome {
            Ok(outcome) => outcome?,
            Err(_) => return Err(ServerError::Defect.into()),
        };
        if let Some(tls) = &tls {
            // Set once, here.
            let _ = state.certificates.of_clients.set(Arc::clone(&tls.clients));
        }
        let mut server = Server {
            state,
            site,
            local_addrs,
            secure_addrs,
            http_addrs,
            https_addrs,
            unix_sockets: unix_sockets.iter().map(|(path, _)| path.clone()).collect(),
            accepting: Mutex::new(accepting),
            core: Mutex::new(Some(core)),
            ended,
        };
        let lag = lag::measure(Arc::clone(&server.state));
        let accepting = server.accepting.get_mut();
        accepting.spawn(lag);
        accepting.spawn(folder_watch::watch(Arc::clone(&server.state), watched));
        if let Some(hold) = hold {
            let held = hold_sessions(&server.state, hold, held);
            server.accepting.get_mut().spawn(held);
        }
        for (path, access) in &unix_sockets {
            let listener = match listener::inherited_unix(path, &inherited)? {
                Some(open) => open,
                None => listener::unix(path, *access)?,
            };
            listeners.push((listener, None));
        }
        let (start, success) = (Operation::ServerStart, Ending::Success);
        server
            .state
            .record(start, success, Principal::server, |_| {});
        for (listener, tls) in listeners {
            let accepted = accept::accept(Arc::clone(&server.state), listener, tls);
            server.accepting.get_mut().spawn(accepted);
        }
        server.site.serves(&server.state);
        start_line::log(
            &server.state,
            progress.recovery(),
            &[
                ("", &server.local_addrs),
                ("tls://", &server.secure_addrs),
                ("http://", &server.http_addrs),
                ("https://", &server.https_addrs),
            ],
            &server.unix_sockets,
        );
        Ok(server)
    }

    pub(crate) fn site(&self) -> &Arc<http::Site> {
        &self.site
    }

    /// The first TCP address that the server listens on, with the port that it got.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.local_addrs.first().copied()
    }

    /// Every TCP address that the server listens on for clients, with the ports that it got.
    #[must_use]
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.local_addrs
    }

    /// Every TCP address that the server listens on for clients with TLS only, with the ports that
    /// it got.
    #[must_use]
    pub fn secure_addrs(&self) -> &[SocketAddr] {
        &self.secure_addrs
    }

    /// Every address on which HTTP is answered with TLS, with the ports that it got.
    #[must_use]
    pub fn https_addrs(&self) -> &[SocketAddr] {
        &self.https_addrs
    }

    /// Every address on which HTTP is answered, with the ports that it got.
    #[must_use]
    pub fn http_addrs(&self) -> &[SocketAddr] {
        &self.http_addrs
    }

    /// The first address on which HTTP is answered, with the port that it got.
    #[must_use]
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http_addrs.first().copied()
    }

    /// The connect string for clients: `HOST:PORT`; `tls://HOST:PORT` if the server listens on
    /// ports with TLS only, or `unix:PATH` if it listens on no TCP port.
    #[must_use]
    pub fn connect_string(&self) -> String {
        if self.local_addrs.is_empty() && !self.secure_addrs.is_empty() {
            let named = self
                .secure_addrs
                .iter()
                .zip(&self.state.options.secure_listen);
            let reachable =
                named.map(|(address, name)| format!("tls://{}", reachable(*address, name)));
            return reachable.collect::<Vec<_>>().join(",");
        }
        if self.local_addrs.is_empty() {
            return self
                .unix_sockets
                .first()
                .map(|path| format!("unix:{}", path.display()))
                .unwrap_or_default();
        }
        let named = self.local_addrs.iter().zip(&self.state.options.listen);
        let reachable = named.map(|(address, name)| reachable(*address, name).to_string());
        reachable.collect::<Vec<_>>().join(",")
    }

    /// Sessions that are open, attached to a connection or not.
    #[must_use]
    pub fn active_sessions(&self) -> usize {
        self.state.sessions.load(Relaxed)
    }

    /// Connections that are open.
    #[must_use]
    pub fn active_connections(&self) -> usize {
        self.state.open_connections()
    }

    /// Time for which the server has had neither a session nor a connection; zero while it has one.
    #[must_use]
    pub fn idle(&self) -> Duration {
        self.state.idle()
    }

    /// The zxid of the last write that was applied.
    #[must_use]
    pub fn last_zxid(&self) -> i64 {
        self.state.zxid()
    }

    /// Expires a session at once, as if its client had been silent for the session's timeout: its
    /// ephemeral znodes are deleted, and its client receives that when it connects again. For tests
    /// of programs. `false`: there is no such session, or the server has stopped. Cancelling does
    /// not take the request back.
    pub async fn expire_session(&self, session_id: i64) -> bool {
        if self.state.tree.read().session(session_id).is_none() {
            return false;
        }
        let (applied, outcome) = tokio::sync::oneshot::channel();
        self.state.inbox.expire(Expiration {
            session: session_id,
            applied,
        });
        outcome.await.is_ok()
    }

    /// Waits until the server has stopped by itself, and says why. Never returns while it runs, nor
    /// after a graceful stop. Cancelling has no effect.
    pub async fn failed(&self) -> ServerError {
        let mut ended = self.ended.clone();
        loop {
            if let Some(Err(error)) = &*ended.borrow_and_update() {
                return error.clone();
            }
            if ended.changed().await.is_err() {
                // The core has ended; without an error, this was a requested stop.
                match &*ended.borrow() {
                    Some(Err(error)) => return error.clone(),
                    Some(Ok(())) => {}
                    None => return ServerError::Defect,
                }
                std::future::pending::<()>().await;
            }
        }
    }

    /// Stops gracefully: takes no connection any more, does and answers what has been handed in,
    /// syncs the log, closes the connections. Sessions stay in the data for the next start.
    /// Cancelling leaves the rest to the drop.
    ///
    /// # Errors
    /// [`ServerError`] if the server had failed, or fails while it finishes.
    pub async fn shutdown(self) -> Result<(), ServerError> {
        let (stop, invoked) = (Operation::ServerStop, Ending::Invoked);
        self.state.record(stop, invoked, Principal::server, |_| {});
        // Waited for, so that the addresses are free when this returns.
        let mut accepting = std::mem::take(&mut *self.accepting.lock());
        accepting.shutdown().await;
        self.state.inbox.stop();
        let mut ended = self.ended.clone();
        let outcome = match ended.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or(Ok(())),
            Err(_) => Err(ServerError::Defect),
        };
        let drained = async {
            while self.state.open_connections() > 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, drained).await;
        if let Some(audit) = &self.state.audit {
            end_record(audit).await;
        }
        outcome
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.get_mut().abort_all();
        self.state.inbox.abort();
        // Waited for, so that the data folder is free when this returns: at most one sync of the
        // disk.
        if let Some(core) = self.core.get_mut().take() {
            let _ = core.join();
        }
        self.state.close_connections();
        if let Some(audit) = &self.state.audit {
            audit.end(DRAIN_TIMEOUT);
        }
    }
}

/// The hold that a restored folder has. A folder whose data another cluster has begun with is
/// refused. Read on a thread of its own: HTTP answers meanwhile, and a caller that gives the start
/// up does not wait for a disk that hangs.
async fn hold_of(storage: Arc<dyn Storage>) -> Result<Option<Hold>, StartError> {
    let (read, outcome) = tokio::sync::oneshot::channel();
    std::thread::Builder::new()
        .name("baton-hold".to_owned())
        .spawn(move || {
            let found = baton_wal::refuse_superseded(storage.as_ref())
                .and_then(|()| baton_wal::read_hold(storage.as_ref()));
            // Who asked may have given up.
            let _ = read.send(found);
        })?;
    let hold = match outcome.await {
        Ok(hold) => hold?,
        Err(_) => return Err(ServerError::Defect.into()),
    };
    if let Some(hold) = &hold {
        let age_ms = ServerTime::new().wall_ms().saturating_sub(hold.made_ms);
        if age_ms > RESTORED_AT_MOST_MS {
            let hours = age_ms / 3_600_000;
            return Err(StartError::RestoredLongAgo { hours });
        }
    }
    Ok(hold)
}

/// Serves no session before every lease has ended that a session of before the restore can have: as
/// long as the longest timeout, from now on. Removes the folder's mark then, so that a later start
/// does not wait.
fn hold_sessions(
    state: &Arc<ServerState>,
    hold: Hold,
    storage: Arc<dyn Storage>,
) -> impl Future<Output = ()> + use<> {
    let longest = Duration::from_millis(hold.longest_timeout_ms);
    let longest = longest.max(state.options.max_session_timeout);
    state.hold_for(longest);
    tracing::warn!(
        seconds = longest.as_secs(),
        "the data was restored from a backup: sessions are served when every lease from before has ended"
    );
    let state = Arc::clone(state);
    async move {
        while let Some(left) = state.held_for() {
            tokio::time::sleep(left).await;
        }
        let removed = tokio::task::spawn_blocking(move || baton_wal::remove_hold(&*storage));
        match removed.await {
            Ok(Ok(())) => tracing::info!("sessions are served from now on"),
            Ok(Err(error)) => tracing::warn!("the next start waits again: {error}"),
            Err(_) => {}
        }
    }
}

/// Waits until the audit record is written, for a while.
async fn end_record(audit: &Arc<Audit>) {
    let audit = Arc::clone(audit);
    let _ = tokio::task::spawn_blocking(move || audit.end(DRAIN_TIMEOUT)).await;
}

/// The address by which this machine reaches a socket that listens, for which the settings have
/// `name`.
fn reachable(mut address: SocketAddr, name: &str) -> SocketAddr {
    if address.ip().is_unspecified() {
        // The host `*` takes IPv4, whatever else it takes.
        address.set_ip(if address.is_ipv4() || name.starts_with('*') {
            std::net::Ipv4Addr::LOCALHOST.into()
        } else {
            std::net::Ipv6Addr::LOCALHOST.into()
        });
    }
    address
}

/// Ends the start of a server whose starter has gone: a member may wait for other servers.
struct StopWhenCancelled(Arc<AtomicBool>);

impl Drop for StopWhenCancelled {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// The life of the core's thread, once it has begun.
fn core_thread(
    begun: Result<(Arc<ServerState>, CoreDriver), StartError>,
    started: tokio::sync::oneshot::Sender<Result<Arc<ServerState>, StartError>>,
    end: &watch::Sender<CoreResult>,
) {
    let (state, core) = match begun {
        Ok((state, core)) => {
            let core = CoreTurns::new(&state, core);
            (state, core)
        }
        Err(error) => {
            let _ = started.send(Err(error));
            return;
        }
    };
    if started.send(Ok(Arc::clone(&state))).is_err() {
        return core.end();
    }
    let closing = CloseAtEnd(&state);
    let outcome = core.run();
    if let Err(error) = &outcome {
        tracing::error!("{error}");
        let (stop, failure) = (Operation::ServerStop, Ending::Failure);
        state.record(stop, failure, Principal::server, |fields| {
            fields.sentence("reason", &error.to_string());
        });
    }
    drop(closing);
    end.send_replace(Some(outcome));
    core.end();
}

/// The life of the core's thread of a server of an ensemble. What servers say to one another has a
/// thread of its own, which takes the core's turns, too, while the core rests.
fn member_thread(
    options: Options,
    audit: Option<Arc<Audit>>,
    storage: Arc<dyn Storage>,
    starting: &Starting,
    stop: &AtomicBool,
    started: tokio::sync::oneshot::Sender<Result<Arc<ServerState>, StartError>>,
    end: &watch::Sender<CoreResult>,
) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("baton-peers")
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return core_thread(Err(error.into()), started, end),
    };
    let begun = prepare_member(options, audit, storage, runtime.handle(), starting, stop);
    let (begun, peers) = match begun {
        Ok((state, core, peers)) => (Ok((state, core)), Some(peers)),
        Err(error) => (Err(error), None),
    };
    core_thread(begun, started, end);
    // The core has ended, so nobody else has them: they send what waits.
    if let Some(peers) = peers.and_then(Arc::into_inner) {
        runtime.block_on(peers.stop());
    }
}

/// Closes the inbox and the connections when the core has ended, for whatever reason.
struct CloseAtEnd<'a>(&'a ServerState);

impl Drop for CloseAtEnd<'_> {
    fn drop(&mut self) {
        self.0.inbox.close();
        self.0.close_connections();
    }
}

/// Recovers from `storage`, for a server with these clocks that stands alone.
pub(crate) fn prepare(
    options: Options,
    audit: Option<Arc<Audit>>,
    storage: Arc<dyn Storage>,
    time: ServerTime,
    starting: &Starting,
) -> Result<(Arc<ServerState>, CoreDriver), StartError> {
    let started = time.now();
    let begun = recover::recover(storage, WalOptions::default(), starting)
        .map_err(StartError::of_recovery)?;
    let recovered = time.now();
    let after_snapshot = begun.wal.last_index().saturating_sub(begun.snapshot_index);
    let state = state_of(options, audit, begun.tree, time, begun.snapshot);
    let links = Links::alone(recover::NODE_ID);
    let log = Log::inline(begun.wal, &state, &links.wire);
    let core = CoreDriver::new(
        Arc::clone(&state),
        begun.consensus,
        log,
        Snapshots::new(after_snapshot),
        links,
        starting,
    )
    .map_err(StartError::of_recovery)?;
    count_start(&state, starting, started, recovered, after_snapshot);
    Ok((state, core))
}

/// Joins the ensemble of the settings: waits for the other servers where the cluster is new.
fn prepare_member(
    options: Options,
    audit: Option<Arc<Audit>>,
    storage: Arc<dyn Storage>,
    runtime: &tokio::runtime::Handle,
    starting: &Starting,
    stop: &AtomicBool,
) -> Result<(Arc<ServerState>, CoreDriver, Arc<Peers>), StartError> {
    let time = ServerTime::new();
    let started = time.now();
    let joined = join::join(storage, &options, runtime, starting, stop)?;
    starting.found(|found| found.cluster = Some(joined.cluster));
    let recovered = time.now();
    let begun = joined.begun;
    let after_snapshot = begun.wal.last_index().saturating_sub(begun.snapshot_index);
    let state = state_of(options, audit, begun.tree, time, begun.snapshot);
    let mut run = [0; 8];
    getrandom::fill(&mut run).map_err(std::io::Error::other)?;
    let peers = Arc::new(joined.peers);
    let links = Links {
        id: state.options.server_id.into(),
        wire: Arc::<Peers>::clone(&peers),
        events: joined.events,
        bootstrap: Some(joined.bootstrap),
        addresses: joined.addresses,
        peer_log: joined.peer_log,
        run: u64::from_le_bytes(run),
    };
    let log = Log::threaded(begun.wal, &state, &links.wire)?;
    let core = CoreDriver::new(
        Arc::clone(&state),
        begun.consensus,
        log,
        Snapshots::new(after_snapshot),
        links,
        starting,
    )?;
    if let Some(tls) = starting.peer_tls() {
        // Set once, here.
        let _ = state.certificates.of_servers.set(tls);
    }
    count_start(&state, starting, started, recovered, after_snapshot);
    Ok((state, core, peers))
}

/// State that the core and the sockets of a server share, with this tree. `snapshot` is the zxid of
/// the newest snapshot and the wall clock when it was begun.
pub(crate) fn state_of(
    options: Options,
    audit: Option<Arc<Audit>>,
    tree: Tree,
    time: ServerTime,
    snapshot: (i64, i64),
) -> Arc<ServerState> {
    let ensemble = options.ensemble.as_ref();
    let ensemble = ensemble.map(|ensemble| EnsembleStatus::new(options.server_id.into(), ensemble));
    let state = Arc::new(ServerState {
        outbound: Outbound::new(&options),
        listings: Listings::new(&options),
        inbound: Inbound::new(&options),
        watches: Mutex::new(WatchTable::new(WatchBounds::new(&options))),
        inbox: Inbox::new(options.max_queued_bytes),
        limits: baton_proto::Limits::with_max_frame_bytes(options.max_frame_bytes),
        options,
        last_zxid: tree.zxid().into(),
        tree: RwLock::new(tree),
        time,
        rounds: Rounds::default(),
        backups: Backups::default(),
        certificates: Certificates::default(),
        held_until_ms: 0.into(),
        stats: Stats::new(),
        client_log: ClientLog::default(),
        password_attempts: Attempts::default(),
        progress: Progress::default(),
        sessions: 0.into(),
        idle_since_ms: 0.into(),
        connections: Mutex::new(Connections::default()),
        audit,
        ensemble: ensemble.map(Mutex::new),
        #[cfg(feature = "simulation")]
        simulated: crate::state::simulated::Simulated::default(),
    });
    let stats = &state.stats;
    stats.last_snapshot_zxid.store(snapshot.0, Relaxed);
    stats.last_snapshot_ms.store(snapshot.1, Relaxed);
    state
}

/// Records how long the start has taken.
fn count_start(
    state: &ServerState,
    starting: &Starting,
    started: Instant,
    recovered: Instant,
    log_entries: u64,
) {
    starting.enter(Stage::Listen);
    starting.found(|found| {
        found.took = Duration::from_micros(state.time.micros_since(started));
    });
    let stats = &state.stats;
    stats.start_time.record(state.time.micros_since(started));
    stats
        .load_snapshot_time
        .record(micros(recovered.saturating_duration_since(started)));
    stats
        .load_log_time
        .record(state.time.micros_since(recovered));
    stats.load_log_entries.record(log_entries);
}

#[cfg(test)]
mod tests;
