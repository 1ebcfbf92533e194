complete --keep-order --exclusive --command baton --arguments "(BATON_COMPLETE=fish baton -- (commandline --current-process --tokenize --cut-at-cursor) (commandline --current-token) 2>/dev/null)"
