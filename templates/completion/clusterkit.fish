# Completion of clusterkit for fish. Made by `clusterkit completion fish`.
function __clusterkit_complete
    set -l program (commandline -opc)[1]
    set -l answer (_CLUSTERKIT_LINE=(commandline -cp | string collect) _CLUSTERKIT_SHELL=fish $program 2>/dev/null)
    if test "$answer[1]" = files
        __fish_complete_path (commandline -ct | string replace -r '^-[^=]*=' '')
    else
        printf '%s\n' $answer[2..]
    end
end
complete --command clusterkit --no-files --keep-order --arguments '(__clusterkit_complete)'
