//! Dates and times as text: compared with chrono's text of the same numbers (through arrow-rs), and where chrono's
//! years end.
#![expect(clippy::unwrap_used, reason = "what a helper of a test needs must be there")]

use arrow_array::types::*;
use arrow_array::{ArrowPrimitiveType, PrimitiveArray};

use devexchange_core::Batch;
use devexchange_core::arrow::Type;
use devexchange_core::arrow::value::Temporal;

/// Test values of one type: around epochs, ends of months and of centuries, and numbers all over the range.
fn numbers(of_day: i64, most: i64) -> Vec<i64> {
    let days =
        [0, 58, 59, 60, 789, 790, 10_956, 11_016, 11_017, 47_540, 47_541, 146_096, 146_097, 2_932_896, 2_932_897];
    let days = days.into_iter().flat_map(|day| [day, -day, day - 719_468, day - 719_528]);
    let near = days.map(|day| i128::from(day) * i128::from(of_day));
    let near = near.flat_map(|number| [number, number - 1, number + i128::from(of_day / 2)]);
    let mut random = 88_172_645_463_325_252_u64;
    let anywhere = std::iter::from_fn(|| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        Some(random.cast_signed() % most)
    });
    let near = near.filter_map(|number| i64::try_from(number).ok().filter(|number| (-most..=most).contains(number)));
    near.chain(anywhere.take(3000)).collect()
}

fn check<T: ArrowPrimitiveType>(
    array: &PrimitiveArray<T>,
    expected: impl Fn(&PrimitiveArray<T>, usize) -> Option<String>,
) {
    let batch = Batch::from_arrow_rs(array).unwrap();
    let mut checked = 0;
    for row in 0..array.len() {
        let Some(expected) = expected(array, row) else { continue };
        let ours = batch.root().value(row as i64).unwrap().to_string();
        assert_eq!(ours, expected, "{:?} of {}", array.value(row), T::DATA_TYPE);
        checked += 1;
    }
    assert!(checked > 2000, "{}: {checked}", T::DATA_TYPE);
}

/// chrono can represent some 95 million days.
const MOST_DAYS: i64 = 95_000_000;
const OF_DAY: i64 = 86_400;

#[test]
fn dates() {
    let numbers = |of_day| numbers(of_day, MOST_DAYS * of_day);
    check::<Date32Type>(
        &PrimitiveArray::from_iter_values(numbers(1).into_iter().map(|day| day as i32)),
        |array, row| Some(array.value_as_date(row)?.to_string()),
    );
    check::<Date64Type>(&PrimitiveArray::from_iter_values(numbers(OF_DAY * 1000)), |array, row| {
        let seen = array.value_as_datetime(row)?;
        let whole = array.value(row) % (OF_DAY * 1000) == 0;
        Some(if whole { seen.date().to_string() } else { seen.format("%Y-%m-%dT%H:%M:%S%.3f").to_string() })
    });
}

#[test]
fn timestamps() {
    macro_rules! of {
        ($($ty:ty, $of_second:literal, $format:literal;)*) => {$(
            let stored = numbers(OF_DAY * $of_second, MOST_DAYS.min(i64::MAX / OF_DAY / $of_second) * OF_DAY * $of_second);
            let array = PrimitiveArray::<$ty>::from_iter_values(stored);
            let text = |array: &PrimitiveArray<$ty>, row| Some(array.value_as_datetime(row)?.format($format).to_string());
            check(&array, text);
            check(&array.with_timezone("Europe/Berlin"), |array, row| Some(text(array, row)? + "Z"));
        )*};
    }
    of! {
        TimestampSecondType, 1, "%Y-%m-%dT%H:%M:%S";
        TimestampMillisecondType, 1000, "%Y-%m-%dT%H:%M:%S%.3f";
        TimestampMicrosecondType, 1_000_000, "%Y-%m-%dT%H:%M:%S%.6f";
        TimestampNanosecondType, 1_000_000_000, "%Y-%m-%dT%H:%M:%S%.9f";
    }
}

#[test]
fn times() {
    macro_rules! of {
        ($($ty:ty, $of_second:literal, $format:literal;)*) => {$(
            let most = OF_DAY * $of_second;
            let stored = numbers(most / 24, most - 1).into_iter().map(|number| number.rem_euclid(most).try_into().unwrap());
            let array = PrimitiveArray::<$ty>::from_iter_values(stored);
            check(&array, |array, row| Some(array.value_as_time(row)?.format($format).to_string()));
        )*};
    }
    of! {
        Time32SecondType, 1, "%H:%M:%S";
        Time32MillisecondType, 1000, "%H:%M:%S%.3f";
        Time64MicrosecondType, 1_000_000, "%H:%M:%S%.6f";
        Time64NanosecondType, 1_000_000_000, "%H:%M:%S%.9f";
    }
}

#[test]
fn what_no_calendar_has() {
    let shown = |format, number| Temporal { number, ty: Type::parse(format).unwrap(), has_zone: false }.to_string();
    for (format, number, expected) in [
        ("ttn", -1, "-1 ns"),
        ("tts", OF_DAY, "86400 s"),
        ("ttm", OF_DAY * 1000 - 1, "23:59:59.999"),
        ("tDu", i64::MIN, "-9223372036854775808 us"),
        ("tDm", 1500, "1500 ms"),
        // Beyond four digits a year has a sign, and 0 is the one before 1.
        ("tdD", 2_932_896, "9999-12-31"),
        ("tdD", 2_932_897, "+10000-01-01"),
        ("tdD", -719_528, "0000-01-01"),
        ("tdD", -719_529, "-0001-12-31"),
        ("tdD", i32::MAX.into(), "+5881580-07-11"),
        ("tdD", i32::MIN.into(), "-5877641-06-23"),
        ("tss:", i64::MAX, "+292277026596-12-04T15:30:07"),
        ("tss:", i64::MIN, "-292277022657-01-27T08:29:52"),
        ("tsn:", i64::MIN, "1677-09-21T00:12:43.145224192"),
        ("tdm", i64::MAX, "+292278994-08-17T07:12:55.807"),
    ] {
        assert_eq!(shown(format, number), expected, "{format} {number}");
    }
}
