//! The commands of a server's HTTP port, as `baton server transfer` uses them: one short request a
//! connection.

use std::fmt;
use std::io;
use std::time::Duration;

use baton_client::{ClientTls, TlsFailure};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::exit::Failure;

/// How long an answer may take. The server answers a transfer when it has begun.
const PATIENCE: Duration = Duration::from_secs(10);
/// The status of an answer that wants to know who asks.
const UNAUTHORIZED: u16 = 401;
/// Bytes of an answer.
const MAX_BYTES: u64 = 1 << 20;

/// The HTTP port of a server.
#[derive(Debug, Clone)]
pub(super) struct HttpPort<'a> {
    /// `HOST:PORT`.
    address: &'a str,
    /// How it is reached with TLS, if it is.
    tls: Option<&'a ClientTls>,
}

impl<'a> HttpPort<'a> {
    /// Reads `HOST:PORT`, `https://HOST:PORT` or `http://HOST:PORT`. `tls` is how the ports for
    /// clients are reached: what shows who asks must not be read on the way to this port either, so
    /// it has TLS too unless the text says `http://`.
    pub(super) fn parse(text: &'a str, tls: Option<&'a ClientTls>) -> Result<Self, Failure> {
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
    pub(super) fn shows_certificate(&self) -> bool {
        self.tls.is_some_and(ClientTls::has_identity)
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

/// The answer to a request.
#[derive(Debug)]
pub(super) struct Answer {
    /// The status of HTTP.
    pub(super) status: u16,
    /// The body.
    pub(super) body: Value,
}

impl Answer {
    /// What the server says is wrong, if anything.
    pub(super) fn complaint(&self) -> Option<String> {
        let said = self.body.get("error").and_then(Value::as_str);
        match (self.status, said) {
            (200, None) => None,
            (_, Some(said)) => Some(said.to_owned()),
            (status, None) => Some(format!("the answer has the status {status}")),
        }
    }

    /// Reads a whole answer; `None`: it is not one of HTTP with a JSON object.
    fn read(text: &str) -> Option<Self> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let mut words = head.lines().next()?.split(' ');
        let is_http = words.next()?.starts_with("HTTP/1.");
        let status = words.next()?.parse().ok().filter(|_| is_http)?;
        let body: Value = serde_json::from_str(body).ok()?;
        body.is_object().then_some(Self { status, body })
    }
}

/// As [`ask`] without an authorization, and again with it where the server wants one.
pub(super) async fn read(
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
pub(super) async fn ask(
    port: &HttpPort<'_>,
    method: &str,
    target: &str,
    authorization: Option<&str>,
) -> Result<Answer, Failure> {
    let authorization = authorization.map(|value| format!("Authorization: {value}\r\n"));
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: {port}\r\nConnection: close\r\nContent-Length: 0\r\n{}\r\n",
        authorization.unwrap_or_default()
    );
    let failed = |what: String| {
        Failure::baton(format!(
            "{port}: {what}; check that a server has this address in its setting {}",
            if port.tls.is_some() { "https" } else { "http" }
        ))
    };
    let asking = async {
        let stream = TcpStream::connect(port.address).await?;
        let text = match port.tls {
            Some(tls) => {
                let stream = tls.connect(port.host(), stream).await?;
                exchange(stream, &request).await?
            }
            None => exchange(stream, &request).await?,
        };
        io::Result::Ok(text)
    };
    let text = match tokio::time::timeout(PATIENCE, asking).await {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => {
            let failure = TlsFailure::of(&error);
            return Err(match failure {
                Some(TlsFailure::NotTls | TlsFailure::Closed) => Failure::baton(format!(
                    "{port}: it does not speak TLS, which is used there as at the ports for clients; name a port of \
                     the setting https, or write http://{port} if the network keeps strangers away"
                )),
                Some(failure) => Failure::baton(format!("{port}: {failure}")),
                None => failed(error.to_string()),
            });
        }
        Err(_) => return Err(failed("no answer in time".to_owned())),
    };
    Answer::read(&text).ok_or_else(|| failed("the answer is not that of a server".to_owned()))
}

async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &str,
) -> io::Result<String> {
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    stream.take(MAX_BYTES).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
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
