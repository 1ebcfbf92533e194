//! Accepts connections of other servers. How many wait for their handshake, and how long, is
//! limited: a further connection takes the place of the one that has waited longest, so strangers
//! cannot keep a server out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use crate::codec::{Hello, Refusal};
use crate::net::connection;
use crate::net::counters::add;
use crate::net::dialling::Diallers;
use crate::net::events::{Direction, EndCause, PeerEvent, RefusedBy};
use crate::net::exchange::{self, HandshakeError};
use crate::net::shared::TransportState;
use crate::net::stream::Acceptor;

/// Pause when the system has no connection to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections that wait for their handshake, the oldest first.
#[derive(Default)]
struct Handshakes {
    next: u64,
    waiting: VecDeque<(u64, oneshot::Sender<()>)>,
}

/// Place of one connection among those that wait. It is given up when this is dropped.
struct AcceptPermit {
    number: u64,
    handshakes: Arc<Mutex<Handshakes>>,
}

impl Drop for AcceptPermit {
    fn drop(&mut self) {
        let mut handshakes = self.handshakes.lock();
        handshakes
            .waiting
            .retain(|(number, _)| *number != self.number);
    }
}

/// Takes a place, that of the oldest when there is no other. The receiver ends when somebody else
/// takes this one.
fn take_place(
    handshakes: &Arc<Mutex<Handshakes>>,
    limit: usize,
) -> (AcceptPermit, oneshot::Receiver<()>) {
    let (sender, receiver) = oneshot::channel();
    let mut state = handshakes.lock();
    state.next += 1;
    let number = state.next;
    while state.waiting.len() >= limit.max(1) {
        state.waiting.pop_front();
    }
    state.waiting.push_back((number, sender));
    drop(state);
    let place = AcceptPermit {
        number,
        handshakes: Arc::clone(handshakes),
    };
    (place, receiver)
}

/// Accepts until the transport stops. Each task holds a clone of `token` while it runs.
pub(crate) async fn accept<A: Acceptor>(
    shared: Arc<TransportState>,
    dialling: Arc<Diallers>,
    acceptor: Arc<A>,
    token: mpsc::Sender<()>,
) {
    let handshakes = Arc::default();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shared.stopped() => return,
            accepted = acceptor.accept() => accepted,
        };
        match accepted {
            Ok((incoming, remote)) => {
                add(&shared.counters.accepted, 1);
                let (place, crowded_out) =
                    take_place(&handshakes, shared.options.limits.handshakes);
                let serve = serve(
                    Arc::clone(&shared),
                    Arc::clone(&dialling),
                    Arc::clone(&acceptor),
                    incoming,
                    remote,
                    (place, crowded_out),
                );
                let token = token.clone();
                tokio::spawn(async move {
                    serve.await;
                    drop(token);
                });
            }
            Err(error) => {
                shared.events.event(PeerEvent::AcceptFailed {
                    error: error.to_string(),
                });
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The whole life of one accepted connection.
async fn serve<A: Acceptor>(
    shared: Arc<TransportState>,
    dialling: Arc<Diallers>,
    acceptor: Arc<A>,
    incoming: A::Incoming,
    remote: String,
    (place, crowded_out): (AcceptPermit, oneshot::Receiver<()>),
) {
    let limit = shared.options.timing.handshake_timeout;
    let handshake = async {
        let stream = acceptor.secure(incoming).await?;
        let verify = |stream: &A::Stream, hello: &Hello| {
            let address = shared.address(hello.from);
            let verified = acceptor.verify(stream, hello.from, address.as_deref());
            let Some(former) = shared.former_address(hello.from) else {
                return verified;
            };
            let as_former = acceptor.verify(stream, hello.from, Some(&former));
            if verified.is_ok() && as_former.is_err() {
                shared.has_moved(hello.from);
            }
            verified.or_else(|refusal| as_former.map_err(|_| refusal))
        };
        exchange::accept(&shared, stream, verify).await
    };
    let outcome = tokio::select! {
        biased;
        () = shared.stopped() => return,
        outcome = timeout(limit, handshake) => outcome,
        _ = crowded_out => {
            add(&shared.counters.crowded_out, 1);
            let limit = u32::try_from(shared.options.limits.handshakes).unwrap_or(u32::MAX);
            refused(&shared, remote, RefusedBy::Us, Refusal::Busy { limit }, None);
            return;
        }
    };
    drop(place);
    match outcome {
        Ok(Ok(opened)) => {
            let peer = shared.peer(opened.hello.from);
            dialling.connected_from(&opened.hello);
            drop(dialling);
            connection::run(&shared, &peer, opened, Direction::Inbound, || true).await;
        }
        Ok(Err(HandshakeError::ByUs(refusal, hello))) => {
            refused(&shared, remote, RefusedBy::Us, refusal, hello);
        }
        Ok(Err(HandshakeError::ByThem(refusal))) => {
            refused(&shared, remote, RefusedBy::Them, refusal, None);
        }
        Ok(Err(HandshakeError::Ended(EndCause::Tls(failure)))) => {
            add(&shared.counters.tls_failed, 1);
            let event = PeerEvent::TlsFailed { remote, failure };
            shared.events.event(event);
        }
        // Anyone who looks whether the port is open closes it without a word.
        Ok(Err(HandshakeError::Ended(_))) => {}
        Err(_) => {
            let after_ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
            let refusal = Refusal::Late { after_ms };
            refused(&shared, remote, RefusedBy::Us, refusal, None);
        }
    }
}

fn refused(
    shared: &TransportState,
    remote: String,
    by: RefusedBy,
    refusal: Refusal,
    hello: Option<Hello>,
) {
    add(&shared.counters.refused, 1);
    if matches!(refusal, Refusal::Foreign(_)) {
        add(&shared.counters.foreign, 1);
    }
    shared.events.event(PeerEvent::Refused {
        peer: hello.as_ref().map(|hello| hello.from),
        remote,
        by,
        refusal,
        hello,
    });
}
