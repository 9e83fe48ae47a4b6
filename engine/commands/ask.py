"""The command `kbqa ask`."""

import sys
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from kbqa.engine.answer_lines import (
    Line,
    ShownAnswer,
    answer_lines,
    last_lines,
    literal_forms,
)
from kbqa.engine.commands.chat_options import ChatChoice, chat_options
from kbqa.engine.commands.methods import Command, MethodChoice, method_options, removed_option
from kbqa.engine.commands.options import (
    deadline_option,
    model_options,
    open_engine,
)
from kbqa.engine.commands.terminal.screen import print_lines, waiting
from kbqa.engine.config import check_key
from kbqa.engine.writing.model_choice import ModelChoice
from kbqa.kb.commands.options import GraphChoice, graph_options, json_option
from kbqa.kb.commands.text import is_terminal, print_json, print_note
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import EndpointDown, InputError, KbqaError, ServerError
from kbqa.sparql.terms import is_mid

if TYPE_CHECKING:
    from kbqa.engine.engine import Engine


_WITH_VIA = {"question", "via", "topics", "deadline_s", "as_json"}
"""Parameters that mean the same with a server."""


def _moved_to_eval(command: Command) -> Command:
    for option in ("price", "limit", "calls", "concurrency", "timeout"):
        command = removed_option(f"--llm-{option}", "it with `kbqa eval`")(command)
    return command


@click.command()
@click.argument("question", required=False)
@graph_options
@deadline_option
@click.option(
    "--via",
    envvar="KBQA_VIA",
    show_envvar=True,
    metavar="URL",
    help="Ask a running `kbqa serve` instead of loading a model. Its key is read from "
    "KBQA_VIA_KEY.",
)
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
    via: str | None,
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
    if question is None and not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        raise click.UsageError("Missing argument 'QUESTION'.")
    if question is not None and not question.strip():
        raise InputError("the question is empty; ask something in words")
    entities = [_topic(mid) for mid in topics]
    if via is not None:
        _refuse_options_of_a_model()
        if question is None:
            raise click.UsageError("the prompt cannot ask --via a server; give a QUESTION, or -")
        from kbqa.engine.commands.serving.via import KEY_VARIABLE, ServedEngine

        check_key("via", via, KEY_VARIABLE)
        with closing(ServedEngine(via)) as served:
            is_done = _answer_all(
                question,
                lambda text: served.ask(
                    text, entities, deadline_s=deadline_s, with_lines=not as_json
                ),
                as_json,
            )
    else:
        with open_engine(graph, model, chat, method) as engine:
            if question is None:
                from kbqa.engine.commands.terminal.prompt import Prompt

                Prompt(engine, entities, deadline_s, as_json).run()
                return
            is_done = _answer_all(
                question,
                lambda text: _ask_engine(
                    engine, text, entities, deadline_s=deadline_s, with_lines=not as_json
                ),
                as_json,
            )
    if not is_done:
        raise SystemExit(1)


def _refuse_options_of_a_model() -> None:
    """Refuse what was typed and a server decides; other defaults than typed ones do not apply."""
    context = click.get_current_context()
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        if parameter.name not in _WITH_VIA and source is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"{max(parameter.opts, key=len)} does not go with --via or KBQA_VIA: the server "
                "chose its graph, model and method when it was started"
            )


def _ask_engine(
    engine: "Engine",
    question: str,
    topics: list[Entity],
    *,
    deadline_s: float | None,
    with_lines: bool,
) -> ShownAnswer:
    answer = engine.ask(question, topics, deadline_s=deadline_s)
    lines: list[Line] = []
    if with_lines:
        graph = engine.resources.graph
        lines += answer_lines(answer, literal_forms(answer, graph))
        lines += last_lines(graph.description, answer.seconds)
    return ShownAnswer(answer.to_dict(), lines)


def _answer_all(question: str, ask: Callable[[str], ShownAnswer], as_json: bool) -> bool:
    """Answer a question, or for ``-`` those of standard input; return whether all succeeded."""
    from kbqa.engine.questions.question_sets import asked_questions

    if question == "-":
        succeeded = [_answer_one_of_many(text, ask, as_json) for text in asked_questions(question)]
        return all(succeeded)
    [text] = asked_questions(question)
    with waiting("Answering"):
        answer = ask(text)
    if as_json:
        print_json(answer.record, indent=2)
    else:
        print_lines(answer.lines)
    return answer.is_answered


def _answer_one_of_many(question: str, ask: Callable[[str], ShownAnswer], as_json: bool) -> bool:
    """Answer a question and print it; report one that fails and return False, to go on."""
    try:
        answer = ask(question)
    except (EndpointDown, ServerError):
        raise
    except KbqaError as error:
        print_note(f"Error: {question}: {error}")
        if as_json:
            print_json({"question": question, "answers": [], "error": str(error)})
        return False
    if as_json:
        print_json(answer.record)
    else:
        print_lines([Line(f"# {question}", wraps=False), *answer.lines, Line("")])
    return True


def _topic(mid: str) -> Entity:
    if not is_mid(mid):
        raise InputError(
            f"--topic {mid}: not a mid such as m.06w2sn5. Find one with `kbqa entities NAME`."
        )
    return Entity(mid=mid)
