# Completion of clusterkit for bash 4.4 or newer; older ones complete too, in alphabetical order.
# Made by `clusterkit completion bash`.
_clusterkit() {
    local answer kind line current="${COMP_LINE:0:COMP_POINT}"
    COMPREPLY=()
    answer=$(_CLUSTERKIT_LINE="$current" _CLUSTERKIT_SHELL=bash "$1" 2>/dev/null) || return 0
    kind=${answer%%$'\n'*}
    if [ "$kind" = files ]; then
        compopt -o default 2>/dev/null ||
            while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$2")
        return 0
    fi
    while IFS= read -r line; do
        [ -n "$line" ] && COMPREPLY+=("${line%%$'\t'*}")
    done <<<"${answer#"$kind"}"
    compopt -o nosort 2>/dev/null
    [ "$kind" = beginnings ] && compopt -o nospace 2>/dev/null
    return 0
}
complete -F _clusterkit clusterkit
