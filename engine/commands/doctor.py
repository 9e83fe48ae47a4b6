"""The command `kbqa doctor`: check the graph, the models and the machine, without loading them."""

import importlib.util
import json
import os
import platform
import re
import resource
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import click

from kbqa.engine.commands.options import INPUT_FILE, weights_options
from kbqa.engine.evaluation.scores import normalise_answer
from kbqa.engine.questions.question_sets import (
    gold_answers,
    parse_answers,
    read_question_rows,
    record_problem,
    scored_parses,
    topic_entities,
)
from kbqa.engine.running.judge import ASKER_FOLDER, SHIPPED_JUDGE
from kbqa.engine.writing.checkpoint import (
    adapter_base,
    check_base_model,
    model_folder,
    open_adapter,
    require_cpu_extra,
    require_lm_extra,
    shipped_files,
    tensor_shapes,
    why_peft,
)
from kbqa.engine.writing.generate import DEFAULT_ADAPTER, WeightsChoice, default_backend
from kbqa.kb.commands.options import (
    GraphChoice,
    graph_options,
    json_option,
    print_json,
    print_result,
)
from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph
from kbqa.kb.health import Finding, from_error, ok, problem, warning
from kbqa.kb.layout import StoreLayout
from kbqa.kb.open import cache_directory
from kbqa.kb.schema import present_entities, present_relations, present_texts
from kbqa.sparql.dialect import query_mentions
from kbqa.sparql.errors import GraphError, InputError, KbqaError, ModelError
from kbqa.sparql.terms import is_mid

_LOW_DISK_BYTES = 1_000_000_000
_RUNTIME_BYTES = 1_500_000_000
"""Memory that Python, torch and the store's caches use in addition to the model."""

_OPEN_FILES = 8192
_REQUIREMENT = re.compile(r"[\w.\-]+")
_EXTRA = re.compile(r"""extra == ["']([\w\-]+)["']""")
_EXTRA_FOR_DEVELOPERS = "dev"
# The name that transformers uses in all families of causal models with rotary embeddings.
_QUERY_WEIGHTS = re.compile(r"\blayers\.(\d+)\.self_attn\.q_proj\.lora_A\b")
_UNPACKED = 6
"""Bytes of a weight in float32, as a multiple of its bytes in the shipped 4-bit file."""

_MOST_FREQUENT = 10
"""Maximum number of missing relations and entities in a report."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What one parse of a question needs; answers are mids and literals' texts."""

    relations: frozenset[str]
    answers: frozenset[str]


@dataclass(frozen=True, slots=True)
class QuestionNeeds:
    """What a question needs."""

    topics: frozenset[str]  # or the entities of its gold query, if the set has no topics
    parses: tuple[Needs, ...]  # of each that can be read
    unreadable: int  # gold queries that cannot be read


@dataclass(frozen=True, slots=True)
class Share:
    """How many of `n` are present."""

    present: int
    n: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a question set a graph has.

    Topics, relations and answers are counted once each. Needs of gold queries that cannot be read
    are not counted.
    """

    questions: str  # the file
    n: int
    unreadable: int  # gold queries
    topics: Share
    relations: Share
    answers: Share
    covered: Share  # questions, among those with a gold query that can be read
    missing_topics: tuple[tuple[str, int], ...]  # and how many questions need each; most first
    missing_relations: tuple[tuple[str, int], ...]

    @property
    def is_complete(self) -> bool:
        """Whether the graph has everything."""
        return all(one.present == one.n for one in (self.topics, self.relations, self.answers))


@click.command()
@graph_options
@weights_options
@click.option(
    "--questions",
    "files",
    type=INPUT_FILE,
    multiple=True,
    metavar="FILE",
    help="Also measure how much of this question set the graph has; repeatable.",
)
@json_option
def doctor(
    graph: GraphChoice, weights: WeightsChoice, files: tuple[Path, ...], as_json: bool
) -> None:
    """Check the graph, the models and the machine, and suggest fixes.

    The exit code is 1 if there is a problem; warnings do not count. For question sets, in our form
    or the official files of WebQSP and ComplexWebQuestions, a table shows how many of their topic
    entities, relations and gold answers the graph has.
    """
    if graph.store is not None and graph.endpoints:
        raise InputError("choose either --store or --endpoint")
    findings = list(_check_graph(graph))
    measured: dict[Finding, Coverage] = {}
    try:
        measured = dict(_measure(graph, files)) if files else {}
        findings += measured
    except GraphError as error:
        findings.append(from_error("coverage", error))
    findings += check_models(weights.base, weights.adapter)
    findings += check_machine(graph.store, model_memory_bytes(weights.base, weights.adapter))
    if as_json:
        rows = [
            asdict(finding)
            | ({"coverage": asdict(measured[finding])} if finding in measured else {})
            for finding in findings
        ]
        print_json(rows, indent=1)
    else:
        print_result("\n".join([*_lines(findings), *_table(measured.values()), _sum(findings)]))
    if any(finding.status == "problem" for finding in findings):
        raise SystemExit(1)


def _check_graph(graph: GraphChoice) -> Iterator[Finding]:
    if graph.endpoints:
        from kbqa.kb.health import check_endpoints

        yield from check_endpoints(graph.endpoints, graph.timeout_s)
        return
    from kbqa.kb.health import check_store
    from kbqa.kb.open import demo_store_directory

    try:
        store = demo_store_directory() if graph.store is None else graph.store
    except (KbqaError, OSError) as error:
        advice = "Set KBQA_CACHE to a writable folder, or choose a graph with --store."
        yield Finding("store", "problem", f"the demo graph cannot be built: {error}", advice)
        return
    yield from check_store(store, graph.timeout_s)


def _measure(graph: GraphChoice, files: Iterable[Path]) -> Iterator[tuple[Finding, Coverage]]:
    with closing(graph.open()) as opened:
        for path in files:
            coverage = measure_coverage(opened, path, graph.timeout_s)
            share = coverage.covered
            covered = f"{path}: {share.present:,} of {share.n:,} questions are covered"
            advice = "Questions with missing parts may get no answer. Load a more complete dump."
            is_complete = coverage.is_complete
            yield (
                ok("coverage", covered) if is_complete else warning("coverage", covered, advice),
                coverage,
            )


def _lines(findings: Sequence[Finding]) -> Iterator[str]:
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        yield f"{finding.status:<7}  {finding.check:<{width}}  {finding.finding}"
        if finding.advice:
            yield f"{'':<{width + 9}}  → {finding.advice}"


def _table(coverages: Collection[Coverage]) -> Iterator[str]:
    if not coverages:
        return
    heads = ("questions", "n", "covered", "topic entities", "relations", "answers", "unreadable")
    rows: list[tuple[str, ...]] = [heads]
    for coverage in coverages:
        shares = (coverage.covered, coverage.topics, coverage.relations, coverage.answers)
        cells = [f"{share.present:,}/{share.n:,}" for share in shares]
        name = Path(coverage.questions).name
        rows.append((name, f"{coverage.n:,}", *cells, f"{coverage.unreadable:,}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield ""
    for name, *cells in rows:
        padded = [f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True)]
        yield "  ".join([f"{name:<{widths[0]}}", *padded])
    for coverage in coverages:
        for kind, missing in (
            ("relations", coverage.missing_relations),
            ("topic entities", coverage.missing_topics),
        ):
            if missing:
                listed = ", ".join(f"{item} ({count:,})" for item, count in missing)
                yield f"missing {kind} of {Path(coverage.questions).name}: {listed}"
    yield ""


def _sum(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.status for finding in findings)
    found = [(counts[status], status) for status in ("problem", "warning") if counts[status]]
    return ", ".join(f"{n} {status}{'s' * (n > 1)}" for n, status in found) or "no problems found"


def check_machine(store: Path | None, model_bytes: int) -> Iterator[Finding]:
    """Check the machine, for a store and for a model of so much memory (0 if unknown)."""
    yield from _check_packages()
    folders = {"cache": cache_directory()} | ({} if store is None else {"store": store})
    for name, folder in folders.items():
        yield _check_disk(name, folder)
    yield _check_memory(model_bytes)
    if store is not None:
        yield _check_open_files(store)


def _check_packages() -> Iterator[Finding]:
    missing: dict[str, list[str]] = {}
    extras: dict[str, None] = {}
    for requirement in requires("kbqa") or ():
        found = _EXTRA.search(requirement)
        extra = found[1] if found else ""
        if extra == _EXTRA_FOR_DEVELOPERS:
            continue
        extras[extra] = None
        name = _REQUIREMENT.match(requirement)
        if name is not None and not _is_installed(name[0]):
            missing.setdefault(extra, []).append(name[0])
    here = f"kbqa {version('kbqa')} on Python {platform.python_version()}"
    if lacking := missing.get(""):
        advice = "Reinstall kbqa: pip install --force-reinstall kbqa"
        yield problem("packages", f"{here}, without the required {', '.join(lacking)}", advice)
    else:
        yield ok("packages", here)
    whole = ", ".join(extra for extra in extras if extra and extra not in missing)
    absent = ", ".join(extra for extra in extras if extra and extra in missing)
    yield ok("extras", f"installed: {whole or 'none'}; not installed: {absent or 'none'}")


def _is_installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return importlib.util.find_spec(distribution.replace("-", "_")) is not None
    return True


def _check_disk(name: str, folder: Path) -> Finding:
    whole = folder.absolute()
    existing = next(path for path in (whole, *whole.parents) if path.exists())
    free_bytes = shutil.disk_usage(existing).free
    finding = f"{_gigabytes(free_bytes)} free for the {name} in {folder}"
    if not os.access(existing, os.W_OK) and name == "cache":
        return problem("disk", f"{folder} is not writable", "Set KBQA_CACHE to another folder.")
    if free_bytes < _LOW_DISK_BYTES:
        return warning("disk", finding, f"Free some space, or move the {name} to another disk.")
    return ok("disk", finding)


def _check_memory(model_bytes: int) -> Finding:
    available = available_memory_bytes()
    wanted = model_bytes + _RUNTIME_BYTES
    finding = f"{_gigabytes(available)} free; answering needs about {_gigabytes(wanted)}"
    if available < wanted:
        return warning("memory", finding, "Close other programs, or use a smaller --model.")
    return ok("memory", finding)


def available_memory_bytes() -> int:
    """Return how much memory a new process can use without swapping."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(), re.MULTILINE)
        limits += [int(found[1]) * 1024] if found else []
    # The container's own limit, if it has one (cgroup v2).
    limit, used = (Path("/sys/fs/cgroup", name) for name in ("memory.max", "memory.current"))
    if limit.is_file() and used.is_file() and (most := limit.read_text().strip()).isdigit():
        limits.append(int(most) - int(used.read_text()))
    return max(min(limits), 0)


def _check_open_files(store: Path) -> Finding:
    """RocksDB keeps every file of a store open, in each process that reads it."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = len(list(StoreLayout(store).graph.glob("*.sst")))
    if soft == resource.RLIM_INFINITY:
        return ok("open files", f"the store has {files:,} files, and there is no limit")
    finding = f"the store has {files:,} files; the limit is {soft:,}"
    if soft < _OPEN_FILES and files > soft / 4:
        return warning("open files", finding, f"Raise the limit: `ulimit -n {_OPEN_FILES}`.")
    return ok("open files", finding)


def _gigabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:,.1f} GB"


def check_models(base: str | None = None, adapter: Path | None = None) -> Iterator[Finding]:
    """Check everything that `kbqa ask` loads: the shipped adapter and its base, unless given."""
    adapter = adapter or DEFAULT_ADAPTER
    try:
        opened = open_adapter(adapter)
        by_peft = why_peft(opened)
        if by_peft:
            require_lm_extra(opened)
    except ModelError as error:
        yield from_error("adapter", error, "Give a folder that `kbqa train-crp` wrote.")
        return
    trained_on, revision = opened.base, opened.revision
    name = base or trained_on
    yield _check_backend(name)
    yield _check_base(name)
    misfit = _misfit(adapter, name)
    if misfit:
        yield problem(
            "adapter", f"{adapter} does not fit {name}: {misfit}", f"Use --model {trained_on}."
        )
    elif name != trained_on:
        yield warning(
            "adapter",
            f"{adapter} was trained on {trained_on}, not on {name}",
            f"Use --model {trained_on}, unless both names mean the same model.",
        )
    else:
        merged = f"; PEFT merges it, since {by_peft}" if by_peft else ""
        yield ok("adapter", f"{revision} in {adapter}, trained on {trained_on}{merged}")


def model_memory_bytes(base: str | None = None, adapter: Path | None = None) -> int:
    """Estimate the memory of the base model and the judge's asker in float32.

    A model whose weights are not here counts as nothing.
    """
    try:
        written_by = base or adapter_base(adapter or DEFAULT_ADAPTER)
        return sum(map(_memory_bytes, (written_by, adapter_base(SHIPPED_JUDGE / ASKER_FOLDER))))
    except ModelError:
        return 0


def _memory_bytes(name: str) -> int:
    directory = _weights_directory(name)
    if directory is None:
        shipped = shipped_files(name)
        return 0 if shipped is None else _UNPACKED * shipped.gguf.stat().st_size
    weights = [*directory.glob("model*.safetensors"), *directory.glob("pytorch_model*.bin")]
    return 2 * sum(path.stat().st_size for path in weights)


def _check_backend(base: str) -> Finding:
    try:
        if default_backend(base) == "openvino":
            require_cpu_extra()
            return ok("runtime", f"openvino {version('openvino')}")
        require_lm_extra()
    except ModelError as error:
        return from_error("runtime", error)
    return ok("runtime", f"torch {version('torch')}, transformers {version('transformers')}")


def _check_base(name: str) -> Finding:
    try:
        if (shipped := shipped_files(name)) is not None:
            if shipped.checkpoint.is_dir():
                return ok("base model", f"{name} is ready")
            return ok("base model", f"{name} is included and will be converted at first use")
        check_base_model(name, ask_hub=False)
        if model_folder(name) is None:
            return warning(
                "base model",
                f"{name} is not on this machine and will be downloaded at first use",
                f"To download it now: `hf download {name}`.",
            )
    except ModelError as error:
        advice = "Give --model a Hugging Face id, or a folder with config.json and weights."
        return from_error("base model", error, advice)
    return ok("base model", f"{name} is on this machine")


def _weights_directory(name: str) -> Path | None:
    if (shipped := shipped_files(name)) is not None:
        return shipped.checkpoint if shipped.checkpoint.is_dir() else None
    return model_folder(name)


def _misfit(adapter: Path, name: str) -> str:
    """Describe how an adapter's shape differs from the base model's; empty if not known to."""
    weights = adapter / "adapter_model.safetensors"
    try:
        directory = _weights_directory(name)
        if directory is None or not weights.is_file():
            return ""
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        tensors = tensor_shapes(weights)
    except ModelError:
        return ""
    except (OSError, ValueError) as error:
        return f"the model's config.json cannot be read ({error})"
    shapes = {
        int(found[1]): shape
        for key, shape in tensors.items()
        if (found := _QUERY_WEIGHTS.search(key))
    }
    if not shapes:
        return ""
    layers, width = max(shapes) + 1, shapes[0][1]
    wanted_layers, wanted_width = config.get("num_hidden_layers"), config.get("hidden_size")
    if (layers, width) == (wanted_layers, wanted_width):
        return ""
    return (
        f"it was made for {layers} layers of width {width}, "
        f"and the model has {wanted_layers} of {wanted_width}"
    )


def measure_coverage(graph: Graph, path: Path, timeout_s: float = DEFAULT_TIMEOUT_S) -> Coverage:
    """Look up how much of what a question set, ours or official, needs is in a graph.

    A question is covered if the graph has its topic entities and, for one of its parses, every
    relation of the gold query and every gold answer. It may still have no answer there: the parts
    may be present but not connected.
    """
    questions = list(read_needs(path))
    topics = _union(question.topics for question in questions)
    parses = [parse for question in questions for parse in question.parses]
    relations = _union(parse.relations for parse in parses)
    answers = _union(parse.answers for parse in parses)
    mids = {answer for answer in answers if is_mid(answer)}
    held_entities = present_entities(graph, topics | mids, timeout_s)
    held_relations = present_relations(graph, relations, timeout_s)
    held_answers = (mids & held_entities) | present_texts(graph, answers - mids, timeout_s)
    judged = [question for question in questions if question.parses]
    return Coverage(
        questions=str(path),
        n=len(questions),
        unreadable=sum(question.unreadable for question in questions),
        topics=Share(len(topics & held_entities), len(topics)),
        relations=Share(len(relations & held_relations), len(relations)),
        answers=Share(len(answers & held_answers), len(answers)),
        covered=Share(
            sum(
                question.topics <= held_entities
                and any(
                    parse.relations <= held_relations and parse.answers <= held_answers
                    for parse in question.parses
                )
                for question in judged
            ),
            len(judged),
        ),
        missing_topics=_most_frequent(
            (question.topics for question in questions), topics - held_entities
        ),
        missing_relations=_most_frequent(
            (_union(parse.relations for parse in question.parses) for question in questions),
            relations - held_relations,
        ),
    )


def read_needs(path: Path) -> Iterator[QuestionNeeds]:
    """Read what each question of a set needs."""
    is_empty = True
    for number, row in read_question_rows(path):
        is_empty = False
        try:
            yield _needs(row)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path}, line {number}: {record_problem(error)}") from None
    if is_empty:
        raise InputError(f"{path} has no questions")


def _needs(row: Mapping[str, Any]) -> QuestionNeeds:
    entities: set[str] = set()
    parses: list[Needs] = []
    golds = list(_golds(row))
    for query, answers in golds:
        try:
            mentions = query_mentions(query)
        except InputError:
            continue
        entities |= mentions.entities
        parses.append(Needs(mentions.relations, frozenset(map(normalise_answer, answers))))
    topics = {entity.mid for entity in topic_entities(row) if entity.mid is not None}
    return QuestionNeeds(frozenset(topics or entities), tuple(parses), len(golds) - len(parses))


def _golds(row: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield the gold queries with their answers: for WebQSP, one for each parse that counts."""
    if "parses" in row:
        for parse in scored_parses(row):
            if not isinstance(query := parse.get("Sparql"), str):
                raise TypeError('the "Sparql" of a parse is not a text')
            yield query, parse_answers(parse)
    elif query := row.get("sparql"):
        if not isinstance(query, str):
            raise TypeError('"sparql" is not a text')
        yield query, gold_answers(row)


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*sets)


def _most_frequent(
    needed: Iterable[frozenset[str]], missing: frozenset[str]
) -> tuple[tuple[str, int], ...]:
    counts = Counter(item for items in needed for item in items & missing)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(ranked[:_MOST_FREQUENT])
