//! The framing of HTTP/1.1 and 1.0 as callers send it: where a head ends, and where a body does.
//! Reads no socket, trusts no count, and keeps no header that the agent has no use for.

use axum::http::{Method, Uri};
use bytes::{Buf, Bytes, BytesMut};

/// Most bytes of a head.
const MAX_HEAD: usize = 16 << 10;
/// Most headers of a head.
const MAX_HEADERS: usize = 64;
/// Most bytes of a line between the pieces of a body.
const MAX_LINE: usize = 1 << 10;
/// Most lines after the last piece of a body.
const MAX_TRAILERS: u8 = 32;

/// The reason why bytes are not a request that the agent reads.
pub(crate) type Malformed = &'static str;

/// The head of a request.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    /// HTTP/1.1, whose answers may have chunks.
    pub(crate) is_newest: bool,
    /// Whether the caller sends no further request.
    pub(crate) is_last: bool,
    /// Whether the caller sends the body only after an interim answer.
    pub(crate) awaits_continue: bool,
    pub(crate) body: BodyFraming,
}

impl Head {
    /// Takes a head off the start of `buffer`; `None`: more is to come.
    pub(crate) fn take(buffer: &mut BytesMut) -> Result<Option<Self>, Malformed> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let length = match request.parse(buffer) {
            Ok(httparse::Status::Complete(length)) if length <= MAX_HEAD => length,
            Ok(httparse::Status::Partial) if buffer.len() <= MAX_HEAD => return Ok(None),
            Ok(_) => return Err("its head is too large"),
            Err(httparse::Error::TooManyHeaders) => return Err("it has too many headers"),
            Err(_) => return Err("it is not HTTP/1.1"),
        };
        let head = Self::of(&request)?;
        buffer.advance(length);
        Ok(Some(head))
    }

    fn of(request: &httparse::Request<'_, '_>) -> Result<Self, Malformed> {
        let is_newest = request.version == Some(1);
        let method = request.method.unwrap_or_default().as_bytes();
        let mut head = Self {
            method: Method::from_bytes(method).map_err(|_| "its method is none")?,
            uri: Uri::try_from(request.path.unwrap_or_default())
                .map_err(|_| "its target is not a URI")?,
            is_newest,
            is_last: !is_newest,
            awaits_continue: false,
            body: BodyFraming::Ended,
        };
        let (mut length, mut is_chunked) = (None, false);
        for header in request.headers.iter() {
            let value = header.value.trim_ascii();
            let has = |word: &str| {
                let mut words = value.split(|byte| *byte == b',');
                words.any(|it| it.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
            };
            if header.name.eq_ignore_ascii_case("connection") {
                head.is_last |= has("close");
            } else if header.name.eq_ignore_ascii_case("expect") {
                head.awaits_continue = is_newest && has("100-continue");
            } else if header.name.eq_ignore_ascii_case("content-length") {
                let found = digits(value, 10).ok_or("its content-length is not a number")?;
                if length.replace(found).is_some_and(|other| other != found) {
                    return Err("it has two lengths");
                }
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                if is_chunked || !is_newest || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err("its transfer-encoding is not chunked");
                }
                is_chunked = true;
            }
        }
        head.body = match (is_chunked, length) {
            (true, Some(_)) => return Err("it has both chunks and a length"),
            (true, None) => BodyFraming::ChunkSize,
            (false, Some(length)) => BodyFraming::of_length(length),
            (false, None) => BodyFraming::Ended,
        };
        Ok(head)
    }
}

/// Position in the body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFraming {
    /// Bytes that are left of a body of a known length.
    Length(u64),
    /// The line with the size of the next chunk.
    ChunkSize,
    /// Bytes that are left of a chunk.
    Chunk(u64),
    /// The end of a chunk's last line.
    ChunkEnd,
    /// Lines that may still follow the last chunk.
    Trailers(u8),
    Ended,
    /// Not a body: the start of a further request is not known.
    Broken,
}

impl BodyFraming {
    const fn of_length(length: u64) -> Self {
        match length {
            0 => Self::Ended,
            _ => Self::Length(length),
        }
    }

    /// Takes the next piece of the body off the start of `buffer`; `None`: more is to come, unless
    /// the body has ended.
    pub(crate) fn take(&mut self, buffer: &mut BytesMut) -> Result<Option<Bytes>, Malformed> {
        self.step(buffer).inspect_err(|_| *self = Self::Broken)
    }

    fn step(&mut self, buffer: &mut BytesMut) -> Result<Option<Bytes>, Malformed> {
        loop {
            match *self {
                Self::Ended => return Ok(None),
                Self::Broken => return Err("its body is malformed"),
                Self::Length(left) | Self::Chunk(left) => {
                    let is_chunk = matches!(self, Self::Chunk(_));
                    let here = buffer
                        .len()
                        .min(usize::try_from(left).unwrap_or(usize::MAX));
                    if here == 0 {
                        return Ok(None);
                    }
                    let left = left - here as u64;
                    *self = match is_chunk {
                        true if left == 0 => Self::ChunkEnd,
                        true => Self::Chunk(left),
                        false => Self::of_length(left),
                    };
                    return Ok(Some(buffer.split_to(here).freeze()));
                }
                Self::ChunkSize => {
                    let Some(line) = take_line(buffer)? else {
                        return Ok(None);
                    };
                    // What follows the size may be an extension, which means nothing here.
                    let size = line.as_ref().split(|byte| *byte == b';').next();
                    let size = digits(size.unwrap_or_default().trim_ascii(), 16);
                    let size = size.ok_or("a chunk has no size")?;
                    *self = match size {
                        0 => Self::Trailers(MAX_TRAILERS),
                        _ => Self::Chunk(size),
                    };
                }
                Self::ChunkEnd => match take_line(buffer)? {
                    Some(line) if line.is_empty() => *self = Self::ChunkSize,
                    Some(_) => return Err("a chunk is longer than its size"),
                    None => return Ok(None),
                },
                Self::Trailers(left) => match take_line(buffer)? {
                    Some(line) if line.is_empty() => *self = Self::Ended,
                    Some(_) if left == 0 => return Err("it has too many trailers"),
                    Some(_) => *self = Self::Trailers(left - 1),
                    None => return Ok(None),
                },
            }
        }
    }
}

/// Takes a line and its end off the start of `buffer`, without the end.
fn take_line(buffer: &mut BytesMut) -> Result<Option<BytesMut>, Malformed> {
    let Some(end) = buffer.iter().take(MAX_LINE).position(|byte| *byte == b'\n') else {
        return match buffer.len() < MAX_LINE {
            true => Ok(None),
            false => Err("a line of its chunks is too long"),
        };
    };
    let mut line = buffer.split_to(end + 1);
    if !line.ends_with(b"\r\n") {
        return Err("a line of its chunks does not end in CR and LF");
    }
    line.truncate(end - 1);
    Ok(Some(line))
}

/// Reads a number that consists of digits alone.
fn digits(text: &[u8], radix: u32) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    // `from_str_radix` takes a sign.
    let is_number = text.chars().all(|digit| digit.is_digit(radix));
    is_number.then(|| u64::from_str_radix(text, radix).ok())?
}

/// Reads bytes as requests, for a fuzzer.
#[cfg(feature = "testing")]
pub fn parse_requests(bytes: &[u8]) {
    let mut buffer = BytesMut::from(bytes);
    while let Ok(Some(mut head)) = Head::take(&mut buffer) {
        while let Ok(Some(piece)) = head.body.take(&mut buffer) {
            assert!(!piece.is_empty(), "each step takes something");
        }
        if head.body != BodyFraming::Ended {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body of a request with these headers, when it arrives in pieces of `step` bytes; what
    /// is left behind it.
    fn read(text: &str, step: usize) -> Result<(Vec<u8>, Vec<u8>), Malformed> {
        let (mut buffer, mut head, mut body) = (BytesMut::new(), None, Vec::new());
        for piece in text.as_bytes().chunks(step) {
            buffer.extend_from_slice(piece);
            if head.is_none() {
                head = Head::take(&mut buffer)?;
            }
            if let Some(head) = &mut head {
                while let Some(piece) = head.body.take(&mut buffer)? {
                    body.extend_from_slice(&piece);
                }
            }
        }
        match head {
            Some(head) if head.body == BodyFraming::Ended => Ok((body, buffer.to_vec())),
            _ => Err("not ended"),
        }
    }

    #[test]
    fn a_body_is_the_same_in_whatever_pieces_it_arrives() {
        for (rest, expected) in [
            ("\r\nGET", ""),
            ("Content-Length: 3\r\n\r\nabcGET", "abc"),
            (
                "content-length:  3 \r\nContent-Length: 3\r\n\r\nabcGET",
                "abc",
            ),
            ("Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET", ""),
            (
                "transfer-encoding: Chunked\r\n\r\n1\r\na\r\n2;x=y\r\nbc\r\n0\r\n\r\nGET",
                "abc",
            ),
            (
                "Transfer-Encoding: chunked\r\n\r\n00a\r\n0123456\r\n9\r\n0 \r\nA: b\r\n\r\nGET",
                "0123456\r\n9",
            ),
        ] {
            let text = format!("PUT /v1/lock/a HTTP/1.1\r\n{rest}");
            for step in 1..text.len() {
                let (body, left) = read(&text, step).unwrap();
                assert_eq!(body, expected.as_bytes(), "{rest} by {step}");
                // What arrives after the end is the next request's.
                assert!(
                    b"GET".starts_with(&left) || left == b"GET",
                    "{rest} by {step}"
                );
            }
        }
    }

    #[test]
    fn a70_a_request_with_two_readings_is_refused() {
        let long = format!("Transfer-Encoding: chunked\r\n\r\n{}", "0".repeat(MAX_LINE));
        let trailers = format!(
            "Transfer-Encoding: chunked\r\n\r\n0\r\n{}\r\n",
            "a: b\r\n".repeat(40)
        );
        for rest in [
            "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "Content-Length: +1\r\n\r\na",
            "Content-Length: 1, 1\r\n\r\na",
            "Content-Length: 99999999999999999999\r\n\r\na",
            "Content-Length:\r\n\r\n",
            "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "Transfer-Encoding: identity\r\n\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n1\na\n0\n\n",
            "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\na",
            &long,
            &trailers,
        ] {
            let text = format!("PUT /v1/lock/a HTTP/1.1\r\n{rest}");
            for step in [1, text.len()] {
                let refused = read(&text, step).unwrap_err();
                assert_ne!(refused, "not ended", "{rest} by {step}");
            }
        }
        let old = "PUT /v1/lock/a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
        assert!(read(old, old.len()).is_err());
    }
}
