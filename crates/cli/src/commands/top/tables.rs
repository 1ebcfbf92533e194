//! The tables, from the survey to cells.
//!
//! Owns which columns each table has, and which line is marked. Names that others chose go through
//! [`cell`](super::cell).

use baton::inspect::{LockKind, LockSnapshot, NodeInfo};
use baton_console::{Deadlock, Election, Queue, Recipe, SessionUse, process};

use super::cell::{Cell, foreign};
use super::follow::{ObservedRecipe, Server, Servers, Tree};
use crate::output::Tone;

/// A table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tab {
    #[default]
    Locks,
    Elections,
    Queues,
    /// Semaphores, barriers, members.
    Others,
    Sessions,
    Servers,
    Deadlocks,
}

/// A column: its title, and whether its cells are numbers, which stand to the right and are
/// ordered from the largest at first.
pub(super) type Column = (&'static str, bool);

impl Tab {
    pub(super) const ALL: [Self; 7] = [
        Self::Locks,
        Self::Elections,
        Self::Queues,
        Self::Others,
        Self::Sessions,
        Self::Servers,
        Self::Deadlocks,
    ];

    pub(super) fn index(self) -> usize {
        Self::ALL.iter().position(|tab| *tab == self).unwrap_or(0)
    }

    /// The title, the columns (those of numbers behind a `#`), the column by which the table is
    /// ordered at first, and the words where it is empty.
    const fn layout(self) -> (&'static str, &'static str, usize, &'static str) {
        const LOCKS: &str = "PATH,HOLDER,#HELD,#WAITING,#FIRST WAITS,#TURNS/S,#TOKEN";
        const ELECTIONS: &str = "PATH,LEADER,#LEADS,#WAITING,#TERM,#CHANGES,#TOKEN";
        const QUEUES: &str = "PATH,#ITEMS,#OLDEST,#PUT/S,#TAKEN/S,#CLAIMED,#RETRIED,#DEAD,LAYOUT";
        const OTHERS: &str = "PATH,KIND,STATE,#WAITING,#FIRST WAITS,PRESENT";
        const SESSIONS: &str = "SESSION,PROCESS,#HOLDS,#WAITS FOR,#NODES,#SILENT,CLIENT";
        const SERVERS: &str =
            "SERVER,ROLE,ZXID,#CONN,#REQ/S,#READ/S,#WRITE/S,#READ MS,#WRITE MS,#SYNC MS";
        const DEADLOCKS: &str = "#SESSIONS,LOCKS,WAY OUT";
        match self {
            Self::Locks => ("Locks", LOCKS, 3, "no locks"),
            Self::Elections => ("Elections", ELECTIONS, 0, "no elections"),
            Self::Queues => ("Queues", QUEUES, 1, "no queues"),
            Self::Others => ("Others", OTHERS, 0, "no semaphores, barriers or members"),
            Self::Sessions => ("Sessions", SESSIONS, 3, "no session owns a node"),
            Self::Servers => ("Servers", SERVERS, 0, "no server has answered yet"),
            Self::Deadlocks => ("Deadlocks", DEADLOCKS, 0, "no deadlock"),
        }
    }

    pub(super) fn title(self) -> &'static str {
        self.layout().0
    }

    pub(super) fn columns(self) -> Vec<Column> {
        let columns = self.layout().1.split(',');
        let is_number = |column: &'static str| match column.strip_prefix('#') {
            Some(title) => (title, true),
            None => (column, false),
        };
        columns.map(is_number).collect()
    }

    /// The column by which the table is ordered at first.
    pub(super) fn first_order(self) -> usize {
        self.layout().2
    }

    /// The words where the table is empty.
    pub(super) fn none(self) -> &'static str {
        self.layout().3
    }
}

/// A line of a table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// Identity of the row for as long as it is there.
    pub(super) id: String,
    pub(super) cells: Vec<Cell>,
    pub(super) tone: Option<Tone>,
}

impl Row {
    /// Whether any of its cells has this text, in small letters.
    pub(super) fn has(&self, sought: &str) -> bool {
        let mut cells = self.cells.iter();
        cells.any(|cell| cell.text.to_lowercase().contains(sought))
    }
}

/// Number of lines of each table.
pub(super) fn counts(tree: &Tree, servers: &Servers) -> [usize; 7] {
    let mut counts = [0; 7];
    for seen in tree.recipes.values() {
        if let Some(count) = counts.get_mut(tab_of(&seen.recipe).index()) {
            *count += 1;
        }
    }
    let [.., sessions, all, deadlocks] = &mut counts;
    let known = |id: &&i64| !tree.sessions.contains_key(id);
    *sessions = tree.sessions.len() + servers.clients.keys().filter(known).count();
    *all = servers.all.len();
    *deadlocks = tree.deadlocks.len();
    counts
}

/// The lines of a table, in no order.
pub(super) fn rows(tab: Tab, tree: &Tree, servers: &Servers) -> Vec<Row> {
    match tab {
        Tab::Sessions => sessions(tree, servers),
        Tab::Servers => servers.all.iter().map(server).collect(),
        Tab::Deadlocks => tree.deadlocks.iter().map(deadlock).collect(),
        Tab::Locks | Tab::Elections | Tab::Queues | Tab::Others => {
            let stuck: Vec<&str> = tree.deadlocks.iter().flat_map(locks_of).collect();
            let recipes = tree.recipes.iter();
            let recipes = recipes.filter(|(_, seen)| tab_of(&seen.recipe) == tab);
            recipes
                .map(|(path, seen)| {
                    let (mut cells, mut tone) = recipe(seen, tree.now_ms());
                    cells.insert(0, Cell::foreign(path));
                    if stuck.contains(&path.as_str()) {
                        tone = Some(Tone::Bad);
                    }
                    Row {
                        id: path.clone(),
                        cells,
                        tone,
                    }
                })
                .collect()
        }
    }
}

fn tab_of(recipe: &Recipe) -> Tab {
    match recipe {
        Recipe::Lock(lock) if lock.kind != LockKind::Semaphore => Tab::Locks,
        Recipe::Election(_) => Tab::Elections,
        Recipe::Queue(_) => Tab::Queues,
        _ => Tab::Others,
    }
}

/// The cells of a recipe after its path, and its tone.
fn recipe(seen: &ObservedRecipe, now_ms: i64) -> (Vec<Cell>, Option<Tone>) {
    match &seen.recipe {
        Recipe::Lock(lock) if lock.kind != LockKind::Semaphore => {
            let mut cells = holder(lock, seen, now_ms);
            cells.push(first_waits(lock, now_ms));
            cells.push(Cell::rate(turns(seen)));
            cells.push(token(lock));
            (cells, doubtful(lock))
        }
        Recipe::Election(Election { queue, term, .. }) => {
            let mut cells = holder(queue, seen, now_ms);
            cells.push(Cell::number(term.map(|term| term.epoch)));
            cells.push(Cell::count(seen.past.hand_overs));
            cells.push(token(queue));
            (cells, doubtful(queue))
        }
        Recipe::Queue(found) => (queue(found, seen, now_ms), dead_letters(found)),
        Recipe::Lock(permits) => {
            let held = permits.holders.len();
            let state = match permits.permits {
                Some(all) => format!("{held} of {all} permits held"),
                None => format!("{held} permits held"),
            };
            let cells = vec![
                Cell::text("semaphore"),
                Cell::text(state),
                Cell::size(permits.waiters.len()),
                first_waits(permits, now_ms),
                who(permits.holders.first().map(|node| &node.info), held),
            ];
            (cells, doubtful(permits))
        }
        Recipe::Barrier(barrier) => {
            let first = barrier.members.first();
            let cells = vec![
                Cell::text(barrier.kind),
                Cell::text(barrier.to_string()),
                Cell::default(),
                Cell::default(),
                who(first, barrier.members.len()),
            ];
            (cells, None)
        }
        Recipe::Members(group) => {
            let count = group.members.len();
            let ids = group.members.iter().map(|member| foreign(&member.id));
            let ids: Vec<_> = ids.take(8).collect();
            let cells = vec![
                Cell::text("members"),
                Cell::text(format!("{count} members")),
                Cell::default(),
                Cell::default(),
                Cell::text(ids.join(" ")),
            ];
            (cells, None)
        }
        // A recipe of a later version of the survey.
        _ => (Vec::new(), None),
    }
}

/// Holder, since when, how many wait.
fn holder(lock: &LockSnapshot, seen: &ObservedRecipe, now_ms: i64) -> Vec<Cell> {
    let first = lock.holders.first();
    let held = match (seen.past.held_since_ms, first) {
        (_, None) => Cell::age(None),
        (Some(since_ms), _) => Cell::age(Some(now_ms - since_ms)),
        // It was there before this survey: it may have waited first.
        (None, Some(node)) => Cell::age(Some(now_ms - node.info.since_ms)).marked("≤"),
    };
    let mut holder = who(first.map(|node| &node.info), lock.holders.len());
    if first.is_some_and(|node| node.asked) {
        holder.text.push_str(" (asked to release)");
    }
    vec![holder, held, Cell::size(lock.waiters.len())]
}

/// The process of the first, and how many others there are.
fn who(first: Option<&NodeInfo>, all: usize) -> Cell {
    let Some(info) = first else {
        return Cell::default();
    };
    let mut name = owner(info);
    if all > 1 {
        name.push_str(&format!(" +{}", all - 1));
    }
    Cell::text(name)
}

/// The process that owns a node, or its session.
pub(super) fn owner(info: &NodeInfo) -> String {
    match process(info) {
        Some(process) => foreign(&process),
        None if info.session_id == 0 => "no session".to_owned(),
        None => format!("session 0x{:x}", info.session_id),
    }
}

fn first_waits(lock: &LockSnapshot, now_ms: i64) -> Cell {
    let first = lock.waiters.first();
    Cell::age(first.map(|node| now_ms - node.info.since_ms))
}

fn turns(seen: &ObservedRecipe) -> Option<f64> {
    seen.past.rates.map(|rates| rates.taken)
}

fn token(lock: &LockSnapshot) -> Cell {
    Cell::number(lock.holders.first().and_then(|node| node.token))
}

/// Several naming schemes under one path, or nodes that nobody could release.
fn doubtful(lock: &LockSnapshot) -> Option<Tone> {
    let is_doubtful = lock.is_mixed() || !lock.foreign.is_empty() || !lock.unowned.is_empty();
    is_doubtful.then_some(Tone::Warning)
}

fn dead_letters(queue: &Queue) -> Option<Tone> {
    (queue.dead > 0).then_some(Tone::Warning)
}

fn queue(queue: &Queue, seen: &ObservedRecipe, now_ms: i64) -> Vec<Cell> {
    let rates = seen.past.rates;
    vec![
        Cell::count(queue.depth),
        Cell::age(queue.oldest_since_ms.map(|since_ms| now_ms - since_ms)),
        Cell::rate(rates.map(|rates| rates.put)),
        Cell::rate(rates.map(|rates| rates.taken)),
        Cell::size(queue.claims.len()),
        Cell::count(queue.retried),
        Cell::count(queue.dead),
        Cell::text(queue.layout),
    ]
}

fn sessions(tree: &Tree, servers: &Servers) -> Vec<Row> {
    let now_ms = i64::try_from(
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_millis()),
    );
    let now_ms = now_ms.unwrap_or(0);
    let none = SessionUse::default();
    let known = tree.sessions.iter().map(|(id, session)| (*id, session));
    let others = servers.clients.keys().map(|id| (*id, &none));
    let others = others.filter(|(id, _)| !tree.sessions.contains_key(id));
    let row = |(id, session): (i64, &SessionUse)| {
        let client = servers.clients.get(&id);
        let heard = client.and_then(|client| client.last_heard_ms);
        Row {
            id: format!("{id:x}"),
            cells: vec![
                Cell::text(format!("0x{id:x}")),
                Cell::foreign(session.process.as_deref().unwrap_or_default()),
                Cell::size(session.held),
                Cell::size(session.waiting),
                Cell::size(session.nodes),
                Cell::age(heard.map(|heard_ms| now_ms - heard_ms)),
                Cell::foreign(client.map_or("", |client| &client.client)),
            ],
            tone: heard.map(|_| Tone::Warning),
        }
    };
    known.chain(others).map(row).collect()
}

fn server(server: &Server) -> Row {
    let row = &server.row;
    let said = |text: &Option<String>| Cell::foreign(text.as_deref().unwrap_or_default());
    let role = match &row.error {
        Some(_) => Cell::text("no answer"),
        None => said(&row.role),
    };
    Row {
        id: row.address.clone(),
        cells: vec![
            Cell::foreign(&row.address),
            role,
            said(&row.zxid),
            Cell::size(row.connections.unwrap_or_default()),
            Cell::rate(server.requests),
            Cell::rate(server.reads),
            Cell::rate(server.writes),
            Cell::rate(server.read_ms),
            Cell::rate(server.write_ms),
            Cell::rate(server.sync_ms),
        ],
        tone: row.error.as_ref().map(|_| Tone::Bad),
    }
}

fn locks_of(deadlock: &Deadlock) -> impl Iterator<Item = &str> {
    deadlock.steps.iter().map(|step| step.lock.as_str())
}

fn deadlock(deadlock: &Deadlock) -> Row {
    let locks: Vec<_> = locks_of(deadlock).map(foreign).collect();
    let way_out = deadlock.steps.get(deadlock.ask).map(|step| {
        let holder = step.blocker.process.as_deref();
        let holder =
            holder.map_or_else(|| format!("session 0x{:x}", step.blocker.session), foreign);
        format!("ask {holder} to release {}", foreign(&step.lock))
    });
    Row {
        id: deadlock.id(),
        cells: vec![
            Cell::size(deadlock.steps.len()),
            Cell::text(locks.join("  ")),
            Cell::text(way_out.unwrap_or_default()),
        ],
        tone: Some(Tone::Bad),
    }
}
