//! The ACLs of a request before it goes into the log: `sasl` and `x509` are named only where the
//! server authenticates by them, as in ZooKeeper, and no list is over the bounds.
//!
//! The tree takes both schemes, because all servers of an ensemble have to decide alike, whatever
//! their own settings are. So the server of the client puts a scheme that nobody knows in the place
//! of one that is not enabled; the tree then refuses the ACL where ZooKeeper would. A list over the
//! bounds becomes one entry of such a scheme, so that no log has it: the tree of a server that does
//! not know the bounds yet refuses that, too.

use std::borrow::Cow;

use baton_proto::{Acl, Limits, MultiOp, OpCode, Perms, Request};
use baton_tls::ClientAuth;
use baton_tree::{AclAllowance, FormatLevel, Identity};
use memchr::memmem;

use crate::options::Options;

/// No scheme is called this.
const UNKNOWN: &str = "(not enabled)";

/// A write whose ACLs differ from those that its client sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ChangedRequest {
    pub(crate) body: Vec<u8>,
    /// Whether a list was over the bounds.
    pub(crate) is_over_bounds: bool,
}

/// A write of a client of this identity with the ACLs made unknown that are to be refused; `None`
/// where that changes nothing.
pub(crate) fn with_refusals(
    op: OpCode,
    body: &[u8],
    identity: &Identity,
    limits: &Limits,
    options: &Options,
) -> Option<ChangedRequest> {
    let has_acl = matches!(
        op,
        OpCode::Create
            | OpCode::Create2
            | OpCode::CreateContainer
            | OpCode::CreateTtl
            | OpCode::SetAcl
            | OpCode::Multi
    );
    let is_disabled = |scheme: &str| match scheme {
        "sasl" => options.sasl_users.is_empty(),
        "x509" => {
            let tls = options.tls.as_ref();
            tls.is_none_or(|tls| tls.client_auth == ClientAuth::None)
        }
        _ => false,
    };
    let may_be_named = |scheme: &&str| memmem::find(body, scheme.as_bytes()).is_some();
    let mut optional = ["sasl", "x509"].into_iter();
    let could_be_over = has_acl && AclAllowance::could_be_exceeded(body.len(), identity);
    if !could_be_over
        && (!has_acl || !optional.any(|scheme| is_disabled(scheme) && may_be_named(&scheme)))
    {
        return None;
    }
    // What cannot be decoded is refused elsewhere.
    let mut request = Request::decode(op, body, limits).ok()?;
    let allowance = AclAllowance::at(FormatLevel::NEWEST);
    let mut has_changed = false;
    let mut is_over_bounds = false;
    let mut change = |acl: &mut Option<Vec<Acl<'_>>>| {
        let Some(list) = acl else {
            return;
        };
        if !allowance.admits(list, identity) {
            *list = vec![Acl::new(Perms::ALL, UNKNOWN, "")];
            has_changed = true;
            is_over_bounds = true;
        }
        for entry in list {
            if is_disabled(&entry.scheme) {
                entry.scheme = Cow::Borrowed(UNKNOWN);
                has_changed = true;
            }
        }
    };
    match &mut request {
        Request::Create(create) => change(&mut create.acl),
        Request::SetAcl { acl, .. } => change(acl),
        Request::Multi(parts) => {
            for part in parts {
                if let MultiOp::Create(create) = part {
                    change(&mut create.acl);
                }
            }
        }
        _ => {}
    }
    has_changed.then(|| {
        let mut changed = Vec::new();
        request.encode(&mut changed);
        ChangedRequest {
            body: changed,
            is_over_bounds,
        }
    })
}

#[cfg(test)]
mod tests {
    use baton_proto::{Create, CreateMode, Perms};

    use super::*;
    use crate::options::sasl_users::SaslUsers;

    /// A client of this many names.
    fn someone(names: usize) -> Identity {
        let mut identity = Identity::from_ip("10.0.0.1".parse().unwrap());
        for n in 0..names {
            identity.add("digest", format!("{n}:x"));
        }
        identity
    }

    fn encoded(request: &Request<'_>) -> Vec<u8> {
        let mut body = Vec::new();
        request.encode(&mut body);
        body
    }

    fn create(scheme: &'static str, data: &'static [u8]) -> Create<'static> {
        let acl = vec![Acl::open_unsafe(), Acl::new(Perms::READ, scheme, "sasl")];
        Create::new("/sasl", Some(data), acl, CreateMode::Persistent)
    }

    fn schemes(op: OpCode, body: &[u8]) -> Vec<String> {
        let name = |acl: &Option<Vec<Acl<'_>>>| -> Vec<String> {
            let entries = acl.iter().flatten();
            entries.map(|entry| entry.scheme.to_string()).collect()
        };
        match Request::decode(op, body, &Limits::default()).unwrap() {
            Request::Create(create) => name(&create.acl),
            Request::SetAcl { acl, .. } => name(&acl),
            Request::Multi(parts) => parts
                .iter()
                .flat_map(|part| match part {
                    MultiOp::Create(create) => name(&create.acl),
                    _ => Vec::new(),
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn a_scheme_that_is_not_enabled_becomes_unknown_wherever_an_acl_stands() {
        let with_users = Options {
            sasl_users: SaslUsers::from_iter([("bob".to_owned(), String::new())]),
            ..Options::default()
        };
        let set = Request::SetAcl {
            path: "/sasl",
            acl: create("sasl", b"").acl,
            version: -1,
        };
        let check = MultiOp::Check {
            path: "/x509",
            version: -1,
        };
        let multi = vec![check, MultiOp::Create(create("sasl", b"x"))];
        for request in [
            Request::Create(create("sasl", b"x")),
            set,
            Request::Multi(multi),
        ] {
            let (op, body) = (request.op(), encoded(&request));
            let change = |options: &Options| {
                with_refusals(op, &body, &someone(1), &Limits::default(), options)
            };
            let changed = change(&Options::default()).unwrap();
            assert!(!changed.is_over_bounds);
            let changed = changed.body;
            assert_eq!(schemes(op, &changed), ["world", UNKNOWN], "{op}");
            assert_eq!(changed.len(), body.len() + UNKNOWN.len() - "sasl".len());
            assert_eq!(change(&with_users), None, "{op}");
        }
    }

    #[test]
    fn what_names_no_such_scheme_is_left_as_it_is() {
        for (op, body) in [
            (
                OpCode::Create2,
                encoded(&Request::Create(create("ip", b"sasl x509"))),
            ),
            (OpCode::Create2, b"sasl".to_vec()),
            (
                OpCode::SetData,
                encoded(&Request::Create(create("sasl", b""))),
            ),
        ] {
            let options = Options::default();
            let changed = with_refusals(op, &body, &someone(1), &Limits::default(), &options);
            assert_eq!(changed, None, "{op}");
        }
    }

    #[test]
    fn a_list_over_the_bounds_does_not_go_into_the_log() {
        let auths = |entries: i32| -> Vec<Acl<'static>> {
            let entry = |n| Acl::new(Perms(n), "auth", "");
            (0..entries).map(entry).collect()
        };
        let create = |acl| Create::new("/a", Some(b"x"), acl, CreateMode::Persistent);
        let set = |acl| Request::SetAcl {
            path: "/a",
            acl: Some(acl),
            version: -1,
        };
        let parts = |lists: Vec<Vec<Acl<'static>>>| {
            let parts = lists.into_iter().map(|acl| MultiOp::Create(create(acl)));
            Request::Multi(parts.collect())
        };
        // 64 names: 64 entries of `auth` are a list of 4096, four of which are all of a multi.
        let full = || auths(64);
        for (request, expected) in [
            (Request::Create(create(full())), None),
            (Request::Create(create(auths(65))), Some(vec![UNKNOWN])),
            (set(auths(20_000)), Some(vec![UNKNOWN])),
            (parts(vec![full(), full(), full(), full()]), None),
            (
                parts(vec![auths(1), auths(65), auths(1)]),
                Some(vec!["auth", UNKNOWN, "auth"]),
            ),
        ] {
            let (op, body) = (request.op(), encoded(&request));
            let (limits, options) = (Limits::default(), Options::default());
            let changed = with_refusals(op, &body, &someone(64), &limits, &options);
            assert!(changed.iter().all(|changed| changed.is_over_bounds));
            let found = changed.map(|changed| schemes(op, &changed.body));
            let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect());
            assert_eq!(found, expected, "{op}");
        }
    }
}
