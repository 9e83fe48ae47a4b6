"""What the manifest of a run says of its question set, its graph, its model and its candidates.

`settings` decide the rows: a run is only gone on with by the same. `notes` are worth knowing, and
may differ: where files lie, above all.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from kbqa.engine.execute import Rules
from kbqa.engine.generate import DEFAULT_ADAPTER
from kbqa.engine.options import ModelChoice
from kbqa.engine.router import Router
from kbqa.engine.run_manifest import file_sha256, manifest_path
from kbqa.kb.graph import Graph
from kbqa.kb.layout import read_manifest
from kbqa.kb.store import OxigraphStore
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
    store, summary, endpoint = None, None, None
    if isinstance(graph, OxigraphStore):
        manifest = read_manifest(graph.directory)
        store = {
            "versions": manifest.versions,
            "rules_sha256": hashlib.sha256(manifest.rules.encode()).hexdigest(),
            "languages": manifest.languages,
            "dumps_sha256": [dump.sha256 for dump in manifest.dumps],
        }
        summary = asdict(manifest.summary)
    else:
        endpoint = graph.description
    return Recorded(
        {"store": store, "endpoint": endpoint, "timeout_s": timeout_s},
        {"graph": graph.description, "store_summary": summary},
    )


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


def record_method(rules: Rules, name: str, router: Router | None) -> Recorded:
    """Record how candidates are executed, and which questions are repaired and how."""
    settings: dict[str, object] = {
        "method": name,
        "order": rules.order if rules.confidence is None else "confidence",
        "confidence_model": None if rules.confidence is None else rules.confidence.digest(),
        "without": sorted(rules.without),
        "repair": None if router is None else router.settings(),
    }
    return Recorded(settings, {})
