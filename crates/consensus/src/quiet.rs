//! The engine logs through `slog`; this hands what matters on to `tracing` and drops the rest.

use slog::{Drain, Level, Logger, Never, OwnedKVList, Record, o};

/// Forwards warnings and worse; the engine's chatter about elections is reported by the facade
/// itself.
struct TracingDrain;

impl Drain for TracingDrain {
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
    Logger::root(TracingDrain, o!())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::span::{Attributes, Id, Record as Fields};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// Keeps the level of each event.
    #[derive(Clone, Default)]
    struct LevelCache(Arc<Mutex<Vec<tracing::Level>>>);

    impl Subscriber for LevelCache {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Fields<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            self.0.lock().unwrap().push(*event.metadata().level());
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn warnings_and_worse_are_handed_on() {
        let levels = LevelCache::default();
        tracing::subscriber::with_default(levels.clone(), || {
            let logger = logger();
            slog::crit!(logger, "a");
            slog::error!(logger, "b");
            slog::warn!(logger, "c");
            slog::info!(logger, "d");
        });
        let seen = levels.0.lock().unwrap().clone();
        use tracing::Level;
        assert_eq!(seen, [Level::ERROR, Level::ERROR, Level::WARN]);
    }
}
