//! Quotas by hand, where the random programs do not reach: what is reported, nested ones, and what
//! is free.

use baton_proto::{Acl, Create, CreateMode, ErrorCode, MultiOp, MultiResult, Request, Response};
use baton_tree::{Assembly, Change, Command, Effects, OverQuota, QuotaOf, Znode};

use crate::common::{Driver, SESSION};

/// A report about a quota: path, what, amount, limit, hard.
type QuotaReport = (String, QuotaOf, i64, i64, bool);

#[derive(Default)]
struct Listener(Vec<QuotaReport>);

impl Effects for Listener {
    fn event(&mut self, _: Change<'_>) {}

    fn over_quota(&mut self, over: OverQuota<'_>) {
        let OverQuota {
            path,
            of,
            amount,
            limit,
            is_hard,
        } = over;
        self.0.push((path.to_owned(), of, amount, limit, is_hard));
    }
}

fn send(
    driver: &mut Driver,
    request: &Request<'_>,
) -> (Result<Response, ErrorCode>, Vec<QuotaReport>) {
    let mut body = Vec::new();
    request.encode(&mut body);
    let command = Command::Write {
        op: request.op(),
        body: &body,
    };
    let mut reported = Listener::default();
    let identity = driver.identity.clone();
    let outcome = driver
        .tree
        .apply(driver.time_ms, SESSION, &identity, command, &mut reported);
    (outcome.result, reported.0)
}

fn create<'a>(path: &'a str, data: &'a [u8]) -> Request<'a> {
    Request::Create(Create::new(
        path,
        Some(data),
        vec![Acl::open_unsafe()],
        CreateMode::Persistent,
    ))
}

fn set<'a>(path: &'a str, data: &'a [u8]) -> Request<'a> {
    Request::SetData {
        path,
        data: Some(data),
        version: -1,
    }
}

fn limit(driver: &mut Driver, of: &str, limits: &str) {
    let folder = format!("/zookeeper/quota{of}");
    for (path, data) in [
        (folder.clone(), ""),
        (format!("{folder}/zookeeper_limits"), limits),
        (format!("{folder}/zookeeper_stats"), "count=0,bytes=0"),
    ] {
        send(driver, &create(&path, data.as_bytes())).0.unwrap();
    }
}

fn stats(driver: &Driver, of: &str) -> String {
    let path = format!("/zookeeper/quota{of}/zookeeper_stats");
    let (data, stat) = driver.tree.get_data(&path, &driver.identity).unwrap();
    assert_eq!(stat.version, 0);
    String::from_utf8(data.unwrap().to_vec()).unwrap()
}

fn with_a(limits: &str) -> Driver {
    let mut driver = Driver::new();
    send(&mut driver, &create("/a", b"four")).0.unwrap();
    limit(&mut driver, "/a", limits);
    assert_eq!(stats(&driver, "/a"), "count=1,bytes=4");
    driver
}

#[test]
fn a_soft_quota_is_reported_and_lets_the_write_through() {
    let mut driver = with_a("count=2,bytes=6");
    let (result, reported) = send(&mut driver, &create("/a/b", b"2!"));
    assert!(result.is_ok());
    assert_eq!(reported, []);
    let (result, reported) = send(&mut driver, &create("/a/c", b"3!!"));
    assert!(result.is_ok());
    let of_a = |of, amount, limit| ("/a".to_owned(), of, amount, limit, false);
    assert_eq!(
        reported,
        [of_a(QuotaOf::Count, 3, 2), of_a(QuotaOf::Bytes, 9, 6)]
    );
    assert_eq!(stats(&driver, "/a"), "count=3,bytes=9");
}

#[test]
fn a_hard_quota_refuses_and_nothing_has_happened() {
    let mut driver = with_a("count=-1,bytes=-1=;byteHardLimit=6;countHardLimit=2");
    let refused = Err(ErrorCode::QuotaExceeded);
    let of_a = |of, amount, limit| vec![("/a".to_owned(), of, amount, limit, true)];
    let (result, reported) = send(&mut driver, &create("/a/b", b"3!!"));
    assert_eq!(
        (result, reported),
        (refused.clone(), of_a(QuotaOf::Bytes, 7, 6))
    );
    assert!(send(&mut driver, &create("/a/b", b"2!")).0.is_ok());
    let (result, reported) = send(&mut driver, &create("/a/b/c", b""));
    assert_eq!(
        (result, reported),
        (refused.clone(), of_a(QuotaOf::Count, 3, 2))
    );
    let (result, reported) = send(&mut driver, &set("/a", b"fives"));
    assert_eq!((result, reported), (refused, of_a(QuotaOf::Bytes, 7, 6)));
    assert_eq!(stats(&driver, "/a"), "count=2,bytes=6");
    // What does not grow is allowed at the limit.
    assert!(send(&mut driver, &set("/a", b"FOUR")).0.is_ok());
    assert!(send(&mut driver, &set("/a", b"")).0.is_ok());
    assert_eq!(stats(&driver, "/a"), "count=2,bytes=2");
}

#[test]
fn a_multi_is_refused_at_the_operation_that_goes_over_and_taken_back_with_the_figures() {
    let mut driver = with_a("count=-1,bytes=-1=;countHardLimit=3");
    let op = |path| match create(path, b"x") {
        Request::Create(create) => MultiOp::Create(create),
        other => panic!("{other:?}"),
    };
    let request = Request::Multi(["/a/1", "/a/2", "/a/3"].map(op).to_vec());
    let (result, reported) = send(&mut driver, &request);
    let Ok(Response::Multi(results)) = result else {
        panic!("{result:?}");
    };
    assert_eq!(
        results,
        MultiResult::failure(3, 2, ErrorCode::QuotaExceeded)
    );
    assert_eq!(reported.len(), 1);
    assert_eq!(stats(&driver, "/a"), "count=1,bytes=4");
}

#[test]
fn the_nearest_quota_counts_and_what_has_none_is_free() {
    let mut driver = with_a("count=-1,bytes=-1=;countHardLimit=2");
    send(&mut driver, &create("/a/b", b"")).0.unwrap();
    limit(&mut driver, "/a/b", "count=-1,bytes=-1=;countHardLimit=2");
    assert!(send(&mut driver, &create("/a/b/c", b"")).0.is_ok());
    assert_eq!(stats(&driver, "/a"), "count=2,bytes=4");
    assert_eq!(stats(&driver, "/a/b"), "count=2,bytes=0");
    let (result, reported) = send(&mut driver, &create("/a/b/d", b""));
    assert_eq!(result, Err(ErrorCode::QuotaExceeded));
    assert_eq!(reported[0].0, "/a/b");
    for path in ["/ab", "/zookeeper/x", "/zookeeper/quota/a/x"] {
        assert!(send(&mut driver, &create(path, b"")).0.is_ok(), "{path}");
    }
}

#[test]
fn limits_that_are_missing_or_not_numbers_limit_nothing() {
    let mut driver = with_a("count=-1,bytes=-1=;countHardLimit=1");
    let delete = |path| Request::Delete { path, version: -1 };
    assert!(send(&mut driver, &create("/a/b", b"")).0.is_err());
    let limits = "/zookeeper/quota/a/zookeeper_limits";
    assert!(send(&mut driver, &set(limits, b"nonsense=;;=,")).0.is_ok());
    assert!(send(&mut driver, &create("/a/b", b"")).0.is_ok());
    assert!(
        send(&mut driver, &set(limits, b"countHardLimit=1"))
            .0
            .is_ok()
    );
    assert!(send(&mut driver, &create("/a/c", b"")).0.is_err());
    let stats = "/zookeeper/quota/a/zookeeper_stats";
    assert!(send(&mut driver, &delete(stats)).0.is_ok());
    assert!(send(&mut driver, &create("/a/c", b"")).0.is_ok());
}

#[test]
fn figures_that_somebody_wrote_are_put_in_form_by_the_next_write() {
    let mut driver = with_a("count=9,bytes=-1");
    let path = "/zookeeper/quota/a/zookeeper_stats";
    for (text, then) in [("", "count=-1,bytes=-1"), ("bytes=7", "count=-1,bytes=7")] {
        send(&mut driver, &set(path, text.as_bytes())).0.unwrap();
        send(&mut driver, &set("/a", b"same")).0.unwrap();
        let (data, _) = driver.tree.get_data(path, &driver.identity).unwrap();
        assert_eq!(data, Some(then.as_bytes()));
    }
}

#[test]
fn a_tree_from_elsewhere_has_its_figures_counted_again() {
    let mut assembly = Assembly::new();
    for (path, data) in [
        ("/", ""),
        ("/a", "four"),
        ("/a/b", "2!"),
        ("/zookeeper", ""),
        ("/zookeeper/quota", ""),
        ("/zookeeper/quota/a", ""),
        ("/zookeeper/quota/a/zookeeper_limits", "count=9,bytes=-1"),
        ("/zookeeper/quota/a/zookeeper_stats", "count=77,bytes=7"),
    ] {
        let znode = Znode {
            path,
            data: Some(data.as_bytes()),
            acl: &[],
            czxid: 1,
            mzxid: 1,
            pzxid: 1,
            ctime: 0,
            mtime: 0,
            version: 0,
            aversion: 0,
            creates: 1,
            owner: 0,
        };
        assembly.znode(&znode).unwrap();
    }
    let driver = Driver::over(assembly.finish(9).unwrap());
    assert_eq!(stats(&driver, "/a"), "count=2,bytes=6");
}
