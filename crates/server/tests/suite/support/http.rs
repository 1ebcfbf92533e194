//! The smallest HTTP client: one request a connection.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::PATIENCE;

/// Status and body of the answer. `more` is header lines, each with its end.
pub async fn ask(
    to: SocketAddr,
    method: &str,
    path: &str,
    more: &str,
    body: &str,
) -> (u16, String) {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n{more}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = async {
        let mut stream = TcpStream::connect(to).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = tokio::time::timeout(PATIENCE, answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

pub async fn get(to: SocketAddr, path: &str) -> (u16, String) {
    ask(to, "GET", path, "", "").await
}
