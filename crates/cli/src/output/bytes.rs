//! Printing of the data of znodes and queue items: the bytes themselves, or text or hex in JSON.

use baton_proto::OneLine;
use serde::Serialize;

use crate::output::Output;
use crate::output::width::shortened;

/// Data in a JSON object: `data` if it is text, else `data_hex`.
#[derive(Debug, Serialize)]
pub(crate) struct DataField<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_hex: Option<String>,
}

impl<'a> DataField<'a> {
    /// These bytes.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self {
                data: Some(text),
                data_hex: None,
            },
            Err(_) => Self {
                data: None,
                data_hex: Some(hex(bytes)),
            },
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The beginning of data in one line of a table, as text or, where it is none, in hex.
pub(crate) fn beginning(bytes: &[u8]) -> String {
    const COLUMNS: usize = 60;
    let some = bytes.get(..4 * COLUMNS).unwrap_or(bytes);
    let text = match std::str::from_utf8(some) {
        Ok(text) => text.to_owned(),
        // Cut within a character.
        Err(error) if error.error_len().is_none() => String::from_utf8_lossy(some).into_owned(),
        Err(_) => hex(some),
    };
    shortened(&OneLine(&text).to_string(), COLUMNS)
}

/// Writes `record` with `--json`, else the bytes themselves; a line of text is ended, other data
/// left as it is.
pub(crate) fn print<T: Serialize>(output: &Output, record: &T, bytes: &[u8]) {
    if output.json() {
        output.result(record, "");
    } else if std::str::from_utf8(bytes).is_ok_and(|text| !text.ends_with('\n')) {
        output.raw(&[bytes, b"\n"].concat());
    } else {
        output.raw(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_is_one_short_line_whatever_the_data_is() {
        assert_eq!(beginning(b"cat.jpg"), "cat.jpg");
        assert_eq!(beginning(b"a\x1b[2J\nb"), "a\\u{1b}[2J\\nb");
        assert_eq!(beginning(&[0xff, 1]), "ff01");
        // 240 bytes end within this letter.
        let long = format!("{}\u{e4}", "x".repeat(239));
        assert_eq!(beginning(long.as_bytes()), format!("{}~", "x".repeat(59)));
        let huge = beginning(&vec![0xff; 1 << 20]);
        assert_eq!(huge, format!("{}~", "f".repeat(59)));
    }

    #[test]
    fn text_is_text_and_the_rest_is_hex() {
        assert_eq!(
            serde_json::to_string(&DataField::new(b"a")).unwrap(),
            r#"{"data":"a"}"#
        );
        assert_eq!(
            serde_json::to_string(&DataField::new(&[0xff, 1])).unwrap(),
            r#"{"data_hex":"ff01"}"#
        );
    }
}
