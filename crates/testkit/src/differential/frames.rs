//! The acts of a program as frames on a connection: whole, cut short, with a wrong length in them,
//! or as long as a frame may be.

use baton_proto::{OpCode, Request, frame, xid};

use super::places::PathTable;
use super::program::Act;

/// Room that ZooKeeper's `jute.maxbuffer`, and Baton's limit, leave behind a header of eight bytes.
const LONGEST_BODY: usize = 1_048_575 - 8;

/// Appends the act's frame, if it is one; returns the operation that the answer is to be read as.
/// `next_xid` counts those that it takes.
pub(super) fn write(
    act: &Act,
    next_xid: &mut i32,
    places: &PathTable,
    base: i64,
    out: &mut Vec<u8>,
) -> OpCode {
    let mut xid = *next_xid;
    let (op, code) = match act {
        Act::Op(code) => (OpCode::Ping, *code),
        Act::Full { .. } => (OpCode::SetData, OpCode::SetData.code()),
        Act::Ask(request) | Act::Cut(request, _) | Act::Length { request, .. } => {
            xid = match request {
                Request::Ping => xid::PING,
                Request::Auth(_) => xid::AUTH,
                Request::SetWatches { .. } | Request::SetWatches2 { .. } => xid::SET_WATCHES,
                _ => xid,
            };
            (request.op(), request.op().code())
        }
        _ => return OpCode::Ping,
    };
    if xid > 0 {
        *next_xid += 1;
    }
    let start = frame::begin(out);
    out.extend_from_slice(&xid.to_be_bytes());
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(&body(act, places, base));
    frame::finish(out, start);
    op
}

fn body(act: &Act, places: &PathTable, base: i64) -> Vec<u8> {
    let mut body = Vec::new();
    match act {
        Act::Ask(request) => places.request(request, base).encode(&mut body),
        Act::Cut(request, percent) => {
            places.request(request, base).encode(&mut body);
            body.truncate(body.len() * percent / 100);
        }
        Act::Length {
            request,
            place,
            value,
        } => {
            places.request(request, base).encode(&mut body);
            let at = match (request, place) {
                // Behind a zxid.
                (Request::SetWatches { .. } | Request::SetWatches2 { .. }, _) => 8,
                (_, 0) => 0,
                // Behind the operation's header.
                (Request::Multi(_), _) => 9,
                _ => 4 + length_at(&body, 0),
            };
            if let Some(bytes) = body.get_mut(at..at + 4) {
                bytes.copy_from_slice(&value.to_be_bytes());
            }
        }
        Act::Full { path, over } => {
            places.with_data(path, b"").encode(&mut body);
            let data = vec![b'F'; (LONGEST_BODY + over).saturating_sub(body.len())];
            body.clear();
            places.with_data(path, &data).encode(&mut body);
        }
        _ => {}
    }
    body
}

fn length_at(body: &[u8], at: usize) -> usize {
    let length = body.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    length.map_or(0, |bytes| {
        usize::try_from(i32::from_be_bytes(bytes)).unwrap_or(0)
    })
}
