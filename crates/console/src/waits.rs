//! The wait-for graph over all locks and sessions, and its cycles.
//!
//! Owns what a cycle is, and the proof that it stood. A survey is not of one instant: a node that
//! it read early may be gone before it read another. So a cycle is only reported after its nodes
//! were read again. The session has seen each of them before a `sync`, and reads each again after
//! it: a node of the same `czxid` has existed all the time in between, so all of them existed
//! together at the `sync`. Nothing but the existence of two nodes decides who waits for whom.
//!
//! A holder is taken to wait if its owner waits in another lock. The owner of a node is the process
//! that its record names, in the session of the node: processes that share the session of an agent
//! wait each for itself. A process that does several things at once may still end such a wait.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use baton::inspect::{LockNode, NodeMode};
use serde::{Serialize, Serializer};

use crate::error::SurveyError;
use crate::reader::{Ask, Reply, TreeReader};
use crate::recipes::{Recipe, process};

/// Sessions of one knot from which the shortest cycle is searched for.
const SEARCHED: usize = 64;
/// Waits of one session by which one blocker goes on.
const MOST_HOPS: usize = 8;
/// Cycles that are verified and shown.
const MOST_CYCLES: usize = 32;
/// Reads of one batch of a verification.
const BATCH: usize = 256;

/// A waiter or a holder in the graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub struct WaitNode {
    /// Full path of its node.
    pub path: String,
    /// The change that made it; together with the path it names one node for ever.
    pub czxid: i64,
    /// The session that owns it.
    #[serde(serialize_with = "hexadecimal")]
    pub session: i64,
    /// The process, as far as the node says.
    pub process: Option<String>,
    /// Since when it has existed, milliseconds since 1970 by the server's clock.
    pub since_ms: i64,
    /// Whether it only reads, together with others.
    #[serde(skip)]
    is_reader: bool,
}

/// A session's id as operators know it.
fn hexadecimal<S: Serializer>(id: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("0x{id:x}"))
}

/// One step of a cycle: a session that waits for the next one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Step {
    /// The lock, semaphore or election.
    pub lock: String,
    /// The node that waits.
    pub waiter: WaitNode,
    /// The node that it waits for; the session that owns it waits in the next step.
    pub blocker: WaitNode,
    /// Whether that node holds. Otherwise it waits in the same queue, before the waiter.
    pub holds: bool,
}

/// A cycle of the wait-for graph: sessions that wait for each other, so that none goes on by
/// itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Deadlock {
    /// Each session waits for that of the next step, the last for that of the first.
    pub steps: Vec<Step>,
    /// Number of sessions that wait in cycles with these. Processes that share one count each.
    pub sessions: usize,
    /// The step whose blocker is best asked to release: it holds, it blocks the most waiters, and
    /// its node is the youngest, so that the least work is lost.
    pub ask: usize,
    /// The nodes, each with its `czxid`, whose existence together is the proof.
    #[serde(skip)]
    evidence: BTreeSet<(String, i64)>,
    /// Nodes that must not have been written to: the numbers of permits.
    #[serde(skip)]
    unchanged: BTreeSet<(String, i64)>,
}

impl Deadlock {
    /// The node that is best asked to release.
    #[must_use]
    pub fn way_out(&self) -> Option<&WaitNode> {
        self.steps.get(self.ask).map(|step| &step.blocker)
    }

    /// Identifies this cycle, in whatever order its steps are.
    #[must_use]
    pub fn id(&self) -> String {
        let mut ids: Vec<_> = self.steps.iter().map(|step| step.waiter.czxid).collect();
        ids.sort_unstable();
        let ids: Vec<_> = ids.iter().map(|id| format!("{id:x}")).collect();
        ids.join("-")
    }
}

/// A node that waits, and the nodes that it waits for.
#[derive(Clone, Debug)]
struct Edge {
    lock: usize,
    waiter: usize,
    blockers: Vec<usize>,
    any: bool,
    /// Node of a semaphore, and the change that wrote the number of permits last.
    permits: Option<(String, i64)>,
}

/// A node of the graph, and what it is there.
#[derive(Clone, Debug)]
struct Vertex {
    node: WaitNode,
    /// Number of the process in its session that owns it.
    owner: usize,
    lock: usize,
    holds: bool,
    /// The wait of the node, unless it holds.
    wait: Option<usize>,
}

/// The owner of a node: its session, and the process that its record names.
type Owner<'n> = (i64, Option<(&'n str, u32)>);

/// The wait-for graph over all locks.
#[derive(Clone, Debug, Default)]
pub struct WaitGraph {
    locks: Vec<String>,
    nodes: Vec<Vertex>,
    edges: Vec<Edge>,
    /// The waits of each owner.
    of_owner: HashMap<usize, Vec<usize>>,
}

/// One step through the graph: a wait, the blocker by which it goes on, and the next wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hop {
    edge: usize,
    blocker: usize,
    to: usize,
}

/// The largest set of waits of which each waits for others of it, found by taking out what is not
/// of it. Looks at each blocker of each wait a few times, however long the chains are.
struct StuckWaits<'g> {
    graph: &'g WaitGraph,
    stuck: Vec<bool>,
    /// The waits that each node blocks.
    blocked_by: Vec<Vec<usize>>,
    /// The nodes of each owner that block a wait.
    blockers_of: HashMap<usize, Vec<usize>>,
    /// The stuck waits of each owner, and of each owner in each lock.
    of_owner: HashMap<usize, usize>,
    in_lock: HashMap<(usize, usize), usize>,
    /// The locks in which each owner has stuck waits.
    locks_of: HashMap<usize, usize>,
    /// Blockers of each wait that are stuck.
    stuck_blockers: Vec<usize>,
    /// State of each node: whether its own wait is stuck, and whether its owner has a
    /// stuck wait in another lock.
    nodes: Vec<(bool, bool)>,
    /// Nodes that have been looked at.
    #[cfg(test)]
    looks: usize,
}

impl<'g> StuckWaits<'g> {
    fn of(graph: &'g WaitGraph) -> Self {
        let mut this = Self {
            graph,
            stuck: vec![true; graph.edges.len()],
            blocked_by: vec![Vec::new(); graph.nodes.len()],
            blockers_of: HashMap::new(),
            of_owner: HashMap::new(),
            in_lock: HashMap::new(),
            locks_of: HashMap::new(),
            stuck_blockers: vec![0; graph.edges.len()],
            nodes: Vec::new(),
            #[cfg(test)]
            looks: 0,
        };
        for (at, edge) in graph.edges.iter().enumerate() {
            let owner = graph.owner(edge.waiter);
            *this.of_owner.entry(owner).or_default() += 1;
            let here = this.in_lock.entry((owner, edge.lock)).or_default();
            *here += 1;
            if *here == 1 {
                *this.locks_of.entry(owner).or_default() += 1;
            }
            for blocker in &edge.blockers {
                if let Some(blocked) = this.blocked_by.get_mut(*blocker) {
                    if blocked.is_empty() {
                        let owner = graph.owner(*blocker);
                        this.blockers_of.entry(owner).or_default().push(*blocker);
                    }
                    blocked.push(at);
                }
            }
        }
        let nodes = (0..graph.nodes.len()).map(|node| this.look_at(node));
        this.nodes = nodes.collect();
        let mut over = Vec::new();
        for (at, edge) in graph.edges.iter().enumerate() {
            let owner = graph.owner(edge.waiter);
            let blockers = edge.blockers.iter();
            let stuck = blockers.filter(|node| this.blocks(**node, owner)).count();
            if let Some(count) = this.stuck_blockers.get_mut(at) {
                *count = stuck;
            }
            if !stays(graph, &this.stuck_blockers, at) {
                over.push(at);
            }
        }
        while let Some(at) = over.pop() {
            this.take_out(at, &mut over);
        }
        this
    }

    /// Whether the wait of a node is stuck, and whether its owner has a stuck wait elsewhere.
    fn look_at(&self, node: usize) -> (bool, bool) {
        let Some(vertex) = self.graph.nodes.get(node) else {
            return (false, false);
        };
        let waits = vertex.wait.and_then(|wait| self.stuck.get(wait));
        let owner = vertex.owner;
        let all = self.of_owner.get(&owner).copied().unwrap_or(0);
        let here = self.in_lock.get(&(owner, vertex.lock)).copied();
        (waits == Some(&true), all > here.unwrap_or(0))
    }

    /// Whether the node keeps a wait of this owner stuck.
    fn blocks(&self, node: usize, owner: usize) -> bool {
        let (waits, elsewhere) = self.nodes.get(node).copied().unwrap_or_default();
        waits || elsewhere && self.graph.owner(node) != owner
    }

    /// Takes a wait out, and adds those to `over` that are not stuck without it.
    fn take_out(&mut self, at: usize, over: &mut Vec<usize>) {
        let Some(stuck) = self.stuck.get_mut(at) else {
            return;
        };
        let Some(edge) = self.graph.edges.get(at).filter(|_| *stuck) else {
            return;
        };
        *stuck = false;
        let owner = self.graph.owner(edge.waiter);
        if let Some(all) = self.of_owner.get_mut(&owner) {
            *all = all.saturating_sub(1);
        }
        let here = self.in_lock.entry((owner, edge.lock)).or_default();
        *here = here.saturating_sub(1);
        let is_left = *here > 0;
        self.renew(edge.waiter, over);
        if is_left {
            return;
        }
        let locks = self.locks_of.entry(owner).or_default();
        *locks = locks.saturating_sub(1);
        // Only where all that is left is in one lock, there is a lock whose nodes block no more.
        if *locks <= 1 {
            let nodes = self.blockers_of.get(&owner).cloned();
            for node in nodes.into_iter().flatten() {
                self.renew(node, over);
            }
        }
    }

    /// Looks at a node again, and adds the waits to `over` that it kept stuck.
    fn renew(&mut self, node: usize, over: &mut Vec<usize>) {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        let now = self.look_at(node);
        let Some(known) = self.nodes.get_mut(node) else {
            return;
        };
        let before = std::mem::replace(known, now);
        if before == now {
            return;
        }
        let owner = self.graph.owner(node);
        let blocks = |(waits, elsewhere): (bool, bool), other| waits || elsewhere && owner != other;
        let blocked = self.blocked_by.get(node).map_or(&[][..], Vec::as_slice);
        for at in blocked {
            let waiter = self.graph.edges.get(*at).map_or(0, |edge| edge.waiter);
            let other = self.graph.owner(waiter);
            if !blocks(before, other) || blocks(now, other) {
                continue;
            }
            if let Some(stuck) = self.stuck_blockers.get_mut(*at) {
                *stuck = stuck.saturating_sub(1);
            }
            if !stays(self.graph, &self.stuck_blockers, *at) {
                over.push(*at);
            }
        }
    }
}

/// Whether the wait is stuck, by how many of its blockers are.
fn stays(graph: &WaitGraph, stuck_blockers: &[usize], at: usize) -> bool {
    let stuck = stuck_blockers.get(at).copied().unwrap_or(0);
    graph.edges.get(at).is_some_and(|edge| match edge.any {
        true => stuck == edge.blockers.len(),
        false => stuck > 0,
    })
}

impl WaitGraph {
    /// The graph of these recipes. `written` yields the change that last wrote the node at a path.
    #[must_use]
    pub fn of(
        recipes: &BTreeMap<String, Recipe>,
        written: impl Fn(&str) -> Option<i64>,
    ) -> WaitGraph {
        let mut graph = Self::default();
        let mut owners = HashMap::new();
        for (path, recipe) in recipes {
            let Some(queue) = recipe.queue() else {
                continue;
            };
            let waits = queue.waits();
            if waits.is_empty() {
                continue;
            }
            let lock = graph.locks.len();
            graph.locks.push(path.clone());
            let mut known = HashMap::new();
            for holder in &queue.holders {
                graph.add(&mut owners, &mut known, holder, lock, true);
            }
            for wait in waits {
                let waiter = graph.add(&mut owners, &mut known, wait.waiter, lock, false);
                let blockers = wait.blockers.iter();
                let blockers: Vec<_> = blockers
                    .map(|node| graph.add(&mut owners, &mut known, node, lock, false))
                    .collect();
                let permits = match wait.any {
                    true => written(path).map(|mzxid| (path.clone(), mzxid)),
                    false => None,
                };
                let edge = graph.edges.len();
                if let Some(vertex) = graph.nodes.get_mut(waiter) {
                    vertex.wait = Some(edge);
                }
                let owner = graph.owner(waiter);
                graph.of_owner.entry(owner).or_default().push(edge);
                graph.edges.push(Edge {
                    lock,
                    waiter,
                    blockers,
                    any: wait.any,
                    permits,
                });
            }
        }
        graph
    }

    fn add<'n>(
        &mut self,
        owners: &mut HashMap<Owner<'n>, usize>,
        known: &mut HashMap<String, usize>,
        node: &'n LockNode,
        lock: usize,
        holds: bool,
    ) -> usize {
        if let Some(at) = known.get(&node.info.path) {
            return *at;
        }
        let record = node.info.record.as_ref();
        let program = record.map(|record| (record.host.as_str(), record.pid));
        let next = owners.len();
        let owner = (node.info.session_id, program);
        let owner = *owners.entry(owner).or_insert(next);
        let at = self.nodes.len();
        known.insert(node.info.path.clone(), at);
        self.nodes.push(Vertex {
            node: WaitNode {
                path: node.info.path.clone(),
                czxid: node.info.czxid,
                session: node.info.session_id,
                process: process(&node.info),
                since_ms: node.info.since_ms,
                is_reader: node.mode == NodeMode::Read,
            },
            owner,
            lock,
            holds,
            wait: None,
        });
        at
    }

    fn owner(&self, node: usize) -> usize {
        self.nodes.get(node).map_or(0, |vertex| vertex.owner)
    }

    /// Number of waits.
    #[must_use]
    pub fn len(&self) -> usize {
        self.edges.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// Returns for each wait whether it ends only if one of others that do not end by themselves is
    /// ended: the largest set of waits of which each waits for others of it.
    fn stuck(&self) -> Vec<bool> {
        StuckWaits::of(self).stuck
    }

    /// The stuck waits by which a stuck wait goes on: those of its blockers, and those of the
    /// owners of these, in other locks. What an owner waits for in the same lock with
    /// another node is another task's matter.
    fn hops(&self, stuck: &[bool], at: usize) -> Vec<Hop> {
        let mut hops = Vec::new();
        let Some(edge) = self.edges.get(at) else {
            return hops;
        };
        let waiting = self.owner(edge.waiter);
        let is_stuck = |wait: usize| stuck.get(wait) == Some(&true);
        for blocker in &edge.blockers {
            let Some(vertex) = self.nodes.get(*blocker) else {
                continue;
            };
            let hop = |to| Hop {
                edge: at,
                blocker: *blocker,
                to,
            };
            hops.extend(vertex.wait.filter(|wait| is_stuck(*wait)).map(hop));
            let owner = vertex.owner;
            if owner == waiting {
                continue;
            }
            let others = self.of_owner.get(&owner).into_iter().flatten().copied();
            let others = others.filter(|wait| {
                let lock = self.edges.get(*wait).map(|edge| edge.lock);
                is_stuck(*wait) && lock != Some(vertex.lock)
            });
            hops.extend(others.take(MOST_HOPS).map(hop));
        }
        hops
    }

    /// The cycles, one for each knot of waits that wait for each other: the shortest that was
    /// found. They may have come together from reads of different instants: see [`verified`].
    #[must_use]
    pub fn cycles(&self) -> Vec<Deadlock> {
        let stuck = self.stuck();
        let waits = (0..self.edges.len()).filter(|at| stuck.get(*at) == Some(&true));
        let next: BTreeMap<usize, Vec<Hop>> = waits.map(|at| (at, self.hops(&stuck, at))).collect();
        let mut cycles = Vec::new();
        for knot in knots(&next) {
            let starts = knot.iter().take(SEARCHED);
            let found = starts
                .filter_map(|start| shortest(&next, &knot, *start))
                .min_by_key(Vec::len);
            let Some(path) = found else { continue };
            cycles.push(self.deadlock(&path, &knot, &next));
            if cycles.len() >= MOST_CYCLES {
                break;
            }
        }
        cycles
    }

    /// Whether the first of two hops of one queue may be left out with the second: who waits for a
    /// waiter of the same queue waits for all before that one, unless it is a reader or needs but
    /// one permit.
    fn is_one_wait(&self, first: (usize, usize), second: (usize, usize)) -> bool {
        let of = |(edge, blocker): (usize, usize)| Some((self.edges.get(edge)?, blocker));
        let (Some((first, passed)), Some((second, _))) = (of(first), of(second)) else {
            return false;
        };
        let reads = self
            .nodes
            .get(first.waiter)
            .is_some_and(|vertex| vertex.node.is_reader);
        passed == second.waiter && !first.any && !second.any && !reads
    }

    fn deadlock(
        &self,
        path: &[Hop],
        knot: &BTreeSet<usize>,
        next: &BTreeMap<usize, Vec<Hop>>,
    ) -> Deadlock {
        let mut steps: VecDeque<(usize, usize)> = VecDeque::new();
        for hop in path {
            let step = (hop.edge, hop.blocker);
            match steps.back_mut() {
                Some(before) if self.is_one_wait(*before, step) => before.1 = hop.blocker,
                _ => steps.push_back(step),
            }
        }
        // The cycle may begin in the middle of a queue.
        if let (Some(first), Some(last)) = (steps.front().copied(), steps.back().copied())
            && steps.len() > 2
            && self.is_one_wait(last, first)
        {
            steps.pop_front();
            if let Some(last) = steps.back_mut() {
                last.1 = first.1;
            }
        }
        let mut proof = Proof::default();
        for (edge, blocker) in &steps {
            if let Some(edge) = self.edges.get(*edge) {
                self.prove(&mut proof, edge.waiter);
                self.prove(&mut proof, *blocker);
            }
        }
        // Where one of several would be enough, each of them has to be stuck, and so on.
        let mut due: Vec<usize> = path.iter().map(|hop| hop.edge).collect();
        let mut seen = BTreeSet::new();
        while let Some(at) = due.pop() {
            let Some(edge) = self.edges.get(at).filter(|edge| edge.any) else {
                continue;
            };
            if !seen.insert(at) {
                continue;
            }
            proof.unchanged.extend(edge.permits.clone());
            let hops = next.get(&at).into_iter().flatten();
            for blocker in &edge.blockers {
                self.prove(&mut proof, *blocker);
                let mut hop = hops.clone().find(|hop| hop.blocker == *blocker);
                let mut chain = BTreeSet::new();
                while let Some(step) = hop {
                    if let Some(edge) = self.edges.get(step.to) {
                        self.prove(&mut proof, edge.waiter);
                    }
                    due.push(step.to);
                    if !chain.insert(step.to) {
                        break;
                    }
                    hop = next.get(&step.to).and_then(|hops| hops.first());
                    if let Some(next) = hop {
                        self.prove(&mut proof, next.blocker);
                    }
                }
            }
        }
        let blocked_by = |node: usize| {
            let waits = knot.iter().filter_map(|at| self.edges.get(*at));
            waits.filter(|edge| edge.blockers.contains(&node)).count()
        };
        let ask = steps.iter().enumerate().max_by_key(|(_, (_, blocker))| {
            let vertex = self.nodes.get(*blocker);
            (
                vertex.is_some_and(|vertex| vertex.holds),
                blocked_by(*blocker),
                vertex.map(|vertex| vertex.node.czxid),
            )
        });
        let ask = ask.map_or(0, |(at, _)| at);
        let shown = steps.iter().filter_map(|(edge, blocker)| {
            let edge = self.edges.get(*edge)?;
            let blocker = self.nodes.get(*blocker)?;
            Some(Step {
                lock: self.locks.get(edge.lock)?.clone(),
                waiter: self.nodes.get(edge.waiter)?.node.clone(),
                blocker: blocker.node.clone(),
                holds: blocker.holds,
            })
        });
        let owners: BTreeSet<usize> = knot
            .iter()
            .filter_map(|at| Some(self.owner(self.edges.get(*at)?.waiter)))
            .collect();
        Deadlock {
            steps: shown.collect(),
            sessions: owners.len(),
            ask,
            evidence: proof.evidence,
            unchanged: proof.unchanged,
        }
    }

    fn prove(&self, proof: &mut Proof, node: usize) {
        if let Some(vertex) = self.nodes.get(node) {
            let node = (vertex.node.path.clone(), vertex.node.czxid);
            proof.evidence.insert(node);
        }
    }
}

/// Conditions that must hold together for a cycle to be one.
#[derive(Default)]
struct Proof {
    evidence: BTreeSet<(String, i64)>,
    unchanged: BTreeSet<(String, i64)>,
}

/// The sets of waits of which each can be reached from each other: Tarjan's algorithm, without
/// recursion.
fn knots(next: &BTreeMap<usize, Vec<Hop>>) -> Vec<BTreeSet<usize>> {
    #[derive(Clone, Copy)]
    struct Mark {
        index: usize,
        low: usize,
        on_stack: bool,
    }
    let mut marks: HashMap<usize, Mark> = HashMap::new();
    let mut stack = Vec::new();
    let mut knots = Vec::new();
    for start in next.keys() {
        if marks.contains_key(start) {
            continue;
        }
        let mut calls = vec![(*start, 0)];
        while let Some((at, child)) = calls.pop() {
            if child == 0 {
                let index = marks.len();
                let mark = Mark {
                    index,
                    low: index,
                    on_stack: true,
                };
                marks.insert(at, mark);
                stack.push(at);
            }
            if let Some(hop) = next.get(&at).and_then(|all| all.get(child)) {
                calls.push((at, child + 1));
                match marks.get(&hop.to).copied() {
                    None => calls.push((hop.to, 0)),
                    Some(mark) if mark.on_stack => {
                        if let Some(own) = marks.get_mut(&at) {
                            own.low = own.low.min(mark.index);
                        }
                    }
                    Some(_) => {}
                }
                continue;
            }
            let Some(own) = marks.get(&at).copied() else {
                continue;
            };
            if let Some(parent) = calls.last().and_then(|(parent, _)| marks.get_mut(parent)) {
                parent.low = parent.low.min(own.low);
            }
            if own.low == own.index {
                let mut knot = BTreeSet::new();
                while let Some(top) = stack.pop() {
                    if let Some(mark) = marks.get_mut(&top) {
                        mark.on_stack = false;
                    }
                    knot.insert(top);
                    if top == at {
                        break;
                    }
                }
                if knot.len() > 1 {
                    knots.push(knot);
                }
            }
        }
    }
    knots
}

/// The shortest way from a wait back to itself inside its knot.
fn shortest(
    next: &BTreeMap<usize, Vec<Hop>>,
    knot: &BTreeSet<usize>,
    start: usize,
) -> Option<Vec<Hop>> {
    let mut came: HashMap<usize, Hop> = HashMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(at) = queue.pop_front() {
        for hop in next.get(&at).into_iter().flatten() {
            if !knot.contains(&hop.to) || came.contains_key(&hop.to) {
                continue;
            }
            came.insert(hop.to, *hop);
            if hop.to != start {
                queue.push_back(hop.to);
                continue;
            }
            let mut path = Vec::new();
            let mut at = start;
            while let Some(hop) = came.get(&at) {
                path.push(*hop);
                at = hop.edge;
                if at == start {
                    break;
                }
            }
            path.reverse();
            return Some(path);
        }
    }
    None
}

/// Returns those of these cycles that stood at one instant: after a `sync`, each of their nodes is
/// read again. The reader must be the one by which the nodes were read first.
///
/// # Errors
/// [`SurveyError`].
pub async fn verified(
    reader: &impl TreeReader,
    cycles: Vec<Deadlock>,
) -> Result<Vec<Deadlock>, SurveyError> {
    if cycles.is_empty() {
        return Ok(cycles);
    }
    reader.sync().await?;
    let nodes = cycles
        .iter()
        .flat_map(|cycle| cycle.evidence.iter().chain(&cycle.unchanged));
    let paths: BTreeSet<&String> = nodes.map(|(path, _)| path).collect();
    let paths: Vec<_> = paths.into_iter().cloned().collect();
    let mut stands = HashMap::new();
    for some in paths.chunks(BATCH) {
        let asks: Vec<_> = some.iter().cloned().map(Ask::Stat).collect();
        for (path, reply) in some.iter().zip(reader.read(&asks).await?) {
            if let Reply::Stat(stat) = reply {
                stands.insert(path.clone(), stat);
            }
        }
    }
    let is_there = |cycle: &Deadlock| {
        let evidence = cycle.evidence.iter();
        let mut unchanged = cycle.unchanged.iter();
        evidence
            .clone()
            .all(|(path, czxid)| stands.get(path).is_some_and(|stat| stat.czxid == *czxid))
            && unchanged.all(|(path, mzxid)| {
                let stat = stands.get(path);
                stat.is_some_and(|stat| stat.mzxid == *mzxid)
            })
    };
    Ok(cycles.into_iter().filter(is_there).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wait: the lock, the session, the nodes that block it, and whether one of them is enough.
    type Wait<'a> = (usize, usize, &'a [usize], bool);

    /// A graph of these holders, each with its lock and session, and these waits. The node of a
    /// wait comes behind the holders, at the place of the wait.
    fn graph(holders: &[(usize, usize)], waits: &[Wait<'_>]) -> WaitGraph {
        let mut graph = WaitGraph::default();
        let vertex = |lock, owner, wait: Option<usize>| Vertex {
            node: WaitNode {
                path: String::new(),
                czxid: 0,
                session: 0,
                process: None,
                since_ms: 0,
                is_reader: false,
            },
            owner,
            lock,
            holds: wait.is_none(),
            wait,
        };
        for (lock, session) in holders {
            graph.nodes.push(vertex(*lock, *session, None));
        }
        for (at, (lock, session, blockers, any)) in waits.iter().enumerate() {
            graph.nodes.push(vertex(*lock, *session, Some(at)));
            graph.of_owner.entry(*session).or_default().push(at);
            graph.edges.push(Edge {
                lock: *lock,
                waiter: holders.len() + at,
                blockers: blockers.to_vec(),
                any: *any,
                permits: None,
            });
        }
        graph
    }

    /// The definition, carried out: until nothing changes, each wait that does not belong is left
    /// out.
    fn by_definition(graph: &WaitGraph) -> Vec<bool> {
        let mut stuck = vec![true; graph.edges.len()];
        loop {
            let before = stuck.clone();
            for (at, edge) in graph.edges.iter().enumerate() {
                let session = graph.owner(edge.waiter);
                let is_stuck = |node: &usize| {
                    let vertex = &graph.nodes[*node];
                    let owner = vertex.owner;
                    let elsewhere = graph.edges.iter().zip(&before).any(|(other, stuck)| {
                        let of_owner = graph.owner(other.waiter) == owner;
                        *stuck && of_owner && other.lock != vertex.lock
                    });
                    vertex.wait.is_some_and(|wait| before[wait]) || owner != session && elsewhere
                };
                stuck[at] &= match edge.any {
                    true => edge.blockers.iter().all(is_stuck),
                    false => edge.blockers.iter().any(is_stuck),
                };
            }
            if stuck == before {
                return stuck;
            }
        }
    }

    /// Session n holds lock n, and waits in the lock of the next one.
    fn chain(length: usize, is_ring: bool) -> WaitGraph {
        let holders: Vec<_> = (0..length).map(|n| (n, n)).collect();
        let blockers: Vec<_> = (1..=length).map(|next| [next % length]).collect();
        let waits = blockers.iter().enumerate().map(|(n, blocker)| {
            let wait: Wait<'_> = ((n + 1) % length, n, blocker, false);
            wait
        });
        let waits: Vec<_> = waits.take(length - usize::from(!is_ring)).collect();
        graph(&holders, &waits)
    }

    #[test]
    fn a_long_chain_of_waits_is_looked_at_a_few_times_however_its_waits_are_ordered() {
        const LENGTH: usize = 20_000;
        for (is_ring, expected) in [(false, false), (true, true)] {
            let graph = chain(LENGTH, is_ring);
            let found = StuckWaits::of(&graph);
            assert!(found.stuck.iter().all(|stuck| *stuck == expected));
            assert!(found.looks <= 4 * LENGTH, "{} looks", found.looks);
        }
    }

    #[test]
    fn what_is_stuck_is_what_the_definition_says() {
        // A generator of numbers that is the same each time.
        let mut state = 1_u64;
        let mut draw = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % below
        };
        let mut both = [0, 0];
        for _ in 0..3000 {
            let holders: Vec<_> = (0..4).map(|_| (draw(4), draw(4))).collect();
            let count = 1 + draw(7);
            let blockers: Vec<Vec<usize>> = (0..count)
                .map(|_| (0..=draw(2)).map(|_| draw(4 + count)).collect())
                .collect();
            let waits: Vec<Wait<'_>> = blockers
                .iter()
                .map(|blockers| {
                    let any = draw(4) == 0;
                    (draw(4), draw(4), blockers.as_slice(), any)
                })
                .collect();
            let graph = graph(&holders, &waits);
            let expected = by_definition(&graph);
            assert_eq!(graph.stuck(), expected, "{graph:?}");
            for stuck in expected {
                both[usize::from(stuck)] += 1;
            }
        }
        assert!(both.iter().all(|count| *count > 500), "{both:?}");
    }
}
