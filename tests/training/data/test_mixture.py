from collections import Counter

import pytest

from kbqa.training.data.mixture import draw_mixture
from kbqa.training.data.training_set import Example

COMMON = [Example(f"c{n}", f"c{n}?", f"A{n} -> film.film.genre", "facts") for n in range(90)]
RARE = [Example(f"r{n}", f"r{n}?", f"A{n} -> film.film.r{n}", "facts") for n in range(10)]
OTHER = [Example("o", "o?", "A -> film.film.genre", "other")]
ALL = [*COMMON, *RARE, *OTHER]


def test_without_weights_every_example_is_taken_once() -> None:
    assert Counter(draw_mixture(ALL, {}, seed=1)) == Counter(ALL)


@pytest.mark.parametrize(("weight", "size"), [(0, 0), (0.15, 15), (1, 100), (2, 200), (2.5, 250)])
def test_a_set_is_taken_as_often_as_its_weight_says(weight: float, size: int) -> None:
    drawn = draw_mixture(ALL, {"facts": weight}, seed=1)
    assert Counter(one.source for one in drawn) == Counter({"facts": size, "other": 1})


def test_a_part_of_a_set_has_every_relation_that_it_can_have() -> None:
    drawn = set(draw_mixture(ALL, {"facts": 0.15}, seed=1))
    assert set(RARE) < drawn


def test_the_seed_decides_what_is_drawn() -> None:
    draws = [draw_mixture(ALL, {"facts": 0.15}, seed) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
