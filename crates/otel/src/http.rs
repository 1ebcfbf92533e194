//! One POST to a collector over HTTP/1.1, plain or with TLS. What a collector answers has a bound,
//! and how long it takes has one over all of it: name, connection, TLS, request and answer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use baton_tls::ClientTls;
use baton_tls::rustls::pki_types::ServerName;
use baton_tls::tokio_rustls::TlsConnector;
use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use opentelemetry_http::{HttpClient, HttpError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// The longest body of an answer that is read.
const ANSWER_BYTES: usize = 64 << 10;

/// Why the last POST failed, for the log: the exporter keeps that to itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastError(Arc<Mutex<String>>);

impl LastError {
    pub(crate) fn text(&self) -> String {
        self.0
            .lock()
            .map_or_else(|_| String::new(), |text| text.clone())
    }

    fn set(&self, text: String) {
        if let Ok(mut last) = self.0.lock() {
            *last = text;
        }
    }
}

/// Sends what the exporter encodes.
#[derive(Debug)]
pub(crate) struct Http {
    pub(crate) tls: Option<ClientTls>,
    pub(crate) timeout: Duration,
    pub(crate) last_error: LastError,
}

#[async_trait]
impl HttpClient for Http {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        // Without what may precede an @: a password.
        let (host, port) = (request.uri().host(), request.uri().port_u16());
        let host = host.unwrap_or_default().to_owned();
        let target = port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
        let sent = tokio::time::timeout(self.timeout, self.send(request)).await;
        let text = match sent {
            Ok(Ok(response)) if response.status().is_success() => return Ok(response),
            Ok(Ok(response)) => {
                let status = response.status();
                self.last_error.set(format!("{target} answers {status}"));
                return Ok(response);
            }
            Ok(Err(error)) => format!("{target}: {error}"),
            Err(_) => format!("{target}: no answer within {:?}", self.timeout),
        };
        self.last_error.set(text.clone());
        Err(text.into())
    }
}

impl Http {
    async fn send(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let uri = request.uri().clone();
        let host = uri.host().ok_or("the URL names no host")?;
        let is_secure = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let authority = uri.authority().ok_or("the URL names no host")?;
        // What precedes an @ is no part of the name of the host.
        let named = authority.as_str().rsplit('@').next().unwrap_or_default();
        let named = HeaderValue::from_str(named)?;
        request.headers_mut().insert(HOST, named);
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = path.parse::<Uri>()?;
        let request = request.map(Full::new);
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((bare, port)).await?;
        stream.set_nodelay(true)?;
        if !is_secure {
            return answer(stream, request).await;
        }
        let tls = self.tls.as_ref().ok_or("no authority is named")?;
        let name = ServerName::try_from(bare.to_owned())?;
        let connector = TlsConnector::from(tls.config());
        answer(connector.connect(name, stream).await?, request).await
    }
}

async fn answer<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, HttpError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = AbortOnDrop(tokio::spawn(connection));
    let response = sender.send_request(request).await?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES).collect().await?.to_bytes();
    drop(connection);
    Ok(Response::from_parts(head, body))
}

/// Ends the task with the request that it is for.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
