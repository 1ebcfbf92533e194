//! Stage of a scenario: clients, actors, calls that may be cancelled, and the words with which it
//! judges.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use baton_client::testing::VirtualClock;
use baton_client::{BoxFuture, Client, Config, CreateMode, Session, Stat};
use baton_server::simulation::SimulatedServer;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cancel::Cancellable;
use crate::cluster::SUPERUSER;
use crate::fault::CancelAt;
use crate::network::Network;
use crate::occupancy::Occupancy;

/// Actors that are not done by then are stuck: longer than all faults of a plan can take.
const PATIENCE: Duration = Duration::from_secs(180);

/// Time for which frames of clients may still be on their way once nothing goes wrong any more.
const AFTERMATH: Duration = Duration::from_secs(5);
/// Servers that have no leader or no common state this long after that never will.
const REST_LIMIT: Duration = Duration::from_secs(10);
/// Pause between two looks at them.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Factor by which a write may take longer on several servers, whose networks and disks are slower.
const PACE_OF_SEVERAL: u64 = 40;

/// The session timeout of a client of one server: a session whose opening was not answered ends
/// before a run is judged.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// The session timeout of a client that changes the members.
const OPERATOR_TIMEOUT: Duration = Duration::from_secs(3);

struct Calls {
    cancels: Vec<CancelAt>,
    /// Polls of each cancellable call so far.
    polls: Vec<usize>,
}

struct Inner {
    network: Network,
    clients: Vec<Client>,
    calls: Mutex<Calls>,
    rng: Mutex<fastrand::Rng>,
}

/// One run's stage. Cheap to clone.
#[derive(Clone)]
pub struct Stage(Arc<Inner>);

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage").finish_non_exhaustive()
    }
}

/// An actor: who, and what it does.
pub type Actor = (String, BoxFuture<()>);

impl Stage {
    pub(crate) fn new(
        network: Network,
        clients: usize,
        session_timeout: Duration,
        seed: u64,
        cancels: Vec<CancelAt>,
    ) -> Result<Self, baton_client::ConfigError> {
        let clock = VirtualClock::new();
        let servers = network.connect_string();
        let configs: Vec<Config> = (0..clients)
            .map(|client| {
                let config = Config::new(&servers)?
                    .session_timeout(session_timeout)
                    .connect_within(session_timeout * 15)
                    .runtime(Handle::current())
                    .clock(network.process(client).clock(clock.clone()))
                    .transport(network.transport(client));
                Ok(config)
            })
            .collect::<Result<_, baton_client::ConfigError>>()?;
        let clients = configs.into_iter().map(Client::lazy).collect();
        Ok(Self(Arc::new(Inner {
            network,
            clients,
            calls: Mutex::new(Calls {
                cancels,
                polls: Vec::new(),
            }),
            rng: Mutex::new(fastrand::Rng::with_seed(seed ^ 0x5eed)),
        })))
    }

    pub(crate) fn network(&self) -> &Network {
        &self.0.network
    }

    /// A client of its own, as if in a process of its own. Its session is opened when it is first
    /// needed.
    ///
    /// # Panics
    /// If the scenario has fewer clients.
    #[must_use]
    #[allow(
        clippy::expect_used,
        reason = "a scenario that asks for a client that it did not order is a defect of the scenario"
    )]
    pub fn client(&self, number: usize) -> &Client {
        self.0
            .clients
            .get(number)
            .expect("the scenario has that many clients")
    }

    pub(crate) fn clients(&self) -> &[Client] {
        &self.0.clients
    }

    /// A client that connects to this one server of several only.
    ///
    /// # Errors
    /// The configuration makes no sense.
    pub(crate) fn client_of(&self, server: u64) -> Result<Client, baton_client::ConfigError> {
        let place = usize::try_from(server).unwrap_or(usize::MAX);
        let config = self.config_beside(&format!("s{server}:1"), place)?;
        Ok(Client::lazy(config.session_timeout(PROBE_TIMEOUT)))
    }

    /// A client that connects to these servers only, in this order at first.
    ///
    /// # Errors
    /// The configuration makes no sense.
    #[cfg(test)]
    pub(crate) fn client_of_some(
        &self,
        servers: &[u64],
    ) -> Result<Client, baton_client::ConfigError> {
        let listed: Vec<String> = servers.iter().map(|id| format!("s{id}:1")).collect();
        let config = self.config_beside(&listed.join(","), self.network().ids().len() + 2)?;
        Ok(Client::lazy(config))
    }

    /// A client that may change the members of several servers.
    ///
    /// # Errors
    /// The configuration makes no sense.
    pub(crate) fn operator(&self) -> Result<Client, baton_client::ConfigError> {
        let servers = self.network().connect_string();
        let config = self.config_beside(&servers, self.network().ids().len() + 1)?;
        let config = config.session_timeout(OPERATOR_TIMEOUT);
        Ok(Client::lazy(config.auth("digest", SUPERUSER)))
    }

    /// The number of a client that knows nothing but the network.
    pub(crate) fn last_client(&self) -> usize {
        self.0.clients.len() + self.network().ids().len() + 2
    }

    /// For a client beside those of the scenario.
    fn config_beside(
        &self,
        servers: &str,
        place: usize,
    ) -> Result<Config, baton_client::ConfigError> {
        let number = self.0.clients.len().saturating_add(place);
        Ok(Config::new(servers)?
            .connect_within(Duration::from_secs(10))
            .runtime(Handle::current())
            .clock(Arc::new(VirtualClock::new()))
            .transport(self.network().transport(number)))
    }

    /// Runs the actors side by side until all are done. Fails the run for those who never are.
    pub async fn together(&self, actors: Vec<Actor>) {
        let mut tasks = JoinSet::new();
        let names: Vec<String> = actors.iter().map(|(name, _)| name.clone()).collect();
        let done = Arc::new(Mutex::new(vec![false; actors.len()]));
        for (number, (_, actor)) in actors.into_iter().enumerate() {
            let done = Arc::clone(&done);
            tasks.spawn(async move {
                actor.await;
                if let Some(done) = done
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .get_mut(number)
                {
                    *done = true;
                }
            });
        }
        let all = async {
            while let Some(ended) = tasks.join_next().await {
                if let Err(error) = ended {
                    self.fail(&format!("an actor panicked: {error}"));
                }
            }
        };
        if tokio::time::timeout(PATIENCE, all).await.is_err() {
            let done = done.lock().unwrap_or_else(PoisonError::into_inner).clone();
            for (name, _) in names.iter().zip(done).filter(|(_, done)| !done) {
                self.fail(&format!("{name} is stuck"));
            }
        }
    }

    /// Runs `count` actors that do the same like [`Stage::together`], each in the process of the
    /// client of its number.
    pub async fn crew<A>(&self, count: usize, act: impl Fn(Self, usize) -> A)
    where
        A: Future<Output = ()> + Send + 'static,
    {
        let actors = (0..count).map(|number| {
            let process = self.network().process(number);
            let actor: BoxFuture<()> = Box::pin(process.run(act(self.clone(), number)));
            (format!("client {number}"), actor)
        });
        self.together(actors.collect()).await;
    }

    /// Makes a persistent node, however often it takes.
    pub async fn ensure(&self, client: usize, path: &str) {
        loop {
            if let Ok(session) = self.client(client).session().await {
                match session.create(path, &[], CreateMode::Persistent).await {
                    Ok(_) => return,
                    Err(error) if error.is_node_exists() => return,
                    Err(_) => {}
                }
            }
            self.pause(50).await;
        }
    }

    /// Drives a call that the plan may drop at any of its polls: `None` where it did.
    pub async fn cancellable<F: Future>(&self, call: F) -> Option<F::Output> {
        let (number, at) = {
            let mut calls = self.calls();
            let number = calls.polls.len();
            calls.polls.push(0);
            let at = calls.cancels.iter().find(|at| at.call == number);
            (number, at.map(|at| (at.poll, at.edge)))
        };
        let inner = Arc::clone(&self.0);
        let count = move |poll: usize| {
            let mut calls = inner.calls.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(polls) = calls.polls.get_mut(number) {
                *polls = poll + 1;
            }
        };
        let outcome = Cancellable::new(call, at, count).await;
        if outcome.is_none() {
            self.note(|| format!("CANCELLED call {number}"));
        }
        outcome
    }

    fn calls(&self) -> std::sync::MutexGuard<'_, Calls> {
        self.0.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls of each cancellable call.
    pub(crate) fn polls(&self) -> Vec<usize> {
        self.calls().polls.clone()
    }

    /// A watch over something that `capacity` weights may hold at a time.
    #[must_use]
    pub fn occupancy(&self, what: &str, capacity: usize) -> Occupancy {
        Occupancy::new(self.network().clone(), what, capacity)
    }

    /// A line of the transcript.
    pub fn note(&self, text: impl FnOnce() -> String) {
        self.network().recorder().note(text);
    }

    /// Something has come about that the scenario has to meet in one of its runs, see
    /// [`Boundary`](crate::scenario::Boundary).
    pub fn mark(&self, mark: &'static str) {
        self.network().recorder().mark(mark);
    }

    /// Something that must not happen has happened.
    pub fn fail(&self, what: &str) {
        self.network().recorder().fail(what);
    }

    /// Fails the run unless `truth`.
    pub fn expect(&self, truth: bool, otherwise: impl FnOnce() -> String) {
        if !truth {
            self.fail(&otherwise());
        }
    }

    /// Whether the time in which things may go wrong is over.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        !self.network().is_open()
    }

    /// The session must not expire while this client of several servers has a lease on it.
    pub(crate) fn expects_lease_to_hold(&self, client: usize, session: &Session) {
        let (id, session) = (session.id(), session.clone());
        self.network()
            .is_believed(client, id, move || session.lease().is_valid());
    }

    /// From here on nothing goes wrong any more.
    pub fn calm(&self) {
        self.network().heal();
    }

    /// Lets virtual time pass.
    pub async fn pause(&self, millis: u64) {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }

    /// A number below `bound` by the plan's seed.
    #[must_use]
    pub fn below(&self, bound: u64) -> u64 {
        let mut rng = self.0.rng.lock().unwrap_or_else(PoisonError::into_inner);
        rng.u64(0..bound.max(1))
    }

    /// `millis` of a scenario with one server, in proportion where several answer: for times that
    /// a write has to fit into.
    #[must_use]
    pub fn paced(&self, millis: u64) -> u64 {
        match self.network().has_several() {
            true => millis * PACE_OF_SEVERAL,
            false => millis,
        }
    }

    /// Returns the state that a run is judged by: of one server, its own; of several, the one that
    /// all members have applied. Those are made whole for that, and nothing goes wrong from here
    /// on.
    ///
    /// Fails the run and returns `None` where there is no such state: no judge may take that for a
    /// tree without nodes.
    pub async fn final_state(&self) -> Option<FinalState> {
        let network = self.network();
        if network.has_several() && network.is_open() {
            network.heal();
            tokio::time::sleep(AFTERMATH).await;
        }
        let limit = Instant::now() + REST_LIMIT;
        loop {
            match network.agreed() {
                Ok(server) => return Some(FinalState(server)),
                Err(unrest) if Instant::now() >= limit => {
                    self.fail(&format!("the servers do not come to rest: {unrest}"));
                    return None;
                }
                Err(_) => tokio::time::sleep(LOOK_INTERVAL).await,
            }
        }
    }
}

/// State on which the servers of a run have agreed, see [`Stage::final_state`].
#[derive(Debug)]
pub struct FinalState(Arc<SimulatedServer>);

impl FinalState {
    /// Every node, with its stat.
    #[must_use]
    pub fn all_nodes(&self) -> Vec<(String, Stat)> {
        self.0.nodes()
    }

    /// The nodes below `path`, with their stats.
    #[must_use]
    pub fn nodes(&self, path: &str) -> Vec<(String, Stat)> {
        let below = format!("{path}/");
        let mut nodes = self.0.nodes();
        nodes.retain(|(node, _)| node.starts_with(&below));
        nodes
    }

    /// The data of a node.
    #[must_use]
    pub fn data(&self, path: &str) -> Option<Vec<u8>> {
        self.0.data(path)
    }

    /// The open sessions.
    #[must_use]
    pub fn sessions(&self) -> Vec<i64> {
        self.0.sessions()
    }
}
