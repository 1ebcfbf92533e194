//! Checks of all servers of the list together: that they are one ensemble, that one of them leads,
//! that the others follow closely, and that all are set up alike.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Server;
use super::facts::ConnectStage;
use super::finding::{Finding, Severity, quoted};
use crate::duration;
use crate::servers::probe;

/// The place of findings about all servers.
const ALL: &str = "all";
/// A follower that is this many changes behind is far behind.
const FAR_BEHIND: u64 = 10_000;
/// A wall clock that is off by more seconds is wrong; and one that nobody reads as this moment.
const CLOCK_OFF: f64 = 1.0;
const CLOCK_FAR_OFF: f64 = 60.0;
/// The time of the newest change is this many seconds ahead of the clocks only where it stands.
const TIME_AHEAD: f64 = 10.0;
/// The bits of a zxid of Apache ZooKeeper that count the changes of one leader.
const COUNTER_BITS: u32 = 32;

/// All findings about the servers together.
pub(super) fn judge(servers: &[Server]) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(leader(servers));
    findings.extend(term(servers));
    findings.extend(lag(servers));
    findings.extend(log(servers));
    findings.extend(members(servers));
    findings.extend(versions(servers));
    findings.extend(time(servers));
    findings.extend(settings(servers));
    findings
}

/// The first line of the report: how many of the servers run, and which one leads.
pub(super) fn headline(servers: &[Server]) -> String {
    let running = probe::running(reached(servers), servers.len());
    match with_mode(servers, "leader").as_slice() {
        [leader] => format!("{running}, {} leads", quoted(leader)),
        _ => running,
    }
}

fn reached(servers: &[Server]) -> usize {
    let reached = servers
        .iter()
        .filter(|server| matches!(server.reach, ConnectStage::Reached { .. }));
    reached.count()
}

fn with_mode<'a>(servers: &'a [Server], mode: &str) -> Vec<&'a str> {
    let with = servers
        .iter()
        .filter(|server| server.summary().mode.as_deref() == Some(mode));
    with.map(|server| server.place.as_str()).collect()
}

/// Whether one server leads, or one stands alone.
fn leader(servers: &[Server]) -> Option<Finding> {
    const CHECK: &str = "leader";
    let error = |finding: String| Finding::error(CHECK, ALL, finding);
    let leaders = with_mode(servers, "leader");
    let alone = with_mode(servers, "standalone");
    let others = ["follower", "observer", "read-only", "looking"];
    let others: usize = others
        .iter()
        .map(|mode| with_mode(servers, mode).len())
        .sum();
    if alone.len() > 1 || (!alone.is_empty() && (others > 0 || !leaders.is_empty())) {
        let text = format!("{} of the list each stand alone", alone.join(", "));
        let text = match alone.as_slice() {
            [one] => format!("{one} of the list stands alone, beside servers of an ensemble"),
            _ => text,
        };
        return Some(error(text).advise(
            "the list names servers that are not one ensemble: each has data and locks of its own",
            "two clients of different servers can both get the same lock",
            "name the servers of one ensemble; baton server ls shows its members",
        ));
    }
    match (leaders.as_slice(), alone.as_slice()) {
        ([], []) if servers.len() < 2 && others == 0 => None,
        ([], []) => {
            let running = reached(servers);
            let (severity, finding, cause) = if !probe::is_majority(running, servers.len()) {
                (
                    Severity::Error,
                    probe::running(running, servers.len()),
                    "the others of the list have ended, or cannot be reached",
                )
            } else if running == servers.len() {
                (
                    Severity::Error,
                    "none of the servers that answer leads".to_owned(),
                    "no majority of the servers is connected, or an election is going on",
                )
            } else {
                (
                    Severity::Warning,
                    "none of the servers that answer leads".to_owned(),
                    "no server that was reached is the leader, or there is no leader",
                )
            };
            Some(Finding::new(severity, CHECK, ALL, finding).advise(
                cause,
                "without a leader no change is made, and no lock is granted",
                "start the servers that do not answer; run this again; their logs say which \
                 servers they miss",
            ))
        }
        ([one], _) => Some(Finding::ok(CHECK, ALL, format!("{one} leads"))),
        ([], [one]) => Some(Finding::ok(CHECK, ALL, format!("{one} stands alone"))),
        (several, _) => Some(
            error(format!("{} lead at once", several.join(", "))).advise(
                "the list names servers of several ensembles, or leadership has moved while they \
                 were asked",
                "if it stays so, two clients get the same lock",
                "run this again; if it stays so, name the servers of one ensemble",
            ),
        ),
    }
}

/// Whether all are in the same term.
fn term(servers: &[Server]) -> Option<Finding> {
    const CHECK: &str = "term";
    let mut terms: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for server in in_ensemble(servers) {
        if let Some(term) = server.term() {
            terms.entry(term).or_default().push(&server.place);
        }
    }
    if terms.len() < 2 {
        let term = terms.keys().next()?;
        return Some(Finding::ok(CHECK, ALL, format!("all are in term {term}")));
    }
    let text: Vec<_> = terms
        .iter()
        .map(|(term, places)| format!("{term}: {}", places.join(", ")))
        .collect();
    Some(
        Finding::warning(
            CHECK,
            ALL,
            format!("the servers are in different terms ({})", text.join("; ")),
        )
        .advise(
            "a leader was elected just now, or a server is cut off from the others",
            "a server that is cut off does not vote: the loss of one more may be too many",
            "run this again; if it stays so, mend the network between the servers",
        ),
    )
}

fn in_ensemble(servers: &[Server]) -> impl Iterator<Item = &Server> {
    servers.iter().filter(|server| {
        let mode = server.summary().mode;
        matches!(
            mode.as_deref(),
            Some("leader" | "follower" | "observer" | "read-only")
        )
    })
}

/// Whether every server has nearly all changes.
fn lag(servers: &[Server]) -> Vec<Finding> {
    const CHECK: &str = "lag";
    let zxids: Vec<_> = in_ensemble(servers)
        .filter_map(|server| Some((server, server.zxid()?)))
        .collect();
    let newest = zxids
        .iter()
        .map(|(_, zxid)| *zxid)
        .max()
        .unwrap_or_default();
    if zxids.len() < 2 {
        return Vec::new();
    }
    let judged = zxids.iter().map(|(server, zxid)| {
        let behind = match server.is_baton() {
            true => newest.saturating_sub(*zxid),
            // Of an earlier leader: how many are missing cannot be said.
            false if newest >> COUNTER_BITS != zxid >> COUNTER_BITS => 0,
            false => newest.saturating_sub(*zxid),
        };
        if behind < FAR_BEHIND {
            return Finding::ok(CHECK, &server.place, format!("{behind} changes behind"));
        }
        Finding::warning(CHECK, &server.place, format!("{behind} changes behind")).advise(
            "its disk or its network is slower than the others', or it has started just now",
            "what it answers is old, and if the leader fails it cannot take its place at once",
            "see the times of its disk; run this again to see whether it catches up",
        )
    });
    judged.collect()
}

/// Whether the servers agree on who is a member, and the list names all members.
fn members(servers: &[Server]) -> Vec<Finding> {
    const CHECK: &str = "members";
    let mut lists: BTreeMap<(i64, BTreeSet<u64>), Vec<&str>> = BTreeMap::new();
    let mut findings = Vec::new();
    for server in servers {
        match server.session.as_ref().map(|facts| &facts.members) {
            Ok(Ok(config)) => {
                let ids = config.members.iter().map(|member| member.id).collect();
                let places = lists.entry((config.version, ids)).or_default();
                places.push(&server.place);
            }
            Ok(Err(why)) => findings.push(Finding::unknown(
                CHECK,
                &server.place,
                why,
                "present credentials that may read /zookeeper/config",
            )),
            Err(_) => {}
        }
    }
    if lists.len() > 1 {
        let texts = lists.iter().map(|((version, ids), places)| {
            let ids: Vec<_> = ids.iter().map(ToString::to_string).collect();
            format!(
                "{} of change 0x{version:x}: {}",
                ids.join(","),
                places.join(", ")
            )
        });
        let text = texts.collect::<Vec<_>>().join("; ");
        findings.push(
            Finding::warning(
                CHECK,
                ALL,
                format!(
                    "the servers do not agree on the members ({})",
                    quoted(&text)
                ),
            )
            .advise(
                "the members were changed just now, a server is behind, or the list names \
                 several ensembles",
                "what a majority is differs among them",
                "run this again; baton server ls shows what each says",
            ),
        );
        return findings;
    }
    let Some((_, ids)) = lists.keys().next().filter(|(_, ids)| !ids.is_empty()) else {
        return findings;
    };
    let mut missing = ids.clone();
    let mut strangers = Vec::new();
    let (mut is_whole, mut all_answer) = (true, true);
    for server in servers {
        match server.id().or_else(|| id_by_address(server, servers)) {
            Some(id) => {
                if !ids.contains(&id) {
                    strangers.push(format!("{} (server {id})", server.place));
                }
                missing.remove(&id);
            }
            None => {
                is_whole = false;
                all_answer &= matches!(server.reach, ConnectStage::Reached { .. });
            }
        }
    }
    if !strangers.is_empty() {
        findings.push(
            Finding::error(
                CHECK,
                ALL,
                format!("no member of the ensemble: {}", strangers.join(", ")),
            )
            .advise(
                "the server was removed, or never added",
                "clients that come to it see old data or none",
                "take it from the list, or add it: baton server add",
            ),
        );
    }
    let text: Vec<_> = missing.iter().map(ToString::to_string).collect();
    let text = text.join(", ");
    findings.push(if missing.is_empty() {
        Finding::ok(
            CHECK,
            ALL,
            format!("all {} members are in the list", ids.len()),
        )
    } else if !is_whole {
        Finding::unknown(
            CHECK,
            ALL,
            &format!(
                "not every server of the list says which member it is; server {text} may be missing"
            ),
            if all_answer {
                "add conf to the servers' 4lw.commands.whitelist"
            } else {
                "see why servers do not answer, then run this again; baton server ls shows the \
                 members"
            },
        )
    } else {
        Finding::warning(
            CHECK,
            ALL,
            format!("the list of servers lacks server {text}"),
        )
        .advise(
            "the ensemble has grown since the list was written, or the list was shortened",
            "clients do not go there when the servers that they know are lost",
            "name all members; baton server ls shows their addresses",
        )
    });
    findings
}

/// Returns the member that a server is which does not say so: the one whose clients come to its
/// address.
fn id_by_address(server: &Server, servers: &[Server]) -> Option<u64> {
    let mut lists = servers
        .iter()
        .filter_map(|server| server.session.as_ref().ok()?.members.as_ref().ok());
    let members = &lists.next()?.members;
    let found = members.iter().find(|member| {
        let mut addresses = member.client.iter().chain(&member.secure_client);
        addresses.any(|address| address.to_string() == server.place)
    });
    found.map(|member| member.id)
}

/// Whether a server lacks entries that are committed, because its folder was rolled back or others
/// were.
fn log(servers: &[Server]) -> Vec<Finding> {
    const CHECK: &str = "log";
    let is_led = !with_mode(servers, "leader").is_empty();
    let mut findings = Vec::new();
    for server in servers {
        let number = |key| server.monitor.number(key).unwrap_or(0.0);
        let lost = number("zk_baton_lost_entries");
        let new = |severity, text: String| Finding::new(severity, CHECK, &server.place, text);
        let finding = if lost > 0.0 {
            let (severity, remedy) = match is_led {
                true => (
                    Severity::Warning,
                    "leave it running: the leader sends what it lacks, and then it votes again",
                ),
                false => (
                    Severity::Error,
                    "start all servers, and wait. If none is elected, keep the folder of the \
                     server with the newest entries, and make a new cluster of that one: baton \
                     server recover",
                ),
            };
            let text = format!(
                "its data folder was rolled back: it lacks {lost} entries that it had acknowledged"
            );
            new(severity, text).advise(
                "its machine or its disk was set back to a snapshot, or its folder to an older \
                 copy",
                "it neither votes nor leads until a leader has sent them; fewer of the others \
                 may fail meanwhile",
                remedy,
            )
        } else if number("zk_baton_log_gap") > 0.0 {
            let text =
                "committed entries are missing, in its log or at a leader that it does not follow";
            new(Severity::Error, text.to_owned()).advise(
                "data folders of servers were rolled back",
                "it does not take part until entries and leader agree",
                "do what its /readyz says, and change no folder before: it names the server \
                 whose folder to keep",
            )
        } else {
            continue;
        };
        findings.push(finding);
    }
    findings
}

/// Whether all have the same version.
fn versions(servers: &[Server]) -> Option<Finding> {
    const CHECK: &str = "version";
    let mut versions: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut builds: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for server in servers {
        let summary = server.summary();
        if let Some(version) = summary.version {
            let newest = server.monitor.value("zk_baton_format_level_newest");
            let version = match newest {
                Some(newest) => format!("{version}, formats up to {newest}"),
                None => version,
            };
            versions.entry(version).or_default().push(&server.place);
        }
        if let Some(built) = summary.built {
            builds.entry(built).or_default().push(&server.place);
        }
    }
    if versions.len() < 2 {
        let version = versions.keys().next()?;
        // Servers that are each built on their own machine have as many builds as machines.
        let text = match builds.len() {
            0 | 1 => format!("all are {version}"),
            _ => format!("all are {version}, of builds {}", listed(&builds)),
        };
        return Some(Finding::ok(CHECK, ALL, quoted(&text)));
    }
    Some(
        Finding::warning(
            CHECK,
            ALL,
            format!("the versions differ ({})", quoted(&listed(&versions))),
        )
        .advise(
            "an upgrade is under way, or was not finished",
            "new formats are not written until the last server has them; a fault that was mended \
             may still show",
            "finish the upgrade; until then each server can go back to the earlier version, and \
             not after",
        ),
    )
}

/// Lists values, each with the servers that have it.
fn listed(what: &BTreeMap<String, Vec<&str>>) -> String {
    let texts: Vec<_> = what
        .iter()
        .map(|(what, places)| format!("{what}: {}", places.join(", ")))
        .collect();
    texts.join("; ")
}

/// Whether the wall clock of each server is that of a majority, and the time of the newest change
/// that of the clocks.
fn time(servers: &[Server]) -> Vec<Finding> {
    const CHECK: &str = "time";
    let mut findings = Vec::new();
    for server in servers {
        let Some(offset) = server.monitor.number("zk_baton_clock_offset_seconds") else {
            continue;
        };
        let side = if offset < 0.0 { "behind" } else { "ahead of" };
        let text = format!(
            "its wall clock is {} {side} those of a majority",
            span(offset.abs())
        );
        findings.push(
            Finding::new(
                match offset.abs() {
                    off if off <= CLOCK_OFF => Severity::Ok,
                    off if off <= CLOCK_FAR_OFF => Severity::Warning,
                    _ => Severity::Error,
                },
                CHECK,
                &server.place,
                text,
            )
            .advise(
                "the clock of this machine was set by hand, or its time service does not run",
                "nothing as long as those of a majority are right; its log and its backups have \
                 a wrong time",
                "set the clock of this machine by the time service of the others (timedatectl, \
                 chronyc tracking)",
            ),
        );
    }
    let ahead = servers
        .iter()
        .filter_map(|server| server.monitor.number("zk_baton_time_ahead_seconds"))
        .fold(0.0, f64::max);
    if ahead > TIME_AHEAD {
        findings.push(
            Finding::error(
                CHECK,
                ALL,
                format!(
                    "the time of the newest change is {} ahead of the clocks",
                    span(ahead)
                ),
            )
            .advise(
                "clocks were ahead when it was made: those of a majority, or one while an \
                 earlier version of Baton served",
                "time stands still until the clocks have come there: TTL nodes and delayed items \
                 stay, changes get that time",
                "set the clocks right (the findings above), then: baton server reset-time",
            ),
        );
    }
    findings
}

/// A span for people; years where nobody counts hours.
fn span(seconds: f64) -> String {
    const DAY: f64 = 24.0 * 3600.0;
    match seconds {
        seconds if seconds >= 2.0 * 365.0 * DAY => format!("{:.1} years", seconds / (365.0 * DAY)),
        seconds if seconds >= 2.0 * DAY => format!("{:.1} days", seconds / DAY),
        seconds if seconds >= 60.0 => duration::show(Duration::from_secs_f64(seconds.round())),
        seconds => format!("{seconds:.3} s"),
    }
}

/// Whether all have the same limits.
fn settings(servers: &[Server]) -> Option<Finding> {
    const CHECK: &str = "settings";
    const KEYS: [&str; 5] = [
        "tickTime",
        "minSessionTimeout",
        "maxSessionTimeout",
        "initLimit",
        "syncLimit",
    ];
    let answered: Vec<_> = servers
        .iter()
        .filter(|server| server.conf.text().is_some())
        .collect();
    if answered.len() < 2 {
        return None;
    }
    let mut differing = Vec::new();
    for key in KEYS {
        let values = answered
            .iter()
            .filter_map(|server| Some((server.conf.value(key)?, server.place.as_str())));
        let values: BTreeMap<_, _> = values.collect();
        if values.len() > 1 {
            let values: Vec<_> = values.keys().copied().collect();
            differing.push(format!("{key} {}", values.join(" or ")));
        }
    }
    if differing.is_empty() {
        return Some(Finding::ok(CHECK, ALL, "the limits of all are the same"));
    }
    Some(
        Finding::warning(
            CHECK,
            ALL,
            format!("the servers differ: {}", quoted(&differing.join("; "))),
        )
        .advise(
            "their settings were changed one by one, or not everywhere",
            "which session timeout a client gets depends on the server that it comes to",
            "give all servers the same settings, and restart them one at a time",
        ),
    )
}
