//! Facts of one server: that it can be reached, its answers to four-letter words, how fast its
//! clock runs. Every answer is bounded in time and length: what is at the address need not be a
//! server.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use baton_client::{BootInstant, BoxStream, ClientTls, Clock, SystemClock, TlsFailure};
use tokio::net::{TcpStream, UnixStream, lookup_host};

use super::finding::quoted;
use crate::servers::probe;

/// Bytes of an answer to a word.
const MAX_BYTES: u64 = 256 << 10;
/// The end of a refusal of a word.
const NOT_LISTED: &str = "is not executed because";

/// Address of a server of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Endpoint {
    Tcp {
        /// `HOST:PORT`.
        address: String,
        host: String,
    },
    Unix(PathBuf),
}

impl Endpoint {
    /// Reads a server of a list as `Config::servers` has it.
    pub(super) fn read(server: &str) -> Self {
        if let Some(path) = server.strip_prefix("unix:") {
            return Self::Unix(path.into());
        }
        let address = server.strip_prefix("tls://").unwrap_or(server);
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        Self::Tcp {
            address: address.to_owned(),
            host: host
                .trim_start_matches('[')
                .trim_end_matches(']')
                .to_owned(),
        }
    }
}

/// Stage that a connection reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConnectStage {
    /// The name has no address.
    NoAddress(String),
    /// Nothing listens there.
    Refused(String),
    /// There is a listener; TLS failed.
    TlsFailed(String),
    Reached {
        /// The time for the name, the connection and TLS.
        within: Duration,
        /// Whether only processes of this machine reach it there.
        is_local: bool,
        /// With TLS, the end of the server's certificate.
        certificate_ends: Option<SystemTime>,
    },
}

/// The answer to a four-letter word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    Answer(String),
    /// The server does not execute it.
    Refused,
    /// The server refused this side's certificate, or misses one: with TLS 1.3 it says so only
    /// after the handshake.
    TlsFailed(String),
    /// There was no answer, or it was not one of a server; why.
    None(String),
}

impl Word {
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Answer(text) => Some(text),
            Self::Refused | Self::TlsFailed(_) | Self::None(_) => None,
        }
    }

    /// Cause of a missing answer, and the next step.
    pub(super) fn missing(&self, word: &str) -> Option<(String, String)> {
        match self {
            Self::Answer(_) => None,
            Self::Refused => Some((
                format!("the server does not answer the word {word}"),
                format!("add {word} to the server's 4lw.commands.whitelist"),
            )),
            Self::TlsFailed(why) | Self::None(why) => Some((
                format!("{word}: {why}"),
                "see the other findings of this server".to_owned(),
            )),
        }
    }

    /// The value of a key in an answer to `mntr` or `conf`.
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        let lines = self.text()?.lines();
        lines
            .filter_map(|line| line.split_once(['\t', '=']))
            .find_map(|(name, value)| (name == key).then_some(value.trim()))
    }

    pub(super) fn number(&self, key: &str) -> Option<f64> {
        let number: f64 = self.value(key)?.parse().ok()?;
        number.is_finite().then_some(number)
    }
}

/// Bounds of the rate of a server's clock over ours.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ClockRate {
    pub(super) least: f64,
    pub(super) most: f64,
}

/// The server's uptime, and when it was read.
struct Uptime {
    asked: BootInstant,
    answered: BootInstant,
    millis: f64,
}

impl ClockRate {
    fn between(first: &Uptime, last: &Uptime) -> Option<Self> {
        let shortest = last.asked.saturating_duration_since(first.answered);
        let longest = last.answered.saturating_duration_since(first.asked);
        if shortest.is_zero() {
            return None;
        }
        // Each reading is rounded to a millisecond.
        let (least, most) = (
            last.millis - first.millis - 1.0,
            last.millis - first.millis + 1.0,
        );
        Some(Self {
            least: least / (longest.as_secs_f64() * 1000.0),
            most: most / (shortest.as_secs_f64() * 1000.0),
        })
    }
}

/// Reaches one server, and asks it.
pub(super) struct Asker {
    pub(super) endpoint: Endpoint,
    pub(super) tls: Option<ClientTls>,
    /// For a connection, and for each answer.
    pub(super) patience: Duration,
}

impl Asker {
    pub(super) async fn reach(&self) -> ConnectStage {
        let begun = Instant::now();
        let reach = match tokio::time::timeout(self.patience, self.connect()).await {
            Ok(Ok((_, reached))) => reached,
            Ok(Err(failed)) => failed,
            Err(_) => ConnectStage::Refused("no connection in time".to_owned()),
        };
        match reach {
            ConnectStage::Reached {
                is_local,
                certificate_ends,
                ..
            } => ConnectStage::Reached {
                within: begun.elapsed(),
                is_local,
                certificate_ends,
            },
            failed => failed,
        }
    }

    async fn connect(&self) -> Result<(BoxStream, ConnectStage), ConnectStage> {
        let reached = |is_local, certificate_ends| ConnectStage::Reached {
            within: Duration::ZERO,
            is_local,
            certificate_ends,
        };
        let (address, host) = match &self.endpoint {
            Endpoint::Unix(path) => {
                let stream = UnixStream::connect(path).await;
                let stream = stream.map_err(|error| ConnectStage::Refused(error.to_string()))?;
                return Ok((Box::new(stream), reached(true, None)));
            }
            Endpoint::Tcp { address, host } => (address, host),
        };
        let found = lookup_host(address).await;
        let found: Vec<_> = match found {
            Ok(found) => found.collect(),
            Err(error) => return Err(ConnectStage::NoAddress(error.to_string())),
        };
        if found.is_empty() {
            return Err(ConnectStage::NoAddress(
                "the name has no address".to_owned(),
            ));
        }
        let is_local = found.iter().all(|address| is_loopback(address.ip()));
        let stream = TcpStream::connect(found.as_slice()).await;
        let stream = stream.map_err(|error| ConnectStage::Refused(error.to_string()))?;
        let Some(tls) = &self.tls else {
            return Ok((Box::new(stream), reached(is_local, None)));
        };
        let stream = tls.connect(host, stream).await;
        let stream = stream.map_err(|failure| ConnectStage::TlsFailed(failure.to_string()))?;
        let (_, session) = stream.get_ref();
        let certificates = session.peer_certificates();
        let ends = certificates.and_then(baton_tls::pem::chain_valid_until);
        Ok((Box::new(stream), reached(is_local, ends)))
    }

    /// Asks by a word whose answer has one of these texts.
    pub(super) async fn word(&self, word: &str, expected: &[&str]) -> Word {
        let asking = async {
            let (stream, _) = self.connect().await.map_err(|reach| match reach {
                ConnectStage::NoAddress(why) | ConnectStage::Refused(why) => Word::None(why),
                ConnectStage::TlsFailed(why) => Word::TlsFailed(why),
                ConnectStage::Reached { .. } => Word::None(String::new()),
            })?;
            let answer = probe::answer(stream, word, MAX_BYTES).await;
            answer.map_err(|error| match TlsFailure::of(&error) {
                Some(failure) => Word::TlsFailed(failure.to_string()),
                None => Word::None(error.to_string()),
            })
        };
        match tokio::time::timeout(self.patience, asking).await {
            Err(_) => Word::None("it takes connections, and does not answer in time".to_owned()),
            Ok(Err(none)) => none,
            Ok(Ok(text)) if text.contains(NOT_LISTED) => Word::Refused,
            Ok(Ok(text)) if text.is_empty() => {
                Word::None("it closes the connection without an answer".to_owned())
            }
            Ok(Ok(text)) if expected.iter().any(|part| text.contains(part)) => Word::Answer(text),
            Ok(Ok(text)) => {
                let text = quoted(&text);
                Word::None(format!("the answer is not one of a server: {text}"))
            }
        }
    }

    pub(super) async fn monitor(&self) -> Word {
        self.word("mntr", &["zk_version\t", "zk_server_state\t"])
            .await
    }

    /// Measures the rate of the server's clock for this long.
    pub(super) async fn clock_rate(&self, span: Duration) -> Option<ClockRate> {
        let first = self.uptime().await?;
        tokio::time::sleep(span).await;
        ClockRate::between(&first, &self.uptime().await?)
    }

    async fn uptime(&self) -> Option<Uptime> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let asked = clock.now();
        let millis = self.monitor().await.number("zk_uptime")?;
        Some(Uptime {
            asked,
            answered: clock.now(),
            millis,
        })
    }
}

fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => {
            let mapped = address.to_ipv4_mapped();
            mapped.map_or(address.is_loopback(), |address| address.is_loopback())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_of_a_list_are_read() {
        let tcp = |address: &str, host: &str| Endpoint::Tcp {
            address: address.to_owned(),
            host: host.to_owned(),
        };
        assert_eq!(Endpoint::read("zk1:2181"), tcp("zk1:2181", "zk1"));
        assert_eq!(Endpoint::read("tls://[::1]:1"), tcp("[::1]:1", "::1"));
        let unix = Endpoint::Unix("/run/b.sock".into());
        assert_eq!(Endpoint::read("unix:/run/b.sock"), unix);
    }

    #[test]
    fn values_are_read_from_both_forms_of_answers() {
        let monitor = Word::Answer("zk_uptime\t12\nzk_x\tNaN\n".to_owned());
        assert_eq!(monitor.number("zk_uptime"), Some(12.0));
        assert_eq!(monitor.number("zk_x"), None);
        let conf = Word::Answer("tickTime=2000\nserver.1=a:1:2\n".to_owned());
        assert_eq!(conf.number("tickTime"), Some(2000.0));
        assert_eq!(conf.value("server.1"), Some("a:1:2"));
        assert_eq!(Word::Refused.value("tickTime"), None);
    }

    #[test]
    fn a_clocks_rate_lies_between_bounds_that_the_answers_prove() {
        let at = |millis| BootInstant::ZERO + Duration::from_millis(millis);
        let uptime = |asked, answered, millis| Uptime {
            asked: at(asked),
            answered: at(answered),
            millis,
        };
        let first = uptime(0, 10, 5_000.0);
        let rate = ClockRate::between(&first, &uptime(1_000, 1_010, 6_000.0)).unwrap();
        assert!(rate.least < 1.0 && 1.0 < rate.most, "{rate:?}");
        let fast = ClockRate::between(&first, &uptime(1_000, 1_010, 6_100.0)).unwrap();
        assert!(fast.least > 1.05, "{fast:?}");
        assert_eq!(ClockRate::between(&first, &uptime(5, 20, 5_000.0)), None);
    }
}
