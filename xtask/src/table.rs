//! Measurements from several rounds, and the tables made of them.

use std::time::Duration;

/// One measured quantity, a value for each round.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series(Vec<f64>);

impl Series {
    /// Adds a round.
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The median; 0 without rounds.
    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match (sorted.get(middle), sorted.len() % 2) {
            (Some(&upper), 0) => (upper + sorted.get(middle - 1).copied().unwrap_or(upper)) / 2.0,
            (Some(&value), _) => value,
            (None, _) => 0.0,
        }
    }
}

/// The time below which this many of a thousand times are; sorts them.
pub(crate) fn quantile(times: &mut [Duration], of_thousand: usize) -> Duration {
    times.sort_unstable();
    let place = (times.len() * of_thousand / 1000).min(times.len().saturating_sub(1));
    times.get(place).copied().unwrap_or_default()
}

/// Count, quantiles and maximum of what took this long.
pub(crate) fn latencies(mut took: Vec<Duration>) -> String {
    let mut at = |part: usize| quantile(&mut took, part).as_secs_f64() * 1000.0;
    let (p50, p99, p999, most) = (at(500), at(990), at(999), at(1000));
    let count = took.len();
    format!("{count}, p50 {p50:.2} ms, p99 {p99:.2} ms, p99.9 {p999:.2} ms, longest {most:.1} ms")
}

/// A measurement for a table: thousands apart, three significant digits below 100.
pub(crate) fn show(value: f64) -> String {
    if value >= 100.0 {
        let whole = format!("{value:.0}");
        let mut text = String::new();
        for (at, digit) in whole.chars().enumerate() {
            if at > 0 && (whole.len() - at).is_multiple_of(3) {
                text.push(' ');
            }
            text.push(digit);
        }
        text
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// Returns the ratio of `value` to `base`.
pub(crate) fn ratio(value: f64, base: f64) -> String {
    if base > 0.0 && value > 0.0 {
        format!("{}×", show(value / base))
    } else {
        "–".to_owned()
    }
}

/// A markdown table.
pub(crate) fn markdown(head: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let rule: Vec<String> = (0..head.len())
        .map(|at| if at == 0 { "---" } else { "---:" }.to_owned())
        .collect();
    [line(&head), line(&rule)]
        .into_iter()
        .chain(rows.iter().map(|row| line(row)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_figures() {
        let mut series = Series::default();
        for value in [5.0, 1.0, 3.0] {
            series.push(value);
        }
        assert_eq!(series.median(), 3.0);
        series.push(4.0);
        assert_eq!(series.median(), 3.5);
        assert_eq!(show(1_234_567.0), "1 234 567");
        assert_eq!(
            (show(12.34).as_str(), show(1.234).as_str()),
            ("12.3", "1.23")
        );
        assert_eq!(ratio(6.0, 2.0), "3.00×");
    }
}
