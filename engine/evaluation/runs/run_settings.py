"""What the manifest of a run says of its questions, graph, models, candidates and method.

`settings` decide the rows: a run is only resumed with the same. `notes` are worth knowing and may
differ, such as where files are.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kbqa.engine.answer import UNSURE_BELOW
from kbqa.engine.files.manifest import file_sha256, manifest_path
from kbqa.engine.method import Method
from kbqa.engine.writing.generate import DEFAULT_ADAPTER
from kbqa.engine.writing.model_choice import ModelChoice
from kbqa.kb.graph import Graph
from kbqa.sparql.errors import InputError


@dataclass(frozen=True, slots=True)
class Recorded:
    """A part of a manifest: what decides the rows, and what does not."""

    settings: Mapping[str, object]
    notes: Mapping[str, object]

    def __or__(self, other: "Recorded") -> "Recorded":
        return Recorded({**self.settings, **other.settings}, {**self.notes, **other.notes})


def record_questions(path: Path, sample: int | None, seed: int) -> Recorded:
    """Record a question file by its content, and the sample that is drawn of it."""
    settings = {
        "questions_sha256": file_sha256(path),
        "sample": sample,
        "seed": None if sample is None else seed,
    }
    return Recorded(settings, {"questions": str(path)})


def record_graph(graph: Graph, timeout_s: float) -> Recorded:
    """Record a graph: a store by what it was loaded from, an endpoint by its URL.

    Raises:
        StoreError: The store's manifest cannot be read.
    """
    identity = graph.identity()
    return Recorded({**identity.settings, "timeout_s": timeout_s}, identity.notes)


def record_beams(path: Path | None) -> Recorded:
    """Record a file of candidates that were written before, and what its own manifest tells.

    Raises:
        InputError: Its manifest is broken.
    """
    if path is None:
        return Recorded({"beams_sha256": None}, {})
    manifest, told = manifest_path(path), None
    if manifest.is_file():
        try:
            told = json.loads(manifest.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{manifest} cannot be read: {error}") from None
    return Recorded(
        {"beams_sha256": file_sha256(path)}, {"beams": str(path), "beams_manifest": told}
    )


def record_model(choice: ModelChoice, name: str | None) -> Recorded:
    """Record the specialised model.

    Args:
        choice: What the user chose.
        name: Of what was loaded, which tells the adapter's weights by their hash; None where
            nothing was, because all candidates were written before.
    """
    if name is None:
        return Recorded({"model": None, "n": None, "decoding": None}, {"adapter": None})
    return Recorded(
        {"model": name, "n": choice.n, "decoding": choice.decoding},
        {"adapter": str(choice.adapter or DEFAULT_ADAPTER) if choice.server is None else None},
    )


def record_method(
    method: Method,
    deadline_s: float | None,
    call_budget: int | None = None,
    general_model: str | None = None,
    unsure_below: float = UNSURE_BELOW,
) -> Recorded:
    """Record a method by its name and settings, and what a question may take.

    Args:
        method: The method.
        deadline_s: Seconds for a question.
        call_budget: Decisions for a question.
        general_model: The general model's name; recorded if it takes the method's decisions.
        unsure_below: The confidence below which an answer is a guess; the default is not recorded.
    """
    of_method = {"name": method.name, **method.settings()}
    if of_method.get("chooser") == "llm":
        of_method["general_model"] = general_model
    settings: dict[str, object] = {"method": of_method}
    if call_budget is not None:  # Older runs do not have it, and stay comparable without it.
        settings["call_budget"] = call_budget
    if unsure_below != UNSURE_BELOW:
        settings["unsure_below"] = unsure_below
    # A note: a run can be resumed with a longer deadline, for what had too little time.
    return Recorded(settings, {"deadline_s": deadline_s})
