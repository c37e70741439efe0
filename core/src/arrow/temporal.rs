//! Dates, times, timestamps and durations in the form that people read.

use std::fmt;

use super::format::{TimeUnit, Type};

const SECONDS_OF_DAY: i64 = 86_400;

/// A date, time, timestamp or duration as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Temporal {
    /// The number of days or units of time.
    pub number: i64,
    /// What the number counts: a date, time, timestamp or duration.
    pub ty: Type,
    /// Whether the field names a time zone. Then a timestamp is a moment, which Arrow counts in UTC; otherwise it is
    /// what a wall clock shows.
    pub has_zone: bool,
}

/// Dates and times are shown as in ISO 8601, with as many digits after the second as the unit has. A timestamp with a
/// zone is shown in UTC, with a `Z`. A year outside 0000 to 9999 has a sign. Durations, and times that no day has, are
/// shown as the number with its unit.
impl fmt::Display for Temporal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.number;
        match self.ty {
            Type::Date32 => date(number, f),
            Type::Date64 if number % (SECONDS_OF_DAY * 1000) == 0 => date(number / (SECONDS_OF_DAY * 1000), f),
            Type::Date64 => moment(number, TimeUnit::Millisecond, f),
            Type::Time(unit) if (0..SECONDS_OF_DAY * unit.of_second()).contains(&number) => clock(number, unit, f),
            Type::Timestamp(unit) => {
                moment(number, unit, f)?;
                if self.has_zone { f.write_str("Z") } else { Ok(()) }
            }
            Type::Time(unit) | Type::Duration(unit) => write!(f, "{number} {}", unit.symbol()),
            _ => number.fmt(f),
        }
    }
}

fn moment(number: i64, unit: TimeUnit, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let of_day = SECONDS_OF_DAY * unit.of_second();
    date(number.div_euclid(of_day), f)?;
    f.write_str("T")?;
    clock(number.rem_euclid(of_day), unit, f)
}

/// Writes a time of day.
fn clock(number: i64, unit: TimeUnit, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (seconds, rest) = (number / unit.of_second(), number % unit.of_second());
    write!(f, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
    match unit.digits() {
        0 => Ok(()),
        digits => write!(f, ".{rest:0digits$}"),
    }
}

/// Writes a day of the Gregorian calendar, given as its number from 1970-01-01 on.
///
/// Years are counted from 1 March, so that the leap day comes last, and in eras of 400 years, which all have the same
/// number of days.
fn date(days: i64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const OF_ERA: i64 = 146_097;
    const OF_CENTURY: i64 = 36_524;
    const OF_FOUR_YEARS: i64 = 1461;
    /// Days from 0000-03-01 to 1970-01-01.
    const BEFORE_EPOCH: i64 = 719_468;
    let (days, more_eras) = (days.rem_euclid(OF_ERA) + BEFORE_EPOCH, days.div_euclid(OF_ERA));
    let (era, of_era) = (days / OF_ERA + more_eras, days % OF_ERA);
    let year = (of_era - of_era / (OF_FOUR_YEARS - 1) + of_era / OF_CENTURY - of_era / (OF_ERA - 1)) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    // Months of 31 and 30 days alternate; five of them have 153 days.
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = (400 * era + year + month / 10, (month + 2) % 12 + 1);
    if (0..=9999).contains(&year) {
        write!(f, "{year:04}")?
    } else {
        write!(f, "{year:+05}")?
    }
    write!(f, "-{month:02}-{day:02}")
}
