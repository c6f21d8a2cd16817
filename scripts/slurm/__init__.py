"""Runs and sweeps on a SLURM cluster: batch files of plain sbatch and srun."""
