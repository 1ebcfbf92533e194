//! The start of a cluster, explored exhaustively over small cases: three servers, each empty, of an
//! old cluster or unreachable; messages in any order, also those of connections that have ended;
//! servers that restart or lose their folder at any moment.

use std::collections::BTreeSet;

use super::*;
use crate::codec::Hello;
use crate::handshake::LocalServer;
use crate::net::FramePermit;

const SERVERS: [u64; 3] = [1, 2, 3];
/// Clusters from this id on are born within the model.
const FIRST_NEW_CLUSTER: u64 = 100;

/// Disk of a server.
#[derive(Debug, Clone, Default)]
struct Folder {
    incarnation: u128,
    promised: u128,
    cluster: u64,
    birth: Option<InitialMembership>,
}

#[derive(Debug, Clone)]
struct Node {
    folder: Folder,
    /// `None`: it cannot be reached.
    machine: Option<Bootstrap>,
}

#[derive(Debug, Clone, PartialEq)]
struct InFlightMessage {
    from: u64,
    to: u64,
    /// Whether its connection has ended.
    is_late: bool,
    frame: Frame,
}

/// Way in which a server starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartCase {
    Empty,
    Old(u64),
    Unreachable,
}

#[derive(Debug, Clone)]
struct Model {
    nodes: Vec<Node>,
    /// Frames that may still arrive, in the order in which they were sent.
    travelling: Vec<InFlightMessage>,
    next_incarnation: u128,
    next_cluster: u64,
    /// Number of restarts and losses that may still happen.
    restarts: u32,
    losses: u32,
    /// First memberships that are on a disk, or were.
    births: Vec<InitialMembership>,
    /// Whether frames of a connection that has ended are lost, as the transport sees to. Otherwise
    /// they may arrive at any time, and in any order.
    is_orderly: bool,
}

fn list() -> StaticList {
    StaticList::new(SERVERS.map(|id| (id, format!("server{id}")))).unwrap()
}

impl Model {
    fn new(cases: [StartCase; 3], is_orderly: bool, restarts: u32, losses: u32) -> Model {
        let mut world = Model {
            nodes: Vec::new(),
            travelling: Vec::new(),
            next_incarnation: 1,
            next_cluster: FIRST_NEW_CLUSTER,
            restarts,
            losses,
            births: Vec::new(),
            is_orderly,
        };
        for case in cases {
            let mut folder = world.new_folder();
            if let StartCase::Old(cluster) = case {
                folder.cluster = cluster;
            }
            world.nodes.push(Node {
                folder,
                machine: None,
            });
        }
        for (id, case) in SERVERS.into_iter().zip(cases) {
            if case != StartCase::Unreachable {
                world.start(id);
            }
        }
        world
    }

    fn new_folder(&mut self) -> Folder {
        self.next_incarnation += 1;
        Folder {
            incarnation: self.next_incarnation,
            ..Folder::default()
        }
    }

    fn node(&mut self, id: u64) -> &mut Node {
        &mut self.nodes[usize::try_from(id).unwrap() - 1]
    }

    /// A process starts on the folder, and connections with all that run begin.
    fn start(&mut self, id: u64) {
        self.next_cluster += 1;
        let new_cluster = self.next_cluster;
        let folder = self.node(id).folder.clone();
        let machine = Bootstrap::new(BootstrapStart {
            list: list(),
            id,
            incarnation: folder.incarnation,
            promised: folder.promised,
            cluster: folder.cluster,
            birth: folder.birth,
            new_cluster,
            votes: true,
        });
        self.node(id).machine = Some(machine.unwrap());
        let of_node = |message: &InFlightMessage| message.from == id || message.to == id;
        if self.is_orderly {
            self.travelling.retain(|message| !of_node(message));
        }
        for message in self
            .travelling
            .iter_mut()
            .filter(|message| of_node(message))
        {
            message.is_late = true;
        }
        for other in SERVERS.into_iter().filter(|other| *other != id) {
            if let Some(machine) = &mut self.node(other).machine {
                machine.disconnected(id);
                let frames = machine.connected(id);
                self.send(other, frames);
                let frames = self.node(id).machine.as_mut().unwrap().connected(other);
                self.send(id, frames);
            }
        }
    }

    fn send(&mut self, from: u64, frames: OutgoingFrames) {
        for (to, frame) in frames {
            // What servers 2 and 3 say to each other would make a disorderly world too large.
            if self.is_orderly || from == 1 || to == 1 {
                self.travelling.push(InFlightMessage {
                    from,
                    to,
                    is_late: false,
                    frame,
                });
            }
        }
    }

    fn deliver(&mut self, at: usize) {
        let InFlightMessage {
            from, to, frame, ..
        } = self.travelling.remove(at);
        let Some(machine) = &mut self.node(to).machine else {
            return;
        };
        match frame {
            Frame::BirthReport(report) => {
                let frames = machine.reported(from, report);
                self.send(to, frames);
            }
            Frame::Birth(birth) => machine.received(birth),
            other => panic!("{other:?}"),
        }
    }

    /// Makes durable what the decision asks for.
    fn store(&mut self, id: u64) -> bool {
        let Some(machine) = &self.node(id).machine else {
            return false;
        };
        let frames = match machine.decision() {
            Decision::Promise { to } => {
                let node = self.node(id);
                assert_eq!(node.folder.promised, 0, "a folder promises once");
                node.folder.promised = to;
                node.machine.as_mut().unwrap().promise_stored()
            }
            Decision::Store(birth) => {
                if !self.births.contains(&birth) {
                    self.births.push(birth.clone());
                }
                let node = self.node(id);
                assert_eq!(node.folder.cluster, 0, "a folder has one cluster");
                node.folder.cluster = birth.cluster;
                node.folder.birth = Some(birth);
                node.machine.as_mut().unwrap().birth_stored()
            }
            _ => return false,
        };
        self.send(id, frames);
        true
    }

    /// Each world that one step leads to.
    fn next(&self) -> Vec<Model> {
        let mut next = Vec::new();
        for (at, message) in self.travelling.iter().enumerate() {
            let is_before = |other: &InFlightMessage| {
                !other.is_late && (other.from, other.to) == (message.from, message.to)
            };
            if !message.is_late && self.travelling.iter().take(at).any(is_before) {
                continue;
            }
            let mut world = self.clone();
            world.deliver(at);
            next.push(world);
        }
        for id in SERVERS {
            let mut world = self.clone();
            if world.store(id) {
                next.push(world);
            }
            let runs = self.nodes[usize::try_from(id).unwrap() - 1]
                .machine
                .is_some();
            if runs && self.restarts > 0 {
                let mut world = self.clone();
                world.restarts -= 1;
                world.start(id);
                next.push(world);
            }
            // Before anybody has promised, a loss is a start with another folder; and servers 2 and
            // 3 are alike.
            let matters = id < 3 && self.nodes.iter().any(|node| node.folder.promised != 0);
            if runs && self.losses > 0 && matters {
                let mut world = self.clone();
                world.losses -= 1;
                let folder = world.new_folder();
                world.node(id).folder = folder;
                world.start(id);
                next.push(world);
            }
        }
        next
    }

    /// Equal for worlds that go on alike.
    fn key(&self) -> Vec<u8> {
        let mut key = Vec::new();
        let mut put = |value: u128| key.extend((value as u16).to_le_bytes());
        let birth =
            |birth: &Option<InitialMembership>| birth.as_ref().map_or(0, |birth| birth.cluster);
        let report = |report: &BootstrapReport| {
            u128::from(report.cluster) << 8 | report.incarnation << 4 | report.promised
        };
        for node in &self.nodes {
            put(node.folder.incarnation);
            put(node.folder.promised);
            put(node.folder.cluster.into());
            let Some(machine) = &node.machine else {
                put(0);
                continue;
            };
            put(machine.new_cluster.into());
            put(machine.promising);
            put(birth(&machine.storing).into());
            for id in SERVERS {
                put(match machine.seen.get(&id) {
                    None => 0,
                    Some(ServerView::Cluster(cluster)) => u128::from(*cluster) + 0x8000,
                    Some(ServerView::Report(seen)) => report(seen) + 1,
                });
            }
        }
        put(self.restarts.into());
        put(self.losses.into());
        let (mut late, mut travelling) = (Vec::new(), Vec::new());
        for message in &self.travelling {
            let content = match &message.frame {
                Frame::BirthReport(seen) => report(seen) << 1,
                Frame::Birth(birth) => u128::from(birth.cluster) << 1 | 1,
                other => panic!("{other:?}"),
            };
            let pair = message.from << 2 | message.to;
            if message.is_late {
                late.push((pair | 0x80, content));
            } else {
                travelling.push((pair, content));
            }
        }
        late.sort_unstable();
        late.dedup();
        travelling.sort_by_key(|(pair, _)| *pair);
        travelling.extend(late);
        for (pair, content) in travelling {
            key.extend((content as u32).to_le_bytes());
            key.push(pair as u8);
        }
        key
    }

    /// Checks what must hold at any moment.
    fn check(&self) {
        for (id, node) in SERVERS.into_iter().zip(&self.nodes) {
            if let Some(birth) = &node.folder.birth {
                let names = |member: &Member| {
                    member.id == id && member.incarnation == node.folder.incarnation
                };
                assert!(birth.membership.members.iter().any(names), "{self:#?}");
            }
        }
        for (at, one) in self.births.iter().enumerate() {
            for other in &self.births[at + 1..] {
                let shared = one.membership.members.iter().any(|member| {
                    let same = |other: &Member| other.incarnation == member.incarnation;
                    other.membership.members.iter().any(same)
                });
                assert!(!shared, "one folder in two clusters: {self:#?}");
            }
        }
    }

    fn clusters(&self) -> BTreeSet<u64> {
        self.nodes.iter().map(|node| node.folder.cluster).collect()
    }
}

/// Visits every world that can be reached. `at_end` sees those in which nothing can happen.
fn explore(start: Model, mut at_each: impl FnMut(&Model), mut at_end: impl FnMut(&Model)) -> usize {
    let mut seen = BTreeSet::from([start.key()]);
    let mut left = vec![start];
    while let Some(world) = left.pop() {
        world.check();
        at_each(&world);
        let next = world.next();
        if next.is_empty() {
            at_end(&world);
        }
        for world in next {
            if seen.insert(world.key()) {
                left.push(world);
            }
        }
    }
    seen.len()
}

#[test]
fn r18_three_empty_servers_become_one_cluster_in_every_order_of_messages() {
    let mut ends = 0;
    let worlds = explore(
        Model::new([StartCase::Empty; 3], true, 0, 0),
        |_| {},
        |world| {
            ends += 1;
            let clusters = world.clusters();
            assert_eq!(clusters.len(), 1, "{world:#?}");
            assert!(clusters.first() > Some(&FIRST_NEW_CLUSTER));
        },
    );
    assert!(ends > 0 && worlds > 100, "{worlds}");
}

#[test]
fn r18_a_server_that_restarts_at_any_moment_changes_nothing() {
    explore(
        Model::new([StartCase::Empty; 3], true, 1, 0),
        |world| assert!(world.births.len() <= 1, "{world:#?}"),
        |world| assert_eq!(world.clusters().len(), 1, "{world:#?}"),
    );
}

/// No folder is in two clusters, whichever folder is lost when.
#[test]
fn r18_a_folder_that_is_lost_at_any_moment_makes_no_second_cluster() {
    let mut second = 0;
    explore(
        Model::new([StartCase::Empty; 3], false, 0, 1),
        |world| {
            // Two clusters that could both decide would need two servers each.
            let members = |birth: &InitialMembership| {
                let of = |node: &&Node| node.folder.cluster == birth.cluster;
                world.nodes.iter().filter(of).count()
            };
            let deciding = world.births.iter().filter(|birth| members(birth) >= 2);
            assert!(deciding.count() <= 1, "{world:#?}");
            second += usize::from(world.births.len() > 1);
        },
        |_| {},
    );
    assert_eq!(second, 0, "one lost folder never leads to a second birth");
}

/// A cluster is born only if every server of the list is there and empty.
#[test]
fn r18_no_cluster_is_born_unless_all_are_reachable_and_empty() {
    let cases = [
        StartCase::Empty,
        StartCase::Old(8),
        StartCase::Old(9),
        StartCase::Unreachable,
    ];
    for one in cases {
        for two in cases {
            for three in cases {
                let case = [one, two, three];
                if case == [StartCase::Empty; 3] {
                    continue;
                }
                let start = Model::new(case, true, 1, 0);
                let old = start.clusters();
                explore(
                    start,
                    |world| {
                        assert!(world.births.is_empty(), "{world:#?}");
                        assert_eq!(world.clusters(), old);
                    },
                    |world| {
                        for (case, node) in case.into_iter().zip(&world.nodes) {
                            let Some(machine) = &node.machine else {
                                continue;
                            };
                            let decision = machine.decision();
                            match case {
                                StartCase::Old(cluster) => {
                                    assert_eq!(decision, Decision::Member { cluster });
                                }
                                // An empty folder that meets a cluster waits to be admitted.
                                _ if old.len() == 2 => {
                                    let cluster = *old.last().unwrap();
                                    assert_eq!(decision, Decision::Join { cluster });
                                }
                                _ if old.len() == 1 => {
                                    let waits = matches!(decision, Decision::Wait(_));
                                    assert!(waits, "{decision:?}");
                                }
                                _ => {
                                    let refuse = StartRefusal::TwoClusters { one: 8, other: 9 };
                                    assert_eq!(decision, Decision::Refuse(refuse));
                                }
                            }
                        }
                    },
                );
            }
        }
    }
}

fn machine(id: u64, incarnation: u128) -> Bootstrap {
    Bootstrap::new(BootstrapStart {
        list: list(),
        id,
        incarnation,
        promised: 0,
        cluster: 0,
        birth: None,
        new_cluster: 500,
        votes: true,
    })
    .unwrap()
}

fn empty(incarnation: u128, promised: u128) -> BootstrapReport {
    BootstrapReport {
        list: list().fingerprint(),
        cluster: 0,
        incarnation,
        promised,
    }
}

#[test]
fn what_is_waited_for_is_named() {
    let mut one = machine(1, 11);
    let wait = |wait| Decision::Wait(wait);
    assert_eq!(one.decision(), wait(WaitReason::Unreached(vec![2, 3])));
    one.reported(2, empty(12, 0));
    assert_eq!(one.decision(), wait(WaitReason::Unreached(vec![3])));
    one.reported(3, empty(13, 11));
    assert_eq!(one.decision(), wait(WaitReason::Promises(vec![2])));
    one.disconnected(3);
    assert_eq!(one.decision(), wait(WaitReason::Unreached(vec![3])));
    let mut two = machine(2, 12);
    two.reported(1, empty(11, 0));
    assert_eq!(two.decision(), Decision::Promise { to: 11 });
    let frames = two.promise_stored();
    assert_eq!(frames.len(), 2);
    two.reported(3, empty(13, 0));
    assert_eq!(two.decision(), wait(WaitReason::Birth(1)));
}

#[test]
fn r18_lists_that_differ_are_refused() {
    let mut one = machine(1, 11);
    let mut report = empty(12, 0);
    report.list.0 ^= 1;
    one.reported(2, report);
    let refuse = Decision::Refuse(StartRefusal::OtherList(2));
    assert_eq!(one.decision(), refuse);
    // Nor is anything promised to such a server, although it is the lowest.
    let mut two = machine(2, 12);
    two.reported(1, report);
    assert_eq!(two.decision(), Decision::Refuse(StartRefusal::OtherList(1)));
    one.reported(2, empty(12, 11));
    assert_eq!(
        one.decision(),
        Decision::Wait(WaitReason::Unreached(vec![3]))
    );
}

/// A folder promises once, also over restarts, and says what to do when that is in the way.
#[test]
fn r18_a_promise_is_kept() {
    let mut two = machine(2, 12);
    two.reported(1, empty(11, 0));
    two.promise_stored();
    let birth = |giver: u128, own: u128| {
        let mut one = machine(1, giver);
        one.reported(2, empty(own, giver));
        one.reported(3, empty(13, giver));
        match one.decision() {
            Decision::Store(birth) => birth,
            other => panic!("{other:?}"),
        }
    };
    // The lowest server has lost its folder.
    two.reported(1, empty(21, 0));
    let lowest = 1;
    let refuse = Decision::Refuse(StartRefusal::PromiseOutdated { lowest });
    assert_eq!(two.decision(), refuse);
    two.received(birth(21, 12));
    assert_eq!(
        two.decision(),
        refuse,
        "of a folder it has not promised to follow"
    );
    two.received(birth(11, 22));
    assert_eq!(two.decision(), refuse, "for another folder of its own");
    two.received(birth(11, 12));
    assert!(matches!(two.decision(), Decision::Store(_)));
    // The other side of it.
    let mut one = machine(1, 21);
    one.reported(2, empty(12, 11));
    one.reported(3, empty(13, 21));
    let refuse = StartRefusal::PromisedElsewhere(vec![2]);
    assert_eq!(one.decision(), Decision::Refuse(refuse));
}

/// A server that was refused by a member of a cluster has met that cluster.
#[test]
fn r18_an_empty_folder_that_is_refused_by_a_cluster_waits_to_be_admitted() {
    let mut one = machine(1, 11);
    one.reported(2, empty(12, 11));
    one.met_cluster(3, 77);
    assert_eq!(one.decision(), Decision::Join { cluster: 77 });
    // The cluster is gone: its folder was emptied by the operator.
    one.reported(3, empty(13, 11));
    assert!(matches!(one.decision(), Decision::Store(_)));
    // From then on nothing changes what may be on disk already.
    one.met_cluster(3, 77);
    one.disconnected(2);
    assert!(matches!(one.decision(), Decision::Store(_)));
}

/// A server that missed the membership gets it from any member, as long as it waits for it.
#[test]
fn a_member_passes_the_first_membership_on() {
    let mut one = machine(1, 11);
    one.reported(2, empty(12, 11));
    one.reported(3, empty(13, 11));
    let frames = one.birth_stored();
    let births = |frames: &OutgoingFrames| {
        let births = frames
            .iter()
            .filter(|(_, frame)| matches!(frame, Frame::Birth(_)));
        births.map(|(to, _)| *to).collect::<Vec<_>>()
    };
    assert_eq!(births(&frames), [2, 3]);
    assert_eq!(one.decision(), Decision::Member { cluster: 500 });
    let frames = one.reported(3, empty(13, 11));
    assert_eq!(births(&frames), [3], "again, after a new connection");
    let frames = one.connected(3);
    assert_eq!(
        births(&frames),
        [3],
        "its report came before it was connected"
    );
    let frames = one.reported(3, empty(99, 11));
    assert_eq!(births(&frames), [], "not to another folder");
    assert_eq!(births(&one.connected(3)), []);
}

/// That a server is connected, in this direction, as the transport reports it.
fn connected_as(direction: Direction, hello: Hello) -> PeerEvent {
    let link = Link {
        peer: hello.from,
        lane: Lane::Urgent,
        direction,
        generation: 1,
    };
    PeerEvent::Connected {
        link,
        hello,
        clock_offset_ms: 0,
    }
}

/// A frame of that server.
fn frame_of(peer: u64, frame: Frame) -> PeerEvent {
    let link = Link {
        peer,
        lane: Lane::Urgent,
        direction: Direction::Inbound,
        generation: 1,
    };
    PeerEvent::Frame {
        link,
        frame,
        held: FramePermit::nothing(),
    }
}

#[test]
fn r17_an_admitted_server_begins_with_the_first_membership_without_its_former_self() {
    let mut one = machine(1, 11);
    one.reported(2, empty(12, 11));
    one.reported(3, empty(13, 11));
    let _ = one.birth_stored();
    // Server 3 has lost its folder. That it is connected says that it is a member again.
    let mut three = machine(3, 99);
    let of_three = LocalServer::new(3, 99, 1).hello(1, Lane::Urgent, 1, 0);
    let mut of_one = LocalServer::new(1, 11, 1);
    of_one.cluster = 500;
    let of_one = of_one.hello(3, Lane::Urgent, 1, 0);
    let birth = |sent: OutgoingFrames| {
        sent.into_iter().find_map(|(to, frame)| match frame {
            Frame::Birth(birth) if to == 3 => Some(birth),
            _ => None,
        })
    };
    // Not before it is connected.
    assert!(birth(one.reported(3, empty(99, 0))).is_none());
    let sent = one.event(&connected_as(Direction::Inbound, of_three.clone()));
    assert!(birth(sent).is_none(), "nothing can be sent yet");
    let sent = one.event(&connected_as(Direction::Outbound, of_three));
    let first = birth(sent).expect("the first membership");
    assert!(
        birth(one.reported(3, empty(99, 0))).is_some(),
        "when it asks"
    );

    three.event(&frame_of(1, Frame::Birth(first.clone())));
    let waits = matches!(three.decision(), Decision::Wait(_));
    assert!(waits, "of a server that has not admitted it");
    three.event(&connected_as(Direction::Inbound, of_one));
    three.event(&frame_of(1, Frame::Birth(first)));
    let Decision::Store(stored) = three.decision() else {
        panic!("{:?}", three.decision());
    };
    assert_eq!(
        (stored.cluster, stored.membership.voters),
        (500, vec![1, 2])
    );
    let ids: Vec<u64> = stored.membership.members.iter().map(|it| it.id).collect();
    assert_eq!(ids, [1, 2]);
    three.birth_stored();
    assert_eq!(three.decision(), Decision::Member { cluster: 500 });
}

#[test]
fn an_observer_neither_promises_nor_waits_to_be_in_the_list() {
    let list = machine(1, 11).list;
    let start = BootstrapStart {
        list: list.clone(),
        id: 9,
        incarnation: 19,
        promised: 0,
        cluster: 0,
        birth: None,
        new_cluster: 500,
        votes: false,
    };
    let lacks = Bootstrap::new(BootstrapStart {
        votes: true,
        ..start.clone()
    });
    assert!(lacks.is_err());
    let mut nine = Bootstrap::new(start).unwrap();
    for (id, incarnation) in [(1, 11), (2, 12), (3, 13)] {
        nine.reported(id, empty(incarnation, 0));
        assert!(matches!(nine.decision(), Decision::Wait(_)));
    }
    nine.met_cluster(1, 77);
    assert_eq!(nine.decision(), Decision::Join { cluster: 77 });
}

#[test]
fn a_list_of_one_server_is_a_cluster_at_once() {
    let list = StaticList::new([(5, "server5".to_owned())]).unwrap();
    let start = BootstrapStart {
        list: list.clone(),
        id: 5,
        incarnation: 15,
        promised: 0,
        cluster: 0,
        birth: None,
        new_cluster: 500,
        votes: true,
    };
    let mut five = Bootstrap::new(start.clone()).unwrap();
    assert!(matches!(five.decision(), Decision::Store(_)));
    assert_eq!(five.birth_stored(), []);
    assert_eq!(five.decision(), Decision::Member { cluster: 500 });
    let lacking = Bootstrap::new(BootstrapStart { id: 6, ..start });
    assert_eq!(lacking.unwrap_err(), ListError::LacksThisServer { id: 6 });
}
