//! Clients that write and read at a steady pace, and record what they asked for and received.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_client::{Config, CreateMode, Error, ErrorCode, Session, Stat};
use baton_testkit::TestServer;
use baton_testkit::history::{Act, CreatedZnode, EndState, Operation, Outcome, Version};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, sleep_until, timeout};

use crate::Result;

/// Longer than anything takes on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);
/// No fault of a trial lasts as long, so a session that ends was lost.
const SESSION_TIMEOUT: Duration = Duration::from_secs(60);
/// Operations of one client that may wait for their answers.
const IN_FLIGHT: usize = 64;
const REGISTERS: usize = 4;

/// One clock for all clients of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunClock(Instant);

impl RunClock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now(self) -> Duration {
        self.0.elapsed()
    }
}

/// Does an operation again and again until `end`, with this pause between two; returns how long
/// each took.
pub(super) async fn timed_until<T, F>(
    end: Instant,
    pause: Option<Duration>,
    mut operation: impl FnMut() -> F,
) -> std::result::Result<Vec<Duration>, Error>
where
    F: Future<Output = std::result::Result<T, Error>>,
{
    let mut took = Vec::new();
    while Instant::now() < end {
        let begin = Instant::now();
        operation().await?;
        took.push(begin.elapsed());
        if let Some(pause) = pause {
            sleep(pause).await;
        }
    }
    Ok(took)
}

/// A client's session, and what tables call it.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) index: usize,
    pub(super) session: Session,
}

impl Client {
    /// Opens a session with these servers.
    pub(super) async fn connect(index: usize, servers: &str) -> Result<Self> {
        Self::with(index, Self::config(servers)?).await
    }

    /// The options of a session with these servers.
    pub(super) fn config(servers: &str) -> Result<Config> {
        Ok(Config::new(servers)?
            .session_timeout(SESSION_TIMEOUT)
            .connect_timeout(Duration::from_secs(1))
            .connect_within(PATIENCE))
    }

    /// Opens a session with these options.
    pub(super) async fn with(index: usize, config: Config) -> Result<Self> {
        let session = Session::connect(config).await?;
        Ok(Self { index, session })
    }

    /// An operation of this client in a round, begun and ended at these times.
    fn operation(&self, number: u64, (begun, ended): (Duration, Duration), act: Act) -> Operation {
        Operation {
            client: self.index,
            number,
            value: value(self.index, number),
            begun,
            ended,
            act,
        }
    }

    /// A client for each server, which connects to that one only.
    pub(super) async fn one_each(servers: &[TestServer]) -> Result<Vec<Self>> {
        let mut clients = Vec::new();
        for (index, server) in servers.iter().enumerate() {
            clients.push(Self::connect(index, &server.connect_string()).await?);
        }
        Ok(clients)
    }
}

/// The znodes of one round.
#[derive(Debug, Clone)]
pub(super) struct Round(Arc<str>);

impl Round {
    /// Makes the znodes.
    pub(super) async fn make(name: &str, client: &Client) -> Result<Self> {
        let round = Self(name.into());
        let registers = (0..REGISTERS).map(|register| round.register(register));
        for path in [name.to_owned(), round.queue()]
            .into_iter()
            .chain(registers)
        {
            timeout(PATIENCE, ensure(&client.session, &path)).await??;
        }
        Ok(round)
    }

    fn queue(&self) -> String {
        format!("{}/queue", self.0)
    }

    fn register(&self, register: usize) -> String {
        format!("{}/register-{register}", self.0)
    }

    /// Reads what is there, as the client's server shows it once it has caught up.
    pub(super) async fn ending(&self, client: &Client) -> Result<EndState> {
        let read = async {
            loop {
                match self.read(&client.session).await {
                    // The connection was lost meanwhile.
                    Err(error) if is_lost(&error) => {}
                    outcome => return outcome,
                }
            }
        };
        Ok(timeout(PATIENCE, read).await??)
    }

    async fn read(&self, session: &Session) -> std::result::Result<EndState, Error> {
        let queue = self.queue();
        let read = session.read_latest("/", |session| session.children(&queue));
        let names = read.await?.names;
        let mut ending = EndState::default();
        for names in names.chunks(IN_FLIGHT) {
            let reads = names.iter().map(|name| {
                let read = session.get_data(&format!("{queue}/{name}"));
                (name, read)
            });
            let reads: Vec<_> = reads.collect();
            for (name, read) in reads {
                let data = read.await?;
                let created = CreatedZnode {
                    name: name.clone(),
                    zxid: data.stat.czxid,
                };
                ending.created.push((created, text(&data.data)));
            }
        }
        ending
            .created
            .sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        for register in 0..REGISTERS {
            let data = session.get_data(&self.register(register)).await?;
            ending
                .registers
                .push((text(&data.data), version(&data.stat)));
        }
        Ok(ending)
    }

    /// Removes the znodes.
    pub(super) async fn remove(&self, client: &Client) -> Result<()> {
        let remove = async {
            loop {
                match self.remove_what_is_there(&client.session).await {
                    Err(error) if is_lost(&error) => {}
                    outcome => return outcome,
                }
            }
        };
        Ok(timeout(PATIENCE, remove).await??)
    }

    async fn remove_what_is_there(&self, session: &Session) -> std::result::Result<(), Error> {
        let queue = self.queue();
        let read = session.read_latest("/", |session| session.children(&queue));
        let names = match read.await {
            Ok(children) => children.names,
            Err(error) if error.code() == Some(ErrorCode::NoNode) => Vec::new(),
            Err(error) => return Err(error),
        };
        for names in names.chunks(IN_FLIGHT) {
            let paths = names.iter().map(|name| format!("{queue}/{name}"));
            remove_all(session, paths).await?;
        }
        let registers = (0..REGISTERS).map(|register| self.register(register));
        remove_all(
            session,
            registers.chain([queue.clone(), self.0.to_string()]),
        )
        .await
    }
}

/// Deletes those of the znodes that are there, in this order.
async fn remove_all(
    session: &Session,
    paths: impl Iterator<Item = String>,
) -> std::result::Result<(), Error> {
    let deletions: Vec<_> = paths.map(|path| session.delete(&path, None)).collect();
    for deletion in deletions {
        match deletion.await {
            Err(error) if error.code() == Some(ErrorCode::NoNode) => {}
            outcome => outcome?,
        }
    }
    Ok(())
}

/// Makes a znode, however often the connection is lost meanwhile.
async fn ensure(session: &Session, path: &str) -> std::result::Result<(), Error> {
    loop {
        match session.create(path, b"", CreateMode::Persistent).await {
            Err(error) if is_lost(&error) => {}
            // It was made by an attempt whose answer was lost.
            Err(error) if error.code() == Some(ErrorCode::NodeExists) => return Ok(()),
            outcome => return outcome.map(|_| ()),
        }
    }
}

/// Shows a client everything that was acknowledged before.
pub(super) async fn catch_up(client: &Client) -> Result<()> {
    let catch_up = async {
        loop {
            match client.session.sync("/").await {
                Err(error) if is_lost(&error) => {}
                outcome => return outcome,
            }
        }
    };
    Ok(timeout(PATIENCE, catch_up).await??)
}

/// Returns whether an operation has no answer, for which the server is not to blame.
fn is_lost(error: &Error) -> bool {
    matches!(
        error,
        Error::Unanswered { .. } | Error::NotSent { .. } | Error::MaybeApplied { .. }
    )
}

fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}

fn version(stat: &Stat) -> Version {
    Version {
        number: stat.version,
        zxid: stat.mzxid,
    }
}

/// Clients that are at work in one round.
#[derive(Debug)]
pub(super) struct Load {
    clients: Vec<Worker>,
    stop: watch::Sender<bool>,
}

#[derive(Debug)]
struct Worker {
    client: Client,
    /// Time at which the newest acknowledged write was begun.
    acknowledged: watch::Receiver<Duration>,
    task: JoinHandle<Vec<Operation>>,
}

impl Load {
    /// Has each client do this number of operations a second until [`Load::stop`].
    pub(super) fn start(clients: &[Client], round: &Round, clock: RunClock, rate: u32) -> Self {
        let (stop, stopped) = watch::channel(false);
        let start = |client: &Client| {
            let (progress, acknowledged) = watch::channel(Duration::ZERO);
            let work = ClientWork {
                client: client.clone(),
                round: round.clone(),
                clock,
                pause: Duration::from_secs(1) / rate.max(1),
                issued: 0,
                progress,
            };
            Worker {
                client: client.clone(),
                acknowledged,
                task: tokio::spawn(work.run(stopped.clone())),
            }
        };
        Self {
            clients: clients.iter().map(start).collect(),
            stop,
        }
    }

    /// Waits until each of these clients has had a write acknowledged that it began after `moment`.
    pub(super) async fn goes_on(&self, clients: &[usize], moment: Duration) -> Result<()> {
        for worker in &self.clients {
            if !clients.contains(&worker.client.index) {
                continue;
            }
            let mut acknowledged = worker.acknowledged.clone();
            let enough = acknowledged.wait_for(|begun| *begun > moment);
            match timeout(PATIENCE, enough).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) => return Err("a client's task has ended".into()),
                Err(_) => {
                    let Client { index, session } = &worker.client;
                    let state = session.state();
                    return Err(format!(
                        "client {index} had no write acknowledged for {PATIENCE:?}; it is {state}"
                    )
                    .into());
                }
            }
        }
        Ok(())
    }

    /// Returns whether a write of one of these clients was acknowledged that began after `moment`.
    pub(super) fn has_gone_on(&self, clients: &[usize], moment: Duration) -> bool {
        let counted = |worker: &&Worker| clients.contains(&worker.client.index);
        let mut workers = self.clients.iter().filter(counted);
        workers.any(|worker| *worker.acknowledged.borrow() > moment)
    }

    /// Has the clients stop, waits for every answer, and returns what they did.
    pub(super) async fn stop(self) -> Result<Vec<Operation>> {
        self.stop.send_replace(true);
        let mut all = Vec::new();
        for worker in self.clients {
            let index = worker.client.index;
            let done = timeout(PATIENCE, worker.task).await;
            let done = done.map_err(|_| {
                let state = worker.client.session.state();
                format!("client {index} has requests without an answer after {PATIENCE:?}; it is {state}")
            })?;
            all.extend(done?);
        }
        Ok(all)
    }
}

/// Has a client send a create, a set and a read behind a `sync`, all at once, and returns what
/// became of them.
pub(super) fn probe(client: &Client, round: &Round, clock: RunClock) -> JoinHandle<Vec<Operation>> {
    let mut answers = Vec::new();
    // One of each, as [`ClientWork::submit`] counts them.
    for number in [0, 1, 7] {
        let work = ClientWork {
            client: client.clone(),
            round: round.clone(),
            clock,
            pause: Duration::ZERO,
            issued: number,
            progress: watch::Sender::new(Duration::ZERO),
        };
        answers.push((number, clock.now(), work.submit()));
    }
    let client = client.clone();
    tokio::spawn(async move {
        let mut operations = Vec::new();
        for (number, begun, answer) in answers {
            let (act, ended) = answer.await;
            operations.push(client.operation(number, (begun, ended), act));
        }
        operations
    })
}

/// The data that a client's operation writes: of no other operation of the round.
fn value(client: usize, number: u64) -> String {
    format!("{client}-{number}")
}

/// Yields what became of an operation that was submitted, and when.
type Answer = Pin<Box<dyn Future<Output = (Act, Duration)> + Send>>;

/// The work of one client.
struct ClientWork {
    client: Client,
    round: Round,
    clock: RunClock,
    pause: Duration,
    issued: u64,
    progress: watch::Sender<Duration>,
}

impl ClientWork {
    async fn run(mut self, mut stop: watch::Receiver<bool>) -> Vec<Operation> {
        let mut done = Vec::new();
        let mut waiting: VecDeque<(u64, Duration, Answer)> = VecDeque::new();
        let mut next = tokio::time::Instant::now();
        let mut is_stopping = false;
        loop {
            if is_stopping && waiting.is_empty() {
                return done;
            }
            let may_issue = !is_stopping && waiting.len() < IN_FLIGHT;
            tokio::select! {
                biased;
                (act, ended) = front(&mut waiting), if !waiting.is_empty() => {
                    let Some((number, begun, _)) = waiting.pop_front() else {
                        continue;
                    };
                    if act.zxid().is_some() {
                        self.progress.send_replace(begun);
                    }
                    done.push(self.client.operation(number, (begun, ended), act));
                }
                () = sleep_until(next), if may_issue => {
                    let begun = self.clock.now();
                    waiting.push_back((self.issued, begun, self.submit()));
                    self.issued += 1;
                    next = (next + self.pause).max(tokio::time::Instant::now() - self.pause);
                }
                changed = stop.changed(), if !is_stopping => {
                    is_stopping = changed.is_err() || *stop.borrow();
                }
            }
        }
    }

    /// Sends the next operation: of eight, two create, four set, one reads, and one reads behind a
    /// `sync`.
    fn submit(&self) -> Answer {
        let (session, number, clock) = (&self.client.session, self.issued, self.clock);
        let data = value(self.client.index, number);
        let register = usize::try_from(number / 8).unwrap_or(0) % REGISTERS;
        let path = self.round.register(register);
        match number % 8 {
            0 | 4 => {
                let path = format!("{}/n-", self.round.queue());
                let create =
                    session.create(&path, data.as_bytes(), CreateMode::PersistentSequential);
                Box::pin(async move {
                    let outcome = outcome(create.await).map(|created| CreatedZnode {
                        name: created
                            .path
                            .rsplit('/')
                            .next()
                            .unwrap_or_default()
                            .to_owned(),
                        zxid: created.stat.czxid,
                    });
                    (Act::Create(outcome), clock.now())
                })
            }
            3 | 7 => {
                let is_synced = number % 8 == 7;
                let sync = is_synced.then(|| session.sync(&path));
                let read = session.get_data(&path);
                Box::pin(async move {
                    let synced = match sync {
                        Some(sync) => outcome(sync.await),
                        None => Outcome::Done(()),
                    };
                    let read = outcome(read.await);
                    let read = read.map(|data| (version(&data.stat), text(&data.data)));
                    // Whatever the read says, it was not behind a sync then.
                    let outcome = synced.and(read);
                    let act = Act::Read {
                        register,
                        is_synced,
                        outcome,
                    };
                    (act, clock.now())
                })
            }
            _ => {
                let set = session.set_data(&path, data.as_bytes(), None);
                Box::pin(async move {
                    let outcome = outcome(set.await).map(|stat| version(&stat));
                    (Act::Set { register, outcome }, clock.now())
                })
            }
        }
    }
}

async fn front(waiting: &mut VecDeque<(u64, Duration, Answer)>) -> (Act, Duration) {
    match waiting.front_mut() {
        Some((_, _, answer)) => answer.await,
        None => std::future::pending().await,
    }
}

fn outcome<T>(result: std::result::Result<T, Error>) -> Outcome<T> {
    match result {
        Ok(value) => Outcome::Done(value),
        Err(Error::NotSent { .. }) => Outcome::NotDone,
        Err(Error::MaybeApplied { .. } | Error::Unanswered { .. }) => Outcome::Unknown,
        Err(error) => Outcome::Refused(error.to_string()),
    }
}
