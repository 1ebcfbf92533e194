//! A small HTTP listener for probes and operators: of the server, and of programs around it.
//!
//! Owns what one caller can take: connections, bytes of a head, time of a request and of a
//! connection. Knows nothing of what is answered.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use baton_tls::tokio_rustls::TlsAcceptor;
use baton_tls::{ServerTls, failure};
use hyper::body::{Frame, SizeHint};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::error::StartError;

/// Paths that are answered even when no place is free: what a supervisor decides by. Their handlers
/// must cost next to nothing.
pub const PROBES: [&str; 2] = ["/healthz", "/readyz"];

/// Requests at a time, besides probes; more are refused.
const MAX_REQUESTS: usize = 32;
/// Connections at a time. More than requests, so that there is always one that asks for nothing,
/// whose place a new one takes.
const MAX_CONNECTIONS: usize = MAX_REQUESTS + 16;
/// Answers at a time that last as long as their callers want, and those of one address.
const MAX_LASTING: usize = 4_096;
const MAX_LASTING_OF_ADDRESS: usize = 1_024;
/// Duration of an answer that lasts as long as its caller wants.
const LASTING: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Time after which a caller has gone whose machine acknowledges nothing, or takes nothing in.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// Pause before a silent caller's machine is asked for a sign of life, and between two questions.
const PROBE_PAUSE: Duration = Duration::from_secs(5);
/// Bytes of an answer that are handed out at a time.
const PART_BYTES: usize = 64 << 10;
/// Bytes of a request's head.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Limit on the arrival of a head, on making an answer, and on a connection's life.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(120);
/// Pause when the system has no file descriptor left for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens on `HOST:PORT`, and returns the address; port 0 is a free one. Needs a tokio runtime.
///
/// # Errors
/// [`StartError::Listen`] for an invalid address, or one that is taken.
pub async fn bind(address: &str) -> Result<(TcpListener, SocketAddr), StartError> {
    crate::listening::listener::bind(address).await
}

/// Whether a request is for an address, for `localhost` or for the name of this machine. Any site
/// can make another name lead here, and have its pages read what is answered under that name.
#[must_use]
pub fn is_by_own_name(headers: &HeaderMap) -> bool {
    let host = headers
        .get(header::HOST)
        .map(|host| host.to_str().unwrap_or_default());
    host.is_none_or(|host| {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let address = name.trim_start_matches('[').trim_end_matches(']');
        let machine = rustix::system::uname();
        let own = [b"localhost", machine.nodename().to_bytes()];
        let is_own = |own: &&[u8]| !name.is_empty() && own.eq_ignore_ascii_case(name.as_bytes());
        own.iter().any(is_own) || address.parse::<IpAddr>().is_ok()
    })
}

/// Moment until which something may last.
#[derive(Debug, Clone)]
struct Deadline(Arc<Mutex<Instant>>);

impl Deadline {
    fn after(limit: Duration) -> Self {
        Self(Arc::new(Mutex::new(Instant::now() + limit)))
    }

    fn put_off(&self, limit: Duration) {
        let mut at = self.0.lock();
        *at = (*at).max(Instant::now() + limit);
    }

    /// Waits until it is reached, also where it is put off meanwhile.
    async fn reached(&self) {
        loop {
            let at = *self.0.lock();
            if at <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(at).await;
        }
    }
}

/// Lets one answer, and with it its connection, last longer than others may. Handlers can extract
/// it as an extension.
#[derive(Debug, Clone)]
pub struct LongAnswer {
    answer: Deadline,
    connection: Deadline,
    place: Option<Weak<AnswerPermit>>,
}

impl LongAnswer {
    /// From now on the answer may be made and read for this long.
    pub fn may_last(&self, limit: Duration) {
        self.answer.put_off(limit);
        self.connection.put_off(limit);
    }

    /// From now on the answer may last as long as its caller wants. It has a place among such
    /// answers instead of one among the others. `false`: there is none left.
    #[must_use]
    pub fn may_last_on(&self) -> bool {
        let place = self.place.as_ref().and_then(Weak::upgrade);
        let is_placed = place.is_some_and(|place| place.make_lasting());
        if is_placed {
            self.may_last(LASTING);
        }
        is_placed
    }
}

/// The places of answers that last as long as their callers want.
#[derive(Debug, Default)]
struct LastingPlaces {
    taken: Mutex<(usize, HashMap<IpAddr, usize>)>,
}

impl LastingPlaces {
    fn take(self: &Arc<Self>, address: IpAddr) -> Option<LastingPlace> {
        let mut taken = self.taken.lock();
        let (all, by_address) = &mut *taken;
        let of_address = by_address.get(&address).copied().unwrap_or(0);
        if *all >= MAX_LASTING || of_address >= MAX_LASTING_OF_ADDRESS {
            return None;
        }
        *all += 1;
        by_address.insert(address, of_address + 1);
        Some(LastingPlace {
            places: Arc::clone(self),
            address,
        })
    }
}

#[derive(Debug)]
struct LastingPlace {
    places: Arc<LastingPlaces>,
    address: IpAddr,
}

impl Drop for LastingPlace {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        taken.0 -= 1;
        if let Some(of_address) = taken.1.get_mut(&self.address) {
            *of_address -= 1;
            if *of_address == 0 {
                taken.1.remove(&self.address);
            }
        }
    }
}

/// The certificate that the peer has shown and that was verified, in DER.
#[derive(Debug, Clone)]
pub struct CallerCertificate(pub Arc<[u8]>);

/// Answers with `router` until the future is dropped, and its connections with it. Handlers can
/// extract the peer's [`SocketAddr`] as an extension.
///
/// [`PROBES`] are answered whatever else is asked: other requests have a bounded number of places,
/// and where connections are too many, a new one takes the place of one that asks for nothing.
pub async fn serve(router: Router, listener: TcpListener) {
    accept(router, listener, None).await;
}

/// [`serve`] over TLS only. A connection has as long for its handshake as for the head of a
/// request. Where a client has shown a certificate, handlers can extract it as an extension, a
/// [`CallerCertificate`].
pub async fn serve_tls(router: Router, listener: TcpListener, tls: Arc<ServerTls>) {
    accept(router, listener, Some(tls)).await;
}

async fn accept(router: Router, listener: TcpListener, tls: Option<Arc<ServerTls>>) {
    let router = router.layer(middleware::from_fn(in_time));
    let places = Places {
        short: Arc::new(Semaphore::new(MAX_REQUESTS)),
        lasting: Arc::default(),
    };
    let mut connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let peer = crate::listening::listener::canonical(peer);
                end_when_silent(&stream);
                let asks = Arc::new(Asks::default());
                let places = (places.clone(), Arc::clone(&asks), peer.ip());
                let router = router
                    .clone()
                    .layer(middleware::from_fn_with_state(places, in_its_place))
                    .layer(Extension(peer));
                match &tls {
                    Some(tls) => {
                        let acceptor = TlsAcceptor::from(tls.config());
                        let life = serve_with_tls(router, stream, acceptor, peer);
                        connections.add(peer.ip(), asks, life);
                    }
                    None => connections.add(peer.ip(), asks, serve_connection(router, stream)),
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept an HTTP connection; raise the limit of open files if this goes on");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Ends a connection whose other end has vanished, by the kernel's timers. Where they cannot be
/// set, it ends by its own deadline, or when its peer's machine refuses what is sent.
fn end_when_silent(stream: &TcpStream) {
    let _ = sockopt::set_tcp_user_timeout(stream, millis(SILENCE_LIMIT));
    let _ = sockopt::set_tcp_keepidle(stream, PROBE_PAUSE);
    let _ = sockopt::set_tcp_keepintvl(stream, PROBE_PAUSE);
    let _ = sockopt::set_socket_keepalive(stream, true);
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// Requests of one connection that have a place.
#[derive(Debug, Default)]
struct Asks {
    all: AtomicUsize,
    lasting: AtomicUsize,
}

/// The open connections, in the order in which they came.
#[derive(Debug, Default)]
struct Connections {
    tasks: JoinSet<()>,
    open: Vec<Open>,
}

#[derive(Debug)]
struct Open {
    address: IpAddr,
    asks: Arc<Asks>,
    task: AbortHandle,
}

impl Open {
    /// Whether its answer lasts as long as its caller wants: it has a bound of its own.
    fn lasts(&self) -> bool {
        self.asks.lasting.load(Relaxed) > 0
    }
}

impl Connections {
    fn add(
        &mut self,
        address: IpAddr,
        asks: Arc<Asks>,
        life: impl Future<Output = ()> + Send + 'static,
    ) {
        while self.tasks.try_join_next().is_some() {}
        self.open.retain(|open| !open.task.is_finished());
        if self.open.iter().filter(|open| !open.lasts()).count() >= MAX_CONNECTIONS
            && let Some(place) = self.idlest()
        {
            self.open.remove(place).task.abort();
        }
        let task = self.tasks.spawn(life);
        self.open.push(Open {
            address,
            asks,
            task,
        });
    }

    /// The oldest connection that asks for nothing, of the address that has most connections.
    fn idlest(&self) -> Option<usize> {
        let short = || self.open.iter().filter(|open| !open.lasts());
        let of = |address: IpAddr| short().filter(move |open| open.address == address);
        let idle = self.open.iter().enumerate();
        let idle = idle.filter(|(_, open)| open.asks.all.load(Relaxed) == 0);
        let oldest = idle.min_by_key(|(place, open)| {
            let fewer = MAX_CONNECTIONS.saturating_sub(of(open.address).count());
            (fewer, *place)
        });
        oldest.map(|(place, _)| place)
    }
}

async fn serve_with_tls(
    router: Router,
    stream: TcpStream,
    acceptor: TlsAcceptor,
    peer: SocketAddr,
) {
    match tokio::time::timeout(HEAD_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            let (_, session) = stream.get_ref();
            let shown = session.peer_certificates().and_then(<[_]>::first);
            let shown = shown.map(|certificate| CallerCertificate(certificate.as_ref().into()));
            let router = match shown {
                Some(certificate) => router.layer(Extension(certificate)),
                None => router,
            };
            serve_connection(router, stream).await;
        }
        Ok(Err(error)) => {
            let cause = error.get_ref().and_then(|error| error.downcast_ref());
            let cause = cause.map_or_else(|| error.to_string(), failure::explain);
            tracing::debug!(%peer, "an HTTP connection was closed in its TLS handshake: {cause}");
        }
        Err(_) => {
            tracing::debug!(%peer, "an HTTP connection did not complete its TLS handshake in time");
        }
    }
}

async fn serve_connection<S>(router: Router, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let end = Deadline::after(CONNECTION_TIMEOUT);
    let router = router.layer(Extension(end.clone()));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::select! {
        ended = connection => {
            if let Err(error) = ended {
                tracing::debug!(%error, "an HTTP connection broke");
            }
        }
        () = end.reached() => {}
    }
}

async fn in_time(mut request: Request, next: Next) -> Result<Response, Infallible> {
    let answer = Deadline::after(ANSWER_TIMEOUT);
    if let Some(connection) = request.extensions().get::<Deadline>().cloned() {
        let long = LongAnswer {
            answer: answer.clone(),
            connection,
            place: request.extensions().get::<Weak<AnswerPermit>>().cloned(),
        };
        request.extensions_mut().insert(long);
    }
    tokio::select! {
        answered = next.run(request) => Ok(answered),
        () = answer.reached() => Ok((
            StatusCode::SERVICE_UNAVAILABLE,
            "the answer took too long\n",
        )
            .into_response()),
    }
}

/// Gives a request its place until its answer has been handed to the socket. Probes need none.
async fn in_its_place(
    State((places, asks, address)): State<(Places, Arc<Asks>, IpAddr)>,
    mut request: Request,
    next: Next,
) -> Response {
    if PROBES.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let Ok(short) = places.short.try_acquire_owned() else {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            [(header::CONNECTION, "close")],
            format!("{MAX_REQUESTS} requests are being answered; ask again later\n"),
        )
            .into_response();
    };
    asks.all.fetch_add(1, Relaxed);
    let place = Arc::new(AnswerPermit {
        asks,
        address,
        lasting: places.lasting,
        permit: Mutex::new(Permit::Short(short)),
    });
    request.extensions_mut().insert(Arc::downgrade(&place));
    let mut answer = next.run(request).await;
    if place.is_lasting() {
        // Its connection has no deadline any more.
        let close = HeaderValue::from_static("close");
        answer.headers_mut().insert(header::CONNECTION, close);
    }
    answer.map(|body| {
        Body::new(PermittedBody {
            body,
            rest: Bytes::new(),
            _place: place,
        })
    })
}

/// The places of requests.
#[derive(Debug, Clone)]
struct Places {
    short: Arc<Semaphore>,
    lasting: Arc<LastingPlaces>,
}

/// A request's place.
#[derive(Debug)]
struct AnswerPermit {
    asks: Arc<Asks>,
    address: IpAddr,
    lasting: Arc<LastingPlaces>,
    permit: Mutex<Permit>,
}

#[derive(Debug)]
enum Permit {
    Short(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit),
    Lasting(#[expect(dead_code, reason = "held for its drop")] LastingPlace),
}

impl AnswerPermit {
    fn is_lasting(&self) -> bool {
        matches!(*self.permit.lock(), Permit::Lasting(_))
    }

    /// Whether it is now one among those of lasting answers.
    fn make_lasting(&self) -> bool {
        let mut permit = self.permit.lock();
        if let Permit::Short(_) = *permit {
            let Some(lasting) = self.lasting.take(self.address) else {
                return false;
            };
            *permit = Permit::Lasting(lasting);
            self.asks.lasting.fetch_add(1, Relaxed);
        }
        true
    }
}

impl Drop for AnswerPermit {
    fn drop(&mut self) {
        self.asks.all.fetch_sub(1, Relaxed);
        if self.is_lasting() {
            self.asks.lasting.fetch_sub(1, Relaxed);
        }
    }
}

/// An answer that keeps its place, handed out in parts, so that it lasts about as long as its peer
/// takes to read it.
#[derive(Debug)]
struct PermittedBody {
    body: Body,
    rest: Bytes,
    _place: Arc<AnswerPermit>,
}

impl HttpBody for PermittedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => self.rest = bytes,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                end => return Poll::Ready(end),
            }
        }
        let part = PART_BYTES.min(self.rest.len());
        let part = self.rest.split_to(part);
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn a75_lasting_answers_have_a_bound_for_each_address_and_one_for_all() {
        let places = Arc::<LastingPlaces>::default();
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let mut kept = Vec::new();
        for at in 0..4 {
            let of_address = std::iter::from_fn(|| places.take(address(at)));
            let of_address: Vec<_> = of_address.collect();
            assert_eq!(of_address.len(), MAX_LASTING_OF_ADDRESS);
            kept.push(of_address);
        }
        assert!(places.take(address(4)).is_none());
        drop(kept.pop());
        kept.push(std::iter::from_fn(|| places.take(address(4))).collect());
        assert_eq!(kept.last().map(Vec::len), Some(MAX_LASTING_OF_ADDRESS));
        drop(kept);
        assert!(places.taken.lock().1.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_may_last_on_outlives_the_limits_and_leaves_its_place_to_others() {
        let placed = Arc::new(Semaphore::new(0));
        let of_handler = Arc::clone(&placed);
        let lasting = axum::routing::get(async move |long: Extension<LongAnswer>| {
            let is_placed = long.may_last_on();
            of_handler.add_permits(1);
            tokio::time::sleep(CONNECTION_TIMEOUT * 2).await;
            is_placed.to_string()
        });
        let short = axum::routing::get(|| async { "short" });
        let router = Router::new()
            .route("/lasting", lasting)
            .route("/short", short);
        let (listener, at) = bind("127.0.0.1:0").await.unwrap();
        let serving = tokio::spawn(serve(router, listener));
        let ask = async |path: &str| {
            let mut stream = TcpStream::connect(at).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            stream
        };
        let mut lasting = Vec::new();
        for _ in 0..=MAX_CONNECTIONS {
            lasting.push(ask("/lasting").await);
            placed.acquire().await.unwrap().forget();
        }
        let mut first = [0; 12];
        ask("/short").await.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        for mut stream in lasting {
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            assert!(text.starts_with("HTTP/1.1 200"), "{text}");
            assert!(text.ends_with("true"), "{text}");
        }
        serving.abort();
    }

    #[test]
    fn a_name_that_others_can_give_to_this_machine_is_not_its_own() {
        let asked = |host: &str| {
            let mut headers = HeaderMap::new();
            if let Ok(host) = HeaderValue::from_str(host) {
                headers.insert(header::HOST, host);
            }
            is_by_own_name(&headers)
        };
        let uname = rustix::system::uname();
        for own in [
            uname.nodename().to_str().unwrap(),
            "127.0.0.1:80",
            "localhost:9",
            "LOCALHOST",
            "[::1]:80",
            "10.0.0.1",
        ] {
            assert!(asked(own), "{own}");
        }
        for foreign in [
            "evil.example",
            "evil.example:80",
            "localhost.evil:1",
            "127.0.0.1.x:1",
            "",
        ] {
            assert!(!asked(foreign), "{foreign}");
        }
    }
}
