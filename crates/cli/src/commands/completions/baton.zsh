#compdef baton
# Completion of baton for zsh. A Tab asks the command, which asks servers that run.
_baton() {
    local action=names candidate meaning at
    local -a candidates shown spacing
    {
        IFS= read -r action
        while IFS=$'\t' read -r candidate meaning; do
            candidates+=("$candidate")
            shown+=("$candidate${meaning:+  -- $meaning}")
        done
    } < <(printf '%s\0' "${(@)words[1,CURRENT-1]}" "${compstate[quote]}$PREFIX" |
        command baton complete zsh 2>/dev/null)
    case $action in
        files) _files ;;
        folders) _files -/ ;;
        commands)
            at=${words[(i)--]}
            shift $at words
            (( CURRENT -= at ))
            _normal
            ;;
        *)
            [[ $action == open ]] && spacing=(-S '')
            if [[ "${shown[*]}" == "${candidates[*]}" ]]; then
                compadd "${spacing[@]}" -a candidates
            else
                compadd "${spacing[@]}" -l -d shown -a candidates
            fi
            ;;
    esac
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _baton "$@"
else
    compdef _baton baton
fi
