//! The start of a server of several: from a data folder to a consensus node that may run.
//!
//! Owns the order of storing and sending: what is sent to another server is durable before. Which
//! cluster the server belongs to, `baton_peers::bootstrap` decides. An empty folder that meets a
//! cluster stays here: it neither votes nor receives a log (R17).

mod waiting;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use baton_consensus::{Config, Membership};
use baton_peers::bootstrap::{
    Bootstrap, BootstrapStart, Decision, ListError, OutgoingFrames, StaticList,
};
use baton_peers::codec::{InitialMembership, LogProof};
use baton_peers::handshake::{KnownMember, LocalServer};
use baton_peers::net::{
    BindError, Exposure, Options as PeerOptions, PeerEvent, PeerEvents, Peers, TcpAcceptor,
    TcpConnector, TlsAcceptor, TlsConnector, WallClock,
};
use baton_tls::PeerTls;
use baton_tree::{FormatLevel, Tree};
use baton_wal::{Identity, MemberFolder, Storage, WalOptions};
use tokio::runtime::Handle;

use crate::core::links::addresses::PeerAddresses;
use crate::core::links::events::EventQueue;
use crate::core::links::peer_log::PeerLog;
use crate::core::snapshots::write_whole;
use crate::core::start::join::waiting::WaitLog;
use crate::core::start::recover::{Begun, recover_member};
use crate::core::start::starting::{Stage, Starting};
use crate::error::{ServerError, StartError};
use crate::listening::listener;
use crate::listening::tls::keep_peers_current;
use crate::options::{EnsembleOptions, Options, StorageChoice, stretched};
use crate::progress::Progress;
use crate::time::ServerTime;

/// Pause between two looks at whether a start that waits is to stop.
const POLL: Duration = Duration::from_millis(50);
/// The log entry that the first membership stands for.
const FIRST_INDEX: u64 = 1;

/// A member of a cluster whose consensus node may run.
pub(crate) struct Joined {
    /// Tree, consensus node and log.
    pub(crate) begun: Begun,
    /// The connections to the other servers.
    pub(crate) peers: Peers,
    /// Their events. The first ones are those of the connections that are open.
    pub(crate) events: Arc<EventQueue>,
    /// The cluster.
    pub(crate) cluster: u64,
    /// Has the first membership. Give it each event, and send what it returns: a server that missed
    /// the membership receives it from any member.
    pub(crate) bootstrap: Bootstrap,
    /// Addresses of the other servers.
    pub(crate) addresses: PeerAddresses,
    /// Limits the lines about other servers.
    pub(crate) peer_log: PeerLog,
}

/// Takes the data folder, listens for the other servers, and waits until this server is a member of
/// a cluster; then recovers its state. A server that is a member already waits for nobody.
///
/// Blocks, so it may not be called by a task of `runtime`.
///
/// # Errors
/// [`StartError`]; nothing is left running. [`StartError::Stopped`] soon after `stop` was set.
pub(crate) fn join(
    storage: Arc<dyn Storage>,
    options: &Options,
    runtime: &Handle,
    starting: &Starting,
    stop: &AtomicBool,
) -> Result<Joined, StartError> {
    let Some(ensemble) = &options.ensemble else {
        return Err(StartError::Setting {
            setting: "ensemble",
            remedy: "must be given for a member of an ensemble",
        });
    };
    let id = u64::from(options.server_id);
    if !ensemble.servers.is_empty() && !ensemble.servers.contains_key(&id) {
        return Err(ListError::LacksThisServer { id }.into());
    }
    // Before the data folder is touched: wrong files leave nothing behind.
    let tls = ensemble.tls.as_ref();
    let tls = tls.map(|tls| PeerTls::load(tls.files.clone(), tls.checks_hosts));
    let tls = tls.transpose()?.map(Arc::new);
    if let Some(tls) = &tls {
        starting.has_peer_tls(tls);
    }
    let voters = ensemble.servers.iter();
    let voters = voters.filter(|(id, _)| !ensemble.observers.contains(id));
    let start = Start {
        id,
        list: StaticList::new(voters.map(|(id, at)| (*id, at.clone())))?,
        ensemble,
        tls,
        runtime,
        starting,
        stop,
    };
    start.warn_if_even();
    if options.storage == StorageChoice::Memory {
        tracing::warn!(
            server = id,
            "the data of this server is in memory only: after a restart its ensemble does not admit it; use a data folder"
        );
    }
    let folder = MemberFolder::open(storage, start.id, u128::from_le_bytes(draw()?).max(1))?;
    let bootstrap = start.bootstrap(folder.identity())?;
    if folder.identity().cluster == 0 {
        start.as_empty(folder, bootstrap)
    } else {
        start.as_member(folder, bootstrap)
    }
}

/// Describes this server by this membership. What a member has acknowledged stays known.
pub(crate) fn describe_members(local: &mut LocalServer, membership: &Membership) {
    let acknowledged = |id, incarnation| {
        let same = |known: &&KnownMember| known.id == id && known.incarnation == incarnation;
        let known = local.members.iter().find(same);
        known.map_or(0, |known| known.acknowledged_index)
    };
    let known = membership.members.iter().map(|member| KnownMember {
        id: member.id,
        incarnation: member.incarnation,
        acknowledged_index: acknowledged(member.id, member.incarnation),
    });
    local.members = known.collect();
    let own = membership.members.iter().find(|it| it.id == local.id);
    if let Some(own) = own.filter(|own| !own.address.is_empty()) {
        own.address.clone_into(&mut local.address);
    }
}

/// One start.
struct Start<'a> {
    id: u64,
    list: StaticList,
    ensemble: &'a EnsembleOptions,
    /// The certificates of TLS between servers.
    tls: Option<Arc<PeerTls>>,
    runtime: &'a Handle,
    starting: &'a Starting,
    stop: &'a AtomicBool,
}

impl Start<'_> {
    fn warn_if_even(&self) {
        if self.list.is_even() {
            let servers = self.list.servers().len();
            tracing::warn!(
                servers,
                "an even number of servers tolerates no more failures than one server less: use an odd number"
            );
        }
    }

    fn bootstrap(&self, identity: &Identity) -> Result<Bootstrap, StartError> {
        let birth = match identity.cluster {
            0 => None,
            cluster => Some(InitialMembership {
                cluster,
                membership: Membership::decode(&identity.birth).map_err(ServerError::from)?,
            }),
        };
        Ok(Bootstrap::new(BootstrapStart {
            list: self.list.clone(),
            id: self.id,
            incarnation: identity.incarnation,
            promised: identity.promise,
            cluster: identity.cluster,
            birth,
            new_cluster: draw_number()?,
            votes: !self.ensemble.observers.contains(&self.id),
        })?)
    }

    /// The start of a member: its state first, so that it says of itself what is true.
    fn as_member(&self, folder: MemberFolder, bootstrap: Bootstrap) -> Result<Joined, StartError> {
        let identity = folder.identity().clone();
        let begun = self.recover(folder)?;
        let mut local = self.local(&identity)?;
        describe(&mut local, identity.cluster, &begun);
        let events = Arc::new(EventQueue::default());
        let peers = self.listen(local, &events)?;
        let addresses = self.addresses(&identity)?;
        let membership = begun.consensus.membership();
        self.compare_lists(membership, &addresses);
        peers.set_addresses(&addresses.of(membership));
        Ok(Joined {
            begun,
            peers,
            events,
            cluster: identity.cluster,
            bootstrap,
            addresses,
            peer_log: PeerLog::default(),
        })
    }

    /// The start of a server whose folder is empty: it waits for a cluster.
    fn as_empty(
        &self,
        mut folder: MemberFolder,
        mut bootstrap: Bootstrap,
    ) -> Result<Joined, StartError> {
        let events = Arc::new(EventQueue::default());
        let mut peer_log = PeerLog::default();
        let peers = self.listen(self.local(folder.identity())?, &events)?;
        peers.set_addresses(self.list.servers());
        let joined = self
            .wait(&mut folder, &mut bootstrap, &peers, &events, &mut peer_log)
            .and_then(|open| {
                let cluster = folder.identity().cluster;
                let addresses = self.addresses(folder.identity())?;
                Ok((open, cluster, addresses, self.recover(folder)?))
            });
        match joined {
            Ok((open, cluster, addresses, begun)) => {
                peers.update_local(|local| describe(local, cluster, &begun));
                peers.set_addresses(&addresses.of(begun.consensus.membership()));
                events.put_back(open);
                Ok(Joined {
                    begun,
                    peers,
                    events,
                    cluster,
                    bootstrap,
                    addresses,
                    peer_log,
                })
            }
            Err(error) => {
                // Waited for, so that the port is free when this returns.
                self.runtime.block_on(peers.stop());
                Err(error)
            }
        }
    }

    /// Does what the bootstrap decides until this server is a member. Returns the events of the
    /// connections that are open then.
    fn wait(
        &self,
        folder: &mut MemberFolder,
        bootstrap: &mut Bootstrap,
        peers: &Peers,
        events: &EventQueue,
        peer_log: &mut PeerLog,
    ) -> Result<Vec<PeerEvent>, StartError> {
        let mut open = Vec::new();
        let mut wait_log = WaitLog::new(self.id, self.starting);
        loop {
            loop {
                let outgoing = match bootstrap.decision() {
                    Decision::Member { .. } => return Ok(open),
                    Decision::Promise { to } => {
                        folder.promise(to)?;
                        bootstrap.promise_stored()
                    }
                    Decision::Store(birth) => {
                        folder.store_birth(birth.cluster, birth.membership.encode())?;
                        peers.update_local(|local| {
                            local.cluster = birth.cluster;
                            local.membership_index = FIRST_INDEX;
                            describe_members(local, &birth.membership);
                        });
                        bootstrap.birth_stored()
                    }
                    waits => {
                        wait_log.waits(&waits, Instant::now());
                        break;
                    }
                };
                send(peers, outgoing);
            }
            if self.stop.load(Relaxed) {
                return Err(StartError::Stopped);
            }
            for event in events.take_blocking(Instant::now() + POLL) {
                peer_log.event(&event, Instant::now());
                send(peers, bootstrap.event(&event));
                note_open(&mut open, event);
            }
        }
    }

    /// Opens the log, which begins with the first membership in a new member's folder, and recovers
    /// the state.
    fn recover(&self, folder: MemberFolder) -> Result<Begun, StartError> {
        let incarnation = folder.identity().incarnation;
        self.starting.enter(Stage::ReadLog);
        let opened = folder
            .open_log(WalOptions::default(), |writer| {
                write_whole(&mut Tree::new(), writer, &Progress::default())
            })
            .map_err(|error| StartError::of_recovery(error.into()))?;
        let config = Config {
            incarnation: Some(incarnation),
            ..Config::member(self.id, draw_number()?)
        };
        let begun =
            recover_member(opened, &config, self.starting).map_err(StartError::of_recovery)?;
        let membership = begun.consensus.membership();
        let own = membership
            .members
            .iter()
            .find(|member| member.id == self.id);
        match own {
            // A folder that was stopped while it read the time of the one before it.
            Some(own) if own.incarnation != incarnation => tracing::info!(
                server = self.id,
                entry = begun.snapshot_index,
                "the log ends before this data folder became a member: it receives the rest, and does not lead until then"
            ),
            Some(_) => {}
            None if begun.wal.last_index() <= FIRST_INDEX => tracing::info!(
                server = self.id,
                "this server is admitted to its cluster: it receives the log"
            ),
            None => tracing::warn!(
                server = self.id,
                entry = begun.snapshot_index,
                "this server was removed from its cluster: it does not vote; stop it, or add it again"
            ),
        }
        Ok(begun)
    }

    fn local(&self, identity: &Identity) -> Result<LocalServer, StartError> {
        let level = u32::try_from(FormatLevel::NEWEST.number()).unwrap_or(u32::MAX);
        let address = self.ensemble.servers.get(&self.id);
        Ok(LocalServer {
            level,
            address: address.cloned().unwrap_or_default(),
            ..LocalServer::new(self.id, identity.incarnation, draw_number()?)
        })
    }

    /// Listens for the other servers.
    fn listen(&self, local: LocalServer, events: &Arc<EventQueue>) -> Result<Peers, StartError> {
        let own = self.ensemble.servers.get(&self.id);
        let address = self.ensemble.listen.as_ref().or(own);
        let address = address.map(String::as_str).unwrap_or_default();
        let exposure = if !self.ensemble.has_plain_peers() {
            Exposure::Encrypted
        } else if self.ensemble.allow_plain_peers {
            Exposure::PlaintextNetwork
        } else {
            Exposure::LoopbackOnly
        };
        let is_unresolved = |error: &BindError| match error {
            BindError::Unresolved { source, .. } => listener::is_unresolved(source),
            _ => false,
        };
        let bind = || TcpAcceptor::bind(address, exposure);
        let acceptor =
            (self.runtime).block_on(listener::once_resolved(address, is_unresolved, bind))?;
        match exposure {
            Exposure::LoopbackOnly => tracing::info!(address, "listening for other servers"),
            Exposure::Encrypted => {
                tracing::info!(address, "listening for other servers, with TLS only");
            }
            Exposure::PlaintextNetwork => tracing::warn!(
                address,
                "listening for other servers without encryption and authentication: any host that reaches this port can \
                 change everything"
            ),
        }
        let time = ServerTime::new();
        let mut options = PeerOptions::new(draw_number()?, WallClock::new(move || time.wall_ms()));
        let timing = &mut options.timing;
        timing.dial_timeout = stretched(timing.dial_timeout, self.ensemble.tick);
        timing.handshake_timeout = stretched(timing.handshake_timeout, self.ensemble.tick);
        let events: Arc<dyn PeerEvents> = Arc::<EventQueue>::clone(events);
        let _inside = self.runtime.enter();
        let (Some(tls), Some(settings)) = (&self.tls, &self.ensemble.tls) else {
            return Ok(Peers::start(options, local, TcpConnector, acceptor, events));
        };
        // Ends with the runtime.
        self.runtime.spawn(keep_peers_current(
            Arc::clone(tls),
            settings.reload_interval,
        ));
        let acceptor = TlsAcceptor::new(acceptor, Arc::clone(tls), settings.accepts_plain);
        Ok(if settings.connects {
            let connector = TlsConnector::new(Arc::clone(tls));
            Peers::start(options, local, connector, acceptor, events)
        } else {
            Peers::start(options, local, TcpConnector, acceptor, events)
        })
    }

    /// Returns the addresses of the members.
    fn addresses(&self, identity: &Identity) -> Result<PeerAddresses, StartError> {
        let first = Membership::decode(&identity.birth).map_err(ServerError::from)?;
        Ok(PeerAddresses::new(&first, &self.ensemble.servers))
    }

    /// Warns where the configuration names other servers than the cluster has, or has another
    /// address of this server than the others look for it at.
    fn compare_lists(&self, membership: &Membership, addresses: &PeerAddresses) {
        let listed = &self.ensemble.servers;
        let own = listed.get(&self.id);
        let known = addresses.of(membership);
        if let (Some(own), Some(known)) = (own, known.get(&self.id))
            && !own.eq_ignore_ascii_case(known)
        {
            tracing::warn!(
                own,
                known,
                "the others look for this server at another address than that of its settings: correct the settings, \
                 or give it this address with baton server move"
            );
        }
        let is_member = |id: &&u64| membership.contains(**id);
        let not_members: Vec<u64> = listed.keys().filter(|id| !is_member(id)).copied().collect();
        let members = membership.members.iter().map(|member| member.id);
        let not_listed: Vec<u64> = members.filter(|id| !listed.contains_key(id)).collect();
        if !not_members.is_empty() || !not_listed.is_empty() {
            tracing::warn!(
                ?not_members,
                ?not_listed,
                "the configured list of servers is not that of the cluster's members, which counts: correct the list"
            );
        }
    }
}

/// Sets what a member says of itself.
pub(crate) fn describe(local: &mut LocalServer, cluster: u64, begun: &Begun) {
    local.cluster = cluster;
    local.term = begun.consensus.status().term;
    local.membership_index = begun.snapshot_index;
    local.last_index = begun.wal.last_index();
    let committed = begun.consensus.commit_position();
    local.proof = LogProof {
        commit_index: committed.index,
        commit_term: committed.term,
        acknowledged_index: 0,
    };
    describe_members(local, begun.consensus.membership());
}

/// Sends frames of the bootstrap. What cannot be sent now is sent with the next connection.
fn send(peers: &Peers, outgoing: OutgoingFrames) {
    for (to, frame) in outgoing {
        let _ = peers.send(to, frame);
    }
}

/// Keeps the event of each connection that is open.
fn note_open(open: &mut Vec<PeerEvent>, event: PeerEvent) {
    match event {
        PeerEvent::Connected { .. } => open.push(event),
        PeerEvent::Disconnected { link: ended, .. } => open
            .retain(|event| !matches!(event, PeerEvent::Connected { link, .. } if *link == ended)),
        _ => {}
    }
}

/// Random bytes of the system.
fn draw<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| io::Error::other(format!("the system gave no random bytes: {error}")))?;
    Ok(bytes)
}

/// A random number that is not 0.
fn draw_number() -> io::Result<u64> {
    Ok(u64::from_le_bytes(draw()?).max(1))
}

#[cfg(test)]
mod tests;
