//! The subject of a certificate as Java writes it. Expected texts are those of
//! `X500Principal.getName()`.

use baton_tls::subject::{SubjectError, of_certificate};

#[path = "../../../../fuzz/src/tls_targets.rs"]
mod tls_targets;

/// A value of DER.
fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match content.len() {
        short @ ..0x80 => out.push(short as u8),
        middle @ ..0x100 => out.extend([0x81, middle as u8]),
        long => out.extend([0x82, (long >> 8) as u8, long as u8]),
    }
    out.extend(content);
    out
}

fn all(parts: &[Vec<u8>]) -> Vec<u8> {
    parts.concat()
}

const CN: &[u8] = &[0x55, 4, 3];
const C: &[u8] = &[0x55, 4, 6];
const L: &[u8] = &[0x55, 4, 7];
const ST: &[u8] = &[0x55, 4, 8];
const STREET: &[u8] = &[0x55, 4, 9];
const O: &[u8] = &[0x55, 4, 10];
const OU: &[u8] = &[0x55, 4, 11];
const SERIAL: &[u8] = &[0x55, 4, 5];
const DC: &[u8] = &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25];
const UID: &[u8] = &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1];
const EMAIL: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1];

const UTF8: u8 = 12;
const PRINTABLE: u8 = 19;
const T61: u8 = 20;
const IA5: u8 = 22;
const BMP: u8 = 30;

fn attribute(kind: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
    tlv(0x30, &all(&[tlv(6, kind), tlv(tag, value)]))
}

/// A relative name with these attributes.
fn relative(attributes: &[Vec<u8>]) -> Vec<u8> {
    tlv(0x31, &all(attributes))
}

/// A certificate with this subject. Its signature is worth nothing.
fn certificate(subject: &[Vec<u8>]) -> Vec<u8> {
    let algorithm = tlv(0x30, &tlv(6, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]));
    let key_kind = tlv(0x30, &tlv(6, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1]));
    let time = |text: &str| tlv(23, text.as_bytes());
    let issuer = relative(&[attribute(CN, UTF8, b"issuer")]);
    let content = all(&[
        tlv(0xa0, &tlv(2, &[2])),
        tlv(2, &[1]),
        algorithm.clone(),
        tlv(0x30, &issuer),
        tlv(0x30, &all(&[time("200101000000Z"), time("490101000000Z")])),
        tlv(0x30, &all(subject)),
        tlv(0x30, &all(&[key_kind, tlv(3, &[0, 4, 1, 2])])),
    ]);
    tlv(
        0x30,
        &all(&[tlv(0x30, &content), algorithm, tlv(3, &[0, 1, 2])]),
    )
}

/// The text of a subject whose only attribute is this common name.
fn text_of(value: &str) -> String {
    let name = relative(&[attribute(CN, UTF8, value.as_bytes())]);
    of_certificate(&certificate(&[name])).unwrap()
}

#[test]
fn names_are_written_from_the_last_to_the_first_with_javas_keywords() {
    let one = |kind, value: &[u8]| relative(&[attribute(kind, UTF8, value)]);
    let subject = [
        one(C, b"DE"),
        one(ST, b"Hessen"),
        one(L, b"Kassel"),
        one(STREET, b"Ring 1"),
        one(DC, b"example"),
        one(O, b"Example"),
        one(OU, b"Ops"),
        one(UID, b"u1"),
        one(CN, b"worker"),
    ];
    assert_eq!(
        of_certificate(&certificate(&subject)).unwrap(),
        "CN=worker,UID=u1,OU=Ops,O=Example,DC=example,STREET=Ring 1,L=Kassel,ST=Hessen,C=DE"
    );
    let several = [relative(&[
        attribute(CN, UTF8, b"a"),
        attribute(OU, PRINTABLE, b"b"),
    ])];
    assert_eq!(of_certificate(&certificate(&several)).unwrap(), "CN=a+OU=b");
}

#[test]
fn types_without_a_keyword_are_numbers_and_their_values_hexadecimal() {
    let subject = [
        relative(&[attribute(EMAIL, IA5, b"a@b")]),
        relative(&[attribute(SERIAL, PRINTABLE, b"7")]),
        relative(&[attribute(CN, UTF8, b"x")]),
    ];
    assert_eq!(
        of_certificate(&certificate(&subject)).unwrap(),
        "CN=x,2.5.4.5=#130137,1.2.840.113549.1.9.1=#1603614062"
    );
    // A value that is not text.
    let number = [relative(&[attribute(CN, 2, &[5])])];
    assert_eq!(of_certificate(&certificate(&number)).unwrap(), "CN=#020105");
}

#[test]
fn a11_letters_with_a_meaning_are_escaped_as_java_does() {
    for (value, text) in [
        ("a,b", r"CN=a\,b"),
        ("a+b", r"CN=a\+b"),
        ("a=b", r"CN=a\=b"),
        ("a<b>c", r"CN=a\<b\>c"),
        ("a;b", r"CN=a\;b"),
        ("a#b", r"CN=a\#b"),
        ("a\"b", "CN=a\\\"b"),
        ("a\\b", r"CN=a\\b"),
        (" a", r"CN=\ a"),
        ("a ", r"CN=a\ "),
        ("  a  b  ", r"CN=\ \ a  b\ \ "),
        ("   ", r"CN=\ \ \ "),
        ("a\0b", r"CN=a\00b"),
        ("a\nb", "CN=a\nb"),
        ("\ra", "CN=\\\ra"),
        ("Jürgen 你", "CN=Jürgen 你"),
        ("a/b:c@d'e(f)*", "CN=a/b:c@d'e(f)*"),
        ("", "CN="),
    ] {
        assert_eq!(text_of(value), text, "{value:?}");
    }
}

#[test]
fn other_encodings_of_text_are_decoded() {
    let of =
        |tag, value: &[u8]| of_certificate(&certificate(&[relative(&[attribute(CN, tag, value)])]));
    assert_eq!(of(T61, b"J\xfcrgen").unwrap(), "CN=Jürgen");
    assert_eq!(of(BMP, b"\0J\0\xfc").unwrap(), "CN=Jü");
    assert_eq!(of(IA5, b"abc").unwrap(), "CN=abc");
    // What is not text in its encoding is nobody: two certificates could be one identity.
    assert_eq!(of(UTF8, b"a\xff"), Err(SubjectError::NotText));
    assert_eq!(of(BMP, b"\0J\0"), Err(SubjectError::NotText));
    assert_eq!(of(BMP, b"\xd8\0\0J"), Err(SubjectError::NotText));
}

#[test]
fn a12_a_certificate_without_a_subject_is_nobody() {
    assert_eq!(of_certificate(&certificate(&[])), Err(SubjectError::Empty));
    let long = "x".repeat(5000);
    let long = [relative(&[attribute(CN, UTF8, long.as_bytes())])];
    assert_eq!(
        of_certificate(&certificate(&long)),
        Err(SubjectError::TooLong)
    );
    let unreadable = of_certificate(b"not a certificate").unwrap_err();
    assert!(matches!(unreadable, SubjectError::Unreadable(_)));
}

/// Two subjects that differ have texts that differ, however they imitate each other.
#[test]
fn a11_no_name_can_imitate_another() {
    let mut rng = fastrand::Rng::with_seed(11);
    let letters: Vec<char> = "aO=,+\\\"#; \n\0<>ü".chars().collect();
    let mut known = std::collections::BTreeMap::new();
    let kinds = [CN, O, OU];
    for _ in 0..20_000 {
        let mut subject = Vec::new();
        for _ in 0..rng.usize(1..3) {
            let value: String = (0..rng.usize(0..5))
                .map(|_| letters[rng.usize(..letters.len())])
                .collect();
            let kind = kinds[rng.usize(..kinds.len())];
            subject.push(relative(&[attribute(kind, UTF8, value.as_bytes())]));
        }
        let text = of_certificate(&certificate(&subject)).unwrap();
        if let Some(other) = known.insert(text.clone(), subject.clone()) {
            assert_eq!(other, subject, "both are {text:?}");
        }
    }
}

#[test]
fn damaged_certificates_give_an_identity_or_an_error_and_no_panic() {
    let mut rng = fastrand::Rng::with_seed(12);
    let good = certificate(&[
        relative(&[attribute(O, UTF8, b"Example")]),
        relative(&[attribute(CN, BMP, b"\0a\0b")]),
    ]);
    for _ in 0..50_000 {
        let mut bytes = good.clone();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..bytes.len());
            match rng.u8(..4) {
                0 => bytes[at] = rng.u8(..),
                1 => bytes.truncate(at.max(1)),
                2 => bytes.insert(at, rng.u8(..)),
                _ => bytes[at] ^= 1 << rng.u8(..8),
            }
        }
        tls_targets::subject(&bytes);
    }
}
