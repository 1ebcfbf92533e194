//! Every schedule of three nodes whose folders are rolled back, with [`Proofs`] itself in it.
//!
//! Elections, appends and handshakes are each one step between two nodes; what an append has
//! brought counts for the leader at any later step, unless the follower's next process is heard
//! before. What a node stores is durable at once: the model is of what nodes show and remember, not
//! of disks. A copy of a folder may be taken at any step and put back at any later one.
//!
//! The invariants, where every voter has heard of every other before it votes:
//!
//! - an elected node has each entry that any node has committed, and is alone in its term;
//! - entries of one index and term are one entry;
//! - a node that was named as rolled back gives no vote until it has received everything.
//!
//! Where a node has voted without having heard of all, because time has passed, an entry may be
//! lost, and two things hold still: the last one, and that no node replaces what it has committed.
//!
//! Each [`SeededBug`] must be found: a model that does not find them proves nothing.
//!
//! `cargo test -p baton-locks-consensus --lib proofs::model -- --nocapture` prints the schedules
//! that find them.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use super::{LogView, Position, Proofs, other_entry};

const NODES: usize = 3;

/// A bug seeded into a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SeededBug {
    /// A node does not show what it knows to be committed.
    CommitNotShown,
    /// A missing entry bars a node's vote, and not its own candidacy.
    CheckedAtVoteOnly,
    /// A missing entry bars a node's candidacy, and not its vote for another one.
    CheckedAtCandidacyOnly,
    /// A node that has started votes before it has heard of the others.
    VotesAtOnce,
    /// A node that was named as rolled back does not store that.
    NameNotStored,
    /// A node that was named as rolled back votes for nodes that have everything.
    NamedVotes,
    /// A node votes in terms that others have shown.
    TermNotNoted,
    /// A node follows every leader of a newer term.
    FollowsEveryLeader,
    /// A leader counts on what the process before had acknowledged.
    CountsFormerRun,
}

/// Setting of one exploration.
#[derive(Clone, Copy, Debug)]
struct Setting {
    /// Copies that are taken at any step; without any, each node has one of the beginning.
    copies: u8,
    rollbacks: u8,
    restarts: u8,
    /// Number of times that a node votes though it has not heard of all.
    timeouts: u8,
    elections: u8,
    proposals: u8,
    mistake: Option<SeededBug>,
}

impl Setting {
    fn has(&self, mistake: SeededBug) -> bool {
        self.mistake == Some(mistake)
    }
}

/// An entry. Two leaders of one term make different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    term: u8,
    leader: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Folder {
    term: u8,
    /// For whom it has voted in this term.
    vote: Option<u8>,
    log: Vec<Entry>,
    commit: u8,
    /// Committed entries that each other node has acknowledged to this one.
    acknowledged: [u8; NODES],
    /// Entries that this node has acknowledged and lost.
    lost: u8,
}

impl LogView for Folder {
    fn commit(&self) -> Position {
        position(self.commit, &self.log)
    }

    fn last_index(&self) -> u64 {
        self.log.len().try_into().unwrap()
    }

    fn term_at(&self, index: u64) -> Option<u64> {
        let at = usize::try_from(index).ok()?.checked_sub(1)?;
        self.log.get(at).map(|entry| entry.term.into())
    }
}

fn position(index: u8, log: &[Entry]) -> Position {
    let entry = usize::from(index).checked_sub(1).and_then(|at| log.get(at));
    Position {
        index: index.into(),
        term: entry.map_or(0, |entry| entry.term.into()),
    }
}

fn length(log: &[Entry]) -> u8 {
    log.len().try_into().unwrap()
}

fn end_of(log: &[Entry]) -> Position {
    position(length(log), log)
}

fn id_of(node: usize) -> u8 {
    node.try_into().unwrap()
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    folder: Folder,
    image: Option<Box<Folder>>,
    leads: bool,
    /// Entries that the others have acknowledged to this leader.
    matched: [u8; NODES],
    proofs: Proofs,
    /// Nodes whose present process this one has heard.
    heard: [bool; NODES],
    /// Whether it votes though it has not heard of all.
    is_impatient: bool,
    /// For the judgement: the newest entry for which it was refused, as far as its folder may know.
    named: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Model {
    nodes: Vec<Node>,
    /// The leader of each term.
    led: Vec<Option<u8>>,
    copies: u8,
    rollbacks: u8,
    restarts: u8,
    timeouts: u8,
    elections: u8,
    proposals: u8,
    /// An impatient vote has elected a leader without a committed entry.
    is_forked: bool,
    broken: Option<&'static str>,
}

#[derive(Clone, Copy, Debug)]
enum Move {
    Copy(usize),
    RollBack(usize),
    Restart(usize),
    TimePasses(usize),
    Meet(usize, usize),
    /// A candidate, a voter, and how many terms further.
    Elect(usize, usize, u8),
    Propose(usize),
    Append(usize, usize),
    /// A leader counts what a majority has.
    Commit(usize),
}

impl Model {
    /// Node 0 leads, and its first entry is everywhere.
    fn new(setting: &Setting) -> Model {
        let folder = Folder {
            term: 1,
            vote: Some(0),
            log: vec![Entry { term: 1, leader: 0 }],
            commit: 1,
            acknowledged: [0; NODES],
            lost: 0,
        };
        let node = |id| Node {
            folder: folder.clone(),
            image: (setting.copies == 0).then(|| Box::new(folder.clone())),
            leads: id == 0,
            matched: [1; NODES],
            proofs: Proofs::default(),
            heard: [true; NODES],
            is_impatient: false,
            named: 0,
        };
        Model {
            nodes: (0..NODES).map(node).collect(),
            led: vec![None, Some(0)],
            copies: setting.copies,
            rollbacks: setting.rollbacks,
            restarts: setting.restarts,
            timeouts: setting.timeouts,
            elections: setting.elections,
            proposals: setting.proposals,
            is_forked: false,
            broken: None,
        }
    }

    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for (id, node) in self.nodes.iter().enumerate() {
            if self.copies > 0 && node.image.is_none() {
                moves.push(Move::Copy(id));
            }
            if self.rollbacks > 0 && node.image.as_deref().is_some_and(|it| *it != node.folder) {
                moves.push(Move::RollBack(id));
            }
            if self.restarts > 0 {
                moves.push(Move::Restart(id));
            }
            if self.timeouts > 0 && node.proofs.is_held() {
                moves.push(Move::TimePasses(id));
            }
            if node.leads {
                moves.push(Move::Commit(id));
                if self.proposals > 0 {
                    moves.push(Move::Propose(id));
                }
            }
            for other in (0..NODES).filter(|other| *other != id) {
                if id < other && !self.are_connected(id, other) {
                    moves.push(Move::Meet(id, other));
                }
                if self.elections > 0 && self.are_connected(id, other) {
                    moves.extend([1, 2].map(|terms| Move::Elect(id, other, terms)));
                }
                if node.leads && self.are_connected(id, other) {
                    moves.push(Move::Append(id, other));
                }
            }
        }
        moves
    }

    fn are_connected(&self, one: usize, other: usize) -> bool {
        self.nodes[one].heard[other] && self.nodes[other].heard[one]
    }

    /// The state after a move; `None` where it is not possible.
    fn after(&self, step: Move, setting: &Setting) -> Option<Model> {
        let mut next = self.clone();
        match step {
            Move::Copy(id) => {
                next.copies -= 1;
                let node = &mut next.nodes[id];
                node.image = Some(Box::new(node.folder.clone()));
            }
            Move::RollBack(id) => {
                next.rollbacks -= 1;
                let node = &mut next.nodes[id];
                node.folder = (**node.image.as_ref()?).clone();
                // Only what the folder says is left of it.
                node.named = node.folder.lost;
                next.start(id, setting);
            }
            Move::Restart(id) => {
                next.restarts -= 1;
                next.start(id, setting);
            }
            Move::TimePasses(id) => {
                next.timeouts -= 1;
                next.nodes[id].proofs.release();
                next.nodes[id].is_impatient = true;
            }
            Move::Meet(one, other) => next.meet(one, other, setting),
            Move::Elect(candidate, voter, terms) => {
                next.elections -= 1;
                next.elect(candidate, voter, terms, setting)?;
            }
            Move::Propose(id) => {
                next.proposals -= 1;
                next.nodes[id].lead_entry(id);
            }
            Move::Append(leader, follower) => next.append(leader, follower, setting),
            Move::Commit(leader) => {
                next.nodes[leader].commit(leader);
                next.nodes[leader].note_acknowledged(leader);
            }
        }
        Some(next)
    }

    fn start(&mut self, id: usize, setting: &Setting) {
        for other in &mut self.nodes {
            other.heard[id] = false;
        }
        let node = &mut self.nodes[id];
        node.leads = false;
        node.matched = [0; NODES];
        node.heard = [false; NODES];
        node.heard[id] = true;
        node.is_impatient = false;
        node.proofs = Proofs::default();
        node.proofs.note_acknowledged(node.folder.lost.into());
        if !setting.has(SeededBug::VotesAtOnce) {
            node.proofs.hold(1);
        }
    }

    /// A connection begins: each hears what the other says of itself, or refuses it.
    fn meet(&mut self, one: usize, other: usize, setting: &Setting) {
        let said = [one, other].map(|id| {
            let node = &self.nodes[id];
            (id, node.folder.clone(), node.proofs.lost(&node.folder))
        });
        let is_refused = |by: usize, (id, folder, lost): &(usize, Folder, Option<u64>)| {
            let known = self.nodes[by].folder.acknowledged[*id];
            let last = folder.last_index().max(lost.unwrap_or(0));
            (last < known.into()).then_some(known)
        };
        let refused = [is_refused(other, &said[0]), is_refused(one, &said[1])];
        let is_connected = refused == [None, None];
        for ((id, ..), refusal) in said.iter().zip(refused) {
            if let Some(known) = refusal {
                let node = &mut self.nodes[*id];
                node.proofs.note_acknowledged(known.into());
                node.named = node.named.max(known);
                if !setting.has(SeededBug::NameNotStored) {
                    node.folder.lost = node.folder.lost.max(known);
                }
            }
        }
        for (at, by) in [(0, other), (1, one)] {
            if is_connected || refused[at].is_some() {
                let (id, folder, _) = &said[at];
                self.nodes[by].hear(*id, folder, setting);
            }
        }
        for id in [one, other] {
            self.nodes[id].step_down_if_barred(setting);
        }
    }

    fn elect(
        &mut self,
        candidate: usize,
        voter: usize,
        terms: u8,
        setting: &Setting,
    ) -> Option<()> {
        if !self.nodes[candidate].may_lead(setting) {
            return None;
        }
        let term = self.nodes[candidate].folder.term + terms;
        // Further than one term it has come by a message of the voter.
        if terms > 1 && self.nodes[voter].folder.term + 1 < term {
            return None;
        }
        let asked = end_of(&self.nodes[candidate].folder.log);
        let shown = self.nodes[candidate].folder.commit();
        let voting = &mut self.nodes[voter];
        if voting.folder.term > term {
            return None;
        }
        if !setting.has(SeededBug::CommitNotShown) {
            let Node { proofs, folder, .. } = &mut *voting;
            proofs.note_commit(folder, u64::try_from(candidate).unwrap(), shown);
        }
        voting.step_down_if_barred(setting);
        if voting.folder.term < term {
            (voting.folder.term, voting.folder.vote) = (term, None);
            voting.leads = false;
        }
        let own = end_of(&voting.folder.log);
        let is_new = (asked.term, asked.index) >= (own.term, own.index);
        let is_free = voting.folder.vote.is_none_or(|to| to == id_of(candidate));
        if !is_new || !is_free || !voting.gives_vote(asked, setting) {
            return None;
        }
        voting.folder.vote = Some(id_of(candidate));
        if voting.folder.commit < voting.named {
            self.broken = Some("a node that was named as rolled back gives its vote");
        }
        let shown = self.nodes[voter].folder.commit();
        let is_impatient = self.nodes[voter].is_impatient;
        let leading = &mut self.nodes[candidate];
        (leading.folder.term, leading.folder.vote) = (term, Some(id_of(candidate)));
        leading.leads = false;
        if !setting.has(SeededBug::CommitNotShown) {
            let Node { proofs, folder, .. } = &mut *leading;
            proofs.note_commit(folder, u64::try_from(voter).unwrap(), shown);
        }
        if !leading.may_lead(setting) {
            return Some(());
        }
        leading.leads = true;
        leading.matched = [0; NODES];
        let is_impatient = is_impatient || leading.is_impatient;
        self.judge_election(candidate, term, is_impatient);
        self.nodes[candidate].lead_entry(candidate);
        Some(())
    }

    fn judge_election(&mut self, leader: usize, term: u8, is_impatient: bool) {
        let log = self.nodes[leader].folder.log.clone();
        let lacks = |node: &Node| {
            let committed = &node.folder.log[..usize::from(node.folder.commit)];
            log.get(..committed.len()) != Some(committed)
        };
        self.led
            .resize(self.led.len().max(usize::from(term) + 1), None);
        let before = self.led[usize::from(term)].replace(id_of(leader));
        let what = match () {
            () if before.is_some() => "two leaders in one term",
            () if self.nodes.iter().any(lacks) => {
                "a leader lacks an entry that a node has committed"
            }
            () => return,
        };
        if is_impatient {
            self.is_forked = true;
        } else if !self.is_forked {
            self.broken = Some(what);
        }
    }

    fn append(&mut self, leader: usize, follower: usize, setting: &Setting) {
        let Folder {
            term, log, commit, ..
        } = self.nodes[leader].folder.clone();
        let node = &mut self.nodes[follower];
        if node.folder.term > term {
            // Its answer says so.
            let newer = node.folder.term;
            let node = &mut self.nodes[leader];
            (node.folder.term, node.folder.vote, node.leads) = (newer, None, false);
            return;
        }
        let sent = (1..=length(&log)).map(|index| position(index, &log));
        if other_entry(&node.folder, sent).is_some() && !setting.has(SeededBug::FollowsEveryLeader)
        {
            let shown = node.folder.commit();
            let node = &mut self.nodes[leader];
            let Node { proofs, folder, .. } = &mut *node;
            proofs.note_commit(folder, u64::try_from(follower).unwrap(), shown);
            node.step_down_if_barred(setting);
            return;
        }
        if node.folder.term < term {
            (node.folder.term, node.folder.vote, node.leads) = (term, None, false);
        }
        if node.leads {
            // Of two leaders in one term neither follows the other.
            return;
        }
        let committed = node.folder.log[..usize::from(node.folder.commit)].to_vec();
        let terms = |log: &[Entry]| log.iter().map(|entry| entry.term).collect::<Vec<_>>();
        let is_beginning = terms(&node.folder.log).starts_with(&terms(&log));
        if !is_beginning {
            node.folder.log.clone_from(&log);
        }
        node.folder.commit = node.folder.commit.max(commit.min(length(&log)));
        if !node.folder.log.starts_with(&committed) {
            self.broken = Some("a node replaces an entry that it has committed");
        } else if !node.folder.log.starts_with(&log) && !self.is_forked {
            self.broken = Some("two entries of one index and term");
        }
        self.nodes[leader].matched[follower] = length(&log);
        self.nodes[leader].note_acknowledged(leader);
    }
}

impl Node {
    fn hear(&mut self, from: usize, said: &Folder, setting: &Setting) {
        let is_new = !std::mem::replace(&mut self.heard[from], true);
        if is_new && !setting.has(SeededBug::CountsFormerRun) {
            self.matched[from] = self.matched[from].min(length(&said.log));
        }
        // As `Consensus::note_term` does.
        let (term, vote) = (self.folder.term, self.folder.vote);
        let may_have_voted = said.term > term || (said.term == term && vote.is_none());
        if !self.leads && may_have_voted && !setting.has(SeededBug::TermNotNoted) {
            (self.folder.term, self.folder.vote) = (said.term, Some(u8::MAX));
        }
        if !setting.has(SeededBug::CommitNotShown) {
            let from = u64::try_from(from).unwrap();
            self.proofs.note_commit(&self.folder, from, said.commit());
        }
        if self.heard == [true; NODES] {
            self.proofs.release();
        }
    }

    fn may_lead(&self, setting: &Setting) -> bool {
        match setting.mistake {
            Some(SeededBug::CheckedAtVoteOnly) => !self.proofs.is_held(),
            _ => self.proofs.may_lead(&self.folder),
        }
    }

    fn gives_vote(&self, candidate: Position, setting: &Setting) -> bool {
        let could_lead = self.proofs.could_lead(&self.folder, candidate);
        match setting.mistake {
            Some(SeededBug::CheckedAtCandidacyOnly) => !self.proofs.is_held(),
            Some(SeededBug::NamedVotes) => !self.proofs.is_held() && could_lead,
            _ => self.proofs.may_vote(&self.folder) && could_lead,
        }
    }

    fn step_down_if_barred(&mut self, setting: &Setting) {
        if self.leads && !self.may_lead(setting) {
            self.leads = false;
        }
    }

    fn commit(&mut self, id: usize) {
        let last = length(&self.folder.log);
        for index in self.folder.commit + 1..=last {
            let has = |other: &usize| *other != id && self.matched[*other] >= index;
            let entry = self.folder.log[usize::from(index) - 1];
            if (0..NODES).any(|other| has(&other)) && entry.term == self.folder.term {
                self.folder.commit = index;
            }
        }
    }

    fn note_acknowledged(&mut self, id: usize) {
        for other in (0..NODES).filter(|other| *other != id) {
            let known = self.matched[other].min(self.folder.commit);
            let before = &mut self.folder.acknowledged[other];
            *before = known.max(*before);
        }
    }

    fn lead_entry(&mut self, id: usize) {
        let term = self.folder.term;
        let leader = id_of(id);
        self.folder.log.push(Entry { term, leader });
    }
}

struct Trail(Move, Option<Rc<Trail>>);

/// Explores every schedule. Returns the count of states, or the schedule that breaks an invariant.
fn explore(setting: &Setting) -> Result<usize, String> {
    let digest = |model: &Model| {
        let mut hasher = DefaultHasher::new();
        model.hash(&mut hasher);
        hasher.finish()
    };
    let first = Model::new(setting);
    let mut known = HashSet::from([digest(&first)]);
    let mut waiting = VecDeque::from([(first, None::<Rc<Trail>>)]);
    while let Some((model, trail)) = waiting.pop_front() {
        for step in model.moves() {
            let Some(next) = model.after(step, setting) else {
                continue;
            };
            if let Some(what) = next.broken {
                let mut steps = vec![format!("{step:?}")];
                let mut at = trail.clone();
                while let Some(before) = at {
                    steps.push(format!("{:?}", before.0));
                    at = before.1.clone();
                }
                steps.reverse();
                return Err(format!("{what}: {}\n{next:#?}", steps.join(", ")));
            }
            if known.insert(digest(&next)) {
                let trail = Rc::new(Trail(step, trail.clone()));
                waiting.push_back((next, Some(trail)));
            }
        }
    }
    Ok(known.len())
}

/// One folder is rolled back, to a copy of any step.
const ONE_FOLDER: Setting = Setting {
    copies: 1,
    rollbacks: 1,
    restarts: 0,
    timeouts: 0,
    elections: 1,
    proposals: 1,
    mistake: None,
};

/// Two folders are rolled back, or one twice, to what all had at first.
const TWO_FOLDERS: Setting = Setting {
    copies: 0,
    rollbacks: 2,
    ..ONE_FOLDER
};

/// A node votes once though it has not heard of all.
const IMPATIENT: Setting = Setting {
    copies: 0,
    timeouts: 1,
    ..ONE_FOLDER
};

#[track_caller]
fn sound(setting: Setting) {
    match explore(&setting) {
        Ok(states) => println!("{states} states of {setting:?}"),
        Err(what) => panic!("{setting:?}: {what}"),
    }
}

#[track_caller]
fn wrong(mistake: SeededBug, setting: Setting) {
    let setting = Setting {
        mistake: Some(mistake),
        ..setting
    };
    match explore(&setting) {
        Ok(states) => panic!("{states} states of {setting:?}, and nothing is found"),
        Err(what) => println!("{mistake:?}: {}", what.lines().next().unwrap_or_default()),
    }
}

#[test]
fn r19_no_schedule_of_rolled_back_folders_loses_what_a_node_has_committed() {
    for setting in [ONE_FOLDER, TWO_FOLDERS, IMPATIENT] {
        sound(setting);
    }
}

#[test]
fn r19_the_model_finds_each_mistake() {
    for mistake in [
        SeededBug::CommitNotShown,
        SeededBug::CheckedAtVoteOnly,
        SeededBug::CheckedAtCandidacyOnly,
        SeededBug::VotesAtOnce,
        SeededBug::CountsFormerRun,
    ] {
        wrong(mistake, TWO_FOLDERS);
    }
    wrong(SeededBug::FollowsEveryLeader, IMPATIENT);
    wrong(SeededBug::NamedVotes, IMPATIENT);
    let restarts = 1;
    wrong(
        SeededBug::NameNotStored,
        Setting {
            restarts,
            ..IMPATIENT
        },
    );
    let elections = 2;
    wrong(
        SeededBug::TermNotNoted,
        Setting {
            elections,
            ..ONE_FOLDER
        },
    );
}
