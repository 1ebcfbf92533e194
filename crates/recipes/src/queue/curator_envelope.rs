//! Curator's envelope: how its queues write one or more items into one node.
//!
//! Owns the bytes: a version, each item behind a mark and its length, a mark at the end. It must
//! never trust a length: data comes from anyone who can write to the tree.

use bytes::Bytes;

const VERSION: [u8; 4] = 0x0001_0001_u32.to_be_bytes();
const ITEM: u8 = 1;
const END: u8 = 2;

/// The envelope of `items`.
pub(super) fn encode(items: &[Bytes]) -> Bytes {
    let size: usize = items.iter().map(|item| item.len() + 5).sum();
    let mut out = Vec::with_capacity(size + 5);
    out.extend_from_slice(&VERSION);
    for item in items {
        out.push(ITEM);
        // An item of this length is never sent: the client refuses the request because of its size.
        let length = i32::try_from(item.len()).unwrap_or(i32::MAX);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(item);
    }
    out.push(END);
    out.into()
}

/// The items in an envelope. Bytes behind its end are ignored, as Curator does.
///
/// # Errors
/// What is wrong with the data.
pub(super) fn decode(data: &Bytes) -> Result<Vec<Bytes>, String> {
    let mut at = VERSION.len();
    if data.get(..at) != Some(&VERSION[..]) {
        return Err("it does not begin with the version of Curator's envelope".to_owned());
    }
    let mut items = Vec::new();
    loop {
        match data.get(at) {
            Some(&END) => return Ok(items),
            Some(&ITEM) => {}
            Some(other) => return Err(format!("byte {at} is {other}, which is an unknown mark")),
            None => return Err(format!("it ends at byte {at} without the mark of its end")),
        }
        let begin = at + 5;
        let length = data
            .get(at + 1..begin)
            .and_then(|bytes| bytes.try_into().ok())
            .map(i32::from_be_bytes)
            .and_then(|length| usize::try_from(length).ok())
            .ok_or_else(|| format!("the length of item {} cannot be read", items.len()))?;
        let end = begin.checked_add(length).filter(|end| *end <= data.len());
        let Some(end) = end else {
            return Err(format!(
                "item {} claims {length} bytes, more than there are",
                items.len()
            ));
        };
        items.push(data.slice(begin..end));
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_bytes_are_those_of_curator() {
        let one = [Bytes::from_static(b"hi")];
        let golden = [0, 1, 0, 1, 1, 0, 0, 0, 2, b'h', b'i', 2];
        assert_eq!(&encode(&one)[..], golden);
        assert_eq!(decode(&Bytes::copy_from_slice(&golden)).unwrap(), one);
        assert_eq!(&encode(&[])[..], [0, 1, 0, 1, 2]);
    }

    #[test]
    fn h72_damaged_envelopes_are_refused_with_the_reason() {
        for damaged in [
            &b""[..],
            b"\0\x01\0",
            b"\0\x01\0\x02\x02",
            b"hello",
            b"\0\x01\0\x01",
            b"\0\x01\0\x01\x03",
            b"\0\x01\0\x01\x01\0\0",
            b"\0\x01\0\x01\x01\0\0\0\x05hi\x02",
            b"\0\x01\0\x01\x01\x7f\xff\xff\xffhi\x02",
            b"\0\x01\0\x01\x01\xff\xff\xff\xffhi\x02",
            b"\0\x01\0\x01\x01\xff\xff\xff\xff\x02",
            b"\0\x01\0\x01\x01\0\0\0\x02hi",
        ] {
            assert!(
                decode(&Bytes::copy_from_slice(damaged)).is_err(),
                "{damaged:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn items_come_back_as_they_went_in(items in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6)) {
            let items: Vec<Bytes> = items.into_iter().map(Bytes::from).collect();
            prop_assert_eq!(decode(&encode(&items)).unwrap(), items);
        }

        #[test]
        fn no_bytes_break_the_reader(data in prop::collection::vec(any::<u8>(), 0..60), marked in any::<bool>()) {
            let data = if marked { [&VERSION[..], &data].concat() } else { data };
            let _ = decode(&Bytes::from(data));
        }
    }
}
