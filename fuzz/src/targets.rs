//! Fuzz targets of the codec: each function takes any bytes at all and fails if a promise does not
//! hold for them. Decoding never panics; what decodes encodes to something no longer, which decodes
//! to the same.

use baton_proto::{
    ConnectRequest, ConnectResponse, Decoder, EnsembleConfig, Limits, OpCode, ReplyHeader, Request,
    RequestHeader, Response, TraceContext, WatcherEvent, frame,
};
use bytes::{Bytes, BytesMut};

/// A frame from a client: header and body.
pub fn request(bytes: &[u8]) {
    let limits = Limits::default();
    let mut from = Decoder::new(bytes, &limits);
    let Ok(header) = RequestHeader::decode(&mut from) else {
        return;
    };
    let body = from.rest();
    if let Some(context) = TraceContext::decode(body) {
        let mut again = Vec::new();
        context.encode(&mut again);
        assert_eq!(TraceContext::decode(&again), Some(context));
        assert!(body.starts_with(&again));
    }
    let Ok(op) = OpCode::try_from(header.op) else {
        return;
    };
    let Ok(request) = Request::decode(op, body, &limits) else {
        return;
    };
    let mut again = Vec::new();
    request.encode(&mut again);
    assert!(again.len() <= body.len(), "{request:?}");
    assert_eq!(Request::decode(op, &again, &limits).as_ref(), Ok(&request));
}

/// A frame from a server: header and body, the body as that of every operation in turn.
pub fn response(bytes: &[u8]) {
    let limits = Limits::default();
    let whole = Bytes::copy_from_slice(bytes);
    let mut from = Decoder::new(&whole, &limits);
    if ReplyHeader::decode(&mut from).is_err() {
        return;
    }
    let body = whole.slice(from.offset()..);
    if let Ok(event) = WatcherEvent::decode(&mut from) {
        let mut again = Vec::new();
        event.encode(&mut again);
        assert_eq!(
            WatcherEvent::decode(&mut Decoder::new(&again, &limits)),
            Ok(event)
        );
    }
    for op in OpCode::ALL {
        let Ok(response) = Response::decode(op, &body, &limits) else {
            continue;
        };
        let mut again = Vec::new();
        response.encode(&mut again);
        assert!(again.len() <= body.len(), "{response:?}");
        let again = Response::decode(op, &Bytes::from(again), &limits);
        assert_eq!(again, Ok(response));
    }
}

/// The first frame of either side.
pub fn connect(bytes: &[u8]) {
    let limits = Limits::default();
    if let Ok(request) = ConnectRequest::decode(bytes, &limits) {
        let mut again = Vec::new();
        request.encode(&mut again);
        assert!(again.len() <= bytes.len());
        assert_eq!(
            ConnectRequest::decode(&again, &limits).as_ref(),
            Ok(&request)
        );
    }
    if let Ok(response) = ConnectResponse::decode(bytes, &limits) {
        let mut again = Vec::new();
        response.encode(&mut again);
        assert!(again.len() <= bytes.len());
        assert_eq!(ConnectResponse::decode(&again, &limits), Ok(response));
    }
}

/// A stream of frames: the first byte says in what pieces it arrives, which must make no
/// difference.
pub fn frames(bytes: &[u8]) {
    const MAX_BYTES: usize = 1 << 16;
    let Some((piece, stream)) = bytes.split_first() else {
        return;
    };
    let split = |piece: usize| {
        let mut buffer = BytesMut::new();
        let mut found = Vec::new();
        for piece in stream.chunks(piece) {
            buffer.extend_from_slice(piece);
            loop {
                match frame::split_frame(&mut buffer, MAX_BYTES) {
                    Ok(Some(body)) => found.push(body),
                    Ok(None) => break,
                    Err(error) => return (found, Some(error)),
                }
            }
        }
        let taken: usize = found
            .iter()
            .map(|body| frame::LENGTH_BYTES + body.len())
            .sum();
        assert_eq!(taken + buffer.len(), stream.len());
        (found, None)
    };
    assert_eq!(
        split(usize::from(*piece).max(1)),
        split(stream.len().max(1))
    );
}

/// The text of `/zookeeper/config`.
pub fn ensemble_config(bytes: &[u8]) {
    let Ok(config) = EnsembleConfig::parse(bytes) else {
        return;
    };
    let again = config.to_string();
    assert_eq!(EnsembleConfig::parse(again.as_bytes()), Ok(config));
}
