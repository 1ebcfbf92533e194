//! The session of a verb: it connects to the servers that were named, or starts the local server
//! and keeps it running.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use baton_client::{Client, ClientTls, ConnectError, LeaseOptions, Session, State, TlsFailure};
use baton_server::{Progress, Unit};
use tokio::task::AbortHandle;

use crate::access::{Access, PassedAccess};
use crate::context::{Context, Globals};
use crate::duration;
use crate::exit::{self, Failure};
use crate::folders;
use crate::output::Output;
use crate::output::progress::ShownProgress;
use crate::servers::config_file::NamedServers;
use crate::servers::local::LocalServer;
use crate::servers::lookup::{self, Found};
use crate::servers::machine::Machine;
use crate::servers::probe;
use crate::servers::unshared_locks;
use crate::waiting::{self, AwaitedEvent};

/// Options of a verb's session.
#[derive(Debug, Clone)]
pub(crate) struct SessionOptions {
    /// The timeout to ask for.
    pub(crate) timeout: Duration,
    /// Options of the session's lease; `None` for the defaults.
    pub(crate) lease: Option<LeaseOptions>,
    /// Whether another session is tried for without end after a loss, unless `--give-up-after` says
    /// otherwise.
    pub(crate) lasting: bool,
}

/// A session for a verb that holds nothing, and waits for nothing but answers.
pub(crate) const BRIEF: SessionOptions = SessionOptions {
    timeout: Duration::from_secs(10),
    lease: None,
    lasting: false,
};
/// A session for a verb that holds nothing, and may wait long.
pub(crate) const LASTING: SessionOptions = SessionOptions {
    lasting: true,
    ..BRIEF
};
/// The session timeout of a verb that wants one answer: a session that was not closed is over soon.
const GLANCE_TIMEOUT: Duration = Duration::from_secs(4);
/// Time that a command that has done its work waits for the server to confirm the end of its
/// session.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);
/// Between two attempts to reach a local server that does not answer.
const LOCAL_RETRY: Duration = Duration::from_millis(500);

/// A connected client, and what goes with it.
pub(crate) struct Connection {
    /// The client.
    pub(crate) client: Client,
    /// The servers that it connects to, for people.
    pub(crate) servers: String,
    access: Access,
    output: Output,
    keeper: Option<AbortHandle>,
}

impl Connection {
    /// Connects to the servers that [`lookup`] finds, or else to the local server, which is started
    /// if need be.
    pub(crate) async fn open(context: &Context, options: SessionOptions) -> Result<Self, Failure> {
        let globals = &context.globals;
        let machine = Machine::this()?;
        let (found, files) = lookup::servers(globals, &machine)?;
        for (name, folder) in folders::passed_over() {
            context.output.note(format!(
                "{name} in the environment is ignored: {} belongs to another user; this user's \
                 own home folder is used",
                folder.display()
            ));
        }
        // Before the local server is started: what is wrong with them is the user's to correct.
        let access = files.read()?;
        let (named, local) = match found {
            Found::Named(named) => (named, None),
            Found::Local { origin, silent } => {
                let folder = folders::data(globals.data_dir.as_deref())?;
                let local = Arc::new(LocalServer::at(folder)?);
                ensure(&local, &context.output).await?;
                // Of two users who start at once, the later sees the earlier, whose server has left
                // its mark by now.
                unshared_locks::report(&context.output, &machine, silent, local.folder());
                let list = local.connect_string();
                (NamedServers { list, origin }, Some(local))
            }
        };
        let NamedServers {
            list: connect_string,
            origin,
        } = named;
        context
            .output
            .verbose(|| format!("using {connect_string} ({origin})"));
        // A user who has not named them here needs to know who has, when they fail.
        let where_named = (local.is_none() && globals.servers.is_none()).then(|| origin.clone());
        let new_session_within = match (options.lasting, globals.give_up_after) {
            (true, limit) => limit.unwrap_or(Duration::MAX),
            (false, _) => globals.connect_timeout,
        };
        let config = access
            .config(&connect_string, &origin)?
            .session_timeout(options.timeout)
            .lease(options.lease.unwrap_or_default())
            .connect_within(globals.connect_timeout)
            .new_session_within(new_session_within);
        let list = config.servers();
        let hints = Hints {
            servers: where_named,
            tls: access.tls_origin(&config).map(str::to_owned),
            credentials: access.auth_origin().map(str::to_owned),
        };
        let client = match access.acl() {
            Some(acl) => Client::lazy(config).with_acl(acl),
            None => Client::lazy(config),
        };
        let keeper = local.map(|local| {
            let keeping = keep(local, client.clone(), context.output.clone());
            tokio::spawn(keeping).abort_handle()
        });
        let connection = Self {
            client,
            servers: connect_string,
            access,
            output: context.output.clone(),
            keeper,
        };
        let opening = connection.wait(&AwaitedEvent::Connection, connection.client.session());
        let session = match opening.await {
            Ok(session) => session,
            Err(error) => return Err(hints.failure_of(&error, &list, connection.tls()).await),
        };
        context.output.verbose(|| {
            format!(
                "session 0x{:x} on {}, timeout {}",
                session.id(),
                connection.servers,
                duration::show(session.timeout())
            )
        });
        Ok(connection)
    }

    /// Runs `work` on a connection of its own, whose session ends with it.
    pub(crate) async fn during<T>(
        context: &Context,
        options: SessionOptions,
        work: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let connection = Self::open(context, options).await?;
        let outcome = work(&connection).await;
        connection.close().await;
        outcome
    }

    /// The live session.
    pub(crate) async fn session(&self) -> Result<Session, Failure> {
        self.client
            .session()
            .await
            .map_err(|error| Hints::default().failure(&error))
    }

    /// The access to the servers, for another process; `None` where a file's path is not text.
    pub(crate) fn passed_access(&self) -> Option<PassedAccess> {
        self.access.passed()
    }

    /// Resolves when there is no session any more and no new one either, as for a brief verb. A
    /// view of the tree goes on through that: a caller that waits for it alone waits for ever.
    pub(crate) async fn failed(&self) -> Failure {
        loop {
            match self.session().await {
                Ok(session) => session.ended().await,
                Err(failure) => return failure,
            };
        }
    }

    /// Returns the TLS by which servers are trusted, if it is used.
    pub(crate) fn tls(&self) -> Option<&ClientTls> {
        self.access.tls()
    }

    /// `USER:PASSWORD` of the first `digest` among the credentials.
    pub(crate) fn digest(&self) -> Option<&str> {
        self.access.digest()
    }

    /// Does `work`, and shows meanwhile what it waits for.
    pub(crate) async fn wait<T>(
        &self,
        awaited: &AwaitedEvent<'_>,
        work: impl Future<Output = T>,
    ) -> T {
        waiting::shown(&self.output, (&self.client, &self.servers), awaited, work).await
    }

    /// Ends the session, so that nothing of it stays behind on the server.
    pub(crate) async fn close(self) {
        if let Some(keeper) = &self.keeper {
            keeper.abort();
        }
        if let Err(error) = self.client.close_timeout(CLOSE_LIMIT).await {
            self.output.verbose(|| error.to_string());
        }
    }
}

/// A client for one brief question, of servers that run.
pub(crate) struct ProbeClient {
    /// The client.
    pub(crate) client: Client,
    /// Keeps the name of the local server's socket.
    _local: Option<LocalServer>,
}

/// A client of the servers that [`lookup`] finds, if they run: none is started, and nothing is
/// written. Its first session opens `within` this time or not at all.
pub(crate) fn glance(globals: &Globals, within: Duration) -> Option<ProbeClient> {
    let (found, files) = lookup::servers(globals, &Machine::this().ok()?).ok()?;
    let access = files.read().ok()?;
    let (list, origin, local) = match found {
        Found::Named(NamedServers { list, origin }) => (list, origin, None),
        Found::Local { origin, .. } => {
            let folder = folders::data(globals.data_dir.as_deref()).ok()?;
            let local = LocalServer::running_at(folder)?;
            (local.connect_string(), origin, Some(local))
        }
    };
    let config = access.config(&list, &origin).ok()?;
    let config = config
        .session_timeout(GLANCE_TIMEOUT)
        .connect_within(within)
        .new_session_within(within);
    Some(ProbeClient {
        client: Client::lazy(config),
        _local: local,
    })
}

/// Origins of the facts about the servers, for a user who has not given them on this command line,
/// and has to know when they cannot be used.
#[derive(Default)]
struct Hints {
    servers: Option<String>,
    tls: Option<String>,
    credentials: Option<String>,
}

impl Hints {
    /// The failure of the servers of this list, which are asked how many of them run.
    async fn failure_of(
        &self,
        error: &ConnectError,
        list: &str,
        tls: Option<&ClientTls>,
    ) -> Failure {
        let too_few = match error {
            ConnectError::Unreachable { .. } => probe::missing_majority(list, tls).await,
            _ => None,
        };
        self.explained(error, too_few)
    }

    fn failure(&self, error: &ConnectError) -> Failure {
        self.explained(error, None)
    }

    fn explained(&self, error: &ConnectError, too_few: Option<String>) -> Failure {
        let mut text = too_few.unwrap_or_else(|| error.to_string());
        if let Some(origin) = &self.servers {
            text.push_str(&format!("; the servers come from {origin}"));
        }
        match error {
            ConnectError::Tls { failure, .. }
                if matches!(**failure, TlsFailure::NotTls | TlsFailure::Closed) =>
            {
                if let Some(origin) = &self.tls {
                    text.push_str(&format!("; TLS is used because of {origin}"));
                }
            }
            ConnectError::AuthFailed { .. }
            | ConnectError::AuthRequired { .. }
            | ConnectError::Sasl { .. } => {
                if let Some(origin) = &self.credentials {
                    text.push_str(&format!("; the credentials come from {origin}"));
                }
            }
            _ => {}
        }
        Failure::new(exit::BATON, "connection", text)
    }
}

/// Starts the local server if it does not run, and says so.
async fn ensure(local: &Arc<LocalServer>, output: &Output) -> Result<(), Failure> {
    let starting = Arc::clone(local);
    let progress = Arc::new(Progress::default());
    progress.begin("starting the local server", Unit::Bytes, 0);
    let newest = Arc::new(Mutex::new(None));
    let of_server = Arc::clone(&newest);
    let shown = ShownProgress::on_status_with(output, &progress, move |line| {
        let newest = of_server.lock().unwrap_or_else(PoisonError::into_inner);
        match &*newest {
            Some(of_server) => format!("{line}: {of_server}"),
            None => line.to_owned(),
        }
    });
    let show = move |line: &str| {
        *newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(line.to_owned());
    };
    let started = tokio::task::spawn_blocking(move || starting.ensure(show)).await;
    drop(shown);
    let started = started.map_err(|error| {
        Failure::baton(format!(
            "starting the local server was interrupted: {error}; try again"
        ))
    })??;
    if let Some(started) = started {
        let text = format!(
            "started a local server (pid {}, data in {}); it ends itself after {} without use",
            started.pid,
            local.folder().display(),
            duration::show(started.idle)
        );
        // The first time it is news to everybody. After that it is only shown on a terminal: cron
        // would send a mail about each start.
        if !started.again || std::io::stderr().is_terminal() {
            output.note(text);
        } else {
            output.verbose(|| text);
        }
    }
    Ok(())
}

/// Starts the local server again whenever it has ended while this command needs it: no other
/// process would.
async fn keep(local: Arc<LocalServer>, client: Client, output: Output) {
    loop {
        // The server may end after the check and before the session opens: so the check is repeated
        // until there is a session.
        let session = tokio::select! {
            session = client.session() => session,
            () = mend(&local, &output, || true) => continue,
        };
        let Ok(session) = session else {
            tokio::time::sleep(LOCAL_RETRY).await;
            continue;
        };
        let mut states = session.states();
        let mut state = states.current();
        while state.is_connected() {
            match states.next().await {
                Some(next) => state = next,
                None => break,
            }
        }
        if state != State::Suspended {
            // The caller that needs a session opens the next one.
            tokio::time::sleep(LOCAL_RETRY).await;
            continue;
        }
        // Either the server has ended, or the connection: only a server can be started here.
        mend(&local, &output, || session.state() == State::Suspended).await;
    }
}

/// Starts the local server whenever it has ended, as long as it is `needed`.
async fn mend(local: &Arc<LocalServer>, output: &Output, needed: impl Fn() -> bool) {
    while needed() {
        tokio::time::sleep(LOCAL_RETRY / 10).await;
        if let Err(failure) = ensure(local, output).await {
            output.verbose(|| failure.text);
        }
    }
}
