//! Reads `baton.toml`: the settings under their own names, values as TOML has them. A name with a
//! dot stands in the table `[ensemble]`. An unknown key is refused: the file is Baton's own, and
//! what is in it is meant.

use std::ops::Range;

use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::{FromFile, SETTINGS, SettingValue};

/// The only table.
const TABLE: &str = "ensemble";
/// Names less alike than this are not suggested: the threshold of the argument parser for flags.
const ALIKE: f64 = 0.7;

/// A key of a TOML file, its value and its line.
pub(crate) struct LocatedKey {
    /// The tables that the key stands in, and the key.
    pub(crate) path: Vec<String>,
    /// The same as one text, with dots between.
    pub(crate) key: String,
    pub(crate) value: Value,
    /// File, line and key, for people.
    pub(crate) at: String,
    /// The bytes of the value in the file.
    pub(crate) span: Range<usize>,
}

/// Reads the keys of a file in its order, so that the first mistake in it is the one that is named.
/// A table whose path is `opened` gives the keys inside it; an empty one, and any other, is a
/// value itself.
///
/// # Errors
/// One line that names the file, the line and what to write, such as `example`.
pub(crate) fn located_keys(
    name: &str,
    text: &str,
    example: &str,
    opened: &dyn Fn(&[String]) -> bool,
) -> Result<Vec<LocatedKey>, String> {
    let unreadable = |error: toml::de::Error| {
        let line = error.span().map_or(1, |span| line_at(text, span.start));
        let what = error.message().lines().collect::<Vec<_>>().join("; ");
        format!("{name}:{line}: {what}; write lines like {example}")
    };
    let table: Table = text.parse().map_err(unreadable)?;
    let places = DeTable::parse(text).map_err(unreadable)?;
    let mut found = Vec::new();
    collect_keys(&[], places.get_ref(), table, opened, &mut found);
    found.sort_by_key(|key| key.start);
    let located = found.into_iter().map(|found| {
        let key = found.path.join(".");
        LocatedKey {
            at: format!("{name}:{} {key}", line_at(text, found.start)),
            path: found.path,
            key,
            value: found.value,
            span: found.span,
        }
    });
    Ok(located.collect())
}

struct FoundKey {
    path: Vec<String>,
    value: Value,
    /// The first byte of the key.
    start: usize,
    span: Range<usize>,
}

fn collect_keys(
    above: &[String],
    places: &DeTable<'_>,
    mut values: Table,
    opened: &dyn Fn(&[String]) -> bool,
    found: &mut Vec<FoundKey>,
) {
    for (place, value) in places {
        let name: &str = place.get_ref();
        let Some(whole) = values.remove(name) else {
            continue;
        };
        let mut path = above.to_vec();
        path.push(name.to_owned());
        match (value.get_ref(), whole) {
            (DeValue::Table(places), Value::Table(values))
                if !values.is_empty() && opened(&path) =>
            {
                collect_keys(&path, places, values, opened, found);
            }
            (_, whole) => found.push(FoundKey {
                path,
                value: whole,
                start: place.span().start,
                span: value.span(),
            }),
        }
    }
}

/// Reads the file of this name.
///
/// # Errors
/// One line that names the file, the line, the key and the remedy.
pub(super) fn read(name: &str, text: &str) -> Result<FromFile, String> {
    let mut said = FromFile::default();
    let keys = located_keys(name, text, "tick = \"200ms\"", &|path| path == [TABLE])?;
    // An empty table says nothing.
    let is_empty = |located: &LocatedKey| {
        located.key == TABLE && located.value.as_table().is_some_and(Table::is_empty)
    };
    for LocatedKey { key, value, at, .. } in keys.into_iter().filter(|key| !is_empty(key)) {
        let Some(setting) = SETTINGS.iter().find(|setting| setting.name == key) else {
            return Err(format!("{at}: {}", unknown(&key, &value)));
        };
        let values: Option<Vec<String>> = match &value {
            Value::Array(values) if setting.field.takes_many() => values.iter().map(one).collect(),
            Value::Table(servers) if setting.field.is_table() => servers
                .iter()
                .map(|(id, address)| Some(format!("{id}={}", one(address)?)))
                .collect(),
            Value::Integer(_) if setting.field.refuses_numbers() => None,
            value => one(value).map(|one| vec![one]),
        };
        said.given.push(SettingValue {
            setting: setting.name,
            values: values.ok_or_else(|| {
                format!(
                    "{at}: the value is {}; write {}",
                    kind(&value),
                    setting.field.form()
                )
            })?,
            origin: at,
        });
    }
    Ok(said)
}

/// The number of the line, from 1, that has this byte.
pub(crate) fn line_at(text: &str, byte: usize) -> usize {
    let before = text.get(..byte).unwrap_or(text);
    before.matches('\n').count() + 1
}

/// The message for an unknown key.
fn unknown(key: &str, value: &Value) -> String {
    if value.is_table() {
        return format!(
            "a baton.toml has no tables but [{TABLE}]; write the settings without a [header] above them"
        );
    }
    match nearest(key, SETTINGS.iter().map(|setting| setting.name)) {
        Some(name) => format!(
            "unknown setting; a similar one exists: {name} (baton serve --print-config lists all)"
        ),
        None => "unknown setting; baton serve --print-config lists all".to_owned(),
    }
}

/// The name that somebody probably meant who wrote `given`.
pub(crate) fn nearest<'a>(given: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // A flag's name, or one of another file's style, means the same setting.
    let plain = given.to_ascii_lowercase().replace('-', "_");
    names
        .map(|name| (strsim::jaro_winkler(name, &plain), name))
        .filter(|(likeness, _)| *likeness > ALIKE)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, name)| name)
}

/// The kind of a value, for people.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "text",
        Value::Integer(_) | Value::Float(_) => "a number",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    }
}

/// A value that is neither a table nor a list, as text.
fn one(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Boolean(yes) => Some(yes.to_string()),
        _ => None,
    }
}
