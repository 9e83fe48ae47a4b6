"""Write the texts that a model learns to answer with: CRPs by names, from question records.

A record's CRP is the published RouterKGQA text if there is one, else its converted SPARQL or
s-expression. Names come from the record, else from a graph, else from the comments in its SPARQL.

Each meaning has one text. No question says in which language an answer should be, that a topic may
be an answer, whether counted bindings must differ, or what a relation already implies: so no target
says it either. The published texts do the same.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from kbqa.engine.linking.mentions import mend_mojibake, named_entities
from kbqa.engine.questions.question_sets import Unconverted, convert_queries, topic_entities
from kbqa.sparql.convert.from_sparql import sparql_from_s_expression
from kbqa.sparql.crp import Constraint, Crp, Entity, Hop, compare_with
from kbqa.sparql.errors import CrpSyntaxError, InputError
from kbqa.sparql.forms import parse_routerkgqa, render_crp, render_extended, render_routerkgqa
from kbqa.sparql.terms import is_mid

TargetForm: TypeAlias = Literal["routerkgqa", "extended", "compact"]
"""RouterKGQA's text form, its extension, or kbqa's own, which is shorter."""

NameSource: TypeAlias = Callable[[Iterable[str]], Mapping[str, str]]
"""Looks up the names of mids, as `Graph.labels` does."""

UNNAMED = "an entity without a name"  # the reason if neither a file nor a graph names an entity
_MID = re.compile(r"\b(?:ns|fb):([mg]\.[0-9a-z_]+)")
# Annotators noted names in comments; their other notes, such as "#player", begin differently.
_NOTED_NAME = re.compile(r"#\s+([A-Z].*\S)")

_TYPE = Hop("type.object.type")

_Row: TypeAlias = Mapping[str, Any]


def row_targets(
    rows: Sequence[_Row], form: TargetForm, names: NameSource | None = None
) -> list[str | Unconverted]:
    """Write the target of each record, or the reason why there is none.

    Entities that a record does not name are looked up in `names`, which may raise a `GraphError`.
    """
    converted = convert_queries(
        query for row in rows if (query := row_query(row)) and not _text(row, "crp_routerkgqa")
    )
    found = [_row_crp(row, converted) for row in rows]
    unnamed = {
        entity.mid
        for crp in found
        if isinstance(crp, Crp)
        for entity in crp.entities()
        if not entity.name and entity.mid and is_mid(entity.mid)
    }
    looked_up = {} if names is None else names(sorted(unnamed))
    return [
        write_target(_with_names(crp, {**_noted_names(_text(row, "sparql")), **looked_up}), form)
        if isinstance(crp, Crp)
        else crp
        for row, crp in zip(rows, found, strict=True)
    ]


def row_query(row: _Row) -> str:
    """Return a record's SPARQL, or that of its s-expression; empty if it has neither."""
    s_expression = _text(row, "s_expression")
    if _text(row, "sparql") or not s_expression:
        return _text(row, "sparql")
    try:
        return sparql_from_s_expression(s_expression)
    except InputError:
        return ""


def write_target(crp: Crp, form: TargetForm) -> str | Unconverted:
    """Write a CRP by its entities' names, or return the reason why that is not possible.

    >>> from kbqa.sparql.crp import Hop
    >>> kenya = Crp(Entity("Kenya", "m.019rg5"), (Hop("location.country.capital"),))
    >>> write_target(kenya, "compact")
    'Kenya -> location.country.capital'
    """
    # An id of a class is made of words, so these forms can use it as a name.
    if not all(
        entity.name or (form != "routerkgqa" and not is_mid(entity.mid or ""))
        for entity in crp.entities()
    ):
        return Unconverted(UNNAMED)
    crp = _without_unasked(crp)
    if form == "routerkgqa":
        return render_routerkgqa(crp) or Unconverted("RouterKGQA's text form cannot say it")
    if form == "extended":
        return render_extended(crp) or Unconverted("the extended form cannot say it")
    return render_crp(crp.with_entities(lambda e: Entity(e.name) if e.name else e))


def _without_unasked(crp: Crp) -> Crp:
    """Drop what no question says: languages, that the topic may be an answer, what is implied."""

    def in_any_language(constraint: Constraint) -> Constraint:
        text = constraint.operand
        if not isinstance(text, str):
            return constraint
        return replace(constraint, test=compare_with("=", text))

    kept = tuple(one for one in crp.constraints if not _is_implied(one, crp))
    form = "count" if crp.form == "count bindings" else crp.form
    crp = replace(
        crp, answer_language="en", differs_from=crp.differs_from or 0, constraints=kept, form=form
    )
    return crp.with_constraints(in_any_language)


def _is_implied(constraint: Constraint, crp: Crp) -> bool:
    """Return whether a constraint says no more than the rest of its path, as GrailQA's often do."""
    # A node with a relation of a class belongs to the class. It is no entity named elsewhere.
    at = constraint.at
    if not isinstance(at, int) or constraint.negated:
        return False
    match constraint.operator, constraint.operand:
        case "=", Entity() as entity if constraint.hops == (_TYPE,) and entity.is_grounded:
            before, after = crp.path[at - 1 : at], crp.path[at : at + 1]
            towards = [hop for hop in before if isinstance(hop, Hop) and hop.inverse]
            onwards = [hop for hop in after if isinstance(hop, Hop) and not hop.inverse]
            aside = [one.hops[0] for one in crp.constraints if one.at == at and one.hops]
            if crp.order is not None and crp.order.at == at:
                aside += crp.order.hops[:1]
            onwards += [hop for hop in aside if not hop.inverse]
            classes = {hop.relation.rpartition(".")[0] for hop in (*towards, *onwards)}
            return at > 0 and entity.mid in classes
        case "!=", Entity() as entity if not constraint.hops:
            return entity in (crp.topic, *(one.entity for one in crp.constraints))
        case _:
            return False


def _row_crp(row: _Row, converted: Mapping[str, Crp | Unconverted]) -> Crp | Unconverted:
    """Read a record's CRP, with the names that the record itself gives."""
    try:
        entities = [*(row.get("entities_in_sparql") or ()), *(row.get("topic_entities") or ())]
        names = {e["mid"]: mend_mojibake(e["name"]) for e in entities if e.get("name")}
    except (AttributeError, KeyError, TypeError):
        return Unconverted("malformed entities")
    crp = converted.get(row_query(row))
    if text := _text(row, "crp_routerkgqa"):
        try:
            crp, problems = parse_routerkgqa(text)
        except CrpSyntaxError:
            return Unconverted("published CRP that cannot be read")
        if problems:
            return Unconverted("published CRP with problems")
    if crp is None:
        is_incomplete = row.get("parses")
        return Unconverted(
            "no complete parse of a good question" if is_incomplete else "neither CRP nor SPARQL"
        )
    return _with_names(crp, names) if isinstance(crp, Crp) else crp


def _noted_names(sparql: str) -> dict[str, str]:
    """Collect the names in a query's comments, from lines with a single entity."""
    # The last resort: of 111 in the WebQSP and CWQ rows, 104 are the graph's own.
    names: dict[str, str] = {}
    for line in sparql.split("\n"):
        mids = set(_MID.findall(line))
        if len(mids) == 1 and (match := _NOTED_NAME.search(line)):
            names.setdefault(mids.pop(), match[1])
    return names


def _with_names(crp: Crp, names: Mapping[str, str]) -> Crp:
    return crp.with_entities(lambda e: e if e.name else Entity(names.get(e.mid or ""), e.mid))


def _text(row: _Row, field: str) -> str:
    """Return a text field of a record; empty if it has none."""
    return text if isinstance(text := row.get(field), str) else ""


def gold_topics(row: Mapping[str, Any], crp: Crp) -> tuple[Entity, ...]:
    """Return the topics that a record states, or else the entities that its query names."""
    if stated := topic_entities(row):
        return stated
    names = {each.get("mid"): each.get("name") for each in row.get("entities_in_sparql") or ()}
    return tuple(Entity(names.get(each.mid) or each.name, each.mid) for each in named_entities(crp))
