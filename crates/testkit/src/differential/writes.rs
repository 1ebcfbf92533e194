//! The writes of random programs: creates of every kind, ACLs, and the parts of a multi.

use baton_proto::{Acl, Create, CreateOp, MultiOp, Perms};

use super::generator::{Generator, RESTRICTED, SUBJECTS};

/// The digest of `someone:secret`, as ZooKeeper's tool prints it.
const SOMEONE: &str = "someone:1bEEvdxVw2VthaBGHrH2e9EwrXU=";

pub(super) fn create(from: &mut Generator, path: &'static str) -> Create<'static> {
    let op = from.random.pick(&[
        CreateOp::Create,
        CreateOp::Create2,
        CreateOp::Create2,
        CreateOp::Create2,
        CreateOp::Container,
        CreateOp::Ttl,
    ]);
    let flags = match op {
        CreateOp::Container => from.random.pick(&[4, 4, 4, 0]),
        CreateOp::Ttl if from.differences.has("create-kind") => from.random.pick(&[5, 6]),
        CreateOp::Ttl => from.random.pick(&[5, 6, 5, 6, 0]),
        _ => from.random.pick(&[0, 0, 0, 0, 1, 1, 2, 3, 3, 4, 5, 7, -1]),
    };
    let ttl_ms = match op {
        CreateOp::Ttl => from
            .random
            .pick(&[3_600_000, 3_600_000, 3_600_000, 0, -1, i64::MAX]),
        _ => -1,
    };
    Create {
        op,
        path,
        data: from.data(),
        acl: acl(from, path),
        flags,
        ttl_ms,
    }
}

/// A random ACL for this path. On a path that stays open it lets everybody in, or is refused.
pub(super) fn acl(from: &mut Generator, path: &str) -> Option<Vec<Acl<'static>>> {
    let open = Acl::open_unsafe();
    if !RESTRICTED.contains(&path) {
        return match from.random.below(40) {
            0 => None,
            1 => Some(Vec::new()),
            2 => Some(vec![Acl::new(Perms::ALL, "unheard-of", "x")]),
            3 => Some(vec![Acl::new(Perms::ALL, "digest", "no-colon")]),
            4 => Some(vec![open.clone(), open]),
            5 => Some(vec![Acl::new(Perms::ALL, "ip", "not an address")]),
            6 => Some(vec![Acl::new(Perms::ALL, "world", "nobody")]),
            7 => Some(vec![open, Acl::new(Perms::READ, "ip", "127.0.0.1")]),
            _ => Some(vec![open]),
        };
    }
    let perms = Perms(
        from.random
            .pick(&[31, 31, 31, 1, 3, 5, 9, 15, 16, 17, 30, 0]),
    );
    if from.has_certificates && from.random.one_in(2) {
        return Some(certified(from, perms));
    }
    Some(match from.random.below(12) {
        0 => vec![Acl::creator_all()],
        1 => vec![Acl::new(perms, "auth", "ignored")],
        2 => vec![Acl::new(perms, "digest", SOMEONE)],
        3 => vec![
            Acl::new(perms, "digest", SOMEONE),
            Acl::new(Perms::READ, "world", "anyone"),
        ],
        4 => vec![Acl::new(perms, "ip", "127.0.0.1")],
        5 => vec![Acl::new(perms, "ip", "127.0.0.0/8")],
        6 => vec![Acl::new(perms, "ip", "10.0.0.0/8")],
        7 | 8 => vec![Acl::new(perms, "world", "anyone")],
        _ => vec![open],
    })
}

/// A list that names certificates, of which the sessions show two.
fn certified(from: &mut Generator, perms: Perms) -> Vec<Acl<'static>> {
    let subject = from.random.pick(&SUBJECTS);
    match from.random.below(8) {
        0 => vec![
            Acl::new(perms, "x509", subject),
            Acl::new(Perms::READ, "world", "anyone"),
        ],
        1 => vec![
            Acl::new(perms, "x509", subject),
            Acl::new(Perms::READ, "digest", SOMEONE),
            Acl::new(Perms::ALL, "ip", "10.0.0.0/8"),
        ],
        2 => vec![Acl::new(perms, "x509", "CN=one,O=Other")],
        3 => vec![Acl::new(perms, "x509", "no subject")],
        4 => vec![
            Acl::new(perms, "auth", ""),
            Acl::new(perms, "x509", subject),
        ],
        5 => vec![Acl::creator_all()],
        _ => vec![Acl::new(perms, "x509", subject)],
    }
}

pub(super) fn multi(from: &mut Generator) -> Vec<MultiOp<'static>> {
    let count = from.random.below(6);
    let mut writes: Vec<_> = (0..count).map(|_| multi_op(from)).collect();
    if from.quotas && from.differences.has("pending-quota") {
        let mut first = true;
        writes.retain(|write| matches!(write, MultiOp::Check { .. }) || std::mem::take(&mut first));
    }
    writes
}

fn multi_op(from: &mut Generator) -> MultiOp<'static> {
    let path = from.checked_path();
    let version = from.random.pick(&[-1, -1, -1, -1, -1, 0, 1]);
    match from.random.below(6) {
        0..3 => {
            let mut create = create(from, path);
            if from.differences.has("create-kind") {
                if create.op == CreateOp::Create2 {
                    create.op = CreateOp::Create;
                }
                create.flags = match create.op {
                    CreateOp::Container => 4,
                    CreateOp::Ttl => from.random.pick(&[5, 6]),
                    _ if matches!(create.flags, 4..7) => 0,
                    _ => create.flags,
                };
            }
            if from.differences.has("3.9-undecoded-multi") {
                create.acl = create.acl.or_else(|| Some(vec![Acl::open_unsafe()]));
                if matches!(create.flags, 7 | -1) {
                    create.flags = 0;
                }
            }
            MultiOp::Create(create)
        }
        3 => MultiOp::Delete {
            path: from.path(),
            version,
        },
        4 => MultiOp::SetData {
            path: from.own_path(),
            data: from.data(),
            version,
        },
        _ => MultiOp::Check { path, version },
    }
}

pub(super) fn multi_read(from: &mut Generator) -> Vec<MultiOp<'static>> {
    let count = from.random.below(5);
    let mut reads = Vec::with_capacity(count);
    for _ in 0..count {
        let path = from.path();
        let watch = from.random.one_in(3);
        reads.push(if from.random.one_in(2) {
            MultiOp::GetData { path, watch }
        } else {
            MultiOp::GetChildren { path, watch }
        });
    }
    reads
}
