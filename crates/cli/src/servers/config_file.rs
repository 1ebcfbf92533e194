//! Reads `config.toml`, which names the servers that commands use, and the files with which they
//! reach them: a user's file, or the machine's. It may name several sets of servers, the contexts.
//! A file that is wrong is refused and never passed over: the command would use other servers than
//! its neighbours, and they would share no lock.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use baton_client::Config;
use toml::Value;

use crate::access::{self, AccessFiles, NamedAcl, NamedFile};
use crate::exit::Failure;
use crate::folders::{self, CHANGED_BY_OTHERS};
use crate::settings::SETTINGS;
use crate::settings::toml_file::{LocatedKey, kind, located_keys, nearest};

/// The key of the servers. The others that a context may have are those of [`access`].
const SERVERS: &str = "servers";
/// The key of the context that counts where none is asked for.
const CURRENT: &str = "current";
/// The table of the contexts.
const CONTEXT: &str = "context";
/// An example line, for error messages.
const EXAMPLE: &str = "servers = \"host:2181\"";
/// Permissions with which everybody could.
const CHANGED_BY_ANYBODY: u32 = 0o002;
/// The bit of a folder in which only owners rename and remove their files.
const STICKY: u32 = 0o1000;
/// The user whose secrets open every file.
const SUPERUSER: u32 = 0;

/// Servers that a file names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedServers {
    /// The list, in the form of `--servers`.
    pub(crate) list: String,
    /// File, line and key.
    pub(crate) origin: String,
}

/// A set of servers under a name, with all that is needed to reach them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedContext {
    pub(crate) name: String,
    pub(crate) servers: NamedServers,
    pub(crate) access: AccessFiles,
}

/// The name of a context, and who asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SelectedContext {
    pub(crate) name: String,
    /// The flag, the variable, or the file and line, for people.
    pub(crate) origin: String,
}

/// Content of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ConfigFile {
    pub(crate) servers: Option<NamedServers>,
    pub(crate) access: AccessFiles,
    pub(crate) current: Option<SelectedContext>,
    /// In the file's order.
    pub(crate) contexts: Vec<NamedContext>,
}

impl ConfigFile {
    /// Whether the file, or one of its contexts, names files with secrets.
    fn names_secrets(&self) -> bool {
        let contexts = self.contexts.iter().map(|context| &context.access);
        contexts
            .chain([&self.access])
            .any(AccessFiles::names_secrets)
    }
}

/// The text of this file, and what it says; `None`: there is no such file.
///
/// # Errors
/// A file that cannot be read, or is wrong, with its line; one that others own or may change.
pub(crate) fn read_existing(file: &Path) -> Result<Option<(String, ConfigFile)>, Failure> {
    let name = file.display().to_string();
    let folder = file.parent().unwrap_or(Path::new(""));
    let load = || {
        let mut opened = File::open(file)?;
        // Of the file that was opened, which its name may not mean any more.
        let about = opened.metadata()?;
        let mut text = String::new();
        opened.read_to_string(&mut text)?;
        Ok((text, about))
    };
    match load() {
        Ok((text, about)) => {
            let config = parse(&name, folder, &text).map_err(Failure::usage)?;
            let folder = std::fs::metadata(match folder.as_os_str().is_empty() {
                true => Path::new("."),
                false => folder,
            });
            let user = rustix::process::geteuid().as_raw();
            let parts = [
                Some((name.clone(), FilePermissions::of(&about))),
                folder
                    .ok()
                    .map(|about| (format!("the folder of {name}"), FilePermissions::of(&about))),
            ];
            let has_secrets = config.names_secrets() || user == SUPERUSER;
            for (what, standing) in parts.iter().flatten() {
                refuse_changed_by_others(what, standing, user, has_secrets)?;
            }
            Ok(Some((text, config)))
        }
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(Failure::usage(format!(
            "{name}: {error}; make it readable for this user, or name the servers with --servers"
        ))),
    }
}

/// The text of a file with this context as the current one; all else in it stays as it is. The text
/// is one that [`read_existing`] has read.
pub(crate) fn with_current(text: &str, name: Option<&str>) -> String {
    let keys = located_keys("", text, EXAMPLE, &|_| false).unwrap_or_default();
    let current = keys.iter().find(|located| located.key == CURRENT);
    let line = name.map(|name| format!("{CURRENT} = {}\n", Value::from(name)));
    let (start, end) = match current {
        Some(located) => {
            let start = text.get(..located.span.start).unwrap_or_default();
            let start = start.rfind('\n').map_or(0, |at| at + 1);
            let rest = text.get(located.span.end..).unwrap_or_default();
            let length = rest.find('\n').map_or(rest.len(), |at| at + 1);
            (start, located.span.end + length)
        }
        // A key behind a table's header would be one of the table.
        None => (0, 0),
    };
    let before = text.get(..start).unwrap_or_default();
    let after = text.get(end..).unwrap_or_default();
    format!("{before}{}{after}", line.unwrap_or_default())
}

/// Replaces a file in one step; it keeps its permissions, and a link stays one.
pub(crate) fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let file = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let permissions = std::fs::metadata(&file)
        .ok()
        .map(|about| about.permissions());
    let mut name = OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let beside = folder.join(name);
    let write = || {
        let mut new = File::create(&beside)?;
        if let Some(permissions) = permissions {
            new.set_permissions(permissions)?;
        }
        new.write_all(text.as_bytes())?;
        std::fs::rename(&beside, &file)
    };
    let written = write();
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    written
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Owner and mode, which say who may change a file or replace the files of a folder.
struct FilePermissions {
    owner: u32,
    mode: u32,
}

impl FilePermissions {
    fn of(about: &Metadata) -> Self {
        let mode = about.permissions().mode() & 0o7777;
        // In a folder with this bit nobody replaces the files of others.
        let is_sticky = about.is_dir() && mode & STICKY != 0;
        Self {
            owner: about.uid(),
            mode: if is_sticky {
                mode & !CHANGED_BY_OTHERS
            } else {
                mode
            },
        }
    }
}

/// Refuses a file that other users may change: they could have the commands of this user, and the
/// secrets that the file or this user names, sent to servers of their own. The members of its group
/// may change a file without secrets.
fn refuse_changed_by_others(
    what: &str,
    standing: &FilePermissions,
    user: u32,
    has_secrets: bool,
) -> Result<(), Failure> {
    let FilePermissions { owner, mode } = *standing;
    if !folders::is_trusted(owner, user) {
        return Err(Failure::usage(format!(
            "{what} belongs to another user ({owner}, this process runs as {user}), who could have secrets sent to \
             servers of their own; name a file of your own with BATON_CONFIG, or the servers with --servers"
        )));
    }
    let refused = if has_secrets {
        CHANGED_BY_OTHERS
    } else {
        CHANGED_BY_ANYBODY
    };
    if mode & refused == 0 {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{what}: other users may change it (mode {mode:04o}), and could have secrets sent to servers of their own; \
         run chmod go-w on it"
    )))
}

/// Paths in the file are relative to its folder.
fn parse(name: &str, folder: &Path, text: &str) -> Result<ConfigFile, String> {
    let mut read = ConfigFile::default();
    let is_opened = |path: &[String]| match path {
        [table] | [table, _] => table == CONTEXT,
        _ => false,
    };
    let mut contexts: Vec<(String, String, Keys)> = Vec::new();
    let mut whole = Keys::default();
    for located in located_keys(name, text, EXAMPLE, &is_opened)? {
        let path: Vec<&str> = located.path.iter().map(String::as_str).collect();
        match path.as_slice() {
            [CONTEXT] => {
                let example = "write tables like [context.prod]";
                return Err(format!("{}: names no context; {example}", located.at));
            }
            [CONTEXT, context] => {
                let what = match located.value {
                    Value::Table(_) => "names no servers".to_owned(),
                    other => format!("the value is {}", kind(&other)),
                };
                let at = located.at;
                return Err(format!(
                    "{at}: {what}; write [context.{context}] and below it lines like {EXAMPLE}"
                ));
            }
            [CONTEXT, context, key] => {
                check_name(&located.at, context)?;
                let known = contexts.iter().position(|(known, ..)| known == context);
                let index = known.unwrap_or_else(|| {
                    let at = located.at.trim_end_matches(key).trim_end_matches('.');
                    contexts.push(((*context).to_owned(), at.to_owned(), Keys::default()));
                    contexts.len() - 1
                });
                if let Some((.., keys)) = contexts.get_mut(index)
                    && !keys.take(key, &located, folder)?
                {
                    return Err(unknown_key(key, &located.at, &[]));
                }
            }
            [CURRENT] => {
                let Value::String(name) = &located.value else {
                    let value = kind(&located.value);
                    return Err(format!(
                        "{}: the value is {value}; write the name of a context in quotes",
                        located.at
                    ));
                };
                read.current = Some(SelectedContext {
                    name: name.clone(),
                    origin: located.at,
                });
            }
            _ => {
                if !whole.take(&located.key, &located, folder)? {
                    return Err(unknown_key(&located.key, &located.at, &[CURRENT, CONTEXT]));
                }
            }
        }
    }
    for (name, at, Keys { servers, access }) in contexts {
        let servers = servers.ok_or_else(|| {
            format!("{at}: names no servers; write below [context.{name}] a line like {EXAMPLE}")
        })?;
        read.contexts.push(NamedContext {
            name,
            servers,
            access,
        });
    }
    (read.servers, read.access) = (whole.servers, whole.access);
    Ok(read)
}

/// A context's name stands in commands and variables, and is completed by shells.
fn check_name(at: &str, name: &str) -> Result<(), String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain) {
        return Ok(());
    }
    Err(format!(
        "{at}: {name:?} is not a name of a context; use letters, digits and -_. only"
    ))
}

/// The keys that a context may have, and the file outside of all contexts.
#[derive(Default)]
struct Keys {
    servers: Option<NamedServers>,
    access: AccessFiles,
}

impl Keys {
    /// Takes the value of a key; false: there is no such key.
    fn take(&mut self, key: &str, located: &LocatedKey, folder: &Path) -> Result<bool, String> {
        let LocatedKey { value, at, .. } = located;
        if let Some(file) = self.access.of_key(key) {
            let Value::String(path) = value else {
                return Err(format!(
                    "{at}: the value is {}; write the path of a file in quotes",
                    kind(value)
                ));
            };
            *file = Some(NamedFile {
                path: folder.join(path),
                origin: at.clone(),
            });
            return Ok(true);
        }
        if key == access::ACL {
            let entries = texts(value).ok_or_else(|| {
                format!(
                    "{at}: the value is {}; write lines like acl = [\"creator=all\", \"everyone=read\"]",
                    kind(value)
                )
            })?;
            let entries = entries.iter().flat_map(|text| text.split(';'));
            self.access.acl = Some(NamedAcl {
                entries: entries.map(str::to_owned).collect(),
                origin: at.clone(),
            });
            return Ok(true);
        }
        if key != SERVERS {
            return Ok(false);
        }
        let list = texts(value).map(|servers| servers.join(","));
        let list = list.ok_or_else(|| {
            format!(
                "{at}: the value is {}; write lines like {EXAMPLE}",
                kind(value)
            )
        })?;
        Config::new(&list).map_err(|error| format!("{at}: {error}"))?;
        self.servers = Some(NamedServers {
            list,
            origin: at.clone(),
        });
        Ok(true)
    }
}

/// The message for a key that is neither among those of a context nor among `others`.
fn unknown_key(key: &str, at: &str, others: &[&str]) -> String {
    if SETTINGS.iter().any(|setting| setting.name == key) {
        return format!(
            "{at}: a setting of the server; write it in the file of baton serve --config"
        );
    }
    let mut known = vec![SERVERS];
    known.extend(access::KEYS);
    known.push(access::ACL);
    known.extend(others);
    let similar = nearest(key, known.iter().copied())
        .map(|name| format!(" a similar one exists: {name};"))
        .unwrap_or_default();
    let known = known.join(", ");
    format!("{at}: unknown key;{similar} the keys here are {known}")
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
    use std::os::unix::fs::PermissionsExt;
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
    fn contexts_have_the_keys_of_the_file_and_stand_for_themselves() {
        let text = "current = \"prod\"\nauth_file = \"auth\"\n\n[context.prod]\nservers = [\"a:1\", \"b:2\"]\n\
                    tls_ca = \"ca.pem\"\n[context.\"eu.test\"]\nacl = \"creator\"\nservers = \"c:3\"\n";
        let read = parse("config.toml", text).unwrap();
        let current = read.current.unwrap();
        assert_eq!(
            (&*current.name, &*current.origin),
            ("prod", "config.toml:1 current")
        );
        let [prod, test] = &read.contexts[..] else {
            panic!("{:?}", read.contexts)
        };
        assert_eq!((&*prod.name, &*prod.servers.list), ("prod", "a:1,b:2"));
        assert_eq!(prod.servers.origin, "config.toml:5 context.prod.servers");
        let mut access = prod.access.clone();
        let ca = access.of_key("tls_ca").unwrap().take().unwrap();
        assert_eq!(ca.path, Path::new("/etc/baton/ca.pem"));
        // Credentials of the file are not those of the context.
        assert_eq!(access, Default::default());
        assert_eq!((&*test.name, &*test.servers.list), ("eu.test", "c:3"));
        assert_eq!(read.servers, None);
    }

    #[test]
    fn the_current_context_is_written_and_all_else_stays() {
        let context = "[context.a]\nservers = \"h:1\"\ncurrent_not = 1\n";
        for (text, name, expected) in [
            ("", Some("a"), "current = \"a\"\n".to_owned()),
            ("", None, String::new()),
            (context, Some("a"), format!("current = \"a\"\n{context}")),
            (
                "# ours\ncurrent = 'b' # was c\nacl = \"creator\"\n",
                Some("a"),
                "# ours\ncurrent = \"a\"\nacl = \"creator\"\n".to_owned(),
            ),
            ("# ours\ncurrent = \"b\"", None, "# ours\n".to_owned()),
        ] {
            assert_eq!(super::with_current(text, name), expected, "{text}");
        }
    }

    #[test]
    fn a_wrong_context_is_refused_with_its_line() {
        for (text, complaint) in [
            ("[context]\n", "config.toml:1 context: names no context"),
            ("context = 1", "config.toml:1 context: names no context"),
            (
                "\n[context.a]",
                "config.toml:2 context.a: names no servers; write [context.a]",
            ),
            (
                "[context]\na = \"h:1\"",
                "config.toml:2 context.a: the value is text; write [context.a]",
            ),
            (
                "[context.a]\nacl = \"creator\"",
                "config.toml:2 context.a: names no servers",
            ),
            (
                "[context.a]\nserver = \"h:1\"",
                "config.toml:2 context.a.server: unknown key; a similar one exists: servers; the keys here \
                 are servers, tls_ca, tls_cert, tls_key, auth_file, acl",
            ),
            (
                "[context.a]\nservers = \"h:1\"\ncurrent = \"a\"",
                "config.toml:3 context.a.current: unknown key",
            ),
            (
                "[context.\"a b\"]\nservers = \"h:1\"",
                "config.toml:2 context.a b.servers: \"a b\" is not a name",
            ),
            (
                "[context.a]\ntls-ca = \"c\"",
                "config.toml:2 context.a.tls-ca: unknown key; a similar one exists: tls_ca",
            ),
            (
                "[context.a.b]\nservers = \"h:1\"",
                "config.toml:1 context.a.b: unknown key",
            ),
            (
                "currnt = \"a\"",
                "config.toml:1 currnt: unknown key; a similar one exists: current",
            ),
            (
                "current = 1",
                "config.toml:1 current: the value is a number",
            ),
            (
                "[context.a]\ntick = 1",
                "config.toml:2 context.a.tick: a setting of",
            ),
        ] {
            let error = parse("config.toml", text).unwrap_err();
            assert!(error.starts_with(complaint), "{text}: {error}");
        }
    }

    #[test]
    fn a_file_that_others_own_or_may_change_is_refused() {
        const GO_W: Option<&str> = Some("chmod go-w");
        const FOREIGN: Option<&str> = Some("belongs to another user");
        for (owner, mode, user, has_secrets, refusal) in [
            (7, 0o644, 7, true, None),
            (0, 0o644, 7, true, None),
            (7, 0o664, 7, false, None),
            (7, 0o664, 7, true, GO_W),
            (7, 0o602, 7, true, GO_W),
            (7, 0o666, 7, false, GO_W),
            (8, 0o600, 7, false, FOREIGN),
            (7, 0o600, 0, true, FOREIGN),
            (0, 0o600, 0, true, None),
        ] {
            let standing = super::FilePermissions { owner, mode };
            let outcome = super::refuse_changed_by_others("x", &standing, user, has_secrets);
            match (outcome, refusal) {
                (Ok(()), None) => {}
                (Err(failure), Some(part)) if failure.text.contains(part) => {}
                (outcome, _) => panic!("{owner} {mode:o} {user} {has_secrets}: {outcome:?}"),
            }
        }
    }

    #[test]
    fn a_folder_in_which_anybody_may_replace_the_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, "servers = \"a:1\"\nauth_file = \"auth\"\n").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        for (mode, is_fine) in [
            (0o755, true),
            (0o1777, true),
            (0o777, false),
            (0o775, false),
        ] {
            std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode)).unwrap();
            let read = super::read_existing(&path);
            assert_eq!(read.is_ok(), is_fine, "{mode:o}");
        }
    }

    #[test]
    fn a_wrong_file_is_refused_with_its_line() {
        for (text, complaint) in [
            ("\nservers", "config.toml:2:"),
            (
                "server = \"a\"",
                "config.toml:1 server: unknown key; a similar one exists: servers; the keys here are servers, tls_ca",
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
