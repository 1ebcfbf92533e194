//! `baton context`: the contexts of `config.toml`, sets of servers under names.

use std::path::PathBuf;

use baton_proto::OneLine;
use serde::Serialize;

use crate::access::AccessFiles;
use crate::context::Context;
use crate::exit::{self, Failure};
use crate::output::Tone;
use crate::output::record::record;
use crate::servers::config_file::{self, NamedContext, SelectedContext};
use crate::servers::lookup::{self, Files, Found};
use crate::servers::machine::Machine;

/// List and choose the servers that commands use, by name.
///
/// A context is a table in ~/.config/baton/config.toml, or in /etc/baton/config.toml for all users
/// of the machine. BATON_CONFIG names another file in place of the first. A context holds
/// everything that is needed to reach its servers; nothing else in the file applies to it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  baton context ls                 the contexts, the current one with a star
  baton context use prod           from now on
  baton --context test ls /        for this command
  baton context show               what commands use now, and its origin

In config.toml:
  current = \"prod\"

  [context.prod]
  servers = \"tls://zk1:2281,zk2:2281,zk3:2281\"
  tls_ca = \"prod/ca.pem\"
  auth_file = \"prod/auth\"

The first of these counts: --servers or --context, BATON_SERVERS,
BATON_CONTEXT, current.
Exit codes: 0 done   1 (ls) there are none   2 no such context, wrong file")]
pub(crate) struct Args {
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// Print the contexts, a line each.
    Ls,
    /// Make a context the current one: writes `current` in the user's file.
    Use {
        /// The context.
        #[arg(value_name = "CONTEXT", required_unless_present = "none")]
        name: Option<String>,
        /// Use no context, but the servers that config.toml names outside all contexts.
        #[arg(long, conflicts_with = "name")]
        none: bool,
    },
    /// Print the servers and files that commands use, and where each setting comes from.
    Show {
        /// The context [default: what commands use].
        #[arg(value_name = "CONTEXT")]
        name: Option<String>,
    },
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let machine = Machine::this()?;
    match &args.act {
        Act::Ls => list(context, &machine),
        Act::Use { name, .. } => choose(context, &machine, name.as_deref()),
        Act::Show { name } => show(context, &machine, name.as_deref()),
    }
}

/// A file that a context names.
#[derive(Serialize)]
struct ShownFile {
    key: &'static str,
    path: PathBuf,
    origin: String,
}

fn shown_files(access: &AccessFiles) -> Vec<ShownFile> {
    let shown = access.named().map(|(key, file)| ShownFile {
        key,
        path: file.path.clone(),
        origin: file.origin.clone(),
    });
    shown.collect()
}

/// Prints every context, and marks the current one.
fn list(context: &Context, machine: &Machine) -> Result<u8, Failure> {
    let files = Files::of(machine)?.read()?;
    let chosen = context.globals.context.clone();
    let current = files.iter().find_map(|file| file.current.as_ref());
    let current = chosen.or_else(|| current.map(|selected| selected.name.clone()));
    let mut known: Vec<&NamedContext> = Vec::new();
    for one in files.iter().flat_map(|file| &file.contexts) {
        // One of the user's own outweighs one of the machine.
        if !known.iter().any(|known| known.name == one.name) {
            known.push(one);
        }
    }
    let output = &context.output;
    if known.is_empty() {
        output.note("there are no contexts; baton context --help shows how to write one");
        return Ok(exit::NOTHING);
    }
    let rows = known.iter().map(|one| {
        let is_current = current.as_deref() == Some(&one.name);
        let record = record! {
            context: &one.name,
            current: is_current,
            servers: &one.servers.list,
            origin: &one.servers.origin,
            files: shown_files(&one.access),
        };
        let mark = if is_current { "*" } else { "" };
        let cells = [mark, &one.name, &one.servers.list, &one.servers.origin];
        let tone = is_current.then_some(Tone::Good);
        (record, tone, cells.map(str::to_owned))
    });
    output.table(["", "CONTEXT", "SERVERS", "FROM"], rows);
    Ok(exit::OK)
}

/// Prints what commands use, or would use in the context of this name.
fn show(context: &Context, machine: &Machine, name: Option<&str>) -> Result<u8, Failure> {
    let mut globals = context.globals.clone();
    if let Some(name) = name {
        globals.context = Some(name.to_owned());
        globals.from_variables.retain(|id| *id != "context");
        globals.servers = None;
    }
    let (found, access) = lookup::servers(&globals, machine)?;
    let (servers, origin) = match found {
        Found::Named(named) => (Some(named.list), named.origin),
        Found::Local { origin, .. } => (None, origin),
    };
    let files = shown_files(&access);
    let mut lines = Vec::new();
    let mut line = |key: &str, value: &str, origin: &str| {
        lines.push(OneLine(&format!("{key:9}  {value}  ({origin})")).to_string());
    };
    let list = servers.as_deref().unwrap_or("the local server");
    line("servers", list, &origin);
    for file in &files {
        line(file.key, &file.path.to_string_lossy(), &file.origin);
    }
    if let Some(acl) = &access.acl {
        line("acl", &acl.entries.join(";"), &acl.origin);
    }
    let acl = access.acl.as_ref().map(|acl| &acl.entries);
    let shown = record! { servers, origin, files, acl };
    context.output.paragraph(&shown, lines.join("\n"));
    Ok(exit::OK)
}

/// Writes `current` in the user's file, or removes it.
fn choose(context: &Context, machine: &Machine, name: Option<&str>) -> Result<u8, Failure> {
    let files = Files::of(machine)?;
    if let Some(name) = name {
        let read = files.read()?;
        if lookup::context_of(name, &read).is_none() {
            let selected = SelectedContext {
                name: name.to_owned(),
                origin: "baton context use".to_owned(),
            };
            return Err(lookup::unknown(&selected, &read));
        }
    }
    let file = files.user().ok_or_else(|| {
        Failure::usage(
            "no file to write: neither XDG_CONFIG_HOME nor HOME is set; name one with BATON_CONFIG",
        )
    })?;
    let before = config_file::read_existing(file)?;
    let text = before.map(|(text, _)| text).unwrap_or_default();
    let changed = config_file::with_current(&text, name);
    if changed != text {
        config_file::replace(file, &changed).map_err(|error| {
            Failure::baton(format!(
                "cannot write {}: {error}; make its folder writable for this user, or give --context",
                file.display()
            ))
        })?;
    }
    let said = match name {
        Some(name) => format!("current context: {name}"),
        None => "no current context".to_owned(),
    };
    let record = record! { current: name, file };
    context.output.result(&record, said);
    let globals = &context.globals;
    let by_variable = globals.from_variables.contains(&"context") && globals.context.is_some();
    for (variable, is_set) in [
        ("BATON_SERVERS", globals.servers.is_some()),
        ("BATON_CONTEXT", by_variable),
    ] {
        if is_set {
            context.output.note(format!(
                "{variable} in the environment takes precedence over the current context; unset it"
            ));
        }
    }
    Ok(exit::OK)
}
