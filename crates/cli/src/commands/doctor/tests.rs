//! Each finding is made to happen, by facts that differ in one thing from those of healthy servers.

use std::time::{Duration, SystemTime};

use baton_client::{Acl, EnsembleConfig, Perms};

use super::facts::{ClockRate, ConnectStage, Endpoint, Word};
use super::finding::{Finding, Severity};
use super::session::SessionFacts;
use super::{Lease, Server, Sum, ensemble, judge_openness, layouts, server};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn stated() -> Lease {
    Lease {
        tick: None,
        clock_rate_ppm: 10_000,
    }
}

fn srvr(mode: &str) -> Word {
    Word::Answer(format!(
        "Zookeeper version: 3.9.5-baton-0.1.0, built on 2026-11-23\nZxid: 0x2a\nMode: {mode}\n"
    ))
}

fn monitor(lines: &[(&str, &str)]) -> Word {
    let mut values = vec![
        ("zk_version", "3.9.5-baton"),
        ("zk_uptime", "1000"),
        ("zk_baton_term", "4"),
        ("zk_baton_disk_full", "0"),
        ("zk_p99_baton_sync_seconds", "0.004"),
        ("zk_cnt_baton_sync_seconds", "500"),
        ("zk_open_file_descriptor_count", "40"),
        ("zk_max_file_descriptor_count", "20000"),
        ("zk_watch_count", "12"),
        ("zk_outstanding_requests", "0"),
    ];
    for (key, value) in lines {
        values.retain(|(known, _)| known != key);
        values.push((key, value));
    }
    let lines = values
        .iter()
        .map(|(key, value)| format!("{key}\t{value}\n"));
    Word::Answer(lines.collect())
}

fn conf(id: u64, tick: u64, least: u64) -> Word {
    Word::Answer(format!(
        "clientPort=2181\ntickTime={tick}\nminSessionTimeout={least}\nmaxSessionTimeout=40000\nserverId={id}\n"
    ))
}

fn members(text: &str) -> Result<EnsembleConfig, String> {
    EnsembleConfig::parse(text.as_bytes()).map_err(|error| error.to_string())
}

/// Server `id` of three.
fn healthy(id: u64) -> Server {
    let mode = if id == 1 { "leader" } else { "follower" };
    let text = "server.1=a:1:2;3\nserver.2=b:1:2;3\nserver.3=c:1:2;3\nversion=0";
    let place = format!("zk{id}:2181");
    Server {
        endpoint: Endpoint::read(&place),
        place,
        has_tls: true,
        reach: ConnectStage::Reached {
            within: Duration::from_millis(1),
            is_local: false,
            certificate_ends: None,
        },
        srvr: srvr(mode),
        conf: conf(id, 200, 1000),
        monitor: monitor(&[]),
        rate: Some(ClockRate {
            least: 0.999,
            most: 1.001,
        }),
        session: Ok(SessionFacts {
            opened_within: Duration::from_millis(3),
            asked: 10 * SECOND,
            timeout: 10 * SECOND,
            slowest_read: Duration::from_millis(1),
            sync: Ok(Duration::from_millis(2)),
            is_baton: true,
            members: members(text),
            lease: Ok(7 * SECOND),
        }),
    }
}

fn three() -> Vec<Server> {
    (1..=3).map(healthy).collect()
}

fn of_one(server: &Server) -> Vec<Finding> {
    let mut findings = server::reach(server, SystemTime::now());
    findings.extend(server::serving(server));
    findings.extend(server::session(server));
    findings.extend(server::lease(server, &stated()));
    findings.extend(server::clock(server, &stated()));
    findings.extend(server::resources(server));
    findings
}

/// The findings that are not fine, each `severity check: finding`, all with advice.
fn bad(findings: &[Finding]) -> Vec<String> {
    let bad = findings.iter().filter(|one| one.severity != Severity::Ok);
    bad.map(|one| {
        let advice = one.advice.as_ref().unwrap();
        for text in [&advice.cause, &advice.consequence, &advice.remedy] {
            assert!(!text.is_empty(), "{one:?}");
        }
        format!("{} {}: {}", one.severity.word(), one.check, one.finding)
    })
    .collect()
}

/// Exactly one finding, which begins and goes on like this.
fn assert_one(findings: &[Finding], begins: &str, part: &str) {
    let found = bad(findings);
    assert_eq!(found.len(), 1, "{begins}: {found:?}");
    assert!(
        found[0].starts_with(begins) && found[0].contains(part),
        "{begins} … {part}: {found:?}"
    );
}

#[test]
fn nothing_is_found_on_healthy_servers() {
    for server in three() {
        assert_eq!(bad(&of_one(&server)), [""; 0]);
    }
    assert_eq!(bad(&ensemble::judge(&three())), [""; 0]);
    let alone = Server {
        srvr: srvr("standalone"),
        ..healthy(1)
    };
    let mut alone = [alone];
    alone[0].session.as_mut().unwrap().members = members("");
    assert_eq!(bad(&ensemble::judge(&alone)), [""; 0]);
}

type Change = Box<dyn Fn(&mut Server)>;
type ChangeOfAll = Box<dyn Fn(&mut [Server])>;

fn monitored(key: &'static str, value: &'static str) -> Change {
    Box::new(move |server| server.monitor = monitor(&[(key, value)]))
}

fn in_session(change: impl Fn(&mut SessionFacts) + 'static) -> Change {
    Box::new(move |server| change(server.session.as_mut().unwrap()))
}

/// Changes the server into an Apache ZooKeeper.
fn zookeeper(server: &mut Server) {
    server.session.as_mut().unwrap().is_baton = false;
}

#[test]
fn each_trouble_of_a_server_is_found_alone() {
    let until = |left: Duration| -> Change {
        Box::new(move |server: &mut Server| {
            let ConnectStage::Reached {
                certificate_ends, ..
            } = &mut server.reach
            else {
                panic!("{server:?}")
            };
            *certificate_ends = Some(SystemTime::now() + left);
        })
    };
    let slow = Duration::from_millis(900);
    let cases: Vec<(Change, &str, &str)> = vec![
        (
            Box::new(|server| server.reach = ConnectStage::NoAddress("nothing".into())),
            "error reach: its name has no address",
            "nothing",
        ),
        (
            Box::new(|server| server.reach = ConnectStage::Refused("refused".into())),
            "error reach: no connection",
            "refused",
        ),
        (
            Box::new(|server| server.reach = ConnectStage::TlsFailed("unknown issuer".into())),
            "error reach: TLS failed",
            "unknown issuer",
        ),
        (
            Box::new(move |server| {
                server.reach = ConnectStage::Reached {
                    within: slow,
                    is_local: false,
                    certificate_ends: None,
                };
            }),
            "warning reach: reached only after",
            "900 ms",
        ),
        (until(DAY * 20), "warning certificate", "ends in 19 days"),
        (until(Duration::ZERO), "error certificate", "has ended"),
        (
            Box::new(|server| server.has_tls = false),
            "warning open",
            "without TLS",
        ),
        (
            Box::new(|server| server.srvr = srvr("read-only")),
            "error mode",
            "only reads",
        ),
        (
            Box::new(|server| server.srvr = srvr("looking")),
            "error mode",
            "does not serve: looking",
        ),
        (
            Box::new(|server| server.session = Err("refused".into())),
            "error session: no session",
            "refused",
        ),
        (
            in_session(|facts| facts.sync = Err("timed out".into())),
            "error session: no answer from the leader",
            "timed out",
        ),
        (
            in_session(move |facts| facts.slowest_read = slow),
            "warning session",
            "slowest read 900 ms",
        ),
        (
            in_session(|facts| facts.timeout = 20 * SECOND),
            "warning timeout",
            "gives 20s",
        ),
        (
            in_session(|facts| facts.lease = Err("too short".into())),
            "error lease",
            "too short",
        ),
        (
            in_session(|facts| facts.lease = Ok(SECOND)),
            "warning lease",
            "1000 ms of 10s",
        ),
        (
            Box::new(|server| {
                zookeeper(server);
                server.conf = conf(1, 6000, 6000);
            }),
            "error tick: tickTime is 6000 ms",
            "at most 5s",
        ),
        (
            Box::new(|server| {
                zookeeper(server);
                server.conf = Word::Refused;
            }),
            "unknown tick",
            "does not answer the word conf",
        ),
        (
            Box::new(|server| {
                server.rate = Some(ClockRate {
                    least: 1.02,
                    most: 1.03,
                });
            }),
            "error clock",
            "+2.00 % to +3.00 %",
        ),
        (
            Box::new(|server| {
                server.rate = Some(ClockRate {
                    least: 0.9,
                    most: 0.98,
                });
            }),
            "error clock",
            "-2.00 %",
        ),
        (
            Box::new(|server| server.rate = None),
            "unknown clock",
            "for how long it has run",
        ),
        (monitored("zk_baton_disk_full", "1"), "error disk", "full"),
        (
            monitored("zk_p99_baton_sync_seconds", "0.4"),
            "warning disk",
            "400.0 ms",
        ),
        (
            monitored("zk_p99_baton_sync_seconds", "4"),
            "error disk",
            "4000.0 ms",
        ),
        (
            monitored("zk_cnt_baton_sync_seconds", "x"),
            "unknown disk",
            "how long its disk takes",
        ),
        (
            monitored("zk_open_file_descriptor_count", "17000"),
            "warning files",
            "17000 of 20000",
        ),
        (
            monitored("zk_open_file_descriptor_count", "19999"),
            "error files",
            "19999 of 20000",
        ),
        (
            monitored("zk_max_file_descriptor_count", "256"),
            "warning files",
            "40 of 256",
        ),
        (
            monitored("zk_watch_count", "9000000"),
            "warning watches",
            "9000000",
        ),
        (
            monitored("zk_outstanding_requests", "5000"),
            "warning load",
            "5000 requests",
        ),
        (
            Box::new(|server| {
                server.monitor = Word::Refused;
                server.rate = None;
            }),
            "unknown clock",
            "the word mntr",
        ),
    ];
    for (change, begins, part) in cases {
        let mut server = healthy(1);
        change(&mut server);
        let mut findings = of_one(&server);
        // What cannot be read is said once for the clock and once for the rest.
        findings.retain(|one| one.check != "resources");
        assert_one(&findings, begins, part);
    }
    let mut refused = healthy(1);
    refused.monitor = Word::Refused;
    assert_one(&server::resources(&refused), "unknown resources", "mntr");
    // Where srvr alone is refused, a session says that the server serves.
    let mut quiet = healthy(1);
    quiet.srvr = Word::Refused;
    let serving: Vec<_> = server::serving(&quiet).into_iter().collect();
    assert_one(&serving, "unknown mode", "srvr");
    quiet.session = Err("no answer".to_owned());
    let serving: Vec<_> = server::serving(&quiet).into_iter().collect();
    assert_one(&serving, "error mode", "srvr");
}

#[test]
fn a_full_disk_of_this_machine_is_found() {
    let judge = |free: u64| server::judge_room("room", "zk1", "/data", free, 100 << 30);
    assert_eq!(judge(50 << 30).severity, Severity::Ok);
    assert_one(&[judge(5 << 30)], "warning room", "5120 MiB");
    assert_one(&[judge(1 << 20)], "error room", "1 MiB");
}

#[test]
fn each_trouble_of_an_ensemble_is_found_alone() {
    let cases: Vec<(ChangeOfAll, &str, &str)> = vec![
        (
            Box::new(|servers| servers[0].srvr = srvr("follower")),
            "error leader",
            "none of the servers",
        ),
        (
            Box::new(|servers| servers[1].srvr = srvr("leader")),
            "error leader",
            "zk1:2181, zk2:2181 lead at once",
        ),
        (
            Box::new(|servers| servers[1].srvr = srvr("standalone")),
            "error leader",
            "zk2:2181 of the list stands alone",
        ),
        (
            Box::new(|servers| {
                for server in servers {
                    server.srvr = srvr("standalone");
                }
            }),
            "error leader",
            "each stand alone",
        ),
        (
            Box::new(|servers| servers[1].monitor = monitor(&[("zk_baton_term", "5")])),
            "warning term",
            "5: zk2:2181",
        ),
        (
            Box::new(|servers| {
                let text =
                    "Zookeeper version: 3.9.5-baton-0.1.0, built\nZxid: 0xfffff\nMode: leader\n";
                servers[0].srvr = Word::Answer(text.to_owned());
                // Only one is far behind.
                let text = text.replace("leader", "follower");
                servers[1].srvr = Word::Answer(text);
            }),
            "warning lag",
            "1048533 changes behind",
        ),
        (
            Box::new(|servers| {
                let text = "server.1=a:1:2;3\nversion=9";
                servers[2].session.as_mut().unwrap().members = members(text);
            }),
            "warning members",
            "do not agree",
        ),
        (
            Box::new(|servers| servers[2].conf = conf(2, 200, 1000)),
            "warning members",
            "lacks server 3",
        ),
        (
            Box::new(|servers| servers[2].conf = Word::Refused),
            "unknown members",
            "server 3 may be missing",
        ),
        (
            Box::new(|servers| {
                servers[2].conf = Word::Refused;
                servers[2].reach = ConnectStage::Refused("refused".to_owned());
            }),
            "unknown members",
            "server 3 may be missing",
        ),
        (
            Box::new(|servers| {
                for server in servers {
                    let text = "server.1=a:1:2;3\nserver.2=b:1:2;3\nversion=9";
                    server.session.as_mut().unwrap().members = members(text);
                }
            }),
            "error members",
            "zk3:2181 (server 3)",
        ),
        (
            Box::new(|servers| {
                let text =
                    "Zookeeper version: 3.9.5-baton-0.2.0, built\nZxid: 0x2a\nMode: leader\n";
                servers[0].srvr = Word::Answer(text.to_owned());
            }),
            "warning version",
            "0.2.0: zk1:2181",
        ),
        (
            Box::new(|servers| {
                servers[0].monitor = monitor(&[("zk_baton_format_level_newest", "6")]);
                servers[1].monitor = monitor(&[("zk_baton_format_level_newest", "6")]);
                servers[2].monitor = monitor(&[("zk_baton_format_level_newest", "5")]);
            }),
            "warning version",
            "formats up to 5: zk3:2181",
        ),
        (
            Box::new(|servers| {
                let offset = "zk_baton_clock_offset_seconds";
                servers[0].monitor = monitor(&[(offset, "0.004")]);
                servers[1].monitor = monitor(&[(offset, "315360000.5")]);
                servers[2].monitor = monitor(&[(offset, "-0.7")]);
            }),
            "error time",
            "10.0 years ahead of those of a majority",
        ),
        (
            Box::new(|servers| {
                let offset = "zk_baton_clock_offset_seconds";
                servers[2].monitor = monitor(&[(offset, "-2.5")]);
            }),
            "warning time",
            "its wall clock is 2.500 s behind those of a majority",
        ),
        (
            Box::new(|servers| {
                let ahead = "zk_baton_time_ahead_seconds";
                servers[1].monitor = monitor(&[(ahead, "7200")]);
            }),
            "error time",
            "is 2h ahead of the clocks",
        ),
        (
            Box::new(|servers| {
                servers[1].monitor = monitor(&[("zk_baton_lost_entries", "12")]);
            }),
            "warning log",
            "it lacks 12 entries that it had acknowledged",
        ),
        (
            Box::new(|servers| {
                servers[1].monitor = monitor(&[("zk_baton_log_gap", "1")]);
            }),
            "error log",
            "at a leader that it does not follow",
        ),
        (
            Box::new(|servers| servers[2].conf = conf(3, 300, 1000)),
            "warning settings",
            "tickTime 200 or 300",
        ),
    ];
    for (change, begins, part) in cases {
        let mut servers = three();
        change(&mut servers);
        assert_one(&ensemble::judge(&servers), begins, part);
    }
    // What a server is that does not run says the list of members.
    let mut servers = three();
    let text =
        "server.1=a:1:2;zk1:2181\nserver.2=b:1:2;zk2:2181\nserver.3=c:1:2;zk3:2181\nversion=0";
    for server in &mut servers {
        server.session.as_mut().unwrap().members = members(text);
    }
    servers[2].conf = Word::Refused;
    servers[2].reach = ConnectStage::Refused("refused".to_owned());
    assert_eq!(bad(&ensemble::judge(&servers)), [""; 0]);
    // One of three answers: a client with this list makes no change, and takes no lock.
    let mut servers = three();
    for server in &mut servers[..2] {
        server.reach = ConnectStage::Refused("refused".to_owned());
        server.srvr = Word::None("it is not reached".to_owned());
    }
    let found = bad(&ensemble::judge(&servers));
    let expected = "1 of 3 servers runs, no majority";
    assert!(
        found[0].starts_with("error leader") && found[0].contains(expected),
        "{found:?}"
    );
    assert_eq!(ensemble::headline(&servers), expected);
    // Two are a majority, whose leader may be the one that does not answer here.
    let mut servers = three();
    servers[0].reach = ConnectStage::Refused("refused".to_owned());
    servers[0].srvr = Word::None("it is not reached".to_owned());
    let found = bad(&ensemble::judge(&servers));
    assert!(found[0].starts_with("warning leader"), "{found:?}");
    assert_eq!(ensemble::headline(&servers), "2 of 3 servers run");
    assert!(ensemble::headline(&three()).starts_with("3 of 3 servers run, "));
}

#[test]
fn an_open_tree_is_a_warning_where_others_reach_it() {
    let open = [Acl::open_unsafe()];
    assert_eq!(judge_openness(&open, true).severity, Severity::Ok);
    assert_one(
        &[judge_openness(&open, false)],
        "warning open",
        "create and delete",
    );
    let read = [Acl::new(Perms::READ, "world", "anyone")];
    assert_eq!(judge_openness(&read, false).severity, Severity::Ok);
    assert_eq!(judge_openness(&[], false).severity, Severity::Ok);
}

#[test]
fn the_exit_code_is_that_of_the_worst_finding() {
    let sum = |servers: &[Server]| Sum::of(&ensemble::judge(servers)).exit_code();
    let mut servers = three();
    assert_eq!(sum(&servers), 0);
    servers[2].conf = Word::Refused;
    assert_eq!(sum(&servers), 0, "what was not checked counts for nothing");
    servers[2].conf = conf(3, 300, 1000);
    assert_eq!(sum(&servers), 1);
    servers[1].srvr = srvr("leader");
    assert_eq!(sum(&servers), 3);
}

#[test]
fn a_znode_from_the_future_says_that_a_clock_is_set_wrong() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    for newest in [0, -5, i64::MIN, 1_700_000_000_000, 1_700_000_001_000] {
        assert_eq!(bad(&[layouts::skew(newest, now)]), [""; 0], "{newest}");
    }
    let ahead = layouts::skew(1_700_000_090_500, now);
    assert_one(&[ahead], "warning skew", "90.5 s newer");
    let endless = layouts::skew(i64::MAX, now);
    assert_one(&[endless], "warning skew", "newer than");
}
