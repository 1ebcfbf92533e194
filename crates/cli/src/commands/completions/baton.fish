# Completion of baton for fish. A Tab asks the command, which asks servers that run.
function __baton_complete
    set -l answer (string join0 -- (commandline -opc) (commandline -ct) | command baton complete fish 2>/dev/null)
    switch "$answer[1]"
        case files
            __fish_complete_path (commandline -ct)
        case folders
            __fish_complete_directories (commandline -ct)
        case commands
            set -l words (commandline -opc)
            set -l dashes (contains -i -- -- $words)
            set -l command (string escape -- $words[(math $dashes + 1)..])
            complete -C (string join ' ' -- $command (commandline -ct))
        case open
            # No space follows one of several, and this is the way to have several.
            test (count $answer) -eq 2; and printf '%s/\n' $answer[2]
            printf '%s\n' $answer[2..]
        case names
            printf '%s\n' $answer[2..]
    end
end
complete -c baton -e
complete -c baton -f -a '(__baton_complete)'
