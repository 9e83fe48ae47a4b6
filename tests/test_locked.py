"""What `make` installs is locked, with hashes, within two bounds, and its licences are listed.

And what `make quick` leaves out is there to be left out.
"""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCKED = ROOT / "deploy/locked"
EXTRAS = {
    "demo.txt": ("cpu", "serve"),
    "dev.txt": ("lm", "llm", "cpu", "plots", "serve", "demo", "dev"),
}
TORCH = "torch"  # its builds differ; the Makefile says so


def wanted(*extras: str) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    texts = [*project["dependencies"], *(text for extra in extras for text in optional[extra])]
    return [Requirement(text) for text in texts]


def locked(file: str) -> list[Requirement]:
    text = (LOCKED / file).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all("--hash=sha256:" in line for line in lines)
    return [Requirement(re.split(r"\s--hash", line)[0]) for line in lines]


@pytest.mark.parametrize(("file", "extras"), EXTRAS.items())
def test_the_locked_versions_are_those_that_are_asked_for(file, extras) -> None:
    pinned = locked(file)
    for asked in wanted(*extras):
        if asked.name == TORCH:
            continue
        found = [each for each in pinned if each.name == canonicalize_name(asked.name)]
        assert found, f"{asked} is not in {file}: run `make lock`"
        for each in found:
            [only] = each.specifier
            assert asked.specifier.contains(only.version), f"{each}, not {asked}: run `make lock`"


def test_both_files_have_the_same_versions() -> None:
    demo, dev = ({(each.name, str(each.specifier)) for each in locked(file)} for file in EXTRAS)
    assert demo <= dev


def test_every_dependency_has_two_bounds() -> None:
    for asked in wanted("lm", "llm", "cpu", "retrieval", "plots", "serve", "mcp", "demo", "dev"):
        kinds = {each.operator for each in asked.specifier}
        assert kinds == {"=="} or kinds == {">=", "<"}, str(asked)


def test_the_licence_of_each_package_is_listed() -> None:
    page = (ROOT / "docs/licences.md").read_text(encoding="utf-8")
    names = {each.name for each in locked("dev.txt") if each.marker is None} | {TORCH}
    missing = {name for name in names if f"\n| {name} | " not in page}
    assert not missing, "run `python -m tools.make.licences > docs/licences.md`"


def test_what_make_quick_leaves_out_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    [names] = re.findall(r"^LONG := (.*)$", makefile, re.MULTILINE)
    assert [name for name in names.split() if not (ROOT / "tests" / name).exists()] == []
