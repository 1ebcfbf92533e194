//! Reads `config.toml`, which names the servers that commands use, and the files with which they
//! reach them: a user's file, or the machine's. One that is wrong is refused and never passed over:
//! the command would use other servers than its neighbours, and they would share no lock.

use std::io::ErrorKind;
use std::path::Path;

use baton_client::Config;
use toml::Value;

use crate::access::{self, AccessFiles, NamedAcl, NamedFile};
use crate::exit::Failure;
use crate::settings::SETTINGS;
use crate::settings::toml_file::{LocatedKey, kind, located_keys};

/// The key of the servers. The others are those of [`access`].
const SERVERS: &str = "servers";
/// An example line, for error messages.
const EXAMPLE: &str = "servers = \"host:2181\"";

/// Servers that a file names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NamedServers {
    /// The list, in the form of `--servers`.
    pub(crate) list: String,
    /// File, line and key.
    pub(crate) origin: String,
}

/// What a file says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfigFile {
    pub(crate) servers: Option<NamedServers>,
    pub(crate) access: AccessFiles,
}

/// Reads this file; where there is none, it says nothing.
///
/// # Errors
/// A file that cannot be read, or is wrong, with its line.
pub(crate) fn read(file: &Path) -> Result<ConfigFile, Failure> {
    let name = file.display();
    let folder = file.parent().unwrap_or(Path::new(""));
    match std::fs::read_to_string(file) {
        Ok(text) => parse(&name.to_string(), folder, &text).map_err(Failure::usage),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(ConfigFile::default())
        }
        Err(error) => Err(Failure::usage(format!(
            "{name}: {error}; make it readable for this user, or name the servers with --servers"
        ))),
    }
}

/// Paths in the file are relative to its folder.
fn parse(name: &str, folder: &Path, text: &str) -> Result<ConfigFile, String> {
    let mut read = ConfigFile::default();
    for LocatedKey { key, value, at } in located_keys(name, text, EXAMPLE, None)? {
        if let Some(file) = read.access.of_key(&key) {
            let Value::String(path) = &value else {
                return Err(format!(
                    "{at}: the value is {}; write the path of a file in quotes",
                    kind(&value)
                ));
            };
            *file = Some(NamedFile {
                path: folder.join(path),
                origin: at,
            });
            continue;
        }
        if key == access::ACL {
            let entries = texts(&value).ok_or_else(|| {
                format!(
                    "{at}: the value is {}; write lines like acl = [\"creator=all\", \"everyone=read\"]",
                    kind(&value)
                )
            })?;
            let entries = entries.iter().flat_map(|text| text.split(';'));
            read.access.acl = Some(NamedAcl {
                entries: entries.map(str::to_owned).collect(),
                origin: at,
            });
            continue;
        }
        if key != SERVERS {
            let belongs = SETTINGS.iter().any(|setting| setting.name == key);
            return Err(if belongs {
                format!(
                    "{at}: a setting of the server; write it in the file of baton serve --config"
                )
            } else {
                let others = access::KEYS.join(", ");
                let acl = access::ACL;
                format!("{at}: unknown key; the keys here are {SERVERS}, {others}, {acl}")
            });
        }
        let list = texts(&value).map(|servers| servers.join(","));
        let list = list.ok_or_else(|| {
            format!(
                "{at}: the value is {}; write lines like {EXAMPLE}",
                kind(&value)
            )
        })?;
        Config::new(&list).map_err(|error| format!("{at}: {error}"))?;
        read.servers = Some(NamedServers { list, origin: at });
    }
    Ok(read)
}

/// A text, or a list of texts.
fn texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(texts) => {
            let texts = texts.iter().map(|text| text.as_str().map(str::to_owned));
            texts.collect()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{ConfigFile, NamedServers};

    fn parse(name: &str, text: &str) -> Result<ConfigFile, String> {
        super::parse(name, Path::new("/etc/baton"), text)
    }

    #[test]
    fn a_file_names_servers_in_text_or_in_a_list() {
        for (text, list, line) in [
            ("servers = \"a:1,b:2/c\"", "a:1,b:2/c", 1),
            ("# ours\n\nservers = [\"a:1\", \"b:2\"]\n", "a:1,b:2", 3),
            ("servers = \"unix:/run/b.sock\"", "unix:/run/b.sock", 1),
        ] {
            let named = NamedServers {
                list: list.to_owned(),
                origin: format!("config.toml:{line} servers"),
            };
            let read = parse("config.toml", text).unwrap();
            assert_eq!(read.servers, Some(named), "{text}");
        }
        let nothing = parse("config.toml", "# nothing yet\n");
        assert_eq!(nothing, Ok(ConfigFile::default()));
    }

    #[test]
    fn a_file_names_an_acl_in_text_or_in_a_list() {
        for text in [
            "acl = \"creator=all;everyone=read\"",
            "acl = [\"creator=all\", \"everyone=read\"]",
        ] {
            let acl = parse("config.toml", text).unwrap().access.acl.unwrap();
            assert_eq!(acl.entries, ["creator=all", "everyone=read"]);
            assert_eq!(acl.origin, "config.toml:1 acl");
        }
        let refused = parse("config.toml", "acl = 7").unwrap_err();
        assert!(refused.starts_with("config.toml:1 acl: "), "{refused}");
    }

    #[test]
    fn a_file_names_files_relative_to_its_folder() {
        let text = "tls_ca = \"ca.pem\"\nauth_file = \"/run/secrets/auth\"\n";
        let mut read = parse("config.toml", text).unwrap();
        for (key, path, line) in [
            ("tls_ca", "/etc/baton/ca.pem", 1),
            ("auth_file", "/run/secrets/auth", 2),
        ] {
            let file = read.access.of_key(key).unwrap().take().unwrap();
            assert_eq!(file.path, Path::new(path));
            assert_eq!(file.origin, format!("config.toml:{line} {key}"));
        }
        assert_eq!(read, ConfigFile::default(), "nothing else");
    }

    #[test]
    fn a_wrong_file_is_refused_with_its_line() {
        for (text, complaint) in [
            ("\nservers", "config.toml:2:"),
            (
                "server = \"a\"",
                "config.toml:1 server: unknown key; the keys here are servers, tls_ca, tls_cert",
            ),
            (
                "\ntick = \"1s\"",
                "config.toml:2 tick: a setting of the server",
            ),
            (
                "tls_ca = [\"a\"]",
                "config.toml:1 tls_ca: the value is a list; write the path",
            ),
            (
                "[servers]\na = 1",
                "config.toml:1 servers: the value is a table; write lines like",
            ),
            (
                "servers = 2181",
                "config.toml:1 servers: the value is a number",
            ),
            (
                "servers = [1]",
                "config.toml:1 servers: the value is a list",
            ),
            (
                "#\nservers = \"host:port\"",
                "config.toml:2 servers: server `host:port` is not",
            ),
            (
                "servers = \"\"",
                "config.toml:1 servers: server list `` names no server",
            ),
        ] {
            let error = parse("config.toml", text).unwrap_err();
            assert!(error.contains(complaint), "{text}: {error}");
        }
    }
}
