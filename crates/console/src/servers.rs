//! Answers of servers about themselves and their connections.
//!
//! Owns how the answers to `srvr`, `mntr` and `cons` are read: those of Baton and of Apache
//! ZooKeeper. Who asks, and by which connection, is the caller's matter: [`Words`].

use std::collections::BTreeMap;
use std::pin::Pin;

use serde::Serialize;

/// Connections that are kept of one server.
const MOST_CONNECTIONS: usize = 20_000;

/// The metrics that a page shows, by the names that servers have for them.
const METRICS: [&str; 14] = [
    "zk_outstanding_requests",
    "zk_num_alive_connections",
    "zk_znode_count",
    "zk_ephemerals_count",
    "zk_watch_count",
    "zk_approximate_data_size",
    "zk_avg_latency",
    "zk_max_latency",
    "zk_p99_fsynctime",
    "zk_avg_fsynctime",
    "zk_max_fsynctime",
    "zk_synced_followers",
    "zk_leader_uptime",
    "zk_uptime",
];

/// Collected answers of a server, still as text.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Answers {
    /// The server's `HOST:PORT`.
    pub address: String,
    /// Its answer to each word that it has answered.
    pub words: BTreeMap<String, String>,
    /// Reason why it has answered none.
    pub error: Option<String>,
}

impl Answers {
    /// The answers of the server at this address, by word.
    #[must_use]
    pub fn new(address: &str, words: BTreeMap<String, String>, error: Option<String>) -> Self {
        Self {
            address: address.to_owned(),
            words,
            error,
        }
    }

    /// A metric of the answer to `mntr`, by its name there.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<f64> {
        let mut lines = self.words.get("mntr")?.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'))?;
        value.trim().parse().ok()
    }

    /// A field of the answer to `srvr`, by its name there.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<String> {
        const LONGEST: usize = 100;
        let mut lines = self.words.get("srvr")?.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(value.trim().chars().take(LONGEST).collect())
    }
}

/// Asks servers by four-letter words.
pub trait Words: Send + Sync {
    /// The answers of all servers to these words. A word that a server does not answer is left out.
    fn ask<'a>(
        &'a self,
        words: &'a [&'a str],
    ) -> Pin<Box<dyn Future<Output = Vec<Answers>> + Send + 'a>>;
}

/// A server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ServerRow {
    /// Its `HOST:PORT`.
    pub address: String,
    /// `leader`, `follower`, `observer`, `standalone`, or what else it says.
    pub role: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// The newest change that it has, as it writes it.
    pub zxid: Option<String>,
    /// Its open connections.
    pub connections: Option<usize>,
    /// A few of its metrics, by its names for them.
    pub metrics: BTreeMap<String, String>,
    /// Reason why it does not answer.
    pub error: Option<String>,
}

/// A connection, as its server describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Connection {
    /// The server's `HOST:PORT`.
    pub server: String,
    /// The client's address.
    pub client: String,
    /// The timeout of its session, in milliseconds.
    pub timeout_ms: Option<i64>,
    /// When the server last answered it, milliseconds since 1970, if that is longer ago than half
    /// of the timeout: what pings as it should is no news.
    pub last_heard_ms: Option<i64>,
}

/// Returns the shown part of one server's answers.
#[must_use]
pub fn row(answers: &Answers) -> ServerRow {
    let field = |name: &str| answers.field(name);
    let mntr = answers.words.get("mntr").map_or("", String::as_str);
    let metrics = mntr.lines().filter_map(|line| line.split_once('\t'));
    let metrics = metrics.filter(|(name, _)| METRICS.contains(name) || name.starts_with("baton_"));
    ServerRow {
        address: answers.address.clone(),
        role: field("Mode"),
        version: field("Zookeeper version")
            .map(|text| text.split([',', ' ']).next().unwrap_or("").to_owned()),
        zxid: field("Zxid"),
        connections: field("Connections").and_then(|text| text.parse().ok()),
        metrics: metrics
            .take(200)
            .map(|(name, value)| (name.to_owned(), value.chars().take(40).collect()))
            .collect(),
        error: answers.error.clone(),
    }
}

/// The connections in an answer to `cons`, by session, asked at `now_ms`.
#[must_use]
pub fn connections(answers: &Answers, now_ms: i64) -> BTreeMap<i64, Connection> {
    let cons = answers.words.get("cons").map_or("", String::as_str);
    let read = || {
        let lines = cons.lines();
        let read = lines.filter_map(|line| connection(&answers.address, line));
        read.take(MOST_CONNECTIONS)
    };
    // Servers count from their own start. The newest answer is hardly older than the question: the
    // survey's own session asks all the time.
    let newest = read().filter_map(|(_, _, answered)| answered).max();
    read()
        .map(|(session, mut connection, answered)| {
            let silent = newest.zip(answered).map(|(newest, at)| newest - at);
            let is_silent = |silent: &i64| *silent > connection.timeout_ms.unwrap_or(0) / 2;
            connection.last_heard_ms = silent.filter(is_silent).map(|silent| now_ms - silent);
            (session, connection)
        })
        .collect()
}

/// A line like ` /127.0.0.1:5[1](queued=0,sid=0x1,to=10000,lresp=17,…)`.
///
/// The session, and by the server's own clock when it was answered last.
fn connection(server: &str, line: &str) -> Option<(i64, Connection, Option<i64>)> {
    let (client, rest) = line.trim().split_once('[')?;
    let (_, fields) = rest.split_once('(')?;
    let fields: BTreeMap<&str, &str> = fields
        .trim_end_matches(')')
        .split(',')
        .filter_map(|field| field.split_once('='))
        .collect();
    let session = fields.get("sid")?.strip_prefix("0x")?;
    // A negative id is written as the 64 bits that it is.
    let session = u64::from_str_radix(session, 16).ok()?.cast_signed();
    let number = |name: &str| fields.get(name).and_then(|value| value.parse().ok());
    Some((
        session,
        Connection {
            server: server.to_owned(),
            client: client.trim_start_matches('/').to_owned(),
            timeout_ms: number("to"),
            last_heard_ms: None,
        },
        number("lresp").filter(|at| *at > 0),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_cons_names_session_client_timeout_and_the_last_answer() {
        let line = " /127.0.0.1:58742[1](queued=0,recved=4,sent=4,sid=0xf00000000000000a,lop=PING,est=1763900000000,to=10000,lcxid=0x2,lzxid=0x5,lresp=17634,llat=0,minlat=0,avglat=0,maxlat=1)";
        let (session, read, answered) = connection("a:1", line).unwrap_or_default();
        assert_eq!(
            session,
            i64::from_str_radix("-ffffffffffffff6", 16).unwrap_or(0)
        );
        assert_eq!(read.client, "127.0.0.1:58742");
        assert_eq!(read.timeout_ms, Some(10_000));
        assert_eq!(answered, Some(17_634));
        let silent = line.replace("=17634", "=9000").replace("000a", "000b");
        let words = BTreeMap::from([("cons".to_owned(), format!("{line}\n{silent}\n"))]);
        let all = connections(&Answers::new("a:1", words, None), 1_000_000);
        let heard: Vec<_> = all.values().map(|read| read.last_heard_ms).collect();
        assert_eq!(heard, [None, Some(1_000_000 - 8_634)]);
        // The asking connection itself has no session.
        assert_eq!(
            connection("a:1", " /127.0.0.1:1[0](queued=0,recved=1,sent=0)"),
            None
        );
        assert_eq!(connection("a:1", "x"), None);
    }

    #[test]
    fn a_server_shows_its_role_and_a_few_metrics() {
        let words = [
            (
                "srvr",
                "Zookeeper version: 3.9.3-x, built on 1\nZxid: 0x5\nMode: follower\nConnections: 3\n",
            ),
            ("mntr", "zk_znode_count\t7\nzk_other\t1\nbaton_term\t3\n"),
        ];
        let words = words.map(|(word, text)| (word.to_owned(), text.to_owned()));
        let row = row(&Answers::new("a:1", BTreeMap::from(words), None));
        assert_eq!(row.role.as_deref(), Some("follower"));
        assert_eq!(row.version.as_deref(), Some("3.9.3-x"));
        assert_eq!(row.connections, Some(3));
        assert_eq!(row.metrics.len(), 2);
    }
}
