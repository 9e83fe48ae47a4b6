"""The files of runs, caches, models, settings and question sets."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import click

from kbqa.engine.chat.cache import CachedChat
from kbqa.engine.chat.model import Message, Reply, Usage
from kbqa.engine.cli import COMMANDS, check_config, command_defaults, main, read_config
from kbqa.engine.engine import Engine
from kbqa.engine.evaluation.evaluate import EvaluationConfig, evaluate, record_beams
from kbqa.engine.evaluation.report import make_report
from kbqa.engine.evaluation.retrieve import read_retrieval_row
from kbqa.engine.evaluation.rows import flatten_manifest, read_run
from kbqa.engine.files import TextCache, manifest_path, read_rows
from kbqa.engine.linking.mentions import LinkingModel
from kbqa.engine.questions.question_sets import Question, read_questions
from kbqa.engine.retrieval.retriever import SHIPPED_SCORER, load_scorer
from kbqa.engine.running.confidence import SHIPPED_CONFIDENCE, ConfidenceModel
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
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from tools.fuzz.files.format import Format
from tools.fuzz.scripted import ScriptedWriter
from tools.fuzz.seeds import QUESTIONS, WRITTEN, small_store

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

    def go_on() -> object:
        """Resume the run, and return its rows."""
        return _evaluate(graph, asked, beams, run)

    go_on()
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
        Format("run, read", run, lambda: _rows(run), is_rows=True),
        Format("run, resumed", run, go_on),
        Format("manifest of a run, read", manifest, lambda: _report(run)),
        Format("manifest of a run, resumed", manifest, go_on),
        Format("retrieved triples", retrieved, lambda: _retrieved(retrieved), is_rows=True),
    ]


def _evaluate(graph: Graph, asked: list[Question], beams: Path, output: Path) -> object:
    with Engine(graph, SavedBeams("beams"), settings={"judge": "confidence"}) as engine:
        config = EvaluationConfig(timings=False)
        return evaluate(engine, asked, output, config, beams=read_beams(beams))


def _rows(run: Path) -> object:
    recorded = read_run(run)
    make_report(recorded).to_dict()
    return list(recorded.rows)


def _report(run: Path) -> object:
    recorded = read_run(run)
    flatten_manifest(recorded.manifest)
    return make_report(recorded).to_dict()


def _retrieved(path: Path) -> object:
    return [read_retrieval_row(row, f"line {number}") for number, row in read_rows(path)]


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
    return [
        Format("linking model", linking, lambda: _link_by(linking)),
        Format("confidence model", confidence, lambda: _judge_by(confidence)),
        Format("card of a scorer", scorer, lambda: _scorer(scorer)),
        Format("weights of a scorer", weights, lambda: _scorer(scorer), is_text=False),
        Format("prompt", folder / PROMPT_FILE, lambda: load_prompt_format(folder).render("a?")),
        Format("adapter's settings", adapter, lambda: adapter_config(folder)),
    ]


def _link_by(path: Path) -> object:
    model = LinkingModel.load(path)
    words = {"capital", "born"}
    return model, model.asked_relations(words), model.type_agreement(["people.person"], words)


def _judge_by(path: Path) -> object:
    model = ConfidenceModel.load(path)
    return model, model.confidence({"share": 1.0, "hops": 2.0}), model.digest()


def _scorer(path: Path) -> object:
    weights, card = load_scorer(path)
    return card, weights.size


def _settings(folder: Path) -> list[Format]:
    config, keys = folder / "kbqa.toml", folder / "keys.toml"
    config.write_text(_CONFIG, encoding="utf-8")
    keys.write_text(_KEYS, encoding="utf-8")

    # Most beginnings of TOML are TOML, too, so there is nothing to compare.
    def configure() -> None:
        read = read_config(config)
        context = click.Context(main)
        commands = {name: main.get_command(context, name) for name in COMMANDS}
        check_config(read, {name: each for name, each in commands.items() if each is not None})
        command_defaults(read, commands["ask"] or main, "ask")

    def read_keys() -> None:
        ApiKeys.read(keys).owner("key")

    return [Format("kbqa.toml", config, configure), Format("API keys", keys, read_keys)]


def _question_sets(folder: Path) -> list[Format]:
    good = {"QuestionQuality": "Good", "ParseQuality": "Complete"}
    parse = {
        "TopicEntityMid": "m.0t",
        "TopicEntityName": "T",
        "Sparql": "SELECT ?x { ns:m.0t ns:a.b ?x }",
        "AnnotatorComment": good,
        "Constraints": [{"ArgumentType": "Entity", "Argument": "m.0c", "EntityName": "C"}],
        "Answers": [{"AnswerArgument": "m.1", "EntityName": "A"}],
    }
    sets = {
        "WebQSP": {"Questions": [{"QuestionId": "W", "RawQuestion": "a?", "Parses": [parse]}]},
        "ComplexWebQuestions": [
            {
                "ID": "c",
                "question": "b?",
                "sparql": "SELECT ?x { ?x ns:a.b ns:m.0t }",
                "answers": [{"answer_id": "m.2", "answer": "B"}],
                "compositionality_type": "conjunction",
            }
        ],
        "GrailQA": [
            {
                "qid": 2101,
                "question": "d?",
                "sparql_query": "SELECT ?x { ?x ns:a.b ns:m.0t }",
                "s_expression": "(JOIN a.b m.0t)",
                "level": "zero-shot",
                "function": "none",
                "graph_query": {"nodes": [{"node_type": "entity", "id": "m.0t"}]},
                "answer": [{"answer_argument": "m.3", "entity_name": "D"}],
            }
        ],
        "Free917": [{"utterance": "e?", "targetFormula": "(!fb:a.b fb:en.t)"}],
        "RouterKGQA": [
            {"instruction": "", "input": "Question:{f?}", "output": "Main Path:\n A -[a , b]-> ?x"}
        ],
    }
    formats = []
    for name, content in sets.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        formats.append(Format(name, path, partial(read_questions, path)))
    simple = folder / "simple.txt"
    fact = "www.freebase.com/m/0a\twww.freebase.com/a/b\twww.freebase.com/m/0c\tg?\n"
    simple.write_text(fact * 2, encoding="utf-8")
    # A question that lacks its end is a question still.
    return [*formats, Format("SimpleQuestions", simple, lambda: _ignored(read_questions(simple)))]


def _ignored(_: object) -> None:
    """Return nothing to compare."""
