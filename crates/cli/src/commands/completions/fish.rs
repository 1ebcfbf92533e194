//! Completion of fish: clap's, but behind `--` the shell completes a command of its own.

use clap_complete::env;

use super::adapter::{Adapter, Script};

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
pub(super) const FISH: Adapter = Adapter {
    clap: &env::Fish,
    script: Script::Own(SCRIPT),
    candidates: None,
};
