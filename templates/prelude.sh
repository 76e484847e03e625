# The site's own shell lines, `prelude` of its settings, run in a shell of their own. What comes back is data that is
# never evaluated: no variable, function, trap or option of theirs reaches what this script removes, records or decides.
# It is started with `bash -p`, so that nothing of the submitting shell does either; the lines have that shell's
# functions and BASH_ENV. Bash 3.2 or newer.
#
# prelude_lines: the lines.
# run_prelude SCRATCH/FOLDER [NAME...]: runs them, with a new folder for files, which it removes, and with
# CLUSTERKIT_SCRATCH and TMPDIR, as in a run. Where they end their shell early, it fails, and prelude_end says so. Sets
#   environment    NAME=VALUE of what they leave exported, without the NAMEs; this script's CLUSTERKIT_* win
#   prelude_fails  `STATUS COMMAND` of each of their commands that failed; `hidden REASON` where that cannot be told
#   prelude_trap   the trap that they leave for their shell's end; it does not run
#   prelude_umask, prelude_limits (`S n 4096`: the soft limit that `ulimit -n` shows), prelude_env, prelude_strange (names
#                  in this script's environment that are no variable's, for env)
# become COMMAND...: turns this (sub)shell into a command with that environment, umask and limits.
# passed_value NAME: $value is that of a variable in the environment; fails where it has none.
# on_path PROGRAM: whether the environment's PATH has a program.
# told_fault FAULT: one of prelude_fails in words.
export -n SHELLOPTS BASHOPTS # this shell's own options are for nobody else

# shellcheck disable=SC2034  # some scripts have no use for all of it
run_prelude() {
  local folder=$1 here bash env note status line own words name hidden='' kind=S whole=''
  local variable='^[A-Za-z_][A-Za-z0-9_]*$' limit='-([A-Za-z])\)[[:space:]]+([0-9]+|unlimited)$'
  shift
  environment=() prelude_fails=() prelude_limits=() prelude_strange=() prelude_trap='' prelude_umask=077
  prelude_env=$(type -P env)
  prelude_end="the program's environment cannot be written to $folder: the line above says why"
  for name; do hidden+=" -u $name"; done
  printf -v here %q "$folder"
  printf -v bash %q "$BASH"
  printf -v env %q "$prelude_env"
  # Commands in functions and in files that are sourced are not the lines' own.
  note='case ${#BASH_SOURCE[@]}$BASH_SUBSHELL in 10) builtin printf "%s %s %s\n" "$?" "$LINENO" '
  note+='"${BASH_COMMAND%%$'"'\\n'"'*}" >>'"$here/fails ;; esac" # one line, or LINENO would count it
  printf -v note %q "$note"
  # The last line works whatever the lines have defined: paths name programs, and in POSIX mode special builtins come
  # before functions. After `exec` there is no shell whose trap could run.
  mkdir -- "$folder" && printf '%s\n' "umask 077; trap $note ERR; ${prelude_lines[0]-}" \
    ${prelude_lines[1]+"${prelude_lines[@]:1}"} '' "$env$hidden -0 >|$here/environment && POSIXLY_CORRECT=y && \
\\trap -p EXIT >|$here/trap && \\trap -p ERR >|$here/noted && \
\\exec $env -i $bash -c 'umask; ulimit -S -a; echo hard; ulimit -H -a; echo end' >|$here/limits" \
    >"$folder/prelude" && { umask; ulimit -S -a; echo hard; ulimit -H -a; echo end; } >"$folder/own" &&
    env -0 | sed -z 's/=.*//' >"$folder/strange" || return # no values
  while IFS= read -r -d '' line; do
    [[ $line =~ $variable ]] || prelude_strange+=(-u "$line")
  done <"$folder/strange"
  CLUSTERKIT_SCRATCH=${folder%/*} TMPDIR=${TMPDIR-${folder%/*}} "$BASH" "$folder/prelude" </dev/null 8>&- 9>&-
  status=$?
  words=$'\n'
  [ ! -f "$folder/fails" ] || while read -r name own line; do
    # Of a function or a file, BASH_COMMAND is the last command in it; before 4.4, LINENO is in there, too.
    if [[ $own =~ ^[1-9][0-9]{0,5}$ && $BASH_VERSION != 4.[0-3]* && $BASH_VERSION != 3* ]]; then
      [ "$own" -le "${#prelude_lines[@]}" ] || continue
      own=${prelude_lines[own - 1]}
      case $own in *"$line"*) ;; *) line=$own ;; esac
    fi
    case $words in *$'\n'"$name $line"$'\n'*) continue ;; esac # a loop says it once
    words+=$name\ $line$'\n'
    prelude_fails+=("$name $line")
  done <"$folder/fails"
  if [ -f "$folder/limits" ]; then
    {
      read -r prelude_umask && read -r own <&3
      while IFS= read -r line; do # shells of two kinds may say it differently; then it is set again to what it is
        IFS= read -r own <&3
        case $line in hard) kind=H ;; end) whole=yes ;; "$own") continue ;; esac
        [[ ! $line =~ $limit ]] || prelude_limits+=("$kind ${BASH_REMATCH[1]} ${BASH_REMATCH[2]}")
      done
    } <"$folder/limits" 3<"$folder/own"
    [[ $prelude_umask =~ ^[0-7]+$ ]] || prelude_umask=077
  fi
  if [ -z "$whole" ] && { [ ! -d "$folder" ] || [ -e "$folder/environment" ]; } && [ "$status" -le 128 ]; then
    rm -rf -- "$folder" # a full disk has room again
    return 1
  fi
  if [ -z "$whole" ]; then
    words="with status $status"
    [ "$status" -le 128 ] || ! name=$(kill -l $((status - 128)) 2>/dev/null) || words="by SIG$name"
    [ "${#prelude_fails[@]}" -eq 0 ] || words+=", after $(told_fault "${prelude_fails[${#prelude_fails[@]} - 1]}")"
    prelude_end="the prelude ended its shell $words: the program was not started"
    rm -rf -- "$folder"
    return 1
  fi
  prelude_end=''
  [[ $(<"$folder/noted") == *'/fails ;; esac'* ]] ||
    prelude_fails+=('hidden its own trap for ERR replaces the one that notices commands that fail')
  IFS= read -r prelude_trap <"$folder/trap"
  case $prelude_trap in 'trap -- - '* | "trap -- '' "*) prelude_trap='' ;; esac
  while IFS= read -r -d '' line; do
    name=${line%%=*}
    case $line in
      _=* | PWD=* | OLDPWD=* | =*) continue ;; # of the shell that made it
      CLUSTERKIT_VERIFY_IMAGE=*) ;;
      CLUSTERKIT_*=*) [[ $name =~ $variable ]] && [ -n "${!name+set}" ] && continue ;;
      *=*) ;;
      *) continue ;;
    esac
    environment+=("$line")
  done <"$folder/environment"
  environment+=("PWD=$PWD")
  for name in "${!CLUSTERKIT_@}"; do
    [ "$name" = CLUSTERKIT_VERIFY_IMAGE ] || environment+=("$name=${!name}")
  done
  rm -rf -- "$folder"
}

# shellcheck disable=SC2163  # the names are in the variables
become() {
  local limit round
  set +o posix # in which some limits have another unit, and a refused `export` ends the shell
  for round in S H S; do # neither may pass the other on its way
    for limit in ${prelude_limits[@]+"${prelude_limits[@]}"}; do
      [ "${limit:0:1}" != "$round" ] || ulimit "-$round" "-${limit:2:1}" "${limit:4}" 2>/dev/null
    done
  done
  umask "$prelude_umask"
  # Values must not be arguments of `env`, which others see; only what no variable of bash can hold is (functions).
  prelude_odd=("$prelude_env" ${prelude_strange[@]+"${prelude_strange[@]}"} --)
  for round in $(compgen -e); do export -n "$round"; done
  set -- "${environment[@]}" '' "$@" # from here on, any variable may be theirs
  while [ -n "$1" ]; do
    case $1 in
      POSIXLY_CORRECT=* | prelude_odd=*) prelude_odd+=("$1") ;;
      *) unset -v -- "${1%%=*}" 2>/dev/null; export -- "$1" 2>/dev/null || prelude_odd+=("$1") ;;
    esac
    shift
  done
  shift
  [ "${#prelude_odd[@]}" -gt 2 ] || exec -- "$@"
  case $1 in *=*) set -- nice -n 0 "$@" ;; esac # env would take it for a variable
  exec -- "${prelude_odd[@]}" "$@"
}

passed_value() {
  local pair there=1
  value=''
  for pair in "${environment[@]}"; do
    case $pair in "$1="*) value=${pair#*=} there=0 ;; esac
  done
  return "$there"
}

on_path() {
  local value
  passed_value PATH
  (PATH=$value && type -P -- "$1") >/dev/null
}

# shellcheck disable=SC2016  # no command substitution
told_fault() {
  case $1 in
    hidden\ *) printf %s "${1#* }" ;;
    *) printf '`%s` ended with status %s' "${1#* }" "${1%% *}" ;;
  esac
}
