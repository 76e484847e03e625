# Who could change a path: POSIX sh, with ls, find and id. Shared by everything that looks on a cluster; the rules are
# in docs/security.md.
#
# own_check PATH...: judges each path, every folder above it, every link on the way and what the link points to. What
# does not exist yet is left out. A path with a slash at its end may itself be sticky, as /tmp is; folders above a
# path always may, because what lies in them is judged by its own owner. Lines `KIND MODE OWNER GROUP PATH` go to
# own_faults (kinds owner, group, others, links) and own_notes (the same, where own_trust or own_group names them,
# and unknown, where the file system does not tell the owner). Succeeds without faults.
#
# own_trust: names or numbers, one a line, of users who may own and of groups who may write; `*` is everybody.
# own_group: a group who may write.
# own_must: not empty where all of it has to be there: it was just made, and could be hidden from the look (`missing`).
# shellcheck shell=sh disable=SC2154  # the caller sets both
own_check() {
  own_nl='
'
  own_faults='' own_notes='' own_seen=$own_nl own_strict=$own_nl own_rounds=0 own_options=$- own_ifs=$IFS
  own_me=$(id -u)
  set -f
  while [ $# -gt 0 ]; do
    own_rounds=$((own_rounds + 1))
    if [ "$own_rounds" -gt 40 ]; then
      own_faults="${own_faults}links - - - $1$own_nl"
      break
    fi
    own_count=$#
    for own_path; do # replaced by all that lies on the way to it
      case $own_path in /* | '') ;; *) own_path=$PWD/$own_path ;; esac
      case $own_path in
        */) own_path=${own_path%/} ;;
        *) own_strict=$own_strict$own_path$own_nl ;;
      esac
      own_at=''
      while :; do
        case $own_seen in
          *"$own_nl${own_at:-/}$own_nl"*) ;;
          *) own_seen=$own_seen${own_at:-/}$own_nl && set -- "$@" "${own_at:-/}" ;;
        esac
        [ "$own_at" != "$own_path" ] || break
        own_rest=${own_path#"$own_at/"}
        own_at=$own_at/${own_rest%%/*}
      done
    done
    shift "$own_count"
    [ $# -gt 0 ] || break
    own_lines=$(LC_ALL=C QUOTING_STYLE=literal command ls -ldn -- "$@" 2>/dev/null) ||
      [ -z "${own_must-}" ] || own_faults="${own_faults}missing - - - $own_path$own_nl"
    own_links=''
    IFS=$own_nl
    for own_line in $own_lines; do
      IFS=' '
      # shellcheck disable=SC2086  # its fields
      set -- $own_line
      IFS=$own_ifs
      [ $# -gt 5 ] || continue
      own_path=/${own_line#* /} own_rest=''
      case $1 in l*) own_rest=${own_path#* -> } own_path=${own_path%% -> *} ;; esac
      own_judge "$1" "$3" "$4" "$own_path"
      case $own_rest in '') continue ;; /*) ;; *) own_rest=${own_path%/*}/$own_rest ;; esac
      own_rest=${own_rest%/}
      case $own_strict in *"$own_nl$own_path$own_nl"*) ;; *) own_rest=$own_rest/ ;; esac
      own_links=$own_links$own_rest$own_nl
    done
    IFS=$own_nl
    # shellcheck disable=SC2086  # one a line
    set -- $own_links
    IFS=$own_ifs
  done
  case $own_options in *f*) ;; *) set +f ;; esac
  [ -z "$own_faults" ]
}

own_judge() { # MODE UID GID PATH
  case $2 in
    "$own_me" | 0) ;;
    65534 | 4294967294) own_tell notes unknown "$@" ;; # nobody: NFS that squashes ids or cannot map them
    *) if own_trusted user "$4"; then own_tell notes owner "$@"; else own_tell faults owner "$@"; fi ;;
  esac
  case $1 in
    l*) return 0 ;; # a link's own mode means nothing
    ?????????[tT]*) case $own_strict in *"$own_nl$4$own_nl"*) ;; *) return 0 ;; esac ;;
  esac
  case $1 in
    ????????w*)
      if own_trusted others "$4"; then own_tell notes others "$@"; else own_tell faults others "$@"; fi ;;
    ?????w*)
      # an access control list names others, and shows what they may do as what the group may
      case $1 in *+) ;; *) if own_private "$3"; then return 0; fi ;; esac
      if own_trusted group "$4"; then own_tell notes group "$@"; else own_tell faults group "$@"; fi ;;
  esac
}

own_trusted() { # user|group|others PATH
  own_names=$own_trust
  [ "$1" != group ] || own_names=$own_names$own_nl$own_group
  IFS=$own_nl
  for own_name in $own_names; do
    IFS=$own_ifs
    [ "$own_name" != '*' ] || return 0
    [ "$1" != others ] || continue
    [ -z "$(command find "$2" -prune "-$1" "$own_name" 2>/dev/null)" ] || return 0
  done
  IFS=$own_ifs
  return 1
}

# Whether a group is this user's alone, as where every user has one of the same name (umask 002 is usual there).
own_private() { # GID
  own_name=$(id -un 2>/dev/null) && [ "$1" = "$(id -g)" ] && [ "$(id -gn)" = "$own_name" ] || return 1
  case $(getent group "$1" 2>/dev/null) in '' | *: | *:"$own_name") return 0 ;; esac
  return 1
}

# A name with blanks cannot be told from other fields: then its number is told.
own_tell() { # faults|notes KIND MODE UID GID PATH
  own_named=$(LC_ALL=C command ls -ld -- "$6" 2>/dev/null | { read -r _ _ user team _ && echo "$user $team"; })
  own_user=${own_named% *} own_team=${own_named#* }
  [ -n "$(command find "$6" -prune -user "$own_user" 2>/dev/null)" ] || own_user=$4
  [ -n "$(command find "$6" -prune -group "$own_team" 2>/dev/null)" ] || own_team=$5
  case $1 in
    faults) own_faults="$own_faults$2 $3 $own_user $own_team $6$own_nl" ;;
    *) own_notes="$own_notes$2 $3 $own_user $own_team $6$own_nl" ;;
  esac
}

own_say() { # the first fault, as a sentence
  own_line=${own_faults%%"$own_nl"*}
  case $own_line in missing*) printf '%s\n' "/${own_line#* /} is not there any more" && return ;; esac
  printf '%s\n' "another user could change /${own_line#* /} (${own_line%% /*}); clusterkit doctor says more"
}
