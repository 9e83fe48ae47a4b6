from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kbqa.engine.retrieval.retriever import Weights, text_columns
from kbqa.sparql.errors import TrainingError
from kbqa.training.retriever.command import Epoch, TrainedScorer, train_scorer
from kbqa.training.retriever.examples import Inputs, RetrieverConfig, measure_recall
from kbqa.training.run import LOG_FILE, RunFolder

torch = pytest.importorskip("torch", reason="needs the lm extra")
pytestmark = pytest.mark.usefixtures("one_thread")

CONFIG = RetrieverConfig(
    epochs=6, patience=6, negatives=10, batch_size=3, learning_rate=0.02, hidden=16
)


WITH_NAMES = replace(CONFIG, entity_text="name")


@pytest.fixture(params=["none", "name"])
def either(
    request: pytest.FixtureRequest, made_up: list[Inputs], made_up_with_names: list[Inputs]
) -> tuple[list[Inputs], RetrieverConfig]:
    """Questions without and with names, and the settings for them."""
    return (made_up, CONFIG) if request.param == "none" else (made_up_with_names, WITH_NAMES)


def train(
    made_up: Sequence[Inputs],
    folder: Path,
    config: RetrieverConfig = CONFIG,
    report: Callable[[Epoch], None] = lambda epoch: None,
) -> TrainedScorer:
    folder.mkdir(exist_ok=True)
    return train_scorer(made_up[5:], made_up[:5], RunFolder(folder), config, report)


def assert_same(found: Weights, expected: Weights) -> None:
    for name in Weights.__slots__:
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name


def test_a_scorer_learns_which_triples_are_right(made_up: list[Inputs], tmp_path: Path) -> None:
    config = replace(CONFIG, epochs=25, patience=25, negatives=300)
    weights = train(made_up, tmp_path, config).weights

    def found(scores: Callable[[Inputs], NDArray[np.float64]]) -> float:
        recalls = [measure_recall(scores(e), e.labelled, (e.labelled.facts,)) for e in made_up[:5]]
        return sum(each.triples[0] for each in recalls) / len(recalls)

    assert found(Inputs.cosines) < 0.6
    assert found(lambda each: each.score(weights, config)) > 0.9


def test_names_help_a_scorer_that_sees_them(
    made_up_with_names: list[Inputs], tmp_path: Path
) -> None:
    without: list[Epoch] = []
    with_names: list[Epoch] = []
    config = replace(CONFIG, epochs=15, patience=15, negatives=300)
    nameless = [replace(each, names=None, name_places=None) for each in made_up_with_names]
    train(nameless, tmp_path / "none", config, without.append)
    config = replace(config, entity_text="name")
    train(made_up_with_names, tmp_path / "name", config, with_names.append)
    assert with_names[-1].loss < without[-1].loss / 2


def test_a_run_that_is_killed_and_resumed_gives_the_same_weights(
    either: tuple[list[Inputs], RetrieverConfig], tmp_path: Path
) -> None:
    questions, config = either
    whole = train(questions, tmp_path / "whole", config)

    def stop(epoch: Epoch) -> None:
        if epoch.epoch == 4:  # before it is saved
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(questions, tmp_path / "killed", config, stop)
    resumed = train(questions, tmp_path / "killed", config)
    assert_same(resumed.weights, whole.weights)
    assert resumed.best == whole.best
    assert resumed.epochs == whole.epochs == 6
    logs = [(tmp_path / name / LOG_FILE).read_text() for name in ("killed", "whole")]
    assert logs[0] == logs[1]


def test_a_finished_run_is_not_trained_again(made_up: list[Inputs], tmp_path: Path) -> None:
    once = train(made_up, tmp_path)
    epochs: list[Epoch] = []
    assert_same(train(made_up, tmp_path, report=epochs.append).weights, once.weights)
    assert epochs == []


def test_training_stops_when_it_no_longer_gets_better(
    made_up: list[Inputs], tmp_path: Path
) -> None:
    found = train(made_up, tmp_path, replace(CONFIG, learning_rate=1e-9, patience=2))
    assert (found.epochs, found.best.epoch) == (3, 1)


def test_another_seed_gives_other_weights(made_up: list[Inputs], tmp_path: Path) -> None:
    one = train(made_up, tmp_path / "one", replace(CONFIG, epochs=1))
    two = train(made_up, tmp_path / "two", replace(CONFIG, epochs=1, seed=43))
    assert not np.array_equal(one.weights.output, two.weights.output)


def test_numpy_scores_as_torch_does(either: tuple[list[Inputs], RetrieverConfig]) -> None:
    from kbqa.training.retriever.command import Network

    questions, config = either
    network = Network(replace(config, seed=1), 8, 10)
    for one in questions:
        logits = network.logits(
            torch.from_numpy(one.vector),
            torch.from_numpy(text_columns(one.vector, one.words, "agreement")),
            torch.from_numpy(one.node_columns("agreement")),
            torch.from_numpy(one.labelled.heads),
            torch.from_numpy(one.labelled.links),
            torch.from_numpy(one.labelled.tails),
        )
        expected = logits.sigmoid().detach().numpy()
        assert one.score(network.export(), config) == pytest.approx(expected, abs=1e-5)


def test_a_step_takes_all_right_triples_and_the_most_similar_wrong_ones(
    made_up: list[Inputs],
) -> None:
    one = made_up[3]
    drawn = one.draw(10, (1, 2))
    right = set(np.flatnonzero(one.right).tolist())
    assert right <= set(drawn.tolist())
    wrong = [at for at in drawn.tolist() if at not in right]
    assert len(set(wrong)) == len(wrong) == 10
    cosines = one.cosines()
    others = [at for at in range(len(cosines)) if at not in right and at not in wrong]
    assert min(cosines[at] for at in wrong[:5]) >= max(cosines[at] for at in others)
    assert drawn.tolist() == one.draw(10, (1, 2)).tolist() != one.draw(10, (1, 3)).tolist()


def test_questions_without_a_right_triple_teach_nothing(
    made_up: list[Inputs], tmp_path: Path
) -> None:
    none = [replace(one, right=np.zeros_like(one.right)) for one in made_up]
    with pytest.raises(TrainingError, match="no question has a right triple"):
        train(none, tmp_path)


def test_a_broken_checkpoint_is_named(made_up: list[Inputs], tmp_path: Path) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(b"half a file")
    with pytest.raises(TrainingError, match=r"checkpoint\.pt cannot be read .* Delete it"):
        train(made_up, tmp_path)
