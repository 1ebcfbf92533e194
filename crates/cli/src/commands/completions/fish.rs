//! Completion of fish: clap's, but behind `--` the shell completes a command of its own.

use std::ffi::OsString;
use std::io::{Error, Write};
use std::path::Path;

use clap::Command;
use clap_complete::env::{self, EnvCompleter};

/// The script. Fish would show what completion writes on standard error in the middle of the line.
const SCRIPT: &str = r#"function __baton_candidates
    set -l words (commandline --current-process --tokenize --cut-at-cursor)
    set -l token (commandline --current-token)
    if set -l separator (contains --index -- -- $words)
        set --erase words[1..$separator]
        complete --do-complete (string join ' ' -- (string escape -- $words) "$token")
    else
        VARIABLE=fish COMPLETER -- $words $token 2>/dev/null
    end
end
complete --keep-order --exclusive --command BIN --arguments "(__baton_candidates)"
"#;

/// The adapter of fish.
pub(super) struct Fish;

impl EnvCompleter for Fish {
    fn name(&self) -> &'static str {
        env::Fish.name()
    }

    fn is(&self, name: &str) -> bool {
        env::Fish.is(name)
    }

    fn write_registration(
        &self,
        var: &str,
        _: &str,
        bin: &str,
        completer: &str,
        buf: &mut dyn Write,
    ) -> Result<(), Error> {
        let script = SCRIPT
            .replace("VARIABLE", var)
            .replace("COMPLETER", completer);
        buf.write_all(script.replace("BIN", bin).as_bytes())
    }

    fn write_complete(
        &self,
        cmd: &mut Command,
        args: Vec<OsString>,
        current_dir: Option<&Path>,
        buf: &mut dyn Write,
    ) -> Result<(), Error> {
        env::Fish.write_complete(cmd, args, current_dir, buf)
    }
}
