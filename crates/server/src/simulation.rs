//! The server without its thread and without sockets, for deterministic tests: the same core, log,
//! sessions' clocks, watches and connections, as tasks of one tokio runtime whose time is paused.
//! Owns how they are driven; whatever they decide is decided by the code that runs in production.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use baton_proto::Stat;
use baton_tree::Identity;
use baton_wal::Storage;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::commit::pipeline::CommitPipeline;
use crate::commit::starting::Starting;
use crate::connections::inbox::Work;
use crate::connections::peer::Peer;
use crate::error::{ServerError, StartError};
use crate::net::accept;
use crate::net::stream::Stream;
pub use crate::net::stream::{MemoryInput, MemoryOutput};
use crate::options::Options;
use crate::server::prepare;
use crate::state::ServerState;
use crate::time::{Clock, ServerTime};

/// The clocks of a simulated server, which follow the runtime's clock.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedClocks {
    /// What the wall clock reads at the start, in milliseconds since 1970.
    pub wall_ms: i64,
    /// How fast the clocks run, in parts per million of the runtime's clock.
    pub rate_ppm: u32,
}

impl SimulatedClocks {
    /// Clocks that run as fast as the runtime's.
    #[must_use]
    pub const fn at(wall_ms: i64) -> Self {
        Self {
            wall_ms,
            rate_ppm: 1_000_000,
        }
    }
}

/// A server that runs as tasks of the calling runtime. Dropping it is a crash: its connections
/// break, what was acknowledged stays in the storage for the next one.
pub struct SimulatedServer {
    state: Arc<ServerState>,
    core: Arc<Mutex<Option<CommitPipeline>>>,
    tasks: Mutex<JoinSet<()>>,
}

impl fmt::Debug for SimulatedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedServer").finish_non_exhaustive()
    }
}

impl SimulatedServer {
    /// Recovers from `storage` and starts. Needs a current-thread runtime for a run to be
    /// repeatable.
    ///
    /// # Errors
    /// [`StartError`], as [`Server::start_with`](crate::Server::start_with).
    pub fn start(
        options: Options,
        storage: Arc<dyn Storage>,
        clocks: SimulatedClocks,
    ) -> Result<Self, StartError> {
        options.check()?;
        let time = ServerTime::simulated(clocks.wall_ms, Clock::with_rate(clocks.rate_ppm));
        let (state, core) = prepare(options, storage, time, &Starting::default())?;
        let core = Arc::new(Mutex::new(Some(core)));
        let mut tasks = JoinSet::new();
        tasks.spawn(drive(Arc::clone(&state), Arc::clone(&core)));
        Ok(Self {
            state,
            core,
            tasks: Mutex::new(tasks),
        })
    }

    /// Serves one connection, to its end or the server's.
    pub fn serve(&self, input: impl MemoryInput, output: impl MemoryOutput) {
        let stream = Stream::Memory(Box::new(input), Box::new(output));
        if let Some(life) = accept::take_on(&self.state, stream, Peer::Local) {
            self.tasks.lock().spawn(life);
        }
    }

    /// Every znode that is readable by all, in depth-first order.
    #[must_use]
    pub fn nodes(&self) -> Vec<(String, Stat)> {
        let identity = Identity::from_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let tree = self.state.tree.read();
        let mut found = Vec::new();
        let mut open = vec!["/".to_owned()];
        while let Some(path) = open.pop() {
            let Ok((children, stat)) = tree.get_children(&path, &identity) else {
                continue;
            };
            let mut children: Vec<String> = children
                .into_iter()
                .map(|name| baton_proto::path::join(&path, name))
                .collect();
            children.sort_unstable_by(|a, b| b.cmp(a));
            open.append(&mut children);
            found.push((path, stat));
        }
        found
    }

    /// The data of a znode that is readable by all.
    #[must_use]
    pub fn data(&self, path: &str) -> Option<Vec<u8>> {
        let identity = Identity::from_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let tree = self.state.tree.read();
        let (data, _) = tree.get_data(path, &identity).ok()?;
        Some(data.map(<[u8]>::to_vec).unwrap_or_default())
    }

    /// Every watch, as `wchp` shows it: path and the session that watches, in order of path.
    #[must_use]
    pub fn watches(&self) -> Vec<(String, i64)> {
        let mut found = Vec::new();
        let mut from = Some(0);
        while let Some(slot) = from {
            from =
                self.state
                    .watches
                    .lock()
                    .next_watched(slot, (usize::MAX, usize::MAX), &mut found);
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        let each = found.into_iter().flat_map(|watched| {
            let path = watched.path.to_string();
            let sessions = watched.sessions.into_iter();
            sessions.map(move |session| (path.clone(), session))
        });
        each.collect()
    }

    /// The ids of the open sessions, in order.
    #[must_use]
    pub fn sessions(&self) -> Vec<i64> {
        let mut ids: Vec<i64> = self.state.tree.read().sessions().map(|s| s.id).collect();
        ids.sort_unstable();
        ids
    }
}

impl Drop for SimulatedServer {
    fn drop(&mut self) {
        self.state.inbox.close();
        self.tasks.get_mut().abort_all();
        // Here and not when its task is: the storage is then free for the next server.
        drop(self.core.lock().take());
    }
}

/// The core as a task: what [`CommitPipeline::run`] does on its thread.
async fn drive(state: Arc<ServerState>, core: Arc<Mutex<Option<CommitPipeline>>>) {
    let mut work = Work::default();
    loop {
        let Some(deadline) = core.lock().as_ref().map(CommitPipeline::deadline) else {
            return;
        };
        let due = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(state.time.timer_at(deadline)).await,
                None => std::future::pending().await,
            }
        };
        let ready = std::future::poll_fn(|cx| state.inbox.poll_take(&mut work, cx));
        tokio::select! {
            biased;
            () = ready => {}
            () = due => {}
        }
        let outcome = match core.lock().as_mut() {
            Some(core) => core.turn(&mut work, state.time.now()),
            None => return,
        };
        if let Err(error) = outcome {
            stop_for(&state, &error);
            return;
        }
    }
}

fn stop_for(state: &ServerState, error: &ServerError) {
    tracing::error!("{error}");
    state.inbox.close();
    state.close_connections();
}
