//! Completion of zsh: clap's, but behind `--` the shell completes a command of its own.

use clap_complete::env;

use super::adapter::{Adapter, Script};

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
pub(super) const ZSH: Adapter = Adapter {
    clap: &env::Zsh,
    script: Script::Added(SCRIPT),
    candidates: None,
};
