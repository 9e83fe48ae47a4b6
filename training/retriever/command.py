"""The command `kbqa train-retriever`: train a scorer of triples from question sets and a graph.

First the surroundings of all questions are looked up and labelled, each in a file. Then the scorer
is trained on nine tenths of the questions and validated on the others; no question is trained on
whose relatives are held out. The folder can be resumed.

The loss is binary cross-entropy over the right triples of a question and some of the wrong ones,
and the optimizer Adam. The encoding of distances is that of the whole subgraph. After each epoch
the weights are validated on all triples of held-out questions, and saved with the state of the run.

Source: SubgraphRAG §4.1, "Training", and its code, which takes all wrong triples and one question a
step.
"""

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kbqa.engine.commands.options import check_output
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.files import TextCache
from kbqa.engine.linking.linker import Linker
from kbqa.engine.retrieval.retriever import (
    Caps,
    ScorerCard,
    Weights,
    load_scorer,
    save_scorer,
    text_columns,
)
from kbqa.engine.writing.checkpoint import require_lm_extra
from kbqa.kb.commands.options import (
    GraphChoice,
    graph_options,
    json_option,
    options_of,
    print_json,
    print_note,
    print_result,
)
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.errors import TrainingError
from kbqa.training.data.training_set import data_lines, data_record, split_examples, write_untrained
from kbqa.training.options import exclude_option, files_option, output_option, print_left_out
from kbqa.training.retriever.examples import (
    CHOSEN_BY,
    CUTOFFS,
    Inputs,
    Recalls,
    RetrieverConfig,
    Surroundings,
    embed_names,
    keep_labelled,
    make_inputs,
    measure_recall,
    read_queries,
)
from kbqa.training.run import (
    CARD_FILE,
    Record,
    RunFolder,
    read_log,
    read_state,
    write_card,
    write_manifest,
)

if TYPE_CHECKING:
    from torch import Tensor


SCORER_FILE = "retriever.json"  # the scorer in the folder of a run; its weights are beside it
_SCHEMA_VERSION = 1  # of the settings that identify a run
_PACKAGES = ("numpy", "safetensors", "scipy", "sentence-transformers", "torch")
_REPORTED = 500
_STATE_FILE = "checkpoint.pt"
_STATE_FIELDS = ("weights", "optimizer", "best_weights", "best", "epoch")

logger = logging.getLogger(__name__)


class Epoch(NamedTuple):
    """The figures of an epoch."""

    step: int  # done by its end
    epoch: int
    loss: float  # mean of its questions, in nats per triple
    valid_recall: float | None  # mean share of held-out gold facts among `CHOSEN_BY` triples


class TrainedScorer(NamedTuple):
    """The weights of the best epoch, and how many were done."""

    weights: Weights
    best: Epoch
    epochs: int


@click.command("train-retriever")
@files_option(
    "--data", "files", "Question set with SPARQL, ours or official; repeatable.", required=True
)
@exclude_option
@output_option
@click.option(
    "--subgraphs",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of the labelled subgraphs, which runs with other settings may use again; by "
    "default in the folder of the run.",
)
@options_of(RetrieverConfig, "config")
@graph_options
@json_option
def train_retriever(
    files: tuple[Path, ...],
    scored: tuple[Path, ...],
    output: Path,
    subgraphs: Path | None,
    config: RetrieverConfig,
    graph: GraphChoice,
    as_json: bool,
) -> None:
    """Train the scorer of triples that retrieval uses.

    Looks up what is around the topics of each question, holds out a tenth of the questions, and
    keeps the weights that find most of their gold triples.
    """
    check_output(output)
    require_lm_extra()
    embedder = Embedder.load()
    queries = read_queries(files, scored)
    gathered = queries.gathered
    hashes = {file.name: file.sha256 for file in gathered.files}
    folder, scorer, has_names = (
        RunFolder(output),
        output / SCORER_FILE,
        config.entity_text == "name",
    )
    subgraphs = subgraphs or output / "subgraphs"
    with closing(graph.open()) as opened:
        linker, caps = Linker(opened, opened.names()), Caps()
        surroundings = Surroundings(opened, GraphSchema(opened), linker, caps, has_names)
        looked_up = {
            "schema_version": _SCHEMA_VERSION,
            **asdict(caps),
            **opened.identity().settings,
            "seed": config.seed,
        }
        settings = {
            **looked_up,
            **asdict(config),
            "embedder": embedder.name,
            "data": hashes,
            "scored": {file.name: file.sha256 for file in gathered.scored},
        }
        with folder.claimed(settings):
            # Several runs may use the folder of labelled subgraphs one after another.
            with RunFolder(subgraphs).claimed(looked_up):
                paths = keep_labelled(
                    queries, surroundings, subgraphs, config.seed, _print_labelled
                )
                names = None
                if has_names:
                    file = subgraphs / f"names-{embedder.name.replace(' ', '-')}.sqlite"
                    cache = TextCache(file, "embeddings of names")
                    names = embed_names(list(paths.values()), embedder, cache, _print_embedded)
            split = split_examples(paths, len(paths) // 10)
            train, valid = (
                make_inputs([paths[each] for each in part], embedder, config, names)
                for part in (split.train, split.valid)
            )
            trained = train_scorer(train, valid, folder, config, _print_epoch)
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
                found, at = recall["scorer"], CUTOFFS.index(CHOSEN_BY)
                held_out = {
                    "questions": len(valid),
                    f"triple_recall_{CHOSEN_BY}": round(found.triples[at], 4),
                    f"path_recall_{CHOSEN_BY}": round(found.path[at], 4),
                    f"answer_recall_{CHOSEN_BY}": round(found.answers[at], 4),
                }
                card = replace(card, held_out=held_out)
                save_scorer(scorer, trained.weights, card)
    record = {
        "embedder": embedder.name,
        "settings": asdict(config),
        "data": data_record(gathered, split, {}),
        "result": {
            "epochs": trained.epochs,
            "best_epoch": trained.best.epoch,
            "weights": trained.weights.size,
            "cutoffs": CUTOFFS,
            "held_out": {name: found._asdict() for name, found in recall.items()},
        },
    }
    write_untrained(output, split)
    _write_card(output, write_manifest(output, _PACKAGES, record))
    print_note(f"{len(gathered.examples):,} examples")
    print_left_out(gathered)
    if as_json:
        print_json({"scorer": str(scorer), **card.held_out})
    else:
        print_result(f"scorer in {scorer}; its card is {output / CARD_FILE}")


def _print_labelled(done: int, of: int) -> None:
    if done % _REPORTED == 0 or done == of:
        print_note(f"{done:,} of {of:,} questions looked up")


def _print_embedded(done: int, of: int) -> None:
    print_note(f"{done:,} of {of:,} names embedded")


def _print_epoch(epoch: Epoch) -> None:
    recall = epoch.valid_recall
    held_out = "" if recall is None else f"  held out, recall@{CHOSEN_BY} {recall:.4f}"
    print_note(f"epoch {epoch.epoch}  loss {epoch.loss:.4f}{held_out}")


def _held_out_recall(
    valid: list[Inputs], scorer: Path, config: RetrieverConfig
) -> dict[str, Recalls]:
    """Measure the scorer as it is written, in float16, and the cosine."""
    if not valid:
        return {}
    weights, _ = load_scorer(scorer)
    found = {
        "scorer": [measure_recall(e.score(weights, config), e.labelled) for e in valid],
        "cosine": [measure_recall(e.cosines(), e.labelled) for e in valid],
    }
    return {name: _mean_recall(recalls) for name, recalls in found.items()}


def _mean_recall(recalls: Sequence[Recalls]) -> Recalls:
    """Average recalls over questions."""
    by_measure = zip(*recalls, strict=True)
    return Recalls(*(tuple(map(fmean, zip(*each, strict=True))) for each in by_measure))


def _write_card(output: Path, manifest: Record) -> None:
    write_card(
        output,
        manifest,
        title="Scorer of triples",
        introduction=(
            "A perceptron that says how likely a triple near a question's topics helps to answer"
            " it.",
            "Written by `kbqa train-retriever`. It knows words of relations, but no facts.",
        ),
        sections={
            "Data": data_lines(manifest["data"]),
            "Training": _training(manifest, read_log(output)),
            "Measured on the held-out questions": _measured(manifest["result"]["held_out"]),
        },
    )


def _training(manifest: Record, log: Sequence[Record]) -> Iterator[str]:
    settings, result = manifest["settings"], manifest["result"]
    yield f"- embedder: {manifest['embedder']}, frozen"
    yield f"- {result['weights']:,} weights, saved in float16"
    yield (
        f"- labels: {settings['labels']}; rounds of distance encoding: {settings['rounds']};"
        f" of relations: {settings['relation_input']}; of entities: {settings['entity_text']}"
    )
    yield (
        f"- at most {settings['negatives']:,} wrong triples of a question in a step,"
        f" {settings['batch_size']} questions a step, Adam, learning rate"
        f" {settings['learning_rate']:g}, seed {settings['seed']}"
    )
    yield f"- {result['epochs']} epochs, the weights are those of epoch {result['best_epoch']}"
    yield ""
    yield f"| epoch | loss | gold facts among {CHOSEN_BY} triples, held out |"
    yield "|---|---|---|"
    for row in log:
        recall = "–" if row["valid_recall"] is None else f"{row['valid_recall']:.4f}"
        yield f"| {row['epoch']} | {row['loss']:.4f} | {recall} |"


def _measured(recall: Mapping[str, Record]) -> Iterator[str]:
    yield "Among the first triples: the share of gold facts (triples), of questions with all facts"
    yield "of one match of the gold query (path), and of answers."
    yield ""
    yield f"| scorer | recall of | {' | '.join(f'at {each}' for each in CUTOFFS)} |"
    yield f"|---|---|{'---|' * len(CUTOFFS)}"
    for name, found in recall.items():
        for measure, values in found.items():
            yield f"| {name} | {measure} | {' | '.join(f'{value:.3f}' for value in values)} |"


class Network:
    """A perceptron with one hidden layer, whose first layer is computed in parts; see `Weights`.

    Vectors of sentences have length 1, so their numbers are small, and training would take many
    times as long. So the weights are trained for numbers of about variance 1, and scaled when they
    are exported. The dimensions are those of these vectors, the distances columns of a node.
    """

    def __init__(self, config: RetrieverConfig, dimensions: int, distances: int) -> None:
        import torch

        hidden, generator = config.hidden, torch.Generator().manual_seed(config.seed)

        self._question_scale = dimensions**0.5
        scales = [dimensions**0.5] * dimensions
        if config.relation_input == "agreement":
            scales += [float(dimensions)] * dimensions + [dimensions**0.5]
        self._relation_scale = torch.tensor(scales)
        self._node_scale = torch.ones(distances)
        if config.entity_text == "name":
            self._node_scale = torch.tensor([1.0] * distances + scales + [1.0])
        question, relation, node = dimensions, len(scales), len(self._node_scale)
        inputs = question + relation + 2 * node
        rows = {
            "question": (question, hidden),
            "relation": (relation, hidden),
            "head": (node, hidden),
            "tail": (node, hidden),
            "bias": (hidden,),
            "output": (hidden,),
            "output_bias": (1,),
        }
        self.weights: dict[str, Tensor] = {}
        for name, shape in rows.items():
            scale = (hidden if name.startswith("output") else inputs) ** -0.5
            drawn = torch.rand(shape, generator=generator) * 2 - 1
            self.weights[name] = (drawn * scale).requires_grad_()

    def logits(
        self,
        question: "Tensor",
        relations: "Tensor",
        nodes: "Tensor",
        heads: "Tensor",
        links: "Tensor",
        tails: "Tensor",
    ) -> "Tensor":
        """Return the logit of each triple, of rows for relations and nodes and their places."""
        w = self.weights
        of_question = (question * self._question_scale) @ w["question"] + w["bias"]
        of_relation = (relations * self._relation_scale) @ w["relation"] + of_question
        nodes = nodes * self._node_scale
        hidden = of_relation[links] + (nodes @ w["head"])[heads] + (nodes @ w["tail"])[tails]
        logits: Tensor = hidden.relu() @ w["output"] + w["output_bias"]
        return logits

    def copied(self) -> "dict[str, Tensor]":
        """Copy the weights as they are trained."""
        return {name: weight.detach().clone() for name, weight in self.weights.items()}

    def restore(self, weights: "Mapping[str, Tensor]") -> None:
        """Take over weights that `copied` returned."""
        import torch

        with torch.no_grad():
            for name, weight in self.weights.items():
                weight.copy_(weights[name])

    def export(self) -> Weights:
        """Copy the weights for the scorer."""
        scaled = {
            **self.weights,
            "question": self.weights["question"] * self._question_scale,
            "relation": self.weights["relation"] * self._relation_scale[:, None],
            "head": self.weights["head"] * self._node_scale[:, None],
            "tail": self.weights["tail"] * self._node_scale[:, None],
        }
        return Weights(**{name: each.detach().numpy().copy() for name, each in scaled.items()})


def train_scorer(
    train: Sequence[Inputs],
    valid: Sequence[Inputs],
    folder: RunFolder,
    config: RetrieverConfig,
    report: Callable[[Epoch], None] = lambda epoch: None,
) -> TrainedScorer:
    """Train a scorer, or resume the run in a claimed folder after its last whole epoch.

    The best epoch is chosen by the questions in `valid`; without any it is the last one.
    """
    import torch

    train = [one for one in train if one.right.any()]
    if not train:
        raise TrainingError("there is nothing to train on: no question has a right triple")
    network = Network(config, len(train[0].vector), train[0].distances.shape[1])
    optimizer = torch.optim.Adam(network.weights.values(), lr=config.learning_rate)
    best: Epoch | None = None
    best_weights: dict[str, Tensor] = {}
    done = 0
    path = folder.path / _STATE_FILE
    if path.is_file():
        state = read_state(path, _STATE_FIELDS, "Delete it to start again.")
        network.restore(state["weights"])
        optimizer.load_state_dict(state["optimizer"])
        best, best_weights, done = Epoch(*state["best"]), state["best_weights"], state["epoch"]
        logger.info("resuming %s after epoch %d", folder.path, done)
    steps_per_epoch = -(-len(train) // config.batch_size)
    folder.cut_log(done * steps_per_epoch)
    while done < config.epochs and not (best and done - best.epoch >= config.patience):
        loss = _epoch(network, optimizer, train, config, done)
        done += 1
        epoch = Epoch(done * steps_per_epoch, done, loss, _valid_recall(network, valid, config))
        if best is None or (epoch.valid_recall or 0) > (best.valid_recall or 0) or not valid:
            best, best_weights = epoch, network.copied()
        folder.log(epoch._asdict())
        report(epoch)
        state = {
            "weights": network.copied(),
            "optimizer": optimizer.state_dict(),
            "best_weights": best_weights,
            "best": (best.step, best.epoch, best.loss, best.valid_recall),
            "epoch": done,
        }
        torch.save(state, path.with_suffix(".pt.tmp"))
        path.with_suffix(".pt.tmp").replace(path)
    assert best is not None  # there is at least one epoch
    network.restore(best_weights)
    return TrainedScorer(network.export(), best, done)


def _epoch(
    network: Network, optimizer: Any, train: Sequence[Inputs], config: RetrieverConfig, epoch: int
) -> float:
    """Take the steps of an epoch, and return the mean loss of its questions."""
    import numpy as np
    import torch

    kind = config.relation_input
    order = list(range(len(train)))
    random.Random(config.seed + epoch).shuffle(order)
    total = 0.0
    for start in range(0, len(order), config.batch_size):
        batch = order[start : start + config.batch_size]
        optimizer.zero_grad(set_to_none=True)
        for at in batch:
            one = train[at]
            drawn = one.draw(config.negatives, (config.seed, epoch, at))
            ends = np.concatenate([one.labelled.heads[drawn], one.labelled.tails[drawn]])
            nodes, places = np.unique(ends, return_inverse=True)
            logits = network.logits(
                torch.from_numpy(one.vector),
                torch.from_numpy(text_columns(one.vector, one.words, kind)),
                torch.from_numpy(one.node_columns(kind, nodes)),
                torch.from_numpy(places[: len(drawn)]),
                torch.from_numpy(one.labelled.links[drawn]),
                torch.from_numpy(places[len(drawn) :]),
            )
            right = torch.from_numpy(one.right[drawn]).float()
            entropy = torch.nn.functional.binary_cross_entropy_with_logits(logits, right)
            loss = entropy / len(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach()) * len(batch)
        optimizer.step()
    return total / len(train)


def _valid_recall(
    network: Network, valid: Sequence[Inputs], config: RetrieverConfig
) -> float | None:
    """Measure the mean recall of gold facts of held-out questions."""
    if not valid:
        return None
    weights = network.export()
    recalls = [
        measure_recall(one.score(weights, config), one.labelled, (CHOSEN_BY,)).triples[0]
        for one in valid
    ]
    return sum(recalls) / len(recalls)
