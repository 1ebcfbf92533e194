//! The start of a cluster from a static list, without two clusters from one list (R18). Sans-I/O.
//!
//! Each server starts with the same list of voters and an empty data folder, which has drawn an
//! *incarnation*. The server with the lowest id gives birth to the cluster: it draws the cluster id
//! and stores the first membership, then sends it to the others, which store it too.
//!
//! The rule that keeps two clusters apart is the *promise*. A data folder promises once in its
//! life, and durably, to accept a first membership from one incarnation of the lowest server only.
//! The lowest server gives birth when it has the promise of every other voter of the list. So no
//! data folder belongs to two births: each birth has the promise of all its folders, and a folder
//! that was emptied has another incarnation, which no earlier membership names.
//!
//! An empty folder that meets a cluster waits to be admitted. It never gives birth and never votes.
//! The members refuse its handshake until the membership has its id and its incarnation; a
//! connection to a member is therefore the admission, and the first frame on it is the cluster's
//! first membership. An observer is never among the first members and is admitted in this way.
//! The owner stores what a decision asks for, and sends what the calls return.

mod list;

use std::collections::{BTreeMap, BTreeSet};

use baton_consensus::{Member, Membership};

pub use list::{ListError, StaticList};

use crate::codec::{BootstrapReport, Frame, InitialMembership, Lane};
use crate::net::{Direction, Link, PeerEvent};

/// Knowledge of a server at its start.
#[derive(Debug, Clone)]
pub struct BootstrapStart {
    /// The voters of its configuration.
    pub list: StaticList,
    /// Its id.
    pub id: u64,
    /// The incarnation of its data folder, on disk.
    pub incarnation: u128,
    /// The promise of its data folder, on disk; 0 for none.
    pub promised: u128,
    /// The cluster of its data folder; 0: the folder is empty.
    pub cluster: u64,
    /// The first membership of that cluster, while the data folder still has it.
    pub birth: Option<InitialMembership>,
    /// The id that a cluster would get. Drawn by chance; not 0.
    pub new_cluster: u64,
    /// Whether this server is to vote, and so has to be in the list.
    pub votes: bool,
}

/// Next step of the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Nothing but to wait.
    Wait(WaitReason),
    /// Store this promise in the data folder, then call [`Bootstrap::promise_stored`].
    Promise {
        /// The incarnation of the lowest server.
        to: u128,
    },
    /// Store this membership as the first snapshot, then call [`Bootstrap::birth_stored`].
    Store(InitialMembership),
    /// A cluster exists, of which this server is not a member: it waits to be admitted. It must not
    /// vote.
    Join {
        /// The cluster.
        cluster: u64,
    },
    /// This server is a member. Start the consensus.
    Member {
        /// The cluster.
        cluster: u64,
    },
    /// No cluster can start until the operator has changed something.
    Refuse(StartRefusal),
}

/// Event that is waited for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitReason {
    /// Servers that have not been reached. The very first start needs all of them.
    #[error(
        "waiting for servers {0:?}: the first start of a cluster needs every server of the list"
    )]
    Unreached(Vec<u64>),
    /// Servers that have not promised yet.
    #[error("waiting for the promise of servers {0:?}")]
    Promises(Vec<u64>),
    /// The lowest server has not sent the membership yet.
    #[error("waiting for server {0} to start the cluster")]
    Birth(u64),
}

/// Reason why no cluster can start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartRefusal {
    /// A server has another list.
    #[error("server {0} was started with another list of servers: compare both configurations")]
    OtherList(u64),
    /// The lowest server has another data folder than the one that this server has promised to
    /// follow.
    #[error(
        "server {lowest} has another data folder than when this server, which is still empty, promised to follow it: \
         stop this server, remove its data folder, and start it again"
    )]
    PromiseOutdated {
        /// The lowest server.
        lowest: u64,
    },
    /// Servers have promised to follow an earlier data folder of this one.
    #[error(
        "servers {0:?} are still empty and have promised to follow an earlier data folder of this server: stop them, \
         remove their data folders, and start them again"
    )]
    PromisedElsewhere(Vec<u64>),
    /// The servers of the list belong to different clusters.
    #[error(
        "the servers of the list belong to different clusters, {one:016x} and {other:016x}: correct the list, or start \
         each server with the data folder of its cluster"
    )]
    TwoClusters {
        /// One cluster.
        one: u64,
        /// The other one.
        other: u64,
    },
}

/// State of another server of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerView {
    /// It is connected and has reported.
    Report(BootstrapReport),
    /// It belongs to a cluster and refuses this server.
    Cluster(u64),
}

/// Frames to send, each with its receiver.
pub type OutgoingFrames = Vec<(u64, Frame)>;

/// The start of one server. See the module's page.
#[derive(Debug, Clone)]
pub struct Bootstrap {
    list: StaticList,
    id: u64,
    incarnation: u128,
    promised: u128,
    cluster: u64,
    birth: Option<InitialMembership>,
    new_cluster: u64,
    seen: BTreeMap<u64, ServerView>,
    /// Servers with an empty folder whose handshake a member, this server, has accepted.
    admitted: BTreeSet<u64>,
    /// Members that have accepted the handshake of this server, whose folder is empty, with their
    /// cluster.
    admitted_by: BTreeMap<u64, u64>,
    /// A promise that is to be stored.
    promising: u128,
    /// A membership that is to be stored. It is never taken back: it may be on disk already.
    storing: Option<InitialMembership>,
}

impl Bootstrap {
    /// A server that starts.
    ///
    /// # Errors
    /// [`ListError::LacksThisServer`].
    pub fn new(start: BootstrapStart) -> Result<Bootstrap, ListError> {
        let id = start.id;
        if start.votes && !start.list.servers().contains_key(&id) {
            return Err(ListError::LacksThisServer { id });
        }
        let mut bootstrap = Bootstrap {
            list: start.list,
            id,
            incarnation: start.incarnation,
            promised: start.promised,
            cluster: start.cluster,
            birth: start.birth,
            new_cluster: start.new_cluster,
            seen: BTreeMap::new(),
            admitted: BTreeSet::new(),
            admitted_by: BTreeMap::new(),
            promising: 0,
            storing: None,
        };
        bootstrap.give_birth_when_due();
        Ok(bootstrap)
    }

    /// An event of the transport; returns what is to be sent.
    pub fn event(&mut self, event: &PeerEvent) -> OutgoingFrames {
        if let PeerEvent::Connected { link, hello, .. } = event {
            // Between a member and an empty folder the handshake passes only by admission.
            match (self.cluster, hello.cluster) {
                (0, 0) => {}
                (0, cluster) => {
                    self.admitted_by.insert(link.peer, cluster);
                }
                (_, 0) => {
                    self.admitted.insert(link.peer);
                }
                _ => {
                    self.admitted.remove(&link.peer);
                }
            }
        }
        match event {
            PeerEvent::Connected { link, .. } if is_of(link, Direction::Outbound) => {
                let mut out = self.connected(link.peer);
                if out.len() == 1 && self.admitted.contains(&link.peer) {
                    out.extend(
                        self.birth
                            .clone()
                            .map(|birth| (link.peer, Frame::Birth(birth))),
                    );
                }
                out
            }
            PeerEvent::Disconnected { link, .. } if is_of(link, Direction::Inbound) => {
                self.disconnected(link.peer);
                OutgoingFrames::new()
            }
            PeerEvent::Frame { link, frame, .. } => match frame {
                Frame::BirthReport(report) => self.reported(link.peer, *report),
                Frame::Birth(birth) => {
                    self.received(birth.clone());
                    self.received_by_admission(link.peer, birth);
                    OutgoingFrames::new()
                }
                _ => OutgoingFrames::new(),
            },
            PeerEvent::Refused {
                peer: Some(peer),
                refusal,
                ..
            } => {
                if let Some(cluster) = refusal.cluster() {
                    self.met_cluster(*peer, cluster);
                }
                OutgoingFrames::new()
            }
            _ => OutgoingFrames::new(),
        }
    }

    /// A server is connected, in the direction in which this one sends.
    pub fn connected(&mut self, peer: u64) -> OutgoingFrames {
        let mut out = vec![(peer, Frame::BirthReport(self.report()))];
        // Its report may have come before anything could be sent to it.
        out.extend(self.birth_for(peer));
        out
    }

    /// The connection on which a server reported has ended.
    pub fn disconnected(&mut self, peer: u64) {
        if let Some(ServerView::Report(_)) = self.seen.get(&peer) {
            self.seen.remove(&peer);
        }
    }

    /// A server belongs to a cluster and refuses this one, or is refused by it.
    pub fn met_cluster(&mut self, peer: u64, cluster: u64) {
        if cluster != 0 && self.list.servers().contains_key(&peer) {
            self.seen.insert(peer, ServerView::Cluster(cluster));
        }
    }

    /// A server has reported.
    pub fn reported(&mut self, peer: u64, report: BootstrapReport) -> OutgoingFrames {
        if self.cluster != 0 && report.cluster == 0 && self.admitted.contains(&peer) {
            let birth = self.birth.clone().map(Frame::Birth);
            return birth.map(|birth| (peer, birth)).into_iter().collect();
        }
        if peer == self.id || !self.list.servers().contains_key(&peer) {
            return Vec::new();
        }
        self.seen.insert(peer, ServerView::Report(report));
        let may_promise = self.cluster == 0
            && self.storing.is_none()
            && self.promised == 0
            && self.promising == 0
            && self.list.servers().contains_key(&self.id)
            && peer == self.list.lowest()
            && report.cluster == 0
            && report.list == self.list.fingerprint()
            && self.clusters().is_empty();
        if may_promise {
            self.promising = report.incarnation;
        }
        self.give_birth_when_due();
        self.birth_for(peer).into_iter().collect()
    }

    /// A server has sent a first membership.
    pub fn received(&mut self, birth: InitialMembership) {
        if self.cluster == 0 && self.storing.is_none() && self.accepts(&birth) {
            self.storing = Some(birth);
        }
    }

    /// A member that has admitted this server has sent the first membership, which need not name
    /// this server: what follows in the log does. A first member with this server's id was one with
    /// another data folder, so this folder does not begin as that voter (R17).
    fn received_by_admission(&mut self, peer: u64, birth: &InitialMembership) {
        let is_admitted = self.admitted_by.get(&peer) == Some(&birth.cluster);
        let mut birth = birth.clone();
        let first = &mut birth.membership;
        let is_named =
            |member: &Member| member.id == self.id && member.incarnation == self.incarnation;
        if !first.members.iter().any(is_named) {
            first.voters.retain(|id| *id != self.id);
            first.members.retain(|member| member.id != self.id);
        }
        if self.cluster == 0
            && self.storing.is_none()
            && birth.cluster != 0
            && !birth.membership.voters.is_empty()
            && is_admitted
        {
            self.storing = Some(birth);
        }
    }

    /// The promise of the decision is on disk.
    pub fn promise_stored(&mut self) -> OutgoingFrames {
        if self.promising != 0 {
            self.promised = std::mem::take(&mut self.promising);
        }
        self.report_to_all()
    }

    /// The membership of the decision is on disk.
    pub fn birth_stored(&mut self) -> OutgoingFrames {
        if let Some(birth) = self.storing.take() {
            self.cluster = birth.cluster;
            self.birth = Some(birth);
            self.promising = 0;
        }
        let mut out = self.report_to_all();
        let others: Vec<u64> = self.seen.keys().copied().collect();
        out.extend(others.into_iter().filter_map(|peer| self.birth_for(peer)));
        out
    }

    /// Returns the next step of the owner.
    pub fn decision(&self) -> Decision {
        if self.cluster != 0 {
            return Decision::Member {
                cluster: self.cluster,
            };
        }
        if let Some(birth) = &self.storing {
            return Decision::Store(birth.clone());
        }
        if self.promising != 0 {
            return Decision::Promise { to: self.promising };
        }
        match *self.clusters() {
            [] => {}
            [cluster] => return Decision::Join { cluster },
            [one, other, ..] => return Decision::Refuse(StartRefusal::TwoClusters { one, other }),
        }
        match self.obstacle() {
            Ok(wait) => Decision::Wait(wait),
            Err(refuse) => Decision::Refuse(refuse),
        }
    }

    /// Returns why there is no cluster yet, on a server that has met none.
    fn obstacle(&self) -> Result<WaitReason, StartRefusal> {
        let fingerprint = self.list.fingerprint();
        let reports = || {
            self.seen.iter().filter_map(|(peer, seen)| match seen {
                ServerView::Report(report) => Some((*peer, report)),
                ServerView::Cluster(_) => None,
            })
        };
        if let Some((peer, _)) = reports().find(|(_, report)| report.list != fingerprint) {
            return Err(StartRefusal::OtherList(peer));
        }
        let lowest = self.list.lowest();
        let outdated = |(peer, report): (u64, &BootstrapReport)| {
            peer == lowest && self.promised != 0 && report.incarnation != self.promised
        };
        if reports().any(outdated) {
            return Err(StartRefusal::PromiseOutdated { lowest });
        }
        let unreached = self.others().filter(|id| !self.seen.contains_key(id));
        let unreached: Vec<u64> = unreached.collect();
        if !unreached.is_empty() {
            return Ok(WaitReason::Unreached(unreached));
        }
        if self.id != lowest {
            return Ok(WaitReason::Birth(lowest));
        }
        let promised_to = |is_meant: &dyn Fn(u128) -> bool| -> Vec<u64> {
            let meant = reports().filter(|(_, report)| is_meant(report.promised));
            meant.map(|(peer, _)| peer).collect()
        };
        let elsewhere = promised_to(&|to| to != 0 && to != self.incarnation);
        if !elsewhere.is_empty() {
            return Err(StartRefusal::PromisedElsewhere(elsewhere));
        }
        Ok(WaitReason::Promises(promised_to(&|to| to == 0)))
    }

    /// The lowest server gives birth when every other one is connected, empty, has the same list
    /// and has promised.
    fn give_birth_when_due(&mut self) {
        if self.cluster != 0 || self.storing.is_some() || self.id != self.list.lowest() {
            return;
        }
        let fingerprint = self.list.fingerprint();
        let mut members = Vec::new();
        for (id, address) in self.list.servers() {
            let incarnation = match self.seen.get(id) {
                _ if *id == self.id => self.incarnation,
                Some(ServerView::Report(report))
                    if report.cluster == 0
                        && report.list == fingerprint
                        && report.promised == self.incarnation =>
                {
                    report.incarnation
                }
                _ => return,
            };
            members.push(Member {
                id: *id,
                incarnation,
                address: address.clone(),
            });
        }
        self.storing = Some(InitialMembership {
            cluster: self.new_cluster,
            membership: Membership {
                voters: self.list.servers().keys().copied().collect(),
                members,
                ..Membership::default()
            },
        });
    }

    /// Returns whether an empty folder stores this membership: it is of the list, it names this
    /// folder, and it comes from the one that this folder has promised to follow.
    fn accepts(&self, birth: &InitialMembership) -> bool {
        let membership = &birth.membership;
        let lowest = self.list.lowest();
        let is_of_the_list = membership.voters.iter().eq(self.list.servers().keys())
            && membership.outgoing.is_empty()
            && membership.learners.is_empty()
            && membership.learners_next.is_empty()
            && membership
                .members
                .iter()
                .map(|member| (&member.id, &member.address))
                .eq(self.list.servers());
        let has = |id, incarnation| {
            membership
                .members
                .iter()
                .any(|member| member.id == id && member.incarnation == incarnation)
        };
        birth.cluster != 0
            && is_of_the_list
            && self.promised != 0
            && self.id != lowest
            && has(lowest, self.promised)
            && has(self.id, self.incarnation)
    }

    /// The first membership, for a server that waits for it.
    fn birth_for(&self, peer: u64) -> Option<(u64, Frame)> {
        let birth = self.birth.as_ref().filter(|_| self.cluster != 0)?;
        let Some(ServerView::Report(report)) = self.seen.get(&peer) else {
            return None;
        };
        let waits = report.cluster == 0
            && birth
                .membership
                .members
                .iter()
                .any(|member| member.id == peer && member.incarnation == report.incarnation);
        waits.then(|| (peer, Frame::Birth(birth.clone())))
    }

    fn report(&self) -> BootstrapReport {
        BootstrapReport {
            list: self.list.fingerprint(),
            cluster: self.cluster,
            incarnation: self.incarnation,
            promised: self.promised,
        }
    }

    fn report_to_all(&self) -> OutgoingFrames {
        let report = self.report();
        self.others()
            .map(|peer| (peer, Frame::BirthReport(report)))
            .collect()
    }

    fn others(&self) -> impl Iterator<Item = u64> {
        let ids = self.list.servers().keys().copied();
        ids.filter(|id| *id != self.id)
    }

    /// The clusters of the servers that were met, each once.
    fn clusters(&self) -> Vec<u64> {
        let mut clusters: Vec<u64> = self
            .seen
            .values()
            .map(|seen| match seen {
                ServerView::Report(report) => report.cluster,
                ServerView::Cluster(cluster) => *cluster,
            })
            .filter(|cluster| *cluster != 0)
            .collect();
        clusters.sort_unstable();
        clusters.dedup();
        clusters
    }
}

/// Returns whether reports travel on this connection, in this direction.
fn is_of(link: &Link, direction: Direction) -> bool {
    link.lane == Lane::Urgent && link.direction == direction
}

#[cfg(test)]
mod tests;
