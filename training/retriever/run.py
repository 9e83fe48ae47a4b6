"""Train a scorer of triples from question sets and a graph, in a folder that can be resumed.

First the surroundings of all questions are looked up and labelled, each in a file. Then the scorer
is trained on nine tenths of the questions and validated on the others; no question is trained on
whose relatives are held out.

Source: SubgraphRAG §4.1, "Training".
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.files.text_cache import TextCache
from kbqa.engine.retrieval.scorer import ScorerCard, load_scorer, save_scorer
from kbqa.training.data.training_set import Split, split_examples
from kbqa.training.retriever.config import CHOSEN_BY, RetrieverConfig
from kbqa.training.retriever.examples import Surroundings, drawn_topics, keep_labelled
from kbqa.training.retriever.inputs import Inputs, embed_names, make_inputs
from kbqa.training.retriever.loop import Epoch, TrainedScorer, train_scorer
from kbqa.training.retriever.queries import Queries
from kbqa.training.retriever.recall import CUTOFFS, Recalls, measure_recall
from kbqa.training.writer.run_folder import RunFolder

SCORER_FILE = "retriever.json"
"""The scorer in the folder of a run; its weights are beside it."""

_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Reports:
    """Called with the progress of a run.

    Attributes:
        labelled: After each question, with how many are labelled, and of how many.
        embedded: After some names, with how many are embedded, and of how many.
        trained: After each epoch.
    """

    labelled: Callable[[int, int], None] = lambda done, of: None
    embedded: Callable[[int, int], None] = lambda done, of: None
    trained: Callable[[Epoch], None] = lambda epoch: None


class RetrieverResult(NamedTuple):
    """What a run came to.

    Attributes:
        scorer: The file of the scorer.
        card: What the scorer is.
        split: The questions that were trained on, and those held out.
        trained: The weights, and the best epoch.
        recall: Mean recalls on the held-out questions by `CUTOFFS`, of the scorer as written and of
            the cosine; empty if nothing is held out.
    """

    scorer: Path
    card: ScorerCard
    split: Split
    trained: TrainedScorer
    recall: dict[str, Recalls]


def train_retriever(
    queries: Queries,
    surroundings: Surroundings,
    embedder: Embedder,
    output: Path,
    config: RetrieverConfig,
    *,
    subgraphs: Path | None = None,
    reports: Reports | None = None,
) -> RetrieverResult:
    """Train a scorer, or resume an interrupted run in the same folder.

    Args:
        queries: The questions.
        surroundings: Of the questions.
        embedder: What the scorer will be used with.
        output: Folder of the run.
        config: The settings; to resume a run, they must be the same.
        subgraphs: Folder of the labelled subgraphs, which several runs may use one after another;
            by default in the folder of the run.
        reports: Called with the progress.

    Raises:
        GraphError: The graph does not answer.
        TrainingError: A folder holds another run or another process writes to it, or there is
            nothing to train on.
    """
    reports = reports or Reports()
    looked_up = {
        "schema_version": _SCHEMA_VERSION,
        **asdict(surroundings.caps),
        **surroundings.graph.identity().settings,
        "seed": config.seed,
    }
    subgraphs = subgraphs or output / "subgraphs"
    hashes = {file.name: file.sha256 for file in queries.gathered.files}
    settings = {
        **looked_up,
        **asdict(config),
        "embedder": embedder.name,
        "data": hashes,
        "scored": {file.name: file.sha256 for file in queries.gathered.scored},
    }
    folder = RunFolder(output)
    with folder.claimed(settings):
        with RunFolder(subgraphs).claimed(looked_up):
            kept = keep_labelled(
                queries,
                replace(surroundings, with_names=config.entity_text == "name"),
                subgraphs,
                lambda example: drawn_topics(config.seed, example),
                reports.labelled,
            )
            paths = {each.example: each.path for each in kept}
            names = None
            if config.entity_text == "name":
                file = subgraphs / f"names-{embedder.name.replace(' ', '-')}.sqlite"
                cache = TextCache(file, "embeddings of names")
                names = embed_names(list(paths.values()), embedder, cache, reports.embedded)
        split = split_examples(paths, len(paths) // 10)
        train, valid = (
            make_inputs([paths[each] for each in part], embedder, config, names)
            for part in (split.train, split.valid)
        )
        trained = train_scorer(train, valid, folder, config, reports.trained)
        scorer = output / SCORER_FILE
        card = ScorerCard(
            embedder=embedder.name,
            rounds=config.rounds,
            relation_input=config.relation_input,
            labels=config.labels,
            trained_on=dict(sorted(Counter(one.source for one in split.train).items())),
            data_sha256=hashes,
            held_out={},
            entity_text=config.entity_text,
        )
        save_scorer(scorer, trained.weights, card)
        recall = _held_out_recall(valid, scorer, config)
        if recall:
            card = replace(card, held_out=_summary(recall["scorer"], len(valid)))
            save_scorer(scorer, trained.weights, card)
    return RetrieverResult(scorer, card, split, trained, recall)


def _held_out_recall(
    valid: list[Inputs], scorer: Path, config: RetrieverConfig
) -> dict[str, Recalls]:
    """Measure the scorer as it is written, in float16, and the cosine."""
    if not valid:
        return {}
    weights, _ = load_scorer(scorer)
    return {
        "scorer": mean_recall(
            [measure_recall(e.score(weights, config), e.labelled) for e in valid]
        ),
        "cosine": mean_recall([measure_recall(e.cosines(), e.labelled) for e in valid]),
    }


def mean_recall(recalls: Sequence[Recalls]) -> Recalls:
    """Average recalls over questions."""
    by_measure = zip(*recalls, strict=True)
    return Recalls(*(tuple(map(fmean, zip(*each, strict=True))) for each in by_measure))


def _summary(recall: Recalls, questions: int) -> dict[str, float]:
    """Summarise held-out recalls for the scorer's card."""
    at = CUTOFFS.index(CHOSEN_BY)
    return {
        "questions": questions,
        f"triple_recall_{CHOSEN_BY}": round(recall.triples[at], 4),
        f"path_recall_{CHOSEN_BY}": round(recall.path[at], 4),
        f"answer_recall_{CHOSEN_BY}": round(recall.answers[at], 4),
    }
