"""Make the data set of a config that the project generates itself, where a run looks for it.

python -m scripts.make_set lra_listops_short [--output-root outputs]

The config's `made_by` is the command; a set that is there already is left alone, one that was stopped is gone on with.
"""

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

from omegaconf import OmegaConf

from train.compose import CONFIG_FOLDER, nearest


def made_by() -> dict[str, tuple[str, str]]:
    """Data set → its folder and the command, without --out, that makes it."""
    found = {}
    for path in sorted((CONFIG_FOLDER / "dataset").glob("*.yaml")):
        config = OmegaConf.load(path)
        if config.get("made_by"):
            found[path.stem] = (config.folder, config.made_by)
    return found


def main() -> int:
    """Make one set."""
    sets = made_by()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help=f"one of {', '.join(sets)}")
    parser.add_argument("--output-root", type=Path, default=Path("outputs"))
    chosen = parser.parse_args()
    if chosen.name not in sets:
        print(
            f"error: no set {chosen.name!r} that the project makes: {nearest(chosen.name, list(sets))}", file=sys.stderr
        )
        return 2
    folder, command = sets[chosen.name]
    module, *words = shlex.split(command)
    out = chosen.output_root / "data" / folder
    return subprocess.run([sys.executable, "-m", module, *words, "--out", str(out)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
