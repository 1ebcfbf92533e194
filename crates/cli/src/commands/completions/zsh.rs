//! Completion of zsh: clap's, but behind `--` the shell completes a command of its own.

use std::ffi::OsString;
use std::io::{Error, Write};
use std::path::Path;

use clap::Command;
use clap_complete::env::{self, EnvCompleter};

/// The script behind clap's.
const SCRIPT: &str = r#"
function _baton_or_command() {
    local separator=${words[(ie)--]}
    if (( separator < CURRENT )); then
        shift $separator words
        (( CURRENT -= separator ))
        _normal
    else
        _clap_dynamic_completer_NAME
    fi
}

compdef _baton_or_command BIN
"#;

/// The adapter of zsh.
pub(super) struct Zsh;

impl EnvCompleter for Zsh {
    fn name(&self) -> &'static str {
        env::Zsh.name()
    }

    fn is(&self, name: &str) -> bool {
        env::Zsh.is(name)
    }

    fn write_registration(
        &self,
        var: &str,
        name: &str,
        bin: &str,
        completer: &str,
        buf: &mut dyn Write,
    ) -> Result<(), Error> {
        env::Zsh.write_registration(var, name, bin, completer, buf)?;
        buf.write_all(SCRIPT.replace("NAME", name).replace("BIN", bin).as_bytes())
    }

    fn write_complete(
        &self,
        cmd: &mut Command,
        args: Vec<OsString>,
        current_dir: Option<&Path>,
        buf: &mut dyn Write,
    ) -> Result<(), Error> {
        env::Zsh.write_complete(cmd, args, current_dir, buf)
    }
}
