//! The progress of long work as a status line: what is done, how much of it, how fast, and how long
//! it will take. Only on a terminal, and only of work that takes more than a second.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use baton_server::{Progress, Step, Unit};

use crate::duration;
use crate::output::Output;

/// Work that is over sooner is not shown.
const SHORT: Duration = Duration::from_secs(1);
/// Between two lines.
const EVERY: Duration = Duration::from_millis(250);
/// The rate is not known before a step has taken this long.
const RATE_AFTER: Duration = Duration::from_millis(500);

/// Shows progress until it is dropped.
pub(crate) struct ShownProgress {
    /// Dropped when it is over.
    shown: Option<mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl ShownProgress {
    /// On the status line, if there is one.
    pub(crate) fn on_status(output: &Output, progress: &Arc<Progress>) -> Self {
        Self::on_status_with(output, progress, str::to_owned)
    }

    /// [`ShownProgress::on_status`] with lines that `edit` makes of them.
    pub(crate) fn on_status_with(
        output: &Output,
        progress: &Arc<Progress>,
        edit: impl Fn(&str) -> String + Send + 'static,
    ) -> Self {
        if !output.has_status() {
            return Self::nowhere();
        }
        let output = output.clone();
        Self::by(progress, move |line| match line {
            // Meanwhile the process may have been put into the background.
            Some(line) if output.has_status() => output.status(&edit(line)),
            _ => output.clear_status(),
        })
    }

    /// Shows progress by calls of `show` on a thread of its own, the last one without a line.
    pub(crate) fn by(
        progress: &Arc<Progress>,
        mut show: impl FnMut(Option<&str>) + Send + 'static,
    ) -> Self {
        let progress = Arc::clone(progress);
        let (shown, over) = mpsc::channel::<()>();
        let follow = move || {
            let mut pause = SHORT;
            let mut follower = Follower::default();
            loop {
                let ended = over.recv_timeout(pause);
                if ended != Err(RecvTimeoutError::Timeout) {
                    break show(None);
                }
                pause = EVERY;
                let (step, done) = progress.read();
                if let Some(line) = follower.line(step, done, Instant::now()) {
                    show(Some(&line));
                }
            }
        };
        // Work goes on without a display, too.
        let thread = std::thread::Builder::new().name("baton-progress".to_owned());
        Self {
            shown: Some(shown),
            thread: thread.spawn(follow).ok(),
        }
    }

    const fn nowhere() -> Self {
        Self {
            shown: None,
            thread: None,
        }
    }
}

impl Drop for ShownProgress {
    fn drop(&mut self) {
        drop(self.shown.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Follows the steps, for their rates.
#[derive(Default)]
struct Follower {
    /// The step, since when it was followed, and how much of it was done then.
    step: Option<(Step, Instant, u64)>,
}

impl Follower {
    /// The line to show; `None` before the first step.
    fn line(&mut self, step: Step, done: u64, now: Instant) -> Option<String> {
        if step.name.is_empty() {
            return None;
        }
        let (_, begun, from) = *match &mut self.step {
            Some(known) if known.0 == step => known,
            known => known.insert((step, now, done)),
        };
        let took = now.saturating_duration_since(begun);
        let mut line = step.name.to_owned();
        match (done, step.total) {
            (0, 0) => {}
            (_, 0) => line.push_str(&format!(": {}", amount(done, step.unit))),
            (_, total) => {
                let done = done.min(total);
                let done = match step.unit {
                    Unit::Bytes => amount(done, step.unit),
                    Unit::Entries => done.to_string(),
                };
                line.push_str(&format!(": {done} of {}", amount(total, step.unit)));
            }
        }
        let moved = done.saturating_sub(from);
        if took < RATE_AFTER || moved == 0 {
            return Some(line);
        }
        let millis = u128::max(took.as_millis(), 1);
        let rate = u64::try_from(u128::from(moved) * 1000 / millis).unwrap_or(u64::MAX);
        line.push_str(&format!(", {}/s", amount(rate, step.unit)));
        if step.total > done && rate > 0 {
            let left = Duration::from_secs((step.total - done).div_ceil(rate));
            line.push_str(&format!(", {} left", duration::show_age(left)));
        }
        Some(line)
    }
}

/// A number of bytes or entries, for people.
fn amount(count: u64, unit: Unit) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match unit {
        Unit::Entries => format!("{count} entries"),
        Unit::Bytes => match UNITS.iter().find(|(size, _)| count >= *size) {
            Some((size, name)) => {
                let tenths = u128::from(count) * 10 / u128::from(*size);
                format!("{}.{} {name}", tenths / 10, tenths % 10)
            }
            None => format!("{count} B"),
        },
    }
}

/// Counts what is read or written through it.
pub(crate) struct CountedIo<'a, T> {
    pub(crate) inner: T,
    pub(crate) progress: &'a Progress,
}

impl<T: Read> Read for CountedIo<'_, T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.progress.add(read);
        Ok(read)
    }
}

impl<T: Write> Write for CountedIo<'_, T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.progress.add(written);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &'static str, unit: Unit, total: u64) -> Step {
        Step { name, unit, total }
    }

    #[test]
    fn a_line_has_what_is_known() {
        let begun = Instant::now();
        let mut follower = Follower::default();
        let mut line =
            |step, done, seconds| follower.line(step, done, begun + Duration::from_secs(seconds));
        assert_eq!(line(Step::default(), 0, 0), None);
        let reading = step("reading", Unit::Bytes, 10 << 20);
        assert_eq!(line(reading, 0, 0).unwrap(), "reading: 0 B of 10.0 MiB");
        let text = "reading: 2.5 MiB of 10.0 MiB, 1.2 MiB/s, 6s left";
        assert_eq!(line(reading, 5 << 19, 2).unwrap(), text);
        // More than was to be expected: the total was a guess.
        let text = "reading: 10.0 MiB of 10.0 MiB, 5.0 MiB/s";
        assert_eq!(line(reading, 20 << 20, 4).unwrap(), text);
        let syncing = step("syncing", Unit::Bytes, 0);
        assert_eq!(line(syncing, 0, 5).unwrap(), "syncing");
        let replaying = step("replaying", Unit::Entries, 0);
        let counted = step("replaying", Unit::Entries, 9);
        assert_eq!(line(counted, 3, 6).unwrap(), "replaying: 3 of 9 entries");
        assert_eq!(line(replaying, 7, 6).unwrap(), "replaying: 7 entries");
        let text = "replaying: 27 entries, 10 entries/s";
        assert_eq!(line(replaying, 27, 8).unwrap(), text);
    }

    #[test]
    fn the_last_call_has_no_line() {
        let progress = Arc::new(Progress::default());
        progress.begin("working", Unit::Bytes, 0);
        let (line, lines) = mpsc::channel();
        let shown = ShownProgress::by(&progress, move |text| {
            let _ = line.send(text.map(str::to_owned));
        });
        assert_eq!(lines.recv().unwrap().as_deref(), Some("working"));
        drop(shown);
        assert_eq!(lines.iter().last(), Some(None));
    }

    #[test]
    fn bytes_are_counted_on_their_way() {
        let progress = Progress::default();
        let mut counted = CountedIo {
            inner: &b"12345"[..],
            progress: &progress,
        };
        let mut copy = Vec::new();
        counted.read_to_end(&mut copy).unwrap();
        let mut counted = CountedIo {
            inner: Vec::new(),
            progress: &progress,
        };
        counted.write_all(b"678").unwrap();
        assert_eq!((copy.len(), progress.read().1), (5, 8));
    }
}
