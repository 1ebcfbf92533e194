//! Fuzz targets of ZooKeeper's files: any bytes as a snapshot or a log, with their checksums put
//! right, so that what lies behind the checksums is reached. Reading never panics; it refuses on
//! one line that names the file, or what it read makes a tree, or is refused on one line for that;
//! and such a tree, written for ZooKeeper, is read back the same.

use std::io::Write;

use baton_zkdata::{Database, OwnerForm, ZkDataError, read_snapshot, replay_log, write_snapshot};
use simd_adler32::adler32;

const SNAPSHOT: [u8; 16] = *b"ZKSN\0\0\0\x02\xff\xff\xff\xff\xff\xff\xff\xff";
const LOG: [u8; 16] = *b"ZKLG\0\0\0\x02\0\0\0\0\0\0\0\0";
const SNAPPY: [u8; 16] = *b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01";
const END: &[u8] = b"\0\0\0\x01/";
/// Every kind of transaction, and an unknown one.
const KINDS: [i32; 15] = [1, 2, 5, 7, 13, 14, 15, 16, 19, 20, 21, -1, -10, -11, 99];

/// The bytes between a snapshot's header and its first seal, stored in all three ways; and the
/// bytes as files of each.
pub fn snapshot(bytes: &[u8]) {
    for name in ["snapshot.9", "snapshot.9.gz", "snapshot.9.snappy"] {
        hold(name, read_snapshot(name, 9, bytes));
    }
    let mut content = Vec::from(SNAPSHOT);
    content.extend_from_slice(bytes);
    content.extend_from_slice(&u64::from(adler32(&&*content)).to_be_bytes());
    content.extend_from_slice(END);
    let plain = digest(&hold(
        "snapshot.9",
        read_snapshot("snapshot.9", 9, &*content),
    ));
    let gz = read_snapshot("snapshot.9.gz", 9, &*gzip(&content));
    assert_eq!(digest(&hold("snapshot.9.gz", gz)), plain);
    let piece = 1 + bytes.first().map_or(0, |byte| usize::from(*byte)) * 8;
    let snappy = read_snapshot("snapshot.9.snappy", 9, &*snappy_stream(&content, piece));
    assert_eq!(digest(&hold("snapshot.9.snappy", snappy)), plain);
    // Blocks that nobody compressed.
    let mut blocks = Vec::from(SNAPPY);
    blocks.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    blocks.extend_from_slice(bytes);
    let name = "snapshot.9.snappy";
    hold(name, read_snapshot(name, 9, &*blocks));
}

/// Transactions: a byte for the kind of each, a byte for the length of its body, the body. And the
/// bytes as a file.
pub fn log(bytes: &[u8]) {
    hold("log.1", replayed(bytes));
    let mut content = Vec::from(LOG);
    let mut rest = bytes;
    let mut zxid = 0_i64;
    while let [kind, length, tail @ ..] = rest {
        let (body, after) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = after;
        zxid += 1;
        let mut txn = Vec::new();
        txn.extend_from_slice(&i64::from(kind >> 6).to_be_bytes());
        txn.extend_from_slice(&[0; 4]);
        txn.extend_from_slice(&zxid.to_be_bytes());
        txn.extend_from_slice(&[0; 8]);
        txn.extend_from_slice(&KINDS[usize::from(kind & 0x3f) % KINDS.len()].to_be_bytes());
        txn.extend_from_slice(body);
        content.extend_from_slice(&u64::from(adler32(&&*txn)).to_be_bytes());
        content.extend_from_slice(&(txn.len() as u32).to_be_bytes());
        content.extend_from_slice(&txn);
        content.push(b'B');
    }
    hold("log.1", replayed(&content));
}

fn replayed(log: &[u8]) -> Result<Database, ZkDataError> {
    let mut root = Vec::from(SNAPSHOT);
    // No sessions, no ACLs; one znode without a name, with zeros.
    root.extend_from_slice(&[0; 8 + 4 + 4 + 68]);
    root.extend_from_slice(b"\0\0\0\x01/");
    root.extend_from_slice(&u64::from(adler32(&&*root)).to_be_bytes());
    root.extend_from_slice(END);
    let mut database = match read_snapshot("snapshot.0", 0, &*root) {
        Ok(database) => database,
        Err(error) => panic!("a tree of a root alone is refused: {error}"),
    };
    replay_log(&mut database, "log.1", log).map(|_| database)
}

/// Checks that the data makes a tree that is written and read back the same, or that one line says
/// why not.
fn hold(name: &str, read: Result<Database, ZkDataError>) -> Option<Database> {
    let database = match read {
        Ok(database) => database,
        Err(error) => {
            assert!(error.to_string().contains(name), "{error}");
            one_line(&error);
            return None;
        }
    };
    if let Err(error) = database.check_digest() {
        one_line(&error);
    }
    for form in [OwnerForm::Of353, OwnerForm::Extended] {
        let moved = match database.clone().into_tree(form) {
            Ok(moved) => moved,
            Err(error) => {
                one_line(&error);
                continue;
            }
        };
        let mut written = Vec::new();
        if let Err(error) = write_snapshot(&moved.tree, &mut written) {
            assert!(!error.to_string().contains('\n'), "{error}");
            continue;
        }
        let again = read_snapshot("again", moved.tree.zxid(), &*written)
            .and_then(|database| database.into_tree(OwnerForm::Extended));
        match again {
            Ok(again) => assert_eq!(again.tree.digest(), moved.tree.digest()),
            Err(error) => panic!("what was written is refused: {error}"),
        }
    }
    Some(database)
}

fn one_line(error: &ZkDataError) {
    assert!(!error.to_string().contains('\n'), "{error}");
}

fn digest(database: &Option<Database>) -> Option<(usize, usize, i64)> {
    let database = database.as_ref()?;
    Some((
        database.znode_count(),
        database.session_count(),
        database.zxid(),
    ))
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let packed = out.write_all(content).and_then(|()| out.finish());
    packed.unwrap_or_default()
}

/// Compresses like snappy-java, in blocks of `piece` bytes.
fn snappy_stream(content: &[u8], piece: usize) -> Vec<u8> {
    let mut out = Vec::from(SNAPPY);
    for piece in content.chunks(piece) {
        let block = snap::raw::Encoder::new().compress_vec(piece);
        let block = block.unwrap_or_default();
        out.extend_from_slice(&(block.len() as u32).to_be_bytes());
        out.extend_from_slice(&block);
    }
    out
}
