"""Write the text that a model is trained to answer with: a CRP by names, in one of two forms.

One meaning has one text. What a query says of languages, and of a topic that may be an answer, no
question tells, so that no target says it either; neither do the published texts.
"""

from dataclasses import replace
from typing import Literal, TypeAlias

from kbqa.sparql.crp import Constraint, Crp, Entity, TextEquals
from kbqa.sparql.routerkgqa import render_routerkgqa
from kbqa.sparql.terms import is_mid
from kbqa.sparql.text import render_crp
from kbqa.training.unusable import UNNAMED, Unusable

TargetForm: TypeAlias = Literal["routerkgqa", "compact"]
"""RouterKGQA's text form, or kbqa's own, which is shorter and says more."""


def write_target(crp: Crp, form: TargetForm) -> str | Unusable:
    """Write a CRP by its entities' names, or tell why it cannot be said.

    >>> from kbqa.sparql.crp import Hop
    >>> kenya = Crp(Entity("Kenya", "m.019rg5"), (Hop("location.country.capital"),))
    >>> write_target(kenya, "compact")
    'Kenya -> location.country.capital'
    """
    if not all(_is_sayable(entity, form) for entity in crp.entities()):
        return Unusable(UNNAMED)
    crp = _nearest_sayable(crp)
    if form == "routerkgqa":
        return render_routerkgqa(crp) or Unusable("RouterKGQA's text form cannot say it")
    return render_crp(crp.with_entities(lambda e: Entity(e.name) if e.name else e))


def _is_sayable(entity: Entity, form: TargetForm) -> bool:
    """Tell whether an entity can be said: by name, or by the id of a type, which is words."""
    return bool(entity.name) or (form == "compact" and not is_mid(entity.mid or ""))


def _nearest_sayable(crp: Crp) -> Crp:
    def in_any_language(constraint: Constraint) -> Constraint:
        if not isinstance(constraint.test, TextEquals):
            return constraint
        return replace(constraint, test=TextEquals(constraint.test.text))

    sayable = replace(crp, answer_language="en", differs_from=crp.differs_from or 0)
    return sayable.with_constraints(in_any_language)
