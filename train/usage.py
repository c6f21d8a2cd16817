"""What `python -m train --help` prints, before the names of the experiments."""

USAGE_TEXT = """usage: python -m train experiment=<name> [key=value ...]      one run; the same command again resumes it
       python -m train -m experiment=<name> key=1,2,3 ...     a sweep; runtime.jobs=2 runs two at a time

  --cfg     print the composed config and stop
  -m        several runs: choices a,b,c, range(0,5), and glob(paper/*) over config groups
  --help    this text

  conditioning=off|identity|svd|relative  conditioning.lam=<number>  seed=<k>  data_root=<folder>
  runtime.dry=true checks and prints without training; every key is described in train/schema.py.
  Exit status: 0 complete, 1 failed, 2 a mistake in what was asked, 3 diverged, 75 stopped and saved (run it again).

experiments: """
