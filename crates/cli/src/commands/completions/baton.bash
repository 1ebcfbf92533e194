# Completion of baton for bash. A Tab asks the command, which asks servers that run.
_baton() {
    local action=names candidate at
    COMPREPLY=()
    {
        IFS= read -r action
        while IFS= read -r candidate; do
            COMPREPLY+=("$candidate")
        done
    } < <(printf '%s' "${COMP_LINE:0:COMP_POINT}" | command baton complete bash "$COMP_WORDBREAKS" 2>/dev/null)
    case $action in
        files) ;;
        folders) compopt -o dirnames +o default +o bashdefault 2>/dev/null ;;
        commands)
            for ((at = 1; at < COMP_CWORD; at++)); do
                [[ ${COMP_WORDS[at]} == -- ]] && break
            done
            if ((at < COMP_CWORD)); then
                if declare -F _comp_command_offset >/dev/null; then
                    _comp_command_offset $((at + 1))
                elif declare -F _command_offset >/dev/null; then
                    _command_offset $((at + 1))
                elif ((at + 1 == COMP_CWORD)); then
                    compopt -o filenames 2>/dev/null
                    while IFS= read -r candidate; do
                        COMPREPLY+=("$candidate")
                    done < <(compgen -c -- "$2" | sort -u)
                fi
            fi
            ;;
        open) compopt -o nospace +o default +o bashdefault 2>/dev/null ;;
        *) compopt +o default +o bashdefault 2>/dev/null ;;
    esac
}
complete -o bashdefault -o default -F _baton baton
