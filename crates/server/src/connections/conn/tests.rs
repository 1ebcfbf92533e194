//! Outbox of a connection: its order, its bounds, and its writers.

use super::*;
use crate::options::Options;

pub(crate) fn outbound(max_outbound_bytes: usize) -> Arc<Outbound> {
    Outbound::new(&Options {
        max_outbound_bytes,
        ..Options::default()
    })
}

pub(crate) fn conn(id: u32) -> Arc<Conn> {
    Conn::new(id, Peer::Local, Identity::default(), 0, &outbound(4))
}

#[test]
fn answers_to_pings_are_counted_by_themselves() {
    let conn = conn(1);
    let mut wake = Vec::new();
    conn.push(1, &mut wake, |out| out.extend_from_slice(b"one"));
    conn.push_pongs(2, 9, &mut wake);
    let mut out = Vec::new();
    let taken = conn.take(&mut out, usize::MAX);
    assert_eq!((taken.answered, taken.pongs), (3, 2));
    let mut pong = Vec::new();
    frame::write_reply(
        &mut pong,
        ReplyHeader {
            xid: -2,
            zxid: 9,
            err: 0,
        },
        None,
    );
    assert_eq!(out, [b"one".as_slice(), &pong, &pong].concat());
    assert_eq!(conn.take(&mut out, usize::MAX).pongs, 0);
}

#[test]
fn frames_leave_in_the_order_in_which_they_came() {
    let conn = conn(1);
    let mut wake = Vec::new();
    conn.push(1, &mut wake, |out| out.extend_from_slice(b"one"));
    conn.push(1, &mut wake, |out| out.extend_from_slice(b"two"));
    assert_eq!(wake.len(), 1, "a connection is woken once");
    let mut out = b"zero".to_vec();
    let taken = conn.take(&mut out, usize::MAX);
    assert_eq!(out, b"zeroonetwo");
    assert_eq!(taken.answered, 2);
    assert!(taken.closing.is_none());
}

/// Takes a number of bytes, then no more.
struct Pipe {
    room: usize,
    got: Mutex<Vec<u8>>,
}

impl Outlet for Pipe {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut got = self.got.lock();
        let taken = bytes.len().min(self.room - got.len());
        if taken == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        got.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn unread_bytes(&self) -> u64 {
        0
    }
}

struct Woken(AtomicBool);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

/// Pushes `bytes` to a connection whose task waits with an outlet of that room; what the outlet
/// got, what is left to the task, and whether it was woken.
fn answered_while_idle(room: usize, bytes: &[u8], direct: bool) -> (Vec<u8>, Vec<u8>, bool) {
    let conn = Conn::new(1, Peer::Local, Identity::default(), 0, &outbound(1 << 16));
    let pipe = Arc::new(Pipe {
        room,
        got: Mutex::default(),
    });
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    assert!(conn.wait(
        &Waker::from(Arc::clone(&woken)),
        false,
        Some(Arc::clone(&pipe) as Arc<dyn Outlet>)
    ));
    let mut wake = Vec::new();
    conn.push(1, &mut wake, |out| out.extend_from_slice(bytes));
    conn.wake(direct);
    let mut left = Vec::new();
    assert_eq!(conn.take(&mut left, usize::MAX).answered, 1);
    let got = std::mem::take(&mut *pipe.got.lock());
    (got, left, woken.0.load(Relaxed))
}

#[test]
fn a_small_answer_to_an_idle_connection_is_written_at_once() {
    let nothing = Vec::new();
    assert_eq!(
        answered_while_idle(10, b"answer", true),
        (b"answer".to_vec(), nothing.clone(), false)
    );
    assert_eq!(
        answered_while_idle(3, b"answer", true),
        (b"ans".to_vec(), b"wer".to_vec(), true),
        "what the socket does not take is the task's"
    );
    assert_eq!(
        answered_while_idle(0, b"answer", true),
        (nothing.clone(), b"answer".to_vec(), true)
    );
    assert_eq!(
        answered_while_idle(10, b"answer", false),
        (nothing.clone(), b"answer".to_vec(), true)
    );
    let long = vec![7; DIRECT_BYTES + 1];
    assert_eq!(
        answered_while_idle(usize::MAX, &long, true),
        (nothing, long, true)
    );
}

#[test]
fn nothing_is_written_behind_the_back_of_a_task_that_is_awake_or_closing() {
    for closing in [false, true] {
        let conn = conn(1);
        let pipe = Arc::new(Pipe {
            room: 100,
            got: Mutex::default(),
        });
        let mut wake = Vec::new();
        let outlet = Arc::clone(&pipe) as Arc<dyn Outlet>;
        assert!(conn.wait(Waker::noop(), false, Some(outlet)));
        if closing {
            conn.close(CloseReason::SessionClosed, &mut wake);
        } else {
            conn.take(&mut Vec::new(), usize::MAX);
            conn.push(1, &mut wake, |out| out.extend_from_slice(b"answer"));
        }
        conn.wake(true);
        assert!(pipe.got.lock().is_empty());
        assert_eq!(Arc::strong_count(&pipe), 1, "the socket is let go of");
    }
}

#[test]
fn a_client_that_does_not_read_is_closed_not_buffered_for() {
    let conn = conn(1);
    let mut wake = Vec::new();
    for _ in 0..10 {
        conn.push(0, &mut wake, |out| out.extend_from_slice(&[0; 30]));
    }
    let mut out = Vec::new();
    assert_eq!(
        conn.take(&mut out, usize::MAX).closing,
        Some(CloseReason::TooSlow)
    );
    assert!(out.is_empty());
}

#[test]
fn a_task_sleeps_only_where_nothing_has_come_for_it_since_it_looked() {
    let new = || Conn::new(1, Peer::Local, Identity::default(), 0, &outbound(1 << 16));
    let waits = |conn: &Conn, full| conn.wait(Waker::noop(), full, None);
    let mut wake = Vec::new();
    let notified = new();
    assert!(waits(&notified, false));
    notified.push(0, &mut wake, |out| out.extend_from_slice(b"event"));
    assert!(!waits(&notified, false));
    assert!(waits(&notified, true), "it has no room for more");
    notified.close(CloseReason::SessionClosed, &mut wake);
    assert!(!waits(&notified, true));
    let answered = new();
    let pipe = Arc::new(Pipe {
        room: 100,
        got: Mutex::default(),
    });
    assert!(answered.wait(Waker::noop(), false, Some(pipe)));
    answered.push(1, &mut wake, |out| out.extend_from_slice(b"answer"));
    answered.wake(true);
    assert_eq!(answered.waiting_bytes(), 0);
    assert!(!waits(&answered, false), "one request fewer is in flight");
}

#[test]
fn a_connection_that_waits_keeps_no_memory_of_a_burst() {
    let conn = Conn::new(1, Peer::Local, Identity::default(), 0, &outbound(1 << 16));
    let capacity_after = |bytes: usize, mut out: Vec<u8>| {
        conn.push(1, &mut Vec::new(), |out| out.resize(bytes, 7));
        conn.take(&mut out, usize::MAX);
        assert!(conn.wait(Waker::noop(), false, None));
        conn.outbox.lock().bytes.capacity()
    };
    // The task has something already, so that the memory stays here.
    assert_eq!(capacity_after(IDLE_BYTES, vec![0]), IDLE_BYTES);
    assert_eq!(capacity_after(IDLE_BYTES + 1, vec![0]), 0);
    let roomy = Vec::with_capacity(1 << 16);
    assert_eq!(capacity_after(100, roomy), 100, "it keeps its own");
}

#[test]
fn a_client_that_reads_waits_again_each_time_and_one_that_does_not_waits_on() {
    let conn = conn(1);
    assert_eq!(conn.waits_ms(500), 0);
    conn.set_unwritten(100, || 1000);
    assert_eq!(conn.waits_ms(1500), 500);
    conn.set_unwritten(150, || 2000);
    assert_eq!(conn.waits_ms(2500), 1500, "it has read nothing");
    conn.stats.bytes_out.store(99, Relaxed);
    conn.set_unwritten(51, || 3000);
    assert_eq!(conn.waits_ms(3500), 2500, "nor all that waited first");
    conn.stats.bytes_out.store(100, Relaxed);
    conn.set_unwritten(50, || 4000);
    assert_eq!(conn.waits_ms(4500), 500);
    conn.set_unwritten(0, || 5000);
    assert_eq!(conn.waits_ms(5500), 0);
    assert_eq!(conn.outbound.held_bytes(), 0);
}

#[test]
fn runs_of_events_keep_their_place_are_not_copied_and_leave_as_far_as_there_is_room() {
    let conn = Conn::new(1, Peer::Local, Identity::default(), 0, &outbound(1 << 16));
    let mut wake = Vec::new();
    let run = Bytes::from_static(b"events;");
    conn.push(1, &mut wake, |out| out.extend_from_slice(b"reply;"));
    conn.push_shared(&run, &mut wake);
    conn.push_shared(&run, &mut wake);
    conn.push(1, &mut wake, |out| out.extend_from_slice(b"last"));
    assert_eq!(conn.waiting_bytes(), 24);
    let shared = match &conn.outbox.lock().before[1] {
        Piece::Bytes(bytes) => bytes.as_ptr(),
        Piece::Listing(_) => panic!("a run is no listing"),
    };
    assert_eq!(shared, run.as_ptr());
    let mut out = Vec::new();
    let taken = conn.take(&mut out, 10);
    assert_eq!((out.as_slice(), taken.answered), (&b"reply;events;"[..], 0));
    assert_eq!(conn.take(&mut out, 10).answered, 0);
    out.clear();
    assert_eq!(conn.take(&mut out, usize::MAX).answered, 2);
    assert_eq!(out, b"events;last");
    assert_eq!(conn.waiting_bytes(), 0);
}

#[test]
fn a_client_that_does_not_read_runs_of_events_is_closed() {
    let conn = conn(1);
    let mut wake = Vec::new();
    let run = Bytes::from_static(&[0; 30]);
    for _ in 0..10 {
        conn.push_shared(&run, &mut wake);
    }
    let mut out = Vec::new();
    let closing = conn.take(&mut out, usize::MAX).closing;
    assert_eq!(closing, Some(CloseReason::TooSlow));
    assert_eq!((out.len(), conn.waiting_bytes()), (0, 0));
}
