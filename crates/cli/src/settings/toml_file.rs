//! Reads `baton.toml`: the settings under their own names, values as TOML has them. A name with a
//! dot stands in the table `[ensemble]`. An unknown key is refused: the file is Baton's own, and
//! what is in it is meant.

use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::{FromFile, Given, SETTINGS};

/// The only table.
const TABLE: &str = "ensemble";
/// Names less alike than this are not suggested: the threshold of the argument parser for flags.
const ALIKE: f64 = 0.7;

/// A key of a TOML file, its value and its line.
pub(crate) struct LocatedKey {
    pub(crate) key: String,
    pub(crate) value: Value,
    /// File, line and key, for people.
    pub(crate) at: String,
}

/// Reads the keys of a file in its order, so that the first mistake in it is the one that is named.
/// Keys inside `within`, a table, have its name and a dot before theirs.
///
/// # Errors
/// One line that names the file, the line and what to write, such as `example`.
pub(crate) fn located_keys(
    name: &str,
    text: &str,
    example: &str,
    within: Option<&str>,
) -> Result<Vec<LocatedKey>, String> {
    let unreadable = |error: toml::de::Error| {
        let line = error.span().map_or(1, |span| line_at(text, span.start));
        let what = error.message().lines().collect::<Vec<_>>().join("; ");
        format!("{name}:{line}: {what}; write lines like {example}")
    };
    let mut table: Table = text.parse().map_err(unreadable)?;
    let places = DeTable::parse(text).map_err(unreadable)?;
    let mut located = Vec::new();
    for (place, value) in places.get_ref() {
        let outer: &str = place.get_ref();
        let Some(whole) = table.remove(outer) else {
            continue;
        };
        match (value.get_ref(), whole) {
            (DeValue::Table(places), Value::Table(mut values)) if within == Some(outer) => {
                located.extend(places.keys().filter_map(|place| {
                    let inner: &str = place.get_ref();
                    let value = values.remove(inner)?;
                    Some((place.span().start, format!("{outer}.{inner}"), value))
                }));
            }
            (_, value) => located.push((place.span().start, outer.to_owned(), value)),
        }
    }
    located.sort_by_key(|(start, ..)| *start);
    let located = located.into_iter().map(|(start, key, value)| LocatedKey {
        at: format!("{name}:{} {key}", line_at(text, start)),
        key,
        value,
    });
    Ok(located.collect())
}

/// Reads the file of this name.
///
/// # Errors
/// One line that names the file, the line, the key and the remedy.
pub(super) fn read(name: &str, text: &str) -> Result<FromFile, String> {
    let mut said = FromFile::default();
    let keys = located_keys(name, text, "tick = \"200ms\"", Some(TABLE))?;
    for LocatedKey { key, value, at } in keys {
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
        said.given.push(Given {
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
fn line_at(text: &str, byte: usize) -> usize {
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
    // A flag's name, or one of another file's style, means the same setting.
    let plain = key.to_ascii_lowercase().replace('-', "_");
    let alike = SETTINGS
        .iter()
        .map(|setting| (strsim::jaro_winkler(setting.name, &plain), setting.name))
        .filter(|(likeness, _)| *likeness > ALIKE)
        .max_by(|(one, _), (other, _)| one.total_cmp(other));
    match alike {
        Some((_, name)) => format!(
            "unknown setting; a similar one exists: {name} (baton serve --print-config lists all)"
        ),
        None => "unknown setting; baton serve --print-config lists all".to_owned(),
    }
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

/// A value that is no table and no list, as text.
fn one(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Boolean(yes) => Some(yes.to_string()),
        _ => None,
    }
}
