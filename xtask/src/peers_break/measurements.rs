//! One row of the table: what was done, and what each lock did.

use super::OTHERS;

/// Text in place of a measurement that was not made.
const NOT_MADE: &str = "–";

/// A row: an experiment and the locks' measurements.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) what: String,
    pub(super) cells: Vec<String>,
    /// Whether Baton's own lock was held twice, or lost.
    pub(super) ours_broke: bool,
}

/// Measurements of one lock in several runs: one each, 0 where it kept its promise.
#[derive(Debug, Clone, Default)]
pub(super) struct Measurements(Vec<f64>);

impl Measurements {
    pub(super) fn push(&mut self, measurement: f64) {
        self.0.push(measurement);
    }

    pub(super) fn broke(&self) -> bool {
        self.0.iter().any(|measurement| *measurement > 0.0)
    }

    /// Returns the number of runs that broke.
    pub(super) fn broken_runs(&self) -> String {
        let broken = self
            .0
            .iter()
            .filter(|measurement| **measurement > 0.0)
            .count();
        if self.0.is_empty() {
            NOT_MADE.to_owned()
        } else if broken == 0 {
            "0".to_owned()
        } else {
            format!("{broken} of {}", self.0.len())
        }
    }

    /// Median and range, in `digits` after the point; 0 if no run broke.
    pub(super) fn range(&self, digits: usize, unit: &str) -> String {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else {
            return NOT_MADE.to_owned();
        };
        if *last <= 0.0 {
            return "0".to_owned();
        }
        let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
        format!("{median:.digits$}{unit} ({first:.digits$}–{last:.digits$})")
    }
}

impl Row {
    /// A row of one measurement for each lock, in the order of the columns.
    pub(super) fn new(
        what: &str,
        measurements: &[Measurements],
        show: impl Fn(&Measurements) -> String,
    ) -> Self {
        Self {
            what: what.to_owned(),
            cells: measurements.iter().map(show).collect(),
            ours_broke: measurements.iter().skip(OTHERS).any(Measurements::broke),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurements(of: &[f64]) -> Measurements {
        Measurements(of.to_vec())
    }

    #[test]
    fn what_never_broke_is_zero() {
        let never = measurements(&[0.0, 0.0]);
        assert_eq!(
            (never.range(1, " s"), never.broken_runs()),
            ("0".to_owned(), "0".to_owned())
        );
        let often = measurements(&[0.0, 5.26, 4.0]);
        assert_eq!(often.range(1, " s"), "4.0 s (0.0–5.3)");
        assert_eq!(often.broken_runs(), "2 of 3");
        assert_eq!(Measurements::default().broken_runs(), NOT_MADE);
        let others = vec![often.clone(); OTHERS];
        for (ours, broke) in [
            ([&never, &never], false),
            ([&often, &never], true),
            ([&never, &often], true),
        ] {
            let ours = ours.into_iter().cloned();
            let all: Vec<Measurements> = others.iter().cloned().chain(ours).collect();
            assert_eq!(
                Row::new("x", &all, Measurements::broken_runs).ours_broke,
                broke
            );
        }
    }
}
