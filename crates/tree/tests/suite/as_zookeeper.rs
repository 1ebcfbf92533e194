//! Answers recorded from Apache ZooKeeper 3.8.0, so that the model of these tests and the tree
//! cannot agree on a mistake.

use baton_proto::{Acl, Create, CreateMode, CreateOp, ErrorCode, Perms, Request};

use crate::common::{Driver, plain};

/// Recorded from Apache ZooKeeper 3.8.0 with `extendedTypesEnabled`, on a tree with `/a` and `/e`
/// (ephemeral).
#[test]
fn odd_paths_flags_and_acls_are_answered_as_by_apache_zookeeper() {
    use CreateOp::{Create as Op1, Ttl};
    use ErrorCode::{
        BadArguments, InvalidAcl, NoAuth, NoChildrenForEphemerals, NoNode, NodeExists, Ok as Fine,
    };
    let mut driver = Driver::new();
    driver.create("/a", CreateMode::Persistent).unwrap();
    driver.create("/e", CreateMode::Ephemeral).unwrap();
    let mut check = |request: Request<'_>, code: ErrorCode| {
        let result = driver.send(&request);
        assert_eq!(result.err().unwrap_or(Fine), code, "{request:?}");
    };
    for (op, path, flags, ttl_ms, code) in [
        (Op1, "//a", 0, -1, BadArguments),
        (Op1, "a/b", 0, -1, NoNode),
        (Op1, "x", 0, -1, BadArguments),
        (Op1, "/", 0, -1, NodeExists),
        (Op1, "/a/", 0, -1, BadArguments),
        (Op1, "", 0, -1, BadArguments),
        (Op1, "/zookeeper/x", 0, -1, Fine),
        (Op1, "/a//b", 0, -1, NoNode),
        (Op1, "/.", 0, -1, BadArguments),
        (Op1, "//", 2, -1, BadArguments),
        (Op1, "/", 2, -1, Fine),
        (Op1, "/a/.", 2, -1, Fine),
        (Op1, "/e/x", 0, -1, NoChildrenForEphemerals),
        (Op1, "/e/.", 0, -1, BadArguments),
        (Op1, "/f", -1, -1, BadArguments),
        (Op1, "/f", 4, -1, Fine),
        (Op1, "/f", 5, -1, BadArguments),
        (Op1, "/f", 6, -1, BadArguments),
        (Op1, "/f", 7, -1, BadArguments),
        (Ttl, "/t", 0, 100, BadArguments),
        (Ttl, "/t", 3, 100, BadArguments),
        (Ttl, "/t", 4, 100, BadArguments),
        (Ttl, "/t", 5, 0, BadArguments),
        (Ttl, "/t", 5, 1 << 40, BadArguments),
        (Ttl, "/t", 5, (1 << 40) - 1, Fine),
        (Ttl, "/t", 6, 100, Fine),
    ] {
        check(Request::Create(plain(op, path, flags, ttl_ms)), code);
    }
    for (path, code) in [
        ("//a", NoNode),
        ("a/b", NoNode),
        ("x", BadArguments),
        ("/", BadArguments),
        ("/a/", NoNode),
        ("", BadArguments),
        ("/zookeeper", BadArguments),
        ("/a//b", NoNode),
        ("//", NoNode),
    ] {
        check(Request::Delete { path, version: -1 }, code);
    }
    for (path, code) in [
        ("//a", BadArguments),
        ("a/b", BadArguments),
        ("/a/", BadArguments),
        ("", BadArguments),
        ("/q", NoNode),
    ] {
        let request = Request::SetData {
            path,
            data: None,
            version: -1,
        };
        check(request, code);
    }
    for (scheme, id, code) in [
        ("auth", "", InvalidAcl),
        ("digest", "u", InvalidAcl),
        ("digest", "u:", InvalidAcl),
        ("digest", ":h", Fine),
        ("digest", "a:b:c", InvalidAcl),
        ("ip", "1.2.3.4/33", InvalidAcl),
        ("ip", "1.2.3.4/0", Fine),
        ("ip", "1.2.3", InvalidAcl),
        ("super", "", InvalidAcl),
        ("world", "x", InvalidAcl),
        ("world", "anyone", Fine),
    ] {
        let create = Create {
            acl: Some(vec![Acl::new(Perms(99), scheme, id)]),
            ..plain(CreateOp::Create2, "/acl-", 2, -1)
        };
        check(Request::Create(create), code);
    }
    let no_parent = Create {
        acl: Some(vec![]),
        ..plain(CreateOp::Create, "/n/n", 0, -1)
    };
    check(Request::Create(no_parent), InvalidAcl);
    let no_node = Request::SetAcl {
        path: "/nx",
        acl: None,
        version: -1,
    };
    check(no_node, InvalidAcl);
    let of_config = Request::SetAcl {
        path: "/zookeeper/config",
        acl: Some(vec![Acl::open_unsafe()]),
        version: -1,
    };
    check(of_config, NoAuth);
}

/// Answers of a ZooKeeper that has these schemes; a server that has not makes them unknown before.
#[test]
fn schemes_that_a_server_may_enable_are_taken() {
    let mut driver = Driver::new();
    for (number, (scheme, id, is_taken)) in [
        ("sasl", "bob", true),
        ("sasl", "", false),
        ("x509", "CN=bob,O=\"a, b\"", true),
        ("x509", "bob", false),
        ("x509", "", false),
        ("SASL", "bob", false),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/acl-{number}");
        let create = Create {
            acl: Some(vec![Acl::new(Perms::ALL, scheme, id)]),
            ..plain(CreateOp::Create2, &path, 0, -1)
        };
        let result = driver.send(&Request::Create(create));
        assert_eq!(result.is_ok(), is_taken, "{scheme}:{id}: {result:?}");
    }
}
