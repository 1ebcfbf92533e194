//! The commands of a server's HTTP port, as `baton server transfer` uses them: one short request a
//! connection.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::exit::Failure;

/// How long an answer may take. The server answers a transfer when it has begun.
const PATIENCE: Duration = Duration::from_secs(10);
/// The status of an answer that wants to know who asks.
const UNAUTHORIZED: u16 = 401;
/// Bytes of an answer.
const MAX_BYTES: u64 = 1 << 20;

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
    address: &str,
    target: &str,
    authorization: Option<&str>,
) -> Result<Answer, Failure> {
    let answer = ask(address, "GET", target, None).await?;
    match (answer.status, authorization) {
        (UNAUTHORIZED, Some(_)) => ask(address, "GET", target, authorization).await,
        _ => Ok(answer),
    }
}

/// Sends one request to the HTTP port `HOST:PORT`. `authorization` is the value of that header.
///
/// # Errors
/// No answer, or one that is not a server's; the text names the address and the remedy.
pub(super) async fn ask(
    address: &str,
    method: &str,
    target: &str,
    authorization: Option<&str>,
) -> Result<Answer, Failure> {
    let authorization = authorization.map(|value| format!("Authorization: {value}\r\n"));
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 0\r\n{}\r\n",
        authorization.unwrap_or_default()
    );
    let failed = |what: String| {
        Failure::baton(format!(
            "{address}: {what}; check that a server has this address in its setting http"
        ))
    };
    let asking = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(MAX_BYTES).read_to_end(&mut answer).await?;
        std::io::Result::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let text = match tokio::time::timeout(PATIENCE, asking).await {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => return Err(failed(error.to_string())),
        Err(_) => return Err(failed("no answer in time".to_owned())),
    };
    Answer::read(&text).ok_or_else(|| failed("the answer is not that of a server".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
