//! Hazards of one path used by several libraries (`docs/internals/hazards.md` §2.1). Live groups
//! with the libraries themselves are run by `cargo xtask interop`.

use baton::lock::LockError;
use baton::naming::Dialect;
use baton::tree::CreateMode;

use crate::common::{Stage, mutex, session, within};

/// A node as each library names it, before the number, and the dialect that can stand behind it.
const HOLDERS: [(&str, Option<Dialect>); 8] = [
    (
        "_c_3f2a1b9c-0d4e-4f6a-8b7c-9d0e1f2a3b4c-lock-",
        Some(Dialect::Curator),
    ),
    (
        "_c_5f0c3a7d9b2e4f618a0d1c2b3a495867-lock-",
        Some(Dialect::Curator),
    ),
    (
        "_c_3f2a1b9c-0d4e-4f6a-8b7c-9d0e1f2a3b4c-latch-",
        Some(Dialect::CuratorLatch),
    ),
    (
        "9d0e1f2a3b4c4f6a8b7c3f2a1b9c0d4e__lock__",
        Some(Dialect::Kazoo),
    ),
    ("x-72057594037927936-", Some(Dialect::WriteLock)),
    ("x-0100000000000000-", Some(Dialect::WriteLock)),
    ("n_", Some(Dialect::ElectionSupport)),
    ("member-", None),
];

const DIALECTS: [Dialect; 5] = [
    Dialect::Curator,
    Dialect::CuratorLatch,
    Dialect::Kazoo,
    Dialect::WriteLock,
    Dialect::ElectionSupport,
];

#[tokio::test]
async fn h90_behind_another_librarys_holder_a_lock_is_waited_for_or_refused_but_never_granted() {
    let stage = Stage::new("h90").await;
    let client = stage.client().await;
    let owner = stage.client().await;
    let owner = session(&owner).await;
    for (number, (holder, honours)) in HOLDERS.into_iter().enumerate() {
        for dialect in DIALECTS {
            let path = format!("{}-{number}-{dialect}", stage.path);
            within(owner.create(&path, b"", CreateMode::Persistent))
                .await
                .unwrap();
            let node = format!("{path}/{holder}");
            let node = within(owner.create(&node, b"", CreateMode::EphemeralSequential))
                .await
                .unwrap();
            let lock = mutex(&client, &path).dialect(dialect);
            let asked = within(lock.try_acquire()).await;
            if honours == Some(dialect) {
                assert!(
                    matches!(asked, Ok(None)),
                    "{dialect} behind {holder}: {asked:?}"
                );
                within(owner.delete(&node.path, None)).await.unwrap();
                within(within(lock.acquire()).await.unwrap().release())
                    .await
                    .unwrap();
            } else {
                let Err(LockError::Foreign {
                    child,
                    dialect: named,
                    ..
                }) = asked
                else {
                    panic!("{dialect} behind {holder}: {asked:?}");
                };
                assert!(child.starts_with(holder) && named == dialect.as_str());
            }
        }
    }
}
