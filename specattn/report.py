"""What `python -m specattn report` measures and prints: a model as it is, beside itself conditioned."""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Iterable

from torch import nn

from specattn.attention import attention_statistics, saturation_warning
from specattn.conditioning import condition
from specattn.report_input import Subject, load
from specattn.setting import Setting
from specattn.spectrum import weight_spectra

_ATTENTION = ("entropy", "max_probability", "saturated_rows", "gradient_q", "gradient_k", "gradient_v")
_JACOBIAN = ("sigma_max", "sigma_min", "kappa", "kappa_nonzero", "rank", "count", "floor", "share_q", "path")


def run(options: argparse.Namespace) -> None:
    """Measures, prints the table (or CSV) and the warnings, and draws the figure if one is asked for."""
    setting = Setting.check(options.lam, options.method, options.layout, options.targets, "persistent")
    if options.plot is not None and not options.plot.resolve().parent.is_dir():
        raise ValueError(f"--plot: the folder {options.plot.resolve().parent} does not exist")
    subject = load(options.model, options.weights, options.images, options.count, options.seed)
    model, batch = subject.model, subject.batch
    plain = attention_statistics(model, batch, modules=options.modules)
    jacobian = {"plain": _jacobians(model, batch, options)}
    _condition(model, setting, options.modules)
    spectra = weight_spectra(model, modules=options.modules)
    after = attention_statistics(model, batch, modules=options.modules)
    jacobian["conditioned"] = _jacobians(model, batch, options)
    records = _merged(spectra, {"plain": plain, "conditioned": after}, jacobian)
    messages = _warnings(after, setting, subject, options)
    if options.csv:
        writer = csv.DictWriter(sys.stdout, list(records[0]))
        writer.writeheader()
        writer.writerows(records)
    else:
        print(f"{options.model}: {subject.weights}; {subject.source}")
        print(f"C: {setting.call()}\n")
        print(_weight_table(spectra))
        print()
        print(_attention_table(plain, after))
        if options.jacobian:
            print()
            print(_jacobian_table(jacobian, options.jacobian))
        print()
    for message in messages:
        print(message, file=sys.stderr if options.csv else sys.stdout)
    if options.plot is not None:
        from specattn.report_plot import draw

        draw(records, f"{options.model}, {setting.method}, λ = {setting.lam:g}", options.plot)
        print(f"wrote {options.plot}", file=sys.stderr if options.csv else sys.stdout)


def _condition(model: nn.Module, setting: Setting, modules: str | None) -> None:
    condition(model, setting.lam, setting.method, setting.layout, setting.targets, modules=modules)


def _jacobians(model: nn.Module, batch: object, options: argparse.Namespace) -> list[dict]:
    if options.jacobian is None:
        return []
    from specattn.jacobian_layers import jacobian_spectra

    return jacobian_spectra(model, batch, options.modules, tokens=options.jacobian)


def _warnings(after: list[dict], setting: Setting, subject: Subject, options: argparse.Namespace) -> list[str]:
    """The saturation warning, and what the λ that it suggests really does on the same input."""
    message = saturation_warning(after, setting.lam)
    if message is None:
        return ["attention is in order: no layer saturates"]
    messages = [f"warning: {message}"]
    if "λ of about " in message:
        lam = float(message.split("λ of about ")[1].split()[0])
        again = load(options.model, options.weights, options.images, options.count, options.seed).model
        _condition(
            again, Setting.check(lam, setting.method, setting.layout, setting.targets, "persistent"), options.modules
        )
        checked = attention_statistics(again, subject.batch, modules=options.modules)
        worst = max(r["max_probability"] for r in checked if r["max_probability"] is not None)
        verdict = "does not saturate" if saturation_warning(checked, lam) is None else "saturates as well"
        messages.append(f"checked: λ = {lam:g} {verdict} (mean largest probability at most {worst:.2f})")
    return messages


def _merged(spectra: list[dict], attention: dict[str, list[dict]], jacobian: dict[str, list[dict]]) -> list[dict]:
    """One record per layer and projection, with its layer's attention and Jacobian figures, plain and conditioned."""
    merged = []
    for record in spectra:
        row = {key: value for key, value in record.items() if key != "head"}
        for when, records in attention.items():
            layer = next(r for r in records if r["attention"] == row["attention"])
            row |= {f"{key}_{when}": layer[key] for key in _ATTENTION}
        for when, records in jacobian.items():
            found = [r for r in records if r["attention"] == row["attention"]]
            row |= {f"jacobian_{key}_{when}": found[0][key] for key in _JACOBIAN if found}
        merged.append(row)
    return merged


def _weight_table(spectra: list[dict]) -> str:
    rows = [
        (
            r["attention"],
            f"W_{r['projection'].upper()}",
            f"{r['rows']}×{r['columns']}",
            *(r[f"{figure}{when}"] for when in ("", "_conditioned") for figure in ("sigma_max", "sigma_min", "kappa")),
        )
        for r in spectra
    ]
    head = ("layer", "", "shape", "σ_max W", "σ_min W", "κ W", "σ_max W+C", "σ_min W+C", "κ W+C")
    return _aligned(head, rows)


def _attention_table(plain: list[dict], after: list[dict]) -> str:
    rows = [
        (a["attention"], *(r[key] for key in _ATTENTION for r in (a, b))) for a, b in zip(plain, after, strict=True)
    ]
    names = ("entropy/log N", "largest p", "saturated", "|∂W_Q|", "|∂W_K|", "|∂W_V|")
    return _aligned(("layer", *(text for name in names for text in (name, "→ W+C"))), rows)


def _jacobian_table(jacobian: dict[str, list[dict]], tokens: int) -> str:
    rows = [
        (
            r["attention"],
            when,
            r["sigma_max"],
            "below floor" if r["sigma_min"] is None else r["sigma_min"],
            r["kappa"],
            r["kappa_nonzero"],
            f"{r['rank']}/{r['count']}",
            r["floor"],
            r["share_q"],
            r["path"],
        )
        for pair in zip(jacobian["plain"], jacobian["conditioned"], strict=True)
        for when, r in zip(("plain", "W+C"), pair, strict=True)
    ]
    head = (f"Jacobian, {tokens} tokens", "", "σ_max", "σ_min", "κ", "κ nonzero", "rank", "floor", "share J_Q", "path")
    return _aligned(head, rows)


def _aligned(head: tuple[str, ...], rows: Iterable[tuple]) -> str:
    """Columns padded to their widest cell; numbers to four digits."""
    cells = [head, *(tuple(_cell(value) for value in row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = [
        "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True)))
        for r in cells
    ]
    return "\n".join(line.rstrip() for line in lines)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return "∞" if math.isinf(value) else f"{value:.4g}"
    return str(value)
