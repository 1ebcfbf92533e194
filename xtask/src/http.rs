//! Asks an HTTP server of this machine.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::Result;

/// Returns the answer to a GET, head and body. Each line of `headers` ends with CR LF.
///
/// # Errors
/// No connection, or an answer that stops for longer than `patience`.
pub(crate) fn get(
    address: impl ToSocketAddrs,
    path: &str,
    headers: &str,
    patience: Duration,
) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(patience))?;
    // HTTP/1.0: the answer has an end, and comes in one piece.
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
