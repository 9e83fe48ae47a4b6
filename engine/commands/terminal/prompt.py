"""The prompt of `kbqa ask`: one question after the other, with the model loaded once."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import platformdirs

from kbqa.engine.answer import Answer
from kbqa.engine.commands.render import render_text
from kbqa.engine.commands.terminal.screen import standard_output, waiting
from kbqa.engine.engine import Engine
from kbqa.engine.evaluation.signals import Stopped
from kbqa.engine.linking.ground import name_topics
from kbqa.kb.commands.text import print_json, print_note, print_result
from kbqa.kb.escaping import one_line
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import InputError, KbqaError
from kbqa.sparql.queries.prefixes import prefix_query
from kbqa.sparql.terms import is_mid

HELP = """\
Type a question, or one of these:
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

    Args:
        engine: What answers.
        topics: What the first questions are about, if that is known.
        deadline_s: Seconds that a question may take in all; None for any time.
        as_json: Print answers as JSON, one a line.
    """

    def __init__(
        self,
        engine: Engine,
        topics: Sequence[Entity],
        deadline_s: float | None,
        as_json: bool,
    ) -> None:
        self._engine, self._deadline_s, self._as_json = engine, deadline_s, as_json
        self._topics = name_topics(engine.resources.graph, topics)
        self._last_topics: list[Entity] = []
        """Entities that questions were about, the latest first."""
        self._last: Answer | None = None
        self._commands: dict[str, Callable[[str], None]] = {
            ":help": lambda _: print_result(HELP),
            ":topic": self._choose_topic,
            ":path": self._show_or_run_path,
            ":sparql": self._show_query,
            ":json": self._show_record,
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
            with waiting("Answering"):
                answer = self._engine.ask(line, self._topics, deadline_s=self._deadline_s)
            self._show(answer)
            return
        name, _, rest = line.partition(" ")
        command = self._commands.get(name)
        if command is None:
            raise InputError(f"there is no {name}; :help lists what to type")
        command(rest.strip())

    def _show(self, answer: Answer) -> None:
        self._last = answer
        self._remember(answer)
        if self._as_json:
            print_json(answer.to_dict())
        else:
            text = render_text(answer, self._engine.resources.graph, standard_output())
            print_result(f"{text}\n", is_styled=True)

    def _remember(self, answer: Answer) -> None:
        """Put what an answer was about before the last topics."""
        topic = answer.trace.to_dict().get("topic") or {}
        about = [*self._topics]
        if not about and topic.get("mid"):
            about = [Entity(topic["name"], topic["mid"])]
        others = [each for each in self._last_topics if each not in about]
        self._last_topics = [*about, *others][:_KEPT_TOPICS]

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
            path = self._answered().trace.to_dict().get("crp")
            if path is None:
                raise InputError("no path answered the last question")
            print_result(path)
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
        query = self._answered().sparql
        if query is None:
            raise InputError("no query answered the last question")
        print_result(prefix_query(query))

    def _show_record(self, _: str) -> None:
        print_json(self._answered().to_dict(), indent=2)

    def _answered(self) -> Answer:
        if self._last is None:
            raise InputError("nothing has been asked yet")
        return self._last


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
