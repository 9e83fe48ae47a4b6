"""What a request tells the logits processor of vLLM's server, in its ``vllm_xargs``.

    {"kbqa_topics": ["m.019rg5 Kenya"], "kbqa_form": "extended"}

The topics are those of `Request`, each with its mid, a blank and its name. They may be none: then
only relations are constrained. Without ``kbqa_topics``, a text is not steered at all.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kbqa.engine.writing.constraints.decoding import CONSTRAINED_FORMS
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import InputError

GRAPH_PROCESSOR = "kbqa.engine.writing.backends.vllm_steering:GraphProcessor"
"""The logits processor's name, for ``--logits-processors``."""

TOPICS, _FORM = "kbqa_topics", "kbqa_form"

Arguments = dict[str, str | list[str]]


class Steered(NamedTuple):
    """What steers a text: where its paths may start, and the text form that it is written in."""

    topics: tuple[Entity, ...]
    crp_format: str


def write_steered(steered: Steered) -> Arguments:
    """Write the arguments of a request.

    >>> write_steered(Steered((Entity("Kenya", "m.019rg5"),), "extended"))
    {'kbqa_topics': ['m.019rg5 Kenya'], 'kbqa_form': 'extended'}
    """
    topics = [f"{topic.mid} {topic.name}" for topic in steered.topics if topic.mid and topic.name]
    return {TOPICS: topics, _FORM: steered.crp_format}


def read_steered(arguments: Mapping[str, object]) -> Steered | None:
    """Read the arguments of a request; None if it is not to be steered.

    Raises:
        InputError: They are not of that form.
    """
    if TOPICS not in arguments:
        return None
    topics, form = arguments[TOPICS], arguments.get(_FORM, "routerkgqa")
    if form not in CONSTRAINED_FORMS:
        raise InputError(f"{_FORM} is {form!r}: use {' or '.join(CONSTRAINED_FORMS)}")
    if not isinstance(topics, list) or not all(map(_is_topic, topics)):
        raise InputError(f'{TOPICS} must be a list of texts such as "m.019rg5 Kenya"')
    entities = (Entity(name, mid) for mid, _, name in (topic.partition(" ") for topic in topics))
    return Steered(tuple(entities), str(form))


def _is_topic(topic: object) -> bool:
    return isinstance(topic, str) and all(topic.partition(" "))
