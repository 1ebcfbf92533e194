//! Reads `config.toml`, which names the servers that commands use: a user's file, or the machine's.
//! One that is wrong is refused and never passed over: the command would use other servers than its
//! neighbours, and they would share no lock.

use std::io::ErrorKind;
use std::path::Path;

use baton_client::Config;
use toml::Value;

use crate::exit::Failure;
use crate::settings::SETTINGS;
use crate::settings::toml_file::{LocatedKey, kind, located_keys};

/// The only key.
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

/// The servers that this file names; `None` where there is no such file, or it names none.
///
/// # Errors
/// A file that cannot be read, or is wrong, with its line.
pub(crate) fn servers(file: &Path) -> Result<Option<NamedServers>, Failure> {
    let name = file.display();
    match std::fs::read_to_string(file) {
        Ok(text) => parse(&name.to_string(), &text).map_err(Failure::usage),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(Failure::usage(format!(
            "{name}: {error}; make it readable for this user, or name the servers with --servers"
        ))),
    }
}

fn parse(name: &str, text: &str) -> Result<Option<NamedServers>, String> {
    let mut named = None;
    for LocatedKey { key, value, at } in located_keys(name, text, EXAMPLE, None)? {
        if key != SERVERS {
            let belongs = SETTINGS.iter().any(|setting| setting.name == key);
            return Err(if belongs {
                format!(
                    "{at}: a setting of the server; write it in the file of baton serve --config"
                )
            } else {
                format!("{at}: unknown key; {SERVERS} is the only one here")
            });
        }
        let list = list(&value).ok_or_else(|| {
            format!(
                "{at}: the value is {}; write lines like {EXAMPLE}",
                kind(&value)
            )
        })?;
        Config::new(&list).map_err(|error| format!("{at}: {error}"))?;
        named = Some(NamedServers { list, origin: at });
    }
    Ok(named)
}

/// The servers of a text, or of a list of texts.
fn list(value: &Value) -> Option<String> {
    match value {
        Value::String(list) => Some(list.clone()),
        Value::Array(servers) => {
            let servers: Option<Vec<&str>> = servers.iter().map(Value::as_str).collect();
            Some(servers?.join(","))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{NamedServers, parse};

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
            assert_eq!(parse("config.toml", text), Ok(Some(named)), "{text}");
        }
        assert_eq!(parse("config.toml", "# nothing yet\n"), Ok(None));
    }

    #[test]
    fn a_wrong_file_is_refused_with_its_line() {
        for (text, complaint) in [
            ("\nservers", "config.toml:2:"),
            (
                "server = \"a\"",
                "config.toml:1 server: unknown key; servers is the only one",
            ),
            (
                "\ntick = \"1s\"",
                "config.toml:2 tick: a setting of the server",
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
