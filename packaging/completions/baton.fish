function __baton_candidates
    set -l words (commandline --current-process --tokenize --cut-at-cursor)
    set -l token (commandline --current-token)
    if set -l separator (contains --index -- -- $words)
        set --erase words[1..$separator]
        complete --do-complete (string join ' ' -- (string escape -- $words) "$token")
    else
        BATON_COMPLETE=fish baton -- $words $token 2>/dev/null
    end
end
complete --keep-order --exclusive --command baton --arguments "(__baton_candidates)"
