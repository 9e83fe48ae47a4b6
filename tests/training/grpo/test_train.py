"""Advantages, log-probabilities of choices, and the loss, on a tiny writer and the small graph."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from kbqa.training.config import GrpoConfig
from kbqa.training.grpo.train import (
    SPREAD_FLOOR,
    Objective,
    Text,
    WriterPolicy,
    advantages,
    texts_to_learn,
)

torch = pytest.importorskip("torch", reason="needs the lm extra")
pytestmark = pytest.mark.usefixtures("one_thread", "float32")


CONFIG = GrpoConfig(group=16)


@pytest.fixture(scope="module")
def policy(start_config, small_graph) -> WriterPolicy:
    device = torch.device("cpu")
    return WriterPolicy(start_config, CONFIG, small_graph.decoding, device, Path("unused"))


@pytest.fixture(scope="module")
def objective(policy: WriterPolicy) -> Objective:
    return Objective(policy.logits, torch.device("cpu"), CONFIG)


@pytest.fixture(scope="module")
def texts(policy: WriterPolicy, asked_questions) -> list[Text]:
    """Paths that were drawn; of each group, the first is the best."""
    groups = policy.draw(asked_questions, "seed")
    return texts_to_learn(
        group._replace(rewards=(1.0, *[0.0] * (len(group.texts) - 1))) for group in groups
    )


def test_advantages_are_deviations_from_the_mean_of_all_that_were_drawn() -> None:
    found = advantages([1.0, 0.5, 0.0], [2, 1, 1])
    spread = math.sqrt((2 * 0.375**2 + 0.125**2 + 0.625**2) / 4)
    assert found == pytest.approx(
        [each / (spread + SPREAD_FLOOR) for each in (0.375, -0.125, -0.625)]
    )


def test_a_group_whose_paths_are_equal_teaches_nothing() -> None:
    assert advantages([0.3, 0.3], [1, 7]) is None


def test_what_little_length_costs_matters_little() -> None:
    assert max(advantages([0.99, 0.98], [4, 4]) or ()) < 0.1 < 0.7 < max(advantages([1, 0], [4, 4]))


def test_the_weights_of_a_step_add_up_to_one(texts: list[Text]) -> None:
    assert sum(text.weight for text in texts) == pytest.approx(1)
    assert sum(text.weight * text.advantage for text in texts) == pytest.approx(0, abs=1e-6)


def test_logprobs_are_the_models_renormalised_over_what_the_graph_allows(
    policy: WriterPolicy, objective: Objective, texts: list[Text]
) -> None:
    with torch.no_grad():
        found = objective.logprobs(texts).tolist()
        expected = []
        for text in texts:
            logits = policy.model.causal(input_ids=torch.tensor([text.ids])).logits[0]
            for at, allowed in text.choices:
                position = text.prompt_length + at
                scores = logits[position - 1, list(allowed)].log_softmax(0)
                expected.append(float(scores[allowed.index(text.ids[position])]))
    assert found == pytest.approx(expected, abs=1e-4)


def test_tokens_that_had_to_follow_have_no_logprob(objective: Objective, texts: list[Text]) -> None:
    choices = sum(len(text.choices) for text in texts)
    tokens = sum(len(text.ids) - text.prompt_length for text in texts)
    assert len(objective.logprobs(texts)) == choices < tokens


def test_a_temperature_flattens_the_distribution_that_is_trained(
    objective: Objective, texts: list[Text]
) -> None:
    hot = replace(objective, config=replace(objective.config, temperature=1e6))
    uniform = [-math.log(len(choice.allowed)) for text in texts for choice in text.choices]
    assert hot.logprobs(texts).tolist() == pytest.approx(uniform, abs=1e-3)


def test_the_first_update_is_that_of_the_policy_gradient(
    policy: WriterPolicy, objective: Objective, texts: list[Text]
) -> None:
    parameters = list(policy.model.parameters().values())
    reference = objective.logprobs(texts).detach()
    loss = objective.loss(texts, None, reference)
    assert (loss.kl, loss.clipped) == (0, 0)
    found = torch.autograd.grad(loss.loss, parameters)
    weights = torch.tensor(
        [t.weight * t.advantage / len(t.choices) for t in texts for _ in t.choices]
    )
    expected = torch.autograd.grad(-(weights * objective.logprobs(texts)).sum(), parameters)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


def test_a_choice_that_has_moved_too_far_is_held_back(
    policy: WriterPolicy, objective: Objective, texts: list[Text]
) -> None:
    now = objective.logprobs(texts).detach()
    is_good = torch.tensor([text.advantage > 0 for text in texts for _ in text.choices])
    moved = torch.where(is_good, 0.5, -0.5)  # the good have become likelier, the others less likely
    onwards = objective.loss(texts, now - moved, now)
    assert onwards.clipped == pytest.approx(1)
    gradients = torch.autograd.grad(onwards.loss, list(policy.model.parameters().values()))
    assert max(float(each.abs().max()) for each in gradients) < 1e-6
    assert objective.loss(texts, now + moved, now).clipped == 0


def test_the_penalty_grows_with_the_distance_from_the_start(
    objective: Objective, texts: list[Text]
) -> None:
    now = objective.logprobs(texts).detach()
    near, far = (objective.loss(texts, None, now + by).kl for by in (0.1, 1.0))
    assert 0 < near < far
    assert near == pytest.approx(math.exp(0.1) - 0.1 - 1, rel=1e-3)
