"""Write docs/ir/prims.md: the operators that remain after decomposition, and how many."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from stoker.decompose import OURS, PRIMS  # noqa: E402
from stoker.decompose.prims import FAMILIES  # noqa: E402


def main() -> None:
    lines = [
        "# Prims",
        "",
        "Written by tools/write_prims_page.py.",
        "",
        "A back end that takes `stoker.decompose.table()` must know these operators of ATen. "
        f"{len(PRIMS)} overloads of {len({p._schema.name for p in PRIMS})} operators remain; "
        f"{len(OURS)} overloads have decompositions of ours. What is in neither list goes to torch's table, "
        "or stays and runs by ATen's kernel.",
    ]
    for family, names in FAMILIES.items():
        lines += [
            "",
            f"## {family[0].upper()}{family[1:]} ({len(names.split())})",
            "",
            ", ".join(f"`{n if '.' in n else f'{n}.default'}`" for n in names.split()),
        ]
    lines += ["", "## Decomposed by us", "", ", ".join(sorted(f"`{op.name().removeprefix('aten::')}`" for op in OURS))]
    page = ROOT / "docs" / "ir" / "prims.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
