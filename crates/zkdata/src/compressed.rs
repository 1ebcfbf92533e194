//! The two ways in which ZooKeeper compresses a snapshot (`zookeeper.snapshot.compression.method`).
//! Owns the framing of snappy-java's streams; what is inside is `snapshot`'s.

use std::io::{self, BufReader, ErrorKind, Read};

use flate2::read::MultiGzDecoder;

/// Magic number of a stream of snappy-java's; its version and the oldest one that it can be read by
/// follow.
const MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
/// The newest version of the framing there is.
const VERSION: u32 = 1;
/// The longest block, compressed or not; ZooKeeper's have 32 KiB.
const MAX_BLOCK_BYTES: usize = 64 << 20;
/// Most bytes that one byte of a block can become: the best that the format can do is 64 bytes from
/// three.
const MAX_RATIO: usize = 22;

/// The bytes of the file `file`, decompressed if its name says that it is compressed.
pub(crate) fn decompressed<'r>(file: &str, from: impl Read + 'r) -> Box<dyn Read + 'r> {
    if file.ends_with(".gz") {
        Box::new(MultiGzDecoder::new(from))
    } else if file.ends_with(".snappy") {
        Box::new(SnappyStream::new(from))
    } else {
        Box::new(from)
    }
}

/// A header, then blocks of raw snappy, each after its length.
struct SnappyStream<R> {
    from: BufReader<R>,
    begun: bool,
    packed: Vec<u8>,
    block: Vec<u8>,
    /// Number of bytes of the block that have been handed out.
    given: usize,
}

impl<R: Read> SnappyStream<R> {
    fn new(from: R) -> Self {
        Self {
            from: BufReader::new(from),
            begun: false,
            packed: Vec::new(),
            block: Vec::new(),
            given: 0,
        }
    }

    fn header(&mut self) -> io::Result<()> {
        let mut magic = [0; MAGIC.len()];
        self.from.read_exact(&mut magic)?;
        if magic != MAGIC {
            return Err(bad("it does not begin with snappy-java's mark"));
        }
        self.number()?;
        if self.number()? > VERSION {
            return Err(bad("it needs a later version of snappy-java's framing"));
        }
        Ok(())
    }

    fn number(&mut self) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.from.read_exact(&mut bytes)?;
        Ok(u32::from_be_bytes(bytes))
    }

    /// Unpacks the next block; false at the end, which is between two blocks.
    fn next_block(&mut self) -> io::Result<bool> {
        let mut first = [0; 1];
        if self.from.read(&mut first)? == 0 {
            return Ok(false);
        }
        let [high] = first;
        let mut low = [0; 3];
        self.from.read_exact(&mut low)?;
        let [a, b, c] = low;
        let length = u32::from_be_bytes([high, a, b, c]) as usize;
        if length > MAX_BLOCK_BYTES {
            return Err(bad("a block has an impossible length"));
        }
        self.packed.clear();
        (&mut self.from)
            .take(length as u64)
            .read_to_end(&mut self.packed)?;
        if self.packed.len() < length {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let unpacked = snap::raw::decompress_len(&self.packed).map_err(damaged)?;
        if unpacked > MAX_BLOCK_BYTES || unpacked > length * MAX_RATIO {
            return Err(bad("a block claims an impossible length"));
        }
        self.block.resize(unpacked, 0);
        self.given = 0;
        snap::raw::Decoder::new()
            .decompress(&self.packed, &mut self.block)
            .map_err(damaged)?;
        Ok(true)
    }
}

impl<R: Read> Read for SnappyStream<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if !self.begun {
            self.header()?;
            self.begun = true;
        }
        while self.given == self.block.len() {
            if !self.next_block()? {
                return Ok(0);
            }
        }
        let rest = self.block.get(self.given..).unwrap_or_default();
        let given = rest.len().min(out.len());
        if let (Some(to), Some(from)) = (out.get_mut(..given), rest.get(..given)) {
            to.copy_from_slice(from);
        }
        self.given += given;
        Ok(given)
    }
}

fn bad(reason: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, reason)
}

fn damaged(error: snap::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}
