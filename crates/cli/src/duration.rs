//! Durations as people type them: `500ms`, `5s`, `2m`, `1h`.
//!
//! The crate `humantime` does not serve here: it takes whole numbers only, and `1.5s` is accepted.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Reads a duration with its unit; a bare `0` needs none.
///
/// # Errors
/// Text that says what was wrong and what is right, for the argument parser to show.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let complaint = || {
        format!("'{text}' is not a duration; write a number and a unit, like 500ms, 5s, 2m or 1h")
    };
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let split = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .ok_or_else(complaint)?;
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().map_err(|_| complaint())?;
    let seconds = match unit {
        "ms" => number / 1e3,
        "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        "d" => number * 86400.0,
        _ => return Err(complaint()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| complaint())
}

/// Reads a duration as [`parse`] does, and refuses zero.
///
/// # Errors
/// As `parse`, and for zero.
pub(crate) fn parse_some(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("it must be longer than 0".to_owned()),
        some => Ok(some),
    }
}

/// A duration for people: the coarsest unit that says it without a fraction worth mentioning.
pub(crate) fn show(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0..1_000 => format!("{millis}ms"),
        1_000..60_000 if millis.is_multiple_of(1_000) => format!("{}s", millis / 1_000),
        1_000..60_000 => format!("{:.1}s", duration.as_secs_f64()),
        _ if millis.is_multiple_of(3_600_000) => format!("{}h", millis / 3_600_000),
        _ if millis.is_multiple_of(60_000) => format!("{}m", millis / 60_000),
        _ => format!("{}m{}s", millis / 60_000, millis % 60_000 / 1_000),
    }
}

/// Shows an age by clocks that may differ: in whole seconds.
pub(crate) fn show_age(age: Duration) -> String {
    match age.as_secs() {
        0 => "less than 1s".to_owned(),
        seconds => show(Duration::from_secs(seconds)),
    }
}

/// Shows the age of a moment that another clock gave, in milliseconds since 1970: see [`show_age`].
pub(crate) fn show_since(since_ms: i64) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let since = Duration::from_millis(u64::try_from(since_ms).unwrap_or_default());
    show_age(now.saturating_sub(since))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("1.5s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(parse("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse("0"), Ok(Duration::ZERO));
    }

    #[test]
    fn a_number_without_unit_is_refused_with_the_remedy() {
        for text in ["5", "s", "", "5x", "-1s", "1e400s", "..s"] {
            assert!(
                parse(text).is_err_and(|complaint| complaint.contains("like 500ms")),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_shown_can_be_read() {
        for (millis, text) in [
            (0, "0ms"),
            (500, "500ms"),
            (5_000, "5s"),
            (1_500, "1.5s"),
            (600_000, "10m"),
            (61_000, "1m1s"),
        ] {
            assert_eq!(show(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn what_is_younger_than_a_second_is_not_shown_as_of_no_age() {
        assert_eq!(show_age(Duration::from_millis(0)), "less than 1s");
        assert_eq!(show_age(Duration::from_millis(999)), "less than 1s");
        assert_eq!(show_age(Duration::from_millis(1_999)), "1s");
        assert_eq!(show_age(Duration::from_millis(61_999)), "1m1s");
    }
}
