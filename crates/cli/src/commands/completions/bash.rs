//! Completion of bash, whose words end at colons and equals signs, too: `--servers=h:1` is five.

use std::ffi::OsString;
use std::io::{Error, Write};
use std::path::Path;

use clap::Command;
use clap_complete::{engine, env};

use super::adapter::{Adapter, Script};
use super::is_word;

/// The script: it passes the words up to the cursor, and the part that bash replaces. Behind `--`
/// the package bash-completion completes a command of its own, where it is loaded.
const SCRIPT: &str = r#"_baton() {
    local candidate word
    COMPREPLY=()
    for ((word = 1; word < COMP_CWORD; word++)); do
        if [[ ${COMP_WORDS[word]} == -- ]] && declare -F _command_offset >/dev/null; then
            _command_offset $((word + 1))
            return
        fi
    done
    while IFS= read -r candidate; do
        COMPREPLY+=("$candidate")
    done < <(VARIABLE=bash command COMPLETER -- "${COMP_WORDS[@]:0:COMP_CWORD+1}" "$2" 2>/dev/null)
    if [[ ${COMPREPLY-} == */ ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o bashdefault -o default -F _baton BIN
"#;

/// The adapter of bash.
pub(super) const BASH: Adapter = Adapter {
    clap: &env::Bash,
    script: Script::Own(SCRIPT),
    candidates: Some(write_candidates),
};

fn write_candidates(
    cmd: &mut Command,
    mut args: Vec<OsString>,
    current_dir: Option<&Path>,
    buf: &mut dyn Write,
) -> Result<(), Error> {
    let replaced = args.pop().unwrap_or_default();
    let words = joined(args.iter().map(|word| word.to_string_lossy().into_owned()));
    let current = words.last().map_or(0, String::len);
    let kept = current.saturating_sub(replaced.len());
    let last = words.len().saturating_sub(1);
    let words = words.into_iter().map(OsString::from).collect();
    for candidate in engine::complete(cmd, words, last, current_dir)? {
        let value = candidate
            .get_value()
            .to_str()
            .filter(|value| is_word(value));
        if let Some(rest) = value.and_then(|value| value.get(kept..)) {
            writeln!(buf, "{rest}")?;
        }
    }
    Ok(())
}

/// The words as other shells have them.
pub(super) fn joined(words: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    for word in words {
        match joined.last_mut() {
            Some(last) if word.starts_with([':', '=']) || last.ends_with([':', '=']) => {
                last.push_str(&word);
            }
            _ => joined.push(word),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_servers_is_one_word() {
        let words = [
            "baton",
            "--servers",
            "=",
            "h",
            ":",
            "1",
            "get",
            "/a",
            ":",
            "",
        ];
        let joined = joined(words.map(str::to_owned));
        assert_eq!(joined, ["baton", "--servers=h:1", "get", "/a:"]);
    }
}
