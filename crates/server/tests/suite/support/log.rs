//! The log of the process that a test runs in.

use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex};

#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Takes the log of the whole process from its first use on.
pub static LOG: LazyLock<Log> = LazyLock::new(|| {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .with_max_level(tracing::level_filters::LevelFilter::INFO)
        .init();
    log
});

/// The lines with this in them.
pub fn lines(with: &str) -> Vec<String> {
    let log = String::from_utf8(LOG.0.lock().unwrap().clone()).unwrap();
    let lines = log.lines().filter(|line| line.contains(with));
    lines.map(str::to_owned).collect()
}
