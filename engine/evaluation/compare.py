"""Compare two runs, question by question, over the questions that both scored.

`compare_runs` measures, and `compare_sections` puts that into words. Manifests are compared setting
by setting.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from kbqa.engine.evaluation.breakdowns import group_by_gold, row_costs, rows_by_tier
from kbqa.engine.evaluation.rows import RecordedRun, Row, setting_text
from kbqa.engine.evaluation.scores import METRICS, RESAMPLES, Mean, NameScores, normalise_answer
from kbqa.engine.evaluation.statistics import (
    Signs,
    count_signs,
    paired_bootstrap,
    relative_change,
    sign_test,
)
from kbqa.engine.evaluation.tables import (
    BREAKDOWN_NAMES,
    COST_RULE,
    METRIC_NAMES,
    NAME_METRICS,
    NAME_RULES,
    NO_GOLD_NAMES,
    Section,
    define_scores,
    shorten_setting,
    spoken,
    table_section,
)
from kbqa.sparql.errors import InputError

SCHEMA_VERSION = 1

# What does not change a method's answer to a question that both runs have.
_NOTES = {
    "schema_version",
    "kbqa",
    "git",
    "python",
    "packages",
    "questions",
    "questions_sha256",
    "question_count",
    "sample",
    "seed",
    "timings",
    "times",
    "graph",
    "store_summary",
    "beams",
    "beams_manifest",
    "adapter",
}

_FOLLOWS = {"embedder": "chooser", "general_model": "chooser", "hop_cost": "chooser"}
"""Settings that only one of two runs has where another setting differs, which says it all."""

_OF_ALL_METHODS = ("chooser", "embedder", "general_model", "seed")
"""Settings of a method that mean the same for others."""


_SHOWN_IDS = 3
_SHOWN_ANSWERS = 5
_HEADER = ("A", "B", "B − A, 95 % interval", "wins", "losses", "ties", "p")
_STATISTICS = (
    "Interval: paired bootstrap over questions, {:,} resamples, seed 42. Wins, losses and ties: "
    "questions on which B scores higher, lower and the same. p: two-sided exact sign test over "
    "wins and losses, for each line by itself."
)
_COSTS = (
    "A and B: means over the n questions for which both runs know the figure. Change: of B against "
    f"A, with the interval of a paired bootstrap over questions. {COST_RULE}"
)


class Change(NamedTuple):
    """A value that differs: in A and in B, as text; None if there is none."""

    a: str | None
    b: str | None


def compare_manifests(
    a: Mapping[str, object], b: Mapping[str, object]
) -> tuple[dict[str, Change], dict[str, Change]]:
    """Return the settings that differ, by path, and the notes, such as versions and files.

    The settings of one method are compared one by one. Those of two different methods are one
    difference, except for settings that all methods share, such as the chooser.

    >>> a = {"n": 5, "method": {"name": "router", "order": "confidence", "without": []}}
    >>> b = {"n": 5, "method": {"name": "router", "order": "beam", "without": []}, "git": "0b1"}
    >>> compare_manifests(a, b)[0]
    {'method.order': Change(a='confidence', b='beam')}
    >>> compare_manifests(a, {"n": 5, "method": {"name": "io"}})[0]
    {'method': Change(a='router (order confidence, without none)', b='io')}
    """
    changes = {name: list(_changes(name, a, b)) for name in dict.fromkeys((*a, *b))}
    settings = (pair for name, pairs in changes.items() if name not in _NOTES for pair in pairs)
    notes = (pair for name, pairs in changes.items() if name in _NOTES for pair in pairs)
    return dict(settings), dict(notes)


def _changes(
    name: str, a: Mapping[str, object], b: Mapping[str, object]
) -> Iterator[tuple[str, Change]]:
    old, new = a.get(name), b.get(name)
    if old == new:
        return
    leader = _FOLLOWS.get(name)
    if None in (old, new) and leader is not None and a.get(leader) != b.get(leader):
        return  # one run has no use for the setting
    if not (isinstance(old, dict) and isinstance(new, dict)):
        yield name, Change(*(None if one is None else setting_text(one) for one in (old, new)))
        return
    inner = list(dict.fromkeys((*old, *new)))
    if old.get("name") != new.get("name"):
        yield name, Change(setting_text(old), setting_text(new))
        inner = [each for each in _OF_ALL_METHODS if each in old and each in new]
    for each in inner:
        yield from ((f"{name}.{below}", change) for below, change in _changes(each, old, new))


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of the second run (B) from the first (A) in one metric."""

    a: float  # mean
    b: float
    difference: Mean  # B − A with its paired bootstrap interval
    signs: Signs
    p_value: float  # of the two-sided exact sign test


@dataclass(frozen=True, slots=True)
class CostChange:
    """What a question takes in two runs."""

    a: float  # mean
    b: float
    n: int  # questions for which both are known
    change: Mean | None  # (B − A) / A with its paired bootstrap interval; None if A is 0


@dataclass(frozen=True, slots=True)
class Pair:
    """One question in both runs, and B − A in the metric by which questions are listed."""

    a: Row
    b: Row
    change: float


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The differences of two runs."""

    a: str  # the first run's file
    b: str
    common: int  # questions that both scored
    only_a: int  # questions that only the first scored
    only_b: int
    warnings: Sequence[str]  # reasons why the comparison is not fair
    settings: Mapping[str, Change]  # that differ, by path, such as method.history
    notes: Mapping[str, Change]  # other facts that differ, such as versions and files
    differences: Mapping[str, Mapping[str, Difference]]  # by tier (all first) and metric
    name_differences: Mapping[str, Mapping[str, Difference]] | None  # None if not asked for
    costs: Mapping[str, CostChange]  # that both runs know, by name
    resamples: int  # of each interval
    metric: str  # by which questions are grouped and listed
    breakdowns: Mapping[str, Mapping[str, Difference]]  # by `group_by_gold`
    wins: Sequence[Pair]  # B scores higher, the largest change first
    losses: Sequence[Pair]  # B scores lower, the largest change first
    ties: Sequence[Pair]
    names: Mapping[str, str]  # of entities, as far as the runs name them

    def to_dict(self) -> dict[str, Any]:
        """Return everything as a JSON record, with all questions."""
        return {
            "schema_version": SCHEMA_VERSION,
            "definitions": define_scores(self.resamples),
            "resamples": self.resamples,
            "a": self.a,
            "b": self.b,
            "common": self.common,
            "only_a": self.only_a,
            "only_b": self.only_b,
            "warnings": list(self.warnings),
            "settings": {name: change._asdict() for name, change in self.settings.items()},
            "notes": {name: change._asdict() for name, change in self.notes.items()},
            "tiers": _records(self.differences),
            "name_rules": None if self.name_differences is None else NAME_RULES,
            "name_tiers": self.name_differences and _records(self.name_differences),
            "costs": {name: asdict(cost) for name, cost in self.costs.items()},
            "metric": self.metric,
            "breakdowns": _records(self.breakdowns),
            "ties": [self._pair(pair) for pair in self.ties],
            "wins": [self._pair(pair) for pair in self.wins],
            "losses": [self._pair(pair) for pair in self.losses],
        }

    def gold_names(self, pair: Pair) -> list[list[str]]:
        """Return the names of a question's gold answers, by parse; ids if no run has the name."""
        if pair.a.gold_unanswerable:
            return [["no answer"]]
        if pair.a.kind not in (None, "answers"):
            return [[_special_answer(pair.a.gold_boolean, pair.a.gold_count)]]
        golds = dict.fromkeys(map(frozenset, pair.a.gold))
        return [sorted(self.names.get(one, one) for one in gold) for gold in golds]

    def _pair(self, pair: Pair) -> dict[str, object]:
        return {
            "id": pair.a.id,
            "question": pair.a.question,
            "tier": pair.a.tier,
            "change": pair.change,
            "a": _said(pair.a),
            "b": _said(pair.b),
            "gold": self.gold_names(pair),
        }


def compare_runs(
    a: RecordedRun,
    b: RecordedRun,
    metric: str = "f1",
    *,
    names: bool = False,
    resamples: int = RESAMPLES,
) -> RunComparison:
    """Compare run B with run A; questions are grouped and listed by a metric of `METRICS`.

    If `names`, the scores by the names of answers are compared, too.
    """
    rows_a, rows_b = ({row.id: row for row in run.rows if row.scores is not None} for run in (a, b))
    common = [id_ for id_ in rows_a if id_ in rows_b]
    if not common:
        raise InputError(f"{a.path} and {b.path} have no scored question in common")
    different = [id_ for id_ in common if _gold(rows_a[id_]) != _gold(rows_b[id_])]
    if different:
        more = ", …" if len(different) > _SHOWN_IDS else ""
        raise InputError(
            f"{a.path} and {b.path} are runs of different question sets: the gold answers of "
            f"{len(different)} questions differ ({', '.join(different[:_SHOWN_IDS])}{more})"
        )
    pairs = [
        Pair(rows_a[id_], rows_b[id_], _score(rows_b[id_], metric) - _score(rows_a[id_], metric))
        for id_ in common
    ]
    compared = [pair.a for pair in pairs]
    differences = {
        tier: {name: _difference(rows, rows_b, f"scores.{name}", resamples) for name in METRICS}
        for tier, rows in rows_by_tier(compared).items()
    }
    named = [pair.a for pair in pairs if pair.a.gold_names and pair.b.gold_names]
    signs = differences["all"][metric].signs
    ranked = sorted(pairs, key=lambda pair: -pair.change)
    settings, notes = compare_manifests(a.manifest, b.manifest)
    return RunComparison(
        a=str(a.path),
        b=str(b.path),
        common=len(common),
        only_a=len(rows_a) - len(common),
        only_b=len(rows_b) - len(common),
        warnings=list(_warnings(a, b, settings)),
        settings=settings,
        notes=notes,
        differences=differences,
        name_differences={
            tier: {
                name: _difference(rows, rows_b, f"name_scores.{name}", resamples)
                for name in NameScores._fields
            }
            for tier, rows in rows_by_tier(named).items()
        }
        if names
        else None,
        costs=_compare_costs(pairs, resamples),
        resamples=resamples,
        metric=metric,
        breakdowns={
            way: {
                name: _difference(rows, rows_b, f"scores.{metric}", resamples)
                for name, rows in groups.items()
            }
            for way, groups in group_by_gold(compared).items()
        },
        wins=ranked[: signs.wins],
        losses=ranked[: -signs.losses - 1 : -1],
        ties=ranked[signs.wins : len(ranked) - signs.losses],
        names={answer.key: answer.name for row in (*a.rows, *b.rows) for answer in row.answers},
    )


def _gold(row: Row) -> tuple[object, ...]:
    sets = frozenset(frozenset(map(normalise_answer, gold)) for gold in row.gold)
    return sets, row.gold_boolean, row.gold_count, row.gold_unanswerable


def _score(row: Row, metric: str) -> float:
    assert row.scores is not None
    value: float = getattr(row.scores, metric)
    return value


def _difference(
    rows: Sequence[Row], others: Mapping[str, Row], metric: str, resamples: int
) -> Difference:
    """Compare rows with those of the other run; the metric is a path, such as `scores.f1`."""
    read = attrgetter(metric)
    a, b = [read(row) for row in rows], [read(others[row.id]) for row in rows]
    signs = count_signs(a, b)
    return Difference(
        a=sum(a) / len(a),
        b=sum(b) / len(b),
        difference=paired_bootstrap(a, b, resamples=resamples),
        signs=signs,
        p_value=sign_test(signs.wins, signs.losses),
    )


def _compare_costs(pairs: Sequence[Pair], resamples: int) -> dict[str, CostChange]:
    costs = [(_known_costs(pair.a), _known_costs(pair.b)) for pair in pairs]
    parts = {name: (name, "") for pair in pairs for name in row_costs(pair.a)}
    parts["input_tokens_per_call"] = "general_input_tokens", "general_calls"
    compared = {}
    for name, (cost, unit) in parts.items():
        known = [both for both in costs if all(cost in one for one in both)]
        a, b = ([both[side][cost] for both in known] for side in (0, 1))
        per_a, per_b = ([both[side][unit] if unit else 1 for both in known] for side in (0, 1))
        if (any(a) or any(b)) and any(per_a) and any(per_b):
            change = relative_change(a, b, (per_a, per_b) if unit else None, resamples)
            means = sum(a) / sum(per_a), sum(b) / sum(per_b)
            compared[name] = CostChange(*means, len(known), change)
    return compared


def _known_costs(row: Row) -> dict[str, float]:
    return {name: cost for name, cost in row_costs(row).items() if cost is not None}


def _warnings(a: RecordedRun, b: RecordedRun, settings: Mapping[str, Change]) -> Iterator[str]:
    if len(settings) > 1:
        yield (
            f"{len(settings)} settings differ ({', '.join(settings)}), so the difference in scores "
            "cannot be attributed to one of them."
        )
    if a.entities != b.entities:
        yield (
            f"A was given {a.entities} entities and B {b.entities} ones: "
            "the difference includes the cost of linking."
        )
    for name, run in (("A", a), ("B", b)):
        failed = sum(row.error is not None for row in run.rows)
        if failed:
            yield (
                f"{failed} questions of {name} failed and score 0; "
                "`kbqa eval --resume` asks them again."
            )


def _records(
    differences: Mapping[str, Mapping[str, Difference]],
) -> dict[str, dict[str, dict[str, object]]]:
    return {
        group: {
            name: {**asdict(one), "signs": one.signs._asdict()} for name, one in members.items()
        }
        for group, members in differences.items()
    }


def compare_sections(comparison: RunComparison, examples: int) -> Iterator[Section]:
    """Put a comparison into words, with at most `examples` wins and as many losses."""
    counts = (
        f"{comparison.common:,} questions that both scored; {comparison.only_a:,} that only A "
        f"scored and {comparison.only_b:,} that only B scored are left out"
    )
    facts = [("A", comparison.a), ("B", comparison.b), ("compared", counts)]
    facts += [("warning", warning) for warning in comparison.warnings]
    title = f"Run {Path(comparison.b).stem} (B) against {Path(comparison.a).stem} (A)"
    yield Section(title, facts, depth=1)
    yield _changed("Settings that differ", comparison.settings)
    if comparison.notes:
        yield _changed("Also different", comparison.notes)
    note = _STATISTICS.format(comparison.resamples)
    yield from _by_tier("Tier {}", comparison.differences, METRIC_NAMES, note)
    if comparison.name_differences == {}:
        yield Section("Scores by names", notes=[NO_GOLD_NAMES])
    by_name = comparison.name_differences or {}
    yield from _by_tier("Tier {} by names", by_name, NAME_METRICS, NAME_RULES)
    if comparison.costs:
        rows: list[tuple[str, ...]] = []
        for name, cost in comparison.costs.items():
            change = "–" if cost.change is None else f"{cost.change:+z.1%}"
            means = f"{cost.n:,}", f"{cost.a:,.2f}", f"{cost.b:,.2f}"
            rows.append((spoken(name), *means, change))
        header = ("", "n", "A", "B", "change, 95 % interval")
        yield table_section("What a question takes", header, rows, _COSTS)
    metric = METRIC_NAMES[comparison.metric]
    for way, differences in comparison.breakdowns.items():
        rows = [(name, f"{one.difference.n:,}", *_cells(one)) for name, one in differences.items()]
        yield table_section(f"{metric} by {BREAKDOWN_NAMES[way]}", ("", "n", *_HEADER), rows)
    wins, losses = comparison.wins[:examples], comparison.losses[:examples]
    counts = (
        f"B scores higher on {len(comparison.wins):,} questions, lower on "
        f"{len(comparison.losses):,}, and the same on {len(comparison.ties):,}. "
        f"Shown: {len(wins):,} wins and {len(losses):,} losses, the largest changes first."
    )
    yield Section(f"Questions by {metric}", notes=[counts])
    for pair in (*wins, *losses):
        gold = ", or: ".join(map(_listed, comparison.gold_names(pair)))
        facts = [("A", _answers(pair.a)), ("B", _answers(pair.b)), ("gold", gold)]
        title = f"{'Win' if pair.change > 0 else 'Loss'} {pair.change:+z.3f}, {pair.a.id}"
        yield Section(f"{title}: {pair.a.question}", facts, depth=3)


def _changed(title: str, changes: Mapping[str, Change]) -> Section:
    if not changes:
        return Section(title, notes=["None: both runs have the same settings."])
    facts = []
    for label, change in changes.items():
        a, b = (shorten_setting(label, text or "none") for text in change)
        facts.append((label, f"{a} → {b}"))
    return Section(title, facts)


def _by_tier(
    title: str,
    tiers: Mapping[str, Mapping[str, Difference]],
    names: Mapping[str, str],
    note: str,
) -> Iterator[Section]:
    for tier, differences in tiers.items():
        n = next(iter(differences.values())).difference.n
        rows = [(names[metric], *_cells(one)) for metric, one in differences.items()]
        notes = [note] if tier == "all" else []
        yield table_section(f"{title.format(tier)}, n = {n:,}", ("", *_HEADER), rows, *notes)


def _cells(one: Difference) -> tuple[str, ...]:
    signs = map("{:,}".format, one.signs)
    p = "< 0.001" if one.p_value < 0.001 else f"{one.p_value:.3f}"
    return f"{one.a:.3f}", f"{one.b:.3f}", f"{one.difference:+z.3f}", *signs, p


def _answers(row: Row) -> str:
    return _listed(_said(row)) if row.error is None else f"failed: {row.error}"


def _said(row: Row) -> list[str]:
    """Return the answers of a row as texts: yes or no, a number, or names."""
    if row.boolean is not None or row.count is not None:
        return [_special_answer(row.boolean, row.count)]
    return [answer.name for answer in row.answers]


def _special_answer(boolean: bool | None, count: int | None) -> str:
    if boolean is not None:
        return "yes" if boolean else "no"
    return f"{count:,}"


def _listed(names: Sequence[str]) -> str:
    more = f", … ({len(names):,} in all)" if len(names) > _SHOWN_ANSWERS else ""
    return ", ".join(names[:_SHOWN_ANSWERS]) + more or "nothing"
