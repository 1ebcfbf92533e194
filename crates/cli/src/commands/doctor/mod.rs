//! `baton doctor`: what is wrong with the servers, or soon will be.
//!
//! Gathers facts of every server of the list at once, then judges them: a judgement is a function
//! of facts, so that each can be tested without the server that would cause it. It changes nothing
//! on the servers but its own sessions.
//!
//! | module | owns |
//! |---|---|
//! | `ensemble` | findings about all servers together |
//! | `server` | findings about one server |
//! | `layouts` | findings about the tree |
//! | `session` | what a session with one server shows |
//! | `facts` | whether a server is reached, and its answers to four-letter words |
//! | `finding` | a finding: severity, cause, consequence, remedy |

mod ensemble;
mod facts;
mod finding;
mod layouts;
mod server;
mod session;
#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime};

use baton::inspect::Inspector;
use baton_client::{Acl, Client, LeaseOptions, Perms};
use serde::Serialize;
use tokio::task::JoinSet;

use self::facts::{Asker, ClockRate, ConnectStage, Endpoint, Word};
use self::finding::{Advice, Finding, Severity, quoted};
use self::layouts::Limits;
use self::session::MeasuredSession;
use crate::access::{Access, AccessFiles};
use crate::context::Context;
use crate::duration;
use crate::exit::{self, Failure};
use crate::folders;
use crate::output::{Output, Tone, width::wrapped};
use crate::paths;
use crate::servers::config_file::NamedServers;
use crate::servers::local;
use crate::servers::lookup::{self, Found};
use crate::servers::machine::Machine;
use crate::servers::probe::Summary;

/// Check the servers and the tree, and report problems.
///
/// Checks each server of the list, all of them together, and the tree. Prints each problem with its
/// cause, its consequence and what to do. Works with Baton and with Apache ZooKeeper, and changes
/// nothing. It uses the four-letter words srvr, conf and mntr; Apache ZooKeeper answers the last
/// two only if its 4lw.commands.whitelist has them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  baton doctor                     the servers that commands use
  baton doctor --servers zk1:2181,zk2:2181,zk3:2181
  baton doctor --all /app          passed checks, too; of the tree below /app
  baton doctor --json | jq 'select(.severity == \"error\")'

Exit codes: 0 nothing found   1 warnings   3 errors   2 usage
            (checks that could not run are printed, and do not count)")]
pub(crate) struct Args {
    /// Check the tree below this znode.
    #[arg(value_name = "PATH", default_value = "/", value_parser = paths::legal)]
    path: String,
    /// Also print the checks that passed.
    #[arg(long)]
    all: bool,
    /// The session timeout of your programs; checks of the lease use it.
    #[arg(long, value_name = "DUR", value_parser = duration::parse, default_value = "10s")]
    session_timeout: Duration,
    /// The tickTime of an Apache ZooKeeper ensemble, as your programs set it.
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    ensemble_tick: Option<Duration>,
    /// Time for which each server's clock is compared with this machine's.
    #[arg(long, value_name = "DUR", value_parser = duration::parse, default_value = "2s")]
    clock_for: Duration,
    /// The most znodes to read.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    znodes: usize,
}

/// Time for which the tree is looked at, at most.
const TREE_TIME: Duration = Duration::from_secs(15);

/// Statements of the caller's programs about the servers that count for a lease.
#[derive(Debug, Clone)]
struct Lease {
    tick: Option<Duration>,
    clock_rate_ppm: u32,
}

/// All facts of one server.
#[derive(Debug, Clone)]
struct Server {
    /// Address in the list.
    place: String,
    endpoint: Endpoint,
    has_tls: bool,
    reach: ConnectStage,
    srvr: Word,
    conf: Word,
    monitor: Word,
    rate: Option<ClockRate>,
    session: MeasuredSession,
}

impl Server {
    fn summary(&self) -> Summary {
        self.srvr.text().map(Summary::of).unwrap_or_default()
    }

    fn is_baton(&self) -> bool {
        match &self.session {
            Ok(facts) => facts.is_baton,
            Err(_) => self
                .summary()
                .version
                .is_some_and(|version| version.contains("baton")),
        }
    }

    fn zxid(&self) -> Option<u64> {
        let zxid = self.summary().zxid?;
        u64::from_str_radix(zxid.strip_prefix("0x")?, 16).ok()
    }

    /// The term of a Baton. An Apache ZooKeeper shows its epoch only with a change made in it.
    fn term(&self) -> Option<u64> {
        self.monitor.value("zk_baton_term")?.parse().ok()
    }

    /// Its id in the ensemble.
    fn id(&self) -> Option<u64> {
        self.conf.value("serverId")?.parse().ok()
    }
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let machine = Machine::this()?;
    let (found, files) = lookup::servers(&context.globals, &machine)?;
    let access = files.read()?;
    let NamedServers { list, origin } = match found {
        Found::Named(named) => named,
        Found::Local { origin, .. } => {
            let folder = folders::data(context.globals.data_dir.as_deref())?;
            let socket = folder.join(local::SOCKET);
            if local::try_connect(&socket).is_err() {
                return Err(Failure::new(
                    exit::BATON,
                    "connection",
                    format!(
                        "no server to check: {origin}, and your local server in {} does not run; name servers \
                         with --servers, or start one with any verb, like baton ls",
                        folder.display()
                    ),
                ));
            }
            let list = format!("unix:{}", socket.display());
            NamedServers { list, origin }
        }
    };
    context
        .output
        .verbose(|| format!("looking at {list} ({origin})"));
    let examination = Examination {
        args,
        patience: context.globals.connect_timeout,
        files,
        access,
        list,
        origin,
        output: &context.output,
    };
    let found = context.block_on(examination.findings());
    context.output.clear_status();
    let (headline, findings) = found??;
    if !context.output.json() {
        context.output.raw(format!("{headline}\n").as_bytes());
    }
    Ok(report(&context.output, &findings, args.all))
}

/// Scope of an examination, and the files by which servers are reached.
struct Examination<'a> {
    args: &'a Args,
    /// For each step.
    patience: Duration,
    files: AccessFiles,
    access: Access,
    list: String,
    origin: String,
    output: &'a Output,
}

impl Examination<'_> {
    /// Shows what is looked at, which can take some seconds.
    fn looks_at(&self, what: &str) {
        if self.output.has_status() {
            self.output.status(&format!("baton: looking at {what}"));
        }
    }

    /// The first line of the report, and what was found.
    async fn findings(&self) -> Result<(String, Vec<Finding>), Failure> {
        let stated = Lease {
            tick: self.args.ensemble_tick,
            clock_rate_ppm: LeaseOptions::default().clock_rate_ppm,
        };
        self.looks_at(&format!("the servers of {}", self.list));
        let servers = self.servers().await?;
        let mut findings = ensemble::judge(&servers);
        for server in &servers {
            findings.extend(server::reach(server, SystemTime::now()));
            findings.extend(server::serving(server));
            findings.extend(server::session(server));
            findings.extend(server::lease(server, &stated));
            findings.extend(server::clock(server, &stated));
            findings.extend(server::resources(server));
        }
        findings.extend(self.own_certificate());
        if servers.iter().any(|server| server.session.is_ok()) {
            self.looks_at("the whole tree, for damaged layouts");
            findings.extend(self.tree().await?);
            findings.extend(self.openness(&servers).await);
        }
        Ok((ensemble::headline(&servers), findings))
    }

    /// The facts of all servers of the list, in its order.
    async fn servers(&self) -> Result<Vec<Server>, Failure> {
        let whole = self.access.config(&self.list, &self.origin)?.servers();
        let places: Vec<String> = whole.split(',').map(str::to_owned).collect();
        let mut asking = JoinSet::new();
        for (at, place) in places.iter().enumerate() {
            let lease = LeaseOptions {
                tick: self.args.ensemble_tick,
                ..LeaseOptions::default()
            };
            let config = self
                .access
                .config(place, &self.origin)?
                .session_timeout(self.args.session_timeout)
                .lease(lease)
                .connect_within(self.patience)
                .new_session_within(self.patience);
            let endpoint = Endpoint::read(place);
            let is_tcp = matches!(endpoint, Endpoint::Tcp { .. });
            let asker = Asker {
                endpoint,
                tls: self.access.tls().filter(|_| is_tcp).cloned(),
                patience: self.patience,
            };
            let place = place.clone();
            let (timeout, clock_for) = (self.args.session_timeout, self.args.clock_for);
            asking.spawn(async move {
                let reach = asker.reach().await;
                let none = || Word::None("it is not reached".to_owned());
                let mut server = Server {
                    place,
                    endpoint: asker.endpoint.clone(),
                    has_tls: asker.tls.is_some(),
                    srvr: none(),
                    conf: none(),
                    monitor: none(),
                    rate: None,
                    session: Err("it is not reached".to_owned()),
                    reach,
                };
                if !matches!(server.reach, ConnectStage::Reached { .. }) {
                    return (at, server);
                }
                let modes = ["Zookeeper version:", "not currently serving"];
                server.srvr = asker.word("srvr", &modes).await;
                if let Word::TlsFailed(why) = &server.srvr {
                    server.reach = ConnectStage::TlsFailed(why.clone());
                    return (at, server);
                }
                if server.srvr.text().is_some() {
                    server.conf = asker.word("conf", &["clientPort=", "serverId="]).await;
                    server.monitor = asker.monitor().await;
                }
                let has_monitor = server.monitor.text().is_some();
                let rate = async {
                    match has_monitor {
                        true => asker.clock_rate(clock_for).await,
                        false => None,
                    }
                };
                let session = session::measure(config, timeout, asker.patience);
                (server.rate, server.session) = tokio::join!(rate, session);
                (at, server)
            });
        }
        let mut found = asking.join_all().await;
        found.sort_by_key(|(at, _)| *at);
        Ok(found.into_iter().map(|(_, server)| server).collect())
    }

    /// Returns what is wrong with the certificate that this command shows.
    fn own_certificate(&self) -> Option<Finding> {
        let tls = self.access.tls()?;
        let resolver = &tls.config().client_auth_cert_resolver;
        let identity = resolver.resolve(&[], &[])?;
        let ends = baton_tls::pem::chain_valid_until(&identity.cert)?;
        let now = SystemTime::now();
        Some(server::certificate("certificate", "own", ends, now))
    }

    async fn tree(&self) -> Result<Vec<Finding>, Failure> {
        let config = self.access.config(&self.list, &self.origin)?;
        let client = Client::lazy(config.connect_within(self.patience));
        let session = match client.session().await {
            Ok(session) => session,
            Err(error) => {
                let why = error.to_string();
                return Ok(vec![Finding::unknown(
                    "tree",
                    "tree",
                    &why,
                    "run this again",
                )]);
            }
        };
        let limits = Limits {
            znodes: self.args.znodes,
            time: TREE_TIME,
        };
        let inspector = Inspector::new(&client);
        let limited = session.with_deadline(self.patience);
        let findings = layouts::judge(&limited, &inspector, &self.args.path, limits).await;
        let _ = client.close_timeout(self.patience).await;
        Ok(findings)
    }

    /// Checks what somebody may do who shows nothing.
    async fn openness(&self, servers: &[Server]) -> Option<Finding> {
        let access = self.files.of_a_stranger().read().ok()?;
        let config = access.config(&self.list, &self.origin).ok()?;
        let client = Client::lazy(config.connect_within(self.patience));
        let looking = async {
            let session = client.session().await.ok()?;
            let limited = session.with_deadline(self.patience);
            let (acl, _) = limited.get_acl("/").await.ok()?;
            Some(acl)
        };
        // A client without a session or without READ does not count as exposed.
        let acl = looking.await.unwrap_or_default();
        let _ = client.close_timeout(self.patience).await;
        let is_local = servers.iter().all(|server| match &server.reach {
            ConnectStage::Reached { is_local, .. } => *is_local,
            _ => true,
        });
        Some(judge_openness(&acl, is_local))
    }
}

/// Whether the root of the tree, whose ACL this is, is open to strangers.
fn judge_openness(acl: &[Acl<'_>], is_local: bool) -> Finding {
    const CHECK: &str = "open";
    let changes = Perms::CREATE | Perms::DELETE;
    let mut everyones = acl.iter().filter(|entry| entry.scheme == "world");
    if !everyones.any(|entry| entry.perms.intersects(changes)) {
        return Finding::ok(
            CHECK,
            "tree",
            "clients without credentials may not change the root of the tree",
        );
    }
    if is_local {
        let text = "everyone may change the tree; its servers were reached from this machine only";
        return Finding::ok(CHECK, "tree", text);
    }
    Finding::warning(
        CHECK,
        "tree",
        "everyone who reaches the servers may create and delete \
                znodes at the root",
    )
    .advise(
        "the servers accept clients without credentials, and the root's ACL is open",
        "any program of the network can take and delete locks, also \
                by mistake",
        "have clients authenticate (--require-auth, \
                --tls-client-auth) or give the root an ACL (baton acl set)",
    )
}

/// Summary of the findings, in numbers.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Sum {
    checks: usize,
    errors: usize,
    warnings: usize,
    unknown: usize,
}

impl Sum {
    fn of(findings: &[Finding]) -> Self {
        let count = |severity| {
            let with = findings.iter().filter(|one| one.severity == severity);
            with.count()
        };
        Self {
            checks: findings.len(),
            errors: count(Severity::Error),
            warnings: count(Severity::Warning),
            unknown: count(Severity::Unknown),
        }
    }

    const fn exit_code(&self) -> u8 {
        match (self.errors, self.warnings) {
            (0, 0) => exit::OK,
            (0, _) => exit::NOTHING,
            _ => exit::TROUBLE,
        }
    }
}

/// Prints the findings, the worst first: a table, then what to do about each.
fn report(output: &Output, findings: &[Finding], all: bool) -> u8 {
    let mut shown: Vec<&Finding> = findings
        .iter()
        .filter(|finding| all || output.json() || finding.severity != Severity::Ok)
        .collect();
    shown.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let rows = shown.iter().map(|finding| {
        let cells = [
            finding.severity.word(),
            finding.check,
            &finding.place,
            &finding.finding,
        ];
        (*finding, tone(finding.severity), cells.map(str::to_owned))
    });
    output.table(["", "CHECK", "WHERE", "FINDING"], rows);
    let sum = Sum::of(findings);
    if output.json() {
        output.result(&sum, "");
        return sum.exit_code();
    }
    for finding in &shown {
        if let Some(advice) = &finding.advice {
            output.raw(explained(output, finding, advice).as_bytes());
        }
    }
    let Sum {
        checks,
        errors,
        warnings,
        unknown,
    } = sum;
    let counted = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    };
    let text = format!(
        "{}: {}, {}, {unknown} not made",
        counted(checks, "check"),
        counted(errors, "error"),
        counted(warnings, "warning")
    );
    let text = match shown.is_empty() {
        true => text,
        false => format!("\n{text}"),
    };
    output.raw(format!("{text}\n").as_bytes());
    sum.exit_code()
}

const fn tone(severity: Severity) -> Option<Tone> {
    match severity {
        Severity::Ok => Some(Tone::Good),
        Severity::Unknown => None,
        Severity::Warning => Some(Tone::Warning),
        Severity::Error => Some(Tone::Bad),
    }
}

/// A finding with its advice, as a paragraph.
fn explained(output: &Output, finding: &Finding, advice: &Advice) -> String {
    let place = quoted(&finding.place);
    let head = format!("{} {} {place}", finding.severity.word(), finding.check);
    let head = match tone(finding.severity) {
        Some(tone) => output.paint(tone, &head),
        None => head,
    };
    let mut text = format!("\n{head}\n");
    for (title, said) in [
        ("finding", &finding.finding),
        ("cause", &advice.cause),
        ("consequence", &advice.consequence),
        ("remedy", &advice.remedy),
    ] {
        const INDENT: usize = 15;
        let columns = output.columns().unwrap_or(100).max(INDENT + 20);
        let said = baton_proto::OneLine(said).to_string();
        for (at, line) in wrapped(&said, columns - INDENT).iter().enumerate() {
            let title = if at == 0 { title } else { "" };
            text.push_str(&format!("  {title:11}  {line}\n"));
        }
    }
    text
}
