//! The trials: who connects how, does what, and what has to come of it. The same for each client
//! and for each server.

use crate::secure::{CLIENTS, STRANGER, USERS};

/// Ability of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Feature {
    Tls,
    Certificates,
    Sasl,
    /// To open a session behind the handshake.
    Sessions,
    /// To offer the versions of TLS that a trial names.
    Versions,
    /// A server's ability: more than TLS 1.2.
    Tls13,
}

/// A port of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Port {
    /// Without TLS.
    Plain,
    /// With TLS, where a certificate of the client is welcome.
    Secure,
    /// With TLS, where it must have one.
    Required,
}

/// Trust and proof of a client.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Access {
    /// With TLS: whether it trusts the authority that has signed the server's certificate.
    pub(super) trusts_ours: Option<bool>,
    pub(super) certificate: Option<&'static str>,
    pub(super) digest: Option<&'static str>,
    pub(super) sasl: Option<(&'static str, &'static str)>,
    /// Options of `openssl s_client`.
    pub(super) tls_version: Option<&'static [&'static str]>,
}

/// Act of a connected client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// Makes a znode that is open to all, reads it, and removes it.
    Open,
    /// Makes the trial's znode, for its creator alone.
    Own,
    /// Reads that znode.
    Read,
}

/// Outcome of the act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// It lacked the permission.
    NoAuth,
    /// It was not let in: no connection, or its credentials were refused.
    Refused,
}

/// One step: one client, one connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) access: Access,
    pub(super) act: Act,
    pub(super) expected: Outcome,
}

/// Some steps on one znode.
#[derive(Debug, Clone)]
pub(super) struct Trial {
    pub(super) name: &'static str,
    pub(super) port: Port,
    pub(super) needs: &'static [Feature],
    pub(super) steps: Vec<Step>,
}

const fn step(access: Access, act: Act, expected: Outcome) -> Step {
    Step {
        access,
        act,
        expected,
    }
}

const PLAIN: Access = Access {
    trusts_ours: None,
    certificate: None,
    digest: None,
    sasl: None,
    tls_version: None,
};
const TLS: Access = Access {
    trusts_ours: Some(true),
    ..PLAIN
};
const MISLED: Access = Access {
    trusts_ours: Some(false),
    ..PLAIN
};

const fn with(certificate: &'static str) -> Access {
    Access {
        certificate: Some(certificate),
        ..TLS
    }
}

const fn digest(on: Access, credential: &'static str) -> Access {
    Access {
        digest: Some(credential),
        ..on
    }
}

const fn sasl(on: Access, user: (&'static str, &'static str)) -> Access {
    Access {
        sasl: Some(user),
        ..on
    }
}

const fn version(options: &'static [&'static str]) -> Access {
    Access {
        tls_version: Some(options),
        ..TLS
    }
}

const ALICE: &str = CLIENTS[0];
const BOB: &str = CLIENTS[1];
const CAROL: (&str, &str) = USERS[0];
const DAVE: (&str, &str) = USERS[1];
const ONE: &str = "erin:erins-secret";
const OTHER: &str = "erin:a guess";
const WRONG: (&str, &str) = (CAROL.0, "a guess");
/// Versions and ciphers that are not offered unless the level of security is lowered.
const OLD: [&str; 3] = ["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"];

/// All trials.
pub(super) fn all() -> Vec<Trial> {
    use Act::{Open, Own, Read};
    use Feature::{Certificates, Sasl, Sessions, Tls, Tls13, Versions};
    use Outcome::{Done, NoAuth, Refused};
    use Port::{Plain, Required, Secure};

    let trial = |name, port, needs, steps| Trial {
        name,
        port,
        needs,
        steps,
    };
    let own = |owner, other, nobody| {
        vec![
            step(owner, Own, Done),
            step(owner, Read, Done),
            step(other, Read, NoAuth),
            step(nobody, Read, NoAuth),
        ]
    };
    vec![
        trial("TLS", Secure, &[Tls], vec![step(TLS, Open, Done)]),
        trial(
            "TLS 1.2, and not 1.1",
            Secure,
            &[Versions],
            vec![
                step(version(&["-tls1_2"]), Open, Done),
                step(version(&OLD), Open, Refused),
            ],
        ),
        trial(
            "TLS 1.3",
            Secure,
            &[Versions, Tls13],
            vec![step(version(&["-tls1_3"]), Open, Done)],
        ),
        trial(
            "a server of another authority",
            Secure,
            &[Tls],
            vec![step(MISLED, Open, Refused)],
        ),
        trial(
            "without TLS on the port with TLS",
            Secure,
            &[Sessions],
            vec![step(PLAIN, Open, Refused)],
        ),
        trial(
            "TLS on the port without TLS",
            Plain,
            &[Tls],
            vec![step(TLS, Open, Refused)],
        ),
        trial(
            "x509",
            Secure,
            &[Tls, Certificates, Sessions],
            own(with(ALICE), with(BOB), TLS),
        ),
        trial(
            "a certificate, where one is required",
            Required,
            &[Tls, Certificates],
            vec![step(with(ALICE), Open, Done)],
        ),
        trial(
            "no certificate, where one is required",
            Required,
            &[Tls],
            vec![step(TLS, Open, Refused)],
        ),
        trial(
            "a certificate of another authority",
            Secure,
            &[Tls, Certificates],
            vec![step(with(STRANGER), Open, Refused)],
        ),
        trial(
            "digest",
            Plain,
            &[Sessions],
            own(digest(PLAIN, ONE), digest(PLAIN, OTHER), PLAIN),
        ),
        trial(
            "digest with TLS",
            Secure,
            &[Tls, Sessions],
            own(digest(TLS, ONE), digest(TLS, OTHER), TLS),
        ),
        trial(
            "SASL DIGEST-MD5",
            Plain,
            &[Sasl],
            own(sasl(PLAIN, CAROL), sasl(PLAIN, DAVE), PLAIN),
        ),
        trial(
            "SASL DIGEST-MD5 with TLS",
            Secure,
            &[Tls, Sasl],
            own(sasl(TLS, CAROL), sasl(TLS, DAVE), TLS),
        ),
        trial(
            "SASL with a wrong password",
            Plain,
            &[Sasl],
            vec![step(sasl(PLAIN, WRONG), Open, Refused)],
        ),
        trial(
            "SASL and a certificate",
            Required,
            &[Tls, Certificates, Sasl],
            own(sasl(with(ALICE), CAROL), with(BOB), with(BOB)),
        ),
    ]
}
