//! View of an ensemble at one of its servers, in ZooKeeper's words: its mode, the leader, the
//! members. Only reads.

use std::collections::BTreeMap;

use baton_consensus::{PeerProgress, Role};

use crate::options::host_and_port;
use crate::state::ServerState;
use crate::state::ensemble_status::EnsembleStatus;

/// The status now; `None`: the server stands alone.
pub(crate) fn status(state: &ServerState) -> Option<EnsembleStatus> {
    state.ensemble.as_ref().map(|status| status.lock().clone())
}

/// `standalone`, `leader`, `follower`, `observer`; while no leader is known `looking`, or
/// `read-only`.
pub(crate) fn mode(state: &ServerState) -> &'static str {
    match status(state) {
        None => "standalone",
        Some(status) => mode_of(&status),
    }
}

fn mode_of(status: &EnsembleStatus) -> &'static str {
    match (status.role, status.leader) {
        (Role::Leader, _) => "leader",
        (Role::Follower, Some(_)) if status.is_observer() => "observer",
        (Role::Follower, Some(_)) => "follower",
        (Role::Follower | Role::Candidate, None) if status.is_read_only => "read-only",
        (Role::Follower, None) | (Role::Candidate, _) => "looking",
    }
}

/// Whether a write can be answered: a leader is known, or none is needed.
pub(crate) fn has_leader(state: &ServerState) -> bool {
    !matches!(mode(state), "looking" | "read-only")
}

/// Missing entries, in a log or at a leader, that keep this server from taking its part.
pub(crate) fn log_gap(state: &ServerState) -> Option<String> {
    status(state)?.log_gap
}

/// The state of the peer and the phase of the agreement, as ZooKeeper joins them; `None` on a
/// server alone.
pub(crate) fn peer_state(state: &ServerState) -> Option<&'static str> {
    Some(match mode_of(&status(state)?) {
        "leader" => "leading - broadcast",
        "follower" => "following - broadcast",
        "observer" => "observing - broadcast",
        _ => "looking",
    })
}

/// ZooKeeper's phase of the agreement: writes are broadcast, or a leader is elected.
pub(crate) fn phase(status: &EnsembleStatus) -> &'static str {
    match mode_of(status) {
        "looking" | "read-only" => "election",
        _ => "broadcast",
    }
}

/// The id of the leader and the host of its address; -1 and no host while no leader is known.
pub(crate) fn leader(status: &EnsembleStatus) -> (i64, &str) {
    let id = match status.role {
        Role::Leader => Some(status.id),
        _ => status.leader,
    };
    let address = id.and_then(|id| status.servers.get(&id));
    let host = address.and_then(|address| host_and_port(address));
    let number = id.and_then(|id| i64::try_from(id).ok());
    (number.unwrap_or(-1), host.map_or("", |(host, _)| host))
}

/// Each voter as a zoo.cfg describes it behind `server.N=`.
pub(crate) fn voters(state: &ServerState, status: &EnsembleStatus) -> BTreeMap<u64, String> {
    let voters = status.servers.iter().filter_map(|(id, address)| {
        let votes = status.voters.contains(id);
        let listed = status.list.as_ref().and_then(|list| list.servers.get(id));
        let text = || match listed {
            Some(listed) => listed.to_string(),
            None => description(state, *id, address),
        };
        votes.then(|| (*id, text()))
    });
    voters.collect()
}

/// A member as the zoo.cfg has it; without such a file, its one port serves elections too.
fn description(state: &ServerState, id: u64, address: &str) -> String {
    let name = format!("server.{id}");
    let mut lines = state.options.conf_lines.iter();
    match lines.find(|(known, _)| *known == name) {
        Some((_, as_written)) => as_written.clone(),
        None => {
            let port = host_and_port(address).map_or(0, |(_, port)| port);
            format!("{address}:{port}:participant")
        }
    }
}

/// The static list of servers, one a line; `None` on a server alone.
pub(crate) fn initial_configuration(state: &ServerState) -> Option<String> {
    let ensemble = state.options.ensemble.as_ref()?;
    let lines = ensemble.servers.iter();
    let lines =
        lines.map(|(id, address)| format!("server.{id}={}", description(state, *id, address)));
    Some(lines.collect::<Vec<_>>().join("\n"))
}

/// The lines of `conf` that only a server of an ensemble has.
pub(crate) fn configuration(state: &ServerState) -> Vec<String> {
    let Some(status) = status(state) else {
        return Vec::new();
    };
    let texts = state.options.conf_lines.iter();
    let texts = texts.filter(|(name, _)| !name.starts_with("server."));
    let mut lines: Vec<String> = texts
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    lines.push(format!("quorumPort={}", port(&status)));
    lines.push(format!("peerType={}", u8::from(status.is_observer())));
    lines.push("membership: ".to_owned());
    if let Some(list) = &status.list {
        lines.extend(list.to_string().lines().map(str::to_owned));
        return lines;
    }
    let voters = voters(state, &status).into_iter();
    lines.extend(voters.map(|(id, voter)| format!("server.{id}={voter}")));
    // The static list has no version.
    lines.push("version=0".to_owned());
    lines
}

/// The port on which the other servers reach this one; -1 if it is not in the list.
pub(crate) fn port(status: &EnsembleStatus) -> i64 {
    let address = status.servers.get(&status.id);
    let parts = address.and_then(|address| host_and_port(address));
    parts.map_or(-1, |(_, port)| port.into())
}

/// Number of members that a leader hears from and sends entries to, not a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Synced {
    pub(crate) voters: usize,
    /// Those that are listed to vote and do not yet.
    pub(crate) joining: usize,
    pub(crate) observers: usize,
}

/// The members that a leader hears from and sends entries to, not a snapshot.
pub(crate) fn synced(status: &EnsembleStatus) -> Synced {
    let is_synced = |peer: &&PeerProgress| peer.active && peer.matched > 0 && peer.snapshot == 0;
    let is_listed_to_vote = |id: u64| {
        let listed = status.list.as_ref().and_then(|list| list.servers.get(&id));
        listed.is_some_and(|server| !server.is_observer)
    };
    let mut synced = Synced {
        voters: 0,
        joining: 0,
        observers: 0,
    };
    for peer in status.progress.iter().filter(is_synced) {
        if status.voters.contains(&peer.id) {
            synced.voters += 1;
        } else if is_listed_to_vote(peer.id) {
            synced.joining += 1;
        } else if status.learners.contains(&peer.id) {
            synced.observers += 1;
        }
    }
    synced
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::options::{EnsembleOptions, Options};

    /// State of server 2 of three, which knows this leader; its core does not run.
    pub(crate) fn member(role: Role, leader: Option<u64>) -> Arc<ServerState> {
        let mut state = crate::state::tests::state(Options::default());
        let servers = [
            (1, "127.0.0.1:2888"),
            (2, "[::1]:2889"),
            (3, "localhost:2890"),
        ];
        let options = EnsembleOptions {
            servers: servers.map(|(id, at)| (id, at.to_owned())).into(),
            ..EnsembleOptions::default()
        };
        let mut status = EnsembleStatus::new(2, &options);
        (status.role, status.leader) = (role, leader);
        let owned = Arc::get_mut(&mut state).unwrap();
        owned.options.server_id = 2;
        owned.options.conf_lines = vec![
            ("initLimit".to_owned(), "10".to_owned()),
            (
                "server.3".to_owned(),
                "localhost:2890:3890:participant;2183".to_owned(),
            ),
        ];
        owned.options.ensemble = Some(options);
        owned.ensemble = Some(Mutex::new(status));
        state
    }

    #[test]
    fn the_mode_is_that_of_zookeeper() {
        let alone = crate::state::tests::state(Options::default());
        assert_eq!(mode(&alone), "standalone");
        assert_eq!(peer_state(&alone), None);
        assert!(has_leader(&alone) && configuration(&alone).is_empty());
        for (role, leader, named, state) in [
            (Role::Leader, Some(2), "leader", "leading - broadcast"),
            (Role::Leader, None, "leader", "leading - broadcast"),
            (Role::Follower, Some(1), "follower", "following - broadcast"),
            (Role::Follower, None, "looking", "looking"),
            (Role::Candidate, None, "looking", "looking"),
        ] {
            let member = member(role, leader);
            assert_eq!(mode(&member), named);
            assert_eq!(peer_state(&member), Some(state));
            assert_eq!(has_leader(&member), named != "looking");
        }
        let member = member(Role::Candidate, None);
        member.ensemble.as_ref().unwrap().lock().is_read_only = true;
        assert_eq!(mode(&member), "read-only");
        assert_eq!(peer_state(&member), Some("looking"));
        assert_eq!(phase(&status(&member).unwrap()), "election");
        assert!(!has_leader(&member));
    }

    #[test]
    fn the_leader_is_named_by_id_and_host() {
        let of = |role, known| {
            let status = status(&member(role, known)).unwrap();
            let (id, host) = leader(&status);
            (id, host.to_owned(), phase(&status))
        };
        let named = |id, host: &str, phase| (id, host.to_owned(), phase);
        assert_eq!(of(Role::Leader, None), named(2, "::1", "broadcast"));
        assert_eq!(
            of(Role::Follower, Some(3)),
            named(3, "localhost", "broadcast")
        );
        assert_eq!(of(Role::Follower, Some(9)), named(9, "", "broadcast"));
        assert_eq!(of(Role::Candidate, None), named(-1, "", "election"));
    }

    #[test]
    fn the_configuration_has_the_lines_of_the_zoo_cfg_and_every_member() {
        let state = member(Role::Follower, Some(1));
        assert_eq!(
            configuration(&state),
            [
                "initLimit=10",
                "quorumPort=2889",
                "peerType=0",
                "membership: ",
                "server.1=127.0.0.1:2888:2888:participant",
                "server.2=[::1]:2889:2889:participant",
                "server.3=localhost:2890:3890:participant;2183",
                "version=0",
            ]
        );
        let initial = initial_configuration(&state).unwrap();
        assert!(initial.starts_with("server.1=127.0.0.1:2888:2888:participant\nserver.2="));
        let mut status = status(&state).unwrap();
        status.voters = vec![1, 2];
        assert_eq!(
            voters(&state, &status).into_keys().collect::<Vec<_>>(),
            [1, 2]
        );
        status.servers.remove(&2);
        assert_eq!(port(&status), -1);
    }

    #[test]
    fn a_member_that_is_silent_or_is_sent_a_snapshot_is_not_synced() {
        let mut status = status(&member(Role::Leader, Some(2))).unwrap();
        status.learners = vec![4];
        let peer = |id, matched, active, snapshot| PeerProgress {
            id,
            matched,
            active,
            snapshot,
        };
        status.progress = vec![
            peer(1, 5, true, 0),
            peer(3, 5, true, 0),
            peer(4, 5, true, 0),
        ];
        let counts = |status: &EnsembleStatus| {
            let synced = synced(status);
            (synced.voters, synced.joining, synced.observers)
        };
        assert_eq!(counts(&status), (2, 0, 1));
        status.progress = vec![
            peer(1, 5, false, 0),
            peer(3, 5, true, 9),
            peer(4, 0, true, 0),
        ];
        assert_eq!(counts(&status), (0, 0, 0));
    }
}
