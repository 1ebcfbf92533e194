//! `baton server transfer`: another server is to lead. ZooKeeper's protocol has no operation for
//! that, so the leader is asked at its HTTP port.

use std::time::Duration;

use baton_client::{ClientTls, MemberRole};
use serde_json::Value;
use tokio::time::Instant;

use super::{Ensemble, known_member};
use crate::duration;
use crate::exit::{self, Failure};
use crate::output::record::record;
use crate::servers::http_port::{self, HTTP_PORT, HttpPort};
use crate::servers::probe::{self, Probe};

/// Between two looks at the servers.
const INTERVAL: Duration = Duration::from_millis(100);

/// Makes server `id` the leader, and waits until it leads.
pub(super) async fn run(
    ensemble: &Ensemble<'_>,
    id: u64,
    http: &[String],
    token: Option<&str>,
    wait: Duration,
) -> Result<u8, Failure> {
    let config = ensemble.members().await?;
    let member = known_member(&config, id)?;
    if member.role != MemberRole::Participant {
        return Err(Failure::new(
            exit::NOTHING,
            "observer",
            format!("server {id} is an observer and cannot lead; name a server that votes"),
        ));
    }
    let addresses = probe::client_addresses(&config, &ensemble.known, ensemble.tls).await;
    let id_at = |at: usize| config.members.get(at).map(|member| member.id);
    let first = leader_at(&addresses, ensemble.tls).await;
    if first.and_then(id_at) == Some(id) {
        ensemble
            .context
            .output
            .note(format!("server {id} leads already"));
        return Ok(shown(ensemble, id));
    }
    let leader = first.and_then(|at| addresses.get(at)?.as_deref());
    let target = format!("/commands/transfer?to={id}");
    ask_leader(ensemble, http, token, leader, &target).await?;
    let until = Instant::now() + wait;
    loop {
        let leads = leader_at(&addresses, ensemble.tls).await;
        if leads.and_then(id_at) == Some(id) {
            return Ok(shown(ensemble, id));
        }
        if Instant::now() >= until {
            return Err(Failure::baton(format!(
                "server {id} does not lead within {}; baton server ls shows who does",
                duration::show(wait)
            )));
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

fn shown(ensemble: &Ensemble<'_>, id: u64) -> u8 {
    let output = &ensemble.context.output;
    output.result(&record! { leader: id }, format!("server {id} leads"));
    exit::OK
}

/// The place of the server that leads, or stands alone, among these addresses.
pub(super) async fn leader_at(
    addresses: &[Option<String>],
    tls: Option<&ClientTls>,
) -> Option<usize> {
    let leads = |probe: &Option<Probe>| {
        let summary = probe.as_ref().and_then(Probe::summary);
        let mode = summary.and_then(|summary| summary.mode.as_deref());
        matches!(mode, Some("leader" | "standalone"))
    };
    let probes = probe::probe_all(addresses, tls).await;
    probes.iter().position(leads)
}

/// Posts a command at the leader's HTTP port: one of `http`, or without them the usual port at the
/// host of `leader`, where its clients connect.
pub(super) async fn ask_leader(
    ensemble: &Ensemble<'_>,
    http: &[String],
    token: Option<&str>,
    leader: Option<&str>,
    target: &str,
) -> Result<(), Failure> {
    let http = if http.is_empty() {
        let host = leader.and_then(|address| address.rsplit_once(':'));
        let (host, _) = host.ok_or_else(|| {
            Failure::baton(
                "which server leads is not known; name the HTTP ports of the servers with --http",
            )
        })?;
        vec![format!("{host}:{HTTP_PORT}")]
    } else {
        http.to_vec()
    };
    let ports = http.iter().map(|text| HttpPort::parse(text, ensemble.tls));
    let ports = ports.collect::<Result<Vec<_>, _>>()?;
    let authorization = http_port::authorization(token, ensemble.credentials, &ports);
    let authorization = authorization.as_deref();
    let leader = leader_among(&ports, authorization).await?;
    let answer = http_port::ask(leader, "POST", target, authorization).await?;
    match answer.complaint() {
        None => Ok(()),
        Some(complaint) => Err(Failure::new(
            exit::NOTHING,
            "rejected",
            format!("{leader}: refused by the server: {complaint}"),
        )),
    }
}

/// The port of the server that says that it leads.
async fn leader_among<'a, 'b>(
    ports: &'a [HttpPort<'b>],
    authorization: Option<&str>,
) -> Result<&'a HttpPort<'b>, Failure> {
    let mut failures = Vec::new();
    for port in ports {
        match http_port::read(port, "/commands/leader", authorization).await {
            Ok(answer) if answer.body.get("is_leader") == Some(&Value::Bool(true)) => {
                return Ok(port);
            }
            Ok(answer) if answer.complaint().is_some() => {
                let complaint = answer.complaint().unwrap_or_default();
                failures.push(format!("{port}: refused by the server: {complaint}"));
            }
            Ok(_) => failures.push(format!("{port}: it does not lead")),
            Err(failure) => failures.push(failure.text),
        }
    }
    Err(Failure::baton(format!(
        "the HTTP port of the leader is not among those asked: {}; name it with --http",
        failures.join("; ")
    )))
}
