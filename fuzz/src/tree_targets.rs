//! Fuzz targets of the tree: texts of identities, and any bytes as the payload of a log entry.
//! Decoding never panics; what decodes applies without a panic to a tree of each format level, and
//! the tree is then the one that its own snapshot restores.

use baton_proto::{Acl, Create, CreateMode, Perms, Request};
use baton_tree::{
    Batch, BatchBuilder, Command, FormatLevel, Identity, MAX_CHUNK_BYTES, Restore, Tree,
};

/// The payload of a log entry.
pub fn batch(bytes: &[u8]) {
    let batch = match Batch::decode(bytes) {
        Ok(batch) => batch,
        Err(error) => {
            assert!(!error.to_string().contains('\n'));
            return;
        }
    };
    for level in [FormatLevel::Initial, FormatLevel::NEWEST] {
        let mut tree = Tree::new();
        let raising = BatchBuilder::raising(level, 0).finish();
        if level != FormatLevel::Initial
            && let Ok(raising) = Batch::decode(&raising)
        {
            tree.apply_batch(&raising, &mut (), |_, _| {});
        }
        let zxid = tree.zxid();
        let mut unapplied = 0;
        tree.apply_batch(&batch, &mut (), |_, applied| {
            unapplied += usize::from(applied.is_err());
        });
        assert!(tree.level() >= level);
        let applied = batch.items().len() - unapplied;
        assert!(tree.zxid() - zxid <= applied as i64);
        assert_eq!(
            restored(&mut tree).map(|tree| tree.digest()),
            Some(tree.digest())
        );
    }
}

const SESSION: i64 = 7;
const CREATOR: &str = "creator:hash";

/// The texts of identities: whom an ACL names, and who asks. A scheme, the two texts and a zero
/// byte between them. Only who has this very id may read (of addresses, who is in the range), and
/// who may not set the ACL never sees a hash.
pub fn identity(bytes: &[u8]) {
    let Some((scheme, texts)) = bytes.split_first() else {
        return;
    };
    let scheme = ["digest", "ip", "sasl", "x509"][usize::from(*scheme) % 4];
    let Ok(texts) = std::str::from_utf8(texts) else {
        return;
    };
    let (named, asks) = texts.split_once('\0').unwrap_or((texts, texts));
    if [named, asks].contains(&CREATOR) {
        return;
    }
    let mut creator = Identity::anonymous();
    creator.add("digest", CREATOR);
    let acl = vec![
        Acl::new(Perms::READ, scheme, named),
        Acl::new(Perms::ALL, "auth", ""),
    ];
    let create = Request::Create(Create::new("/n", None, acl, CreateMode::Persistent));
    let mut body = Vec::new();
    create.encode(&mut body);
    let mut builder = BatchBuilder::new(FormatLevel::Initial, 0);
    builder.begin(SESSION, &creator, None);
    let open = Command::OpenSession {
        session_id: SESSION,
        password: [7; 16],
        timeout_ms: 1_000,
    };
    builder.push(0, open);
    let op = create.op();
    builder.push(1, Command::Write { op, body: &body });
    let mut tree = Tree::new();
    let payload = builder.finish();
    let Ok(batch) = Batch::decode(&payload) else {
        return;
    };
    tree.apply_batch(&batch, &mut (), |_, _| {});
    if tree.peek("/n").is_none() {
        return;
    }
    let mut asker = Identity::anonymous();
    asker.add(scheme, asks);
    let mut other = Identity::anonymous();
    for another in ["digest", "sasl", "x509"] {
        if another != scheme {
            other.add(another, named);
        }
    }
    let may_read = |identity: &Identity| tree.get_data("/n", identity).is_ok();
    assert!(may_read(&creator));
    assert!(!may_read(&other), "{scheme}: {named:?} of another scheme");
    if scheme != "ip" {
        assert_eq!(
            may_read(&asker),
            named == asks,
            "{scheme}: {named:?} {asks:?}"
        );
    }
    if let Ok((shown, _)) = tree.get_acl("/n", &asker) {
        let digests = shown.iter().filter(|entry| entry.scheme == "digest");
        for entry in digests {
            assert!(entry.id.ends_with(":x"), "{entry:?}");
        }
    }
}

fn restored(tree: &mut Tree) -> Option<Tree> {
    tree.begin_snapshot().ok()?;
    let mut restore = Restore::new();
    while let Some(chunk) = tree.snapshot_slice(MAX_CHUNK_BYTES) {
        restore.chunk(&chunk).ok()?;
    }
    restore.finish().ok()
}
