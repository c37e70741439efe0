//! Values of columns as Python objects.

use devexchange_core::abi::types::{DEVX_MISMATCH, DEVX_UNSUPPORTED};
use devexchange_core::arrow::value::Temporal;
use devexchange_core::arrow::{Rows, TimeUnit, Type, Value};
use devexchange_core::memory::{collected, vector};
use devexchange_core::{Column, Element, Error as CoreError};
use pyo3::exceptions::{PyKeyError, PyOSError, PyOverflowError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyString};

use crate::python::call::call;
use crate::python::class::Class;
use crate::python::error::{Error, Result, refuse};
use crate::python::objects::{self, Number};

static DECIMAL: Class = Class::new("decimal", "Decimal");
static DATE: Class = Class::new("datetime", "date");
static DATETIME: Class = Class::new("datetime", "datetime");
static TIMEDELTA: Class = Class::new("datetime", "timedelta");
static TIMEZONE: Class = Class::new("datetime", "timezone");
static ZONE_INFO: Class = Class::new("zoneinfo", "ZoneInfo");
static INTERVAL: Class = Class::new("devexchange._types", "Interval");

/// All rows of a column.
pub(crate) fn list<'py>(py: Python<'py>, column: Column<'_>) -> Result<Bound<'py, PyList>> {
    if let Some(numbers) = numbers(py, column)? {
        return Ok(numbers);
    }
    if column.ty() == Type::Struct {
        return structs(py, column);
    }
    let rows = column.rows();
    // Without a dictionary, the values of these types are here: nothing has to be resolved.
    if is_atomic(column.ty()) && column.dictionary().is_none() {
        let value = |row| if rows.is_valid(row)? { here(py, &rows, row) } else { Ok(py.None().into_bound(py)) };
        return objects::full_list(py, (0..rows.length() as usize).map(|row| value(row as i64)));
    }
    let list = objects::list(py)?;
    for row in 0..rows.length() {
        list.append(of(py, &rows, row)?)?;
    }
    Ok(list)
}

/// Whether the values become objects that hold no others, and are made without running code of Python.
fn is_atomic(ty: Type) -> bool {
    let is_bytes = matches!(ty, Type::Binary | Type::LargeBinary | Type::BinaryView | Type::FixedSizeBinary(_));
    is_bytes || ty.is_text() || ty.is_integer() || matches!(ty, Type::Bool | Type::Float(_))
}

/// All rows of a column of numbers without nulls, read without a look at each row; `None` for any other column.
fn numbers<'py>(py: Python<'py>, column: Column<'_>) -> Result<Option<Bound<'py, PyList>>> {
    if column.dictionary().is_some() || column.known_null_count() != 0 {
        return Ok(None);
    }
    match column.ty() {
        Type::Int(1) => numbers_of::<i8>(py, column),
        Type::Int(2) => numbers_of::<i16>(py, column),
        Type::Int(4) => numbers_of::<i32>(py, column),
        Type::Int(8) => numbers_of::<i64>(py, column),
        Type::UInt(1) => numbers_of::<u8>(py, column),
        Type::UInt(2) => numbers_of::<u16>(py, column),
        Type::UInt(4) => numbers_of::<u32>(py, column),
        Type::UInt(8) => numbers_of::<u64>(py, column),
        Type::Float(4) => numbers_of::<f32>(py, column),
        Type::Float(8) => numbers_of::<f64>(py, column),
        _ => Ok(None),
    }
}

/// All rows as numbers; `None` if they cannot be read at once. Reading the rows one by one then reports why.
fn numbers_of<'py, T: Element + Number>(py: Python<'py>, column: Column<'_>) -> Result<Option<Bound<'py, PyList>>> {
    let Ok(values) = column.values::<T>() else { return Ok(None) };
    Ok(Some(objects::full_list(py, values.iter().map(|&value| Ok(objects::number(py, value)?)))?))
}

/// The value of a row.
pub(crate) fn of<'py>(py: Python<'py>, rows: &Rows<'_>, row: i64) -> Result<Bound<'py, PyAny>> {
    // The column behind dictionaries, unions and runs has the type that gives an integer its meaning.
    match rows.resolve(row)? {
        Some((rows, row)) => here(py, &rows, row),
        None => Ok(py.None().into_bound(py)),
    }
}

/// The value of a row that is not null, of the column where it is stored.
fn here<'py>(py: Python<'py>, rows: &Rows<'_>, row: i64) -> Result<Bound<'py, PyAny>> {
    Ok(match rows.stored(row)? {
        Value::Null => py.None().into_bound(py),
        Value::Bool(value) => PyBool::new(py, value).to_owned().into_any(),
        Value::Int(value) => objects::number(py, value)?,
        Value::Temporal(Temporal { number: value, .. }) => temporal(py, Stored { column: rows.column(), row, value })?,
        Value::UInt(value) => objects::number(py, value)?,
        Value::Float32(value) => objects::number(py, value)?,
        Value::Float64(value) => objects::number(py, value)?,
        Value::Decimal(value) => DECIMAL.make(py, (objects::text(py, &value.to_string())?,))?,
        Value::Interval { months, days, nanoseconds } => {
            INTERVAL.make(py, [months.into(), days.into(), nanoseconds])?
        }
        Value::Text(text) => objects::text(py, text)?.into_any(),
        Value::Binary(bytes) => objects::bytes(py, bytes)?.into_any(),
        Value::List(values) => list(py, values)?.into_any(),
        Value::Map(entries) => map(py, entries)?.into_any(),
        Value::Struct(column, row) => {
            dict(py, &keys(py, column)?, column.children().map(|child| of(py, &child.rows(), row)))?.into_any()
        }
        other => return refuse!(DEVX_UNSUPPORTED, "row {row} is {other}: Python has no value for {}", rows.ty()),
    })
}

/// The integer that the value of a row is stored as; `None` for a null.
pub(crate) fn stored<'py>(py: Python<'py>, column: Column<'_>, row: i64) -> Result<Option<Bound<'py, PyAny>>> {
    let Some((column, row)) = column.resolve(row)? else { return Ok(None) };
    let number = match column.ty() {
        ty if ty.is_temporal() || matches!(ty, Type::Int(_) | Type::UInt(_)) => column.stored(row)?,
        ty => {
            let other = format_args!("the type is {ty}, whose values are not stored as integers");
            return Err(column.named(CoreError::new(DEVX_MISMATCH, other)).into());
        }
    };
    Ok(match number {
        Value::Int(number) | Value::Temporal(Temporal { number, .. }) => Some(objects::number(py, number)?),
        Value::UInt(number) => Some(objects::number(py, number)?),
        _ => None,
    })
}

fn map<'py>(py: Python<'py>, entries: Column<'_>) -> Result<Bound<'py, PyList>> {
    let pairs = objects::list(py)?;
    if let (Some(keys), Some(values)) = (entries.child(0), entries.child(1)) {
        let (keys, values) = (keys.rows(), values.rows());
        for row in 0..entries.length() {
            let pair = [of(py, &keys, row)?, of(py, &values, row)?];
            pairs.append(objects::tuple(py, pair.into_iter().map(Some))?)?;
        }
    }
    Ok(pairs)
}

/// All rows of a column of structs.
fn structs<'py>(py: Python<'py>, column: Column<'_>) -> Result<Bound<'py, PyList>> {
    let rows = objects::list(py)?;
    // A row that is not null needs them, so there may be no keys at all.
    let mut keys_of_rows = None;
    // Below a null there may be anything. Without one, the children can be read as a whole.
    let whole = match column.known_null_count() {
        0 => Some(lists(py, column)?),
        _ => None,
    };
    let (structs, children) = (column.rows(), collected(column.children().map(|child| Ok(child.rows())))?);
    for row in 0..structs.length() {
        if !structs.is_valid(row)? {
            rows.append(py.None())?;
            continue;
        }
        let keys = match &keys_of_rows {
            Some(keys) => keys,
            None => keys_of_rows.insert(keys(py, column)?),
        };
        rows.append(match &whole {
            Some(children) => dict(py, keys, children.iter().map(|child| Ok(child.get_item(row as usize)?)))?,
            None => dict(py, keys, children.iter().map(|child| of(py, child, row)))?,
        })?;
    }
    Ok(rows)
}

fn lists<'py>(py: Python<'py>, column: Column<'_>) -> Result<Vec<Bound<'py, PyList>>> {
    let mut lists = vector(column.children().len())?;
    for child in column.children() {
        lists.push(list(py, child)?);
    }
    Ok(lists)
}

fn dict<'py>(
    py: Python<'py>,
    keys: &[Bound<'py, PyString>],
    values: impl Iterator<Item = Result<Bound<'py, PyAny>>>,
) -> Result<Bound<'py, PyDict>> {
    let dict = objects::dict(py)?;
    for (key, value) in keys.iter().zip(values) {
        dict.set_item(key, value?)?;
    }
    Ok(dict)
}

/// The names of a struct's fields, for a dict.
fn keys<'py>(py: Python<'py>, column: Column<'_>) -> Result<Vec<Bound<'py, PyString>>> {
    let (mut keys, seen) = (vector(column.children().len())?, objects::dict(py)?);
    for child in column.children() {
        let name = child.field().name();
        let key = objects::text(py, name)?;
        seen.set_item(&key, ())?;
        keys.push(key);
        if seen.len() != keys.len() {
            return refuse!(
                DEVX_UNSUPPORTED,
                "the name {name:?} is that of two fields: a dict has one value for it, the columns have both"
            );
        }
    }
    Ok(keys)
}

/// The date, time or duration that a number stands for.
fn temporal<'py>(py: Python<'py>, stored: Stored<'_>) -> Result<Bound<'py, PyAny>> {
    meaning(py, stored).map_err(|error| match error {
        Error::Python(raised) if raised.is_instance_of::<PyOverflowError>(py) => {
            stored.refused("Python's datetime does not reach so far (Column.stored gives the number)")
        }
        other => other,
    })
}

fn meaning<'py>(py: Python<'py>, stored: Stored<'_>) -> Result<Bound<'py, PyAny>> {
    let Stored { column, value, .. } = stored;
    let epoch = [1970, 1, 1];
    Ok(match column.ty() {
        Type::Date32 => DATE.make(py, epoch)?.add(days(py, value)?)?,
        Type::Date64 => DATE.make(py, epoch)?.add(span(py, value, TimeUnit::Millisecond)?)?,
        Type::Time(unit) => {
            // Python would wrap a value past midnight to a time of the next day.
            if !(0..86_400 * unit.of_second()).contains(&value) {
                return Err(stored.refused("no time of day"));
            }
            let moment = DATETIME.make(py, epoch)?.add(whole_span(py, stored, unit)?)?;
            call(&moment.getattr(intern!(py, "time"))?, ())?
        }
        Type::Timestamp(unit) => timestamp(py, stored, &whole_span(py, stored, unit)?)?,
        Type::Duration(unit) => whole_span(py, stored, unit)?,
        _ => objects::number(py, value)?,
    })
}

/// The value stored in a row, with its place for errors.
#[derive(Clone, Copy)]
struct Stored<'a> {
    column: Column<'a>,
    row: i64,
    value: i64,
}

impl Stored<'_> {
    fn refused(self, why: &str) -> Error {
        let Self { column, row, value } = self;
        let (name, format) = (column.field().name(), column.field().format());
        let text = format_args!("row {row} of column {name:?} is {value}, of format {format:?}: {why}");
        CoreError::new(DEVX_UNSUPPORTED, text).into()
    }
}

/// A timestamp from the time since the epoch. Without a time zone it is wall-clock time; with one it is a moment, shown in
/// that zone.
fn timestamp<'py>(py: Python<'py>, stored: Stored<'_>, since: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let zone = stored.column.field().timezone();
    if zone.is_empty() {
        return Ok(DATETIME.make(py, [1970, 1, 1])?.add(since)?);
    }
    let utc = TIMEZONE.get(py)?.getattr(intern!(py, "utc"))?;
    let moment = call(&DATETIME.get(py)?.getattr(intern!(py, "fromtimestamp"))?, (0, utc))?.add(since)?;
    if IS_UTC.contains(&zone) {
        return Ok(moment);
    }
    Ok(call(&moment.getattr(intern!(py, "astimezone"))?, (time_zone(py, stored, zone)?,))?)
}

/// The names of UTC, for which Python needs no database of time zones.
const IS_UTC: [&str; 3] = ["UTC", "Etc/UTC", "Z"];

/// A time zone, given by its name or as an offset ("+05:30").
fn time_zone<'py>(py: Python<'py>, stored: Stored<'_>, zone: &str) -> Result<Bound<'py, PyAny>> {
    if let Some(minutes) = offset_minutes(zone.as_bytes()) {
        return Ok(TIMEZONE.make(py, (span(py, minutes * 60, TimeUnit::Second)?,))?);
    }
    ZONE_INFO.make(py, (objects::text(py, zone)?,)).map_err(|error| no_zone(py, stored, zone, error))
}

/// The error for a zone that Python does not have, with that of `zoneinfo` as its cause. `zoneinfo` raises a `KeyError` for an
/// unknown name; for a name that leads it to some other file, it raises an error about that file.
fn no_zone(py: Python<'_>, stored: Stored<'_>, zone: &str, error: PyErr) -> Error {
    let is_about_zone = |error: &PyErr| {
        error.is_instance_of::<PyKeyError>(py)
            || error.is_instance_of::<PyOSError>(py)
            || error.is_instance_of::<PyValueError>(py)
    };
    if !is_about_zone(&error) {
        return error.into();
    }
    // Every database has this zone.
    let why = match ZONE_INFO.make(py, ("UTC",)) {
        _ if zone.starts_with(['+', '-']) => "an offset is written as \"+05:30\", and less than a day",
        Ok(_) => "Python's zoneinfo does not know this time zone",
        Err(none) if is_about_zone(&none) => "Python has no database of time zones here: pip install tzdata",
        Err(other) => return other.into(),
    };
    stored.refused(&format!("the time zone is {zone:?}: {why}")).after(error.into(), py)
}

/// Reads an offset, "+XX:XX" or "-XX:XX" in hours and minutes (Arrow C data interface).
fn offset_minutes(zone: &[u8]) -> Option<i64> {
    let &[sign @ (b'+' | b'-'), h1 @ b'0'..=b'2', h2 @ b'0'..=b'9', b':', m1 @ b'0'..=b'5', m2 @ b'0'..=b'9'] = zone
    else {
        return None;
    };
    let two = |tens: u8, ones: u8| i64::from(tens - b'0') * 10 + i64::from(ones - b'0');
    let minutes = two(h1, h2) * 60 + two(m1, m2);
    Some(if sign == b'-' { -minutes } else { minutes }).filter(|_| two(h1, h2) < 24)
}

/// Like [`span`], but refuses fractions of a microsecond, which Python cannot represent.
fn whole_span<'py>(py: Python<'py>, stored: Stored<'_>, unit: TimeUnit) -> Result<Bound<'py, PyAny>> {
    if unit == TimeUnit::Nanosecond && stored.value % 1000 != 0 {
        return Err(stored.refused("Python's times are whole microseconds (Column.stored gives the number)"));
    }
    span(py, stored.value, unit)
}

/// A number of units as a `timedelta`, made of seconds and microseconds: it reaches further than 64 bits of microseconds.
fn span(py: Python<'_>, value: i64, unit: TimeUnit) -> Result<Bound<'_, PyAny>> {
    let (seconds, rest) = (value.div_euclid(unit.of_second()), value.rem_euclid(unit.of_second()));
    Ok(TIMEDELTA.make(py, [0, seconds, rest * 1_000_000 / unit.of_second()])?)
}

fn days(py: Python<'_>, days: i64) -> Result<Bound<'_, PyAny>> {
    Ok(TIMEDELTA.make(py, [days])?)
}
