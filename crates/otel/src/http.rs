//! One POST to a collector over HTTP/1.1, plain or with TLS. What a collector answers has a bound,
//! and how long it takes has one over all of it: name, connection, TLS, request and answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// The longest body of an answer that is read.
const ANSWER_BYTES: usize = 64 << 10;

/// Bytes of a collector's reason that the log shows.
const REASON_BYTES: usize = 256;

/// Facts of a collector's answers that only the exporter needs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Feedback(Arc<Mutex<CollectorAnswer>>);

#[derive(Debug, Default)]
struct CollectorAnswer {
    /// Reason why the last POST failed, for the log.
    cause: String,
    /// Spans that a collector has rejected of those that it was sent, since that was asked last.
    rejected: u64,
}

impl Feedback {
    pub(crate) fn cause(&self) -> String {
        self.said().cause.clone()
    }

    /// Spans that were rejected since this was called last.
    pub(crate) fn take_rejected(&self) -> u64 {
        std::mem::take(&mut self.said().rejected)
    }

    fn failed(&self, cause: String) {
        self.said().cause = cause;
    }

    fn rejected(&self, count: u64, cause: String) {
        *self.said() = CollectorAnswer {
            cause,
            rejected: count,
        };
    }

    /// Nothing under the lock leaves it half-way.
    fn said(&self) -> MutexGuard<'_, CollectorAnswer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the number of spans that a collector's answer rejects, and why, though its status is a
/// success.
fn rejection(answer: &[u8]) -> Option<(u64, String)> {
    let partial = ExportTraceServiceResponse::decode(answer)
        .ok()?
        .partial_success?;
    let count = u64::try_from(partial.rejected_spans).ok()?;
    let mut reason = partial.error_message;
    let ends = (0..=REASON_BYTES).rev();
    let end = ends.into_iter().find(|end| reason.is_char_boundary(*end));
    reason.truncate(end.unwrap_or(0));
    (count > 0).then_some((count, reason))
}

/// Sends what the exporter encodes.
#[derive(Debug)]
pub(crate) struct OtlpClient {
    pub(crate) tls: Option<ClientTls>,
    pub(crate) timeout: Duration,
    pub(crate) feedback: Feedback,
}

#[async_trait]
impl HttpClient for OtlpClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        // Without what may precede an @: a password.
        let (host, port) = (request.uri().host(), request.uri().port_u16());
        let host = host.unwrap_or_default().to_owned();
        let target = port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
        let sent = tokio::time::timeout(self.timeout, self.send(request)).await;
        let text = match sent {
            Ok(Ok(response)) if response.status().is_success() => {
                if let Some((count, reason)) = rejection(response.body()) {
                    let cause = format!("{target} rejects {count} spans: {reason:?}");
                    self.feedback.rejected(count, cause);
                }
                return Ok(response);
            }
            Ok(Ok(response)) => {
                let status = response.status();
                self.feedback.failed(format!("{target} answers {status}"));
                return Ok(response);
            }
            Ok(Err(error)) => format!("{target}: {error}"),
            Err(_) => format!("{target}: no answer within {:?}", self.timeout),
        };
        self.feedback.failed(text.clone());
        Err(text.into())
    }
}

impl OtlpClient {
    async fn send(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let uri = request.uri().clone();
        let host = uri.host().ok_or("the URL names no host")?;
        let is_secure = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let authority = uri.authority().ok_or("the URL names no host")?;
        // What precedes an @ is not part of the name of the host.
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

#[cfg(test)]
mod tests {
    use baton_testkit::{Collector, CollectorBehavior};

    use super::*;

    #[tokio::test]
    async fn the_cause_of_a_failure_names_the_collector_and_not_its_password() {
        for (manners, millis, says) in [
            (CollectorBehavior::Busy, 60_000, " answers 503"),
            (
                CollectorBehavior::Rejecting,
                60_000,
                " rejects 2 spans: \"no room\"",
            ),
            (CollectorBehavior::Silent, 50, ": no answer within 50ms"),
        ] {
            let collector = Collector::start(manners).unwrap();
            let address = collector.url().trim_start_matches("http://").to_owned();
            let http = OtlpClient {
                tls: None,
                timeout: Duration::from_millis(millis),
                feedback: Feedback::default(),
            };
            let url = format!("http://user:secret@{address}/v1/traces");
            let request = Request::post(url).body(Bytes::new()).unwrap();
            let _ = http.send_bytes(request).await;
            let cause = http.feedback.cause();
            assert!(cause.starts_with(&format!("{address}{says}")), "{cause}");
            let rejected = if manners == CollectorBehavior::Rejecting {
                2
            } else {
                0
            };
            assert_eq!(http.feedback.take_rejected(), rejected);
            assert_eq!(http.feedback.take_rejected(), 0);
        }
    }

    /// An answer with this count, and a reason with this number of letters of two bytes.
    fn answer(count: i64, letters: usize) -> Vec<u8> {
        let mut answer = ExportTraceServiceResponse::default();
        let partial = answer.partial_success.get_or_insert_default();
        partial.rejected_spans = count;
        partial.error_message = format!("x{}", "ä".repeat(letters));
        answer.encode_to_vec()
    }

    #[test]
    fn a29_what_a_collector_says_of_rejected_spans_is_read_with_a_bound() {
        let read = |answer: &[u8]| rejection(answer).map(|(count, reason)| (count, reason.len()));
        assert_eq!(read(&answer(1, 3)), Some((1, 7)));
        assert_eq!(read(&answer(3, 5_000)), Some((3, REASON_BYTES - 1)));
        for none in [answer(0, 3), answer(-1, 3), Vec::new(), b"garbage".to_vec()] {
            assert_eq!(read(&none), None);
        }
        let whole = answer(2, 9);
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end]), None, "{end}");
        }
    }
}
