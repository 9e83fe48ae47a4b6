"""What a judge reads of a candidate: its path in few words, and what it found.

>>> from kbqa.sparql.crp import Constraint, Crp, Entity, Hop, IsEntity
>>> crp = Crp(
...     Entity("Kenya"),
...     (Hop("location.country.official_language"),),
...     (Constraint(1, (Hop("language.human_language.region"),), IsEntity(Entity("Africa"))),),
... )
>>> path_words(crp)
'Kenya: country official language; human language region Africa'
"""

from collections.abc import Iterator, Sequence

from kbqa.engine.embedding.embedder import relation_words
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.crp import (
    AnyOf,
    Compare,
    Constraint,
    Crp,
    Entity,
    Fork,
    Hop,
    IsEntity,
    IsNode,
    IsNotEntity,
    IsNotNode,
    NodeRef,
    Order,
    Step,
    Test,
    TextEquals,
    Way,
)

NAMED_ANSWERS = 3
"""The answers that are named."""

_LONGEST_NAME = 40


def candidate_text(crp: Crp, said: str, answers: Sequence[str], schema: GraphSchema) -> str:
    """Describe a candidate and what it found.

    Args:
        crp: As it was run, relaxed or in full.
        said: ``yes``, ``no``, or the number of its answers.
        answers: The names of the first of them.
        schema: Of the graph; says of which type the answers are.

    Raises:
        GraphError: The graph does not answer.
    """
    names = ", ".join(name[:_LONGEST_NAME] for name in answers[:NAMED_ANSWERS])
    found = " ".join(filter(None, (said, _answer_type(crp, schema))))
    return f"{path_words(crp)} = {found}: {names}"


def path_words(crp: Crp) -> str:
    """Write a CRP in few words: relations without their domains, no ids, no variables."""
    parts = [f"{crp.topic}: {_steps(crp.path)}"]
    parts += [_constraint(each, crp.answer) for each in crp.constraints]
    if crp.order is not None:
        parts.append(_order(crp.order, crp.answer))
    if crp.form != "select":
        parts.append(crp.form)
    return "; ".join(parts)


def _answer_type(crp: Crp, schema: GraphSchema) -> str:
    last = crp.path[-1]
    if not isinstance(last, Hop):
        return ""
    stated = schema.of([last.relation]).property(last.relation)
    if stated is None:
        return ""
    return relation_words((stated.domain if last.inverse else stated.expected_type) or "")


def _steps(path: Sequence[Step]) -> str:
    return " > ".join(map(_step, path))


def _step(step: Step) -> str:
    if isinstance(step, Fork):
        return f"({' or '.join(map(_way, step.ways))})"
    return f"{relation_words(step.relation)}{' of' if step.inverse else ''}"


def _way(way: Way) -> str:
    constraints = (_constraint(each, len(way.path)) for each in way.constraints)
    return "; ".join((_steps(way.path), *constraints))


def _constraint(constraint: Constraint, answer: int) -> str:
    """Write a constraint; one that is not on the answer begins with its node."""
    return " ".join(filter(None, (_place(constraint.at, answer), *_demand(constraint))))


def _demand(constraint: Constraint) -> Iterator[str]:
    if constraint.negated:
        yield "no"
    if constraint.optional:
        yield "if any"
    yield _steps(constraint.hops)
    if constraint.test is not None:
        yield _test(constraint.test)
    inner = len(constraint.hops)
    yield " and ".join(_constraint(each, inner) for each in constraint.branches)


def _test(test: Test) -> str:
    match test:
        case IsEntity(entity):
            return str(entity)
        case IsNotEntity(entity):
            return f"not {entity}"
        case IsNode(other):
            return f"same as {_node(other)}"
        case IsNotNode(other):
            return f"other than {_node(other)}"
        case Compare(operator, value):
            return f"{operator} {_node(value) if isinstance(value, NodeRef) else value.text}"
        case TextEquals(text):
            return text
        case AnyOf(alternatives):
            return " or ".join(
                " and ".join(" ".join(_demand(each)) for each in alternative)
                for alternative in alternatives
            )


def _order(order: Order, answer: int) -> str:
    rank = f"{order.offset + 1}. " if order.offset else ""
    number = f"{order.limit} " if order.limit > 1 else ""
    which = "most" if order.descending else "least"
    counted = "number of " if order.counted else ""
    return f"{_place(order.at, answer)} {rank}{number}{which} {counted}{_steps(order.hops)}".strip()


def _place(at: int | str | Entity, answer: int) -> str:
    return "" if at == answer else f"step {at}" if isinstance(at, int) else str(at)


def _node(reference: NodeRef) -> str:
    return f"step {reference.node}" if isinstance(reference.node, int) else reference.node
