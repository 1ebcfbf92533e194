//! `baton server add`, `remove`, `move` and `replace`: servers come, go, and change their address.
//!
//! Owns what is refused before the servers are asked, and for how long a change is tried. A change
//! names the version of the members that it was decided on: if they have changed by then, it is
//! decided again.

use std::collections::BTreeSet;
use std::time::Duration;

use baton_client::{EnsembleConfig, EnsembleMember, MemberRole, MembershipChange, ReconfigError};
use tokio::time::Instant;

use super::{Ensemble, known_member, refusal};
use crate::duration;
use crate::exit::{self, Failure};
use crate::output::record::record;
use crate::servers::probe::{self, Probe};

/// Between two tries of a change.
const RETRY: Duration = Duration::from_millis(500);

/// Time that a change, or a question to a server, has at least to be answered.
const SHORTEST_CHANGE: Duration = Duration::from_secs(1);

/// Kind of the failure that no server listens where one that is to vote should.
const NOT_WAITING: &str = "not_waiting";

/// Changes of an ensemble's members.
pub(super) struct Changes<'a> {
    ensemble: &'a Ensemble<'a>,
    /// For how long a change is tried.
    wait: Duration,
}

/// Treatment of a server that does not catch up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quorum {
    /// It is waited for.
    Await,
    /// Nothing that is waited for would help.
    Require,
}

impl<'a> Changes<'a> {
    /// Changes that are tried for this long.
    pub(super) fn within(ensemble: &'a Ensemble<'a>, wait: Duration) -> Self {
        Self { ensemble, wait }
    }

    /// Adds servers, or changes their parts, all with one change.
    ///
    /// The servers would list a voter that does not run, as ZooKeeper does, and count it once it
    /// has caught up. This waits for it: until it votes, one failure fewer may be tolerated than
    /// the list says.
    pub(super) async fn add(&self, members: &[EnsembleMember]) -> Result<u8, Failure> {
        let until = Instant::now() + self.wait;
        let ids: Vec<u64> = members.iter().map(|member| member.id).collect();
        refuse_named_twice(&ids)?;
        let before = self.ensemble.members().await?;
        let mut joining = Vec::new();
        let mut demoted = Vec::new();
        for member in members {
            let known = before.member(member.id);
            if known.is_some_and(|known| member.is_met_by(known)) {
                self.note(format!("server {} is a member already", member.id));
                continue;
            }
            if let Some(known) = known {
                refuse_other_address(known, member)?;
                if member.role != MemberRole::Participant {
                    demoted.push(known);
                }
            }
            let others = before.members.iter().filter(|of| !ids.contains(&of.id));
            refuse_shared_address(others.chain(members), member)?;
            joining.push(member.clone());
        }
        if joining.is_empty() {
            self.show(&ids, "added", &before);
            return Ok(exit::OK);
        }
        self.refuse_lost_majority(&before, &demoted).await?;
        let voters = joining
            .iter()
            .filter(|it| it.role == MemberRole::Participant);
        let voters = EnsembleConfig {
            members: voters.cloned().collect(),
            version: before.version,
        };
        self.await_listening(until, async || self.refuse_absent(&voters, until).await)
            .await?;
        let change = MembershipChange::Incremental {
            joining,
            leaving: Vec::new(),
        };
        let after = self.apply(&ids, &change, Quorum::Await, until).await?;
        self.await_votes(&voters, until).await?;
        self.advise(&after);
        self.show(&ids, "added", &after);
        Ok(exit::OK)
    }

    /// Removes servers, all with one change.
    pub(super) async fn remove(&self, ids: &[u64]) -> Result<u8, Failure> {
        refuse_named_twice(ids)?;
        let before = self.ensemble.members().await?;
        let leaving = ids.iter().map(|id| known_member(&before, *id));
        let leaving = leaving.collect::<Result<Vec<_>, _>>()?;
        self.refuse_lost_majority(&before, &leaving).await?;
        let change = MembershipChange::Incremental {
            joining: Vec::new(),
            leaving: ids.to_vec(),
        };
        let until = Instant::now() + self.wait;
        let after = self.apply(ids, &change, Quorum::Require, until).await?;
        self.advise(&after);
        self.show(ids, "removed", &after);
        Ok(exit::OK)
    }

    /// Gives a server another address; its data and its vote stay.
    pub(super) async fn relocate(&self, id: u64, address: &str) -> Result<u8, Failure> {
        let before = self.ensemble.members().await?;
        let new = successor(known_member(&before, id)?, address)?;
        refuse_shared_address(&before.members, &new)?;
        let change = MembershipChange::add(new);
        let until = Instant::now() + self.wait;
        let after = self.apply(&[id], &change, Quorum::Require, until).await?;
        self.note(format!(
            "the others look for server {id} at its new address, and at the old one until they have \
             reached it there: stop it, move its folder, and start it there with its new address in its list"
        ));
        self.show(&[id], "moved", &after);
        Ok(exit::OK)
    }

    /// Removes a server with the data that it had, and adds the one that waits in its place.
    pub(super) async fn replace(&self, id: u64, address: Option<&str>) -> Result<u8, Failure> {
        let before = self.ensemble.members().await?;
        let old = known_member(&before, id)?;
        let new = match address {
            Some(address) => successor(old, address)?,
            None => old.clone(),
        };
        refuse_shared_address(&before.members, &new)?;
        let until = Instant::now() + self.wait;
        let check = async || self.refuse_unless_waiting(&before, old, &new).await;
        self.await_listening(until, check).await?;
        self.refuse_lost_majority(&before, &[old]).await?;
        // Each step has its time: the second one completes the first.
        let until = Instant::now() + self.wait;
        self.apply(&[id], &MembershipChange::remove(id), Quorum::Require, until)
            .await?;
        self.note(format!("server {id} is removed with the data that it had"));
        let change = MembershipChange::add(new.clone());
        let until = Instant::now() + self.wait;
        let joined = self.apply(&[id], &change, Quorum::Await, until).await;
        let after = joined.map_err(|failure| Failure {
            text: format!(
                "{}; server {id} is removed and not yet back: when the new one runs with an empty \
                 folder, baton server add '{new}' adds it",
                failure.text
            ),
            ..failure
        })?;
        self.show(&[id], "replaced", &after);
        Ok(exit::OK)
    }

    /// Has the servers make the change, once they can. A change that others make meanwhile is seen,
    /// and so is one that was made although its answer was lost.
    async fn apply(
        &self,
        ids: &[u64],
        change: &MembershipChange,
        quorum: Quorum,
        until: Instant,
    ) -> Result<EnsembleConfig, Failure> {
        let named = named(ids);
        let mut said = "";
        loop {
            let before = self.ensemble.members().await?;
            if change.is_met_by(&before) {
                return Ok(before);
            }
            let session = &self.ensemble.session;
            let changed = session.change_members(change, Some(before.version));
            // The servers wait for those that join with a patience of their own.
            let limit = until.max(Instant::now() + SHORTEST_CHANGE);
            let error = match tokio::time::timeout_at(limit, changed).await {
                Ok(Ok(after)) => return Ok(after),
                Ok(Err(error)) => error,
                Err(_) => return self.unanswered(&named, change).await,
            };
            let why = match error {
                ReconfigError::NoQuorum if quorum == Quorum::Await => {
                    "not connected to the leader, or not caught up"
                }
                ReconfigError::InProgress => "another change of members is in progress",
                ReconfigError::BadVersion | ReconfigError::NotApplied(_) => {
                    "the members have changed meanwhile"
                }
                _ => return Err(refusal(&error)),
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failure {
                    text: format!(
                        "{named}: {why} within {}: {error}",
                        duration::show(self.wait)
                    ),
                    ..refusal(&error)
                });
            }
            if why != said {
                said = why;
                let left = duration::show(Duration::from_secs(left.as_secs().max(1)));
                self.note(format!("{named}: {why}; trying for {left} more"));
            }
            tokio::time::sleep(RETRY.min(left)).await;
        }
    }

    /// The outcome of a change that the servers have not answered in time.
    async fn unanswered(
        &self,
        named: &str,
        change: &MembershipChange,
    ) -> Result<EnsembleConfig, Failure> {
        let now = self.ensemble.members().await?;
        if change.is_met_by(&now) {
            return Ok(now);
        }
        Err(Failure::baton(format!(
            "{named}: the servers have not made the change within {}, and may still make it: they wait for \
             servers that join to catch up; see baton server ls, then decide, or give more time with --wait",
            duration::show(self.wait)
        )))
    }

    /// Refuses to take votes away if too few of the others serve.
    async fn refuse_lost_majority(
        &self,
        config: &EnsembleConfig,
        leaving: &[&EnsembleMember],
    ) -> Result<(), Failure> {
        let voters = leaving
            .iter()
            .filter(|it| it.role == MemberRole::Participant);
        let leaving: Vec<u64> = voters.map(|member| member.id).collect();
        if leaving.is_empty() {
            return Ok(());
        }
        let others = config.voters().filter(|voter| !leaving.contains(&voter.id));
        let others = EnsembleConfig {
            members: others.cloned().collect(),
            version: config.version,
        };
        let count = others.members.len();
        if count == 0 {
            return Err(refused(
                "majority",
                match leaving[..] {
                    [id] => format!(
                        "server {id} is the last voter, and an ensemble needs one; add \
                         another one first"
                    ),
                    _ => format!(
                        "{} are all the voters, and an ensemble needs one; add another one first, or \
                         leave one of them out",
                        named(&leaving)
                    ),
                },
            ));
        }
        let addresses =
            probe::client_addresses(&others, &self.ensemble.known, self.ensemble.tls).await;
        let probes = probe::probe_all(&addresses, self.ensemble.tls).await;
        let down: Vec<_> = others
            .members
            .iter()
            .zip(&probes)
            .filter(|(_, probe)| probe.as_ref().is_some_and(|probe| !probe.serves()))
            .map(|(member, _)| member.id.to_string())
            .collect();
        let needed = count / 2 + 1;
        if count - down.len() >= needed {
            return Ok(());
        }
        let ids: Vec<_> = others.members.iter().map(|of| of.id.to_string()).collect();
        Err(refused(
            "majority",
            format!(
                "without {}, at least {needed} of the servers {} must serve, and {} of them do not \
                 ({}); start these first, or remove one of them instead",
                named(&leaving),
                ids.join(", "),
                down.len(),
                down.join(", ")
            ),
        ))
    }

    /// Repeats `check` until the servers that it is about listen.
    ///
    /// # Errors
    /// Those of `check`; that a server does not listen only once `until` is over.
    async fn await_listening(
        &self,
        until: Instant,
        check: impl AsyncFn() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut is_said = false;
        loop {
            let refused = match check().await {
                Err(refused) if refused.kind == NOT_WAITING => refused,
                outcome => return outcome,
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(refused);
            }
            if !is_said {
                is_said = true;
                let left = duration::show(Duration::from_secs(left.as_secs().max(1)));
                self.note(format!("{}; trying for {left} more", refused.text));
            }
            tokio::time::sleep(RETRY.min(left)).await;
        }
    }

    /// Refuses voters of which one does not listen.
    async fn refuse_absent(&self, voters: &EnsembleConfig, until: Instant) -> Result<(), Failure> {
        let addresses =
            probe::client_addresses(voters, &self.ensemble.known, self.ensemble.tls).await;
        let probes = self.probes(&addresses, until).await;
        let members = voters.members.iter().zip(addresses.iter().zip(&probes));
        for (member, (address, probe)) in members {
            if let (Some(address), Some(Probe::Unreachable(why))) = (address, probe) {
                return Err(not_waiting(member.id, address, why));
            }
        }
        Ok(())
    }

    /// Asks each of these addresses what it is; a server that does not answer in time is silent.
    async fn probes(&self, addresses: &[Option<String>], until: Instant) -> Vec<Option<Probe>> {
        let limit = until.max(Instant::now() + SHORTEST_CHANGE);
        let probed = probe::probe_all(addresses, self.ensemble.tls);
        let silent = |address: &Option<String>| address.is_some().then_some(Probe::Silent);
        match tokio::time::timeout_at(limit, probed).await {
            Ok(probes) => probes,
            Err(_) => addresses.iter().map(silent).collect(),
        }
    }

    /// Waits until these servers vote, as far as their lines say where to ask them.
    async fn await_votes(&self, voters: &EnsembleConfig, until: Instant) -> Result<(), Failure> {
        let addresses =
            probe::client_addresses(voters, &self.ensemble.known, self.ensemble.tls).await;
        loop {
            let probes = self.probes(&addresses, until).await;
            let late = voters.members.iter().zip(&probes);
            let late = late.filter(|(_, probe)| probe.as_ref().is_some_and(|it| !it.votes()));
            let late: Vec<u64> = late.map(|(member, _)| member.id).collect();
            let left = until.saturating_duration_since(Instant::now());
            if late.is_empty() {
                return Ok(());
            }
            if left.is_zero() {
                return Err(refused(
                    "does_not_vote",
                    format!(
                        "{} listed and not voting within {}: a listed server votes once it has caught up; its log \
                         says what it waits for, and baton server remove takes it off the list",
                        named(&late),
                        duration::show(self.wait)
                    ),
                ));
            }
            tokio::time::sleep(RETRY.min(left)).await;
        }
    }

    /// Refuses to replace a server that has its data, or one whose successor does not wait.
    async fn refuse_unless_waiting(
        &self,
        config: &EnsembleConfig,
        old: &EnsembleMember,
        new: &EnsembleMember,
    ) -> Result<(), Failure> {
        let id = old.id;
        let pair = EnsembleConfig {
            members: vec![old.clone(), new.clone()],
            version: config.version,
        };
        let addresses =
            probe::client_addresses(&pair, &self.ensemble.known, self.ensemble.tls).await;
        let probes = probe::probe_all(&addresses, self.ensemble.tls).await;
        if let Some(probe) = probes.iter().flatten().find(|probe| probe.serves()) {
            let mode = probe.summary().and_then(|summary| summary.mode.as_deref());
            return Err(refused(
                "has_data",
                format!(
                    "server {id} has its data: it answers as {}; to replace it, stop it and start \
                     its successor with an empty folder",
                    mode.unwrap_or("a member")
                ),
            ));
        }
        match (probes.last(), addresses.last()) {
            (Some(Some(Probe::Unreachable(why))), Some(Some(address))) => {
                Err(not_waiting(id, address, why))
            }
            (Some(None), _) => {
                self.note(format!(
                    "it is not known whether the new server {id} waits: its entry has no address for clients"
                ));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Warns of a number of voters that tolerates no more than one fewer.
    fn advise(&self, config: &EnsembleConfig) {
        let voters = config.voters().count();
        if voters.is_multiple_of(2) && voters > 0 {
            let tolerated = (voters - 1) / 2;
            self.note(format!(
                "{voters} servers vote now: they go on after the failure of {tolerated}, no more \
                 than {} do; an odd number is better",
                voters - 1
            ));
        }
    }

    fn show(&self, servers: &[u64], change: &str, config: &EnsembleConfig) {
        let ids = |role: MemberRole| -> Vec<u64> {
            let members = config.members.iter();
            let members = members.filter(|member| member.role == role);
            members.map(|member| member.id).collect()
        };
        let (voters, observers) = (ids(MemberRole::Participant), ids(MemberRole::Observer));
        let mut text = format!("{} {change}; voters: {}", named(servers), joined(&voters));
        if !observers.is_empty() {
            text.push_str(&format!("; observers: {}", joined(&observers)));
        }
        let server = match servers {
            [id] => Some(*id),
            _ => None,
        };
        let members_version = format!("0x{:x}", config.version);
        let changed = record! { ?server, servers, change, voters, observers, members_version };
        self.ensemble.context.output.result(&changed, text);
    }

    fn note(&self, text: String) {
        self.ensemble.context.output.note(text);
    }
}

/// A refusal of this command: the servers were not asked.
fn refused(kind: &'static str, text: String) -> Failure {
    Failure::new(exit::NOTHING, kind, text)
}

/// The refusal of a server that does not run where it is to vote.
fn not_waiting(id: u64, address: &str, why: &str) -> Failure {
    refused(
        NOT_WAITING,
        format!(
            "no server waits at {address} ({why}); start server {id} there with an empty folder and the list of all \
             servers, then try again: a listed voter that does not run is a failure that the others do not tolerate"
        ),
    )
}

/// `server 4`, or `servers 4, 5`.
fn named(ids: &[u64]) -> String {
    match ids {
        [id] => format!("server {id}"),
        _ => format!("servers {}", joined(ids)),
    }
}

fn joined(ids: &[u64]) -> String {
    let ids: Vec<_> = ids.iter().map(u64::to_string).collect();
    ids.join(", ")
}

fn refuse_named_twice(ids: &[u64]) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    match ids.iter().find(|id| !seen.insert(**id)) {
        Some(id) => Err(Failure::usage(format!(
            "server {id} is named twice; name each server once"
        ))),
        None => Ok(()),
    }
}

/// A server that joins is another one than the member with its id.
fn refuse_other_address(known: &EnsembleMember, member: &EnsembleMember) -> Result<(), Failure> {
    if known.addresses == member.addresses {
        return Ok(());
    }
    Err(refused(
        "exists",
        format!(
            "server {} is a member at another address ({known}); baton server move gives it a new one \
             and keeps its data; another server needs another id",
            member.id
        ),
    ))
}

/// Two servers cannot be reached at one address.
fn refuse_shared_address<'a>(
    others: impl IntoIterator<Item = &'a EnsembleMember>,
    member: &EnsembleMember,
) -> Result<(), Failure> {
    for other in others.into_iter().filter(|other| other.id != member.id) {
        let is_shared = |port: u16, host: &str| {
            let places = other.addresses.iter();
            let mut places = places.filter(|at| at.host.eq_ignore_ascii_case(host));
            places.any(|at| at.quorum_port == port)
        };
        let shared = member.addresses.iter();
        let mut shared = shared.filter(|at| is_shared(at.quorum_port, &at.host));
        if let Some(address) = shared.next() {
            return Err(refused(
                "exists",
                format!(
                    "server {} has the address {address} already; give server {} its own",
                    other.id, member.id
                ),
            ));
        }
    }
    Ok(())
}

/// The server that takes another one's place: what the address leaves out stays as it is.
fn successor(old: &EnsembleMember, address: &str) -> Result<EnsembleMember, Failure> {
    let mut new = EnsembleMember::with_id(old.id, address)
        .map_err(|error| Failure::usage(format!("{}={address}: {error}", old.id)))?;
    let (servers, _) = address.split_once(';').unwrap_or((address, ""));
    let last = servers.rsplit(':').next().unwrap_or_default();
    let names_role = ["participant", "observer"]
        .iter()
        .any(|role| last.eq_ignore_ascii_case(role));
    if !names_role {
        new.role = old.role;
    }
    new.client = new.client.or_else(|| old.client.clone());
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_keeps_what_its_address_leaves_out() {
        let old: EnsembleMember = "server.3=a:1:2:observer;2181".parse().unwrap();
        for (address, new) in [
            ("b:3:4", "server.3=b:3:4:observer;0.0.0.0:2181"),
            (
                "b:3:4:participant",
                "server.3=b:3:4:participant;0.0.0.0:2181",
            ),
            ("b:3:4;b:5", "server.3=b:3:4:observer;b:5"),
        ] {
            assert_eq!(successor(&old, address).unwrap().to_string(), new);
        }
        assert_eq!(successor(&old, "b").unwrap_err().kind, "usage");
    }

    #[test]
    fn an_address_that_another_server_has_is_refused() {
        let config = EnsembleConfig::parse(b"server.1=zk1:1:2\nserver.2=zk2:1:2").unwrap();
        let check = |line: &str| {
            let refused = refuse_shared_address(&config.members, &line.parse().unwrap());
            refused.map_err(|failure| failure.text)
        };
        assert_eq!(check("server.3=zk3:1:2"), Ok(()));
        assert_eq!(check("server.3=zk1:3:4"), Ok(()));
        assert_eq!(check("server.1=zk1:1:9"), Ok(()));
        let refused = check("server.3=ZK1:1:4").unwrap_err();
        assert!(refused.contains("server 1 has the address"), "{refused}");
    }
}
