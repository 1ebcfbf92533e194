//! A cell of a table: its text, and its place in the order.
//!
//! Owns how ages, rates and names that others chose are written. Such a name never reaches the
//! terminal as it is: it could command it, or turn the direction of writing.

use std::cmp::Ordering;
use std::time::Duration;

use baton_proto::OneLine;

/// A cell.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pub(super) text: String,
    /// Its place in the order; without one, the order is that of the texts.
    rank: Option<f64>,
}

impl Cell {
    /// A name that somebody else chose.
    pub(super) fn foreign(text: &str) -> Self {
        Self::text(foreign(text))
    }

    /// Words of this program.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            rank: None,
        }
    }

    /// A number, or nothing where it is zero.
    #[allow(
        clippy::cast_precision_loss,
        reason = "only the order of numbers depends on it"
    )]
    pub(super) fn count(count: u64) -> Self {
        Self {
            text: if count == 0 {
                String::new()
            } else {
                count.to_string()
            },
            rank: Some(count as f64),
        }
    }

    /// [`count`](Self::count) of a size.
    pub(super) fn size(count: usize) -> Self {
        Self::count(u64::try_from(count).unwrap_or(u64::MAX))
    }

    /// A token, a term: a number that is never left out.
    pub(super) fn number(number: Option<u64>) -> Self {
        let mut cell = number.map(Self::count).unwrap_or_default();
        if let Some(number) = number {
            cell.text = number.to_string();
        }
        cell
    }

    /// Age of something, in milliseconds.
    #[allow(
        clippy::cast_precision_loss,
        reason = "only the order of ages depends on it"
    )]
    pub(super) fn age(age_ms: Option<i64>) -> Self {
        Self {
            text: age_ms.map(age).unwrap_or_default(),
            rank: Some(age_ms.unwrap_or(-1) as f64),
        }
    }

    /// A rate or a mean; nothing where it is not known.
    pub(super) fn rate(rate: Option<f64>) -> Self {
        Self {
            text: rate.map(decimal).unwrap_or_default(),
            rank: Some(rate.unwrap_or(-1.0)),
        }
    }

    /// This cell with something before its text, in the same place of the order.
    pub(super) fn marked(self, mark: &str) -> Self {
        Self {
            text: format!("{mark}{}", self.text),
            ..self
        }
    }

    pub(super) fn order(&self, other: &Self) -> Ordering {
        match (self.rank, other.rank) {
            (Some(one), Some(other)) => one.total_cmp(&other),
            (one, two) => one
                .is_some()
                .cmp(&two.is_some())
                .then_with(|| self.text.cmp(&other.text)),
        }
    }
}

/// A name that somebody else chose, on one line and without a command to the terminal.
pub(super) fn foreign(text: &str) -> String {
    // What a name has of it would vanish from a cell.
    OneLine(text).to_string().replace('\t', "\\t")
}

/// An age in two units at most.
pub(super) fn age(age_ms: i64) -> String {
    let seconds = Duration::from_millis(u64::try_from(age_ms).unwrap_or(0)).as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{minutes}m{:02}s", seconds % 60),
        3_600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

/// A rate with as many digits as say something.
pub(super) fn decimal(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        small if small < 10.0 => format!("{small:.2}"),
        middle if middle < 100.0 => format!("{middle:.1}"),
        large => format!("{large:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_rates_are_short() {
        let ages = [-5, 999, 61_000, 3_599_999, 3_600_000, 100_000_000, 1 << 50];
        let shown = ages.map(age);
        let expected = [
            "0s",
            "0s",
            "1m01s",
            "59m59s",
            "1h00m",
            "1d03h",
            "13031248d22h",
        ];
        assert_eq!(shown, expected);
        let rates = [0.0, 0.016, 9.5, 12.34, 1_234.5];
        assert_eq!(rates.map(decimal), ["0", "0.02", "9.50", "12.3", "1234"]);
    }

    #[test]
    fn cells_are_in_the_order_of_what_they_say_and_unknown_ones_come_first() {
        let mut cells = [Some(9_000), None, Some(70_000), Some(0)].map(Cell::age);
        cells.sort_by(Cell::order);
        assert_eq!(cells.map(|cell| cell.text), ["", "0s", "9s", "1m10s"]);
        let mut cells = [3, 20, 0].map(Cell::count);
        cells.sort_by(Cell::order);
        assert_eq!(cells.map(|cell| cell.text), ["", "3", "20"]);
    }
}
