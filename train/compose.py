"""From the words of a command line to one checked config, or to one line that says what is wrong.

Hydra composes and parses; this file only turns its errors into one line that names the nearest right key,
and lets an experiment be named with a glob that sees through slashes (`experiment=glob(paper/*)`).
"""

import copy
import difflib
import functools
import itertools
import os
from fnmatch import fnmatch
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from train import schema
from train.data.presence import drawn_root
from train.errors import UserError
from train.limits import check_ranges

CONFIG_FOLDER = Path(__file__).resolve().parent.parent / "configs"
FREE = (
    "model.args",
    "model.detector",
)  # dictionaries that are handed on as they are, so that any key may be set in them
PATHS = (
    "data_root",
    "output_root",
    "checkpoint",
    "predictions",
    "corpus",
    "task.pretrained",
)  # taken as typed: our own folders' names hold commas and '='
GROUPS = ("task", "model", "dataset", "conditioning", "optimizer", "schedule", "runtime", "experiment")

schema.register()


def options(group: str) -> list[str]:
    """The names that a config group offers; experiments carry their folder (`reduced/digits_vit`)."""
    folder = CONFIG_FOLDER / group
    return sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml"))


def nearest(word: str, words: list[str]) -> str:
    """A clause that names the nearest right word, or lists them (top-level keys alone) where none is near.

    A folder that is right, as paper/, is no likeness: words below it are compared by the rest, and listed alone.
    """
    folder = word.rpartition("/")[0] + "/" if "/" in word else ""
    below = [name.removeprefix(folder) for name in words if folder and name.startswith(folder)]
    if below:
        found = difflib.get_close_matches(word.removeprefix(folder), below, n=1, cutoff=0.5)
        return f"did you mean {folder + found[0]!r}?" if found else f"there are: {', '.join(below)}"
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"there are: {', '.join(dict.fromkeys(name.split('.')[0] for name in words))}"


def parse(words: list[str]) -> list[Override]:
    """Parse `key=value` words; raises UserError for what Hydra cannot read."""
    overrides = []
    for word in words:
        if word.startswith("-"):
            raise UserError(f"unknown option {word!r}: options are -m (sweep), --cfg and --help; keys are key=value")
        key, _, value = word.partition("=")
        if key.lstrip("+") in PATHS:
            escaped = value.strip("'\"").replace("'", "\\'")
            word = f"{key}='{escaped}'"
        try:
            override = OverridesParser.create().parse_override(word)
        except HydraException:
            raise UserError(
                f"cannot read {word!r}: write key=value (quote values that hold commas, brackets or spaces)"
            ) from None
        if override.is_delete():
            raise UserError(f"{word!r} would remove a key, which the schema does not allow")
        overrides.append(override)
    return overrides


def expand(words: list[str]) -> list[list[str]]:
    """Every run of a sweep: the product of the choices, ranges and globs in `words`, last key fastest.

    A glob over a group that matches nothing is an error, not an empty sweep.
    """
    choices = []
    for override in parse(words):
        key = override.get_key_element().lstrip("+")
        value = override.value()
        if isinstance(value, Glob):
            if key not in GROUPS:
                raise UserError(f"{override.input_line!r}: only config groups can be globbed: {', '.join(GROUPS)}")
            names = [
                name
                for name in options(key)
                if any(fnmatch(name, pattern) for pattern in value.include)
                and not any(fnmatch(name, pattern) for pattern in value.exclude)
            ]
            if not names:
                raise UserError(f"{override.input_line!r} matches nothing; there are: {', '.join(options(key))}")
            choices.append([f"{key}={name}" for name in names])
        elif override.is_sweep_override():
            try:
                choices.append([f"{key}={text}" for text in override.sweep_string_iterator()])
            except HydraException:
                raise UserError(f"{override.input_line!r}: a sweep takes choices a,b,c, range() and glob()") from None
        else:
            choices.append([override.input_line])
    return [list(run) for run in itertools.product(*choices)]


def resolve(words: list[str]) -> DictConfig:
    """Compose and check one run's config.

    Args:
        words: Hydra overrides, among them `experiment=<name>`.

    Returns:
        The complete, typed config. `off` and λ = 0 are one and the same conditioning.

    Raises:
        UserError: unknown experiment, group, key or value, named with the nearest right one.
    """
    overrides = parse(words)
    for override in overrides:
        if override.is_sweep_override():
            raise UserError(f"{override.input_line!r} asks for several runs: add -m")
    groups, values = _split(overrides)
    base = _compose([f"{key}={name}" for key, name in groups.items()])
    config = _compose([f"{key}={name}" for key, name in groups.items()] + _checked(values, base))
    config.experiment = groups["experiment"]
    _check(config)
    if config.dataset.get("shapes") is not None:
        config.data_root = drawn_root(config)
    if groups.get("conditioning") == "off" and config.conditioning.lam != 0:
        raise UserError(
            f"conditioning=off with conditioning.lam={config.conditioning.lam:g}: choose a method, or λ = 0"
        )
    if config.conditioning.lam == 0:
        config.conditioning = OmegaConf.structured(schema.Conditioning)
    return config


def distinguishing(words: list[str]) -> list[str]:
    """The `key=value` words by which a run's results differ from its experiment's, sorted.

    Groups stand by name; values only where they differ from what the experiment and groups say, so that
    a redundant override does not make another run. Conditioning and seed have their own place in a run's
    name and are left out.
    """
    groups, _ = _split(parse(words))
    chosen = {key: name for key, name in groups.items() if key not in ("experiment", "conditioning", "runtime")}
    named = f"experiment={groups['experiment']}"
    plain = _compose([named])
    chosen = {key: name for key, name in chosen.items() if _compose([named, f"{key}={name}"])[key] != plain[key]}
    base = flatten(_compose([named, *(f"{key}={name}" for key, name in chosen.items())]))
    full = flatten(resolve(words))
    parts = [f"{key}={name}" for key, name in chosen.items()]
    for key, value in full.items():
        top = key.split(".")[0]
        if top in schema.RESULT_KEYS and top not in ("conditioning", "seed") and base.get(key, None) != value:
            parts.append(f"{key}={value}")
    return sorted(parts)


def result_changing(config: DictConfig) -> dict:
    """The part of a config that is a run's identity, as plain values."""
    whole = OmegaConf.to_container(config, resolve=True)
    named = {key: whole[key] for key in schema.RESULT_KEYS}
    if named["model"].get("pretrained"):  # the file, not where it lies
        named["model"]["pretrained"] = Path(named["model"]["pretrained"]).name
    return named


def flatten(node: DictConfig | dict, prefix: str = "") -> dict:
    """Dotted keys of the leaves of a config."""
    plain = OmegaConf.to_container(node) if isinstance(node, DictConfig) else node
    flat = {}
    for key, value in plain.items():
        if isinstance(value, dict) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _split(overrides: list[Override]) -> tuple[dict[str, str], list[Override]]:
    """Config groups chosen by name, checked, and the remaining values."""
    groups, values = {}, []
    for override in overrides:
        key = override.get_key_element().lstrip("+")
        if key in GROUPS:
            name = str(override.get_value_element_as_str()).strip("'\"")
            if name not in options(key):
                raise UserError(f"unknown {key} {name!r}: {nearest(name, options(key))}")
            groups[key] = name
        else:
            values.append(override)
    if "experiment" not in groups:
        raise UserError(f"choose an experiment: experiment=<name>, one of {', '.join(options('experiment'))}")
    return groups, values


def _checked(values: list[Override], base: DictConfig) -> list[str]:
    """The overrides as words for Hydra, each key known to exist (or to lie in a free dictionary)."""
    known = list(flatten(base))
    words = []
    for override in values:
        key = override.get_key_element().lstrip("+")
        free = any(key.startswith(f"{prefix}.") for prefix in FREE)
        if key not in known and not free:
            tail = [name for name in known if name.endswith(f".{key}")]
            hint = f"did you mean {tail[0]!r}?" if tail else nearest(key, known)
            if any(name.startswith(f"{key}.") for name in known):
                hint = f"it holds several keys: {', '.join(n for n in known if n.startswith(key + '.'))}"
            raise UserError(f"unknown key {key!r}: {hint}")
        words.append(f"++{key}={override.get_value_element_as_str()}")
    return words


def _compose(words: list[str]) -> DictConfig:
    """Hydra's composition; a sweep asks for the same ones again and again, and each takes a quarter of a second."""
    return copy.deepcopy(_composed(tuple(words), os.environ.get("DATA_ROOT")))


@functools.lru_cache(maxsize=256)
def _composed(words: tuple[str, ...], data_root: str | None) -> DictConfig:
    """As `_compose`; the base config reads DATA_ROOT."""
    try:
        with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
            config = compose("config", overrides=list(words))
            OmegaConf.resolve(config)
            return config
    except (HydraException, OmegaConfBaseException) as error:
        cause = error.__cause__ or error
        key = getattr(cause, "full_key", None) or getattr(error, "full_key", None)
        message = str(getattr(cause, "msg", None) or cause).splitlines()[0]
        raise UserError(f"{key}: {message}" if key else message) from None


def _check(config: DictConfig) -> None:
    """What types alone do not say."""
    flat = flatten(config)
    for key, allowed in schema.CHOICES.items():
        if key in flat and flat[key] not in allowed:
            raise UserError(f"{key}={flat[key]!r}: must be one of {', '.join(filter(None, allowed))}")
    for key, value in flat.items():
        if value == "???":
            raise UserError(f"{key} is not set by experiment {config.experiment!r}: add {key}=...")
    check_ranges(flat)
    if not config.output_root:
        raise UserError("output_root is empty: name the folder that runs are written to")
    for key, unset in {"schedule": False, "evaluate": False, "probe": True}.items():
        given = [name for name in ("steps", "epochs", "hours") if flat.get(f"{key}.{name}") is not None]
        if len(given) > 1 or (not given and not unset):
            hours = " (or schedule.hours)" if key == "schedule" else ""
            raise UserError(f"{key}: give exactly one of {key}.steps and {key}.epochs{hours}")
        if given and flat[f"{key}.{given[0]}"] <= 0:
            raise UserError(f"{key}.{given[0]}={flat[f'{key}.{given[0]}']}: must be above 0")
    if flat["schedule.warmup_steps"] is not None and flat["schedule.warmup_epochs"] is not None:
        raise UserError("schedule: give one of schedule.warmup_steps and schedule.warmup_epochs")
    if flat["schedule.hours"] is not None or config.schedule.name == "triangle":
        extra = [key for key in flat if key.startswith(("schedule.warmup_s", "schedule.warmup_e", "schedule.cooldown"))]
        if config.schedule.per != "step" or any(flat[key] is not None for key in extra):
            raise UserError("schedule.hours and schedule=triangle go without warm-up, cooldown and schedule.per=epoch")
    if config.mode == "train" and (config.predictions or config.per_class):
        raise UserError("predictions and per_class are for mode=evaluate")
    if flat["schedule.cooldown_steps"] is not None and flat["schedule.cooldown_epochs"] is not None:
        raise UserError("schedule: give one of schedule.cooldown_steps and schedule.cooldown_epochs")
    if (config.schedule.name == "steps") != (config.schedule.milestones is not None):
        raise UserError("schedule.milestones belong to schedule.name=steps: give both or neither")
    if config.optimizer.no_decay == "names" and not config.optimizer.no_decay_names:
        raise UserError("optimizer.no_decay=names needs optimizer.no_decay_names, globs on parameters' names")
    if config.optimizer.lr_scaling == "linear" and config.optimizer.reference_batch is None:
        raise UserError("optimizer.lr_scaling=linear needs optimizer.reference_batch, the batch the lr is written for")
