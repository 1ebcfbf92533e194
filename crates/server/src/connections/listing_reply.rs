//! The reply that lists the children of a znode that has many: the names are those of one moment,
//! and are encoded piece by piece as the client reads them. Owns the bytes of that reply.

use baton_proto::wire::{put_count, put_string};
use baton_proto::{ReplyHeader, Stat, frame};
use baton_tree::ChildListing;
use bytes::BufMut;

/// A reply of which a part may have been written.
#[derive(Debug)]
pub(crate) struct ListingReply {
    head: Vec<u8>,
    names: ChildListing,
    tail: Vec<u8>,
    /// Bytes that are not written yet.
    left: usize,
}

impl ListingReply {
    /// `stat` is that of the znode, where the client has asked for it.
    pub(crate) fn new(header: ReplyHeader, names: ChildListing, stat: Option<&Stat>) -> Self {
        let mut tail = Vec::new();
        if let Some(stat) = stat {
            stat.encode(&mut tail);
        }
        let of_names = names.names() * size_of::<i32>() + names.bytes();
        let body = ReplyHeader::BYTES + size_of::<i32>() + of_names + tail.len();
        let mut head = Vec::new();
        head.put_i32(i32::try_from(body).unwrap_or(i32::MAX));
        header.encode(&mut head);
        put_count(&mut head, names.names());
        Self {
            head,
            names,
            tail,
            left: frame::LENGTH_BYTES + body,
        }
    }

    /// Bytes that are not written yet; 0 once it is whole.
    pub(crate) const fn left(&self) -> usize {
        self.left
    }

    /// Writes the next part, of about `most` bytes.
    pub(crate) fn write(&mut self, most: usize, out: &mut Vec<u8>) {
        let before = out.len();
        out.append(&mut self.head);
        while out.len() - before < most {
            if !self.names.next_name(|name| put_string(out, name)) {
                out.append(&mut self.tail);
                break;
            }
        }
        self.left = self.left.saturating_sub(out.len() - before);
    }
}

#[cfg(test)]
mod tests {
    use baton_proto::{Create, CreateMode, Limits, OpCode, Request, Response};
    use baton_tree::{Command, Identity, Tree};
    use bytes::Bytes;

    use super::*;

    #[test]
    fn the_pieces_are_the_reply_that_one_piece_would_be() {
        let mut tree = Tree::new();
        let identity = Identity::anonymous();
        let open = Command::OpenSession {
            session_id: 1,
            password: [0; 16],
            timeout_ms: 1000,
        };
        tree.apply(0, 1, &identity, open, &mut ());
        for n in 0..5000 {
            let path = format!("/{n}");
            let acl = vec![baton_proto::Acl::open_unsafe()];
            let request = Create::new(&path, None, acl, CreateMode::Persistent);
            let mut body = Vec::new();
            Request::Create(request).encode(&mut body);
            let op = OpCode::Create2;
            tree.apply(0, 1, &identity, Command::Write { op, body: &body }, &mut ());
        }
        let (names, stat) = tree.get_children("/", &identity).unwrap();
        let children: Vec<String> = names.map(str::to_owned).collect();
        assert_eq!(children.len(), 5001);
        let header = ReplyHeader {
            xid: 7,
            zxid: 8,
            err: 0,
        };
        for (stat, expected) in [
            (None, Response::Children(children.clone())),
            (
                Some(stat),
                Response::Children2 {
                    children: children.clone(),
                    stat,
                },
            ),
        ] {
            let mut whole = Vec::new();
            frame::write_reply(&mut whole, header, Some(&expected));
            for most in [1, 1000, usize::MAX] {
                let names = tree.listing("/").unwrap();
                let mut reply = ListingReply::new(header, names, stat.as_ref());
                assert_eq!(reply.left(), whole.len());
                let mut out = Vec::new();
                let mut pieces = 0;
                while reply.left() > 0 {
                    reply.write(most, &mut out);
                    pieces += 1;
                    assert_eq!(out.len() + reply.left(), whole.len());
                }
                assert!(pieces >= whole.len() / most.saturating_add(100));
                assert!(out == whole, "{most}");
            }
            let body = Bytes::from(whole).slice(frame::LENGTH_BYTES + ReplyHeader::BYTES..);
            let op = match stat {
                Some(_) => OpCode::GetChildren2,
                None => OpCode::GetChildren,
            };
            assert_eq!(
                Response::decode(op, &body, &Limits::default()),
                Ok(expected)
            );
        }
    }
}
