//! Completion of a shell: clap's adapter, but for a script or candidates of the shell's own.

use std::ffi::OsString;
use std::io::{Error, Write};
use std::path::Path;

use clap::Command;
use clap_complete::env::EnvCompleter;

/// Writes the candidates for the last of the arguments.
type WriteCandidates =
    fn(&mut Command, Vec<OsString>, Option<&Path>, &mut dyn Write) -> Result<(), Error>;

/// The script that a shell reads. In one of its own VARIABLE, COMPLETER, NAME and BIN stand for
/// what clap passes.
pub(super) enum Script {
    Claps,
    Own(&'static str),
    /// Behind clap's.
    Added(&'static str),
}

/// The completion of one shell.
pub(super) struct Adapter {
    pub(super) clap: &'static dyn EnvCompleter,
    pub(super) script: Script,
    /// `None`: clap writes them.
    pub(super) candidates: Option<WriteCandidates>,
}

impl EnvCompleter for Adapter {
    fn name(&self) -> &'static str {
        self.clap.name()
    }

    fn is(&self, name: &str) -> bool {
        self.clap.is(name)
    }

    fn write_registration(
        &self,
        var: &str,
        name: &str,
        bin: &str,
        completer: &str,
        buf: &mut dyn Write,
    ) -> Result<(), Error> {
        if !matches!(self.script, Script::Own(_)) {
            self.clap
                .write_registration(var, name, bin, completer, buf)?;
        }
        let (Script::Own(script) | Script::Added(script)) = self.script else {
            return Ok(());
        };
        let words = [
            ("VARIABLE", var),
            ("COMPLETER", completer),
            ("NAME", name),
            ("BIN", bin),
        ];
        let script = words
            .into_iter()
            .fold(script.to_owned(), |script, (word, value)| {
                script.replace(word, value)
            });
        buf.write_all(script.as_bytes())
    }

    fn write_complete(
        &self,
        cmd: &mut Command,
        args: Vec<OsString>,
        current_dir: Option<&Path>,
        buf: &mut dyn Write,
    ) -> Result<(), Error> {
        match self.candidates {
            Some(write) => write(cmd, args, current_dir, buf),
            None => self.clap.write_complete(cmd, args, current_dir, buf),
        }
    }
}
