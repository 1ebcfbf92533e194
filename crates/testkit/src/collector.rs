//! A collector of OpenTelemetry spans for tests: takes them over OTLP (HTTP, protobuf), and can be
//! as bad as collectors are: slow, or talking nonsense.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Behaviour of a collector towards its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectorBehavior {
    /// Answers correctly.
    Good,
    /// It reads what it is sent, and never answers.
    Silent,
    /// It answers with something that is not HTTP.
    Nonsense,
    /// Its answer never ends.
    Endless,
    /// It is overloaded.
    Busy,
    /// It rejects two spans of each request, and says so in an answer that is a success.
    Rejecting,
}

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpanValue {
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
}

/// A span as it was received.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectedSpan {
    /// `service.name` of the process that sent it.
    pub service: String,
    /// The trace.
    pub trace_id: Vec<u8>,
    /// The span itself.
    pub span_id: Vec<u8>,
    /// Its parent; empty: it is the root of its trace.
    pub parent_id: Vec<u8>,
    /// Its name.
    pub name: String,
    /// Its kind, by OTLP's number: 1 internal, 2 server.
    pub kind: u64,
    /// Time at which it began, in nanoseconds since 1970.
    pub start_ns: u64,
    /// Time at which it ended.
    pub end_ns: u64,
    /// Its attributes.
    pub attributes: BTreeMap<String, SpanValue>,
    /// The names of its events, with their times, in order.
    pub events: Vec<(String, u64)>,
    /// The spans that it names as causes besides its parent.
    pub links: Vec<Vec<u8>>,
}

impl CollectedSpan {
    /// A text among its attributes; empty: there is none.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        match self.attributes.get(name) {
            Some(SpanValue::Text(text)) => text,
            _ => "",
        }
    }
}

#[derive(Debug, Default)]
struct ReceivedSpans {
    spans: Vec<CollectedSpan>,
    requests: usize,
}

/// A collector on a port of its own, until the process ends.
#[derive(Debug, Clone)]
pub struct Collector {
    address: SocketAddr,
    received: Arc<(Mutex<ReceivedSpans>, Condvar)>,
}

impl Collector {
    /// Starts one.
    ///
    /// # Errors
    /// No port can be bound.
    pub fn start(manners: CollectorBehavior) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let received = Arc::<(Mutex<ReceivedSpans>, Condvar)>::default();
        let shared = Arc::clone(&received);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    // The exporter may go away at any time.
                    let _ = serve(stream, manners, &shared);
                });
            }
        });
        Ok(Self { address, received })
    }

    /// Its URL, for `OTEL_EXPORTER_OTLP_ENDPOINT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The spans so far.
    #[must_use]
    pub fn spans(&self) -> Vec<CollectedSpan> {
        lock(&self.received.0).spans.clone()
    }

    /// The spans, once `enough` is satisfied with them.
    ///
    /// # Panics
    /// Where it is not within a minute.
    pub fn wait_for(&self, enough: impl Fn(&[CollectedSpan]) -> bool) -> Vec<CollectedSpan> {
        self.wait(|received| enough(&received.spans)).spans.clone()
    }

    /// Waits until it was sent something this often.
    ///
    /// # Panics
    /// Where it was not within a minute.
    pub fn wait_for_requests(&self, requests: usize) {
        drop(self.wait(|received| received.requests >= requests));
    }

    fn wait(&self, enough: impl Fn(&ReceivedSpans) -> bool) -> MutexGuard<'_, ReceivedSpans> {
        let until = Instant::now() + Duration::from_secs(60);
        let (received, came) = &*self.received;
        let mut received = lock(received);
        while !enough(&received) {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "not received: {received:#?}");
            let woken = came.wait_timeout(received, left);
            received = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        received
    }
}

fn lock(received: &Mutex<ReceivedSpans>) -> MutexGuard<'_, ReceivedSpans> {
    received.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(
    stream: TcpStream,
    manners: CollectorBehavior,
    shared: &(Mutex<ReceivedSpans>, Condvar),
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut out = stream;
    loop {
        let (mut length, mut is_chunked, mut is_packed) = (0, false, false);
        let mut lines = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if lines == 0 {
                assert_eq!(line, "post /v1/traces http/1.1");
            }
            lines += 1;
            if let Some(bytes) = line.strip_prefix("content-length:") {
                length = bytes.trim().parse().unwrap_or(0);
            }
            is_chunked |= line == "transfer-encoding: chunked";
            is_packed |= line == "content-encoding: gzip";
        }
        let mut body = vec![0; length];
        if is_chunked {
            body = chunks(&mut reader)?;
        } else {
            reader.read_exact(&mut body)?;
        }
        if is_packed {
            body = unpacked(&body)?;
        }
        {
            let mut received = lock(&shared.0);
            received.requests += 1;
            if manners == CollectorBehavior::Good {
                received.spans.extend(spans(&body));
            }
        }
        shared.1.notify_all();
        match manners {
            CollectorBehavior::Good => {
                out.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?
            }
            CollectorBehavior::Rejecting => {
                out.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n")?;
                // A partial success: two rejected spans, and why.
                out.write_all(b"\x0a\x0b\x08\x02\x12\x07no room")?;
            }
            CollectorBehavior::Busy => {
                out.write_all(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n")?;
            }
            CollectorBehavior::Nonsense => {
                out.write_all(b"\x16\x03\x01 220 smtp ready\r\n\r\n\0\xff")?;
                return Ok(());
            }
            CollectorBehavior::Silent => {}
            CollectorBehavior::Endless => {
                out.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n")?;
                loop {
                    out.write_all(&[b'x'; 4096])?;
                }
            }
        }
    }
}

/// A body whose length was not known when it was begun.
fn chunks(reader: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim_end(), 16).unwrap_or(0);
        let begin = body.len();
        body.resize(begin + length, 0);
        reader.read_exact(body.get_mut(begin..).unwrap_or_default())?;
        reader.read_line(&mut line)?;
        if length == 0 {
            return Ok(body);
        }
    }
}

/// Unpacks gzip: other collectors are sent it, ours never.
fn unpacked(packed: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut gzip = Command::new("gzip")
        .arg("-dc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = gzip.stdin.take() {
        input.write_all(packed)?;
    }
    Ok(gzip.wait_with_output()?.stdout)
}

/// A field of a protobuf message.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(_) => &[],
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    fn number(&self) -> u64 {
        match self {
            Self::Number(number) => *number,
            Self::Bytes(_) => 0,
        }
    }
}

/// The fields of a protobuf message, by their numbers; as far as it is one.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut found = Vec::new();
    while let Some((number, field)) = next_field(&mut bytes) {
        found.push((number, field));
    }
    found
}

fn next_field<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Field<'a>)> {
    let key = varint(bytes)?;
    let field = match key & 7 {
        0 => Field::Number(varint(bytes)?),
        1 => Field::Number(fixed(bytes, 8)?),
        2 => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            Field::Bytes(take(bytes, length)?)
        }
        5 => Field::Number(fixed(bytes, 4)?),
        _ => return None,
    };
    Some((key >> 3, field))
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let first = *take(bytes, 1)?.first()?;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn fixed(bytes: &mut &[u8], length: usize) -> Option<u64> {
    let digits = take(bytes, length)?.iter().rev();
    Some(digits.fold(0, |value, digit| (value << 8) | u64::from(*digit)))
}

/// The spans of an `ExportTraceServiceRequest`.
fn spans(request: &[u8]) -> Vec<CollectedSpan> {
    let mut found = Vec::new();
    for (_, of_resource) in fields(request) {
        let mut service = String::new();
        for (number, part) in fields(of_resource.bytes()) {
            match number {
                1 => {
                    let of_resource = attributes(part.bytes(), 1);
                    if let Some(SpanValue::Text(name)) = of_resource.get("service.name") {
                        service.clone_from(name);
                    }
                }
                2 => {
                    let parts = fields(part.bytes()).into_iter();
                    let spans = parts.filter(|(number, _)| *number == 2);
                    found.extend(spans.map(|(_, bytes)| span(bytes.bytes(), &service)));
                }
                _ => {}
            }
        }
    }
    found
}

fn span(bytes: &[u8], service: &str) -> CollectedSpan {
    let mut span = CollectedSpan {
        service: service.to_owned(),
        attributes: attributes(bytes, 9),
        ..CollectedSpan::default()
    };
    for (number, field) in fields(bytes) {
        match number {
            1 => span.trace_id = field.bytes().to_vec(),
            2 => span.span_id = field.bytes().to_vec(),
            4 => span.parent_id = field.bytes().to_vec(),
            5 => span.name = field.text(),
            6 => span.kind = field.number(),
            7 => span.start_ns = field.number(),
            8 => span.end_ns = field.number(),
            11 => {
                let (mut name, mut at) = (String::new(), 0);
                for (number, field) in fields(field.bytes()) {
                    match number {
                        1 => at = field.number(),
                        2 => name = field.text(),
                        _ => {}
                    }
                }
                span.events.push((name, at));
            }
            13 => {
                let parts = fields(field.bytes()).into_iter();
                let ids = parts.filter(|(number, _)| *number == 2);
                span.links.extend(ids.map(|(_, id)| id.bytes().to_vec()));
            }
            _ => {}
        }
    }
    span
}

/// The attributes of a message, which are its field of this number.
fn attributes(bytes: &[u8], of: u64) -> BTreeMap<String, SpanValue> {
    let mut found = BTreeMap::new();
    for (_, pair) in fields(bytes).iter().filter(|(number, _)| *number == of) {
        let mut key = String::new();
        for (number, part) in fields(pair.bytes()) {
            match number {
                1 => key = part.text(),
                2 => {
                    for (kind, value) in fields(part.bytes()) {
                        let value = match kind {
                            1 => SpanValue::Text(value.text()),
                            3 => SpanValue::Number(value.number().cast_signed()),
                            _ => continue,
                        };
                        found.insert(std::mem::take(&mut key), value);
                    }
                }
                _ => {}
            }
        }
    }
    found
}
