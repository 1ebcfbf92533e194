//! Changes of the members as a leader decides them, by what it is shown.

use std::collections::BTreeMap;

use baton_consensus::{Membership, PeerProgress};
use baton_proto::{OpCode, Request};
use baton_tree::{BatchBuilder, Command, Identity, Tree};

use super::*;
use crate::core::peer_states::PeerStates;
use crate::options::EnsembleOptions;

const LEADER: u64 = 1;
const COMMIT: u64 = 10;
const TERM: u64 = 5;
const SESSION: i64 = 7;

fn member(id: u64) -> ClusterMember {
    ClusterMember {
        id,
        incarnation: u128::from(id) * 10,
        address: format!("host{id}:1"),
    }
}

fn superuser() -> Identity {
    let mut identity = Identity::anonymous();
    identity.add("super", "");
    identity
}

fn body(joining: Option<&str>, leaving: Option<&str>, new_members: Option<&str>) -> Vec<u8> {
    let request = Request::Reconfig {
        joining,
        leaving,
        new_members,
        config_id: -1,
    };
    let mut body = Vec::new();
    request.encode(&mut body);
    body
}

const fn origin(number: u64) -> Origin {
    Origin {
        server: 2,
        run: 3,
        number,
    }
}

/// Server 1 leads three voters, which are connected and have everything.
struct Stage {
    now: Instant,
    tree: Tree,
    membership: Membership,
    progress: BTreeMap<u64, PeerProgress>,
    peers: PeerStates,
    ensemble: EnsembleOptions,
    identity: Identity,
    members: Members,
}

impl Stage {
    fn without_list() -> Self {
        let now = Instant::now();
        let nobody = Identity::anonymous();
        let mut tree = Tree::new();
        let raise = Command::SetLevel(FormatLevel::NEWEST);
        tree.apply(0, 0, &nobody, raise, &mut ());
        let open = Command::OpenSession {
            session_id: SESSION,
            password: [0; 16],
            timeout_ms: 4000,
        };
        tree.apply(0, SESSION, &nobody, open, &mut ());
        let mut stage = Self {
            now,
            tree,
            membership: Membership {
                voters: vec![1, 2, 3],
                members: vec![member(1), member(2), member(3)],
                ..Membership::sole_voter(LEADER)
            },
            progress: BTreeMap::new(),
            peers: PeerStates::connected_to([2, 3], now),
            ensemble: EnsembleOptions {
                reconfig: true,
                ..EnsembleOptions::default()
            },
            identity: superuser(),
            members: Members::default(),
        };
        for id in 1..=3 {
            stage.matched(id, COMMIT);
        }
        stage
    }

    fn new() -> Self {
        let mut stage = Self::without_list();
        let actions = stage.next();
        let [Action::List(first)] = actions.as_slice() else {
            panic!("{actions:?}");
        };
        let list = Command::Reconfigure {
            refusal: 0,
            body: first,
        };
        let nobody = Identity::anonymous();
        let outcome = stage.tree.apply(0, 0, &nobody, list, &mut ());
        outcome.result.unwrap();
        assert_eq!(stage.next(), []);
        stage
    }

    fn matched(&mut self, id: u64, matched: u64) {
        let peer = PeerProgress {
            id,
            matched,
            active: true,
            snapshot: 0,
        };
        self.progress.insert(id, peer);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.peers.lead(self.now);
    }

    fn next(&mut self) -> Vec<Action> {
        self.next_in(TERM)
    }

    fn next_in(&mut self, term: u64) -> Vec<Action> {
        let progress: Vec<_> = self.progress.values().copied().collect();
        let view = View {
            id: LEADER,
            now: self.now,
            membership: &self.membership,
            progress: &progress,
            commit: COMMIT,
            tree: &self.tree,
            level: FormatLevel::NEWEST,
            ensemble: &self.ensemble,
            peers: &self.peers,
        };
        self.members.next(term, &view)
    }

    /// A client asks for this change; whether it is taken on.
    fn ask(&mut self, number: u64, body: &[u8]) -> bool {
        let mut builder = BatchBuilder::new(FormatLevel::NEWEST, 0);
        builder.set_origin(origin(number));
        builder.begin(SESSION, &self.identity, None);
        let op = OpCode::Reconfig;
        builder.push(1, Command::Write { op, body });
        let payload = builder.finish();
        let refused = self.members.ask(origin(number), payload, None, self.now);
        refused.is_none()
    }

    /// The only action is a refusal with this code.
    fn assert_refuses(&mut self, code: ErrorCode, why: &str) {
        match self.next().as_slice() {
            [Action::Refuse(_, refused, text)] => {
                assert_eq!(*refused, code);
                assert!(text.contains(why), "{text}");
            }
            other => panic!("{other:?}"),
        }
        assert!(self.members.give_up().is_none(), "nothing is under way");
    }
}

#[test]
fn the_first_list_is_proposed_once_in_each_term_until_there_is_one() {
    let mut stage = Stage::without_list();
    assert!(matches!(stage.next()[..], [Action::List(_)]));
    assert_eq!(stage.next(), []);
    assert!(matches!(stage.next_in(TERM + 1)[..], [Action::List(_)]));
    let mut stage = Stage::new();
    assert_eq!(stage.next_in(TERM + 1), []);
    assert!(
        !stage
            .members
            .is_due(TERM + 1, FormatLevel::NEWEST, stage.now)
    );
    assert!(
        stage
            .members
            .is_due(TERM + 2, FormatLevel::NEWEST, stage.now)
    );
    assert!(
        !stage
            .members
            .is_due(TERM + 2, FormatLevel::Attachments, stage.now)
    );
}

#[test]
fn a_change_waits_ten_seconds_for_a_first_list() {
    let mut stage = Stage::without_list();
    stage.next();
    assert!(stage.ask(1, &body(None, Some("3"), None)));
    stage.pass(PATIENCE - Duration::from_millis(1));
    assert_eq!(stage.next(), []);
    stage.pass(Duration::from_millis(1));
    stage.assert_refuses(ErrorCode::NewConfigNoQuorum, "has not connected yet");
}

#[test]
fn a_new_voter_is_a_learner_until_it_has_caught_up() {
    let mut stage = Stage::new();
    let joins = body(Some("server.4=host4:1:1:participant;2"), None, None);
    assert!(stage.ask(1, &joins));
    assert_eq!(stage.next(), [], "it may be starting");
    let newest = u32::try_from(FormatLevel::NEWEST.number()).unwrap();
    stage.members.await_return(4, 40, newest, stage.now);
    assert_eq!(stage.next(), [Action::AddLearners(vec![member(4)])]);
    stage.members.learners_added(stage.now);
    stage.membership.learners.push(4);
    stage.membership.members.push(member(4));
    stage.matched(4, COMMIT - 1);
    assert_eq!(stage.next(), []);
    stage.matched(4, COMMIT);
    let actions = stage.next();
    let [Action::Propose(_, parts)] = actions.as_slice() else {
        panic!("{actions:?}");
    };
    assert_eq!(*parts, [Change::AddVoter(member(4))]);
    stage.members.proposed();
    assert_eq!(stage.next(), []);
    stage.members.applied(Some(origin(2)));
    assert!(!stage.ask(9, &joins) || stage.members.give_up().is_some());
}

#[test]
fn a_voter_that_does_not_catch_up_is_listed_and_votes_later() {
    let mut stage = Stage::new();
    let joins = body(Some("server.4=host4:1:1:participant;2"), None, None);
    assert!(stage.ask(1, &joins));
    stage.membership.learners.push(4);
    stage.membership.members.push(member(4));
    stage.matched(4, 1);
    assert_eq!(stage.next(), []);
    stage.pass(PATIENCE);
    assert_eq!(stage.next(), []);
    stage.pass(Duration::from_millis(1));
    assert!(matches!(&stage.next()[..], [Action::Propose(_, parts)] if parts.is_empty()));
}

#[test]
fn one_change_at_a_time_and_a_bounded_number_behind_one_in_the_log() {
    let mut stage = Stage::new();
    let leaves = body(None, Some("3"), None);
    assert!(stage.members.is_quiet());
    assert!(stage.ask(1, &leaves) && stage.ask(1, &leaves), "sent again");
    assert!(!stage.members.is_quiet());
    assert!(!stage.ask(2, &leaves));
    assert!(matches!(stage.next()[..], [Action::Propose(..)]));
    stage.members.proposed();
    for number in 2..2 + MOST_NEXT as u64 {
        assert!(stage.ask(number, &leaves));
    }
    assert!(!stage.ask(99, &leaves));
    stage.members.applied(Some(origin(2)));
    assert_eq!(stage.next(), [], "another one is applied");
    stage.members.applied(Some(origin(1)));
    assert!(matches!(stage.next()[..], [Action::Propose(..)]));
    stage.members.proposed();
    assert!(stage.ask(99, &leaves), "there is room for one more");
    stage.members.role_changed(stage.now);
    assert!(stage.members.give_up().is_none());
    assert_eq!(stage.next(), []);
}

#[test]
fn r16_a_leader_that_is_to_leave_hands_over_once_a_second() {
    let mut stage = Stage::new();
    stage.matched(2, COMMIT + 1);
    assert!(stage.ask(1, &body(None, Some("1"), None)));
    assert_eq!(stage.next(), [Action::HandOver(2)]);
    assert_eq!(stage.next(), []);
    stage.pass(HAND_OVER_INTERVAL);
    assert_eq!(stage.next(), [Action::HandOver(2)]);
    stage.peers.disconnected(2);
    stage.pass(HAND_OVER_INTERVAL);
    // Two voters stay, and one of them is out of reach: no majority of those who would vote.
    assert_eq!(stage.next(), [], "it may come back");
}

#[test]
fn what_may_not_be_is_refused_with_its_reason() {
    let leaves = body(None, Some("3"), None);
    let mut stage = Stage::new();
    stage.ensemble.reconfig = false;
    stage.ask(1, &leaves);
    stage.assert_refuses(ErrorCode::ReconfigDisabled, "the settings do not permit it");
    let mut stage = Stage::new();
    stage.identity = Identity::anonymous();
    stage.ask(1, &leaves);
    stage.assert_refuses(ErrorCode::NoAuth, "may not write");
    let mut stage = Stage::new();
    stage.ask(1, &body(Some("server.4"), None, None));
    stage.assert_refuses(ErrorCode::BadArguments, "the line 'server.4'");
    let mut stage = Stage::new();
    stage.peers.disconnected(2);
    stage.members.gone(2);
    stage.ask(1, &leaves);
    stage.assert_refuses(ErrorCode::NewConfigNoQuorum, "cannot be reached");
    let mut stage = Stage::new();
    stage.membership.outgoing = vec![1, 2];
    stage.ask(1, &leaves);
    assert_eq!(stage.next(), [], "another change is not complete");
}

#[test]
fn the_members_follow_the_list() {
    let mut stage = Stage::new();
    stage.membership.learners.push(4);
    stage.membership.members.push(member(4));
    let look = LOOK_INTERVAL;
    stage.pass(look);
    assert_eq!(stage.next(), []);
    stage.pass(UNLISTED_LIMIT);
    assert_eq!(stage.next(), []);
    stage.pass(look);
    assert_eq!(stage.next(), [Action::Follow(Change::Remove(4))]);
    assert_eq!(stage.next(), [], "it is not looked for all the time");
    // A voter of the list that was away when the others changed.
    stage.membership.learners.clear();
    stage.membership.members.pop();
    stage.membership.voters = vec![1, 2];
    stage.membership.members.truncate(2);
    let newest = u32::try_from(FormatLevel::NEWEST.number()).unwrap();
    stage.pass(look);
    stage.members.await_return(3, 30, newest, stage.now);
    let learner = Change::AddLearner(member(3));
    assert_eq!(stage.next(), [Action::Follow(learner)]);
    stage.membership.learners.push(3);
    stage.membership.members.push(member(3));
    stage.matched(3, COMMIT - 1);
    stage.pass(look);
    assert_eq!(stage.next(), []);
    stage.matched(3, COMMIT);
    stage.pass(look);
    assert_eq!(stage.next(), [Action::Follow(Change::AddVoter(member(3)))]);
}

#[test]
fn r16_a_server_that_was_removed_serves_nobody_until_it_has_applied_that_entry() {
    let mut members = Members::default();
    assert!(members.removed_by(9) && !members.removed_by(12));
    assert!(members.is_removed() && members.serves_nobody());
    members.entry_applied(8);
    assert!(members.is_removed());
    members.entry_applied(9);
    assert!(!members.is_removed() && !members.serves_nobody());
    assert!(members.set_left(true) && !members.set_left(true));
    assert!(members.serves_nobody());
    assert!(!members.set_left(false) && !members.serves_nobody());
}
