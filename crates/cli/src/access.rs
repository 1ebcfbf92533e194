//! Trust and identity of a verb: the files for TLS and credentials that flags, variables and
//! `config.toml` name. A secret never stands in an argument, where other users of the machine see
//! it.

use std::path::PathBuf;

use baton_client::{Acl, ClientTls, Config};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use crate::acl_words::AclEntry;
use crate::context::Globals;
use crate::exit::Failure;
use crate::secret_file;

/// The keys of `config.toml` that name files, and the ids of their flags.
pub(crate) const KEYS: [&str; 4] = ["tls_ca", "tls_cert", "tls_key", "auth_file"];
/// The key of the ACL of what verbs create, and the id of its flag.
pub(crate) const ACL: &str = "acl";

/// The variable that may hold a password. Commands that run under a lock do not get it.
pub(crate) const AUTH_VARIABLE: &str = "BATON_AUTH";

/// The scheme of users who prove to know their password by SASL, and do not send it.
const SASL: &str = "sasl";

/// A file, and who has named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedFile {
    pub(crate) path: PathBuf,
    /// The flag, the variable, or the file and line, for people.
    pub(crate) origin: String,
}

/// The entries of an ACL, and who has named them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedAcl {
    pub(crate) entries: Vec<String>,
    /// Origin, like that of [`NamedFile`].
    pub(crate) origin: String,
}

impl NamedAcl {
    fn read(&self) -> Result<Vec<Acl<'static>>, Failure> {
        let entries = self.entries.iter();
        let entries = entries.map(|entry| entry.parse().map(|AclEntry(acl)| acl));
        let read: Result<_, String> = entries.collect();
        read.map_err(|what| Failure::usage(format!("{}: {what}", self.origin)))
    }
}

/// The files that were named, and the ACL.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AccessFiles {
    tls_ca: Option<NamedFile>,
    tls_cert: Option<NamedFile>,
    tls_key: Option<NamedFile>,
    auth_file: Option<NamedFile>,
    pub(crate) acl: Option<NamedAcl>,
}

impl AccessFiles {
    /// Those that flags and variables name.
    pub(crate) fn of(globals: &Globals) -> Self {
        let origin = |name: &'static str| {
            if globals.from_variables.contains(&name) {
                format!("BATON_{} in the environment", name.to_ascii_uppercase())
            } else {
                format!("--{}", name.replace('_', "-"))
            }
        };
        let named = |name: &'static str, path: &Option<PathBuf>| {
            let path = path.clone()?;
            let origin = origin(name);
            Some(NamedFile { path, origin })
        };
        let entries = globals.acl.iter().filter(|entry| !entry.trim().is_empty());
        let entries: Vec<_> = entries.cloned().collect();
        Self {
            tls_ca: named("tls_ca", &globals.tls_ca),
            tls_cert: named("tls_cert", &globals.tls_cert),
            tls_key: named("tls_key", &globals.tls_key),
            auth_file: named("auth_file", &globals.auth_file),
            acl: (!entries.is_empty()).then(|| NamedAcl {
                entries,
                origin: origin(ACL),
            }),
        }
    }

    /// Whether they name a file that nobody else may read: it would be sent to, or used for, the
    /// servers that are named beside it.
    pub(crate) fn names_secrets(&self) -> bool {
        [&self.auth_file, &self.tls_cert, &self.tls_key]
            .iter()
            .any(|file| file.is_some())
    }

    /// Those of somebody who trusts the same servers and shows nothing.
    pub(crate) fn of_a_stranger(&self) -> Self {
        Self {
            tls_ca: self.tls_ca.clone(),
            ..Self::default()
        }
    }

    /// The files that are named, by their keys.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, &NamedFile)> {
        let files = [&self.tls_ca, &self.tls_cert, &self.tls_key, &self.auth_file];
        let named = KEYS.into_iter().zip(files);
        named.filter_map(|(key, file)| Some((key, file.as_ref()?)))
    }

    /// Returns the file of this key; `None`: there is no such key.
    pub(crate) fn of_key(&mut self, key: &str) -> Option<&mut Option<NamedFile>> {
        match key {
            "tls_ca" => Some(&mut self.tls_ca),
            "tls_cert" => Some(&mut self.tls_cert),
            "tls_key" => Some(&mut self.tls_key),
            "auth_file" => Some(&mut self.auth_file),
            _ => None,
        }
    }

    /// These files, and those of `other` that are not named here. A certificate comes with its key
    /// or without one, never with that of another source.
    pub(crate) fn or(self, other: Self) -> Self {
        let (tls_cert, tls_key) = if self.tls_cert.is_some() || self.tls_key.is_some() {
            (self.tls_cert, self.tls_key)
        } else {
            (other.tls_cert, other.tls_key)
        };
        Self {
            tls_ca: self.tls_ca.or(other.tls_ca),
            tls_cert,
            tls_key,
            auth_file: self.auth_file.or(other.auth_file),
            acl: self.acl.or(other.acl),
        }
    }

    /// Reads them.
    ///
    /// # Errors
    /// A file that is missing, wrong, or open to other users; in one line, without what is secret.
    pub(crate) fn read(&self) -> Result<Access, Failure> {
        let identity = match (&self.tls_cert, &self.tls_key) {
            (Some(cert), key) => Some((cert, key.as_ref().unwrap_or(cert))),
            (None, Some(key)) => {
                return Err(Failure::usage(format!(
                    "{}: a key without its certificate; name the certificate with --tls-cert",
                    key.origin
                )));
            }
            (None, None) => None,
        };
        let tls = match (&self.tls_ca, identity) {
            (None, None) => None,
            (None, Some((cert, _))) => {
                return Err(Failure::usage(format!(
                    "{}: a certificate is of no use without TLS; name the authorities that sign the servers' \
                     certificates with --tls-ca",
                    cert.origin
                )));
            }
            (Some(ca), identity) => {
                let tls = ClientTls::new(&ca.path).and_then(|tls| match identity {
                    Some((cert, key)) => tls.with_identity(&cert.path, &key.path),
                    None => Ok(tls),
                });
                let tls = tls.map_err(|error| Failure::usage(error.to_string()))?;
                Some((tls, ca.origin.clone()))
            }
        };
        let Credentials { presented, sasl } = match &self.auth_file {
            Some(file) => read_credentials(file)?,
            None => Credentials::default(),
        };
        let acl = self.acl.as_ref().map(NamedAcl::read).transpose()?;
        Ok(Access {
            tls_files: [&self.tls_ca, &self.tls_cert, &self.tls_key]
                .map(|file| file.as_ref().map(|file| file.path.clone())),
            tls,
            acl,
            credentials: presented,
            sasl,
            auth_origin: self.auth_file.as_ref().map(|file| file.origin.clone()),
        })
    }
}

/// Credentials to present.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Credential {
    scheme: String,
    data: String,
}

/// A user of SASL.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SaslUser {
    name: String,
    password: String,
}

/// An [`Access`] for another process of this user. It holds secrets: it travels over a private
/// socket only.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct PassedAccess {
    tls_files: [Option<String>; 3],
    credentials: Vec<Credential>,
    sasl: Option<SaslUser>,
}

impl PassedAccess {
    /// The access again, with the files of TLS as they are now.
    pub(crate) fn read(self) -> Result<Access, Failure> {
        let [tls_ca, tls_cert, tls_key] = self.tls_files.map(|path| {
            path.map(|path| NamedFile {
                path: path.into(),
                origin: "the process that was killed".to_owned(),
            })
        });
        let files = AccessFiles {
            tls_ca,
            tls_cert,
            tls_key,
            ..AccessFiles::default()
        };
        Ok(Access {
            credentials: self.credentials,
            sasl: self.sasl,
            ..files.read()?
        })
    }
}

/// The credentials of a file.
#[derive(Default)]
struct Credentials {
    presented: Vec<Credential>,
    sasl: Option<SaslUser>,
}

/// Trust and credentials that a session needs to reach servers and to be let in.
#[derive(Default)]
pub(crate) struct Access {
    /// TLS by which servers are trusted, and the origin of the authorities.
    tls: Option<(ClientTls, String)>,
    /// The files of `tls`: authorities, certificate, key.
    tls_files: [Option<PathBuf>; 3],
    credentials: Vec<Credential>,
    sasl: Option<SaslUser>,
    acl: Option<Vec<Acl<'static>>>,
    auth_origin: Option<String>,
}

impl Access {
    /// The options of a session with the servers of this list, which `origin` has named.
    ///
    /// # Errors
    /// A list that cannot be understood, or that asks for TLS while nobody says which servers to
    /// trust.
    pub(crate) fn config(&self, list: &str, origin: &str) -> Result<Config, Failure> {
        let mut config =
            Config::new(list).map_err(|error| Failure::usage(format!("{origin}: {error}")))?;
        if let Some((tls, _)) = &self.tls {
            config = config.tls(tls.clone());
        } else if config.asks_for_tls() {
            return Err(Failure::usage(format!(
                "{origin}: tls:// needs the certificates of the authorities that sign the servers'; name their file \
                 with --tls-ca, BATON_TLS_CA, or tls_ca in the config.toml that names the servers"
            )));
        }
        for Credential { scheme, data } in &self.credentials {
            config = config.auth(scheme, data.as_bytes());
        }
        if let Some(SaslUser { name, password }) = &self.sasl {
            config = config.sasl(name, password);
        }
        // The command has one runtime, which lives as long as its sessions: no thread of the
        // client's is needed. There is none yet where a list is only checked.
        if let Ok(runtime) = Handle::try_current() {
            config = config.runtime(runtime);
        }
        Ok(config)
    }

    /// The same for another process; `None` where a file's path is not text.
    pub(crate) fn passed(&self) -> Option<PassedAccess> {
        let path = |path: &Option<PathBuf>| match path {
            Some(path) => path.to_str().map(|path| Some(path.to_owned())),
            None => Some(None),
        };
        let [ca, cert, key] = &self.tls_files;
        Some(PassedAccess {
            tls_files: [path(ca)?, path(cert)?, path(key)?],
            credentials: self.credentials.clone(),
            sasl: self.sasl.clone(),
        })
    }

    /// Returns the TLS by which servers are trusted, if it is used.
    pub(crate) fn tls(&self) -> Option<&ClientTls> {
        self.tls.as_ref().map(|(tls, _)| tls)
    }

    /// The ACL of what the verb creates, if one is asked for.
    pub(crate) fn acl(&self) -> Option<&[Acl<'static>]> {
        self.acl.as_deref()
    }

    /// The first `USER:PASSWORD`.
    pub(crate) fn digest(&self) -> Option<&str> {
        let mut digests = self.credentials.iter();
        let digest = digests.find(|credential| credential.scheme == "digest");
        digest.map(|credential| credential.data.as_str())
    }

    /// Returns the origin of TLS, where the list itself does not ask for it.
    pub(crate) fn tls_origin(&self, config: &Config) -> Option<&str> {
        let (_, origin) = self.tls.as_ref()?;
        (!config.asks_for_tls() && config.has_tcp_server()).then_some(origin)
    }

    /// Returns the origin of the credentials.
    pub(crate) fn auth_origin(&self) -> Option<&str> {
        self.auth_origin.as_deref()
    }
}

/// Reads the credentials of a file: a line each, `SCHEME:CREDENTIAL`. Empty lines and those that
/// begin with `#` are passed over.
fn read_credentials(file: &NamedFile) -> Result<Credentials, Failure> {
    let shown = file.path.display();
    let text = secret_file::read(&file.path);
    let text = text.map_err(|what| Failure::usage(format!("{}: {what}", file.origin)))?;
    // What is wrong with a line is said without the line.
    parse(&text).map_err(|complaint| Failure::usage(format!("{shown}{complaint}")))
}

fn parse(text: &str) -> Result<Credentials, String> {
    let mut credentials = Credentials::default();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let (scheme, data) = line
            .split_once(':')
            .filter(|(scheme, data)| {
                let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
                !scheme.is_empty() && scheme.chars().all(plain) && !data.is_empty()
            })
            .ok_or_else(|| {
                format!(":{number}: not SCHEME:CREDENTIAL; write lines like digest:USER:PASSWORD")
            })?;
        if scheme == SASL {
            let user = data.split_once(':').filter(|(name, _)| !name.is_empty());
            let (name, password) = user.ok_or_else(|| {
                format!(":{number}: no USER:PASSWORD behind sasl; write sasl:USER:PASSWORD")
            })?;
            let user = SaslUser {
                name: name.to_owned(),
                password: password.to_owned(),
            };
            if credentials.sasl.replace(user).is_some() {
                return Err(format!(
                    ":{number}: a second user of sasl; a session has one, so leave one such line"
                ));
            }
            continue;
        }
        if scheme == "digest" && !data.contains(':') {
            return Err(format!(
                ":{number}: no USER:PASSWORD behind digest; write digest:USER:PASSWORD"
            ));
        }
        credentials.presented.push(Credential {
            scheme: scheme.to_owned(),
            data: data.to_owned(),
        });
    }
    if credentials.presented.is_empty() && credentials.sasl.is_none() {
        return Err(" has no credentials; write lines like digest:USER:PASSWORD".to_owned());
    }
    Ok(credentials)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_a_line_each() {
        let read = parse("# ours\n\ndigest:super:a:b\r\nmy-scheme:x y\n").unwrap();
        let read: Vec<_> = read
            .presented
            .iter()
            .map(|one| (one.scheme.as_str(), one.data.as_str()))
            .collect();
        assert_eq!(read, [("digest", "super:a:b"), ("my-scheme", "x y")]);
        for (text, complaint) in [
            ("", "no credentials"),
            ("#\n", "no credentials"),
            ("\nsecret", ":2: not SCHEME:CREDENTIAL"),
            (":x", ":1: not SCHEME:CREDENTIAL"),
            ("digest:", ":1: not SCHEME:CREDENTIAL"),
            ("a b:secret", ":1: not SCHEME:CREDENTIAL"),
            ("digest:secret", ":1: no USER:PASSWORD"),
            ("sasl:secret", ":1: no USER:PASSWORD behind sasl"),
            ("sasl::secret", ":1: no USER:PASSWORD behind sasl"),
            ("sasl:a:b\n\nsasl:b:secret", ":3: a second user of sasl"),
        ] {
            let error = parse(text).err().unwrap();
            assert!(error.contains(complaint), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_user_of_sasl_is_no_credential_to_present() {
        let read = parse("sasl:bob:se:cret\ndigest:u:p\n").unwrap();
        assert_eq!(read.presented.len(), 1);
        let user = read.sasl.unwrap();
        assert_eq!((&*user.name, &*user.password), ("bob", "se:cret"));
        assert!(parse("sasl:bob:\n").is_ok());
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_with_whoever_named_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = NamedFile {
            path: folder.path().join("none"),
            origin: "--auth-file".to_owned(),
        };
        let failure = read_credentials(&file).err().unwrap();
        assert!(failure.text.starts_with("--auth-file: "), "{failure}");
    }

    #[test]
    fn an_acl_that_cannot_be_read_is_named_with_whoever_named_it() {
        let acl = |entries: &[&str]| AccessFiles {
            acl: Some(NamedAcl {
                entries: entries.iter().map(|entry| (*entry).to_owned()).collect(),
                origin: "--acl".to_owned(),
            }),
            ..AccessFiles::default()
        };
        let access = acl(&["creator", "everyone=read"]).read().unwrap();
        assert_eq!(access.acl().unwrap().len(), 2);
        let failure = acl(&["creator", "bob"]).read().err().unwrap();
        assert!(failure.text.starts_with("--acl: 'bob'"), "{failure}");
        assert!(AccessFiles::default().read().unwrap().acl().is_none());
    }

    #[test]
    fn flags_outweigh_a_file_and_a_key_stays_with_its_certificate() {
        let files = |names: &[(&str, &str)]| {
            let mut files = AccessFiles::default();
            for (key, path) in names {
                *files.of_key(key).unwrap() = Some(NamedFile {
                    path: PathBuf::from(path),
                    origin: "-".to_owned(),
                });
            }
            files
        };
        let both = files(&[("tls_cert", "mine")]).or(files(&[
            ("tls_ca", "ca"),
            ("tls_cert", "theirs"),
            ("tls_key", "theirs"),
            ("auth_file", "auth"),
        ]));
        let wanted = [
            ("tls_ca", "ca"),
            ("tls_cert", "mine"),
            ("auth_file", "auth"),
        ];
        assert_eq!(both, files(&wanted));
        for names in [
            &[("tls_cert", "c")][..],
            &[("tls_key", "k"), ("tls_ca", "a")],
        ] {
            let failure = files(names).read().err().unwrap();
            assert_eq!(failure.kind, "usage");
        }
        assert!(files(&[]).of_key("servers").is_none());
    }
}
