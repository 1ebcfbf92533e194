//! The engine logs through `slog`; this hands what matters on to `tracing` and drops the rest.

use slog::{Drain, Level, Logger, Never, OwnedKVList, Record, o};

/// Forwards warnings and worse; the engine's chatter about elections is reported by the facade itself.
struct ToTracing;

impl Drain for ToTracing {
    type Ok = ();
    type Err = Never;

    fn log(&self, record: &Record<'_>, _: &OwnedKVList) -> Result<(), Never> {
        match record.level() {
            Level::Critical | Level::Error => tracing::error!("raft: {}", record.msg()),
            Level::Warning => tracing::warn!("raft: {}", record.msg()),
            _ => {}
        }
        Ok(())
    }

    fn is_enabled(&self, level: Level) -> bool {
        level.is_at_least(Level::Warning)
    }
}

/// A logger for the engine.
pub(crate) fn logger() -> Logger {
    Logger::root(ToTracing, o!())
}
