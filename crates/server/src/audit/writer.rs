//! The thread that writes the audit record. Owns the pace, and what the log and the record say
//! where lines are lost: the log once in a while why, the record how many.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::file::{AuditFile, Written};
use super::line::{Ending, Operation, Stamp, write_line};
use super::queue::{Page, Queue};
use crate::options::audit::AuditFormat;
use crate::time::ServerTime;

/// The pause between two writes: lines that come meanwhile are written together.
const PAUSE: Duration = Duration::from_millis(10);
/// Interval of complaints in the log.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(60);

/// Destination of the lines.
pub(super) trait Sink: Send {
    fn write(&mut self, lines: &[u8]) -> Written;
}

impl Sink for AuditFile {
    fn write(&mut self, lines: &[u8]) -> Written {
        AuditFile::write(self, lines)
    }
}

/// The log of the server.
#[derive(Debug)]
pub(super) struct Log;

impl Sink for Log {
    fn write(&mut self, lines: &[u8]) -> Written {
        // Lines are ASCII.
        for line in String::from_utf8_lossy(lines).lines() {
            tracing::info!(target: "baton_audit", "{line}");
        }
        Written {
            bytes: lines.len(),
            failure: None,
        }
    }
}

/// Writes what is in the queue.
pub(super) struct Writer<S> {
    pub(super) queue: Arc<Queue>,
    pub(super) sink: S,
    pub(super) format: AuditFormat,
    /// Lines of which the record does not say yet that they are lost.
    unreported: u64,
    next_complaint: Option<Instant>,
}

impl<S: Sink> Writer<S> {
    pub(super) fn new(queue: Arc<Queue>, sink: S, format: AuditFormat) -> Self {
        Self {
            queue,
            sink,
            format,
            unreported: 0,
            next_complaint: None,
        }
    }

    /// Writes until the record ends.
    pub(super) fn run(self) {
        // However the thread ends, and after the sink is dropped: the next server of this process
        // may open the file then.
        let _ended = EndSignal(Arc::clone(&self.queue));
        let mut writer = self;
        let mut page = Page::default();
        loop {
            let taken = writer.queue.take(&mut page);
            writer.write(&page, taken.lost);
            if taken.is_last {
                return;
            }
            writer.queue.pause(PAUSE);
        }
    }

    /// Writes these lines; `lost` ones behind them found no room.
    fn write(&mut self, page: &Page, lost: u64) {
        let mut complete = true;
        if page.lines > 0 {
            let written = self.sink.write(&page.bytes);
            let missing = page.bytes.get(written.bytes..).unwrap_or_default();
            let missing = memchr::memchr_iter(b'\n', missing).count() as u64;
            complete = missing == 0;
            self.queue.lose(missing);
            self.unreported += missing;
            if let Some(failure) = written.failure {
                self.complain(&failure);
            }
        }
        if lost > 0 {
            self.unreported += lost;
            self.complain(
                "its disk takes fewer lines than there are; let audit name a file on a faster one",
            );
        }
        if complete && self.unreported > 0 {
            self.report_lost();
        }
    }

    /// Says in the record how many lines are missing.
    fn report_lost(&mut self) {
        let mut line = Vec::new();
        let at = Stamp::at(ServerTime::new().wall_ms());
        write_line(&mut line, self.format, &at, |fields| {
            fields.word("user", "server");
            fields.operation(Operation::RecordsLost);
            fields.number("lost", self.unreported);
            fields.ending(Ending::Failure);
        });
        if self.sink.write(&line).bytes == line.len() {
            self.unreported = 0;
        }
    }

    fn complain(&mut self, why: &str) {
        let now = Instant::now();
        if self.next_complaint.is_none_or(|next| now >= next) {
            self.next_complaint = Some(now + COMPLAINT_INTERVAL);
            let (_, lost) = self.queue.counts();
            tracing::error!(lost, "writing the audit record failed: {why}");
        }
    }
}

/// Says that the writer has ended.
struct EndSignal(Arc<Queue>);

impl Drop for EndSignal {
    fn drop(&mut self) {
        self.0.ended();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use parking_lot::Mutex;

    use super::*;
    use crate::audit::queue::MOST_BYTES;

    /// Takes these numbers of bytes of the first writes, and all of the others.
    #[derive(Clone, Default)]
    struct Failing(Arc<Mutex<(VecDeque<usize>, Vec<u8>)>>);

    impl Sink for Failing {
        fn write(&mut self, lines: &[u8]) -> Written {
            let (takes, taken) = &mut *self.0.lock();
            let takes = takes.pop_front();
            let bytes = takes.unwrap_or(lines.len()).min(lines.len());
            taken.extend_from_slice(&lines[..bytes]);
            Written {
                bytes,
                failure: takes.map(|_| "no room".to_owned()),
            }
        }
    }

    fn put(queue: &Queue, lines: &[&str]) {
        let mut page = Page {
            bytes: lines.concat().into_bytes(),
            lines: lines.len() as u64,
        };
        queue.put(&mut page, MOST_BYTES);
    }

    /// One turn of the writer.
    fn turn(writer: &mut Writer<Failing>) {
        let mut page = Page::default();
        let taken = writer.queue.take(&mut page);
        writer.write(&page, taken.lost);
    }

    #[test]
    fn lines_that_are_not_written_are_counted_and_the_record_says_how_many() {
        let queue = Arc::new(Queue::default());
        let sink = Failing::default();
        sink.0.lock().0 = [5, 0, 0].into();
        let mut writer = Writer::new(Arc::clone(&queue), sink.clone(), AuditFormat::Text);
        // The first of three is written, and a part of the second.
        put(&queue, &["one\n", "two\n", "three\n"]);
        turn(&mut writer);
        put(&queue, &["four\n"]);
        turn(&mut writer);
        assert_eq!(queue.counts(), (1, 3));
        // The disk takes this line, and not yet the one about the others.
        sink.0.lock().0 = [100, 0].into();
        put(&queue, &["five\n"]);
        turn(&mut writer);
        put(&queue, &["six\n"]);
        turn(&mut writer);
        let text = String::from_utf8(sink.0.lock().1.clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(&lines[..3], ["one", "tfive", "six"], "{text}");
        assert!(
            lines[3].ends_with("\tuser=server\toperation=recordsLost\tlost=3\tresult=failure"),
            "{text}"
        );
        assert_eq!(lines.len(), 4, "{text}");
        assert_eq!(queue.counts(), (3, 3));
    }

    /// Notes whether the record had ended when it was dropped.
    struct Closing(Arc<Queue>, Arc<Mutex<Option<bool>>>);

    impl Sink for Closing {
        fn write(&mut self, lines: &[u8]) -> Written {
            Failing::default().write(lines)
        }
    }

    impl Drop for Closing {
        fn drop(&mut self) {
            *self.1.lock() = Some(self.0.has_ended());
        }
    }

    #[test]
    fn the_file_is_closed_before_the_record_has_ended() {
        let queue = Arc::new(Queue::default());
        let ended_before = Arc::default();
        let sink = Closing(Arc::clone(&queue), Arc::clone(&ended_before));
        queue.end();
        Writer::new(Arc::clone(&queue), sink, AuditFormat::Text).run();
        assert_eq!(*ended_before.lock(), Some(false));
        assert!(queue.has_ended());
    }

    #[test]
    fn lines_that_find_no_room_are_reported_behind_those_that_did() {
        let queue = Arc::new(Queue::default());
        let sink = Failing::default();
        let writer = Writer::new(Arc::clone(&queue), sink.clone(), AuditFormat::Json);
        put(&queue, &["one\n"]);
        let mut large = Page {
            bytes: vec![b'x'; MOST_BYTES],
            lines: 7,
        };
        queue.put(&mut large, MOST_BYTES);
        queue.end();
        writer.run();
        let text = String::from_utf8(sink.0.lock().1.clone()).unwrap();
        let (first, second) = text.split_once('\n').unwrap();
        assert_eq!(first, "one");
        let read: serde_json::Value = serde_json::from_str(second).unwrap();
        assert_eq!(read["lost"], 7, "{text}");
        assert_eq!(queue.counts(), (1, 7));
        queue.wait_for_end(Duration::from_secs(1000));
    }
}
