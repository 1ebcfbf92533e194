//! Standard error, for processes that must not wait for its reader: what they write goes through a
//! thread of its own. A reader that stops, a pipe that is closed and a full disk cost
//! lines, which are counted and reported, and no time. Decides nothing about what a line says.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Bytes that wait for the reader, at most.
const MOST_WAITING: usize = 4 << 20;
/// Bytes that are written at once, unless one line has more: a pipe takes these in one piece, and
/// lines of several processes do not mix.
const PIECE: usize = 4096;

/// Report of the loss of a number of lines: a whole line.
type Report = fn(u64) -> String;

/// The lines of this process that wait, once it has a thread for them.
static STREAM: OnceLock<Arc<ErrorStream>> = OnceLock::new();

/// From now on nobody in this process waits for standard error. Does nothing a second time.
pub(crate) fn start(report: Report) {
    let stream = Arc::new(ErrorStream::default());
    let own = Arc::clone(&stream);
    let spawned = std::thread::Builder::new()
        .name("baton-log".to_owned())
        .spawn(move || own.run(report, &mut write_piece));
    // Without a thread, everything is written at once, as before.
    if spawned.is_ok() {
        let _ = STREAM.set(stream);
    }
}

/// Writes `bytes` to standard error: at once, or after [`start`] as soon as it is their turn.
/// A slow reader does not delay the caller then.
pub(crate) fn write(bytes: &[u8]) {
    match STREAM.get() {
        Some(stream) => stream.add(bytes),
        None => {
            let _ = io::Write::write_all(&mut io::stderr().lock(), bytes);
        }
    }
}

/// Waits until everything is written, but no longer than `limit`.
pub(crate) fn flush(limit: Duration) {
    if let Some(stream) = STREAM.get() {
        stream.flush(limit);
    }
}

/// Number of lines that standard error has not taken, since the start.
pub(crate) fn lost_lines() -> Arc<AtomicU64> {
    STREAM
        .get()
        .map_or_else(Arc::default, |stream| Arc::clone(&stream.lost))
}

/// Writes what standard error takes at once, or waits until it takes something. Without the lock
/// of the standard library: a panic elsewhere must not wait for it.
fn write_piece(bytes: &[u8]) -> Result<usize, Errno> {
    let stderr = io::stderr();
    loop {
        match rustix::io::write(stderr.as_fd(), bytes) {
            Err(Errno::INTR) => {}
            // Another process that has the same terminal or pipe has made it so.
            Err(Errno::AGAIN) => {
                let mut writable = [PollFd::new(&stderr, PollFlags::OUT)];
                let _ = poll(&mut writable, None);
            }
            outcome => return outcome,
        }
    }
}

/// Lines on their way to a file or pipe that may take them late or never.
#[derive(Debug, Default)]
struct ErrorStream {
    waiting: Mutex<StreamBuffer>,
    /// Something waits.
    filled: Condvar,
    /// Nothing waits any more.
    emptied: Condvar,
    lost: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct StreamBuffer {
    bytes: Vec<u8>,
    /// Lines that found no room behind these bytes.
    refused: u64,
    /// Whether bytes that do not wait any more are being written.
    is_writing: bool,
}

impl ErrorStream {
    fn waiting(&self) -> MutexGuard<'_, StreamBuffer> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, bytes: &[u8]) {
        let mut waiting = self.waiting();
        // What has found no room is reported where it is missing: nothing follows it before.
        if waiting.refused > 0 || waiting.bytes.len() + bytes.len() > MOST_WAITING {
            let lines = lines_in(bytes);
            waiting.refused += lines;
            self.lost.fetch_add(lines, Relaxed);
            return;
        }
        waiting.bytes.extend_from_slice(bytes);
        drop(waiting);
        self.filled.notify_one();
    }

    fn flush(&self, limit: Duration) {
        let begun = Instant::now();
        let mut waiting = self.waiting();
        while waiting.is_writing || !waiting.bytes.is_empty() {
            let Some(left) = limit.checked_sub(begun.elapsed()) else {
                return;
            };
            let woken = self.emptied.wait_timeout(waiting, left);
            (waiting, _) = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Writes what comes, by `write`, for ever.
    fn run(&self, report: Report, write: &mut dyn FnMut(&[u8]) -> Result<usize, Errno>) {
        let mut failed = UnwrittenLines::default();
        loop {
            let (bytes, refused) = self.take();
            let lines = failed.deliver(&bytes, refused, report, write);
            self.lost.fetch_add(lines, Relaxed);
            let mut waiting = self.waiting();
            waiting.is_writing = false;
            if waiting.bytes.is_empty() {
                self.emptied.notify_all();
            }
        }
    }

    /// Takes what waits, once something does.
    fn take(&self) -> (Vec<u8>, u64) {
        let mut waiting = self.waiting();
        while waiting.bytes.is_empty() {
            let woken = self.filled.wait(waiting);
            waiting = woken.unwrap_or_else(PoisonError::into_inner);
        }
        waiting.is_writing = true;
        let bytes = std::mem::take(&mut waiting.bytes);
        (bytes, std::mem::take(&mut waiting.refused))
    }
}

/// Lines that could not be written and are to be reported as soon as something can be.
#[derive(Debug, Default)]
struct UnwrittenLines {
    lines: u64,
    /// Whether the last line that was written has no end.
    is_torn: bool,
}

impl UnwrittenLines {
    /// Writes these bytes, after the report of what failed before; then that `refused` lines are
    /// missing behind them. How many lines of the bytes are lost.
    fn deliver(
        &mut self,
        bytes: &[u8],
        refused: u64,
        report: Report,
        write: &mut dyn FnMut(&[u8]) -> Result<usize, Errno>,
    ) -> u64 {
        let mut before = String::new();
        if self.is_torn {
            before.push('\n');
        }
        if self.lines > 0 {
            before.push_str(&report(self.lines));
        }
        let mut left = bytes;
        if self.write(before.as_bytes(), write).is_empty() {
            self.lines = 0;
            left = self.write(bytes, write);
        }
        let lines = lines_in(left);
        self.lines += lines;
        if refused > 0 {
            let report = report(refused);
            let is_reported = lines == 0 && self.write(report.as_bytes(), write).is_empty();
            self.lines += if is_reported { 0 } else { refused };
        }
        lines
    }

    /// Writes in pieces of whole lines. What is left has failed: it is not tried again before there
    /// is more to write, since a disk stays full for a while, and a pipe has no reader for ever.
    fn write<'a>(
        &mut self,
        mut bytes: &'a [u8],
        write: &mut dyn FnMut(&[u8]) -> Result<usize, Errno>,
    ) -> &'a [u8] {
        while !bytes.is_empty() {
            let (piece, _) = bytes.split_at(piece_of(bytes));
            let Ok(written @ 1..) = write(piece) else {
                break;
            };
            let (done, left) = bytes.split_at(written.min(bytes.len()));
            self.is_torn = done.last() != Some(&b'\n');
            bytes = left;
        }
        bytes
    }
}

/// Returns the number of these bytes that are written at once: whole lines, if there are any.
fn piece_of(bytes: &[u8]) -> usize {
    let end_in = |part: &[u8]| part.iter().rposition(|byte| *byte == b'\n');
    let most = bytes.get(..PIECE).unwrap_or(bytes);
    let first = || bytes.iter().position(|byte| *byte == b'\n');
    end_in(most)
        .or_else(first)
        .map_or(bytes.len(), |end| end + 1)
}

/// Counts these lines; one without an end counts, too.
fn lines_in(bytes: &[u8]) -> u64 {
    let ends = bytes.iter().filter(|byte| **byte == b'\n').count();
    let torn = bytes.last().is_some_and(|byte| *byte != b'\n');
    ends as u64 + u64::from(torn)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn report(lines: u64) -> String {
        format!("lost {lines}\n")
    }

    /// A stream whose reader takes a piece whenever the test sends how it fares.
    fn stream() -> (
        Arc<ErrorStream>,
        mpsc::Sender<Result<usize, Errno>>,
        mpsc::Receiver<String>,
    ) {
        let stream = Arc::new(ErrorStream::default());
        let (allow, allowed) = mpsc::channel();
        let (wrote, written) = mpsc::channel();
        let own = Arc::clone(&stream);
        std::thread::spawn(move || {
            own.run(report, &mut |bytes| {
                let outcome = allowed.recv().unwrap_or(Err(Errno::PIPE));
                let outcome = outcome.map(|most: usize| most.min(bytes.len()));
                let text = String::from_utf8_lossy(&bytes[..outcome.unwrap_or(0)]);
                let _ = wrote.send(text.into_owned());
                outcome
            });
        });
        (stream, allow, written)
    }

    #[test]
    fn a_reader_that_stops_costs_lines_which_are_reported_where_they_are_missing() {
        let (stream, allow, written) = stream();
        stream.add(b"first\n");
        // The thread has taken it, and its reader takes nothing.
        while !stream.waiting().bytes.is_empty() {
            std::thread::yield_now();
        }
        let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
        let fitting = MOST_WAITING / line.len();
        for _ in 0..fitting + 3 {
            stream.add(&line);
        }
        // No short line slips in behind those that found no room.
        stream.add(b"late\n");
        assert_eq!(stream.lost.load(Relaxed), 4);
        stream.flush(Duration::ZERO);
        for _ in 0..fitting {
            let _ = allow.send(Ok(usize::MAX));
        }
        stream.flush(Duration::from_secs(60));
        stream.add(b"after\n");
        stream.flush(Duration::from_secs(60));
        let text: String = written.try_iter().collect();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + fitting + 2);
        assert_eq!(lines[0], "first");
        assert_eq!(lines[fitting + 1..], ["lost 4", "after"]);
    }

    #[test]
    fn what_a_full_disk_did_not_take_is_reported_on_a_line_of_its_own_when_there_is_room() {
        let (stream, allow, written) = stream();
        allow.send(Ok(2)).unwrap();
        allow.send(Err(Errno::NOSPC)).unwrap();
        stream.add(b"one\ntwo\n");
        stream.flush(Duration::from_secs(60));
        assert_eq!(stream.lost.load(Relaxed), 2);
        allow.send(Err(Errno::NOSPC)).unwrap();
        stream.add(b"three\n");
        stream.flush(Duration::from_secs(60));
        // The report, and the line.
        allow.send(Ok(usize::MAX)).unwrap();
        allow.send(Ok(usize::MAX)).unwrap();
        stream.add(b"four\n");
        stream.flush(Duration::from_secs(60));
        let text: String = written.try_iter().collect();
        assert_eq!(text, "on\nlost 3\nfour\n");
        assert_eq!(stream.lost.load(Relaxed), 3);
    }

    #[test]
    fn pieces_are_whole_lines_unless_one_line_is_longer() {
        assert_eq!(piece_of(b"one\ntwo\nthr"), 8);
        assert_eq!(piece_of(b"torn"), 4);
        let long = [b"x".repeat(PIECE), b"\nnext\n".to_vec()].concat();
        assert_eq!(piece_of(&long), PIECE + 1);
        assert_eq!(lines_in(b"a\nb"), 2);
        assert_eq!(lines_in(b"a\nb\n"), 2);
        assert_eq!(lines_in(b""), 0);
    }
}
