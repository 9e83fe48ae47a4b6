"""What a request tells the logits processor of vLLM's server, in its ``vllm_xargs``.

    {"kbqa_topics": ["m.019rg5 Kenya"], "kbqa_form": "extended"}

The topics are those of `Request`, each with its mid, a blank and its name. They may be none: then
only relations are constrained. Without ``kbqa_topics``, a text is not steered at all. With
``"kbqa_keep": "all"``, samples are drawn from all tokens that may follow; see `Keep`.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias, get_args

from kbqa.engine.writing.constraints.decoding import CONSTRAINED_FORMS
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import InputError

GRAPH_PROCESSOR = "kbqa.engine.writing.backends.vllm_steering:GraphProcessor"
"""The logits processor's name, for ``--logits-processors``."""

TOPICS, KEEP, _FORM = "kbqa_topics", "kbqa_keep", "kbqa_form"

Sampled: TypeAlias = Literal["likely", "all"]
"""What samples are drawn from; see `kbqa.engine.writing.backends.steered_rows.Keep`."""

Arguments = dict[str, str | list[str]]


class Steered(NamedTuple):
    """What steers a text.

    Attributes:
        topics: Where its paths may start.
        crp_format: The text form that it is written in.
        keep: What it is drawn from, if its temperature is above 0.
    """

    topics: tuple[Entity, ...]
    crp_format: str
    keep: Sampled = "likely"


def write_steered(steered: Steered) -> Arguments:
    """Write the arguments of a request.

    >>> write_steered(Steered((Entity("Kenya", "m.019rg5"),), "extended"))
    {'kbqa_topics': ['m.019rg5 Kenya'], 'kbqa_form': 'extended'}
    """
    topics = [f"{topic.mid} {topic.name}" for topic in steered.topics if topic.mid and topic.name]
    arguments: Arguments = {TOPICS: topics, _FORM: steered.crp_format}
    return arguments if steered.keep == "likely" else {**arguments, KEEP: steered.keep}


def read_steered(arguments: Mapping[str, object]) -> Steered | None:
    """Read the arguments of a request; None if it is not to be steered.

    Raises:
        InputError: They are not of that form.
    """
    if TOPICS not in arguments:
        return None
    topics, form = arguments[TOPICS], arguments.get(_FORM, "routerkgqa")
    keep = next((one for one in get_args(Sampled) if one == arguments.get(KEEP, "likely")), None)
    if keep is None:
        raise InputError(f"{KEEP} is {arguments[KEEP]!r}: use {' or '.join(get_args(Sampled))}")
    if form not in CONSTRAINED_FORMS:
        raise InputError(f"{_FORM} is {form!r}: use {' or '.join(CONSTRAINED_FORMS)}")
    if not isinstance(topics, list) or not all(map(_is_topic, topics)):
        raise InputError(f'{TOPICS} must be a list of texts such as "m.019rg5 Kenya"')
    entities = (Entity(name, mid) for mid, _, name in (topic.partition(" ") for topic in topics))
    return Steered(tuple(entities), str(form), keep)


def _is_topic(topic: object) -> bool:
    return isinstance(topic, str) and all(topic.partition(" "))
