//! Moments as dates and times of the calendar, in UTC.

/// A second of the calendar.
pub(crate) struct Moment {
    pub(crate) year: i64,
    /// From 1.
    pub(crate) month: i64,
    pub(crate) day: i64,
    /// Second of the day.
    pub(crate) second: i64,
    /// Days since 1970-01-01, a Thursday.
    pub(crate) days: i64,
}

/// The moment this many seconds after the beginning of 1970.
pub(crate) fn moment(seconds: i64) -> Moment {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Years that begin in March, in eras of 400: leap days are then always last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let month = (month_from_march + 2) % 12;
    Moment {
        year: year_of_era + era * 400 + i64::from(month < 2),
        month: month + 1,
        day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
        second,
        days,
    }
}

/// A moment as RFC 3339 writes it, to the millisecond: `2026-11-21T16:01:54.007Z`.
pub(crate) fn timestamp(unix_ms: i64) -> String {
    let at = moment(unix_ms.div_euclid(1000));
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        at.year,
        at.month,
        at.day,
        at.second / 3600,
        at.second / 60 % 60,
        at.second % 60,
        unix_ms.rem_euclid(1000),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_those_of_the_calendar() {
        for (unix_ms, written) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_007, "2000-02-29T00:00:00.007Z"),
            (1_795_276_914_999, "2026-11-21T16:01:54.999Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(timestamp(unix_ms), written);
        }
    }
}
