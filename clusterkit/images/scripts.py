"""The image store's scripts for a cluster: POSIX sh with only tail, head and sha256sum. Text only.

The store's folder contains, all private to the user:

    sha256-<digest>.sif             an image, whole, read-only
    sha256-<digest>.chunks          its chunk list
    .upload-<digest>.<token>/       one upload: `image`, `pack-<basis>`, `chunks`
    .damaged-sha256-<digest>.sif    an image that was found damaged; its next upload mends it

Every upload has its own folder, so that two of them never write to one file. An interrupted one is taken over
by renaming its folder, which only one process can do. An image's time is that of its last upload or
submission: `storage prune` keeps recent ones.
"""

from __future__ import annotations

MISMATCH = 93
"""The bytes on the cluster do not match the digest."""
TAKEN_OVER = 94
"""The upload's folder is gone."""
PUBLISHED = 95
"""The image has been published in the meantime."""
NOT_WRITABLE = 96
"""This user may not write to the images folder."""

_COMMON = """
size() { ls -lnd "$1" 2>/dev/null | { read -r _ _ _ _ bytes _; echo "$bytes"; }; }
young() { [ -n "$(find "$1" -mmin "-$2" 2>/dev/null | head -n 1)" ]; }
sum() { line=$(sha256sum) && echo "${line%% *}"; }
# Renaming a damaged image leaves it to whoever has it open.
set_aside() { mv -f "sha256-$1.sif" ".damaged-sha256-$1.sif" && rm -f "sha256-$1.chunks"; }
"""

PRESENT = (
    _COMMON
    + """
# $1 images folder, $2 digest, $3 bytes. Makes a present image young.
cd "$1" && [ "$(size "sha256-$2.sif")" = "$3" ] || exit 1
touch -c "sha256-$2.sif" 2>/dev/null
exit 0
"""
)

WRITABLE = f"""
# $1 images folder
cd "$1" || exit 1
[ -w . ] || {{ ls -ld .; exit {NOT_WRITABLE}; }}
"""

SURVEY = (
    _COMMON
    + """
# $1 images folder, $2 digest, $3 bytes. Prints `have`; `part BYTES FOLDER/FILE`, what has arrived of this
# image; `image BYTES yes|no NAME`, the newest others and whether their chunk list is there.
cd "$1" 2>/dev/null || exit 0
if [ "$(size "sha256-$2.sif")" = "$3" ]; then
  echo have
  exit 0
fi
for file in .upload-"$2".*/*; do
  [ ! -f "$file" ] || echo "part $(size "$file") $file"
done
damaged=.damaged-sha256-$2.sif
[ ! -f "$damaged" ] || echo "part $(size "$damaged") $damaged/image"
ls -t | grep '^sha256-[0-9a-f]*[.]sif$' | head -n 8 | while read -r name; do
  chunks=no
  [ ! -f "${name%.sif}.chunks" ] || chunks=yes
  echo "image $(size "$name") $chunks $name"
done
"""
)

VERIFY = (
    _COMMON
    + f"""
# $1 images folder, $2 digest of an image that is there
cd "$1" && found=$(sum <"sha256-$2.sif") || exit 1
[ "$found" != "$2" ] || exit 0
set_aside "$2" && exit {MISMATCH}
ls -ld .
exit {NOT_WRITABLE}
"""
)

CLAIM = (
    _COMMON
    + f"""
# $1 images folder, $2 digest, $3 the new folder's name, $4 bytes, $5 folder (or damaged image) to take over,
# or nothing. The last bytes of a client that died arrive within seconds; somebody who is at work writes all
# the time, and keeps the folder: a copy of it saves sending what it holds. One who is found silent by mistake
# does no harm: both then write the same bytes to the same places, and nothing is published before all of it
# was read and checked.
cd "$1" && umask 077 || exit 1
[ -w . ] || {{ ls -ld .; exit {NOT_WRITABLE}; }}
for folder in .upload-*; do
  if [ -d "$folder" ] && [ "$folder" != "$5" ] && ! young "$folder" 1440; then rm -rf "$folder"; fi
done
for look in first last; do
  if [ ! -d "$5" ] || ! young "$5" 1; then break; fi
  : >"$3.clock"
  sleep 3
  busy=$(find "$5" -newer "$3.clock" 2>/dev/null | head -n 1)
  rm -f "$3.clock"
  [ -n "$busy" ] || break
  if [ $look = last ]; then
    cp -R "$5" "$3" 2>/dev/null || rm -rf "$3"
    set -- "$1" "$2" "$3" "$4" ''
  fi
done
if [ "$(size "sha256-$2.sif")" = "$4" ]; then
  rm -rf "$3"
  exit {PUBLISHED}
fi
if [ -f "$5" ]; then
  mkdir "$3" && mv "$5" "$3/image" && chmod 600 "$3/image"
elif [ -d "$5" ]; then
  mv "$5" "$3" 2>/dev/null
fi
mkdir -p "$3" && touch "$3"
"""
)

_ENTER = (
    _COMMON
    + f"""
# $1 images folder, $2 digest, $3 upload folder, $4 bytes, $5 mode of a published file
umask 077
basis=''
if ! cd "$1/$3" 2>/dev/null; then
  [ "$(size "$1/sha256-$2.sif")" != "$4" ] || exit 0
  exit {TAKEN_OVER}
fi
"""
)

# The rest of standard input is the chunk list, which may be missing in the end: it only saves time.
_PUBLISH = f"""
cat >chunks || rm -f chunks
found=$(sum <image) || exit 1
if [ "$found" != "$2" ]; then
  [ -z "$basis" ] || check_basis "$6"
  exit {MISMATCH}
fi
final=../sha256-$2
touch image && chmod "$5" image || exit 1
sync image 2>/dev/null
[ ! -f chunks ] || {{ chmod "$5" chunks; mv -f chunks "$final.chunks"; }}
# A link never replaces: whoever is first publishes. Only a file that cannot be the image makes way.
if ! ln image "$final.sif" 2>/dev/null; then
  [ "$(size "$final.sif")" = "$4" ] || mv -f image "$final.sif" || exit 1
fi
cd .. && rm -rf "$3" || exit 1
for folder in ".upload-$2".*; do
  if [ -d "$folder" ] && ! young "$folder" 1; then rm -rf "$folder"; fi
done
exit 0
"""

PUBLISH = _ENTER + _PUBLISH

# `tail` and `head` find their place in a file without reading what is before it.
ASSEMBLE = (
    _ENTER
    + """
# $6 digest of the image there, $7 name of the pack; standard input: the recipe, then the chunk list.
# Prints `damaged` when the image there is not what its name says.
basis=../sha256-$6.sif
check_basis() {
  found=$(sum <"$basis") || return
  [ "$found" != "$1" ] || return
  (cd .. && set_aside "$1") && echo damaged
}
[ -r "$basis" ] && [ -r "$7" ] || exit 1
while read -r kind offset length; do
  case $kind in
    copy) from=$basis ;;
    data) from=$7 ;;
    *) break ;;
  esac
  tail -c "+$((offset + 1))" "$from" 2>/dev/null </dev/null | head -c "$length" || exit 1
done >image
"""
    + _PUBLISH
)
