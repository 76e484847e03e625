# Removes files of runs whose SHA-256 is that of the local copy. CLEANED is set before; $1 is the folder of all runs,
# $2 a file that now exists in the results folder; standard input has three lines per order (`orders` in
# results/cleaning.py). A run is marked as cleaned before its files are removed; on a full disk, one file is removed
# first to make space for the mark.
cd -- "$1" || exit 3
test ! -e "$2" || { echo same; exit 4; }
umask 077
LC_ALL=C; export LC_ALL
top=$(pwd -P)
# note RUN TEXT: writes the mark. locked TEXT: why nothing more of this run goes.
note() {
  said=$({ printf '%s\n' "$2" | cat >"$1/.$CLEANED.tmp" &&
    mv -f "$1/.$CLEANED.tmp" "$1/$CLEANED"; } 2>&1) && return
  rm -f "$1/.$CLEANED.tmp"
  return 1
}
unmarked() { test -z "$mark" || echo "unmarked $run"; }
locked() { skip=1; echo "locked $run $(printf '%s' "$1" | tail -n 1)"; }
if command -v sha256sum >/dev/null; then sum() { sha256sum; }; else sum() { shasum -a 256; }; fi
run= skip= mark=
while IFS= read -r kind && IFS= read -r word && IFS= read -r path; do
  case $kind in
  run)
    unmarked
    run=$path skip= mark=
    test ! -e "$path/submissions/$word" || { skip=1; echo "again $path"; } ;;
  mark)
    test -n "$skip" || note "$run" "$word" || case $said in
      *[Nn]'o space left'* | *'uota exceeded'*) mark=$word ;;
      *) locked "$said" ;;
    esac ;;
  *)
    test -z "$skip" || continue
    test -f "$path" && test ! -L "$path" || continue
    # what lies behind a linked folder may be the copy at home itself
    test "$(cd -P -- "${path%/*}" 2>/dev/null && pwd -P)" = "${top%/}/${path%/*}" || continue
    found=$(sum <"$path")
    test "${found%% *}" = "$word" || continue
    said=$(rm -f -- "$path" 2>&1) || { locked "$said"; continue; }
    if test -n "$mark" && note "$run" "$mark"; then mark=; fi
    folder=${path%/*}
    while test "$folder" != "$run" && rmdir -- "$folder" 2>/dev/null; do folder=${folder%/*}; done
    echo "removed $kind" ;;  # last: it ends the script where nobody is left to read it
  esac
done
unmarked
echo end
