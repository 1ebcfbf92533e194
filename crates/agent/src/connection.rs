//! One connection of a caller: HTTP/1.1 or 1.0 until a response of JSON lines begins. From then on
//! the lines are written without the HTTP library, whose buffers are most of what a guard would
//! weigh. A caller of HTTP/1.0 gets them as they are, without chunks.

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::io;
use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, Method, Request, Response, Version, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use crate::caller::Caller;
use crate::events::JSON_LINES;

/// Longest time in which a head may arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Answers the requests of a caller until it closes the connection.
pub(crate) async fn serve(stream: UnixStream, caller: Caller, routes: Router) {
    // Boxed and dropped here, so that the future of a held lock stays small.
    let begun = Box::pin(serve_http(stream, caller, routes)).await;
    let Some((stream, version, lines)) = begun else {
        return;
    };
    if let Err(error) = write(stream, version, lines).await {
        tracing::debug!(%error, "a caller has gone");
    }
}

/// Answers requests until one is answered by lines: returns the socket, the version that the
/// caller speaks, and the lines.
async fn serve_http(
    stream: UnixStream,
    caller: Caller,
    routes: Router,
) -> Option<(UnixStream, Version, Body)> {
    let routes = TowerToHyperService::new(routes);
    let (sender, mut begun) = mpsc::channel(1);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(caller.clone());
        let version = request.version();
        let wants_body = request.method() != Method::HEAD;
        let answering = routes.call(request);
        let sender = sender.clone();
        async move {
            let response = answering.await?;
            if wants_body && is_lines(&response) {
                // The connection is not polled any more once they are received.
                let _ = sender.send((version, response.into_body())).await;
                return pending().await;
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        biased;
        served = &mut connection => {
            if let Err(error) = served {
                tracing::debug!(%error, "a connection has ended");
            }
            None
        }
        Some((version, lines)) = begun.recv() => {
            Some((connection.into_parts().io.into_inner(), version, lines))
        }
    }
}

fn is_lines(response: &Response<Body>) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| *kind == HeaderValue::from_static(JSON_LINES))
}

/// Writes lines as they come, in chunks for HTTP/1.1, until their end or the caller's.
async fn write(mut stream: UnixStream, version: Version, mut lines: Body) -> io::Result<()> {
    let is_chunked = version == Version::HTTP_11;
    let coding = match is_chunked {
        true => "transfer-encoding: chunked\r\n",
        false => "",
    };
    let head = format!(
        "{version:?} 200 OK\r\ncontent-type: {JSON_LINES}\r\n{coding}connection: close\r\n\r\n"
    );
    let mut bytes = head.into_bytes();
    loop {
        let line = tokio::select! {
            biased;
            line = next(&mut lines) => line,
            closed = closed(&stream) => return closed,
        };
        match &line {
            Some(line) if is_chunked => {
                bytes.extend_from_slice(format!("{:x}\r\n", line.len()).as_bytes());
                bytes.extend_from_slice(line);
                bytes.extend_from_slice(b"\r\n");
            }
            Some(line) => bytes.extend_from_slice(line),
            None if is_chunked => bytes.extend_from_slice(b"0\r\n\r\n"),
            None => {}
        }
        stream.write_all(&bytes).await?;
        if line.is_none() {
            return Ok(());
        }
        bytes = Vec::new();
    }
}

async fn next(lines: &mut Body) -> Option<Bytes> {
    let frame = poll_fn(|cx| Pin::new(&mut *lines).poll_frame(cx)).await;
    frame.and_then(Result::ok)?.into_data().ok()
}

/// Waits until the caller has closed its end. What it sends is not read as a request.
async fn closed(stream: &UnixStream) -> io::Result<()> {
    let mut ignored = [0; 64];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut ignored) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}
