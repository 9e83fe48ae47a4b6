"""The command `kbqa ask`."""

import json
import sys
from typing import TYPE_CHECKING

import click

from kbqa.engine.commands.chat_options import ChatChoice, chat_options
from kbqa.engine.commands.methods import Command, MethodChoice, method_options, removed_option
from kbqa.engine.commands.options import (
    deadline_option,
    model_options,
    open_engine,
)
from kbqa.engine.commands.render import render_text
from kbqa.engine.commands.terminal.screen import is_terminal, standard_output, waiting
from kbqa.engine.writing.model_choice import ModelChoice
from kbqa.kb.commands.options import GraphChoice, graph_options, json_option
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import EndpointDown, InputError, KbqaError
from kbqa.sparql.terms import is_mid

if TYPE_CHECKING:
    from kbqa.engine.setup import Engine


def _moved_to_eval(command: Command) -> Command:
    for option in ("price", "limit", "calls", "concurrency", "timeout"):
        command = removed_option(f"--llm-{option}", "it with `kbqa eval`")(command)
    return command


@click.command()
@click.argument("question", required=False)
@graph_options
@deadline_option
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="MID",
    help="Entity that the question is about; repeatable.",
)
@method_options
@chat_options
@model_options
@json_option
@_moved_to_eval
def ask(
    question: str | None,
    graph: GraphChoice,
    deadline_s: float | None,
    topics: tuple[str, ...],
    method: MethodChoice,
    chat: ChatChoice,
    model: ModelChoice,
    as_json: bool,
) -> None:
    """Answer QUESTION, with the reasoning path, the query and the triples that prove it.

    Numbers and dates are written for reading, with the unit if the graph states one; --json has
    them as the graph does.

    Without QUESTION, a terminal asks for questions one after the other. With - as QUESTION, they
    are read from standard input, one a line. The exit code is 1 if QUESTION has no answer, or if
    one of several failed.
    """
    from kbqa.engine.questions.question_sets import asked_questions

    if question is None and not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        raise click.UsageError("Missing argument 'QUESTION'.")
    if question is not None and not question.strip():
        raise InputError("the question is empty; ask something in words")
    entities = [_topic(mid) for mid in topics]
    with open_engine(graph, model, chat, method) as engine:
        if question is None:
            from kbqa.engine.commands.terminal.prompt import Prompt

            Prompt(engine, entities, deadline_s, as_json).run()
            return
        if question == "-":
            texts = asked_questions(question)
            succeeded = [
                _answer_one_of_many(engine, t, entities, deadline_s, as_json) for t in texts
            ]
            is_done = all(succeeded)
        else:
            [text] = asked_questions(question)
            with waiting("Answering"):
                answer = engine.ask(text, entities, deadline_s=deadline_s)
            if as_json:
                click.echo(json.dumps(answer.to_dict(), ensure_ascii=False, indent=2))
            else:
                click.echo(render_text(answer, engine.resources.graph, standard_output()))
            is_done = answer.is_answered
    if not is_done:
        raise SystemExit(1)


def _answer_one_of_many(
    engine: "Engine",
    question: str,
    topics: list[Entity],
    deadline_s: float | None,
    as_json: bool,
) -> bool:
    """Answer a question and print it; report one that fails and return False, to go on."""
    try:
        answer = engine.ask(question, topics, deadline_s=deadline_s)
    except EndpointDown:
        raise
    except KbqaError as error:
        click.echo(f"Error: {question}: {error}", err=True)
        if as_json:
            record = {"question": question, "answers": [], "error": str(error)}
            click.echo(json.dumps(record, ensure_ascii=False))
        return False
    if as_json:
        click.echo(json.dumps(answer.to_dict(), ensure_ascii=False))
    else:
        text = render_text(answer, engine.resources.graph, standard_output())
        click.echo(f"# {question}\n{text}\n")
    return True


def _topic(mid: str) -> Entity:
    if not is_mid(mid):
        raise InputError(
            f"--topic {mid}: not a mid such as m.06w2sn5. Find one with `kbqa entities NAME`."
        )
    return Entity(mid=mid)
