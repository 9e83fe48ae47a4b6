import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kbqa.engine.cli import COMMANDS, main

KBQA = "from kbqa.engine.cli import main; main(prog_name='kbqa')"
LISTS_MODULES = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))"
HEAVY = {
    "SPARQLWrapper",
    "fastapi",
    "mcp",
    "numpy",
    "openai",
    "polars",
    "pydantic",
    "pyoxigraph",
    "rdflib",
    "torch",
    "transformers",
    "uvicorn",
}


def _complete(*words: str) -> "subprocess.CompletedProcess[str]":
    asked = {
        "_KBQA_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("kbqa", *words)),
        "COMP_CWORD": str(len(words)),
    }
    return subprocess.run(
        [sys.executable, "-c", f"{LISTS_MODULES}\n{KBQA}"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=True,
    )


def _completed(run: "subprocess.CompletedProcess[str]") -> list[str]:
    return [line.partition(",")[2] for line in run.stdout.splitlines()]


def test_tab_after_kbqa_imports_no_command() -> None:
    run = _complete("")
    assert _completed(run) == list(COMMANDS)
    modules = set(run.stderr.split())
    assert not {command.module for command in COMMANDS.values()} & modules
    assert not {name.split(".")[0] for name in modules} & HEAVY


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["--v"], ["--version", "--verbose"]),
        (["re"], ["report", "retrieve", "relations"]),
        (["ask", "--call"], ["--call-budget"]),
        (["ask", "--method", "kn"], ["knowpath"]),
        (["methods", "kn"], ["knowpath"]),
        (["crp", "comp"], ["compile"]),
    ],
    ids=" ".join,
)
def test_tab_completes_commands_and_options_without_heavy_packages(
    words: list[str], completed: list[str]
) -> None:
    run = _complete(*words)
    assert _completed(run) == completed
    assert not {name.split(".")[0] for name in run.stderr.split()} & HEAVY


def test_tab_is_silent_where_the_settings_are_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kbqa.toml").write_text("store = ", encoding="utf-8")
    monkeypatch.setenv("KBQA_STOER", "x")
    run = _complete("ask", "--js")
    assert _completed(run) == ["--json"]
    assert "Warning" not in run.stderr


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("bash", "complete -o nosort -F _kbqa_completion kbqa"),
        ("zsh", "#compdef kbqa"),
        ("fish", "complete --no-files --command kbqa"),
    ],
)
def test_each_shell_has_a_script(shell: str, line: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert any(each.strip().startswith(line) for each in result.stdout.splitlines())


def test_help_shows_no_sign_of_how_its_lines_are_kept() -> None:
    lines = CliRunner().invoke(main, ["completion", "--help"]).stdout.splitlines()
    assert "  kbqa completion zsh > ~/.zfunc/_kbqa    # a folder of your fpath" in lines
    assert not any("\\b" in line for line in lines)


def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    program = tmp_path / "kbqa"
    program.write_text(f"#!{sys.executable}\n{KBQA}\n", encoding="utf-8")
    program.chmod(0o755)
    (tmp_path / "script").write_text(
        CliRunner().invoke(main, ["completion", "bash"]).stdout, encoding="utf-8"
    )
    line = "source script; COMP_WORDS=(kbqa comp); COMP_CWORD=1; _kbqa_completion kbqa"
    run = subprocess.run(
        [bash, "--norc", "-c", f"{line}; echo ${{COMPREPLY[@]}}"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.stdout.split(), run.stderr) == (["compare", "completion"], "")
