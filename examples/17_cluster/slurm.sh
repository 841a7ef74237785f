#!/bin/bash
#SBATCH --job-name=exogym
#SBATCH --nodes=1
#SBATCH --ntasks=4
# Trains a job with Slurm, each task as a worker: sbatch slurm.sh job.yaml [OPTIONS of exogym run]
# docs/cluster.md has what it needs. It goes on after a time limit or a failure with --resume.
srun --mpi=pmix exogym run "$@"
