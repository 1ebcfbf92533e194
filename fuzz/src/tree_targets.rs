//! What is fuzzed of the tree: any bytes as the payload of a log entry. Decoding never panics;
//! what decodes applies without a panic to a tree of each format level, and the tree is then the
//! one that its own snapshot restores.

use baton_tree::{Batch, BatchBuilder, FormatLevel, MAX_CHUNK_BYTES, Restore, Tree};

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

fn restored(tree: &mut Tree) -> Option<Tree> {
    tree.begin_snapshot().ok()?;
    let mut restore = Restore::new();
    while let Some(chunk) = tree.snapshot_slice(MAX_CHUNK_BYTES) {
        restore.chunk(&chunk).ok()?;
    }
    restore.finish().ok()
}
