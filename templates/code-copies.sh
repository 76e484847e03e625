# Counts or removes the code that ended runs still have in their working directories; needs GNU find, without
# which it finds nothing. WORK, WORK_LIST, PARTIAL_DIR and LONGEST_LIST are set before. $1 is `count` or `remove`, $2
# the folder of all runs, then NUMBER:RUN for each: a run with more submissions than that keeps its code.
what=$1
cd -- "$2" || exit 3
shift 2
find . -prune -printf '' 2>/dev/null || exit 0
umask 077
LC_ALL=C; export LC_ALL
copied() {
  {
    find "./$1/$WORK" ! -type d \( -readable -printf '%y+ %s %T@ %C@ %p//%l\0' \
    -o -printf '%y- %s %T@ %C@ %p//%l\0' \)
    listed "$1" | sort -zu
  } 2>/dev/null | sort -z | uniq -zd
}
listed() { find "./$1/$WORK_LIST" -type f -size -"$LONGEST_LIST"k -exec cat {} +; }
paths() { sed -z 's|^[^/]*|.|; s|//.*||'; }
interrupted() { find "./$1/$PARTIAL_DIR" ! -type d -printf 'f+ %s\0' 2>/dev/null; }
count() {
  { copied "$1"; interrupted "$1"; } | sed -z 's/^[^ ]* \([0-9]*\).*/\1/' | tr '\0' '\n' |
    awk '{ files += 1; bytes += $1 } END { printf "%d %.0f\n", files, bytes }'
}
# remove RUN: under the lock that all processes of an attempt hold (templates/alone.sh.j2). What cannot be
# removed keeps its list, and so stays out of the results.
remove() {
  test -f "$1/run.json" && exec 6<>"$1/run.json" || return
  flock -n 6 2>/dev/null || test $? -ne 1 || { echo "lives $1"; return; }
  : >"$1/$WORK_LIST.gone" || { echo "failed $1"; return; }
  copied "$1" | paths | xargs -0 -r rm -f --
  listed "$1" | paths | sed -z 's|/[^/]*$||' | sort -zru | xargs -0 -r rmdir -p --
  chmod -R u+rwX "$1/$PARTIAL_DIR" && rm -rf -- "$1/$PARTIAL_DIR"
  case $(count "$1") in '0 '*) rm -f -- "$1/$WORK_LIST" "$1/$WORK_LIST.gone" ;; esac
} 2>/dev/null
for word; do
  run=${word#*:} number=${word%%:*}
  test -d "$run" && test ! -L "$run" || continue
  test -e "$run/$WORK_LIST" || test -e "$run/$PARTIAL_DIR" || continue
  if test "$what" = remove; then
    if test -e "$run/submissions/$number"; then echo "again $run"; continue; fi
    (remove "$run")
  fi
  echo "code $run $(count "$run")"
done
