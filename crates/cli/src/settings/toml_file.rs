//! Reads `baton.toml`: the settings under their own names, values as TOML has them. A key that is none is refused: the file
//! is Baton's own, and what is in it is meant.

use toml::{Table, Value};

use super::{FromFile, Given, SETTINGS};

/// Reads the file of this name.
///
/// # Errors
/// One line that names the file, the key and the remedy.
pub(super) fn read(name: &str, text: &str) -> Result<FromFile, String> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map_or(1, |before| before.matches('\n').count() + 1);
        let what = error.message().lines().collect::<Vec<_>>().join("; ");
        format!("{name}:{line}: {what}; write lines like tick = \"200ms\"")
    })?;
    let mut said = FromFile::default();
    for (key, value) in &table {
        let Some(setting) = SETTINGS.iter().find(|setting| setting.name == key) else {
            return Err(format!(
                "{name}: {key} is no setting; baton serve --print-config lists all"
            ));
        };
        let values = match value {
            Value::Array(values) if setting.field.takes_many() => values.iter().map(one).collect(),
            value => one(value).map(|one| vec![one]),
        };
        let values: Option<Vec<String>> = values;
        said.given.push(Given {
            setting: setting.name,
            values: values.ok_or_else(|| {
                format!("{name}: {key} has a value of another kind; write text, a number or true")
            })?,
            origin: format!("{name} {key}"),
        });
    }
    Ok(said)
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
