//! Fuzz targets of TLS: each function takes any bytes at all and fails if a promise does not hold
//! for them.

use baton_tls::subject::of_certificate;

/// A certificate that a client shows. Its identity is never empty, and never has a letter in it
/// that would end a name of the subject early.
pub fn subject(bytes: &[u8]) {
    let Ok(text) = of_certificate(bytes) else {
        return;
    };
    assert!(!text.is_empty() && text.len() < 64 << 10, "{}", text.len());
    assert!(!text.contains('\0'), "{text:?}");
    // Commas that are not escaped are those between names.
    let mut escaped = false;
    let mut names = 1;
    for letter in text.chars() {
        names += usize::from(letter == ',' && !escaped);
        escaped = letter == '\\' && !escaped;
    }
    let mut equals = 0;
    escaped = false;
    for letter in text.chars() {
        equals += usize::from(letter == '=' && !escaped);
        escaped = letter == '\\' && !escaped;
    }
    assert!(equals >= names, "{text:?}");
}
