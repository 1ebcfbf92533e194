//! A core that leads three servers, of which the test plays the other two: in which order messages
//! and answers leave.

use std::collections::BTreeMap;

use baton_consensus::{Config, Member, Membership, MessageKind, PeerMessage};
use baton_peers::codec::{Frame, Lane};
use baton_peers::handshake::LocalServer;
use baton_peers::net::{Direction, FramePermit, Link, PeerEvent, SendError, Unsent};
use baton_tree::Tree;
use baton_wal::{HardState, SnapshotMeta, WalOptions};
use parking_lot::Mutex;

use super::*;
use crate::core::links::addresses::PeerAddresses;
use crate::core::links::peer_log::PeerLog;
use crate::core::links::wire::Wire;
use crate::core::log::LogWriter;
use crate::core::snapshots::write_whole;
use crate::core::start::recover::recover_member;
use crate::options::EnsembleOptions;
use crate::progress::Progress;
use crate::server::state_of;

/// Keeps the messages of the consensus, and how many bytes waited for the client at each.
#[derive(Debug, Default)]
struct RecordedWire {
    sent: Mutex<Vec<(PeerMessage, u64)>>,
    client: Mutex<Option<Arc<Conn>>>,
}

impl Wire for RecordedWire {
    fn send_raft(&self, messages: Vec<PeerMessage>) -> Vec<Unsent> {
        let client = self.client.lock();
        let waiting = client.as_ref().map_or(0, |client| client.waiting_bytes());
        let messages = messages.into_iter().map(|message| (message, waiting));
        self.sent.lock().extend(messages);
        Vec::new()
    }

    fn send(&self, _: u64, _: Frame) -> Result<(), SendError> {
        Ok(())
    }

    fn update_local(&self, _: &mut dyn FnMut(&mut LocalServer)) {}

    fn set_addresses(&self, _: &BTreeMap<u64, String>) {}
}

/// Writes the folder that a server of these members begins with.
fn write_birth(disk: &FaultStorage, membership: &Membership) {
    let (mut wal, _) = Wal::open(Arc::new(disk.clone()), WalOptions::default()).unwrap();
    let meta = SnapshotMeta {
        index: 1,
        term: 1,
        zxid: 0,
        time_ms: 0,
        membership: membership.encode(),
    };
    let mut writer = wal.snapshots().receiver(meta).unwrap();
    write_whole(&mut Tree::new(), &mut writer, &Progress::default()).unwrap();
    let received = writer.finish().unwrap();
    wal.append_received(&received).unwrap();
    wal.append(&[Record::HardState(HardState { term: 1, vote: 0 })])
        .unwrap();
    wal.sync().unwrap();
    wal.finish_received(&received).unwrap();
}

struct LeaderStage {
    wire: Arc<RecordedWire>,
    state: Arc<ServerState>,
    core: CoreDriver,
    disk: LogWriter,
    client: Arc<Conn>,
}

impl LeaderStage {
    /// Server 1, which leads and has a client.
    fn new() -> Self {
        let storage = FaultStorage::new();
        let servers: BTreeMap<u64, String> = (1..=3).map(|id| (id, format!("s{id}:1"))).collect();
        let members = servers.iter().map(|(id, address)| Member {
            id: *id,
            incarnation: 0,
            address: address.clone(),
        });
        let membership = Membership {
            voters: vec![1, 2, 3],
            members: members.collect(),
            ..Membership::default()
        };
        write_birth(&storage, &membership);
        let opened = Wal::open(Arc::new(storage), WalOptions::default()).unwrap();
        let starting = Starting::default();
        let begun = recover_member(opened, &Config::member(1, 7), &starting).unwrap();
        let options = Options {
            server_id: 1,
            ensemble: Some(EnsembleOptions {
                servers,
                ..EnsembleOptions::default()
            }),
            ..Options::default()
        };
        let state = state_of(options, None, begun.tree, simulated(), begun.snapshot);
        let wire = Arc::new(RecordedWire::default());
        let links = Links {
            id: 1,
            wire: Arc::clone(&wire) as _,
            events: Arc::default(),
            bootstrap: None,
            addresses: PeerAddresses::default(),
            peer_log: PeerLog::default(),
            run: 7,
        };
        let (log, disk) = Log::prepare(begun.wal, &state, &links.wire);
        let snapshots = Snapshots::new(0);
        let mut core = CoreDriver::new(
            Arc::clone(&state),
            begun.consensus,
            log,
            snapshots,
            links,
            &starting,
        )
        .unwrap();
        core.consensus.release_votes();
        core.consensus.campaign().unwrap();
        let client = state.open(Peer::Local).unwrap();
        let mut stage = Self {
            wire,
            state,
            core,
            disk,
            client,
        };
        stage.exchange(true);
        assert!(stage.core.leadership.acts_as_leader());
        let client = Arc::clone(&stage.client);
        turn(
            &mut stage.core,
            &[(&client, open_session(), &[7; PASSWORD_BYTES])],
        );
        stage.exchange(true);
        assert_ne!(client.session(), 0);
        taken(&client);
        *stage.wire.client.lock() = Some(client);
        stage.wire.sent.lock().clear();
        stage
    }

    /// Lets the other servers answer, until nobody has anything to say. `synced`: this server's
    /// disk works, too. Returns what was sent.
    fn exchange(&mut self, synced: bool) -> Vec<(PeerMessage, u64)> {
        let mut sent = Vec::new();
        loop {
            turn(&mut self.core, &[]);
            if synced && self.disk.has_jobs() {
                assert!(self.disk.turn(None));
                continue;
            }
            let new = std::mem::take(&mut *self.wire.sent.lock());
            if new.is_empty() {
                return sent;
            }
            for answer in new.iter().filter_map(|(message, _)| answer_of(message)) {
                let link = Link {
                    peer: answer.from,
                    lane: Lane::Urgent,
                    direction: Direction::Inbound,
                    generation: 1,
                };
                let frame = Frame::Raft(vec![answer]);
                let held = FramePermit::nothing();
                let event = PeerEvent::Frame { link, frame, held };
                let now = self.state.time.now();
                self.core.peer_event(event, now).unwrap();
            }
            sent.extend(new);
        }
    }
}

/// The answer of a server that has stored everything and votes for who asks.
fn answer_of(message: &PeerMessage) -> Option<PeerMessage> {
    let kind = match message.kind {
        MessageKind::PreVote => MessageKind::PreVoteResponse,
        MessageKind::Vote => MessageKind::VoteResponse,
        MessageKind::Append => MessageKind::AppendResponse,
        MessageKind::Heartbeat => MessageKind::HeartbeatResponse,
        _ => return None,
    };
    Some(PeerMessage {
        kind,
        from: message.to,
        to: message.from,
        index: message.index + message.entries.len() as u64,
        entries: Vec::new(),
        ..message.clone()
    })
}

#[test]
fn the_commit_index_leaves_for_all_followers_before_the_answer_leaves_for_the_client() {
    let runtime = paused();
    let _clock = runtime.enter();
    let mut stage = LeaderStage::new();
    let (write, body) = create("/a", 1);
    let client = Arc::clone(&stage.client);
    turn(&mut stage.core, &[(&client, write, &body)]);
    let entry = stage.core.consensus.last_index();
    let sent = stage.exchange(true);
    assert!(client.waiting_bytes() > 0, "it is answered");
    for follower in [2, 3] {
        let says_so =
            |(message, _): &&(PeerMessage, u64)| message.to == follower && message.commit >= entry;
        let (_, waiting) = sent.iter().find(says_so).unwrap();
        assert_eq!(
            *waiting, 0,
            "server {follower} is notified after the client"
        );
    }
}

#[test]
fn a_write_that_the_other_servers_have_stored_is_answered_before_the_leader_s_disk_has_it() {
    let runtime = paused();
    let _clock = runtime.enter();
    let mut stage = LeaderStage::new();
    let (write, body) = create("/a", 1);
    let client = Arc::clone(&stage.client);
    turn(&mut stage.core, &[(&client, write, &body)]);
    stage.exchange(false);
    assert!(exists(&stage.state, "/a") && client.waiting_bytes() > 0);
    stage.exchange(true);
    let consensus = &stage.core.consensus;
    assert_eq!(consensus.durable_index(), consensus.applied_index());
}

#[test]
fn a_snapshot_is_whole_only_when_the_log_has_its_last_entry() {
    let runtime = paused();
    let _clock = runtime.enter();
    let mut stage = LeaderStage::new();
    let (write, body) = create("/a", 1);
    let client = Arc::clone(&stage.client);
    turn(&mut stage.core, &[(&client, write, &body)]);
    stage.exchange(false);
    stage.core.snapshots.request();
    for _ in 0..10 {
        turn(&mut stage.core, &[]);
    }
    // A start refuses a log that ends before its snapshot.
    let now = stage.state.time.now();
    let waits = Some(now + Duration::from_millis(1));
    assert_eq!(stage.core.snapshots.next_look(now), waits);
    stage.exchange(true);
    let written = &stage.state.stats.snapshots;
    let begun = std::time::Instant::now();
    while written.load(Relaxed) == 0 {
        assert!(begun.elapsed() < PATIENCE, "no snapshot is written");
        turn(&mut stage.core, &[]);
    }
}
