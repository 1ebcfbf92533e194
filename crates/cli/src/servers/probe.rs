//! One server asked by a four-letter word: whether it answers, and what it says of itself.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::time::Duration;

use baton_client::{BoxStream, ClientTls, Config, TlsFailure};
use baton_proto::{EnsembleConfig, EnsembleMember};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;

/// Limit on an answer. A server that is stopped gives none.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a short answer.
const MAX_BYTES: u64 = 16 << 10;
/// Bytes of an answer that lists connections.
const MAX_LISTING: u64 = 8 << 20;

/// Result of the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Probe {
    /// Nothing listens there, or nothing can be reached.
    Unreachable(String),
    /// It takes the connection and says nothing: it starts, waits for its ensemble, or is stopped.
    Silent,
    /// The answer to `srvr`.
    Answered(Summary),
}

impl Probe {
    /// The answer, if there is one.
    pub(crate) fn summary(&self) -> Option<&Summary> {
        match self {
            Self::Answered(summary) => Some(summary),
            Self::Unreachable(_) | Self::Silent => None,
        }
    }

    /// Whether the server takes part in its ensemble: it leads, follows or observes.
    pub(crate) fn serves(&self) -> bool {
        self.votes() || self.mode() == Some("observer")
    }

    /// Whether the server leads or follows.
    pub(crate) fn votes(&self) -> bool {
        matches!(self.mode(), Some("leader" | "follower"))
    }

    fn mode(&self) -> Option<&str> {
        self.summary()?.mode.as_deref()
    }
}

/// Report of a server about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// `leader`, `follower`, `observer`, `standalone`, `looking`, `read-only`; `None`: it says that
    /// it does not serve.
    pub(crate) mode: Option<String>,
    /// The newest change that it has, as it writes it.
    pub(crate) zxid: Option<String>,
    pub(crate) version: Option<String>,
    /// When it was built, as it writes it.
    pub(crate) built: Option<String>,
}

impl Summary {
    /// Reads an answer to `srvr`.
    pub(crate) fn of(answer: &str) -> Self {
        let field = |name: &str| {
            let mut lines = answer.lines();
            let found = lines.find_map(|line| line.strip_prefix(name))?;
            Some(found.trim().chars().take(100).collect::<String>())
        };
        let version = field("Zookeeper version: ");
        let built = version
            .as_deref()
            .and_then(|text| text.split_once("built on "));
        let built = built.map(|(_, built)| built.to_owned());
        Self {
            mode: field("Mode: "),
            zxid: field("Zxid: "),
            // It goes on with when it was built.
            version: version.map(|text| match text.split_once([',', ' ']) {
                Some((version, _)) => version.to_owned(),
                None => text,
            }),
            built,
        }
    }
}

/// A connection to `HOST:PORT`.
async fn connect(address: &str, tls: Option<&ClientTls>) -> std::io::Result<BoxStream> {
    secure(TcpStream::connect(address).await?, address, tls).await
}

/// The connection to `HOST:PORT` with TLS, if there is to be any.
///
/// The client's address in a member's line may be that of a port without TLS, although the user
/// has named ports with TLS. A word says nothing that is secret, so it is asked there as well.
async fn secure(
    stream: TcpStream,
    address: &str,
    tls: Option<&ClientTls>,
) -> std::io::Result<BoxStream> {
    let Some(tls) = tls else {
        return Ok(Box::new(stream));
    };
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match tls.connect(host, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(TlsFailure::NotTls | TlsFailure::Closed) => {
            Ok(Box::new(TcpStream::connect(address).await?))
        }
        Err(failure) => Err(failure.into()),
    }
}

/// Asks the server at this `HOST:PORT` what it is.
async fn probe(address: &str, tls: Option<&ClientTls>) -> Probe {
    let stream = match tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Probe::Unreachable(error.to_string()),
        Err(_) => return Probe::Unreachable("no connection in time".to_owned()),
    };
    probe_over(stream, address, tls, PATIENCE).await
}

/// Asks over a connection, with this patience for TLS and for the answer. A server that waits for
/// its ensemble has a port, and does not begin TLS there either.
async fn probe_over(
    stream: TcpStream,
    address: &str,
    tls: Option<&ClientTls>,
    patience: Duration,
) -> Probe {
    let stream = match tokio::time::timeout(patience, secure(stream, address, tls)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Probe::Unreachable(error.to_string()),
        Err(_) => return Probe::Silent,
    };
    match tokio::time::timeout(patience, answer(stream, "srvr", MAX_BYTES)).await {
        Ok(Ok(answer)) if !answer.is_empty() => Probe::Answered(Summary::of(&answer)),
        Ok(Err(error)) => Probe::Unreachable(error.to_string()),
        Ok(Ok(_)) | Err(_) => Probe::Silent,
    }
}

/// Returns the reports of the servers at these addresses, in their order; `None` for one without an
/// address.
pub(crate) async fn probe_all(
    addresses: &[Option<String>],
    tls: Option<&ClientTls>,
) -> Vec<Option<Probe>> {
    let probed = each(addresses, |address| {
        let tls = tls.cloned();
        async move { probe(&address, tls.as_ref()).await }
    });
    probed.await
}

/// Returns whether the servers that run are enough of all to have a leader.
pub(crate) const fn is_majority(running: usize, all: usize) -> bool {
    running * 2 > all
}

/// Says how many of several servers run, and whether they are a majority.
pub(crate) fn running(running: usize, all: usize) -> String {
    let verb = if running == 1 { "runs" } else { "run" };
    match is_majority(running, all) {
        true => format!("{running} of {all} servers {verb}"),
        false => format!("{running} of {all} servers {verb}, no majority"),
    }
}

/// Says that too few servers of this list run, and which do not; `None`: there is one server, or
/// enough of them run.
pub(crate) async fn missing_majority(list: &str, tls: Option<&ClientTls>) -> Option<String> {
    let mut places = addresses(list);
    let mut named = HashSet::new();
    places.retain(|place| named.insert(place.clone()));
    let asked: Vec<_> = places.iter().cloned().map(Some).collect();
    let probes = probe_all(&asked, tls).await;
    let silent: Vec<&str> = probes
        .iter()
        .zip(&places)
        .filter(|(probe, _)| matches!(probe, None | Some(Probe::Unreachable(_))))
        .map(|(_, place)| place.as_str())
        .collect();
    let (count, all) = (places.len() - silent.len(), places.len());
    (all > 1 && !is_majority(count, all)).then(|| {
        let silent = silent.join(", ");
        format!(
            "{}: nothing listens at {silent}; start the servers there",
            running(count, all)
        )
    })
}

/// Returns the servers' answers to a word, in the order of the addresses; `None` for one that gives
/// no answer.
pub(crate) async fn ask_all(
    addresses: &[Option<String>],
    word: &'static str,
    tls: Option<&ClientTls>,
) -> Vec<Option<String>> {
    let answers = each(addresses, |address| {
        let tls = tls.cloned();
        async move { ask(&address, word, tls.as_ref()).await.ok() }
    });
    answers.await.into_iter().map(Option::flatten).collect()
}

/// Does the same with each address at once.
async fn each<T: Clone + Send + 'static, F: Future<Output = T> + Send + 'static>(
    addresses: &[Option<String>],
    act: impl Fn(String) -> F,
) -> Vec<Option<T>> {
    let mut acting = JoinSet::new();
    for (at, address) in addresses.iter().enumerate() {
        if let Some(address) = address.clone() {
            let acted = act(address);
            acting.spawn(async move { (at, acted.await) });
        }
    }
    let mut found = vec![None; addresses.len()];
    while let Some(acted) = acting.join_next().await {
        if let Ok((at, outcome)) = acted
            && let Some(found) = found.get_mut(at)
        {
            *found = Some(outcome);
        }
    }
    found
}

/// The answer of the server at this `HOST:PORT`, or `unix:PATH`, to one word.
pub(crate) async fn ask(
    address: &str,
    word: &str,
    tls: Option<&ClientTls>,
) -> Result<String, String> {
    ask_over(word, async {
        let stream: BoxStream = match address.strip_prefix("unix:") {
            Some(path) => Box::new(UnixStream::connect(path).await?),
            None => connect(address, tls).await?,
        };
        Ok(stream)
    })
    .await
}

/// The answer to one word over a connection that is being made.
pub(crate) async fn ask_over(
    word: &str,
    connection: impl Future<Output = std::io::Result<BoxStream>>,
) -> Result<String, String> {
    let asking = async { answer(connection.await?, word, MAX_LISTING).await };
    match tokio::time::timeout(PATIENCE, asking).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err("no answer in time".to_owned()),
    }
}

/// The addresses `HOST:PORT` of a connect string, none of one that is not valid.
pub(crate) fn addresses(connect_string: &str) -> Vec<String> {
    let servers = Config::new(connect_string).map(|config| config.servers());
    let servers = servers.unwrap_or_default();
    let of_tcp = servers.split(',').filter_map(|server| {
        let is_tcp = !server.is_empty() && !server.starts_with("unix:");
        is_tcp.then(|| server.strip_prefix("tls://").unwrap_or(server))
    });
    of_tcp.map(str::to_owned).collect()
}

/// The id of the server at this `HOST:PORT`, if it says so.
async fn id_of(address: &str, tls: Option<&ClientTls>) -> Option<u64> {
    let asking = async { answer(connect(address, tls).await?, "conf", MAX_BYTES).await };
    let answer = tokio::time::timeout(PATIENCE, asking).await.ok()?.ok()?;
    let id = answer
        .lines()
        .find_map(|line| line.strip_prefix("serverId="));
    id?.trim().parse().ok()
}

/// The answer to a word, at most this many bytes of it.
pub(crate) async fn answer(
    mut stream: BoxStream,
    word: &str,
    most: u64,
) -> std::io::Result<String> {
    let mut answer = Vec::new();
    let asking = async {
        stream.write_all(word.as_bytes()).await?;
        stream.flush().await?;
        stream.take(most).read_to_end(&mut answer).await
    };
    if let Err(error) = asking.await {
        let is_end = match error.kind() {
            // A server may close a connection with TLS without TLS's own end.
            ErrorKind::UnexpectedEof => !answer.is_empty(),
            // A member that starts closes it without reading the word.
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => answer.is_empty(),
            _ => false,
        };
        if !is_end {
            return Err(error);
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Returns the address of a member for clients, as `HOST:PORT`; a member that listens on every
/// address is reached where the other servers reach it. `None`: its line does not say.
pub(crate) fn client_address(member: &EnsembleMember) -> Option<String> {
    let client = member.client.as_ref()?;
    if !client.is_every_address() {
        return Some(client.to_string());
    }
    let mut reached = client.clone();
    reached.host.clone_from(&member.addresses.first()?.host);
    Some(reached.to_string())
}

/// Returns the address of each member for clients: the one in its line, or else one of the `known`
/// addresses that reports to be its own. In the order of the members.
pub(crate) async fn client_addresses(
    config: &EnsembleConfig,
    known: &[String],
    tls: Option<&ClientTls>,
) -> Vec<Option<String>> {
    let mut addresses: Vec<_> = config.members.iter().map(client_address).collect();
    if addresses.iter().all(Option::is_some) {
        return addresses;
    }
    for candidate in known {
        let Some(id) = id_of(candidate, tls).await else {
            continue;
        };
        let members = config.members.iter().zip(&mut addresses);
        for (_, address) in members.filter(|(member, at)| member.id == id && at.is_none()) {
            *address = Some(candidate.clone());
        }
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_of_both_kinds_of_server_are_read() {
        let zookeeper = "Zookeeper version: 3.8.0-5a02a05eddb59aee6ac762f7ea82e92a68eb9c0f, built \
                         on 2022-02-25 08:49 UTC\nLatency min/avg/max: 0/0.0/0\nReceived: 1\nZxid: \
                         0x100000000\nMode: follower\nNode count: 5\n";
        assert_eq!(
            Summary::of(zookeeper),
            Summary {
                mode: Some("follower".to_owned()),
                zxid: Some("0x100000000".to_owned()),
                version: Some("3.8.0-5a02a05eddb59aee6ac762f7ea82e92a68eb9c0f".to_owned()),
                built: Some("2022-02-25 08:49 UTC".to_owned()),
            }
        );
        let away = "This ZooKeeper instance is not currently serving requests\n";
        assert_eq!(Summary::of(away), Summary::default());
        assert!(!Probe::Answered(Summary::of(away)).serves());
        assert!(Probe::Answered(Summary::of(zookeeper)).serves());
        assert!(Probe::Answered(Summary::of("Mode: observer\n")).serves());
        assert!(!Probe::Answered(Summary::of("Mode: observer\n")).votes());
        assert!(!Probe::Answered(Summary::of("Mode: looking\n")).serves());
        assert!(!Probe::Silent.serves());
        // Whatever answers there need not be a server.
        assert_eq!(Summary::of("\0\u{1b}[2J Mode: leader"), Summary::default());
    }

    #[tokio::test]
    async fn a_member_that_starts_is_silent_with_tls_as_without() {
        let folder = tempfile::tempdir().unwrap();
        let authority = folder.path().join("ca.pem");
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(&authority, params.self_signed(&key).unwrap().pem()).unwrap();
        let tls = ClientTls::new(authority).unwrap();
        // Connections are opened by the system, and nobody takes them.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = port.local_addr().unwrap().to_string();
        for tls in [None, Some(&tls)] {
            let stream = TcpStream::connect(&address).await.unwrap();
            let probed = probe_over(stream, &address, tls, Duration::ZERO).await;
            assert_eq!(probed, Probe::Silent, "{}", tls.is_some());
        }
        // A member that starts closes them.
        port.set_nonblocking(true).unwrap();
        let port = tokio::net::TcpListener::from_std(port).unwrap();
        let closing = tokio::spawn(async move { while port.accept().await.is_ok() {} });
        for _time in 0..50 {
            for tls in [None, Some(&tls)] {
                let probed = probe(&address, tls).await;
                assert_eq!(probed, Probe::Silent, "{}", tls.is_some());
            }
        }
        closing.abort();
    }

    #[test]
    fn a_member_that_listens_everywhere_is_reached_where_the_others_reach_it() {
        let address = |line: &str| client_address(&line.parse().unwrap());
        for (line, reached) in [
            ("server.1=zk1:1:2;2181", Some("zk1:2181")),
            ("server.1=[::1]:1:2;2181", Some("[::1]:2181")),
            ("server.1=zk1:1:2;[::]:2181", Some("zk1:2181")),
            ("server.1=zk1:1:2;10.0.0.1:2181", Some("10.0.0.1:2181")),
            ("server.1=zk1:1:2", None),
        ] {
            assert_eq!(address(line).as_deref(), reached, "{line}");
        }
    }
}
