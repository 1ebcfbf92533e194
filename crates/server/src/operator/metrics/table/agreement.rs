//! Metrics of what the servers of an ensemble have to agree on: what time it is, which formats all
//! of them can read, and which entries of the log they have.

use baton_tree::FormatLevel;

use super::{Kind, Metric, Source, Value, metrics};
use crate::state::ensemble_status::EnsembleStatus;

/// The rows of the table.
pub(super) static TABLE: &[Metric] = metrics! {
    Gauge "baton_clock_offset_seconds" => |s| {
        s.member(|status| match status.clock_offset_ms {
            Some(offset_ms) => seconds(offset_ms),
            None => Value::Absent,
        })
    };
        "Of an ensemble: by how much this server's wall clock is ahead of what those of a majority show."
    Gauge "baton_server_clock_offset_ms" =>
        |s| s.member(|status| Value::ByServer(status.clock_offsets_ms.clone()));
        "Of an ensemble: for each other server, by how many milliseconds its wall clock is ahead of this one's."
    Gauge "baton_time_ahead_seconds" => |s| {
        let wall_ms = s.state.time.wall_ms();
        let offset_ms = s.ensemble.as_ref().and_then(|it| it.clock_offset_ms);
        let now_ms = wall_ms.saturating_sub(offset_ms.unwrap_or(0));
        seconds(s.state.tree.read().time_ms().saturating_sub(now_ms).max(0))
    };
        "By how much the time of the newest change is ahead of the clock; 0 where it is not."
    Gauge "baton_format_level" => |s| Value::Count(s.state.tree.read().level().number());
        "The format level of the data: earlier versions of Baton, which do not know it, cannot read the data folder."
    Gauge "baton_format_level_newest" => |_| Value::Count(FormatLevel::NEWEST.number());
        "The newest format level that this server can read."
    Gauge "baton_server_format_level_newest" => |s| s.member(levels);
        "Of an ensemble: the newest format level that each other server has said that it can read."
    Gauge "baton_lost_entries" => |s| s.member(|status| Value::Count(status.lost_entries));
        "Of an ensemble: how many committed entries this server had acknowledged and lacks because its data folder was rolled back; 0 once a leader has sent them."
    Gauge "baton_log_gap" => |s| s.member(|status| Value::Count(status.log_gap.is_some().into()));
        "Of an ensemble: 1 while committed entries are missing in this server's log, or at a leader that it therefore does not follow, else 0; /readyz says which."
};

fn levels(status: &EnsembleStatus) -> Value {
    let levels = status.levels.iter();
    Value::ByServer(levels.map(|(id, level)| (*id, (*level).into())).collect())
}

fn seconds(millis: i64) -> Value {
    Value::Real(millis as f64 / 1000.0)
}
