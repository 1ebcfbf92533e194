//! The names and data of members' nodes, in Baton's form and in those of other libraries.
//!
//! Owns names and data of members' nodes (`docs/internals/hazards.md` §2.1). Data shows who a
//! member says it is; only the owner session shows whose the node is (H06).

use baton_proto::path;
use bytes::Bytes;
use uuid::Uuid;

use super::error::MemberError;
use crate::record::Record;

/// The names and data of a group's members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GroupLayout {
    /// `<path>/<id>`; the data is one line of JSON ([`Record`]), then the member's own. Curator's
    /// `GroupMember` sees these members, and is seen.
    #[default]
    Native,
    /// Curator's `GroupMember`: `<path>/<id>`, the data is the member's own.
    GroupMember,
    /// kazoo's `Party`: `<path>/<hex>__party__`, the data is the id.
    Party,
    /// kazoo's `ShallowParty`: `<path>/<hex>-<id>`, the data is the id.
    ShallowParty,
}

/// Content of a member's node.
pub(crate) struct MemberRecord {
    pub id: String,
    pub data: Bytes,
    pub record: Option<Record>,
}

const PARTY: &str = "__party__";

impl GroupLayout {
    /// The layout that these names of members have; the native one where no other is certain.
    pub(crate) fn of_names<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Self {
        let is_shallow = |name: &str| {
            let marker = name.split_once('-').map_or("", |(marker, _)| marker);
            marker.len() == 32 && marker.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        if names.clone().any(|name| name.ends_with(PARTY)) {
            Self::Party
        } else if names.clone().next().is_some() && names.clone().all(is_shallow) {
            Self::ShallowParty
        } else {
            Self::Native
        }
    }

    /// The name of a new member's node.
    pub(super) fn name(self, id: &str) -> Result<String, MemberError> {
        let marker = Uuid::new_v4().simple();
        let name = match self {
            Self::Native | Self::GroupMember => id.to_owned(),
            Self::Party => format!("{marker}{PARTY}"),
            Self::ShallowParty => format!("{marker}-{id}"),
        };
        let bad = |why: &str| MemberError::BadId {
            id: id.to_owned(),
            why: why.to_owned(),
        };
        if id.is_empty() {
            return Err(bad("it is empty"));
        }
        if name.contains('/') {
            return Err(bad("it contains a slash"));
        }
        path::validate(&path::join("/", &name)).map_err(|error| bad(&error.to_string()))?;
        Ok(name)
    }

    pub(super) fn has_room(self) -> bool {
        matches!(self, Self::Native | Self::GroupMember)
    }

    /// The data to store.
    pub(super) fn encode(self, id: &str, data: &[u8], record: &Record) -> Bytes {
        match self {
            Self::Native => [&record.to_bytes(), &b"\n"[..], data].concat().into(),
            Self::GroupMember => Bytes::copy_from_slice(data),
            Self::Party | Self::ShallowParty => Bytes::copy_from_slice(id.as_bytes()),
        }
    }

    /// Decodes a child of the group's path; `None` for one that is not a member's.
    pub(crate) fn decode(self, name: &str, stored: &Bytes) -> Option<MemberRecord> {
        let plain = |id: &str, data: &Bytes| MemberRecord {
            id: id.to_owned(),
            data: data.clone(),
            record: None,
        };
        match self {
            Self::Native | Self::GroupMember => Some(match split(stored) {
                Some((record, data)) => MemberRecord {
                    record: Some(record),
                    ..plain(name, &data)
                },
                None => plain(name, stored),
            }),
            Self::Party => name
                .ends_with(PARTY)
                .then(|| plain(&String::from_utf8_lossy(stored), &Bytes::new())),
            Self::ShallowParty => {
                let (_, id) = name.split_once('-')?;
                Some(plain(id, &Bytes::new()))
            }
        }
    }
}

/// Baton's record and the member's own data, if the record is there.
pub(super) fn split(stored: &Bytes) -> Option<(Record, Bytes)> {
    let end = stored.iter().position(|byte| *byte == b'\n')?;
    let record = Record::from_bytes(stored.get(..end)?)?;
    Some((record, stored.slice(end + 1..)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(layout: GroupLayout, name: &str, data: &[u8]) -> Option<(String, Vec<u8>)> {
        let said = layout.decode(name, &Bytes::copy_from_slice(data))?;
        Some((said.id, said.data.to_vec()))
    }

    #[test]
    fn each_layout_reads_what_it_writes() {
        let record = Record::new(None);
        for layout in [
            GroupLayout::Native,
            GroupLayout::GroupMember,
            GroupLayout::Party,
            GroupLayout::ShallowParty,
        ] {
            let data: &[u8] = if layout.has_room() { b"a\nb\n" } else { b"" };
            let name = layout.name("web-1").unwrap();
            let stored = layout.encode("web-1", data, &record);
            assert_eq!(
                said(layout, &name, &stored),
                Some(("web-1".to_owned(), data.to_vec())),
                "{layout:?}"
            );
        }
    }

    #[test]
    fn other_data_is_taken_as_it_is_and_other_children_are_no_members() {
        let raw = |data: &[u8]| said(GroupLayout::Native, "a", data).unwrap().1;
        assert_eq!(raw(b"10.0.0.1"), b"10.0.0.1");
        assert_eq!(raw(b"{}\nx"), b"{}\nx");
        assert_eq!(raw(b"\n"), b"\n");
        assert_eq!(said(GroupLayout::Party, "config", b"x"), None);
        assert_eq!(said(GroupLayout::ShallowParty, "config", b"x"), None);
    }

    #[test]
    fn an_id_that_makes_no_name_is_refused() {
        for id in ["", "a/b", "..", ".", "a\0"] {
            assert!(GroupLayout::Native.name(id).is_err(), "{id:?}");
        }
        assert!(GroupLayout::ShallowParty.name("a/b").is_err());
        assert!(GroupLayout::Party.name("..").is_ok());
    }
}
