//! The subject of a certificate as ZooKeeper writes it into the scheme `x509`: the text of Java's
//! `X500Principal.getName()`, which is RFC 2253 with Java's choice of what is escaped. An ACL names
//! this text letter by letter, so the text is the identity.

use std::fmt::Write as _;

use x509_parser::asn1_rs::{Any, Tag, ToDer};
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use crate::pem::parse;

/// The most bytes of a subject's text: every log entry of a client carries its identities.
const MAX_SUBJECT_BYTES: usize = 4 << 10;

/// Attribute types that have a name in Java's text; the others are written as numbers.
const KEYWORDS: &[(&str, &str)] = &[
    ("2.5.4.3", "CN"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.9", "STREET"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
];

/// Letters that Java escapes wherever they stand.
const ESCAPED: &str = ",=+<>#;\"\\";

/// Reason why a certificate gives no identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubjectError {
    /// It is not a certificate.
    #[error("the certificate cannot be read: {0}")]
    Unreadable(String),
    /// The subject is empty: it would be everybody's.
    #[error("the certificate has an empty subject; issue one with a subject")]
    Empty,
    /// The subject's text is too long.
    #[error(
        "the subject of the certificate is longer than {MAX_SUBJECT_BYTES} bytes; issue one with a shorter subject"
    )]
    TooLong,
    /// A name in the subject is not text in its encoding.
    #[error("the subject of the certificate has a name that is not valid text; issue it again")]
    NotText,
}

/// The subject of a certificate in DER.
///
/// # Errors
/// [`SubjectError`].
pub fn of_certificate(der: &[u8]) -> Result<String, SubjectError> {
    let certificate = parse(der).map_err(SubjectError::Unreadable)?;
    of_name(certificate.subject())
}

fn of_name(name: &X509Name<'_>) -> Result<String, SubjectError> {
    let mut text = String::new();
    // The last name of the certificate is the first of the text.
    let names: Vec<_> = name.iter().collect();
    for relative in names.into_iter().rev() {
        if !text.is_empty() {
            text.push(',');
        }
        for (position, attribute) in relative.iter().enumerate() {
            if position > 0 {
                text.push('+');
            }
            write_attribute(attribute, &mut text)?;
        }
        if text.len() > MAX_SUBJECT_BYTES {
            return Err(SubjectError::TooLong);
        }
    }
    if text.is_empty() {
        return Err(SubjectError::Empty);
    }
    Ok(text)
}

fn write_attribute(
    attribute: &AttributeTypeAndValue<'_>,
    text: &mut String,
) -> Result<(), SubjectError> {
    let number = attribute.attr_type().to_id_string();
    let keyword = KEYWORDS.iter().find(|(oid, _)| *oid == number);
    let value = attribute.attr_value();
    match keyword {
        Some((_, keyword)) if is_text(value.tag()) => {
            text.push_str(keyword);
            text.push('=');
            write_escaped(&decoded(value)?, text);
        }
        _ => {
            text.push_str(keyword.map_or(&number, |(_, keyword)| *keyword));
            text.push_str("=#");
            let encoded = value.to_der_vec().map_err(|_| SubjectError::NotText)?;
            for byte in encoded {
                let _ = write!(text, "{byte:02x}");
            }
        }
    }
    Ok(())
}

/// Returns whether Java writes a value of this type as text.
fn is_text(tag: Tag) -> bool {
    matches!(
        tag,
        Tag::PrintableString
            | Tag::Utf8String
            | Tag::T61String
            | Tag::Ia5String
            | Tag::GeneralString
            | Tag::BmpString
    )
}

/// The text of a value. Unlike Java, what is not text in its encoding is refused: two certificates
/// could have one identity otherwise.
fn decoded(value: &Any<'_>) -> Result<String, SubjectError> {
    let bytes = value.data;
    match value.tag() {
        Tag::T61String => Ok(bytes.iter().map(|byte| char::from(*byte)).collect()),
        Tag::BmpString => {
            let (pairs, []) = bytes.as_chunks::<2>() else {
                return Err(SubjectError::NotText);
            };
            let units = pairs.iter().map(|pair| u16::from_be_bytes(*pair));
            let text: Result<String, _> = char::decode_utf16(units).collect();
            text.map_err(|_| SubjectError::NotText)
        }
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(SubjectError::NotText),
        },
    }
}

fn write_escaped(value: &str, text: &mut String) {
    let is_space = |letter: char| matches!(letter, ' ' | '\r');
    let leading = value.len() - value.trim_start_matches(is_space).len();
    let trailing = value.trim_end_matches(is_space).len();
    for (position, letter) in value.char_indices() {
        match letter {
            '\0' => {
                text.push_str("\\00");
                continue;
            }
            _ if position < leading || position >= trailing || ESCAPED.contains(letter) => {
                text.push('\\');
            }
            _ => {}
        }
        text.push(letter);
    }
}
