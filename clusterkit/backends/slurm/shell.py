"""Shell code around Slurm's commands."""

from __future__ import annotations

from clusterkit.backends.slurm.rows import FIELD_SEPARATOR

# Slurm reads options from the environment too, and SBATCH_* beats the #SBATCH lines (man sbatch, INPUT
# ENVIRONMENT VARIABLES): a forgotten export in a login profile would change the request unnoticed. What
# remains of an enclosing job (SLURM_*) goes as well; what names the cluster and the credentials stays.
CLEAN_ENVIRONMENT = r"""
for name in $(env | sed -n -e 's/^\(SBATCH_[A-Za-z0-9_]*\)=.*/\1/p' \
  -e 's/^\(SLURM_[A-Za-z0-9_]*\)=.*/\1/p'); do
  case $name in
    SLURM_CONF | SLURM_CONF_SERVER | SLURM_CLUSTERS | SLURM_JWT) ;;
    *) unset "$name" ;;
  esac
done
"""

# Slurm prints times in the zone of the process, so each site's would differ: UTC.
ENVIRONMENT = f"""
TZ=UTC0 SLURM_TIME_FORMAT=standard SLURM_BITSTR_LEN=0; export TZ SLURM_TIME_FORMAT SLURM_BITSTR_LEN
ck_fs='{FIELD_SEPARATOR}'
"""
