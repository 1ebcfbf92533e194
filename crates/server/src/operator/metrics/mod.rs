//! Every metric of the server in its three forms: `mntr`, `/commands/monitor` and `/metrics`. The
//! metrics themselves are in [`table`].

mod table;

use std::fmt::Write as _;

use baton_proto::Escaped;
use serde_json::{Map, Number, Value as Json};

use self::table::{Kind, Sample, Value, all};
use crate::observers::changes::ObservedTree;
use crate::state::ServerState;
use crate::stats::distribution::Spread;

/// Quantiles of the summaries: in `/metrics`, and with their names in `mntr`.
const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];
const PERCENTILES: [(&str, f64); 4] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)];
/// The bounds of histograms, as powers of two of microseconds: 16 µs to 17 s.
const BOUNDS: std::ops::RangeInclusive<u32> = 4..=24;
const MICROS_PER_SECOND: f64 = 1e6;

/// The metrics by name, without a prefix, as `mntr` and `/commands/monitor` show them: a
/// distribution becomes several values.
fn flat(state: &ServerState) -> Vec<(String, Number)> {
    let sample = Sample::take(state);
    let mut values = Vec::new();
    for metric in all() {
        let (spread, per) = match metric.value(&sample) {
            Value::Count(count) => {
                values.push((metric.name.to_owned(), count.into()));
                continue;
            }
            Value::Signed(number) => {
                values.push((metric.name.to_owned(), number.into()));
                continue;
            }
            Value::ByNamespace(numbers) => {
                let named = numbers.into_iter();
                values.extend(
                    named.map(|(key, number)| (format!("{key}_{}", metric.name), number.into())),
                );
                continue;
            }
            Value::ByServer(numbers) => {
                let named = numbers.into_iter();
                values.extend(
                    named.map(|(id, number)| (format!("{}_{id}", metric.name), number.into())),
                );
                continue;
            }
            // These forms have numbers alone; `envi` and `srvr` show the version.
            Value::Absent | Value::Labels(_) => continue,
            Value::Real(real) => {
                values.push((metric.name.to_owned(), rounded(real, metric.name)));
                continue;
            }
            Value::MillisByServer(spreads) => {
                for (id, spread) in spreads {
                    let name = format!("{id}_{}", metric.name);
                    flat_spread(&mut values, metric.kind, &name, &spread, 1000);
                }
                continue;
            }
            Value::Things(spread) => (spread, 1),
            Value::Millis(spread) => (spread, 1000),
            Value::Seconds(spread) => (spread, 1_000_000),
        };
        flat_spread(&mut values, metric.kind, metric.name, &spread, per);
    }
    values
}

/// The values of a distribution, in units of `per` microseconds or things.
fn flat_spread(
    values: &mut Vec<(String, Number)>,
    kind: Kind,
    of: &str,
    spread: &Spread,
    per: u64,
) {
    let name = |part: &str| format!("{part}_{of}");
    let scaled = |micros: u64| -> Number {
        if kind == Kind::Histogram {
            rounded(micros as f64 / per as f64, of)
        } else {
            (micros / per).into()
        }
    };
    let mean = rounded(spread.mean() / per as f64, of);
    values.push((name("avg"), mean));
    values.push((name("min"), scaled(spread.min)));
    values.push((name("max"), scaled(spread.max)));
    values.push((name("cnt"), spread.count.into()));
    values.push((name("sum"), scaled(spread.sum)));
    for (part, share) in PERCENTILES {
        values.push((name(part), scaled(spread.quantile(share))));
    }
}

/// Four digits behind the point, as ZooKeeper writes them; for seconds, the microseconds.
fn rounded(real: f64, name: &str) -> Number {
    let steps = if name.ends_with("_seconds") {
        MICROS_PER_SECOND
    } else {
        1e4
    };
    Number::from_f64((real * steps).round() / steps).unwrap_or_else(|| 0.into())
}

/// The metrics as lines of `mntr`.
pub(crate) fn as_lines(state: &ServerState, out: &mut String) {
    for (name, value) in flat(state) {
        let _ = writeln!(out, "zk_{}\t{value}", Escaped(&name));
    }
}

/// The metrics as `/commands/monitor` writes them.
pub(crate) fn as_json(state: &ServerState) -> Map<String, Json> {
    flat(state)
        .into_iter()
        .map(|(name, value)| (name, Json::Number(value)))
        .collect()
}

/// Text as the value of a label, between its quotes.
fn label_value(text: &str) -> String {
    let text = Escaped(text).to_string();
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// The metrics in Prometheus's text format, with those of the observer.
pub(crate) fn as_exposition(state: &ServerState) -> String {
    let sample = Sample::take(state);
    let mut out = String::new();
    for metric in all() {
        let name = metric.name;
        let value = metric.value(&sample);
        if let Value::Absent = value {
            continue;
        }
        let _ = writeln!(out, "# HELP {name} {}", metric.help);
        let _ = writeln!(out, "# TYPE {name} {}", metric.kind.name());
        let (spread, per) = match value {
            Value::Absent => continue,
            Value::Count(count) => {
                let _ = writeln!(out, "{name} {count}");
                continue;
            }
            Value::Signed(number) => {
                let _ = writeln!(out, "{name} {number}");
                continue;
            }
            Value::ByNamespace(numbers) => {
                for (key, number) in numbers {
                    let key = label_value(&key);
                    let _ = writeln!(out, "{name}{{key=\"{key}\"}} {number}");
                }
                continue;
            }
            Value::ByServer(numbers) => {
                for (id, number) in numbers {
                    let _ = writeln!(out, "{name}{{server=\"{id}\"}} {number}");
                }
                continue;
            }
            Value::Labels(labels) => {
                let labels = labels.iter();
                let labels: Vec<_> = labels
                    .map(|(label, value)| format!("{label}=\"{}\"", label_value(value)))
                    .collect();
                let _ = writeln!(out, "{name}{{{}}} 1", labels.join(","));
                continue;
            }
            Value::Real(real) => {
                let _ = writeln!(out, "{name} {real}");
                continue;
            }
            Value::MillisByServer(spreads) => {
                for (id, spread) in spreads {
                    let key = format!("key=\"{id}\"");
                    for share in QUANTILES {
                        let value = spread.quantile(share) as f64 / 1000.0;
                        let _ = writeln!(out, "{name}{{{key},quantile=\"{share}\"}} {value}");
                    }
                    let _ = writeln!(out, "{name}_sum{{{key}}} {}", spread.sum as f64 / 1000.0);
                    let _ = writeln!(out, "{name}_count{{{key}}} {}", spread.count);
                }
                continue;
            }
            Value::Things(spread) => (spread, 1.0),
            Value::Millis(spread) => (spread, 1000.0),
            Value::Seconds(spread) => (spread, MICROS_PER_SECOND),
        };
        if metric.kind == Kind::Histogram {
            for power in BOUNDS {
                let bound = 1_u64 << power;
                let _ = writeln!(
                    out,
                    "{name}_bucket{{le=\"{}\"}} {}",
                    bound as f64 / per,
                    spread.below(bound)
                );
            }
            let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {}", spread.count);
        } else {
            for share in QUANTILES {
                let value = spread.quantile(share) as f64 / per;
                let _ = writeln!(out, "{name}{{quantile=\"{share}\"}} {value}");
            }
        }
        let _ = writeln!(out, "{name}_sum {}", spread.sum as f64 / per);
        let _ = writeln!(out, "{name}_count {}", spread.count);
    }
    if let Some(observer) = &state.options.observer {
        let now_ms = state.time.wall_ms();
        let observed = observer.sample(&ObservedTree::new(&state.tree.read()), now_ms);
        let _ = write!(out, "{observed}");
    }
    out
}

#[cfg(test)]
mod tests {
    use baton_consensus::{PeerProgress, Role};

    use super::*;
    use crate::operator::members;

    #[test]
    fn every_figure_has_one_name_and_docs_monitor_shows_it() {
        let docs = include_str!("../../../../../docs/operate/monitor.md");
        let mut names: Vec<_> = all().map(|metric| metric.name).collect();
        for name in &names {
            assert!(
                docs.contains(&format!("`{name}`")),
                "docs/operate/monitor.md does not show {name}"
            );
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().count(), "a name stands for two metrics");
    }

    #[test]
    fn a_leader_shows_how_far_each_server_is_and_a_server_alone_shows_none_of_it() {
        let state = members::tests::member(Role::Leader, Some(2));
        if let Some(status) = &state.ensemble {
            let mut status = status.lock();
            status.connected.insert(3);
            status.has_led_since = Some(state.time.now());
            status.progress = vec![
                PeerProgress {
                    id: 1,
                    matched: 0,
                    active: false,
                    snapshot: 0,
                },
                PeerProgress {
                    id: 3,
                    matched: 7,
                    active: true,
                    snapshot: 0,
                },
            ];
        }
        let exposition = as_exposition(&state);
        for line in [
            "quorum_size 3\n",
            "learners 1\n",
            "synced_followers 1\n",
            "synced_observers 0\n",
            "max_proposal_size -1\n",
            "baton_election_timeout_doubled 0\n",
            "baton_is_leader 1\n",
            "baton_leader_id 2\n",
            "baton_server_connected{server=\"1\"} 0\n",
            "baton_server_connected{server=\"3\"} 1\n",
            "baton_server_match_index{server=\"3\"} 7\n",
        ] {
            assert!(exposition.contains(line), "{line}: {exposition}");
        }
        assert!(as_json(&state).contains_key("leader_uptime"));
        assert_eq!(as_json(&state)["baton_server_match_index_3"], 7);
        state
            .stats
            .replication
            .acknowledged(3, [2000, 4000].into_iter());
        let exposition = as_exposition(&state);
        assert!(exposition.contains("ack_latency_sum{key=\"3\"} 6\n"));
        assert!(exposition.contains("ack_latency_count{key=\"3\"} 2\n"));
        assert_eq!(as_json(&state)["max_3_ack_latency"], 4);
        let alone = crate::state::tests::state(crate::options::Options::default());
        let alone = as_exposition(&alone);
        for name in [
            "quorum_size",
            "learners",
            "leader_uptime",
            "baton_term",
            "proposal_size",
            "election_time",
        ] {
            assert!(!alone.contains(name), "{name}: {alone}");
        }
    }

    /// Checks that none of ZooKeeper's metrics, those that a server of 3.8.0 shows and those that
    /// its source of 3.10 names, is passed over in silence.
    #[test]
    fn every_figure_of_zookeepers_is_here_or_a_list_says_why_not() {
        let absent: Vec<&str> = include_str!("zookeeper-absent.txt")
            .lines()
            .filter_map(|line| line.split_once(": "))
            .flat_map(|(names, _)| names.split(' '))
            .collect();
        let stands_for = |pattern: &str, name: &str| {
            let mut rest = name;
            let parts: Vec<&str> = pattern.split('*').collect();
            let (first, last) = (parts[0], parts[parts.len() - 1]);
            let whole = parts.len() == 1 && name == pattern;
            whole
                || parts.len() > 1
                    && name.starts_with(first)
                    && name.ends_with(last)
                    && parts.iter().all(|part| {
                        let found = rest.find(part);
                        rest = found.map_or("", |at| &rest[at + part.len()..]);
                        found.is_some()
                    })
        };
        let here: Vec<&str> = all().map(|metric| metric.name).collect();
        for name in include_str!("zookeeper-names.txt").lines() {
            let shown = here.contains(&name);
            let excused = absent.iter().any(|pattern| stands_for(pattern, name));
            assert!(shown || excused, "{name} is neither shown nor excused");
        }
    }
}
