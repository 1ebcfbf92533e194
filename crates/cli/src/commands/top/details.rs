//! Details of one line when it is unfolded.

use baton::inspect::{LockNode, LockSnapshot, NodeInfo};
use baton_console::{Deadlock, Queue, Recipe, SessionUse, Use, WaitNode};

use super::cell::{age, decimal, foreign};
use super::follow::{ObservedRecipe, Server, Servers, Tree};
use super::tables::{Tab, owner};
use crate::output::Tone;

/// A line of the details.
pub(super) type Line = (String, Option<Tone>);

/// Past holders that are listed.
const PAST: usize = 8;

/// The details of the line with this id; none if it is gone.
pub(super) fn lines(tab: Tab, id: &str, tree: &Tree, servers: &Servers) -> Vec<Line> {
    let session = || u64::from_str_radix(id, 16).map(u64::cast_signed);
    let found = match tab {
        Tab::Locks | Tab::Elections | Tab::Queues | Tab::Others => {
            let seen = tree.recipes.get(id);
            seen.map(|seen| recipe(id, seen, tree.now_ms()))
        }
        Tab::Sessions => session().ok().map(|id| {
            let none = SessionUse::default();
            let session = tree.sessions.get(&id).unwrap_or(&none);
            of_session(id, session, servers, tree.now_ms())
        }),
        Tab::Servers => {
            let mut all = servers.all.iter();
            let found = all.find(|server| server.row.address == id);
            found.map(of_server)
        }
        Tab::Deadlocks => {
            let mut all = tree.deadlocks.iter();
            let found = all.find(|deadlock| deadlock.id() == id);
            found.map(|deadlock| of_deadlock(deadlock, tree.now_ms()))
        }
    };
    found.unwrap_or_default()
}

fn title(text: String) -> Line {
    (text, Some(Tone::Title))
}

fn plain(text: String) -> Line {
    (text, None)
}

fn recipe(path: &str, seen: &ObservedRecipe, now_ms: i64) -> Vec<Line> {
    let mut lines = vec![title(foreign(path))];
    match &seen.recipe {
        Recipe::Queue(queue) => of_queue(queue, seen, now_ms, &mut lines),
        Recipe::Barrier(barrier) => {
            let round = match barrier.round {
                0 => String::new(),
                round => format!(", round {round}"),
            };
            lines.push(plain(format!("{}: {barrier}{round}", barrier.kind)));
            let members = barrier.members.iter();
            lines.extend(members.map(|info| plain(format!("present   {}", node(info, now_ms)))));
        }
        Recipe::Members(group) => {
            for member in &group.members {
                let node = node(&member.info, now_ms);
                lines.push(plain(format!("{}  {node}", foreign(&member.id))));
            }
        }
        Recipe::Lock(queue) => of_wait_queue(queue, seen, now_ms, &mut lines),
        Recipe::Election(election) => of_wait_queue(&election.queue, seen, now_ms, &mut lines),
        _ => {}
    }
    lines
}

/// A node: its process, its session, since when it has existed.
fn node(info: &NodeInfo, now_ms: i64) -> String {
    format!(
        "{}  session 0x{:x}  for {}",
        owner(info),
        info.session_id,
        age(now_ms - info.since_ms)
    )
}

fn of_wait_queue(lock: &LockSnapshot, seen: &ObservedRecipe, now_ms: i64, lines: &mut Vec<Line>) {
    let scheme = lock.nodes().next().map(|node| node.scheme.to_string());
    let scheme = scheme.map_or(String::new(), |scheme| format!("names of {scheme}; "));
    let rate = seen.past.rates.map(|rates| decimal(rates.taken));
    lines.push(plain(format!(
        "{scheme}{} hand-overs seen, {} turns a second over the last minute",
        seen.past.hand_overs,
        rate.unwrap_or_else(|| "0".to_owned())
    )));
    for (place, holder) in lock.holders.iter().enumerate() {
        // Only of the first is it known since when it holds.
        let since = seen.past.held_since_ms.filter(|_| place == 0);
        let since = match since {
            Some(since_ms) => format!("held for {}", age(now_ms - since_ms)),
            None => format!("held for at most {}", age(now_ms - holder.info.since_ms)),
        };
        lines.push((of_holder(holder, &since), Some(Tone::Good)));
    }
    if lock.holders.is_empty() {
        lines.push(plain("nobody holds".to_owned()));
    }
    for info in &lock.unowned {
        let text = format!("in the way: {} (no session owns it)", foreign(&info.path));
        lines.push((text, Some(Tone::Warning)));
    }
    for child in &lock.foreign {
        let text = format!("in the way: {} ({})", foreign(&child.path), child.why);
        lines.push((foreign(&text), Some(Tone::Warning)));
    }
    for (place, waiter) in lock.waiters.iter().enumerate() {
        lines.push(plain(format!(
            "{:>5}. {}{}  session 0x{:x}  waits {}",
            place + 1,
            mode(waiter),
            owner(&waiter.info),
            waiter.info.session_id,
            age(now_ms - waiter.info.since_ms)
        )));
    }
    for past in seen.past.past.iter().rev().take(PAST) {
        let process = past.process.as_deref().map(foreign);
        let held = match past.from_ms {
            Some(from_ms) => format!("for {}", age(past.until_ms - from_ms)),
            None => "since before this survey".to_owned(),
        };
        lines.push(plain(format!(
            "before: {} held {held}, until {} ago{}",
            process.as_deref().unwrap_or("a process without a name"),
            age(now_ms - past.until_ms),
            token(past.token)
        )));
    }
}

fn of_holder(holder: &LockNode, since: &str) -> String {
    let mut text = format!(
        "held by {}{}  session 0x{:x}  {since}{}",
        mode(holder),
        owner(&holder.info),
        holder.info.session_id,
        token(holder.token)
    );
    if holder.asked {
        text.push_str("  asked to release");
    }
    text
}

/// The mode of a node, where there are several.
fn mode(node: &LockNode) -> String {
    match node.mode {
        baton::inspect::NodeMode::Exclusive | baton::inspect::NodeMode::Permit => String::new(),
        mode => format!("{mode}: "),
    }
}

fn token(token: Option<u64>) -> String {
    token.map_or(String::new(), |token| format!("  token {token}"))
}

fn of_queue(queue: &Queue, seen: &ObservedRecipe, now_ms: i64, lines: &mut Vec<Line>) {
    let capacity = queue.capacity.map(|most| format!(" of at most {most}"));
    let rates = seen.past.rates.unwrap_or_default();
    lines.push(plain(format!(
        "{} items{}, layout {}; {} put and {} taken a second over the last minute",
        queue.depth,
        capacity.unwrap_or_default(),
        queue.layout,
        decimal(rates.put),
        decimal(rates.taken)
    )));
    if queue.read < queue.depth {
        let text = format!("only the oldest {} items are read", queue.read);
        lines.push(plain(text));
    }
    if let Some(oldest) = &queue.oldest {
        lines.push(plain(format!("oldest: {}", foreign(oldest))));
    }
    for claim in &queue.claims {
        let text = format!(
            "claimed: {} by {}  token {}",
            foreign(&claim.item),
            node(&claim.info, now_ms),
            claim.info.czxid
        );
        lines.push(plain(text));
    }
    for letter in &queue.letters {
        let reason = letter.note.as_ref().and_then(|note| note.reason.as_deref());
        let reason = reason.map_or(String::new(), |reason| format!(": {}", foreign(reason)));
        let text = format!(
            "dead for {}: {}{reason}",
            age(now_ms - letter.since_ms),
            foreign(&letter.name)
        );
        lines.push((text, Some(Tone::Warning)));
    }
}

fn of_session(id: i64, session: &SessionUse, servers: &Servers, now_ms: i64) -> Vec<Line> {
    let process = session.process.as_deref().map(foreign);
    let mut lines = vec![title(format!(
        "session 0x{id:x}  {}",
        process.unwrap_or_default()
    ))];
    if let Some(client) = servers.clients.get(&id) {
        let timeout = client.timeout_ms.map(age).unwrap_or_default();
        lines.push(plain(format!(
            "client {} of server {}, timeout {timeout}",
            foreign(&client.client),
            foreign(&client.server)
        )));
    }
    for (words, list, all) in [
        ("holds", &session.holds, session.held),
        ("waits for", &session.waits, session.waiting),
    ] {
        let line = |held: &Use| {
            let since = age(now_ms - held.since_ms);
            plain(format!("{words} {}  for {since}", foreign(&held.path)))
        };
        lines.extend(list.iter().map(line));
        if all > list.len() {
            lines.push(plain(format!("{words} {} more", all - list.len())));
        }
    }
    lines
}

fn of_server(server: &Server) -> Vec<Line> {
    let mut lines = vec![title(foreign(&server.row.address))];
    if let Some(error) = &server.row.error {
        lines.push((foreign(error), Some(Tone::Bad)));
    }
    if let Some(version) = &server.row.version {
        lines.push(plain(format!("version {}", foreign(version))));
    }
    let metrics = server.row.metrics.iter();
    lines.extend(
        metrics.map(|(name, value)| plain(format!("{}  {}", foreign(name), foreign(value)))),
    );
    lines
}

fn of_deadlock(deadlock: &Deadlock, now_ms: i64) -> Vec<Line> {
    let who = |node: &WaitNode| match &node.process {
        Some(process) => format!("{} (session 0x{:x})", foreign(process), node.session),
        None => format!("session 0x{:x}", node.session),
    };
    let mut lines = vec![title(format!(
        "{} sessions wait for each other",
        deadlock.steps.len()
    ))];
    for step in &deadlock.steps {
        let how = if step.holds {
            "held by"
        } else {
            "where before it waits"
        };
        lines.push(plain(format!(
            "{} has waited {} for {}, {how} {}",
            who(&step.waiter),
            age(now_ms - step.waiter.since_ms),
            foreign(&step.lock),
            who(&step.blocker)
        )));
    }
    if let Some(step) = deadlock.steps.get(deadlock.ask) {
        let lock = foreign(&step.lock);
        lines.push((
            format!(
                "shortest way out: ask {} to release {lock} (baton lock revoke)",
                who(&step.blocker)
            ),
            Some(Tone::Bad),
        ));
    }
    lines
}
