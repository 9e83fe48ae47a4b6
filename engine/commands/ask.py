"""The commands `kbqa ask`, with a prompt for one question after the other, and `completion`."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import platformdirs
from click.shell_completion import get_completion_class

from kbqa.engine.answer import Answer, Line, answer_lines, last_lines, literal_forms
from kbqa.engine.cli import Stopped, check_key
from kbqa.engine.commands.options import (
    ChatChoice,
    MethodChoice,
    chat_options,
    deadline_option,
    method_options,
    model_options,
    open_engine,
    refuse_typed,
)
from kbqa.engine.commands.screen import print_lines, waiting
from kbqa.engine.writing.generate import ModelChoice
from kbqa.kb.commands.options import (
    GraphChoice,
    asked_questions,
    graph_options,
    is_terminal,
    json_option,
    print_json,
    print_note,
    print_result,
)
from kbqa.kb.graph import one_line
from kbqa.sparql.crp import Entity
from kbqa.sparql.dialect import prefix_query
from kbqa.sparql.errors import EndpointDown, InputError, KbqaError, ServerError
from kbqa.sparql.terms import is_mid

if TYPE_CHECKING:
    from kbqa.engine.engine import Engine


_WITH_VIA = {"question", "via", "topics", "history", "deadline_s", "as_json"}
"""Parameters that mean the same with a server."""


@click.command()
@click.argument("question", required=False)
@graph_options
@deadline_option()
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
@click.option(
    "--after",
    "history",
    multiple=True,
    metavar="QUESTION",
    help="Question that QUESTION goes on from; repeatable, the oldest first.",
)
@method_options
@chat_options
@model_options
@json_option
def ask(
    question: str | None,
    graph: GraphChoice,
    deadline_s: float | None,
    via: str | None,
    topics: tuple[str, ...],
    history: tuple[str, ...],
    method: MethodChoice,
    chat: ChatChoice,
    model: ModelChoice,
    as_json: bool,
) -> None:
    """Answer QUESTION, with the reasoning path, the query and the triples that prove it.

    Numbers and dates are written for reading, with the unit if the graph states one; --json has
    them as the graph does.

    Without QUESTION, a terminal asks for questions one after the other, and each may go on from
    those before it. With - as QUESTION, they are read from standard input, one a line, each on its
    own. The exit code is 1 if QUESTION has no answer, or if one of several failed.
    """
    if question is None and not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        raise click.UsageError("Missing argument 'QUESTION'.")
    if question is not None and not question.strip():
        raise InputError("the question is empty; ask something in words")
    if history and question in (None, "-"):
        raise click.UsageError("--after goes with one QUESTION; at the prompt, ask one by one")
    for mid in topics:
        if not is_mid(mid):
            raise InputError(
                f"--topic {mid}: not a mid such as m.06w2sn5. Find one with `kbqa entities NAME`."
            )
    entities = [Entity(mid=mid) for mid in topics]
    if via is not None:
        why = "the server chose its graph, model and method when it was started"
        refuse_typed(
            lambda name: name not in _WITH_VIA, f"does not go with --via or KBQA_VIA: {why}"
        )
        if question is None:
            raise click.UsageError("the prompt cannot ask --via a server; give a QUESTION, or -")
        from kbqa.engine.commands.serve import KEY_VARIABLE, ServedEngine

        check_key("via", via, KEY_VARIABLE)
        with closing(ServedEngine(via)) as served:
            ask_server = partial(
                served.ask,
                topics=entities,
                history=history,
                deadline_s=deadline_s,
                with_lines=not as_json,
            )
            is_done = _answer_all(question, ask_server, as_json)
    else:
        with open_engine(graph, model, chat, method) as engine:
            if question is None:
                Prompt(engine, entities, deadline_s, as_json).run()
                return

            def ask_engine(text: str) -> Mapping[str, Any]:
                answer = engine.ask(text, entities, history=history, deadline_s=deadline_s)
                record = answer.to_dict()
                return record if as_json else {**record, "lines": _lines(answer, engine)}

            is_done = _answer_all(question, ask_engine, as_json)
    if not is_done:
        raise SystemExit(1)


def _lines(answer: Answer, engine: "Engine") -> list[Line]:
    """Write an answer as lines, with the literals as its graph says."""
    graph = engine.resources.graph
    lines = answer_lines(answer, literal_forms(answer, graph))
    return [*lines, *last_lines(graph.description, answer.seconds)]


def _answer_all(question: str, ask: Callable[[str], Mapping[str, Any]], as_json: bool) -> bool:
    """Answer a question, or for ``-`` those of standard input; return whether all succeeded."""
    if question == "-":
        succeeded = [_answer_one_of_many(text, ask, as_json) for text in asked_questions(question)]
        return all(succeeded)
    [text] = asked_questions(question)
    with waiting("Answering"):
        record = ask(text)
    if as_json:
        print_json(record, indent=2)
    else:
        print_lines(record["lines"])
    return bool(record["status"] != "none")


def _answer_one_of_many(
    question: str, ask: Callable[[str], Mapping[str, Any]], as_json: bool
) -> bool:
    """Answer a question and print it; report one that fails and return False, to go on."""
    try:
        record = ask(question)
    except (EndpointDown, ServerError):
        raise
    except KbqaError as error:
        print_note(f"Error: {question}: {error}")
        if as_json:
            print_json({"question": question, "answers": [], "error": str(error)})
        return False
    if as_json:
        print_json(record)
    else:
        print_lines([Line(f"# {question}", wraps=False), *record["lines"], Line("")])
    return True


HELP = """\
Type a question, which may go on from those before it ("and its population?"), or one of these:
  :new           forget the questions before, and go on from none of them
  :topic NAME    ask the next questions about an entity, by name, mid or number of the list
  :topic none    let the question say what it is about, as at the start
  :topic         list the entities that questions were about
  :path PATH     run a path, such as :path Kenya -> location.country.capital
  :path          show the path that answered last
  :sparql        show the query that answered last
  :json          show the last answer as JSON
  :help          show this
  :quit          leave, as Ctrl-D does; Ctrl-C stops a question"""

_KEPT_TOPICS = 9
_KEPT_LINES = 1000


class Prompt:
    """Takes questions and commands until the user leaves; no error ends it.

    The first questions are about `topics`, if there are any. While there are, a question goes on
    from no other. Answers as JSON take a line each.
    """

    def __init__(
        self, engine: "Engine", topics: Sequence[Entity], deadline_s: float | None, as_json: bool
    ) -> None:
        from kbqa.engine.engine import Conversation
        from kbqa.engine.linking.ground import name_topics

        self._engine, self._deadline_s, self._as_json = engine, deadline_s, as_json
        self._conversation = Conversation(engine)
        self._topics = name_topics(engine.resources.graph, topics)
        self._last_topics: list[Entity] = []
        """Entities that questions were about, the latest first."""
        self._last: Answer | None = None
        self._commands: dict[str, Callable[[str], None]] = {
            ":help": lambda _: print_result(HELP),
            ":new": lambda _: self._conversation.turns.clear(),
            ":topic": self._choose_topic,
            ":path": self._show_or_run_path,
            ":sparql": self._show_query,
            ":json": lambda _: print_json(self._answered().to_dict(), indent=2),
        }

    def run(self) -> None:
        """Read lines from standard input and act on each, until `:quit` or the input's end."""
        graph = self._engine.resources.graph
        print_result(f"Asking {graph.description}; :help shows what to type.")
        with _history():
            for line in self._lines():
                try:
                    self._act(line)
                except KbqaError as error:
                    print_note(f"Error: {error}")
                except Stopped:
                    raise
                except KeyboardInterrupt:
                    print_note("Stopped.")

    def _lines(self) -> Iterator[str]:
        """Yield what is typed, without blank lines; Ctrl-C discards the line."""
        while True:
            about = one_line(", ".join(map(str, self._topics)))
            try:
                line = input(f"kbqa ({about})> " if about else "kbqa> ").strip()
            except Stopped:
                raise
            except KeyboardInterrupt:
                print_result("")
                continue
            except UnicodeDecodeError:
                print_note("Error: that is not text in UTF-8")
                continue
            except EOFError:
                print_result("")
                return
            if line == ":quit":
                return
            if line:
                yield line

    def _act(self, line: str) -> None:
        if not line.startswith(":"):
            asked = self._engine if self._topics else self._conversation
            with waiting("Answering"):
                answer = asked.ask(line, self._topics, deadline_s=self._deadline_s)
            self._show(answer)
            return
        name, _, rest = line.partition(" ")
        command = self._commands.get(name)
        if command is None:
            raise InputError(f"there is no {name}; :help lists what to type")
        command(rest.strip())

    def _show(self, answer: Answer) -> None:
        """Show an answer, and put what it was about before the last topics."""
        self._last = answer
        about = [*self._topics]
        if not about:
            topics = [each.trace.to_dict().get("topic") or {} for each in _parts(answer)]
            about = [Entity(each["name"], each["mid"]) for each in topics if each.get("mid")]
            about = list(dict.fromkeys(about))
        others = [each for each in self._last_topics if each not in about]
        self._last_topics = [*about, *others][:_KEPT_TOPICS]
        if self._as_json:
            print_json(answer.to_dict())
        else:
            print_lines([*_lines(answer, self._engine), Line("")])

    def _choose_topic(self, text: str) -> None:
        if not text:
            if not self._last_topics:
                raise InputError("no question has had a topic yet; :topic NAME chooses one")
            for number, entity in enumerate(self._last_topics, 1):
                print_result(f"{number}  {one_line(str(entity))}  ({entity.mid})")
        elif text == "none":
            self._topics = []
        else:
            self._topics = [self._find_topic(text)]

    def _find_topic(self, text: str) -> Entity:
        from kbqa.engine.linking.ground import name_topics

        if text.isdecimal() and 1 <= int(text) <= len(self._last_topics):
            return self._last_topics[int(text) - 1]
        if is_mid(text):
            return name_topics(self._engine.resources.graph, [Entity(mid=text)])[0]
        matches = self._engine.resources.names.search(text, 4)
        if not matches:
            raise InputError(f"no entity in the graph has a name like {text!r}")
        best, *others = matches
        rivals = [f"{each.name} ({each.mid})" for each in others if each.score >= best.score]
        if rivals:
            print_note(f"{best.name} ({best.mid}), not {', '.join(rivals)}")
        return Entity(best.name, best.mid)

    def _show_or_run_path(self, text: str) -> None:
        if not text:
            traces = [each.trace.to_dict() for each in _parts(self._answered())]
            paths = [trace["crp"] for trace in traces if trace.get("crp")]
            if not paths:
                raise InputError("no path answered the last question")
            print_result("\n\n".join(paths))
            return
        lines = [text]
        with suppress(EOFError):
            # A constraint is a line of its own; an empty line ends the path.
            while line := input("  ... ").strip():
                lines.append(line)
        with waiting("Running the path"):
            answer = self._engine.run_path(
                "\n".join(lines), topics=self._topics, deadline_s=self._deadline_s
            )
        self._show(answer)

    def _show_query(self, _: str) -> None:
        queries = [each.sparql for each in _parts(self._answered()) if each.sparql]
        if not queries:
            raise InputError("no query answered the last question")
        print_result("\n\n".join(map(prefix_query, queries)))

    def _answered(self) -> Answer:
        if self._last is None:
            raise InputError("nothing has been asked yet")
        return self._last


def _parts(answer: Answer) -> Sequence[Answer]:
    """Return the answers to each of several questions in one, or the one answer."""
    return answer.parts or (answer,)


@contextmanager
def _history() -> Iterator[None]:
    """Let lines be edited, and keep them for the next time, where Python has readline."""
    try:
        import readline
    except ImportError:
        yield
        return
    file = Path(platformdirs.user_state_dir("kbqa")) / "history"
    readline.set_history_length(_KEPT_LINES)
    with suppress(OSError):
        readline.read_history_file(file)
    try:
        yield
    finally:
        with suppress(OSError):  # the prompt works without
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch(mode=0o600)
            readline.write_history_file(file)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that lets SHELL complete commands and options on Tab.

    \b
    kbqa completion bash > ~/.local/share/bash-completion/completions/kbqa
    kbqa completion zsh > ~/.zfunc/_kbqa    # a folder of your fpath
    kbqa completion fish > ~/.config/fish/completions/kbqa.fish
    """  # noqa: D301 (click looks for the character that is written \b)
    of_shell = get_completion_class(shell)
    assert of_shell is not None, "click knows the three"
    script = of_shell(context.find_root().command, {}, "kbqa", "_KBQA_COMPLETE")
    print_result(script.source())
