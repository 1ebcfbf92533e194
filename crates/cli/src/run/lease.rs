//! The options that say what the lease of a held lock rests on, and what a refused lease means for
//! the user.

use std::time::Duration;

use baton::lock::LockError;
use baton_client::{LeaseError, LeaseMode, LeaseOptions};

use crate::duration;
use crate::exit::{self, Failure};

/// Requests that prove that a session lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// Small writes that a majority of the servers has applied.
    Strict,
    /// Pings: needs --ensemble-tick and --ensemble-sync-limit on Apache ZooKeeper.
    Ping,
}

/// Options of every verb whose session holds something.
///
/// None is needed: the defaults are sound on every ensemble.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct LeaseArgs {
    /// Proof that the session lives [default: ping on Baton's server, else strict].
    ///
    /// A ZooKeeper server answers pings while it is cut off from its leader, so they prove less
    /// there than a write.
    #[arg(hide_long_help = true, long = "lease", value_name = "MODE", value_enum)]
    mode: Option<Mode>,
    /// The tickTime of an Apache ZooKeeper ensemble [default: half the session timeout].
    ///
    /// No effect on Baton's server. The wire does not carry it. State it where minSessionTimeout is
    /// less than two ticks; a shorter tick leaves more time before the lock counts as lost.
    #[arg(hide_long_help = true, long, value_name = "DUR", value_parser = duration::parse_some)]
    ensemble_tick: Option<Duration>,
    /// The syncLimit of an Apache ZooKeeper ensemble, for --lease ping.
    #[arg(hide_long_help = true, long, value_name = "TICKS", value_parser = clap::value_parser!(u32).range(1..))]
    ensemble_sync_limit: Option<u32>,
}

impl LeaseArgs {
    /// These options in the form that the session takes.
    pub(crate) fn options(&self) -> LeaseOptions {
        let mode = match self.mode {
            None => LeaseMode::Auto,
            Some(Mode::Strict) => LeaseMode::Strict,
            Some(Mode::Ping) => LeaseMode::Ping,
        };
        LeaseOptions {
            tick: self.ensemble_tick,
            sync_limit: self.ensemble_sync_limit,
            mode,
            ..LeaseOptions::default()
        }
    }
}

/// Failure where no lease can be kept soundly, with the options that help.
fn refusal(error: &LeaseError) -> String {
    match error {
        LeaseError::TimeoutTooShort {
            timeout,
            tick,
            smallest,
        } => format!(
            "nothing can be held soundly with a session timeout of {} while servers tick every {}: use --session-timeout {} or \
             more, or leave out --lease ping, or state the ensemble's real tickTime with --ensemble-tick",
            duration::show(*timeout),
            duration::show(*tick),
            duration::show(*smallest)
        ),
        LeaseError::TimingNotStated => {
            "--lease ping needs the ensemble's tickTime and syncLimit: state both with --ensemble-tick and \
             --ensemble-sync-limit, or leave out --lease ping"
                .to_owned()
        }
        error => error.to_string(),
    }
}

/// The failure of an acquisition, with the options that help.
pub(crate) fn not_acquired(error: &LockError) -> Failure {
    match error {
        LockError::Lease { path, source } => Failure::baton(format!("{path}: {}", refusal(source))),
        error @ LockError::TimedOut { .. } => {
            Failure::new(exit::BATON, "connection", error.to_string())
        }
        LockError::LockDelay { .. } => Failure::usage(error.to_string()),
        error => Failure::baton(error.to_string()),
    }
}
