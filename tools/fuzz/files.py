"""Fuzz every file that kbqa writes and reads again: cut at any place, and with bytes changed.

A file that was cut must be refused, or mean what it meant before; one made of rows may also hold
fewer of them. A file with other bytes may mean something else, as few formats have checksums, but
must be read or refused. The files are those of a store and of a load; of runs, caches, models,
settings and question sets; and of training: states of runs, logs, and prepared examples.
"""

import importlib.util
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import click
import numpy as np

from kbqa.engine.chat.cache import CachedChat
from kbqa.engine.chat.model import Message, Reply, Usage
from kbqa.engine.cli import check_config, command_defaults, main, read_config
from kbqa.engine.engine import Engine
from kbqa.engine.evaluation.evaluate import EvaluationConfig, evaluate, record_beams
from kbqa.engine.evaluation.report import make_report
from kbqa.engine.evaluation.rows import flatten_manifest, read_retrieval_row, read_run
from kbqa.engine.files import TextCache, manifest_path, read_rows
from kbqa.engine.linking.mentions import LinkingModel
from kbqa.engine.questions.question_sets import read_questions
from kbqa.engine.retrieval.retriever import SHIPPED_SCORER, load_scorer
from kbqa.engine.running.tried import SHIPPED_CONFIDENCE, ConfidenceModel
from kbqa.engine.serve.guard import ApiKeys
from kbqa.engine.writing.checkpoint import adapter_config
from kbqa.engine.writing.generate import (
    CHATML,
    PROMPT_FILE,
    SavedBeams,
    load_prompt_format,
    read_beams,
    write_beams,
)
from kbqa.kb.graph import Graph, Schema
from kbqa.kb.layout import LineCounts, StoreLayout, check_manifest, read_manifest
from kbqa.kb.loading.checkpoint import Checkpoint, Plan, Position, ReadDump, read_checkpoint
from kbqa.kb.loading.rules import profile, read_rules
from kbqa.kb.names import NameIndex
from kbqa.kb.open import open_graph
from kbqa.kb.store import Statistics
from kbqa.training.judge.learning import read_judged, read_texts
from kbqa.training.retriever.examples import Labelled, load_labelled, load_names, save_labelled
from kbqa.training.run import LOG_FILE, RunFolder
from tools.fuzz.mutation import cuts, mutated_bytes, mutated_json_text
from tools.fuzz.seeds import QUESTIONS, WRITTEN, ScriptedWriter, small_store
from tools.fuzz.trying import Outcome, Try, Wrong, reported


@dataclass
class Format:
    """A kind of file, with one example of it."""

    name: str  # for reports
    file: Path  # the example
    read: Callable[[], object]  # as kbqa does; None if what it holds may be anything
    is_rows: bool = False  # a list of rows, which may be shorter; `read` returns it as a list
    is_text: bool = True  # JSON, JSON Lines or TOML
    content: bytes = b""  # of the whole file
    whole: object = None  # what this holds


@contextmanager
def files(folder: Path) -> Iterator[Try]:
    """Files of every format, damaged by chance."""
    with _open_formats(folder) as formats:

        def try_one(random: Random) -> None:
            each = random.choice(formats)
            if random.random() < 0.5:
                _try_cut(each, random.choice(cuts(len(each.content))))
            elif random.random() < 0.5 and each.is_text:
                _read(each, mutated_json_text(random, each.content.decode()))
            else:
                _read(each, mutated_bytes(random, each.content))

        yield try_one


def cut_everywhere(folder: Path) -> Outcome:
    """Cut each file at each byte up to 64 kB and at a thousand places above."""
    outcome = Outcome("every cut")
    folder.mkdir(parents=True)
    with _open_formats(folder) as formats:
        for each in formats:
            for at in cuts(len(each.content)):
                outcome.note(f"{each.name}, byte {at}", partial(_try_cut, each, at))
    return outcome


@contextmanager
def _open_formats(folder: Path) -> Iterator[list[Format]]:
    with ExitStack() as stack:
        formats = []
        for make in (graph_files, engine_files, training_files):
            below = folder / make.__name__
            below.mkdir()
            formats += stack.enter_context(make(below))
        for each in formats:
            each.content, each.whole = each.file.read_bytes(), each.read()
        yield formats


def _try_cut(each: Format, at: int) -> None:
    found, whole = _read(each, each.content[:at]), each.whole
    if each.is_rows and isinstance(found, list) and isinstance(whole, list):
        whole = whole[: len(found)]
    if found not in (None, whole):
        raise Wrong(f"{each.name}, cut at byte {at} of {len(each.content)}, is read otherwise")


def _read(each: Format, content: bytes) -> object | None:
    """Read a file with other content; None if it is refused."""
    each.file.write_bytes(content)
    try:
        with reported(f"{each.name} as {content[:3000]!r}"):
            return each.read()
        return None
    finally:
        for beside in ("-journal", "-wal", "-shm"):  # SQLite's
            each.file.with_name(each.file.name + beside).unlink(missing_ok=True)
        each.file.write_bytes(each.content)


@contextmanager
def graph_files(folder: Path) -> Iterator[list[Format]]:
    """Files of a store, the state of a load, and rules."""
    layout = StoreLayout(small_store(folder))
    state, rules = folder / "checkpoint.json", folder / "rules.toml"
    Checkpoint(
        Plan("store", (("/data/a.gz", "1"), ("/data/b.gz", "2")), "languages = []", (("a", "1"),)),
        500,
        Position(1, 200, 10),
        LineCounts(900, 800, {"language": 100}, {}, {"escape": 1}),
        Counter({"a.b": 3}),
        Counter({"t.u": 1}),
        shards=2,
        unloaded={1: 300},
        triples_loaded=500,
        dumps=[ReadDump("ab" * 32, 10)],
    ).save(state)
    rules.write_text(profile("qa").to_toml(), encoding="utf-8")

    def read_manifests() -> object:
        return check_manifest(layout.directory), read_manifest(layout.directory)

    def read_schema() -> object:
        schema = Schema.open(layout.schema)
        return dict(schema.properties), schema.mediators

    def search_names() -> object:
        with closing(NameIndex.open(layout.names)) as names:
            near = names.near("jamaicca"), names.containing("bieber"), names.search("ja")
            return names.lookup("Jamaica"), near, names.match_spans(("money", "of", "jamaica"))

    def read_counts() -> object:
        with closing(Statistics.open(layout.statistics)) as statistics:
            counts = dict(statistics.relations()), dict(statistics.types())
            return counts, statistics.hub_relations("m.0hub", "out", 9)

    yield [
        Format("manifest of a store", layout.manifest, read_manifests),
        Format("schema", layout.schema, read_schema),
        Format("names", layout.names, search_names, is_text=False),
        Format("statistics", layout.statistics, read_counts, is_text=False),
        Format("state of a load", state, lambda: read_checkpoint(state)),
        Format("rules", rules, lambda: _ignored(read_rules(rules))),
    ]


def _ignored(_: object) -> None:
    """Return nothing to compare: most beginnings of TOML, say, are TOML too."""


_CONFIG = """store = "/data/freebase"
timeout = 5

[ask]
set = ["search=no"]

[crp.run]
timeout = 7
"""
_KEYS = f'[alice]\nsha256 = "{"ab" * 32}"\nrequests_a_minute = 60\n'


@contextmanager
def engine_files(folder: Path) -> Iterator[list[Format]]:
    """Files of runs, caches, models and settings, and question sets."""
    with closing(open_graph(small_store(folder))) as graph:
        yield [
            *_runs(folder, graph),
            *_caches(folder),
            *_models(folder),
            *_settings(folder),
            *_question_sets(folder),
        ]


def _runs(folder: Path, graph: Graph) -> list[Format]:
    source, beams, run = (folder / f"{name}.jsonl" for name in ("questions", "beams", "run"))
    rows = [{"id": str(n), "question": q, "answers": ["m.04xc2m"]} for n, q in enumerate(QUESTIONS)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    asked = read_questions(source)
    writer = ScriptedWriter(*WRITTEN[:3])
    write_beams(
        writer.generate, asked, beams, source=source, settings={}, gold_entities=False, batch_size=2
    )

    def resume() -> object:
        with Engine(graph, SavedBeams("beams"), settings={"judge": "confidence"}) as engine:
            config = EvaluationConfig(timings=False)
            return evaluate(engine, asked, run, config, beams=read_beams(beams))

    def read_rows_of_run() -> object:
        recorded = read_run(run)
        make_report(recorded).to_dict()
        return list(recorded.rows)

    def report() -> object:
        recorded = read_run(run)
        flatten_manifest(recorded.manifest)
        return make_report(recorded).to_dict()

    def read_retrieved() -> object:
        return [read_retrieval_row(row, f"line {number}") for number, row in read_rows(retrieved)]

    resume()
    retrieved = folder / "retrieved.jsonl"
    triple = {"subject": "m.0a", "relation": "a.b", "object": "m.0c", "score": 0.5, "pooled": None}
    row = {"schema_version": 1, "question": "a?", "topics": ["m.0a"], "triples": [triple]}
    lines = [json.dumps({**row, "id": str(n), "error": None}) + "\n" for n in range(3)]
    retrieved.write_text("".join(lines), encoding="utf-8")
    manifest = manifest_path(run)
    return [
        Format("question set", source, lambda: read_questions(source), is_rows=True),
        Format("beams", beams, lambda: list(read_beams(beams).items()), is_rows=True),
        Format("manifest of beams", manifest_path(beams), lambda: record_beams(beams)),
        Format("run, read", run, read_rows_of_run, is_rows=True),
        Format("run, resumed", run, resume),
        Format("manifest of a run, read", manifest, report),
        Format("manifest of a run, resumed", manifest, resume),
        Format("retrieved triples", retrieved, read_retrieved, is_rows=True),
    ]


class _Chat:
    """A general model that always says the same."""

    name = "chat"

    def complete(self, messages: object, **_: object) -> Reply:
        return Reply("yes", Usage(calls=1, input_tokens=3, output_tokens=1))


def _caches(folder: Path) -> list[Format]:
    replies, texts = folder / "chat", folder / "texts.sqlite"

    def ask() -> object:
        chat = CachedChat(_Chat(), {"model": "chat"}, directory=replies)
        reply = chat.complete([Message("user", "is it?")])
        return reply.text, reply.usage.input_tokens

    def look_up() -> object:
        cache = TextCache(texts, "texts")
        known = cache.read(["a", "b"])
        cache.write({text: text.encode() for text in ("a", "b") if text not in known})
        return {**{text: text.encode() for text in ("a", "b")}, **known}

    ask()
    look_up()
    (reply,) = replies.rglob("*.json")
    return [
        Format("cached reply", reply, ask),
        Format("cache of texts", texts, look_up, is_text=False),
    ]


def _models(folder: Path) -> list[Format]:
    linking, confidence = folder / "linking.json", folder / "confidence.json"
    LinkingModel(
        names={"kenya": 2.5, "born": -3.0},
        types={"people.person": {"born": 1.5, "capital": -1.0}},
        relations={"location.country.capital": 0.5},
        asking={"capital": {"location.country.capital": 3.0}},
        first={"words": 1.25},
        final={"words": 0.5, "before:of": -0.1},
    ).save(linking)
    shutil.copy(SHIPPED_CONFIDENCE, confidence)
    scorer = folder / "scorer.json"
    weights = scorer.with_suffix(".safetensors")
    shutil.copy(SHIPPED_SCORER, scorer)
    shutil.copy(SHIPPED_SCORER.with_suffix(".safetensors"), weights)
    CHATML.save(folder)
    adapter = folder / "adapter_config.json"
    adapter.write_text(
        json.dumps({"base_model_name_or_path": "base", "r": 8, "peft_type": "LORA"}), "utf-8"
    )

    def link() -> object:
        model, words = LinkingModel.load(linking), {"capital", "born"}
        return model, model.asked_relations(words), model.type_agreement(["people.person"], words)

    def judge() -> object:
        model = ConfidenceModel.load(confidence)
        return model, model.confidence({"share": 1.0, "hops": 2.0}), model.digest()

    def score() -> object:
        loaded, card = load_scorer(scorer)
        return card, loaded.size

    return [
        Format("linking model", linking, link),
        Format("confidence model", confidence, judge),
        Format("card of a scorer", scorer, score),
        Format("weights of a scorer", weights, score, is_text=False),
        Format("prompt", folder / PROMPT_FILE, lambda: load_prompt_format(folder).render("a?")),
        Format("adapter's settings", adapter, lambda: adapter_config(folder)),
    ]


def _settings(folder: Path) -> list[Format]:
    config, keys = folder / "kbqa.toml", folder / "keys.toml"
    config.write_text(_CONFIG, encoding="utf-8")
    keys.write_text(_KEYS, encoding="utf-8")

    def configure() -> None:
        read = read_config(config)
        context = click.Context(main)
        check_config(read, partial(main.get_command, context))
        command_defaults(read, main.get_command(context, "ask") or main, "ask")

    def read_keys() -> None:
        ApiKeys.read(keys).owner("key")

    return [Format("kbqa.toml", config, configure), Format("API keys", keys, read_keys)]


_QUESTION_SETS = {
    "WebQSP.json": """{"Questions": [{"QuestionId": "W", "RawQuestion": "a?", "Parses": [{
        "TopicEntityMid": "m.0t", "TopicEntityName": "T",
        "Sparql": "SELECT ?x { ns:m.0t ns:a.b ?x }",
        "AnnotatorComment": {"QuestionQuality": "Good", "ParseQuality": "Complete"},
        "Constraints": [{"ArgumentType": "Entity", "Argument": "m.0c", "EntityName": "C"}],
        "Answers": [{"AnswerArgument": "m.1", "EntityName": "A"}]}]}]}""",
    "ComplexWebQuestions.json": """[{"ID": "c", "question": "b?",
        "sparql": "SELECT ?x { ?x ns:a.b ns:m.0t }", "compositionality_type": "conjunction",
        "answers": [{"answer_id": "m.2", "answer": "B"}]}]""",
    "GrailQA.json": """[{"qid": 2101, "question": "d?", "level": "zero-shot", "function": "none",
        "sparql_query": "SELECT ?x { ?x ns:a.b ns:m.0t }", "s_expression": "(JOIN a.b m.0t)",
        "graph_query": {"nodes": [{"node_type": "entity", "id": "m.0t"}]},
        "answer": [{"answer_argument": "m.3", "entity_name": "D"}]}]""",
    "Free917.json": """[{"utterance": "e?", "targetFormula": "(!fb:a.b fb:en.t)"}]""",
    "RouterKGQA.json": r"""[{"instruction": "", "input": "Question:{f?}",
        "output": "Main Path:\n A -[a , b]-> ?x"}]""",
}


def _question_sets(folder: Path) -> list[Format]:
    formats = []
    for name, content in _QUESTION_SETS.items():
        path = folder / name
        path.write_text(content, encoding="utf-8")
        formats.append(Format(name, path, partial(read_questions, path)))
    simple = folder / "simple.txt"
    fact = "www.freebase.com/m/0a\twww.freebase.com/a/b\twww.freebase.com/m/0c\tg?\n"
    simple.write_text(fact * 2, encoding="utf-8")
    # A question that lacks its end is a question still.
    return [*formats, Format("SimpleQuestions", simple, lambda: _ignored(read_questions(simple)))]


_STEP = {"step": 1, "epoch": 0.5, "loss": 1.5}


@contextmanager
def training_files(folder: Path) -> Iterator[list[Format]]:
    """Files of training runs."""
    yield [*_pools(folder), *_examples(folder), *_run(folder)]


def _pools(folder: Path) -> list[Format]:
    texts, features = folder / "pools.jsonl", folder / "features.jsonl"
    row = {"id": "1", "question": "a?", "candidates": [["capital", 1.0], ["area", 0.0]]}
    texts.write_text((json.dumps(row) + "\n") * 3, encoding="utf-8")
    judged = {"id": "1", "candidates": [[{"share": 1.0}, 1.0], [{"share": 0.0}, 0.0]]}
    features.write_text((json.dumps(judged) + "\n") * 3, encoding="utf-8")
    return [
        Format("texts of a judge", texts, lambda: list(read_texts(texts)), is_rows=True),
        Format("features of a judge", features, lambda: list(read_judged(features)), is_rows=True),
    ]


def _examples(folder: Path) -> list[Format]:
    path = folder / "example.npz"
    places = np.array([0, 1], dtype=np.int32)
    save_labelled(
        path,
        Labelled(
            question="a?",
            relations=("a.b",),
            nodes=2,
            topics=1,
            heads=places,
            links=places,
            tails=places,
            stated=places,
            facts=1,
            matches=places[None],
            answers=places,
            shortest=np.array([True, False]),
            names=("A", None),
        ),
    )

    def read() -> object:
        found = load_labelled(path)
        return found.question, found.relations, found.heads.tolist(), load_names(path)

    return [Format("labelled example", path, read, is_text=False)]


def _run(folder: Path) -> list[Format]:
    if importlib.util.find_spec("torch") is None:
        return []
    import torch

    run = RunFolder(folder / "run")
    settings = {"epochs": 2, "rank": 8}
    with run.claimed(settings):
        run.log(_STEP)
        run.log({**_STEP, "step": 2})
        run.save_checkpoint(
            {"adapter": {"a": torch.ones(2)}, "optimizer": {}, "step": 2, "losses": [1.0]}
        )
    (state,) = run.path.rglob("state.pt")

    def resume() -> object:
        found = run.last_checkpoint()
        return found and (found["step"], found["adapter"]["a"].tolist(), found["losses"])

    def cut_log() -> object:
        run.cut_log(2)
        lines = (run.path / LOG_FILE).read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    config = run.path / "training_config.json"
    return [
        Format("state of training", state, resume, is_text=False),
        Format("log of training", run.path / LOG_FILE, cut_log, is_rows=True),
        Format("settings of training", config, lambda: run.check(settings)),
    ]
