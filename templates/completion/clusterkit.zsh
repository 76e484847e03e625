#compdef clusterkit
# Completion of clusterkit for zsh. Made by `clusterkit completion zsh`.
_clusterkit() {
    local answer kind line value
    local -a lines described space
    answer=$(_CLUSTERKIT_LINE="${(j: :)words[1,CURRENT]}" _CLUSTERKIT_SHELL=zsh ${(Q)~words[1]} 2>/dev/null) || return 1
    lines=("${(@f)answer}")
    kind=$lines[1]
    [[ $words[CURRENT] == -*=* ]] && compset -P '*='
    if [[ $kind == files ]]; then
        _files
        return
    fi
    for line in "${(@)lines[2,-1]}"; do
        value=${line%%$'\t'*}
        if [[ $line == *$'\t'* ]]; then
            described+=("${value//:/\\:}:${line#*$'\t'}")
        else
            described+=("${value//:/\\:}")
        fi
    done
    [[ $kind == beginnings ]] && space=(-S '')
    (( $#described )) && _describe -V clusterkit described $space
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _clusterkit clusterkit
