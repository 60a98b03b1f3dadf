#!/bin/bash
#SBATCH --job-name=transcribe
#SBATCH --array=0-99
#SBATCH --cpus-per-task=1
#SBATCH --mem=1G
#SBATCH --output=transcribe-%A-%a.log
# sbatch --array=0-99 slurm.sh MODEL OUT LIST [OPTION...] - the recordings of a list, one on each
# line; each of the 100 tasks takes every 100th. Submit it again to go on where it stopped. MODEL
# (a pack, which the tasks of a machine share), OUT and what LIST names are on a file system of
# all machines. FLEET is the directory of one.sh: Slurm runs a copy of this file. A task fails
# with the status of its first failure, and "sacct -j JOB" shows it; 6: the text is there but
# incomplete.
model=$1 out=$2 list=$3
shift 3 || exit 1
mkdir -p "$out" || exit 1
export THREADS=${SLURM_CPUS_PER_TASK:-1}
worst=0
while IFS= read -r file; do
    "${FLEET:-$SLURM_SUBMIT_DIR}/one.sh" "$model" "$out" "$file" "$@" </dev/null
    status=$?
    if [ $worst -eq 0 ] || { [ $worst -eq 6 ] && [ $status -ne 0 ]; }; then
        worst=$status
    fi
done < <(awk -v n="${SLURM_ARRAY_TASK_COUNT:-1}" -v i="${SLURM_ARRAY_TASK_ID:-0}" \
             -v least="${SLURM_ARRAY_TASK_MIN:-0}" '(NR - 1) % n == i - least' "$list")
exit $worst
