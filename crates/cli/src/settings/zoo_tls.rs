//! The keys of a zoo.cfg about TLS: between clients and servers (`secureClientPort`, `ssl.…`) and
//! among servers (`sslQuorum`, `portUnification`, `ssl.quorum.…`). A key that asks for more
//! protection than Baton has stops the start, as in `protections`.

use std::collections::BTreeMap;
use std::path::Path;

use super::SettingValue;
use super::address::{ANY, port, with_port};
use super::zoo_keys::ALONE;

/// Meaning of a key about the other side's certificates.
enum Meaning {
    /// A file of certificates, to the setting of this name.
    Store,
    /// Whether the other side must show a certificate.
    ClientAuth,
    /// Whether the names in certificates of servers are checked.
    HostCheck,
    /// Whether certificates are looked up in the lists of revoked ones.
    RevocationLists,
    /// Followed by what Baton does anyway, where the value is one of these.
    Agrees(&'static [&'static str], &'static str),
    /// Without effect, where the value is not this one; Baton does this instead.
    Unless(&'static str, &'static str),
    /// Without effect; Baton does this instead.
    Instead(&'static str),
}

use Meaning::{Agrees, ClientAuth, HostCheck, Instead, RevocationLists, Store, Unless};

const NO: &[&str] = &["false", "no", "none", "0", ""];
const YES: &[&str] = &["true"];
const ANYTHING: &str = "";

/// The keys behind `ssl.quorum.` that mean something else than behind `ssl.`.
const QUORUM_KEYS: &[(&str, Meaning)] = &[
    ("clientAuth", Unless("need", MUTUAL)),
    ("hostnameVerification", HostCheck),
    (
        "clientHostnameVerification",
        Unless(
            "true",
            "who connects is checked where ssl.quorum.hostnameVerification says so",
        ),
    ),
    (
        "handshakeDetectionTimeoutMillis",
        Instead("a handshake between servers has a second, and longer with a longer ensemble.tick"),
    ),
];

/// The keys behind `ssl.` and `ssl.quorum.`. One with the value `ANYTHING` is taken silently.
const KEYS: &[(&str, Meaning)] = &[
    ("keyStore.location", Store),
    ("trustStore.location", Store),
    ("clientAuth", ClientAuth),
    ("keyStore.type", Instead(ANYTHING)),
    ("trustStore.type", Instead(ANYTHING)),
    ("keyStore.password", Instead(NO_PASSWORD)),
    ("keyStore.passwordPath", Instead(NO_PASSWORD)),
    ("trustStore.password", Instead(ANYTHING)),
    ("trustStore.passwordPath", Instead(ANYTHING)),
    (
        "hostnameVerification",
        Agrees(
            YES,
            "the names in certificates of servers are always checked",
        ),
    ),
    (
        "clientHostnameVerification",
        Agrees(NO, "the names in certificates of clients are not checked"),
    ),
    ("allowReverseDnsLookup", Instead(ANYTHING)),
    ("crl", RevocationLists),
    (
        "ocsp",
        Agrees(
            NO,
            "no OCSP responder is asked; baton serve reads CRL files",
        ),
    ),
    (
        "protocol",
        Agrees(
            &["TLS", "TLSv1.2", "TLSv1.3"],
            "TLS 1.2 and 1.3 are supported",
        ),
    ),
    (
        "enabledProtocols",
        Agrees(
            &["TLSv1.2", "TLSv1.2,TLSv1.3", "TLSv1.3,TLSv1.2"],
            "TLS 1.2 and 1.3 are supported",
        ),
    ),
    (
        "ciphersuites",
        Instead("only ciphers with forward secrecy and authenticated encryption are supported"),
    ),
    (
        "authProvider",
        Agrees(
            &["x509"],
            "clients are known by the subjects of their certificates",
        ),
    ),
    (
        "context.supplier.class",
        Agrees(&[""], "TLS has no plug-ins"),
    ),
    (
        "handshakeDetectionTimeoutMillis",
        Instead("handshake_timeout bounds that"),
    ),
    ("sslProvider", Instead(ANYTHING)),
    ("tcnative.", Instead(ANYTHING)),
];

const NO_PASSWORD: &str =
    "a private key in PEM is protected by the permissions of its file, not by a password";
const MUTUAL: &str = "servers always show each other certificates";
const SUPER_USER: &str = "X509AuthenticationProvider.superUser";
/// Reason why keys of TLS have no effect.
const UNUSED: &str = "no port uses TLS";
const UNUSED_AMONG_SERVERS: &str = "the servers connect without TLS: sslQuorum is not true";
const RELOADS: &str = "files of TLS are always read again when they change";

/// The keys of the file.
#[derive(Default)]
pub(super) struct ZooTls {
    /// Value and origin of each.
    seen: BTreeMap<String, (String, String)>,
}

/// The result.
#[derive(Default)]
pub(super) struct TlsGiven {
    pub(super) given: Vec<SettingValue>,
    /// Keys without effect, and why.
    pub(super) instead: Vec<(String, &'static str)>,
    /// Lines that ask for lists of revoked certificates: the setting that names them, its flag, and
    /// the line.
    pub(super) revocation_lists: Vec<(&'static str, &'static str, String)>,
}

/// The keys of one side, and the settings they become.
struct Side {
    prefix: &'static str,
    /// Keys that mean something else than for the other side.
    own_keys: &'static [(&'static str, Meaning)],
    certificate: &'static str,
    authorities: &'static str,
    /// The setting of the lists of revoked certificates, and its flag.
    revocation_lists: (&'static str, &'static str),
    /// `None`: the other side always has to show a certificate.
    client_auth: Option<&'static str>,
}

const CLIENTS: Side = Side {
    prefix: "ssl.",
    own_keys: &[],
    certificate: "tls_cert",
    authorities: "tls_ca",
    revocation_lists: ("tls_crl", "tls-crl"),
    client_auth: Some("tls_client_auth"),
};

const SERVERS: Side = Side {
    prefix: "ssl.quorum.",
    own_keys: QUORUM_KEYS,
    certificate: "ensemble.tls_cert",
    authorities: "ensemble.tls_ca",
    revocation_lists: ("ensemble.tls_crl", "peer-tls-crl"),
    client_auth: None,
};

/// The switches of TLS among servers, with their settings.
const SWITCHES_AMONG_SERVERS: [(&str, &str); 2] = [
    ("sslQuorum", "ensemble.tls"),
    ("portUnification", "ensemble.port_unification"),
];
const RELOAD_AMONG_SERVERS: &str = "sslQuorumReloadCertFiles";

impl ZooTls {
    /// Whether the key is about TLS. ZooKeeper puts the prefix there itself; who writes it means
    /// the same.
    pub(super) fn take(&mut self, key: &str, value: &str, origin: &str) -> bool {
        let key = key.strip_prefix("zookeeper.").unwrap_or(key);
        let is_about_tls = [
            "secureClientPort",
            "secureClientPortAddress",
            "client.portUnification",
            "client.certReload",
            RELOAD_AMONG_SERVERS,
            SUPER_USER,
        ]
        .contains(&key)
            || SWITCHES_AMONG_SERVERS
                .iter()
                .any(|(switch, _)| *switch == key)
            || key.starts_with(CLIENTS.prefix);
        if is_about_tls {
            let seen = (value.to_owned(), origin.to_owned());
            self.seen.insert(key.to_owned(), seen);
        }
        is_about_tls
    }

    /// The settings. A server that stands alone has no others.
    ///
    /// # Errors
    /// One line that names the place, the key and the remedy.
    pub(super) fn settle(&self, stands_alone: bool) -> Result<TlsGiven, String> {
        let mut out = TlsGiven::default();
        let is_unified = self.is_on("client.portUnification");
        let secure = self.secure_address()?;
        let is_used = is_unified.is_some() || secure.is_some();
        if let Some((reload, _)) = self.seen.get("client.certReload")
            && reload.eq_ignore_ascii_case("false")
        {
            out.instead.push(("client.certReload".to_owned(), RELOADS));
        }
        if let Some(origin) = is_unified {
            out.give("port_unification", "true".to_owned(), origin);
        }
        if let Some((address, origin)) = secure {
            out.give("secure_listen", address, origin);
        }
        match self.seen.get(SUPER_USER) {
            Some((subject, origin)) if is_used && !subject.is_empty() => {
                out.give("tls_super_subject", subject.clone(), origin.clone());
            }
            Some(_) => out.instead.push((SUPER_USER.to_owned(), UNUSED)),
            None => {}
        }
        let unused = (!is_used).then_some(UNUSED);
        self.side(&CLIENTS, unused, &mut out)?;
        self.among_servers(stands_alone, &mut out)?;
        Ok(out)
    }

    fn among_servers(&self, stands_alone: bool, out: &mut TlsGiven) -> Result<(), String> {
        let mut is_used = false;
        for (key, setting) in SWITCHES_AMONG_SERVERS {
            match self.is_on(key) {
                Some(_) if stands_alone => out.instead.push((key.to_owned(), ALONE)),
                Some(origin) => {
                    is_used = true;
                    out.give(setting, "true".to_owned(), origin);
                }
                None => {}
            }
        }
        if is_used
            && let Some((reload, _)) = self.seen.get(RELOAD_AMONG_SERVERS)
            && reload.eq_ignore_ascii_case("false")
        {
            out.instead.push((RELOAD_AMONG_SERVERS.to_owned(), RELOADS));
        }
        let unused = match (stands_alone, is_used) {
            (true, _) => Some(ALONE),
            (false, false) => Some(UNUSED_AMONG_SERVERS),
            (false, true) => None,
        };
        self.side(&SERVERS, unused, out)
    }

    /// Returns the origin of a switch that is on.
    fn is_on(&self, key: &str) -> Option<String> {
        let (value, origin) = self.seen.get(key)?;
        value.eq_ignore_ascii_case("true").then(|| origin.clone())
    }

    fn secure_address(&self) -> Result<Option<(String, String)>, String> {
        let number = self.seen.get("secureClientPort");
        let Some((number, origin)) = number.filter(|(number, _)| !NO.contains(&number.as_str()))
        else {
            return Ok(None);
        };
        let number = port(number).map_err(|what| format!("{origin}={what}"))?;
        let host = self.seen.get("secureClientPortAddress");
        let host = host.map(|(host, _)| host.as_str());
        let host = host.filter(|host| !host.is_empty()).unwrap_or(ANY);
        Ok(Some((with_port(host, &number), origin.clone())))
    }

    /// The files and rules of one side, or why they have no effect.
    fn side(
        &self,
        side: &Side,
        unused: Option<&'static str>,
        out: &mut TlsGiven,
    ) -> Result<(), String> {
        let mut client_auth = None;
        for (key, (value, origin)) in &self.seen {
            let Some(name) = key.strip_prefix(side.prefix) else {
                continue;
            };
            let is_of_servers = key.starts_with(SERVERS.prefix);
            if is_of_servers != (side.prefix == SERVERS.prefix) {
                continue;
            }
            if let Some(why) = unused {
                if !NO.contains(&value.as_str()) {
                    out.instead.push((key.clone(), why));
                }
                continue;
            }
            let known = side.own_keys.iter().chain(KEYS).find(|(known, _)| {
                name == *known || known.ends_with('.') && name.starts_with(known)
            });
            match known.map(|(_, meaning)| meaning) {
                None => out.instead.push((key.clone(), super::zoo_keys::UNKNOWN)),
                Some(Instead(ANYTHING)) => {}
                Some(Instead(_)) if value.is_empty() => {}
                Some(Instead(what)) => out.instead.push((key.clone(), what)),
                Some(Unless(same, _)) if value.eq_ignore_ascii_case(same) => {}
                Some(Unless(_, what)) => out.instead.push((key.clone(), what)),
                Some(HostCheck) => {
                    // Only this word takes protection away.
                    if value.eq_ignore_ascii_case("false") {
                        let setting = "ensemble.tls_any_host";
                        out.give(setting, "true".to_owned(), origin.clone());
                    }
                }
                Some(Agrees(values, what)) => {
                    let agrees = values.iter().any(|known| known.eq_ignore_ascii_case(value));
                    if !agrees {
                        return Err(format!(
                            "{origin}: the file asks for what baton serve does not have ({what}); \
                             protect the port by other means, then remove this line"
                        ));
                    }
                }
                Some(RevocationLists) => {
                    let is_off = |off: &&str| off.eq_ignore_ascii_case(value);
                    if !NO.iter().any(is_off) {
                        let (setting, flag) = side.revocation_lists;
                        out.revocation_lists.push((setting, flag, origin.clone()));
                    }
                }
                Some(ClientAuth) => client_auth = Some((value.clone(), origin.clone())),
                Some(Store) if value.is_empty() => {}
                Some(Store) => {
                    let kind = name.split('.').next().unwrap_or_default();
                    self.refuse_other_format(side, kind, value, origin)?;
                    let setting = match kind {
                        "keyStore" => side.certificate,
                        _ => side.authorities,
                    };
                    out.give(setting, value.clone(), origin.clone());
                }
            }
        }
        if unused.is_none()
            && let Some(setting) = side.client_auth
        {
            // ZooKeeper's default.
            let (value, origin) = client_auth
                .unwrap_or_else(|| ("need".to_owned(), "ZooKeeper's default".to_owned()));
            out.give(setting, value, origin);
        }
        Ok(())
    }

    /// Refuses a store that is not in PEM, by its type or its name.
    fn refuse_other_format(
        &self,
        side: &Side,
        kind: &str,
        path: &str,
        origin: &str,
    ) -> Result<(), String> {
        let said = self.seen.get(&format!("{}{kind}.type", side.prefix));
        let said = said.map(|(value, _)| value.to_ascii_lowercase());
        let extension = Path::new(path)
            .extension()
            .map(|end| end.to_ascii_lowercase());
        let extension = extension.and_then(|end| end.into_string().ok());
        let format = said.or(extension).unwrap_or_default();
        let chosen = match kind {
            "trustStore" => "-nokeys",
            _ => "-nodes",
        };
        let command = match format.as_str() {
            "jks" | "bcfks" => format!(
                "keytool -importkeystore -srckeystore {path} -destkeystore store.p12 -deststoretype PKCS12 && \
                 openssl pkcs12 -in store.p12 {chosen} -out store.pem && chmod 600 store.pem"
            ),
            "pkcs12" | "p12" | "pfx" => {
                format!("openssl pkcs12 -in {path} {chosen} -out store.pem && chmod 600 store.pem")
            }
            _ => return Ok(()),
        };
        Err(format!(
            "{origin}: {path} is a store of Java ({format}), and baton serve reads PEM; convert it and name \
             store.pem here: {command}"
        ))
    }
}

impl TlsGiven {
    fn give(&mut self, setting: &'static str, value: String, origin: String) {
        self.given.push(SettingValue {
            setting,
            values: vec![value],
            origin,
        });
    }
}
