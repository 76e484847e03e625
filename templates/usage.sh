# Tells what a running program uses, again and again, beside it on its node. POSIX sh; `mark`, GPU_FIELDS and
# RECORD_BYTES are set before. $1 run directory, $2 attempt, $3 seconds between two samples, $4 how many (nothing:
# until the attempt ends), $5 process group of the job where there is no /proc, $6 and $7 environment variables of
# the job that tell its processors and its memory in MiB. A program of the run is known by CLUSTERKIT_RUN_DIR in its
# environment, which the launcher sets and all its children inherit; so several runs may share a job.
# Of runs that one process trains each uses what all of them use: known by the folder where they meet.
run=$1 attempt=$2 pause=$3 count=$4 group=$5
cpus= asked=
test -z "$6" || eval "cpus=\${$6:-} asked=\${$7:-}"
cpus=${cpus:-$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)} cpus=${cpus%%[(,]*}
printf '%s begin %s %s %s %s\n' "$mark" "$(getconf CLK_TCK)" "$(getconf PAGESIZE)" "$cpus" "$(uname -n)"

limit=
command -v timeout >/dev/null 2>&1 && limit='timeout 10'
devices=${CUDA_VISIBLE_DEVICES:-}
# rocm-smi shows a job all GPUs of its node; these are its own, by the numbers that they have there.
own=${SLURM_STEP_GPUS:-${SLURM_JOB_GPUS:-${ROCR_VISIBLE_DEVICES:-}}}
case $own in *[!0-9,]*) own= ;; esac
own=$(echo "$own" | tr , ' ')
rocm_smi=$(PATH=$PATH:/opt/rocm/bin; command -v rocm-smi)
gpu() {
  if ! command -v nvidia-smi >/dev/null 2>&1; then
    test -n "$rocm_smi" || { echo "$mark gpu 127"; return; }
    answer=$($limit "$rocm_smi" ${own:+-d $own} --showproductname --showuse --showmeminfo vram \
      --showpower --showtemp --csv 2>/dev/null)
    printf '%s gpu %s\n%s\n' "$mark" "$?" "$answer"
    return
  fi
  answer=$($limit nvidia-smi ${devices:+-i "$devices"} --query-gpu="$GPU_FIELDS" \
    --format=csv,noheader,nounits 2>&1)
  status=$?
  if test "$status" -ne 0 && test -n "$devices"; then devices=; gpu; return; fi
  printf '%s gpu %s\n%s\n' "$mark" "$status" "$answer"
}

# The job's own control group: version 1 has one for memory, version 2 one for all.
folder= current= most= cache=
while IFS=: read -r number names path; do
  case $path in */job_*) path=${path%%/step_*} ;; *) continue ;; esac
  case $number:$names in
    *:memory) folder=/sys/fs/cgroup/memory$path current=memory.usage_in_bytes most=memory.limit_in_bytes
      cache=total_inactive_file ;;
    0:) folder=/sys/fs/cgroup$path current=memory.current most=memory.max cache=inactive_file ;;
  esac
done 2>/dev/null </proc/self/cgroup
memory() {
  echo "$mark memory $asked"
  test -n "$folder" && test -r "$folder/$current" || return
  cat "$folder/$current" "$folder/$most"
  sed -n "s/^$cache //p" "$folder/memory.stat"
}

processes() {
  if test -e /proc/self/environ; then
    files=$(grep -lzsFx "CLUSTERKIT_RUN_DIR=$run" /proc/[0-9]*/environ)
    met=$(cat $files /dev/null 2>/dev/null | tr '\0' '\n' | grep '^CLUSTERKIT_TOGETHER=.' | head -n 1)
    if test -n "$met"; then
      files=$(grep -lzsFx "$met" /proc/[0-9]*/environ)
      files=$(grep -lzs '^CLUSTERKIT_RUN_DIR=' $files /dev/null)
    fi
    pids=$(echo "$files" | sed 's|[^0-9]||g')
    stats=
    for pid in $pids; do stats="$stats /proc/$pid/stat"; done
    echo "$mark stat"
    test -z "$stats" || cat $stats 2>/dev/null
    echo "$mark processes"
    for pid in $pids; do about "$pid"; done
  else
    pids=$(pgrep -g "${group:-0}")
    echo "$mark processes"
    test -z "$pids" || ps -o pid= -o rss= -o pcpu= -o args= -p "$(echo $pids | tr ' ' ',')"
  fi
}

# about PID: what `ps -o pid= -o rss= -o pcpu= -o args=` tells; a small system has no ps.
about() {
  args=$(tr '\000-\037\177' ' ' 2>/dev/null <"/proc/$1/cmdline") stat=$(cat "/proc/$1/stat" 2>/dev/null)
  test -n "$args" && test -n "$stat" || return
  read -r now _ </proc/uptime
  set -f
  set -- "$1" ${stat##*) } # so that $N is field N+1 (man 5 proc)
  set +f
  lived=$((${now%.*} * $(getconf CLK_TCK) - ${21}))
  percent=$((100 * (${13} + ${14}) / (lived > 0 ? lived : 1)))
  echo "$1 $((${23} * $(getconf PAGESIZE) / 1024)) $percent ${args% }"
}

done=0
while :; do
  echo "$mark sample $(date +%s.%N)"
  beat=$run/heartbeat.json
  echo "$mark heartbeat" $(stat -c %Y "$beat" 2>/dev/null || stat -f %m "$beat" 2>/dev/null)
  test ! -f "$beat" || head -c "$RECORD_BYTES" "$beat" 2>/dev/null
  echo
  gpu
  memory
  processes
  echo "$mark end"
  done=$((done + 1))
  test "$done" != "$count" || exit 0
  test ! -e "$run/attempts/$attempt/exit.json" || exit 0
  sleep "$pause"
done
