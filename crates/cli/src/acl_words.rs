//! ACLs in words that people write and read: `creator=all`, `everyone=read`, `sasl:bob=read+write`;
//! and as ZooKeeper's command line writes them: `sasl:bob:rw`.

use std::str::FromStr;

use baton_client::{Acl, Perms};

/// Words for whom an entry is.
const EVERYONE: (&str, &str, &str) = ("everyone", "world", "anyone");
const CREATOR: (&str, &str, &str) = ("creator", "auth", "");
/// Words for permissions, and ZooKeeper's letters.
const PERMISSIONS: [(&str, char, Perms); 5] = [
    ("read", 'r', Perms::READ),
    ("write", 'w', Perms::WRITE),
    ("create", 'c', Perms::CREATE),
    ("delete", 'd', Perms::DELETE),
    ("admin", 'a', Perms::ADMIN),
];
const ALL: &str = "all";
/// Form of entries, for error messages.
const FORM: &str = "write WHO=PERMISSIONS, like creator=all, everyone=read or sasl:bob=read+create";

/// One entry of an ACL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AclEntry(pub(crate) Acl<'static>);

impl FromStr for AclEntry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        // A hash in base64 ends with a sign of equality, and subjects of certificates have them
        // inside: the last one counts.
        if let Some((who, said)) = text.rsplit_once('=')
            && let Some(perms) = permissions(said)
        {
            let (scheme, id) = identity(who)?;
            return Ok(Self(Acl::new(perms, scheme, id)));
        }
        if let Some((who, said)) = text.rsplit_once(':')
            && who.contains(':')
            && let Some(perms) = letters(said)
        {
            let (scheme, id) = identity(who)?;
            return Ok(Self(Acl::new(perms, scheme, id)));
        }
        for (word, scheme, id) in [EVERYONE, CREATOR] {
            if text == word {
                return Ok(Self(Acl::new(Perms::ALL, scheme, id)));
            }
        }
        let words: Vec<_> = PERMISSIONS.iter().map(|(word, _, _)| *word).collect();
        Err(format!(
            "'{text}' is not an entry of an ACL: {FORM}; permissions are {}, {ALL}",
            words.join(", ")
        ))
    }
}

/// Scheme and id.
fn identity(who: &str) -> Result<(String, String), String> {
    for (word, scheme, id) in [EVERYONE, CREATOR] {
        if who == word {
            return Ok((scheme.to_owned(), id.to_owned()));
        }
    }
    let (scheme, id) = who
        .split_once(':')
        // A subject without a sign of equality was cut at its own.
        .filter(|(scheme, id)| !scheme.is_empty() && (*scheme != "x509" || id.contains('=')))
        .ok_or_else(|| {
            format!(
                "'{who}' is not a name that an ACL can have: write everyone, creator or SCHEME:ID, like sasl:bob, \
                 digest:bob:HASH, ip:10.0.0.0/8 or x509:CN=bob"
            )
        })?;
    Ok((scheme.to_owned(), id.to_owned()))
}

/// Words with `+` between, or letters.
fn permissions(text: &str) -> Option<Perms> {
    let words = text.split(['+', ',']).map(str::trim);
    let named: Option<Vec<Perms>> = words.map(permission).collect();
    match named {
        Some(named) => Some(named.into_iter().fold(Perms(0), |all, one| all | one)),
        None => letters(text),
    }
}

fn permission(word: &str) -> Option<Perms> {
    if word == ALL {
        return Some(Perms::ALL);
    }
    let mut known = PERMISSIONS.iter();
    known
        .find(|(known, _, _)| *known == word)
        .map(|(_, _, perms)| *perms)
}

fn letters(text: &str) -> Option<Perms> {
    let letters = text.chars().map(|letter| {
        let mut known = PERMISSIONS.iter();
        known
            .find(|(_, known, _)| *known == letter)
            .map(|(_, _, perms)| *perms)
    });
    let named: Option<Vec<Perms>> = letters.collect();
    named
        .filter(|named| !named.is_empty())
        .map(|named| named.into_iter().fold(Perms(0), |all, one| all | one))
}

/// The permissions in ZooKeeper's letters.
pub(crate) fn shown_letters(perms: Perms) -> String {
    let has = |(_, _, one): &&(&str, char, Perms)| perms.contains(*one);
    let known = PERMISSIONS.iter().filter(has);
    known.map(|(_, letter, _)| *letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Acl<'static>, String> {
        text.parse::<AclEntry>().map(|entry| entry.0)
    }

    #[test]
    fn entries_are_read_in_words_and_in_zookeepers_form() {
        let rw = Perms::READ | Perms::WRITE;
        for (text, scheme, id, perms) in [
            ("creator", "auth", "", Perms::ALL),
            ("creator=all", "auth", "", Perms::ALL),
            ("everyone", "world", "anyone", Perms::ALL),
            ("everyone=read", "world", "anyone", Perms::READ),
            (" everyone=r ", "world", "anyone", Perms::READ),
            ("sasl:bob=read+write", "sasl", "bob", rw),
            ("sasl:bob=read, write", "sasl", "bob", rw),
            ("sasl:bob=rw", "sasl", "bob", rw),
            ("sasl:bob:wr", "sasl", "bob", rw),
            ("sasl:a:b=r", "sasl", "a:b", Perms::READ),
            ("world:anyone:cdrwa", "world", "anyone", Perms::ALL),
            ("auth::cdrwa", "auth", "", Perms::ALL),
            ("ip:10.0.0.0/8=admin", "ip", "10.0.0.0/8", Perms::ADMIN),
            ("ip:::1=r", "ip", "::1", Perms::READ),
            (
                "digest:bob:D/InIHSb7yEEbrWz8b9l71RjZJU=:cdrwa",
                "digest",
                "bob:D/InIHSb7yEEbrWz8b9l71RjZJU=",
                Perms::ALL,
            ),
            (
                "digest:bob:D/InIHSb7yEEbrWz8b9l71RjZJU==all",
                "digest",
                "bob:D/InIHSb7yEEbrWz8b9l71RjZJU=",
                Perms::ALL,
            ),
            (
                "x509:CN=bob,O=Example, Inc.=read",
                "x509",
                "CN=bob,O=Example, Inc.",
                Perms::READ,
            ),
            ("x509:CN=bob:r", "x509", "CN=bob", Perms::READ),
        ] {
            let expected = Acl::new(perms, scheme, id);
            assert_eq!(read(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_entry_is_refused_with_the_form() {
        for (text, part) in [
            ("", "WHO=PERMISSIONS"),
            ("bob", "WHO=PERMISSIONS"),
            ("bob=read", "'bob' is not a name"),
            (":bob=read", "':bob' is not a name"),
            ("sasl:bob", "WHO=PERMISSIONS"),
            ("sasl:bob=", "WHO=PERMISSIONS"),
            (
                "sasl:bob=reed",
                "permissions are read, write, create, delete, admin, all",
            ),
            ("sasl:bob=read+", "WHO=PERMISSIONS"),
            ("x509:CN=bob", "WHO=PERMISSIONS"),
            ("x509:CN=card", "'x509:CN' is not a name"),
            ("everyone:r", "WHO=PERMISSIONS"),
        ] {
            let refused = read(text).unwrap_err();
            assert!(refused.contains(part), "{text}: {refused}");
        }
    }

    #[test]
    fn permissions_are_shown_in_letters() {
        assert_eq!(shown_letters(Perms::ALL), "rwcda");
        assert_eq!(shown_letters(Perms::READ | Perms::DELETE), "rd");
        assert_eq!(shown_letters(Perms(0)), "");
    }
}
