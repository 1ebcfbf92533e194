//! Checks of each server by itself: that it is reached, serves, answers fast, and has room.

use std::time::{Duration, SystemTime};

use super::facts::{ConnectStage, Endpoint};
use super::finding::{Finding, Severity, quoted};
use super::{Lease, Server};
use crate::duration;

/// A certificate that ends within this time is to be renewed.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 24 * 3600);
/// Answers that take longer are slow.
const SLOW: Duration = Duration::from_millis(250);
/// Syncs of the disk that take longer are slow, and too slow.
const SLOW_SYNC_MS: f64 = 100.0;
const HUNG_SYNC_MS: f64 = 1000.0;
/// Fewer syncs say nothing about the disk.
const ENOUGH_SYNCS: f64 = 20.0;
/// Shares of a limit that are used up.
const MUCH: f64 = 0.8;
const NEARLY_ALL: f64 = 0.95;
/// Fewer file descriptors than this do not do for a server of many clients.
const FEW_FILES: f64 = 1024.0;
/// More watches than this cost memory, and time at each change.
const MANY_WATCHES: f64 = 1_000_000.0;
/// Less room than this share of the disk, or than these bytes, is little.
const LITTLE_ROOM: f64 = 0.1;
const LEAST_BYTES: u64 = 1 << 30;
/// Requests that wait in the server.
const MANY_REQUESTS: f64 = 1000.0;

/// Whether the server is reached, by which means, and what follows from its certificate.
pub(super) fn reach(server: &Server, now: SystemTime) -> Vec<Finding> {
    const CHECK: &str = "reach";
    let place = &server.place;
    let unreached =
        "commands and programs cannot use this server, and do not survive the loss of the others";
    let bad = |finding: String, cause: &str, remedy: &str| {
        let finding = Finding::error(CHECK, place, finding);
        vec![finding.advise(cause, unreached, remedy)]
    };
    let (within, is_local, certificate_ends) = match &server.reach {
        ConnectStage::NoAddress(why) => {
            return bad(
                format!("its name has no address: {}", quoted(why)),
                "the name is misspelt, or the name service does not have it or does not answer",
                "correct the list of servers, or the name service; getent hosts NAME tries it",
            );
        }
        ConnectStage::Refused(why) => {
            return bad(
                format!("no connection: {}", quoted(why)),
                "the server does not run, listens elsewhere, or something between drops the \
                 connection",
                "start the server; compare its listen address; look for a firewall between",
            );
        }
        ConnectStage::TlsFailed(why) => {
            return bad(
                format!("TLS failed: {}", quoted(why)),
                "one side's certificate, or the kind of port, does not fit what the other side \
                 accepts",
                "follow the message: --tls-ca names the trusted authorities, --tls-cert and \
                 --tls-key the client's certificate; tls:// is for ports with TLS only",
            );
        }
        ConnectStage::Reached {
            within,
            is_local,
            certificate_ends,
        } => (*within, *is_local, *certificate_ends),
    };
    let mut findings = vec![match within > SLOW {
        false => Finding::ok(CHECK, place, format!("reached within {}", millis(within))),
        true => Finding::warning(
            CHECK,
            place,
            format!("reached only after {}", millis(within)),
        )
        .advise(
            "a slow name service, network or machine",
            "after a loss of the connection, this much of the lease passes before there is a new \
             one",
            "see which of them is slow: getent hosts NAME, ping NAME, the machine's load",
        ),
    }];
    if let Some(ends) = certificate_ends {
        findings.push(certificate("certificate", place, ends, now));
    }
    let is_tcp = matches!(server.endpoint, Endpoint::Tcp { .. });
    if is_tcp && !server.has_tls && !is_local {
        findings.push(
            Finding::warning(
                "open",
                place,
                "the connection leaves this machine without TLS",
            )
            .advise(
                "the list has no tls://, and no authorities are named",
                "an attacker on the network reads data and passwords, and can change what is sent",
                "give the server a port with TLS, and use tls:// with --tls-ca \
                 (docs/user/security.md)",
            ),
        );
    }
    findings
}

/// Whether a certificate ends soon.
pub(super) fn certificate(
    check: &'static str,
    place: &str,
    ends: SystemTime,
    now: SystemTime,
) -> Finding {
    let left = ends.duration_since(now).unwrap_or_default();
    let days = left.as_secs() / (24 * 3600);
    if left > RENEW_BEFORE {
        return Finding::ok(
            check,
            place,
            format!("the certificate is valid for {days} days"),
        );
    }
    let (severity, finding) = match left.is_zero() {
        true => (Severity::Error, "the certificate has ended".to_owned()),
        false => (
            Severity::Warning,
            format!("the certificate ends in {days} days"),
        ),
    };
    Finding::new(severity, check, place, finding).advise(
        "certificates are made for a limited time, and this one was not renewed yet",
        "after that no new connection can be made; open ones continue",
        "put a new certificate in the same file: servers and programs read it without a restart",
    )
}

/// Whether the server says that it serves.
pub(super) fn serving(server: &Server) -> Option<Finding> {
    const CHECK: &str = "mode";
    let place = &server.place;
    if !matches!(server.reach, ConnectStage::Reached { .. }) {
        return None;
    }
    if let Some((why, remedy)) = server.srvr.missing("srvr") {
        return Some(match server.session {
            Ok(_) => Finding::unknown(CHECK, place, &why, "allow srvr in 4lw.commands.whitelist"),
            Err(_) => Finding::error(CHECK, place, quoted(&why)).advise(
                "it is starting, hangs or is stopped; or another program listens there",
                "clients that come to it wait, and go on to another server",
                remedy,
            ),
        });
    }
    let summary = server.summary();
    let mode = summary.mode.as_deref().unwrap_or_default();
    Some(match mode {
        "leader" | "follower" | "observer" | "standalone" => {
            let version = summary.version.as_deref().unwrap_or("of unknown version");
            Finding::ok(CHECK, place, format!("{mode}, {version}"))
        }
        "read-only" => Finding::error(CHECK, place, "it serves only reads").advise(
            "it has no contact with a majority of the servers",
            "no lock is granted or released through it",
            "start the other servers, or mend the network between them",
        ),
        _ => Finding::error(
            CHECK,
            place,
            match mode {
                "" => "it does not serve".to_owned(),
                other => format!("it does not serve: {}", quoted(other)),
            },
        )
        .advise(
            "it looks for a leader, and has no contact with a majority of the servers",
            "clients that come to it get no session",
            "start the other servers, or mend the network between them; its log says which \
             servers it misses",
        ),
    })
}

/// Whether a session can be opened, and how fast answers come.
pub(super) fn session(server: &Server) -> Vec<Finding> {
    const CHECK: &str = "session";
    let place = &server.place;
    if !matches!(server.reach, ConnectStage::Reached { .. }) {
        return Vec::new();
    }
    let facts = match &server.session {
        Ok(facts) => facts,
        Err(why) => {
            let finding = format!("no session: {}", quoted(why));
            return vec![Finding::error(CHECK, place, finding).advise(
                "the server does not serve, refuses these credentials, or has no room for \
                 another client",
                "clients with the same credentials cannot use this server",
                "see its mode; compare the credentials; its log says what it refuses",
            )];
        }
    };
    let mut findings = Vec::new();
    match &facts.sync {
        Err(why) => findings.push(
            Finding::error(
                CHECK,
                place,
                format!("no answer from the leader: {}", quoted(why)),
            )
            .advise(
                "the server has lost its leader, or the leader its majority or its disk",
                "reads are answered with old data, and no change is made",
                "see the modes of the servers and the times of their disks",
            ),
        ),
        Ok(sync) => {
            let slowest = facts.slowest_read.max(*sync);
            let text = format!(
                "opened in {}, slowest read {}, sync {}",
                millis(facts.opened_within),
                millis(facts.slowest_read),
                millis(*sync)
            );
            findings.push(match slowest > SLOW {
                false => Finding::ok(CHECK, place, text),
                true => Finding::warning(CHECK, place, text).advise(
                    "the machine, the network or the disk is overloaded",
                    "locks are handed over as slowly, and leases are renewed late",
                    "see the server's load, the times of its disk and the network between",
                ),
            });
        }
    }
    if facts.timeout != facts.asked {
        let (asked, given) = (duration::show(facts.asked), duration::show(facts.timeout));
        findings.push(
            Finding::warning(
                "timeout",
                place,
                format!("a session timeout of {asked} was asked for, the server gives {given}"),
            )
            .advise(
                "the server's minSessionTimeout and maxSessionTimeout, or its tickTime, allow no \
                 other",
                format!("what a dead client held is released after {given}, not {asked}"),
                "ask for a timeout that the server gives, or change its limits",
            ),
        );
    }
    findings
}

/// Whether a lease can be kept, and how much of it is left at the least.
pub(super) fn lease(server: &Server, stated: &Lease) -> Vec<Finding> {
    const CHECK: &str = "lease";
    let place = &server.place;
    let Ok(facts) = &server.session else {
        return Vec::new();
    };
    let timeout = duration::show(facts.timeout);
    let rests_on = match facts.is_baton {
        true => "pings",
        false => "small writes, as on any server but Baton's",
    };
    let mut findings = vec![match &facts.lease {
        Err(why) => Finding::error(
            CHECK,
            place,
            format!("no lease can be kept: {}", quoted(why)),
        )
        .advise(
            format!("the session timeout of {timeout} leaves no time for one"),
            "verbs that hold something end, and programs lose what they hold",
            "use a longer session timeout, or state a shorter tick with --ensemble-tick",
        ),
        Ok(least) if *least < facts.timeout / 5 => Finding::warning(
            CHECK,
            place,
            format!(
                "{} of {timeout} was left of the lease at the least",
                millis(*least)
            ),
        )
        .advise(
            format!("it rests on {rests_on}, and the answers to them come late"),
            "a short outage ends what is held; CMD is stopped with 113",
            "use a longer session timeout; on Apache ZooKeeper state its tickTime with \
             --ensemble-tick",
        ),
        Ok(least) => Finding::ok(
            CHECK,
            place,
            format!(
                "at least {} of {timeout} was left; it rests on {rests_on}",
                millis(*least)
            ),
        ),
    }];
    if facts.is_baton {
        return findings;
    }
    findings.push(tick(server, stated));
    findings
}

/// Whether what the lease assumes of the tick of an Apache ZooKeeper holds.
fn tick(server: &Server, stated: &Lease) -> Finding {
    const CHECK: &str = "tick";
    let place = &server.place;
    let tick = server.conf.number("tickTime");
    let least = server.conf.number("minSessionTimeout");
    let (Some(tick), Some(least)) = (tick, least) else {
        let (why, remedy) = server.conf.missing("conf").unwrap_or((
            "the server does not say what its tickTime is".to_owned(),
            "compare its zoo.cfg by hand".to_owned(),
        ));
        return Finding::unknown(CHECK, place, &why, &remedy);
    };
    let timeout_ms = server
        .session
        .as_ref()
        .map_or(Duration::MAX, |facts| facts.timeout);
    let assumed = stated.tick.unwrap_or(timeout_ms / 2);
    if tick <= assumed.as_secs_f64() * 1000.0 {
        return Finding::ok(
            CHECK,
            place,
            format!("tickTime {tick} ms, minSessionTimeout {least} ms"),
        );
    }
    Finding::error(
        CHECK,
        place,
        format!(
            "tickTime is {tick} ms; the lease assumes at most {}",
            duration::show(assumed)
        ),
    )
    .advise(
        format!(
            "minSessionTimeout is {least} ms, less than two ticks, or --ensemble-tick states too \
             short a tick"
        ),
        "a lease may end after the server has given the lock away: two hold it at once",
        "set minSessionTimeout to two ticks or more, use a longer session timeout, or state the \
         tick",
    )
}

/// Whether the server's clock runs as fast as this machine's.
pub(super) fn clock(server: &Server, stated: &Lease) -> Option<Finding> {
    const CHECK: &str = "clock";
    let place = &server.place;
    server.srvr.text()?;
    let Some(rate) = server.rate else {
        let (why, remedy) = server.monitor.missing("mntr").unwrap_or((
            "the server does not say for how long it has run".to_owned(),
            "compare the clocks by hand".to_owned(),
        ));
        return Some(Finding::unknown(CHECK, place, &why, &remedy));
    };
    let allowed = f64::from(stated.clock_rate_ppm) / 1e6;
    let percent = |rate: f64| format!("{:+.2} %", (rate - 1.0) * 100.0);
    let span = format!("{} to {}", percent(rate.least), percent(rate.most));
    if rate.least <= 1.0 + allowed && rate.most >= 1.0 - allowed {
        let text = format!(
            "its clock runs {span} against this machine's; {:+.2} % is allowed for",
            allowed * 100.0
        );
        return Some(Finding::ok(CHECK, place, text));
    }
    Some(
        Finding::error(
            CHECK,
            place,
            format!("its clock runs {span} against this machine's"),
        )
        .advise(
            "one of the two machines has a broken clock, is paused often, or its time service \
             changes the clock's rate",
            "a lease assumes that the rates differ by 1 % at most: two may hold a lock at once",
            "find out which clock is wrong; do not use this server, or this machine, for locks \
             until then",
        ),
    )
}

/// Whether disk, file descriptors, watches and room do.
pub(super) fn resources(server: &Server) -> Vec<Finding> {
    let place = &server.place;
    if server.srvr.text().is_none() {
        return Vec::new();
    }
    let monitor = &server.monitor;
    if let Some((why, remedy)) = monitor.missing("mntr") {
        return vec![Finding::unknown("resources", place, &why, &remedy)];
    }
    let mut findings = vec![disk(server)];
    findings.extend(files(server));
    findings.extend(watches(server));
    findings.extend(waiting(server));
    findings.extend(room(server));
    findings
}

fn disk(server: &Server) -> Finding {
    const CHECK: &str = "disk";
    let place = &server.place;
    let monitor = &server.monitor;
    if monitor.number("zk_baton_disk_full") == Some(1.0) {
        return Finding::error(CHECK, place, "its disk is full").advise(
            "the data folder's disk, a quota or a limit on file sizes leaves no room for the log",
            "no change is made; clients wait",
            "free disk space: the server then continues by itself",
        );
    }
    let seconds = monitor.number("zk_p99_baton_sync_seconds");
    let (slowest, count) = match seconds {
        Some(seconds) => (
            Some(seconds * 1000.0),
            monitor.number("zk_cnt_baton_sync_seconds"),
        ),
        None => (
            monitor.number("zk_p99_fsynctime"),
            monitor.number("zk_cnt_fsynctime"),
        ),
    };
    let (Some(slowest), Some(count)) = (slowest, count) else {
        return Finding::unknown(
            CHECK,
            place,
            "the server does not say how long its disk takes",
            "measure its disk by hand, for example with fio --fdatasync=1",
        );
    };
    let text = format!("99 of 100 syncs of its disk take less than {slowest:.1} ms");
    if count < ENOUGH_SYNCS || slowest < SLOW_SYNC_MS {
        let text = match count < ENOUGH_SYNCS {
            true => format!("only {count:.0} syncs so far"),
            false => text,
        };
        return Finding::ok(CHECK, place, text);
    }
    let severity = match slowest < HUNG_SYNC_MS {
        true => Severity::Warning,
        false => Severity::Error,
    };
    Finding::new(severity, CHECK, place, text).advise(
        "the disk is slow, shared with other work, or fails",
        "each grant of a lock waits for it; sessions expire when it hangs",
        "give the data folder a disk of its own; see the kernel's log for errors of the disk",
    )
}

fn files(server: &Server) -> Option<Finding> {
    const CHECK: &str = "files";
    let place = &server.place;
    let open = server.monitor.number("zk_open_file_descriptor_count")?;
    let most = server.monitor.number("zk_max_file_descriptor_count")?;
    let text = format!("{open:.0} of {most:.0} file descriptors are in use");
    let share = open / most.max(1.0);
    let severity = match share {
        _ if share < MUCH && most >= FEW_FILES => Severity::Ok,
        _ if share < NEARLY_ALL => Severity::Warning,
        _ => Severity::Error,
    };
    Some(Finding::new(severity, CHECK, place, text).advise(
        "each client needs one, and the system's limit for the server is low, or clients leak \
         connections",
        "further clients are refused",
        "raise the limit (LimitNOFILE= of the systemd unit, ulimit -n); see who connects: echo \
         cons | nc",
    ))
}

const fn warning_unless(is_fine: bool) -> Severity {
    match is_fine {
        true => Severity::Ok,
        false => Severity::Warning,
    }
}

fn watches(server: &Server) -> Option<Finding> {
    const CHECK: &str = "watches";
    let place = &server.place;
    let count = server.monitor.number("zk_watch_count")?;
    let used = server.monitor.number("zk_baton_watch_cost_bytes");
    let most = server.monitor.number("zk_baton_watch_cost_bytes_limit");
    let share = match (used, most) {
        (Some(used), Some(most)) => used / most.max(1.0),
        _ => count / MANY_WATCHES,
    };
    let text = format!("{count:.0} watches are set");
    Some(
        Finding::new(warning_unless(share < MUCH), CHECK, place, text).advise(
            "clients set watches and never remove them, or very many watch the same znodes",
            "they take the server's memory; past its limit further ones are refused",
            "see who has them: echo wchs | nc, echo wchc | nc; have those clients remove theirs",
        ),
    )
}

fn waiting(server: &Server) -> Option<Finding> {
    const CHECK: &str = "load";
    let place = &server.place;
    let waiting = server.monitor.number("zk_outstanding_requests")?;
    let text = format!("{waiting:.0} requests wait in the server");
    Some(
        Finding::new(warning_unless(waiting < MANY_REQUESTS), CHECK, place, text).advise(
            "clients send more than the server or its disk can do",
            "every answer is late, also those that leases rest on",
            "see which clients send so much: echo cons | nc; spread them, or use a faster disk",
        ),
    )
}

/// Room on the disk of the data folder, where it is one of this machine.
fn room(server: &Server) -> Option<Finding> {
    const CHECK: &str = "room";
    let ConnectStage::Reached { is_local: true, .. } = server.reach else {
        return None;
    };
    let folder = server.conf.value("dataDir")?;
    let about = rustix::fs::statvfs(folder).ok()?;
    let free = about.f_bavail.saturating_mul(about.f_frsize);
    let all = about.f_blocks.saturating_mul(about.f_frsize);
    Some(judge_room(CHECK, &server.place, &quoted(folder), free, all))
}

pub(super) fn judge_room(
    check: &'static str,
    place: &str,
    folder: &str,
    free: u64,
    all: u64,
) -> Finding {
    let mib = free >> 20;
    let text = format!("{mib} MiB are free on the disk of {folder}");
    #[expect(clippy::cast_precision_loss, reason = "a share need not be exact")]
    let share = free as f64 / all.max(1) as f64;
    let severity = match free {
        _ if free >= LEAST_BYTES && share >= LITTLE_ROOM => Severity::Ok,
        _ if free < LEAST_BYTES / 8 => Severity::Error,
        _ => Severity::Warning,
    };
    Finding::new(severity, check, place, text).advise(
        "the log and the snapshots grow, or something else fills the disk",
        "when it is full no change is made, and clients wait",
        "make room, or move the data folder to a larger disk",
    )
}

fn millis(span: Duration) -> String {
    let millis = span.as_secs_f64() * 1000.0;
    match millis < 10.0 {
        true => format!("{millis:.1} ms"),
        false => format!("{millis:.0} ms"),
    }
}
