//! Which schemes an ACL may name: `sasl` and `x509` only where the server authenticates by them, as
//! in ZooKeeper.
//!
//! The tree takes both, because all servers of an ensemble have to decide alike, whatever their own
//! settings are. So the server of the client, before the request goes into the log, puts a scheme
//! that nobody knows in the place of one that is not enabled; the tree then refuses the ACL where
//! ZooKeeper would.

use std::borrow::Cow;

use baton_proto::{Acl, Limits, MultiOp, OpCode, Request};
use baton_tls::ClientAuth;
use memchr::memmem;

use crate::options::Options;

/// No scheme is called this.
const UNKNOWN: &str = "(not enabled)";

/// The body of a write with the schemes that are not enabled made unknown; `None` where that
/// changes nothing.
pub(crate) fn without_disabled(
    op: OpCode,
    body: &[u8],
    limits: &Limits,
    options: &Options,
) -> Option<Vec<u8>> {
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
    if !has_acl || !optional.any(|scheme| is_disabled(scheme) && may_be_named(&scheme)) {
        return None;
    }
    // What cannot be decoded is refused elsewhere.
    let mut request = Request::decode(op, body, limits).ok()?;
    let mut has_changed = false;
    let mut change = |acl: &mut Option<Vec<Acl<'_>>>| {
        for entry in acl.iter_mut().flatten() {
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
        let mut changed = Vec::with_capacity(body.len() + UNKNOWN.len());
        request.encode(&mut changed);
        changed
    })
}

#[cfg(test)]
mod tests {
    use baton_proto::{Create, CreateMode, Perms};

    use super::*;
    use crate::sasl_users::SaslUsers;

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
            let change =
                |options: &Options| without_disabled(op, &body, &Limits::default(), options);
            let changed = change(&Options::default()).unwrap();
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
            let changed = without_disabled(op, &body, &Limits::default(), &Options::default());
            assert_eq!(changed, None, "{op}");
        }
    }
}
