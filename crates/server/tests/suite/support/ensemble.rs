//! An ensemble of three servers in this process, on loopback.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use baton_proto::{AuthPacket, ErrorCode, Request};
use baton_server::{
    AuditOptions, AuditTo, EnsembleOptions, Options, PeerTlsOptions, SaslUsers, Server,
    ServerTlsOptions, Storage, StorageChoice, WriteTracer,
};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::gate::{Gate, GatedStorage};
use super::relay::Relay;
use super::{PATIENCE, Wire};

/// The servers, of which some may not run.
pub struct Ensemble {
    folder: TempDir,
    addresses: BTreeMap<u64, String>,
    /// Addresses of servers behind a relay.
    behind: BTreeMap<u64, String>,
    running: BTreeMap<u64, Server>,
    /// Storages of servers without a folder.
    storages: BTreeMap<u64, Arc<dyn Storage>>,
    /// Servers that do not vote.
    pub observers: BTreeSet<u64>,
    /// Whether `reconfig` is permitted.
    pub reconfig: bool,
    /// Entries after which a server that is started writes a snapshot.
    pub snapshot_every_entries: u64,
    /// Whether servers record who did what, each in [`Ensemble::audit_file`].
    pub audit: bool,
    /// Whether a server that is started may answer reads without a leader.
    pub read_only_mode: bool,
    /// TLS to the other servers of a server that is started.
    pub tls: Option<PeerTlsOptions>,
    /// Users who may authenticate by SASL at a server that is started.
    pub sasl_users: SaslUsers,
    /// TLS of the port for clients that a server then has besides the one without.
    pub client_tls: Option<ServerTlsOptions>,
    /// Tracers of servers that are started, by server.
    pub tracers: BTreeMap<u64, Arc<dyn WriteTracer>>,
}

/// An address that is free, and not among those that the system gives to outgoing connections: a
/// server that starts again finds its own free. Another test that asks gets another one.
pub fn free_address() -> SocketAddr {
    loop {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, fastrand::u16(15_000..28_000)));
        if let Ok(held) = UdpSocket::bind(address)
            && TcpListener::bind(address).is_ok()
        {
            // Until the process ends.
            std::mem::forget(held);
            return address;
        }
    }
}

impl Ensemble {
    /// Starts this number of servers, which found a cluster.
    pub async fn start(size: u64) -> Self {
        Self::start_on(size, BTreeMap::new()).await
    }

    /// [`Ensemble::start`] with disks whose syncs the returned gates can hold up.
    pub async fn start_gated(size: u64) -> (Self, BTreeMap<u64, Gate>) {
        let gates: BTreeMap<u64, Gate> = (1..=size).map(|id| (id, Gate::default())).collect();
        let storages = gates.iter().map(|(id, gate)| {
            let storage: Arc<dyn Storage> = Arc::new(GatedStorage::new(gate));
            (*id, storage)
        });
        (Self::start_on(size, storages.collect()).await, gates)
    }

    /// Starts an ensemble like [`Ensemble::start`], with these disks for some of the servers.
    pub async fn start_on(size: u64, storages: BTreeMap<u64, Arc<dyn Storage>>) -> Self {
        let mut ensemble = Self::unstarted(size);
        ensemble.storages = storages;
        ensemble.start_every().await;
        ensemble
    }

    /// This number of servers, none of which runs.
    pub fn unstarted(size: u64) -> Self {
        Self {
            storages: BTreeMap::new(),
            observers: BTreeSet::new(),
            reconfig: true,
            snapshot_every_entries: Options::default().snapshot_every_entries,
            audit: false,
            read_only_mode: false,
            tls: None,
            sasl_users: SaslUsers::default(),
            client_tls: None,
            tracers: BTreeMap::new(),
            folder: tempfile::tempdir().unwrap(),
            addresses: (1..=size)
                .map(|id| (id, free_address().to_string()))
                .collect(),
            behind: BTreeMap::new(),
            running: BTreeMap::new(),
        }
    }

    /// Starts all servers.
    pub async fn start_every(&mut self) {
        let ids: Vec<u64> = self.addresses.keys().copied().collect();
        self.start_all(&ids).await;
    }

    /// Puts a relay between this server, which does not run, and what the others send to it.
    pub async fn relay(&mut self, id: u64) -> Relay {
        let to = free_address().to_string();
        self.behind.insert(id, to.clone());
        Relay::start(&self.addresses[&id], to).await
    }

    /// Gives a further server an address, and says how `reconfig` names it.
    pub fn name(&mut self, id: u64, role: &str) -> String {
        self.addresses
            .entry(id)
            .or_insert_with(|| free_address().to_string());
        self.name_of(id, role)
    }

    /// Says how `reconfig` names a server that has an address.
    pub fn name_of(&self, id: u64, role: &str) -> String {
        let address = &self.addresses[&id];
        let port = address.rsplit_once(':').unwrap().1;
        format!("server.{id}={address}:{port}:{role};127.0.0.1:{port}")
    }

    /// Gives a server another address, without a relay: servers that are started from now on have
    /// it in their settings.
    pub fn move_away(&mut self, id: u64) {
        self.behind.remove(&id);
        self.addresses.insert(id, free_address().to_string());
    }

    /// Returns the address at which the other servers reach this one.
    pub fn peer_address(&self, id: u64) -> String {
        self.addresses[&id].clone()
    }

    /// Removes the data of a server that does not run.
    pub fn lose_folder(&self, id: u64) {
        std::fs::remove_dir_all(self.folder(id)).unwrap();
    }

    /// Begins the start of a server that waits to be admitted. The end of the returned task ends
    /// the start.
    pub fn start_waiting(&self, id: u64) -> JoinHandle<Server> {
        let options = self.options(id);
        tokio::spawn(async move { Server::start(options).await.unwrap() })
    }

    /// That server is admitted, and votes.
    pub async fn admitted(&mut self, id: u64, starting: JoinHandle<Server>) {
        let started = tokio::time::timeout(PATIENCE, starting).await;
        let server = started.expect("the server is admitted").unwrap();
        self.running.insert(id, server);
        self.votes(id).await;
    }

    /// Waits until this server says that it votes.
    pub async fn votes(&self, id: u64) {
        let votes = async {
            loop {
                let shown = super::word(&self.address(id), "srvr").await;
                if shown.contains("Mode: follower") || shown.contains("Mode: leader") {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let votes = tokio::time::timeout(PATIENCE, votes).await;
        votes.expect("the server votes");
    }

    /// The settings of a server that is started.
    pub fn options(&self, id: u64) -> Options {
        let ensemble = EnsembleOptions {
            servers: self.addresses.clone(),
            observers: self.observers.clone(),
            reconfig: self.reconfig,
            listen: self.behind.get(&id).cloned(),
            read_only_mode: self.read_only_mode,
            tls: self.tls.clone(),
            ..EnsembleOptions::default()
        };
        let audit = AuditOptions {
            to: match self.audit {
                true => AuditTo::File(self.audit_file(id)),
                false => AuditTo::Off,
            },
            ..AuditOptions::default()
        };
        Options {
            audit,
            storage: StorageChoice::Folder(self.folder(id)),
            listen: vec!["127.0.0.1:0".to_owned()],
            secure_listen: self
                .client_tls
                .iter()
                .map(|_| "127.0.0.1:0".to_owned())
                .collect(),
            tls: self.client_tls.clone(),
            http: vec!["127.0.0.1:0".to_owned()],
            server_id: u8::try_from(id).unwrap(),
            snapshot_every_entries: self.snapshot_every_entries,
            super_digest: Some(baton_tree::digest_id(b"super:secret")),
            sasl_users: self.sasl_users.clone(),
            ensemble: Some(ensemble),
            tracer: self.tracers.get(&id).cloned(),
            ..Options::default()
        }
    }

    /// The audit record of a server.
    pub fn audit_file(&self, id: u64) -> PathBuf {
        self.folder.path().join(format!("audit-{id}.log"))
    }

    pub fn folder(&self, id: u64) -> PathBuf {
        self.folder.path().join(id.to_string())
    }

    /// Starts these servers at once: the first start needs all of them.
    pub async fn start_all(&mut self, ids: &[u64]) {
        let starting = ids.iter().map(|id| {
            let options = self.options(*id);
            let storage = self.storages.get(id).cloned();
            let id = *id;
            tokio::spawn(async move {
                let started = match storage {
                    Some(storage) => Server::start_with(options, storage).await,
                    None => Server::start(options).await,
                };
                (id, started.unwrap())
            })
        });
        let starting: Vec<_> = starting.collect();
        for started in starting {
            let started = tokio::time::timeout(PATIENCE, started).await;
            let (id, server) = started.expect("the servers form a cluster").unwrap();
            self.running.insert(id, server);
        }
    }

    /// Ends a server as a crash of its process would.
    pub async fn kill(&mut self, id: u64) {
        let server = self.running.remove(&id).unwrap();
        // Its drop waits for threads.
        tokio::task::spawn_blocking(|| drop(server)).await.unwrap();
    }

    pub async fn stop(&mut self, id: u64) {
        let server = self.running.remove(&id).unwrap();
        server.shutdown().await.unwrap();
    }

    pub fn server(&self, id: u64) -> &Server {
        &self.running[&id]
    }

    pub fn ids(&self) -> Vec<u64> {
        self.running.keys().copied().collect()
    }

    pub fn address(&self, id: u64) -> String {
        self.server(id).connect_string()
    }

    /// The id of the server that leads, once one does and says so.
    pub async fn leader(&self) -> u64 {
        let found = async {
            loop {
                for id in self.ids() {
                    let shown = super::word(&self.address(id), "srvr").await;
                    if shown.contains("Mode: leader") {
                        return id;
                    }
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, found)
            .await
            .expect("a leader is elected")
    }

    /// A session at this server.
    pub async fn open(&self, id: u64) -> Wire {
        let opened = async {
            loop {
                // Closed while there is no leader.
                if let Some(wire) = Wire::open_with(&self.address(id), &super::no_session()).await {
                    return wire;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, opened)
            .await
            .expect("the session opens")
    }
}

/// Waits until everything that was committed before is applied where `wire` is connected.
pub async fn sync(wire: &mut Wire) {
    wire.call(Request::Sync { path: "/" }).await.unwrap();
}

/// Has `wire` be the superuser.
pub async fn be_superuser(wire: &mut Wire) {
    let packet = AuthPacket {
        kind: 0,
        scheme: "digest",
        auth: Some(b"super:secret"),
    };
    wire.send(&[Request::Auth(packet)]).await;
    let (header, _) = wire.reply().await;
    assert_eq!(header.error(), ErrorCode::Ok);
}
