//! Transcript of a run, line by line, in words that are the same at every run of one plan: random
//! markers in names are replaced by numbers in the order of their first appearance.

use std::collections::BTreeMap;
use std::time::Duration;

/// See the module's page.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    wanted: bool,
    lines: Vec<String>,
    markers: BTreeMap<String, usize>,
}

impl Transcript {
    /// Lines are only kept if `wanted`.
    pub(crate) fn new(wanted: bool) -> Self {
        Self {
            wanted,
            ..Self::default()
        }
    }

    pub(crate) fn wanted(&self) -> bool {
        self.wanted
    }

    pub(crate) fn line(&mut self, at: Duration, text: &str) {
        if self.wanted {
            let text = self.without_chance(text);
            self.lines.push(format!("{:>8} ms  {text}", at.as_millis()));
        }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.clone()
    }

    /// `text` with each random marker replaced by its number.
    pub(crate) fn without_chance(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let marker = [36, 32]
                .into_iter()
                .filter_map(|length| rest.get(..length))
                .find(|word| is_marker(word));
            if let Some(marker) = marker {
                let next = self.markers.len();
                // One marker may be written with and without dashes.
                let key = marker.replace('-', "");
                let number = *self.markers.entry(key).or_insert(next);
                out.push_str(&format!("<{number}>"));
                rest = rest.get(marker.len()..).unwrap_or_default();
            } else {
                out.push(first);
                rest = rest.get(first.len_utf8()..).unwrap_or_default();
            }
        }
        out
    }
}

/// A UUID, with or without dashes.
fn is_marker(word: &str) -> bool {
    let dashes = word.len() == 36;
    word.bytes().enumerate().all(|(at, byte)| {
        if dashes && matches!(at, 8 | 13 | 18 | 23) {
            byte == b'-'
        } else {
            byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_numbered_and_all_else_stays() {
        let mut transcript = Transcript::new(true);
        let text = "/l/_c_0a0b0c0d-0000-4000-8000-00000000000f-lock-0000000003";
        assert_eq!(transcript.without_chance(text), "/l/_c_<0>-lock-0000000003");
        let other = "/q/0a0b0c0d00004000800000000000000f and 1a0b0c0d00004000800000000000000f";
        assert_eq!(transcript.without_chance(other), "/q/<0> and <1>");
    }
}
