//! Quotas in random programs: the znodes of limits and of usage, in the steps and texts in which
//! ZooKeeper's command line writes them, set, changed and removed, while other lines of the program
//! write below them.

use baton_proto::{Acl, Create, CreateMode, Request};

use super::generator::Generator;
use super::places::QUOTA;

/// Every znode of a quota: the folder, and in it the limits and the usage of each path that may
/// have one.
pub(super) const PATHS: [&str; 13] = [
    QUOTA,
    "quota/zookeeper_limits",
    "quota/zookeeper_stats",
    "quota/a",
    "quota/a/zookeeper_limits",
    "quota/a/zookeeper_stats",
    "quota/a/x",
    "quota/a/x/zookeeper_limits",
    "quota/a/x/zookeeper_stats",
    "quota/b",
    "quota/b/zookeeper_limits",
    "quota/b/zookeeper_stats",
    "quota/n",
];
/// Znodes of a quota of one path: its folders, its limits, its usage.
const STEPS: [&[&str]; 4] = [
    &["quota/zookeeper_limits", "quota/zookeeper_stats"],
    &[
        "quota/a",
        "quota/a/zookeeper_limits",
        "quota/a/zookeeper_stats",
    ],
    &[
        "quota/a",
        "quota/a/x",
        "quota/a/x/zookeeper_limits",
        "quota/a/x/zookeeper_stats",
    ],
    &[
        "quota/b",
        "quota/b/zookeeper_limits",
        "quota/b/zookeeper_stats",
    ],
];
const LIMITS: [&[u8]; 13] = [
    b"count=2,bytes=-1",
    b"count=-1,bytes=3=;byteHardLimit=-1;countHardLimit=-1",
    b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=1",
    b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=2",
    b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=3",
    b"count=1,bytes=1=;byteHardLimit=-1;countHardLimit=5",
    b"count=9,bytes=-1=;byteHardLimit=0;countHardLimit=-1",
    b"count=-1,bytes=-1=;byteHardLimit=3;countHardLimit=-1",
    b"count=-1,bytes=-1=;byteHardLimit=15;countHardLimit=-1",
    b"count=-1,bytes=2=;byteHardLimit=5000;countHardLimit=4",
    b"count=-1,bytes=-1=;byteHardLimit=5012;countHardLimit=9",
    b"countHardLimit=4;byteHardLimit=10012",
    b"",
];
/// Texts of limits that ZooKeeper cannot read.
const NO_LIMITS: [&[u8]; 3] = [b"count=,bytes=", b"count=x,bytes=1", b"count"];
/// No others: ZooKeeper ends itself over usage data that it cannot read.
const USAGES: [&[u8]; 4] = [
    b"count=0,bytes=0",
    b"count=7,bytes=70",
    b"count=-3,bytes=-9",
    b"",
];

/// A quota as a client sets it.
pub(super) fn set(from: &mut Generator) -> Vec<Request<'static>> {
    let steps = from.random.pick(&STEPS);
    let mut requests: Vec<_> = steps
        .iter()
        .map(|path| create_quota_node(from, path))
        .collect();
    if let Some(usage) = steps.last() {
        requests.push(Request::GetData {
            path: usage,
            watch: from.random.one_in(3),
        });
    }
    requests
}

/// Any request about a quota.
pub(super) fn request(from: &mut Generator) -> Request<'static> {
    let path = from.random.pick(&PATHS);
    let version = from.random.pick(&[-1, -1, -1, -1, 0, 1]);
    match from.random.below(10) {
        0 => create_quota_node(from, path),
        1 | 2 => Request::Delete { path, version },
        3..6 => Request::SetData {
            path,
            data: Some(text(from, path)),
            version,
        },
        6..9 => Request::GetData {
            path,
            watch: from.random.one_in(3),
        },
        _ => Request::GetChildren2 {
            path,
            watch: from.random.one_in(3),
        },
    }
}

fn create_quota_node(from: &mut Generator, path: &'static str) -> Request<'static> {
    let data = match text(from, path) {
        b"" if !path.ends_with("zookeeper_limits") => None,
        text => Some(text),
    };
    let open = vec![Acl::open_unsafe()];
    Request::Create(Create::new(path, data, open, CreateMode::Persistent))
}

fn text(from: &mut Generator, path: &str) -> &'static [u8] {
    if path.ends_with("zookeeper_limits") {
        if !from.differences.has("quota-text") && from.random.one_in(8) {
            return from.random.pick(&NO_LIMITS);
        }
        from.random.pick(&LIMITS)
    } else if path.ends_with("zookeeper_stats") {
        from.random.pick(&USAGES)
    } else {
        b""
    }
}
