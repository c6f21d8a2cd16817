"""docs/library.md runs: its blocks of code are executed in order, in one namespace."""

import re
from pathlib import Path

from specattn.families import FAMILIES

PAGE = Path(__file__).parents[2] / "docs" / "library.md"


def test_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(blocks) >= 8
    namespace: dict = {}
    families = list(FAMILIES)
    try:
        for block in blocks:
            line = page[: page.index(block)].count("\n")
            exec(compile("\n" * line + block, str(PAGE), "exec"), namespace)
    finally:
        FAMILIES[:] = families
    printed = capsys.readouterr().out
    assert "λ = 10 saturates the softmax" in printed
    assert "'method': 'identity', 'lam': 10.0" in printed
    assert "another conditioning" in printed
    assert "Unexpected key" in printed or "loading state_dict" in printed
    assert "tensor([1., 1., 1.]" in printed
