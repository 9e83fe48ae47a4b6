"""The prompt that a small model was trained with, which every later use must repeat.

It is saved beside the adapter, so that training, every back end and other people's servers write
the same bytes.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kbqa.sparql.errors import ModelError

PROMPT_FILE = "kbqa_prompt.json"
_SCHEMA_VERSION = 1
_MAX_CHARACTERS = 1000  # The benchmarks' questions have under 200.


@dataclass(frozen=True, slots=True)
class PromptFormat:
    """How a question is put to the model.

    Attributes:
        template: The whole prompt, with ``{question}`` where the question goes.
        crp_format: The text form of the CRPs that the model writes.
        relations: How many relations are suggested with a question, at most; 0 for none.
    """

    template: str
    crp_format: str = "routerkgqa"
    relations: int = 0

    def render(self, question: str, relations: Sequence[str] = ()) -> str:
        """Write the prompt of a question, with its white space collapsed and its length limited.

        Args:
            question: In natural language.
            relations: To suggest, best first; those beyond the format's number are left out.
        """
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


def load_prompt_format(directory: Path) -> PromptFormat:
    """Read the format from an adapter's folder.

    Raises:
        ModelError: The file is missing or not of that form.
    """
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
