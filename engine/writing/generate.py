"""Write CRPs for questions: n candidates each, best first.

`Generator` is the seam: OpenVINO, transformers, vLLM in this process, or a server behind it.
`ModelChoice` says which, and loads it. Here are also the prompt that a model was trained with, and
the files of candidates.

Source: RouterKGQA §3.2, appendix A.1.
"""

import importlib.util
import json
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Protocol, TypeVar

from kbqa.kb.option import Option
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import (
    AnsweringError,
    CrpSyntaxError,
    EndpointDown,
    GraphError,
    InputError,
    KbqaError,
    ModelError,
    PromptTooLong,
)

if TYPE_CHECKING:
    from kbqa.engine.questions.question_sets import Question
    from kbqa.kb.graph import Graph

# How far texts are constrained; `kbqa.engine.writing.steering` says what each means.
DecodingLevel = Literal["none", "schema", "graph"]

DEFAULT_LEVEL: DecodingLevel = "graph"

Source = Literal["writer", "search", "repair", "walk", "given"]
"""Where a candidate comes from: the model wrote it, a search of the graph added it, a repair found
it, it is the way of a walk or of retrieved triples, or a person wrote it."""

DEFAULT_ADAPTER = Path(__file__).parent / "adapter"
DEFAULT_BEAMS = 5
MAX_NEW_TOKENS = 256  # of a text; the published CRPs have under 250

DEFAULT_SEED = 42
TEMPERATURE = 1.0
"""Sampling follows the model's own distribution. A question gets its greedy text and n samples,
which may be equal. Equal seeds give equal texts on one back end, not across them."""

LEAST_LOGPROB = -9999.0  # for one that is no finite number: servers send −∞ and NaN

_Asked = TypeVar("_Asked")
_Written = TypeVar("_Written")


@dataclass(frozen=True, slots=True)
class Request:
    """A question to write CRPs for.

    The path may start from a topic, which has its mid and name; only level ``graph`` uses them.
    """

    question: str
    topics: tuple[Entity, ...] = ()  # best first
    relations: tuple[str, ...] = ()  # suggested to a model that was trained with suggestions

    def __post_init__(self) -> None:
        # No tokenizer or server takes lone surrogates.
        object.__setattr__(self, "question", self.question.encode(errors="replace").decode())


@dataclass(frozen=True, slots=True)
class Candidate:
    """A CRP as it was written or found."""

    text: str  # may not be a CRP at all
    logprob: float  # sum over the tokens, natural log; 0 if not written; always finite
    tokens: int  # end of text included
    topics: tuple[str, ...] = ()  # mids of topics that lead to an answer; only at level `graph`
    source: Source = "writer"
    rank: int = 0  # among the paths that a search found, or that of the path which it narrows
    narrows: bool = False  # the search added a condition, an order or a comparison to a path
    # Of the prompt that it answers; None if not known, as in files of an older kbqa.
    input_tokens: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not math.isfinite(self.logprob):
            object.__setattr__(self, "logprob", LEAST_LOGPROB)

    @property
    def is_searched(self) -> bool:
        """Whether a search found it; a repair is one, too."""
        return self.source in ("search", "repair")


def best_distinct(candidates: Iterable[Candidate], n: int) -> list[Candidate]:
    """Return the best n different texts, by their mean log-probability per token.

    RouterKGQA does so, by Hugging Face's beam search. By the sum, the shorter path without its
    constraints would usually win.

    >>> short, long = Candidate("a", -1.2, 10), Candidate("b", -2.0, 40)
    >>> [candidate.text for candidate in best_distinct([short, long, short], 5)]
    ['b', 'a']
    """
    best: dict[str, Candidate] = {}
    for candidate in sorted(candidates, key=lambda one: -one.logprob / one.tokens):
        best.setdefault(candidate.text, candidate)
    return list(best.values())[:n]


@dataclass(frozen=True, slots=True)
class Progress:
    """Callbacks that follow the writing for several requests, which are numbered from 0.

    The thread that writes calls them between steps of the model, so they must be quick.
    """

    written: Callable[[int, list[Candidate]], object]  # called when candidates are final
    is_wanted: Callable[[int], bool]  # if False, the request gets no candidates


class Generator(Protocol):
    """Writes CRPs."""

    @property
    def name(self) -> str:
        """The model, adapter, revision and level of decoding, for reports."""

    @property
    def suggested_relations(self) -> int:
        """The most relations that its prompts suggest; see `PromptFormat`."""

    def generate(
        self,
        requests: Sequence[Request],
        n: int = DEFAULT_BEAMS,
        *,
        progress: Progress | None = None,
    ) -> list[list[Candidate]]:
        """Write up to n candidates for each request, best first. Threads take turns.

        The requests are one batch. A back end that writes for all at once ignores `progress`.

        Raises:
            ModelError: The model failed.
            GraphError: The graph that constrains decoding does not answer.
            DeadlineExceeded: The deadline passed.
        """

    def over(self, graph: "Graph") -> "Generator":
        """Return it for another graph, which constrains the writing; the model is shared."""


def write_apart(
    generate: Callable[[Sequence[_Asked]], Sequence[_Written]], requests: Sequence[_Asked]
) -> list[_Written | Exception]:
    """Write CRPs for requests together, or one by one if one of them fails.

    The error of one request takes the place of its candidates. An error of all is raised.
    """
    try:
        return list(generate(requests))
    except Exception as error:
        if fails_all(error):
            raise
        if len(requests) == 1:
            return [error]
        return [written for request in requests for written in write_apart(generate, [request])]


def fails_all(error: Exception) -> bool:
    """Return whether an error concerns the graph or the model, and not one request."""
    is_of_model = isinstance(error, ModelError) and not isinstance(error, PromptTooLong)
    return is_of_model or isinstance(error, EndpointDown)


class NoPaths:
    """A generator that writes no paths, for runs without a small model."""

    name = "no small model"
    suggested_relations = 0

    def generate(
        self,
        requests: Sequence[Request],
        n: int = DEFAULT_BEAMS,
        *,
        progress: Progress | None = None,
    ) -> list[list[Candidate]]:
        """Write nothing."""
        return [[] for _ in requests]

    def over(self, graph: "Graph") -> "NoPaths":
        """Return itself."""
        return self


@dataclass(frozen=True, slots=True)
class SavedBeams:
    """A generator for runs whose candidates were all written before."""

    name: str
    suggested_relations: ClassVar[int] = 0

    def generate(
        self,
        requests: Sequence[Request],
        n: int = DEFAULT_BEAMS,
        *,
        progress: Progress | None = None,
    ) -> list[list[Candidate]]:
        """Raise `ModelError` if there is any request."""
        if requests:
            raise ModelError(f"{self.name} holds no paths for {requests[0].question!r}")
        return []

    def over(self, graph: "Graph") -> "SavedBeams":
        """Return itself."""
        return self


Backend = Literal["transformers", "openvino", "vllm", "server"]

BEAM_BACKENDS: tuple[Backend, ...] = ("transformers", "openvino")
"""Those that run kbqa's own beam search, which the graph constrains by default."""

# Files of NVIDIA's driver, of Windows' for Linux and of AMD's, if there is a GPU.
_GPU_DEVICES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


@dataclass(frozen=True, slots=True)
class WeightsChoice:
    """The weights of the small model that the user chose."""

    base: Annotated[
        str | None, Option("Base model instead of the adapter's.", "--model", metavar="MODEL")
    ] = None
    adapter: Annotated[
        Path | None,
        Option(
            "Adapter of `kbqa train-crp` instead of the shipped one.", metavar="DIR", path="folder"
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class ModelChoice(WeightsChoice):
    """The small model that the user chose, not yet loaded."""

    n: Annotated[
        int, Option("Reasoning paths to write for a question.", at_least=1, at_most=50)
    ] = DEFAULT_BEAMS
    decoding: Annotated[
        DecodingLevel | None,
        Option(
            "What constrains the writing: nothing, the graph's relations, or its ways from the "
            f"question's entities.  [default: {DEFAULT_LEVEL}; none under vllm and server]"
        ),
    ] = None
    backend: Annotated[
        Backend | None,
        Option(
            "What runs the small model.  [default: openvino if it is installed and there is no "
            "GPU, else transformers]"
        ),
    ] = None
    server: Annotated[
        str | None, Option("OpenAI-compatible server of the small model.", metavar="URL")
    ] = None
    served_model: Annotated[
        str | None, Option("Its name on --server, if that has several.", metavar="NAME")
    ] = None
    threads: Annotated[
        int | None,
        Option("Threads of the small model.  [default: one a core]", metavar="N", at_least=1),
    ] = None

    @property
    def level(self) -> DecodingLevel:
        """What constrains the writing."""
        if self.decoding is not None:
            return self.decoding
        searches = self.server is None and (self.backend is None or self.backend in BEAM_BACKENDS)
        return DEFAULT_LEVEL if searches else "none"

    @property
    def needs_graph(self) -> bool:
        """Whether the graph constrains what the model writes."""
        return self.level != "none"

    def check(self) -> None:
        """Check that the model can be loaded, which is quick.

        Raises:
            InputError: The server's URL or key is not valid.
            ModelError: The extra that the back end needs, the adapter or the base model is missing.
        """
        from kbqa.engine.writing import checkpoint

        if self.server is not None:
            from kbqa.engine.chat.server import SMALL_MODEL, check_server

            check_server(self.server, SMALL_MODEL)
            return
        base = self.base or checkpoint.adapter_base(self.adapter or DEFAULT_ADAPTER)
        match self.backend or default_backend(base):
            case "transformers":
                checkpoint.require_lm_extra()
            case "openvino":
                checkpoint.require_cpu_extra()
        checkpoint.check_base_model(base)

    def load(self, graph: "Graph | None") -> "Generator":
        """Check the model and load it; the graph is needed only if `needs_graph`."""
        from kbqa.engine.writing.checkpoint import open_adapter
        from kbqa.engine.writing.steering import Decoding

        self.check()
        folder = self.adapter or DEFAULT_ADAPTER
        decoding = Decoding(self.level, graph)
        if self.server is not None:
            from kbqa.engine.writing.server import ServerGenerator

            # The server has the weights; of the folder, only the prompt is needed.
            prompt = load_prompt_format(folder)
            return ServerGenerator(self.server, prompt, self.served_model, decoding)
        adapter = open_adapter(folder, self.base)
        match self.backend or default_backend(adapter.base):
            case "vllm":
                from kbqa.engine.writing.vllm import VllmGenerator

                return VllmGenerator(adapter, decoding)
            case "openvino":
                from kbqa.engine.writing.openvino import OpenVinoGenerator

                return OpenVinoGenerator(adapter, decoding, self.threads)
        from kbqa.engine.writing.transformers import TransformersGenerator

        return TransformersGenerator(adapter, decoding, self.threads)


def default_backend(base: str) -> Backend:
    """Return OpenVINO if it can run a base model and there is no GPU, else transformers."""
    has_torch, has_openvino = (
        importlib.util.find_spec(name) is not None for name in ("torch", "openvino")
    )
    has_gpu = any(Path(device).exists() for device in _GPU_DEVICES)
    if has_torch and (has_gpu or not has_openvino):
        return "transformers"
    return "openvino" if _is_plain_llama(base) else "transformers"


def _is_plain_llama(base: str) -> bool:
    from kbqa.engine.writing.checkpoint import SHIPPED_MODELS
    from kbqa.engine.writing.openvino import LlamaShape

    if base.lower() in SHIPPED_MODELS:  # `write_checkpoint` makes only plain Llamas
        return True
    try:
        config = json.loads((Path(base) / "config.json").read_text(encoding="utf-8"))
        LlamaShape.of(config)
    except (OSError, ValueError, ModelError):  # the check of the model says what is wrong with it
        return False
    return True


class Tokenizer(Protocol):
    """A tokenizer under the names that transformers gives its own."""

    @property
    def eos_token_id(self) -> int:
        """The token that ends a text."""

    @property
    def all_special_ids(self) -> Sequence[int]:
        """The tokens that have no text."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the tokens of a text."""

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Return the text of tokens."""


class SavedTokenizer:
    """A `Tokenizer` from the ``tokenizer.json`` and ``tokenizer_config.json`` of a model."""

    def __init__(self, folder: Path) -> None:
        import tokenizers

        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
            config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
            end = config["eos_token"]
            token = self._tokenizer.token_to_id(end if isinstance(end, str) else end["content"])
        except Exception as error:  # tokenizers raises no narrower one
            raise ModelError(f"the tokenizer in {folder} cannot be read: {error!r}") from error
        if token is None:
            raise ModelError(f"the tokenizer in {folder} has no token {end!r}, which ends texts")
        self.eos_token_id: int = token
        added = self._tokenizer.get_added_tokens_decoder()
        self.all_special_ids = [number for number, token in added.items() if token.special]

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the tokens of a text."""
        return list(self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Return the text of tokens."""
        return self._tokenizer.decode(list(tokens), skip_special_tokens=skip_special_tokens)


PROMPT_FILE = "kbqa_prompt.json"
_SCHEMA_VERSION = 1
_MAX_CHARACTERS = 1000  # The benchmarks' questions have under 200.


@dataclass(frozen=True, slots=True)
class PromptFormat:
    """The prompt that a model was trained with, saved beside the adapter."""

    template: str  # the whole prompt, with {question} where the question goes
    crp_format: str = "routerkgqa"  # the text form of what the model writes
    relations: int = 0  # suggested with a question, at most

    def render(self, question: str, relations: Sequence[str] = ()) -> str:
        """Write the prompt of a question, with white space collapsed and the length limited."""
        text = " ".join(question.split())[:_MAX_CHARACTERS]
        if suggested := " ".join(relations[: self.relations]):
            text += f"\nRelations: {suggested}"
        return self.template.replace("{question}", text)

    def save(self, directory: Path) -> None:
        """Write the format into an adapter's folder."""
        record = {"schema_version": _SCHEMA_VERSION, **asdict(self)}
        (directory / PROMPT_FILE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


# Without the default system turn of SmolLM2's own template: 22 tokens that say nothing.
CHATML = PromptFormat("<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n")
PLAIN = PromptFormat("Question: {question}\nReasoning path:\n")

_LLAMA_3 = (
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{question}<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n"
)
_LLAMA_2 = "<s>[INST] {question} [/INST]"


def prompt_template(vocabulary: Collection[str], chat_template: str, asked: str) -> str:
    """Return a whole prompt: what a model is asked, in the chat form that its tokenizer knows."""
    for mark, form in (("<|im_start|>", CHATML.template), ("<|start_header_id|>", _LLAMA_3)):
        if mark in vocabulary:
            return form.replace("{question}", asked)
    if "[INST]" in chat_template:
        return _LLAMA_2.replace("{question}", asked)
    return PLAIN.template if asked == "{question}" else f"{asked}\n"


def load_prompt_format(directory: Path) -> PromptFormat:
    """Read the format from an adapter's folder."""
    path = directory / PROMPT_FILE
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        template, crp_format = record["template"], record["crp_format"]
        if not isinstance(template, str) or not isinstance(crp_format, str):
            raise TypeError("template and crp_format must be texts")
        relations = record.get("relations", 0)
        if type(relations) is not int or relations < 0:
            raise TypeError("relations must be a whole number, 0 or more")
        return PromptFormat(template, crp_format, relations)
    except FileNotFoundError:
        raise ModelError(
            f"{path} is missing: {directory} is not an adapter made by `kbqa train-crp`. "
            "For another adapter, write that file as docs/model.md describes."
        ) from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read: {error!r}") from None


def written_record(text: str) -> dict[str, str | None]:
    """Record a text that a model wrote under the key of its form, and in the other form.

    That is None if it cannot express the text. An unreadable text is under ``routerkgqa``.
    """
    from kbqa.sparql.forms import is_routerkgqa, read_crp, render_crp, render_routerkgqa

    try:
        crp = read_crp(text).crp
    except CrpSyntaxError:
        return {"crp": None, "routerkgqa": text}
    if is_routerkgqa(text):
        return {"crp": render_crp(crp), "routerkgqa": text}
    return {"crp": text, "routerkgqa": render_routerkgqa(crp)}


def written_text(record: Mapping[str, object]) -> str:
    """Return a record's CRP, if possible in RouterKGQA's form."""
    for key in ("routerkgqa", "crp"):
        if isinstance(text := record.get(key), str):
            return text
    raise TypeError("neither routerkgqa nor crp is a text")


Write = Callable[[Sequence[Request]], Sequence[Sequence[Candidate]]]


def write_beams(
    generate: Write,
    questions: "Sequence[Question]",
    output: Path,
    *,
    source: Path,
    settings: dict[str, object],
    gold_entities: bool,
    batch_size: int,
    report: Callable[[int], object] = lambda done: None,
) -> None:
    """Write a file of candidates, a row for each question.

    A row is ``{"id", "crps": […], "input_tokens", "seconds"}``, and a path is ``{"crp",
    "routerkgqa", "logprob", "tokens", "topics"}``. `input_tokens` are those of the prompt.
    `seconds` is the wall time of the question's batch, divided by its questions. The same call
    again resumes an incomplete file. A manifest beside the file holds the `settings` that decide
    the rows, and the `source` of the questions. With `gold_entities`, the gold topics are given
    with the questions. `report` is called with the number of questions already written, then with
    that of each batch.

    Raises:
        InputError: `output` cannot be written, or holds something else.
        GraphError: The graph failed for some questions; those have no row.
        AnsweringError: Something else did.
    """
    from kbqa.engine.files import claimed, drop_unfinished_line, file_sha256

    settings = {"questions_sha256": file_sha256(source), "gold_entities": gold_entities, **settings}
    with claimed(output, settings, {"questions": str(source)}) as is_begun:
        if is_begun:
            drop_unfinished_line(output)
        written = read_beams(output) if is_begun else {}
        report(len(written))
        # Questions of similar length share a batch: padding is wasted work.
        unwritten = sorted(
            (question for question in questions if question.id not in written),
            key=lambda question: len(question.text),
        )
        failed: dict[str, Exception] = {}
        with output.open("a", encoding="utf-8") as rows:
            for at in range(0, len(unwritten), batch_size):
                batch = unwritten[at : at + batch_size]
                requests = [Request(q.text, q.topics if gold_entities else ()) for q in batch]
                begun = time.perf_counter()
                written_now = write_apart(generate, requests)
                seconds = (time.perf_counter() - begun) / len(batch)
                for question, candidates in zip(batch, written_now, strict=True):
                    if isinstance(candidates, Exception):
                        failed[question.id] = candidates
                    else:
                        rows.write(_line(question.id, candidates, seconds))
                rows.flush()
                report(len(batch))
        if failed:
            first, error = next(iter(failed.items()))
            is_graph = all(isinstance(each, GraphError) for each in failed.values())
            said = str(error) if isinstance(error, KbqaError) else repr(error)
            raise (GraphError if is_graph else AnsweringError)(
                f"{'the graph' if is_graph else 'writing'} failed for {len(failed)} of "
                f"{len(questions)} questions, and nothing was written for these (the first is "
                f"{first}: {said}). Run the same command to try them again."
            )


def read_beams(path: Path) -> dict[str, list[Candidate]]:
    """Read the candidates that `kbqa crp generate` wrote."""
    from kbqa.engine.files import read_rows

    beams = {}
    for number, row in read_rows(path):
        try:
            beams[str(row["id"])] = [
                Candidate(
                    written_text(crp),
                    float(crp["logprob"]),
                    int(crp.get("tokens", 1)),
                    tuple(map(str, crp.get("topics", ()))),
                    input_tokens=None if (read := row.get("input_tokens")) is None else int(read),
                )
                for crp in row["crps"]
            ]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}, line {number}: not a row of beams ({error!r})") from None
    return beams


def _line(id_: str, candidates: Sequence[Candidate], seconds: float) -> str:
    crps = [
        {
            **written_record(candidate.text),
            "logprob": round(candidate.logprob, 4),
            "tokens": candidate.tokens,
            "topics": candidate.topics,
        }
        for candidate in candidates
    ]
    row: dict[str, object] = {"id": id_, "crps": crps}
    if candidates and (read := candidates[0].input_tokens) is not None:
        row["input_tokens"] = read
    row["seconds"] = round(seconds, 4)
    return json.dumps(row, ensure_ascii=False) + "\n"
