"""Answers of the survey's script from sites of many kinds, each part in the form its Slurm version prints.

The parts of `TESTBED` are from a real login node (Slurm 24.11.5); the others have the fields and the order that
their versions print, and names of our own.
"""

from __future__ import annotations

from clusterkit.survey.script import MARK

TESTBED = {
    "me": "login\nalice\nplain\nalice\n",
    "version": "slurm-wlm 24.11.5\n",
    "config": "Configuration data as of 2026-11-20T15:17:10\nAccountingStorageEnforce = none\nClusterName      "
    "       = testbed\nJobRequeue              = 1\nKillWait                = 5 sec\nMaxArraySize            = "
    "1001\nPreemptMode             = OFF\nPreemptType             = (null)\n",
    "partitions": "PartitionName=gpu-a40 AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES "
    "QoS=N/A DefaultTime=00:10:00 DisableRootJobs=NO ExclusiveUser=NO ExclusiveTopo=NO GraceTime=0 Hidden=NO "
    "MaxNodes=UNLIMITED MaxTime=1-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED "
    "MaxCPUsPerSocket=UNLIMITED Nodes=a40n1 PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO "
    "OverSubscribe=NO OverTimeLimit=NONE PreemptMode=OFF State=UP TotalCPUs=8 TotalNodes=1 "
    "SelectTypeParameters=NONE JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED "
    "TRES=cpu=8,mem=62.50G,node=1,billing=8,gres/gpu=4,gres/gpu:a40=4\n"
    "PartitionName=gpu-a100 AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A "
    "DefaultTime=00:10:00 MaxTime=1-00:00:00 MaxCPUsPerNode=UNLIMITED Nodes=a100n1 RootOnly=NO "
    "OverSubscribe=NO State=UP MaxMemPerNode=UNLIMITED\n",
    "nodes": "gpu-a40|1|idle|8|64000|gpu:a40:4|(null)\ngpu-a100|1|idle|8|64000|gpu:a100:2|(null)\n",
    "user": "",
    "associations": "",
    "qos": "normal|\n",
    "shares": "",
    "runtime": "\napptainer\n\napptainer version 1.4.5\nnamespaces\n",
    "userns": "",
    "modules": "",
    "roots": "root $HOME yes yes /home/alice\ntype ext2/ext3\n"
    "df /dev/vda         264212084 51052596  55338316      48% /home\nroot usual no yes /share/alice\n"
    "type ext2/ext3\ndf /dev/vda         264212084 51052596  55338316      48% /share\n",
    "rsync": "rsync  version 3.4.1  protocol version 32\nCopyright (C) 1996-2025 by Andrew Tridgell\n",
    "python": "3.13.5\n",
    "internet": ("", 1),
}

UNIVERSITY = TESTBED | {
    # Slurm 20.11: no TRES, no MaxCPUsPerSocket; one association for each partition, an account without jobs.
    "me": "login2.uni.example\nu123\nplain\nu123 staff gpuusers\n",
    "version": "slurm 20.11.9\n",
    "config": "AccountingStorageEnforce = associations,limits,qos,safe\nJobRequeue              = 0\n"
    "SLURM_VERSION           = 20.11.9\nClusterName             = uni\n",
    "partitions": "PartitionName=small AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES "
    "QoS=N/A DefaultTime=00:10:00 MaxTime=3-00:00:00 MaxCPUsPerNode=UNLIMITED OverSubscribe=NO State=UP\n"
    "PartitionName=gpu AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=gpulimit "
    "DefaultTime=00:10:00 MaxTime=7-00:00:00 MaxCPUsPerNode=40 OverSubscribe=NO State=UP MaxMemPerNode=307200\n"
    "PartitionName=gputest AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A "
    "MaxTime=00:15:00 MaxCPUsPerNode=UNLIMITED OverSubscribe=NO State=UP MaxMemPerNode=UNLIMITED\n",
    "nodes": "small|654|mixed|40|190000|(null)|skl\ngpu|70|mixed|40|382000|gpu:v100:4(S:0-1),nvme:3600|csl,v100-32g\n"
    "gpu|8|drained|40|382000|gpu:v100:4(S:0-1),nvme:3600|csl,v100-32g\n"
    "gputest|2|idle|40|382000|gpu:v100:4(S:0-1),nvme:3600|csl,v100-32g\n",
    "user": "u123|no_jobs\n",
    "associations": "no_jobs||normal|normal||0\nproj_a|small|normal|normal||200\nproj_a|gpu|normal|normal||200\n"
    "proj_a|gputest|normal|normal||1\nproj_b|small|normal|normal||200\n",
    "qos": "normal|\ngpulimit|2-00:00:00\n",
    "runtime": "\nsingularity\n\nsingularity-ce version 3.11.4-1.el8\nsetuid\n",
    "userns": ("", 1),
    "roots": "root $HOME yes yes /users/u123\ntype lustre\n"
    "df 10.0.0.1@o2ib:/fs1 900000000000 700000000 800000000 50% /users\n"
    "lfs /users/u123 9000000 10485760 10485760 - 1000 100000 100000 - \n"
    "root $SCRATCH yes yes /scratch/u123\ntype lustre\n"
    "df 10.0.0.1@o2ib:/fs2 900000000000 700000000 800000000 50% /scratch\n"
    "root $PROJECT yes yes /projappl/proj_a\ntype lustre\n"
    "df 10.0.0.1@o2ib:/fs3 50000000000 700000000 40000000000 50% /projappl\n",
    "internet": "",
}

LABELLED = TESTBED | {
    # Slurm 23.02: GPUs without types in one partition, told apart by features; a partition with a space.
    "me": "sh02-ln01\nkim\nlogin\nkim labkim\n",
    "version": "slurm 23.02.7\n",
    "partitions": "PartitionName=normal AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=NO QoS=N/A "
    "MaxTime=2-00:00:00 OverSubscribe=NO State=UP\n"
    "PartitionName=gpu AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=NO QoS=N/A MaxTime=2-00:00:00 "
    "OverSubscribe=NO State=UP\n"
    "PartitionName=owners of nodes AllowGroups=rich AllowAccounts=ALL AllowQos=ALL Default=NO QoS=N/A "
    "MaxTime=7-00:00:00 OverSubscribe=NO State=UP\n"
    "PartitionName=gpu_down AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=NO QoS=N/A "
    "MaxTime=UNLIMITED OverSubscribe=NO State=DOWN\n",
    "nodes": "normal|100|mixed|32|256000|(null)|CPU_GEN:SKX\n"
    "gpu|4|mixed|24|256000|gpu:4|GPU_GEN:VLT,GPU_SKU:V100_PCIE,GPU_MEM:32GB\n"
    "gpu|2|mixed|20|190000|gpu:4|GPU_GEN:VLT,GPU_SKU:V100_SXM2,GPU_MEM:16GB\n"
    "gpu|1|down*|20|190000|gpu:8|GPU_GEN:PSC,GPU_SKU:P40,GPU_MEM:24GB\n"
    "owners of nodes|50|mixed|64|512000|gpu:8|GPU_SKU:H100_SXM5,GPU_MEM:80GB\n"
    "gpu_down|1|idle|64|512000|gpu:8|GPU_SKU:H100_SXM5\n",
    "user": "kim|kimlab\n",
    "associations": "kimlab||normal,long|normal||\n",
    "qos": "normal|2-00:00:00\nlong|7-00:00:00\n",
    "runtime": None,
    "loaded": "Welcome\n\napptainer\napptainer\napptainer version 1.3.1\n",
    "modules": "apptainer/1.3.1\nsystem/singularity-tools\n",
    "userns": "",
    "roots": "root $HOME yes yes /home/users/kim\ntype nfs\n"
    "df nas:/home  16106127360 1 16106127360 1% /home\n"
    "root $SCRATCH yes yes /scratch/users/kim\ntype lustre\n"
    "df fs:/scratch 9999999999999 1 999999999999 1% /scratch\n",
}

MANY_RULES = TESTBED | {
    # Slurm 25.11: accounts, groups and QOS decide who may submit where; one card under several spellings.
    "me": "login01\nxu\nplain\nxu lab\n",
    "version": "slurm 25.11.1\n",
    "config": "AccountingStorageEnforce = associations,limits,qos\nClusterName = big\nJobRequeue = 1\n",
    "partitions": "PartitionName=gpu AllowGroups=ALL DenyAccounts=none,guests AllowQos=normal AllocNodes=ALL Default=NO "
    "QoS=N/A MaxTime=2-00:00:00 OverSubscribe=NO PreemptMode=OFF State=UP\n"
    "PartitionName=scavenge_gpu AllowGroups=ALL AllowAccounts=ALL AllowQos=normal,scavenge Default=NO QoS=N/A "
    "MaxTime=7-00:00:00 OverSubscribe=NO PreemptMode=REQUEUE State=UP\n"
    "PartitionName=priority AllowGroups=ALL AllowAccounts=priority AllowQos=ALL Default=NO QoS=N/A "
    "MaxTime=7-00:00:00 OverSubscribe=NO State=UP\n"
    "PartitionName=h100 AllowGroups=ALL AllowAccounts=lab_xu DenyQos=course_2026 Default=NO QoS=N/A "
    "MaxTime=3-00:00:00 OverSubscribe=EXCLUSIVE State=UP MaxCPUsPerNode=124\n"
    "PartitionName=wide AllowGroups=ALL AllowAccounts=ALL AllowQos=wide Default=NO QoS=N/A "
    "MaxTime=3-00:00:00 State=UP\n",
    "nodes": "gpu|8|mixed|128|1031000|gpu:nvidia_a100-sxm4-80gb:4(S:0-3)|(null)\n"
    "gpu|2|mixed|64|515000|gpu:a100_3g.20gb:8(S:0-1)|(null)\n"
    "gpu|3|mixed|64|515000|gpu:a100-40g:4|(null)\n"
    "scavenge_gpu|16|mixed|128|1031000|gpu:nvidia_a100-sxm4-80gb:4(S:0-3)|(null)\n"
    "priority|8|mixed|64|990000|gpu:h200:8|(null)\n"
    "h100|32|allocated|128|1547000|gpu:h100:4|(null)\n"
    "wide|4|idle|64|515000|gpu:rtx_pro_6000_blackwell:8|(null)\n",
    "user": "xu|guests\n",
    "associations": "guests||normal|normal||\nlab_xu||normal,course_2026|course_2026|12:00:00|\n",
    "qos": "normal|\ncourse_2026|1-00:00:00\nscavenge|\n",
}

EMPTY = TESTBED | {
    # No Slurm, no container, no folder with room.
    "me": "desktop\nme\nnone\nme\n",
    **dict.fromkeys(("version", "config", "partitions", "nodes", "user", "associations", "qos", "shares", "runtime")),
    "modules": "slurm/24.11\n",
    "roots": "root $HOME yes no /home/me\ntype nfs\ndf x 100 100 0 100% /home\n",
    "rsync": ("", 127),
}

ALL = {
    "testbed": TESTBED,
    "university": UNIVERSITY,
    "labelled": LABELLED,
    "rules": MANY_RULES,
    "empty": EMPTY,
}


def answer(parts: dict[str, str | tuple[str, int] | None]) -> str:
    """What the script prints: text of a part that ended well, text and status, or None for one left out."""
    found = ["Welcome to the login node!\n"]
    for name, part in [*parts.items(), ("done", "")]:
        if part is not None:
            text, status = (part, 0) if isinstance(part, str) else part
            found.append(f"\n{MARK} part {name}\n{text}\n{MARK} end {status}\n")
    return "".join(found)
