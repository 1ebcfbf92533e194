//! Servers that start from a static list, with real connections on loopback.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::atomic::AtomicU8;
use std::thread::{JoinHandle, sleep};

use baton_consensus::Role;
use baton_peers::codec::{Lane, Refusal};
use baton_peers::net::{BindError, RefusedBy};
use baton_wal::testing::{Fault, FaultStorage, Loss};
use baton_wal::{MemoryStorage, Wal, WalError};
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use super::*;
use crate::core::start::recover::recover;
use crate::progress::Progress;

/// A guard against waiting for ever; nothing takes as long.
const LONG: Duration = Duration::from_secs(120);

/// The servers of one test: their addresses, and the runtime of their connections.
struct Site {
    runtime: Runtime,
    servers: BTreeMap<u64, String>,
}

/// A loopback address for one test of one process, where the system has more than one.
fn own_host() -> String {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    if !cfg!(target_os = "linux") {
        return "127.0.0.1".to_owned();
    }
    let process = std::process::id();
    let (high, low) = ((process >> 8) % 250 + 1, process % 256);
    format!("127.{high}.{low}.{}", NEXT.fetch_add(1, Relaxed))
}

impl Site {
    fn new(count: u64) -> Site {
        let host = own_host();
        // Nobody else takes these ports: each test has a host of its own.
        let listeners: Vec<TcpListener> = (1..=count)
            .map(|_| TcpListener::bind((&*host, 0)).unwrap())
            .collect();
        let addresses = listeners
            .iter()
            .map(|listener| listener.local_addr().unwrap().to_string());
        let servers = (1..).zip(addresses);
        Site {
            runtime: tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap(),
            servers: servers.collect(),
        }
    }

    fn options(&self, id: u64) -> Options {
        Options {
            server_id: u8::try_from(id).unwrap(),
            ensemble: Some(EnsembleOptions {
                servers: self.servers.clone(),
                ..EnsembleOptions::default()
            }),
            ..Options::default()
        }
    }

    fn start(&self, id: u64, folder: &MemoryStorage) -> Starter {
        self.start_with(self.options(id), folder)
    }

    fn start_with(&self, options: Options, folder: &MemoryStorage) -> Starter {
        self.start_on(options, Arc::new(folder.clone()))
    }

    fn start_on(&self, options: Options, storage: Arc<dyn Storage>) -> Starter {
        let stop = Arc::new(AtomicBool::new(false));
        let starting = Arc::new(Starting::default());
        let thread = {
            let (stop, starting) = (Arc::clone(&stop), Arc::clone(&starting));
            let runtime = self.runtime.handle().clone();
            std::thread::spawn(move || join(storage, &options, &runtime, &starting, &stop))
        };
        Starter {
            stop,
            starting,
            thread,
        }
    }

    /// Starts all servers and waits until each is a member.
    fn start_all(&self, folders: &[MemoryStorage]) -> Vec<Member> {
        let starters: Vec<Starter> = (1..)
            .zip(folders)
            .map(|(id, folder)| self.start(id, folder))
            .collect();
        starters
            .into_iter()
            .map(|starter| self.run(starter.joined()))
            .collect()
    }

    /// Does what a running member does with the events, as far as this matters here.
    fn run(&self, joined: Joined) -> Member {
        let Joined {
            begun,
            peers,
            events,
            cluster,
            mut bootstrap,
            ..
        } = joined;
        let peers = Arc::new(peers);
        let stop = Arc::new(AtomicBool::new(false));
        let refusals = Arc::default();
        let thread = {
            let (peers, stop) = (Arc::clone(&peers), Arc::clone(&stop));
            let refusals: Arc<Mutex<Vec<(RefusedBy, Refusal)>>> = Arc::clone(&refusals);
            std::thread::spawn(move || {
                while !stop.load(Relaxed) {
                    for event in events.take_blocking(Instant::now() + POLL) {
                        send(&peers, bootstrap.event(&event));
                        if let PeerEvent::Refused { by, refusal, .. } = event {
                            refusals.lock().push((by, refusal));
                        }
                    }
                }
            })
        };
        Member {
            runtime: self.runtime.handle().clone(),
            begun,
            peers,
            cluster,
            stop,
            refusals,
            thread,
        }
    }
}

/// A server that starts.
struct Starter {
    stop: Arc<AtomicBool>,
    starting: Arc<Starting>,
    thread: JoinHandle<Result<Joined, StartError>>,
}

impl Starter {
    fn joined(self) -> Joined {
        match self.thread.join().unwrap() {
            Ok(joined) => joined,
            Err(error) => panic!("{error}"),
        }
    }

    fn refused(self) -> StartError {
        match self.thread.join().unwrap() {
            Ok(_) => panic!("the server started"),
            Err(error) => error,
        }
    }

    /// Waits until the server says that it waits for this.
    fn until_it_says(&self, what: &str) {
        until(|| {
            let text = self.starting.to_string();
            assert!(!self.thread.is_finished(), "the start ended: {text}");
            text.contains(what)
        });
    }

    fn stop(self) {
        self.stop.store(true, Relaxed);
        let error = self.refused();
        assert!(matches!(error, StartError::Stopped), "{error}");
    }
}

/// A server that is a member.
struct Member {
    runtime: Handle,
    begun: Begun,
    peers: Arc<Peers>,
    cluster: u64,
    stop: Arc<AtomicBool>,
    refusals: Arc<Mutex<Vec<(RefusedBy, Refusal)>>>,
    thread: JoinHandle<()>,
}

impl Member {
    fn stop(self) {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap();
        let peers = Arc::into_inner(self.peers).unwrap();
        self.runtime.block_on(peers.stop());
    }

    fn membership(&self) -> &Membership {
        self.begun.consensus.membership()
    }
}

fn until(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "it took too long");
        sleep(Duration::from_millis(2));
    }
}

fn empty_folders() -> [MemoryStorage; 3] {
    Default::default()
}

/// Returns the identity in the folder of a server that does not run.
fn identity(id: u64, folder: &MemoryStorage) -> Identity {
    let folder = MemberFolder::open(Arc::new(folder.clone()), id, 1).unwrap();
    folder.identity().clone()
}

fn incarnation(id: u64) -> u128 {
    0x1000 + u128::from(id)
}

/// A folder that got its incarnation in an earlier start.
fn begun_folder(id: u64) -> (MemoryStorage, MemberFolder) {
    let storage = MemoryStorage::new();
    let folder = MemberFolder::open(Arc::new(storage.clone()), id, incarnation(id)).unwrap();
    (storage, folder)
}

/// Waits until servers 1, 2 and so on are connected to one another.
fn assert_all_connected(members: &[Member]) {
    let count = u64::try_from(members.len()).unwrap();
    for (id, member) in (1..).zip(members) {
        for other in (1..=count).filter(|other| *other != id) {
            until(|| member.peers.open_lanes(other).len() == Lane::ALL.len());
        }
    }
}

fn assert_one_cluster(members: &[Member], site: &Site) {
    let first = &members[0];
    for member in members {
        assert_eq!(member.cluster, first.cluster);
        assert_eq!(member.membership(), first.membership());
        assert_eq!(member.begun.wal.cluster_id(), first.cluster);
        assert_eq!(member.begun.tree.digest(), first.begun.tree.digest());
        let status = member.begun.consensus.status();
        assert_eq!((status.role, status.term), (Role::Follower, 1));
    }
    let voters: Vec<u64> = site.servers.keys().copied().collect();
    assert_eq!(first.membership().voters, voters);
    let addresses = first.membership().members.iter();
    let addresses: BTreeMap<u64, String> = addresses
        .map(|member| (member.id, member.address.clone()))
        .collect();
    assert_eq!(addresses, site.servers);
}

#[test]
fn r18_three_empty_folders_start_one_cluster_once_the_last_server_is_there() {
    let site = Site::new(3);
    let folders = empty_folders();
    let one = site.start(1, &folders[0]);
    let two = site.start(2, &folders[1]);
    one.until_it_says("waiting for servers [3]: the first start of a cluster needs every server");
    two.until_it_says("waiting for servers [3]");
    let three = site.start(3, &folders[2]);
    let members = [one, two, three].map(|starter| site.run(starter.joined()));
    assert_one_cluster(&members, &site);
    assert_all_connected(&members);
    for member in &members {
        assert!(member.refusals.lock().is_empty());
    }
    let cluster = members[0].cluster;
    members.into_iter().for_each(Member::stop);
    for (id, folder) in (1..).zip(&folders) {
        let identity = identity(id, folder);
        assert_eq!((identity.cluster, identity.is_founded), (cluster, true));
    }
    // After that each starts by itself, without the others.
    for (id, folder) in (1..).zip(&folders) {
        let again = site.run(site.start(id, folder).joined());
        assert_eq!(again.cluster, cluster);
        assert_eq!(again.membership().voters, [1, 2, 3]);
        again.stop();
    }
}

#[test]
fn the_open_connections_are_the_first_events_of_a_new_member() {
    let site = Site::new(3);
    let folders = empty_folders();
    let starters: Vec<Starter> = (1..)
        .zip(&folders)
        .map(|(id, folder)| site.start(id, folder))
        .collect();
    let joined: Vec<Joined> = starters.into_iter().map(Starter::joined).collect();
    for joined in &joined {
        let events = joined.events.take();
        // Each of the others had reported, and was sent a report, before there was a cluster.
        let reports = events.iter().filter(
            |event| matches!(event, PeerEvent::Connected { link, .. } if link.lane == Lane::Urgent),
        );
        assert!(reports.count() >= 2, "{events:?}");
    }
}

#[test]
fn r18_servers_that_stopped_at_any_step_of_the_birth_start_one_cluster() {
    // How far each server has come: 0 an incarnation, 1 a promise, 2 the first membership stored,
    // 3 also in its log.
    let cases = [
        [0, 0, 0],
        [0, 1, 0],
        [0, 1, 1],
        [2, 1, 1],
        [3, 1, 1],
        [3, 2, 1],
        [2, 3, 1],
        [3, 3, 2],
    ];
    for steps in cases {
        let site = Site::new(3);
        let membership = Membership {
            voters: vec![1, 2, 3],
            members: site
                .servers
                .iter()
                .map(|(id, address)| baton_consensus::Member {
                    id: *id,
                    incarnation: incarnation(*id),
                    address: address.clone(),
                })
                .collect(),
            ..Membership::default()
        };
        let folders: Vec<MemoryStorage> = (1..)
            .zip(steps)
            .map(|(id, step)| {
                let (storage, mut folder) = begun_folder(id);
                if step >= 1 && id != 1 {
                    folder.promise(incarnation(1)).unwrap();
                }
                if step >= 2 {
                    folder.store_birth(77, membership.encode()).unwrap();
                }
                if step >= 3 {
                    let opened = folder.open_log(WalOptions::default(), |writer| {
                        write_whole(&mut Tree::new(), writer, &Progress::default())
                    });
                    drop(opened.unwrap());
                }
                storage
            })
            .collect();
        // A server with the first membership is a member at once; it passes it on.
        let starters: Vec<Starter> = (1..)
            .zip(&folders)
            .map(|(id, folder)| site.start(id, folder))
            .collect();
        let mut members = Vec::new();
        let (first, later): (Vec<_>, Vec<_>) = starters
            .into_iter()
            .zip(steps)
            .partition(|(_, step)| *step >= 2);
        for (starter, _) in first.into_iter().chain(later) {
            members.push(site.run(starter.joined()));
        }
        assert_one_cluster(&members, &site);
        assert_eq!(members[0].membership(), &membership, "{steps:?}");
        let is_born = steps.iter().any(|step| *step >= 2);
        assert_eq!(members[0].cluster == 77, is_born, "{steps:?}");
        members.into_iter().for_each(Member::stop);
    }
}

#[test]
fn r18_a_promise_that_the_disk_refuses_ends_the_start_and_is_given_by_the_next_one() {
    // Operations of the disk after those of the first step: the write of the promise, its sync,
    // that of its name.
    for (after, fault) in [(2, Fault::Error), (3, Fault::SyncLost), (5, Fault::Error)] {
        let site = Site::new(3);
        let disk = FaultStorage::new();
        drop(MemberFolder::open(Arc::new(disk.clone()), 2, incarnation(2)).unwrap());
        let probe = disk.crash(Loss::Everything);
        drop(MemberFolder::open(Arc::new(probe.clone()), 2, 1).unwrap());
        disk.fail_at(disk.operations() + probe.operations() + after, fault);
        let one = MemoryStorage::new();
        let first = site.start(1, &one);
        let refused = site
            .start_on(site.options(2), Arc::new(disk.clone()))
            .refused();
        assert!(matches!(refused, StartError::Log(_)), "{refused}");
        first.until_it_says("waiting for servers [2, 3]");
        let disk = disk.crash(Loss::Nothing);
        let others = [
            site.start_on(site.options(2), Arc::new(disk)),
            site.start(3, &MemoryStorage::new()),
        ];
        let members: Vec<Member> = [first]
            .into_iter()
            .chain(others)
            .map(|starter| site.run(starter.joined()))
            .collect();
        assert_one_cluster(&members, &site);
        assert_eq!(
            members[0].membership().members[1].incarnation,
            incarnation(2)
        );
        members.into_iter().for_each(Member::stop);
    }
}

#[test]
fn r17_an_empty_folder_that_meets_the_cluster_waits_and_never_joins() {
    let site = Site::new(3);
    let folders = empty_folders();
    let mut members = site.start_all(&folders);
    let cluster = members[0].cluster;
    for lost in [2, 0] {
        members.remove(lost).stop();
        let id = u64::try_from(lost).unwrap() + 1;
        let empty = MemoryStorage::new();
        let starter = site.start(id, &empty);
        starter.until_it_says(&format!(
            "cluster {cluster:016x} already, so this server neither votes nor serves: start it with its own data \
             folder, or admit it with `baton server replace {id}`"
        ));
        for member in &members {
            let is_refused = |(_, refusal): &(RefusedBy, Refusal)| matches!(refusal, Refusal::OtherIncarnation { id: refused, .. } if *refused == id);
            until(|| member.refusals.lock().iter().any(is_refused));
            // A lane of the server that was stopped may end later than the refusal comes.
            until(|| member.peers.open_lanes(id).is_empty());
        }
        starter.stop();
        let left = identity(id, &empty);
        assert_eq!((left.promise, left.cluster), (0, 0));
        // With its own folder it comes back.
        let back = site.run(site.start(id, &folders[lost]).joined());
        members.insert(lost, back);
    }
    assert_eq!(members.len(), 3);
    members.into_iter().for_each(Member::stop);
}

#[test]
fn r17_a_second_server_with_the_id_of_a_member_is_refused() {
    let site = Site::new(3);
    let members = site.start_all(&empty_folders());
    let mut options = site.options(2);
    if let Some(ensemble) = &mut options.ensemble {
        let (host, _) = site.servers[&2].split_once(':').unwrap();
        ensemble.listen = Some(format!("{host}:0"));
    }
    let second = MemoryStorage::new();
    let starter = site.start_with(options, &second);
    starter.until_it_says("`baton server replace 2`");
    assert_all_connected(&members);
    starter.stop();
    assert_eq!(identity(2, &second).cluster, 0);
    members.into_iter().for_each(Member::stop);
}

#[test]
fn r18_two_servers_of_one_id_start_no_cluster_without_the_third() {
    let site = Site::new(3);
    let folders = empty_folders();
    let second = MemoryStorage::new();
    let mut options = site.options(2);
    if let Some(ensemble) = &mut options.ensemble {
        let (host, _) = site.servers[&2].split_once(':').unwrap();
        ensemble.listen = Some(format!("{host}:0"));
    }
    let starters = [
        site.start(1, &folders[0]),
        site.start(2, &folders[1]),
        site.start_with(options, &second),
    ];
    starters[0].until_it_says("waiting for servers [3]");
    starters.into_iter().for_each(Starter::stop);
    for (id, folder) in [(1, &folders[0]), (2, &folders[1]), (2, &second)] {
        assert_eq!(identity(id, folder).cluster, 0);
    }
}

#[test]
fn r18_servers_with_two_lists_wait_until_the_lists_are_the_same() {
    let site = Site::new(3);
    let folders = empty_folders();
    let mut options = site.options(2);
    if let Some(ensemble) = &mut options.ensemble {
        ensemble.servers.insert(4, "127.0.0.1:1".to_owned());
    }
    let one = site.start(1, &folders[0]);
    let two = site.start_with(options, &folders[1]);
    let three = site.start(3, &folders[2]);
    one.until_it_says("server 2 was started with another list of servers: compare");
    two.until_it_says("was started with another list of servers");
    three.until_it_says("server 2 was started with another list of servers");
    two.stop();
    let two = site.start(2, &folders[1]);
    let members = [one, two, three].map(|starter| site.run(starter.joined()));
    assert_one_cluster(&members, &site);
    members.into_iter().for_each(Member::stop);
}

#[test]
fn r19_an_older_copy_of_a_folder_is_refused_by_those_that_know_more() {
    let site = Site::new(3);
    let folders = empty_folders();
    let mut members = site.start_all(&folders);
    members.pop().unwrap().stop();
    for member in &members {
        member.peers.update_local(|local| {
            for known in local.members.iter_mut().filter(|known| known.id == 3) {
                known.acknowledged_index = 9;
            }
        });
    }
    let back = site.run(site.start(3, &folders[2]).joined());
    until(|| {
        back.refusals.lock().iter().any(|(by, refusal)| {
            let older = Refusal::OlderCopy {
                id: 3,
                acknowledged: 9,
                last: 1,
            };
            (*by, refusal) == (RefusedBy::Them, &older)
        })
    });
    assert!(back.peers.open_lanes(1).is_empty());
    back.stop();
    members.into_iter().for_each(Member::stop);
}

#[test]
fn a_server_of_several_and_one_that_stands_alone_refuse_each_others_folders() {
    let site = Site::new(1);
    let alone = MemoryStorage::new();
    let recovered = recover(
        Arc::new(alone.clone()),
        WalOptions::default(),
        &Starting::default(),
    );
    drop(recovered.unwrap());
    let refused = site.start(1, &alone).refused();
    let is_named = matches!(refused, StartError::Log(WalError::NotAMemberFolder { .. }));
    assert!(is_named, "{refused}");
    drop(Wal::open(Arc::new(alone), WalOptions::default()).unwrap());

    let member = MemoryStorage::new();
    site.run(site.start(1, &member).joined()).stop();
    let refused = recover(
        Arc::new(member.clone()),
        WalOptions::default(),
        &Starting::default(),
    );
    let Err(ServerError::Log(refused)) = refused else {
        panic!("not refused by the log");
    };
    assert!(
        matches!(*refused, WalError::MemberFolder { server: 1, .. }),
        "{refused}"
    );
    // Nor does the server with another id take it.
    let mut options = site.options(1);
    options.server_id = 2;
    if let Some(ensemble) = &mut options.ensemble {
        ensemble.servers.insert(2, "127.0.0.1:1".to_owned());
    }
    let refused = site.start_with(options, &member).refused();
    let is_named = matches!(refused, StartError::Log(WalError::OtherServer { .. }));
    assert!(is_named, "{refused}");
}

#[test]
fn r17_a_folder_that_was_stopped_in_the_time_of_the_one_before_it_starts_and_does_not_lead() {
    let site = Site::new(1);
    let (storage, mut folder) = begun_folder(1);
    let membership = Membership {
        voters: vec![1],
        members: vec![baton_consensus::Member {
            id: 1,
            incarnation: 5,
            address: site.servers[&1].clone(),
        }],
        ..Membership::default()
    };
    folder.store_birth(77, membership.encode()).unwrap();
    drop(folder);
    let mut joined = site.start(1, &storage).joined();
    let consensus = &mut joined.begun.consensus;
    for _ in 0..100 {
        consensus.tick();
        while let Some(effects) = consensus.drain() {
            consensus.persisted(effects.token);
        }
    }
    assert_eq!(consensus.status().role, Role::Follower);
    site.run(joined).stop();
}

#[test]
fn a_list_that_cannot_be_one_and_an_exposed_address_are_refused() {
    let site = Site::new(2);
    let with = |change: &dyn Fn(&mut EnsembleOptions)| {
        let mut options = site.options(1);
        if let Some(ensemble) = &mut options.ensemble {
            change(ensemble);
        }
        let error = site.start_with(options, &MemoryStorage::new()).refused();
        (error.to_string(), error)
    };
    let (text, _) = with(&|ensemble| drop(ensemble.servers.remove(&1)));
    assert!(text.contains("lacks this server, 1: add it"), "{text}");
    let own = &site.servers[&1];
    let (text, _) = with(&|ensemble| drop(ensemble.servers.insert(3, own.clone())));
    assert!(text.contains("for server 1 and for server 3"), "{text}");
    let (text, error) = with(&|ensemble| ensemble.listen = Some("*:0".to_owned()));
    let exposed = matches!(error, StartError::PeerPort(BindError::Exposed { .. }));
    assert!(exposed, "{text}");
    let taken = TcpListener::bind(own).unwrap();
    let (text, error) = with(&|_| {});
    assert!(
        matches!(error, StartError::PeerPort(BindError::Listen { .. })),
        "{text}"
    );
    assert!(
        text.contains("stop the program that has the address"),
        "{text}"
    );
    drop(taken);
    let mut options = site.options(1);
    options.ensemble = None;
    let refused = site.start_with(options, &MemoryStorage::new()).refused();
    assert!(matches!(
        refused,
        StartError::Setting {
            setting: "ensemble",
            ..
        }
    ));
}

#[test]
fn a_start_that_waits_stops_when_asked_and_leaves_folder_and_port_free() {
    let site = Site::new(3);
    let folder = MemoryStorage::new();
    for _ in 0..2 {
        let starter = site.start(2, &folder);
        starter.until_it_says("waiting for servers [1, 3]");
        starter.stop();
        drop(TcpListener::bind(&site.servers[&2]).unwrap());
    }
    assert_eq!(identity(2, &folder).promise, 0);
}

#[test]
fn what_a_member_has_acknowledged_stays_known_over_a_change_of_the_members() {
    let member = |id: u64, incarnation: u128| baton_consensus::Member {
        id,
        incarnation,
        address: String::new(),
    };
    let known = |id, incarnation, acknowledged_index| KnownMember {
        id,
        incarnation,
        acknowledged_index,
    };
    let membership = Membership {
        members: vec![member(1, 11), member(2, 22), member(3, 33)],
        ..Membership::default()
    };
    let mut local = LocalServer::new(3, 33, 1);
    local.members = vec![known(1, 11, 5), known(2, 21, 6)];
    describe_members(&mut local, &membership);
    assert_eq!(
        local.members,
        [known(1, 11, 5), known(2, 22, 0), known(3, 33, 0)]
    );
}

#[test]
fn configured_addresses_count_for_members_only() {
    let site = Site::new(2);
    let options = site.options(1);
    let (starting, stop) = (Starting::default(), AtomicBool::new(false));
    let start = Start {
        id: 1,
        list: StaticList::new(site.servers.clone()).unwrap(),
        ensemble: options.ensemble.as_ref().unwrap(),
        tls: None,
        runtime: site.runtime.handle(),
        starting: &starting,
        stop: &stop,
    };
    let member = |id: u64| baton_consensus::Member {
        id,
        incarnation: 1,
        address: format!("born{id}:1"),
    };
    let membership = Membership {
        voters: vec![1, 3],
        members: vec![member(1), member(3)],
        ..Membership::default()
    };
    let storage = Arc::new(MemoryStorage::new());
    let mut folder = MemberFolder::open(storage, 1, 1).unwrap();
    folder.store_birth(7, membership.encode()).unwrap();
    let identity = folder.identity();
    let addresses = start.addresses(identity).unwrap().of(&membership);
    let expected = [(1, site.servers[&1].clone()), (3, "born3:1".to_owned())];
    assert_eq!(addresses, expected.into());
}
