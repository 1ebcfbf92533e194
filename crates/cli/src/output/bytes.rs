//! Printing of the data of znodes and queue items: the bytes themselves, or text or hex in JSON.

use serde::Serialize;

use crate::output::Output;

/// Data in a JSON object: `data` if it is text, else `data_hex`.
#[derive(Debug, Serialize)]
pub(crate) struct Shown<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_hex: Option<String>,
}

impl<'a> Shown<'a> {
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
    fn text_is_text_and_the_rest_is_hex() {
        assert_eq!(
            serde_json::to_string(&Shown::new(b"a")).unwrap(),
            r#"{"data":"a"}"#
        );
        assert_eq!(
            serde_json::to_string(&Shown::new(&[0xff, 1])).unwrap(),
            r#"{"data_hex":"ff01"}"#
        );
    }
}
