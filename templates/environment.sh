# Starts a program in the project's Python environment, which it has built where there is none: POSIX sh.
#
#     sh environment.sh FOLDER RUN_DIR PYTHON PROGRAM ARGUMENT...    RUN_DIR gets the list of packages
#     sh environment.sh FOLDER '' PYTHON                             only builds it
#     sh environment.sh FOLDER --download PYTHON                     fetches its packages into FOLDER/wheels instead
#     sh environment.sh FOLDER --python PYTHON                       says instead which wheels fit that Python
#
# FOLDER is the environment's place on the cluster. The laptop writes into it what it is made of (`about`,
# requirements.txt or environment.yml); all else is made here, in a folder for each Python:
#
#     current -> t-TOKEN      the environment, once it is whole
#     t-TOKEN/                one build: an environment cannot be moved, so it is built where it stays
#     t-TOKEN.packages        what is in it
#     t-TOKEN.builder, .beat  who builds it, and a number that grows while the builder lives
#     t-TOKEN.ended           why the build ended without an environment
#     turn-N -> t-TOKEN       who may build: a job takes a turn when the one before is over
#
# A link is made by one job only and has its text from the beginning, on NFS too. So there is no lock, and no clock
# that nodes would have to share.
# shellcheck shell=sh
set -u
folder=$1 run_dir=$2 python=$3
shift 3
own_umask=$(umask) child='' token='' place='' path='' out=/dev/null
readable=a-w,go=
umask 077
case $(ls -ld -- "$folder" 2>/dev/null) in ????r*) umask 027 && readable=a-w,o= ;; esac # the group may read it
scratch=${CLUSTERKIT_SCRATCH:-}
exec 3>&1
[ ! -e "$scratch/launched" ] || exec 3>&2 # somebody enters a running program: the output is theirs

say() { printf '[clusterkit] %s\n' "$*" >&3; }
about() { sed -n "s/^$1 //p" "$folder/about" 2>/dev/null; }
one_line() { tr '\n\t' '  ' | tr -d '\000-\037' | cut -c 1-400; }
name() { od -An -N6 -tx1 /dev/urandom | tr -d ' \n'; }

# give_up CAUSE WORDS: there is no environment, and so no program.
give_up() {
  set -- "the environment of $(about file) could not be built ($1): $2"
  say "$1"
  [ -z "$scratch" ] || printf '%s' "$1" >"$scratch/environment"
  exit 1
}

end() {
  if [ -n "$token" ]; then
    printf '%s\n%s\n' "$1" "$2" >"$place/$token.part" && mv -- "$place/$token.part" "$place/$token.ended"
  fi 2>/dev/null
}

# fail CAUSE WORDS: this build is over; those who wait for it take up the reason. A full disk has room again once
# the tree is gone.
fail() {
  end "$1" "$2"
  [ -z "$path" ] || erase "$path"
  [ -z "$token" ] || [ -e "$place/$token.ended" ] || end "$1" "$2"
  [ "$1" = interrupted ] || give_up "$1" "$2"
}

# size_of FOLDER: its bytes on the disk.
size_of() {
  kilobytes=$(du -sk -- "$1")
  echo $((${kilobytes%%[!0-9]*} * 1024))
}

erase() {
  [ ! -e "$1" ] || { [ -d "$1" ] && find "$1" -type d -exec chmod u+rwx {} +; } 2>/dev/null
  rm -rf -- "$1" 2>/dev/null # what cannot go now stays for `storage prune`
}

interrupt() {
  trap '' USR1 USR2 TERM INT
  [ -z "$child" ] || kill "$child" 2>/dev/null
  fail interrupted 'a signal ended its builder'
  exit 143
}
trap interrupt USR1 USR2 TERM INT

# run COMMAND...: with its output in the log, and in $out, where its reason is looked for.
run() {
  pipe=${TMPDIR:-/tmp}/.environment-$$
  rm -f -- "$pipe"
  mkfifo -- "$pipe" || fail other "cannot write to ${TMPDIR:-/tmp}"
  tee -a "$out" <"$pipe" >&3 &
  tee=$!
  (
    unset PYTHONPATH
    export PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_PROGRESS_BAR=off PIP_USER=0
    export PYTHONUNBUFFERED=1 CONDA_ALWAYS_YES=true
    exec "$@"
  ) </dev/null >"$pipe" 2>&1 3>&- &
  child=$!
  [ -z "$token" ] || echo "$child" >"$place/$token.tool"
  wait "$child"
  status=$?
  child=''
  wait "$tee"
  rm -f -- "$pipe"
  [ "$status" -eq 0 ] || { reason && fail "$cause" "$words"; }
}

# reason: the surest cause that the output of a tool shows, and the line that shows it.
reason() {
  while read -r cause words; do
    words=$(grep -E -e "$words" "$out" | tail -n 1 | one_line)
    [ -z "$words" ] || return 0
  done <<'END'
disk No space left on device|[Dd]isk quota exceeded
hash DO NOT MATCH THE HASHES|Hashes are required
network NewConnectionError|ConnectTimeout|ReadTimeout|ConnectionError|ProxyError|CondaHTTPError|[Cc]ould not resolve host
network Temporary failure in name resolution|Network is unreachable|[Cc]onnection refused
python requires a different Python|is not a supported wheel on this platform
packages ResolutionImpossible|[Cc]onflicting dependencies|No matching distribution|Could not find a version
packages Invalid requirement|ResolvePackageNotFound|PackagesNotFound|Unsatisfiable
compile [Ff]ailed (building|to build)|subprocess-exited-with-error|metadata-generation-failed
END
  for file in "$out.full" "${TMPDIR:-/tmp}/.environment-$$"; do # the tool's own words may not have found room
    if ! printf '%65536s' '' >"$file"; then cause=disk words="cannot write to ${file%/*}"; fi
    rm -f -- "$file"
  done 2>/dev/null
  [ "$cause" != disk ] || return 0
  cause=other words=$(grep -E -e '^ *(ERROR|[Ee]rror|critical)' "$out" | tail -n 1 | one_line)
  words=${words:-$(tail -n 1 "$out" | one_line)}
}

# install: makes the environment in $path, and $place/$token.packages.
install() {
  if [ -f "$folder/environment.yml" ]; then
    for tool in micromamba mamba conda none; do ! command -v "$tool" >/dev/null || break; done
    case $tool in
      none) fail conda 'none of micromamba, mamba and conda is on PATH' ;;
      micromamba) run micromamba create --yes --prefix "$path" --file "$folder/environment.yml" ;;
      *) run "$tool" env create --prefix "$path" --file "$folder/environment.yml" ;;
    esac
    for file in "$path"/conda-meta/*-*-*.json; do printf '%s\n' "${file##*/}"; done |
      sed 's/\(.*\)-\([^-]*\)-[^-]*$/\1==\2/' >"$place/$token.packages"
    return
  fi
  has_venv
  set -- -m venv --without-pip
  [ "$(about on_image)" != yes ] || set -- "$@" --system-site-packages
  run "$python" "$@" "$path"
  [ "$(about on_image)" != yes ] || run "$python" -c "$inherit" "$path" # from an image's own virtual environment
  find_pip
  elsewhere=$(PYTHONPATH='' "$pip" -m pip config list 2>/dev/null | grep -E -m 1 '[.](target|prefix|root|dry.run)=')
  [ -z "$elsewhere" ] || fail other "pip is configured to install elsewhere: ${elsewhere%%=*}"
  with_pip "$path" install
  run "$path/bin/python" -c "$list" "$place/$token.packages"
}

has_venv() {
  PYTHONPATH='' "$python" -c 'import venv' 2>/dev/null || fail venv "$python has no module venv, or does not start"
}

# find_pip: a new pip of this Python installs into other environments; else the environment gets one of its own.
find_pip() {
  new='import sys, pip; sys.exit(tuple(map(int, pip.__version__.split(".")[:2])) < (22, 3))'
  pip=$python
  if ! PYTHONPATH='' "$python" -c "$new" 2>/dev/null; then
    PYTHONPATH='' "$python" -c 'import ensurepip' 2>/dev/null || fail venv "$python has neither pip 22.3 nor ensurepip"
    run "$path/bin/python" -m ensurepip
    pip=$path/bin/python
  fi
  wanted=$(about python)
  [ -z "$wanted" ] || PYTHONPATH='' "$pip" -c "$suits" "$wanted" 2>/dev/null ||
    fail python "the project needs Python $wanted, and $python is $("$python" -c 'import platform; print(platform.python_version())')"
}

run_pip() {
  if [ "$pip" = "$python" ]; then
    run "$python" -m pip --python "$path/bin/python" "$@"
  else
    run "$pip" -m pip "$@"
  fi
}

# with_pip FOLDER COMMAND...: for what the files ask for, from the folder of wheels alone, if there is one.
with_pip() {
  work=$1 from=$folder index=yes hashes='^$' options=$(about options)
  shift
  if [ -d "$folder/wheels" ]; then
    for file in "$folder"/wheels/*linux*_*.whl; do
      case $file in
        *'*'* | *-any.whl | *"_$(uname -m).whl") ;;
        *) fail packages "${file##*/} was fetched for others than this $(uname -m): set packages = \"node\" of the cluster" ;;
      esac
    done
    from=$work index=no
    # what was made of sources has no hash of the lock; the sources were compared with it then
    [ ! -f "$folder/wheels/.checked" ] || hashes=' --hash=[^ ]*' options=${options%--require-hashes}
    for file in "$folder"/*.txt; do
      [ ! -f "$file" ] || grep -Ev -e "$indexes" "$file" | sed "s/$hashes//g" >"$from/${file##*/}"
    done
  fi
  # shellcheck disable=SC2086  # options of ours, without blanks
  [ ! -f "$from/requirements.txt" ] || all_with_pip requirements "$@" $options
  [ ! -f "$from/unhashed.txt" ] || all_with_pip unhashed "$@" --no-deps
}
indexes='^ *(-i|-f|--(index-url|extra-index-url|find-links|trusted-host))'

# all_with_pip FILE COMMAND...
all_with_pip() {
  named=$from/$1.txt
  shift
  set -- "$@" -r "$named"
  [ ! -f "$from/constraints.txt" ] || set -- "$@" -c "$from/constraints.txt"
  [ "$index" = yes ] || set -- "$@" --no-index --find-links "$folder/wheels"
  run_pip "$@"
}

suits='import platform, sys
from pip._vendor.packaging.specifiers import SpecifierSet
sys.exit(not SpecifierSet(sys.argv[1]).contains(platform.python_version(), prereleases=True))'
list='import sys
from importlib.metadata import distributions
names = {(one.metadata["Name"] or "").lower(): one.version for one in reversed(list(distributions()))}
with open(sys.argv[1], "w") as file:
    file.writelines(name + "==" + names[name] + "\n" for name in sorted(filter(None, names)))'
inherit='import os, site, sys
packages = os.path.join(sys.argv[1], "lib", "python%d.%d" % sys.version_info[:2], "site-packages")
if sys.prefix != sys.base_prefix:
    with open(os.path.join(packages, "image.pth"), "w") as file:
        file.writelines("import site; site.addsitedir(%r)\n" % folder for folder in site.getsitepackages())'
tag='import hashlib, os, platform, sys
base = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
what = [base]
if sys.argv[1] == "yes": # another image may come under the same name, with other packages
    folders = [folder for folder in sys.path if os.path.isdir(folder)]
    what += sorted(name for folder in folders for name in os.listdir(folder) if name.endswith("-info"))
own = hashlib.sha256(os.fsencode("\0".join(what))).hexdigest()[:6]
print("%s-%s-%s" % (sys.implementation.cache_tag, platform.machine(), own))'
fits='import platform, sys
libc = [word or "none" for word in platform.libc_ver()]
print(platform.python_version(), platform.machine(), platform.system(), *libc)'

[ -f "$folder/about" ] || give_up other "$folder is gone: submit again"

# --- the other uses
if [ "$run_dir" = --python ]; then
  exec "$python" -c "$fits"
elif [ "$run_dir" = --download ]; then
  [ ! -d "$folder/wheels" ] || exit 0
  work=$folder/.$(name).part path=$work/venv out=$work/out
  mkdir -p -- "$work" || exit 1
  trap 'erase "$work"' EXIT
  has_venv
  run "$python" -m venv --without-pip "$path"
  find_pip
  mkdir -p -- "$work/wheels" || exit 1
  with_pip "$work" wheel --wheel-dir "$work/wheels" # of sources, too: their builds fetch what they need
  : >"$work/wheels/.checked" && size_of "$work/wheels" >"$work/bytes" && mv -- "$work/bytes" "$folder/wheels.bytes" &&
    mv -- "$work/wheels" "$folder/wheels"
  exit
fi

# --- who lives
machine="$(cat /proc/sys/kernel/random/boot_id 2>/dev/null) $(readlink /proc/self/ns/pid 2>/dev/null) $(uname -n)"

# started PID: when it was; nothing for a process that is dead, whether or not its parent has noticed.
started() {
  if [ ! -e /proc/self/stat ]; then
    ! kill -0 "$1" 2>/dev/null || echo yes
    return
  fi
  # shellcheck disable=SC2046  # fields
  set -- $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null)
  case ${1:-X} in [ZX]) ;; *) echo "${20}" ;; esac
}

# is_dead TOKEN: its process is gone from this machine, or nothing was heard of it for longer than NFS shows old times.
watched='' beat='' silent=0 who='another job'
is_dead() {
  [ "$watched" = "$1" ] || { watched=$1 beat='' silent=0; }
  { read -r who; read -r where; read -r pid; read -r since; } <"$place/$1.builder" || where=''
  if [ "$where" = "$machine" ]; then
    [ "$(started "$pid")" != "$since" ]
    return
  fi
  now=$(cat "$place/$1.beat" 2>/dev/null)
  [ "$now" = "$beat" ] || { beat=$now silent=0; }
  silent=$((silent + 1))
  [ "$silent" -gt "${CLUSTERKIT_PATIENCE:-150}" ]
} 2>/dev/null

# --- the environment, or the turn to build it
current() {
  whole=$(readlink "$place/current" 2>/dev/null) && whole=$place/$whole &&
    { [ -x "$whole/bin/python" ] || [ -d "$whole/conda-meta" ]; } || whole=''
  [ -n "$whole" ]
}

last_turn() {
  ls "$place" >/dev/null # NFS looks again
  turn=0 owner=''
  while [ -L "$place/turn-$((turn + 1))" ]; do turn=$((turn + 1)); done
  [ "$turn" -eq 0 ] || owner=$(readlink "$place/turn-$turn")
}

# take_turn N: fails where somebody was quicker.
take_turn() {
  token=t-$(name)
  who=${run_dir##*/} began=$(started $$)
  printf '%s\n' "${who:-deploy} on $(uname -n)" "$machine" $$ "$began" >"$place/$token.builder" || give_up disk "cannot write to $place"
  ln -sn "$token" "$place/turn-$1" 2>/dev/null
  # NFS may say that there is one already when a first answer was lost
  [ "$(readlink "$place/turn-$1")" != "$token" ] || return 0
  rm -f -- "$place/$token.builder"
  token=''
  [ -L "$place/turn-$1" ] || give_up disk "cannot make a symbolic link in $place"
  return 1
}

# sweep: removes what the builders of earlier turns have left, and nothing of later ones, should this job have slept
# that long; no half of a tree is ever seen under its name.
sweep() {
  current
  until [ "$turn" -eq 0 ]; do
    base=$(readlink "$place/turn-$turn") turn=$((turn - 1))
    if [ "$place/$base" = "$whole" ]; then continue; fi
    [ ! -e "$place/$base" ] || mv -- "$place/$base" "$place/$base.gone" 2>/dev/null
    for left in "$place/$base" "$place/$base".*; do
      [ ! -e "$left" ] || erase "$left"
    done
  done
}

# beat_on: shows that the builder lives, and ends what it has started if it was killed.
beat_on() {
  n=0
  while [ "$(started $$)" = "$began" ]; do
    n=$((n + 1))
    echo "$n" >"$place/$token.beat"
    touch -c "$folder" # and keeps `storage prune` off it
    sleep 3
  done
  kill "$(cat "$place/$token.tool")" && sleep 1
  erase "$path"
}

build() {
  path=$place/$token out=$place/$token.out begin=$(date +%s)
  (
    exec >/dev/null 2>&1 3>&- # or it would keep the log's pipe open
    beat_on
  ) &
  beater=$!
  say "it builds the environment of $(about file), once for all runs with the same one"
  sweep
  install
  find "$path" -type d -exec chmod "$readable" {} +
  find "$path" -type f -links 1 -exec chmod "$readable" {} + # what conda has linked is conda's
  bytes=$(size_of "$path")
  { echo "$bytes" >"$place.part" && mv -- "$place.part" "$place.bytes"; } || fail disk "cannot write to $folder"
  rm -f -- "$out" "$place/$token.tool"
  kill "$beater" 2>/dev/null
  wait "$beater" 2>/dev/null
  last_turn
  if [ "$owner" != "$token" ]; then
    fail interrupted 'its builder gave no sign of life for too long'
    return
  fi
  current || rm -f -- "$place/current"
  ln -sn "$token" "$place/current" || current || fail disk "cannot write to $place"
  current || fail other "what was built has no Python that starts" # or it would wait for itself
  say "the environment is built: $(($(wc -l <"$place/$token.packages"))) packages, $bytes bytes, $(($(date +%s) - begin)) s"
  token=''
}

if [ -f "$folder/environment.yml" ]; then
  place=$folder/conda-$(uname -m)
else
  place=$(PYTHONPATH='' "$python" -s -c "$tag" "$(about on_image)") || give_up venv "$python does not start"
  place=$folder/$place
fi
mkdir -p -- "$place" || give_up disk "cannot write to $folder"
waited='' seconds=0
until current; do
  last_turn
  cause=''
  [ -z "$owner" ] || [ ! -f "$place/$owner.ended" ] || { read -r cause; read -r words; } <"$place/$owner.ended"
  if [ "$waited" = "$owner" ] && [ -n "$owner" ]; then
    case $cause in '' | interrupted) ;; *) give_up "$cause" "$words" ;; esac # a second try at once would end alike
  fi
  if [ -z "$owner" ] || [ -n "$cause" ] || is_dead "$owner"; then
    if ! current && take_turn $((turn + 1)); then
      [ -z "$owner" ] || [ -n "$cause" ] || say 'whoever built the environment is gone: it is built anew'
      build
    fi
    continue
  fi
  [ $((seconds % 60)) -ne 0 ] || say "it waits for the environment, which $who builds: $seconds s"
  waited=$owner seconds=$((seconds + 1))
  sleep 1 &
  wait $!
done
[ $# -gt 0 ] || exit 0

# --- the program
list=$run_dir/environment.txt
if [ ! -e "$list" ] && cp -- "$whole.packages" "$list.part" 2>/dev/null && mv -- "$list.part" "$list"; then
  say "its environment has $(($(wc -l <"$list"))) packages; environment.txt names them"
fi
umask "$own_umask"
export PATH="$whole/bin:$PATH"
if [ -d "$whole/conda-meta" ]; then export CONDA_PREFIX="$whole"; else export VIRTUAL_ENV="$whole"; fi
unset PYTHONHOME
trap - USR1 USR2 TERM INT
exec 3>&-
exec "$@"
