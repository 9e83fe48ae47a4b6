"""Compare two runs over the questions that both scored, question by question."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kbqa.engine.evaluation.breakdowns import group_by_gold, rows_by_tier
from kbqa.engine.evaluation.metrics import METRICS, Mean, normalise_answer
from kbqa.engine.evaluation.recorded_run import RecordedRun, RunRow, flatten_manifest
from kbqa.engine.evaluation.report import DEFINITIONS
from kbqa.engine.evaluation.significance import (
    Signs,
    count_signs,
    paired_bootstrap,
    sign_test,
)
from kbqa.sparql.errors import InputError

SCHEMA_VERSION = 1

_SHOWN_IDS = 3


@dataclass(frozen=True, slots=True)
class Difference:
    """How the second run (B) differs from the first (A) in one metric.

    Attributes:
        a: Mean of A.
        b: Mean of B.
        difference: B − A with its paired bootstrap interval.
        signs: Questions that B scores higher on, lower, and alike.
        p_value: Of the two-sided exact sign test.
    """

    a: float
    b: float
    difference: Mean
    signs: Signs
    p_value: float


@dataclass(frozen=True, slots=True)
class Pair:
    """One question in both runs.

    Attributes:
        a: Its row in the first.
        b: Its row in the second.
        change: Of the metric that questions are listed by, B − A.
    """

    a: RunRow
    b: RunRow
    change: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """What there is to say about two runs.

    Attributes:
        a: The first run's file.
        b: The second's.
        common: Questions that both scored.
        only_a: Questions that only the first scored.
        only_b: Questions that only the second scored.
        warnings: What makes the comparison less than fair.
        settings: What the manifests say differently, by label: that of A and that of B; None where
            one says nothing of it.
        differences: By tier (``all`` first) and metric.
        metric: What questions are grouped and listed by.
        breakdowns: Differences in that metric by what the gold queries are like; see
            `breakdowns.group_by_gold`.
        wins: Those that B scores higher on, the largest change first.
        losses: Those that it scores lower on, the largest change first.
        ties: The questions on which they are alike.
        names: Of entities, as far as the runs name them.
    """

    a: str
    b: str
    common: int
    only_a: int
    only_b: int
    warnings: Sequence[str]
    settings: Mapping[str, tuple[str | None, str | None]]
    differences: Mapping[str, Mapping[str, Difference]]
    metric: str
    breakdowns: Mapping[str, Mapping[str, Difference]]
    wins: Sequence[Pair]
    losses: Sequence[Pair]
    ties: Sequence[Pair]
    names: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Make a JSON-ready record of everything, all listed questions included."""
        return {
            "schema_version": SCHEMA_VERSION,
            "definitions": dict(DEFINITIONS),
            "a": self.a,
            "b": self.b,
            "common": self.common,
            "only_a": self.only_a,
            "only_b": self.only_b,
            "warnings": list(self.warnings),
            "settings": {key: {"a": a, "b": b} for key, (a, b) in self.settings.items()},
            "tiers": _records(self.differences),
            "metric": self.metric,
            "breakdowns": _records(self.breakdowns),
            "ties": [self._pair(pair) for pair in self.ties],
            "wins": [self._pair(pair) for pair in self.wins],
            "losses": [self._pair(pair) for pair in self.losses],
        }

    def gold_names(self, pair: Pair) -> list[list[str]]:
        """Name the gold answers of a question, by parse; what no run names stays an id.

        Parses with the same answers stand once.
        """
        golds = dict.fromkeys(pair.a.gold)
        return [sorted(self.names.get(one, one) for one in gold) for gold in golds]

    def _pair(self, pair: Pair) -> dict[str, object]:
        return {
            "id": pair.a.id,
            "question": pair.a.question,
            "tier": pair.a.tier,
            "change": pair.change,
            "a": [answer.name for answer in pair.a.answers],
            "b": [answer.name for answer in pair.b.answers],
            "gold": self.gold_names(pair),
        }


def _records(
    differences: Mapping[str, Mapping[str, Difference]],
) -> dict[str, dict[str, dict[str, object]]]:
    return {
        group: {
            name: {**asdict(one), "signs": one.signs._asdict()} for name, one in members.items()
        }
        for group, members in differences.items()
    }


def compare_runs(a: RecordedRun, b: RecordedRun, metric: str = "f1") -> Comparison:
    """Compare two runs over the questions that both scored.

    Args:
        a: What is compared with.
        b: What is compared.
        metric: What questions are grouped and listed by, of `METRICS`.

    Raises:
        InputError: They scored no question in common, or the same id with different gold answers.
    """
    rows_a, rows_b = _scored(a), _scored(b)
    common = [id_ for id_ in rows_a if id_ in rows_b]
    if not common:
        raise InputError(f"{a.path} and {b.path} scored no question in common")
    _check_gold(a, b, [id_ for id_ in common if _gold(rows_a[id_]) != _gold(rows_b[id_])])
    pairs = [
        Pair(rows_a[id_], rows_b[id_], _score(rows_b[id_], metric) - _score(rows_a[id_], metric))
        for id_ in common
    ]
    compared = [pair.a for pair in pairs]
    differences = {
        tier: {name: _difference(rows, rows_b, name) for name in METRICS}
        for tier, rows in rows_by_tier(compared).items()
    }
    signs = differences["all"][metric].signs
    ranked = sorted(pairs, key=lambda pair: -pair.change)
    return Comparison(
        a=str(a.path),
        b=str(b.path),
        common=len(common),
        only_a=len(rows_a) - len(common),
        only_b=len(rows_b) - len(common),
        warnings=_warnings(a, b),
        settings=_changed_settings(flatten_manifest(a.manifest), flatten_manifest(b.manifest)),
        differences=differences,
        metric=metric,
        breakdowns={
            way: {name: _difference(rows, rows_b, metric) for name, rows in groups.items()}
            for way, groups in group_by_gold(compared).items()
        },
        wins=ranked[: signs.wins],
        losses=ranked[: -signs.losses - 1 : -1],
        ties=ranked[signs.wins : len(ranked) - signs.losses],
        names={answer.key: answer.name for row in (*a.rows, *b.rows) for answer in row.answers},
    )


def _scored(run: RecordedRun) -> dict[str, RunRow]:
    return {row.id: row for row in run.rows if row.scores is not None}


def _gold(row: RunRow) -> frozenset[frozenset[str]]:
    return frozenset(frozenset(map(normalise_answer, gold)) for gold in row.gold)


def _check_gold(a: RecordedRun, b: RecordedRun, different: Sequence[str]) -> None:
    if different:
        more = ", …" if len(different) > _SHOWN_IDS else ""
        raise InputError(
            f"{a.path} and {b.path} are of different question sets: {len(different)} questions "
            f"have other gold answers ({', '.join(different[:_SHOWN_IDS])}{more})"
        )


def _score(row: RunRow, metric: str) -> float:
    assert row.scores is not None
    value: float = getattr(row.scores, metric)
    return value


def _difference(rows: Sequence[RunRow], others: Mapping[str, RunRow], metric: str) -> Difference:
    a = [_score(row, metric) for row in rows]
    b = [_score(others[row.id], metric) for row in rows]
    signs = count_signs(a, b)
    return Difference(
        a=sum(a) / len(a),
        b=sum(b) / len(b),
        difference=paired_bootstrap(a, b),
        signs=signs,
        p_value=sign_test(signs.wins, signs.losses),
    )


def _warnings(a: RecordedRun, b: RecordedRun) -> list[str]:
    warnings = []
    if a.entities != b.entities:
        warnings.append(
            f"A was given {a.entities} entities and B {b.entities} ones: "
            "the difference holds what linking costs."
        )
    for name, run in (("A", a), ("B", b)):
        failed = sum(row.error is not None for row in run.rows)
        if failed:
            warnings.append(
                f"{failed} questions of {name} failed and count 0; "
                "`kbqa eval --resume` asks them again."
            )
    return warnings


def _changed_settings(
    a: Mapping[str, str], b: Mapping[str, str]
) -> dict[str, tuple[str | None, str | None]]:
    labels = dict.fromkeys((*a, *b))
    return {label: (a.get(label), b.get(label)) for label in labels if a.get(label) != b.get(label)}
