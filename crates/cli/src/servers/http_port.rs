//! The commands of a server's HTTP port, as `baton server transfer` and `baton backup` use them:
//! one request a connection.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use baton_client::{ClientTls, TlsFailure};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::exit::{self, Failure};
use crate::secret_file;

/// The HTTP port that is tried where none is named: that of ZooKeeper's admin server.
pub(crate) const HTTP_PORT: u16 = 8080;

/// Limit on an answer. The server answers a transfer when it has begun.
const PATIENCE: Duration = Duration::from_secs(10);
/// The status of an answer that wants to know who asks.
const UNAUTHORIZED: u16 = 401;
/// Bytes of an answer, and of its head.
const MAX_BYTES: u64 = 1 << 20;
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Bytes of a long answer that are read at a time, and the limit on the next ones.
const PIECE_BYTES: usize = 256 << 10;
const BETWEEN_PIECES: Duration = Duration::from_secs(60);

/// The HTTP port of a server.
#[derive(Debug, Clone)]
pub(crate) struct HttpPort<'a> {
    /// `HOST:PORT`.
    address: &'a str,
    /// TLS by which it is reached, if it is.
    tls: Option<&'a ClientTls>,
}

impl<'a> HttpPort<'a> {
    /// Reads `HOST:PORT`, `https://HOST:PORT` or `http://HOST:PORT`. `tls` is how the ports for
    /// clients are reached: what shows who asks must not be read on the way to this port either, so
    /// it has TLS too unless the text says `http://`.
    pub(crate) fn parse(text: &'a str, tls: Option<&'a ClientTls>) -> Result<Self, Failure> {
        let text = text.trim().trim_end_matches('/');
        if let Some(address) = text.strip_prefix("http://") {
            return Ok(Self { address, tls: None });
        }
        match (text.strip_prefix("https://"), tls) {
            (Some(_), None) => Err(Failure::usage(format!(
                "{text}: https:// needs the certificates of the authorities that sign the servers'; name their file \
                 with --tls-ca"
            ))),
            (address, tls) => Ok(Self {
                address: address.unwrap_or(text),
                tls,
            }),
        }
    }

    /// Whether a certificate is shown there.
    pub(crate) fn shows_certificate(&self) -> bool {
        self.tls.is_some_and(ClientTls::has_identity)
    }

    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(self.address).await?;
        Ok(match self.tls {
            Some(tls) => Box::new(tls.connect(self.host(), stream).await?),
            None => Box::new(stream),
        })
    }

    fn failure(&self, error: &io::Error) -> Failure {
        match TlsFailure::of(error) {
            Some(TlsFailure::NotTls | TlsFailure::Closed) => Failure::baton(format!(
                "{self}: it does not speak TLS, which is used there as at the ports for clients; name a port of the \
                 setting https, or write http://{self} if the network keeps strangers away"
            )),
            Some(failure) => Failure::baton(format!("{self}: {failure}")),
            None => self.failed(&error.to_string()),
        }
    }

    fn failed(&self, what: &str) -> Failure {
        Failure::baton(format!(
            "{self}: {what}; check that a server has this address in its setting {}",
            if self.tls.is_some() { "https" } else { "http" }
        ))
    }

    fn host(&self) -> &str {
        let host = self.address.rsplit_once(':').map_or("", |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

impl fmt::Display for HttpPort<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.address)
    }
}

/// A connection, with TLS or without.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Returns the proof of who asks: a token, credentials, or the certificate of the connection.
pub(crate) fn authorization(
    token: Option<&str>,
    credentials: Option<&str>,
    ports: &[HttpPort<'_>],
) -> Option<String> {
    match (token, credentials) {
        (Some(token), _) => Some(format!("Bearer {token}")),
        (None, Some(credentials)) => Some(format!("digest {credentials}")),
        (None, None) => {
            let certificate = ports.iter().any(HttpPort::shows_certificate);
            certificate.then(|| "x509".to_owned())
        }
    }
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status of HTTP.
    pub(crate) status: u16,
    /// The body.
    pub(crate) body: Value,
}

impl Answer {
    /// Returns the server's complaint, if there is one.
    pub(crate) fn complaint(&self) -> Option<String> {
        let said = self.body.get("error").and_then(Value::as_str);
        match (self.status, said) {
            (200, None) => None,
            (_, Some(said)) => Some(said.to_owned()),
            (status, None) => Some(format!("the answer has the status {status}")),
        }
    }

    /// Reads a whole answer; `None`: it is not one of HTTP with a JSON object.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let (status, _) = head_of(head)?;
        let body: Value = serde_json::from_str(body).ok()?;
        body.is_object().then_some(Self { status, body })
    }
}

/// [`ask`] without an authorization, and again with it where the server wants one.
pub(crate) async fn read(
    port: &HttpPort<'_>,
    target: &str,
    authorization: Option<&str>,
) -> Result<Answer, Failure> {
    let answer = ask(port, "GET", target, None).await?;
    match (answer.status, authorization) {
        (UNAUTHORIZED, Some(_)) => ask(port, "GET", target, authorization).await,
        _ => Ok(answer),
    }
}

/// Sends one request to the HTTP port. `authorization` is the value of that header.
///
/// # Errors
/// No answer, or one that is not a server's; the text names the address and the remedy.
pub(crate) async fn ask(
    port: &HttpPort<'_>,
    method: &str,
    target: &str,
    authorization: Option<&str>,
) -> Result<Answer, Failure> {
    let asking = async {
        let mut stream = port.connect().await?;
        send(&mut stream, port, method, target, authorization).await?;
        let mut answer = Vec::new();
        stream.take(MAX_BYTES).read_to_end(&mut answer).await?;
        io::Result::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let text = match tokio::time::timeout(PATIENCE, asking).await {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => return Err(port.failure(&error)),
        Err(_) => return Err(port.failed("no answer in time")),
    };
    Answer::read(&text).ok_or_else(|| port.failed("the answer is not that of a server"))
}

/// Sends one request whose answer is bytes, and gives them to `take` as they come, each with the
/// length of all. `patience` is
/// how long the answer may take to begin. Returns how many bytes there were.
///
/// # Errors
/// No answer, one that breaks off, or a refusal; whatever `take` returns.
pub(crate) async fn download(
    port: &HttpPort<'_>,
    target: &str,
    authorization: Option<&str>,
    patience: Duration,
    mut take: impl FnMut(&[u8], u64) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let asking = async {
        let mut stream = port.connect().await?;
        send(&mut stream, port, "GET", target, authorization).await?;
        io::Result::Ok(stream)
    };
    let mut stream = match tokio::time::timeout(PATIENCE, asking).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(port.failure(&error)),
        Err(_) => return Err(port.failed("no answer in time")),
    };
    let mut received = Vec::new();
    let head = loop {
        if let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if received.len() > MAX_HEAD_BYTES {
            return Err(port.failed("the answer is not that of a server"));
        }
        if read_some(&mut stream, &mut received, port, patience).await? == 0 {
            return Err(port.failed("the connection ended before an answer"));
        }
    };
    let behind = received.split_off(head + 4);
    let text = String::from_utf8_lossy(&received).into_owned();
    let (status, length) =
        head_of(&text).ok_or_else(|| port.failed("the answer is not that of a server"))?;
    if status != 200 {
        let mut body = behind;
        while body.len() < MAX_HEAD_BYTES
            && read_some(&mut stream, &mut body, port, PATIENCE).await? > 0
        {}
        let answer = Answer::read(&format!("{text}{}", String::from_utf8_lossy(&body)));
        let complaint = answer.and_then(|answer| answer.complaint());
        let complaint = complaint.unwrap_or_else(|| format!("the answer has the status {status}"));
        return Err(Failure::new(
            exit::NOTHING,
            "rejected",
            format!("{port}: refused by the server: {complaint}"),
        ));
    }
    let length = length.ok_or_else(|| port.failed("the answer has no length"))?;
    let mut taken = behind.len() as u64;
    let mut piece = behind;
    loop {
        if taken > length {
            return Err(port.failed("the answer is longer than it says"));
        }
        take(&piece, length)?;
        if taken == length {
            return Ok(taken);
        }
        piece.clear();
        if read_some(&mut stream, &mut piece, port, BETWEEN_PIECES).await? == 0 {
            return Err(Failure::baton(format!(
                "{port}: the answer ended after {taken} of {length} bytes; see the server's log, then start again"
            )));
        }
        taken += piece.len() as u64;
    }
}

/// Reads what is there behind `into`; 0 bytes at the end.
async fn read_some(
    stream: &mut (impl AsyncRead + Unpin),
    into: &mut Vec<u8>,
    port: &HttpPort<'_>,
    patience: Duration,
) -> Result<usize, Failure> {
    into.reserve(PIECE_BYTES);
    match tokio::time::timeout(patience, stream.read_buf(into)).await {
        Ok(Ok(count)) => Ok(count),
        Ok(Err(error)) => Err(port.failure(&error)),
        Err(_) => Err(port.failed("no answer in time")),
    }
}

/// Status and length of the body in the head of an answer.
fn head_of(head: &str) -> Option<(u16, Option<u64>)> {
    let mut lines = head.lines();
    let mut words = lines.next()?.split(' ');
    let is_http = words.next()?.starts_with("HTTP/1.");
    let status = words.next()?.parse().ok().filter(|_| is_http)?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        value.trim().parse().ok().filter(|_| is_length)
    });
    Some((status, length))
}

async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    port: &HttpPort<'_>,
    method: &str,
    target: &str,
    authorization: Option<&str>,
) -> io::Result<()> {
    let authorization = authorization.map(|value| format!("Authorization: {value}\r\n"));
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: {port}\r\nConnection: close\r\nContent-Length: 0\r\n{}\r\n",
        authorization.unwrap_or_default()
    );
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await
}

/// The first token of a file: a line that does not begin with `#`.
pub(crate) fn first_token(file: &Path) -> Result<String, Failure> {
    let text = secret_file::read(file).map_err(Failure::usage)?;
    let mut lines = text.lines().map(str::trim);
    let token = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    let is_plain = |token: &&str| token.bytes().all(|byte| byte.is_ascii_graphic());
    let token = token.filter(is_plain).ok_or_else(|| {
        // What is wrong with the line is said without the line.
        Failure::usage(format!(
            "{}: its first line is not a token: letters, digits and -._~+/= only; name the server's http_token_file",
            file.display()
        ))
    })?;
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_without_a_scheme_is_reached_as_the_ports_for_clients_are() {
        for (text, address) in [
            ("zk1:8080", "zk1:8080"),
            ("http://zk1:8080/", "zk1:8080"),
            (" [::1]:8080", "[::1]:8080"),
        ] {
            let port = HttpPort::parse(text, None).unwrap();
            assert_eq!(port.to_string(), address);
            assert!(port.tls.is_none() && !port.shows_certificate());
        }
        assert_eq!(HttpPort::parse("[::1]:1", None).unwrap().host(), "::1");
        let refused = HttpPort::parse("https://zk1:1", None).unwrap_err();
        assert!(refused.text.contains("--tls-ca"), "{refused}");
    }

    #[test]
    fn the_head_of_a_long_answer_says_how_long_it_is() {
        for (head, read) in [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n",
                Some((200, Some(7))),
            ),
            (
                "HTTP/1.1 200 OK\r\nx-content-length: 7\r\n",
                Some((200, None)),
            ),
            ("HTTP/1.1 429 No\r\n", Some((429, None))),
            ("HTTP/1.1\r\n", None),
            ("SSH-2.0 200 OK\r\n", None),
        ] {
            assert_eq!(head_of(head), read, "{head:?}");
        }
    }

    #[test]
    fn an_answer_is_read_with_its_complaint() {
        let read = |text: &str| Answer::read(text).map(|answer| answer.complaint());
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n";
        assert_eq!(
            read(&format!("{head}{{\"command\":\"leader\",\"error\":null}}")),
            Some(None)
        );
        let refused = "HTTP/1.1 403 Forbidden\r\n\r\n{\"error\":\"no\"}";
        assert_eq!(read(refused), Some(Some("no".to_owned())));
        let odd = "HTTP/1.1 404 Not Found\r\n\r\n{}";
        assert_eq!(
            read(odd),
            Some(Some("the answer has the status 404".to_owned()))
        );
        for text in [
            "",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\n\r\n[]",
            "HTTP/1.1 OK\r\n\r\n{}",
            "SSH-2.0-x\r\n\r\n{}",
            "imok",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }
}
