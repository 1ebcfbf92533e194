_baton() {
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
    done < <(BATON_COMPLETE=bash command baton -- "${COMP_WORDS[@]:0:COMP_CWORD+1}" "$2" 2>/dev/null)
    if [[ ${COMPREPLY-} == */ ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o bashdefault -o default -F _baton baton
