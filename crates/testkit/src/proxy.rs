//! A loopback TCP proxy that sees frames and fails at the one a script names. Owns the accept loop
//! and what a test may command; the rules are in `rules`, the moving of bytes in `pump`. Never
//! alters a frame.

mod frames;
mod pump;
mod rules;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub use frames::{Direction, Frame, FrameKind};
pub use rules::{Action, Fault, Match, Rule, Variant};

use pump::Link;
use rules::RuleSet;

/// Frames remembered for [`Proxy::frames`] and [`Proxy::count`].
const HISTORY: usize = 65_536;

/// Treatment of connections that are made from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectPolicy {
    /// They are forwarded.
    Open,
    /// They are accepted and reset at once, as if nothing listened.
    Refuse,
    /// They are accepted and nothing moves until [`Proxy::heal`].
    Silent,
}

/// The proxy. Dropping it closes its listener and every connection through it.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<ProxyState>,
    addr: SocketAddr,
    accept: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
pub(crate) struct ProxyState {
    state: Mutex<State>,
    rules: RuleSet,
    /// Counts accepted connections; awaited by tests.
    accepted: watch::Sender<u64>,
    /// Counts connections that still move bytes.
    live: watch::Sender<u64>,
    record_bodies: bool,
}

#[derive(Debug)]
struct State {
    upstream: SocketAddr,
    door: ConnectPolicy,
    links: Vec<Weak<Link>>,
    history: VecDeque<Frame>,
}

impl ProxyState {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn links(&self) -> Vec<Arc<Link>> {
        let mut state = self.state();
        state.links.retain(|link| link.strong_count() > 0);
        state.links.iter().filter_map(Weak::upgrade).collect()
    }

    /// Remembers the frame and finds the rules that it sets off.
    pub(crate) fn observe(&self, frame: &Frame) -> Vec<Arc<Rule>> {
        let mut state = self.state();
        if state.history.len() == HISTORY {
            state.history.pop_front();
        }
        state.history.push_back(frame.clone());
        drop(state);
        self.rules.fire(frame)
    }
}

impl Proxy {
    /// A proxy on a free loopback port that forwards to `upstream`.
    ///
    /// # Errors
    /// No loopback port could be bound.
    pub async fn start(upstream: SocketAddr) -> io::Result<Self> {
        Self::launch(upstream, false).await
    }

    /// [`Proxy::start`] with every remembered [`Frame`] keeping its bytes: for recording
    /// conversations.
    ///
    /// # Errors
    /// As [`Proxy::start`].
    pub async fn start_recording(upstream: SocketAddr) -> io::Result<Self> {
        Self::launch(upstream, true).await
    }

    async fn launch(upstream: SocketAddr, record_bodies: bool) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(ProxyState {
            state: Mutex::new(State {
                upstream,
                door: ConnectPolicy::Open,
                links: Vec::new(),
                history: VecDeque::new(),
            }),
            rules: RuleSet::default(),
            accepted: watch::Sender::new(0),
            live: watch::Sender::new(0),
            record_bodies,
        });
        let accept = tokio::spawn(accept_loop(listener, Arc::clone(&shared)));
        Ok(Self {
            shared,
            addr,
            accept,
        })
    }

    /// Address to connect to instead of the server's.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// [`Proxy::addr`] as clients take it.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.addr.to_string()
    }

    /// Begins a rule: at the frame that `what` describes, do something.
    ///
    /// Rules are tried in the order in which they were made; every rule that a frame sets off acts,
    /// and the first cut ends the frame's way.
    #[must_use = "a rule does nothing until it is given an action by `then`, or is made to `observe`"]
    pub fn on(&self, what: Match) -> RuleBuilder<'_> {
        RuleBuilder { proxy: self, what }
    }

    /// Removes every rule; holds are released.
    pub fn clear_rules(&self) {
        self.shared.rules.clear();
    }

    /// Cuts every connection that exists now, between frames or within one.
    pub fn cut_all(&self, variant: Variant) {
        for link in self.shared.links() {
            link.cut(variant);
        }
    }

    /// Sets what happens to connections that are made from now on.
    pub fn set_door(&self, door: ConnectPolicy) {
        self.shared.state().door = door;
    }

    /// New connections are reset at once until [`Proxy::heal`].
    pub fn refuse(&self) {
        self.set_door(ConnectPolicy::Refuse);
    }

    /// Nothing moves any more, on old connections and on new ones, and neither side is notified,
    /// until [`Proxy::heal`].
    pub fn partition(&self) {
        self.set_door(ConnectPolicy::Silent);
        self.cut_all(Variant::BlackHole);
    }

    /// Ends black holes and opens the door. What was sent into a black hole is delivered now, as
    /// TCP would after a healed partition: bytes first, then the close if a side has closed in the
    /// meantime.
    pub fn heal(&self) {
        self.set_door(ConnectPolicy::Open);
        for link in self.shared.links() {
            link.heal();
        }
    }

    /// Number of connections accepted since the start.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        *self.shared.accepted.borrow()
    }

    /// Waits until this number of connections was accepted since the start.
    pub async fn wait_accepted(&self, at_least: u64) {
        let mut accepted = self.shared.accepted.subscribe();
        // The sender lives in `self`, so waiting ends only when the count is reached.
        let _ = accepted.wait_for(|count| *count >= at_least).await;
    }

    /// Number of connections that exist, black-holed ones among them.
    #[must_use]
    pub fn live(&self) -> u64 {
        *self.shared.live.borrow()
    }

    /// Waits until exactly this number of connections exists.
    pub async fn wait_live(&self, at_most: u64) {
        let mut live = self.shared.live.subscribe();
        let _ = live.wait_for(|count| *count <= at_most).await;
    }

    /// The last 65,536 frames seen, oldest first. A frame is seen when it has arrived at the proxy,
    /// whether or not it was then forwarded.
    #[must_use]
    pub fn frames(&self) -> Vec<Frame> {
        self.shared.state().history.iter().cloned().collect()
    }

    /// Number of [`Proxy::frames`] that `what` describes; its `nth` is ignored.
    #[must_use]
    pub fn count(&self, what: &Match) -> usize {
        self.shared
            .state()
            .history
            .iter()
            .filter(|frame| what.describes(frame))
            .count()
    }

    /// Forgets the frames seen so far.
    pub fn clear_frames(&self) {
        self.shared.state().history.clear();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accept.abort();
        for link in self.shared.links() {
            link.cut(Variant::Rst);
        }
        self.clear_rules();
    }
}

/// A rule in the making; see [`Proxy::on`].
#[derive(Debug)]
pub struct RuleBuilder<'p> {
    proxy: &'p Proxy,
    what: Match,
}

impl RuleBuilder<'_> {
    /// Installs the rule with this action. The rule stays when the [`Fault`] is dropped.
    pub fn then(self, action: Action) -> Fault {
        self.proxy.shared.rules.install(self.what, action)
    }

    /// Installs a rule that only watches: the frame passes, and the [`Fault`] reports it.
    pub fn observe(self) -> Fault {
        self.then(Action::Pass)
    }
}

async fn accept_loop(listener: TcpListener, shared: Arc<ProxyState>) {
    let mut number = 0;
    loop {
        let Ok((client, _)) = listener.accept().await else {
            // Out of file descriptors: other tasks must get the chance to close some.
            tokio::task::yield_now().await;
            continue;
        };
        number += 1;
        let (door, upstream) = {
            let state = shared.state();
            (state.door, state.upstream)
        };
        let _ = client.set_nodelay(true);
        let link = Link::new(number);
        match door {
            ConnectPolicy::Open => {}
            ConnectPolicy::Refuse => {
                let _ = client.set_zero_linger();
                drop(client);
                shared.accepted.send_modify(|count| *count += 1);
                continue;
            }
            ConnectPolicy::Silent => link.cut(Variant::BlackHole),
        }
        shared.state().links.push(Arc::downgrade(&link));
        shared.live.send_modify(|count| *count += 1);
        shared.accepted.send_modify(|count| *count += 1);
        tokio::spawn(serve(client, upstream, link, Arc::clone(&shared)));
    }
}

async fn serve(client: TcpStream, upstream: SocketAddr, link: Arc<Link>, shared: Arc<ProxyState>) {
    // A connection that is made into a partition reaches nobody before that heals.
    link.wait_light().await;
    match TcpStream::connect(upstream).await {
        Ok(server) => {
            let _ = server.set_nodelay(true);
            pump::run(client, server, link, &shared).await;
        }
        Err(error) => {
            tracing::debug!(%upstream, %error, "proxy could not reach its upstream");
            let _ = client.set_zero_linger();
        }
    }
    shared
        .live
        .send_modify(|count| *count = count.saturating_sub(1));
}
