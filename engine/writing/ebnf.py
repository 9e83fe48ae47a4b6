"""Constraints for a vLLM server: a grammar, or arguments for kbqa's logits processor.

The grammar is EBNF as read by xgrammar. Its language is that of `kbqa.engine.writing.grammar`,
except for rules that EBNF cannot express, or only at length: variables come from a fixed set, a
line may begin with any of them, a main path may return to one, and names have no maximum length.

The arguments are in a request's ``vllm_xargs``:

    {"kbqa_topics": ["m.019rg5 Kenya"], "kbqa_form": "extended"}

Without topics, only relations are constrained; without ``kbqa_topics``, nothing is. With
``"kbqa_keep": "all"``, samples are drawn from all tokens that may follow; see `Keep`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from string import ascii_lowercase
from typing import Literal, NamedTuple, TypeAlias, get_args

from kbqa.engine.writing.generate import PromptFormat
from kbqa.engine.writing.grammar import ANSWER, INNER, MAX_HOPS, MAX_LIMIT, is_sayable
from kbqa.engine.writing.steering import CONSTRAINED_FORMS, Decoding
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import InputError
from kbqa.sparql.forms import relation_text

GRAPH_PROCESSOR = "kbqa.engine.writing.vllm_steering:GraphProcessor"

TOPICS, KEEP, _FORM = "kbqa_topics", "kbqa_keep", "kbqa_form"

Sampled: TypeAlias = Literal["likely", "all"]  # see `kbqa.engine.writing.vllm.Keep`

Arguments = dict[str, str | list[str]]


class Steered(NamedTuple):
    """The arguments that steer a text."""

    topics: tuple[Entity, ...]  # where its paths may start
    crp_format: str  # the text form that it is written in
    keep: Sampled = "likely"  # what it is drawn from, if its temperature is above 0


def write_steered(steered: Steered) -> Arguments:
    """Write the arguments of a request.

    >>> write_steered(Steered((Entity("Kenya", "m.019rg5"),), "extended"))
    {'kbqa_topics': ['m.019rg5 Kenya'], 'kbqa_form': 'extended'}
    """
    topics = [f"{topic.mid} {topic.name}" for topic in steered.topics if topic.mid and topic.name]
    arguments: Arguments = {TOPICS: topics, _FORM: steered.crp_format}
    return arguments if steered.keep == "likely" else {**arguments, KEEP: steered.keep}


def read_steered(arguments: Mapping[str, object]) -> Steered | None:
    """Read the arguments of a request; None if it is not to be steered."""
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


# Names of nodes in restrictions, in the published texts and as `render_routerkgqa` writes them.
_VARIABLES = (
    *(f"?{letter}" for letter in ascii_lowercase),
    *(f"?sk{number}" for number in range(10)),
    *("?c2", "?k2", "?y2", "?k3", "?y3", "?num", "?num2", "?number", "?name", "?name2", "?st"),
)

# What `str.strip` removes, except the line break. In a name, "-[" may not follow such a space,
# since an arrow would begin there.
_SPACE = r"\t\x0b\x0c\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"

_NAMES = rf"""
name ::= [^\n\ufffd?{_SPACE}] within
within ::= ([^\n\ufffd{_SPACE}] within | [{_SPACE}] spaced)?
spaced ::= [{_SPACE}] spaced | "-" dashed | [^\n\ufffd\-{_SPACE}] within
dashed ::= ([^\n\ufffd\[{_SPACE}] within | [{_SPACE}] spaced)?
"""


def _any(texts: Iterable[str]) -> str:
    return " | ".join(f'"{text}"' for text in texts)


_MAIN_PATH = rf"""
root ::= "Main Path:\n " name arrow (node arrow){{0,{MAX_HOPS - 1}}} " {ANSWER}" restrictions
arrow ::= forward | " -[R[" relation "]]->"
forward ::= " -[" relation "]->"
"""

# The section that only the extended form has.
_FURTHER = r"""
further ::= "\nFurther Restrictions:" line+
line ::= "\n  " ("count" | "ask" | "with ties" | "by number" | "after " after | test | "no " triple)
    | "\n " triple | "\n " name edge
triple ::= variable edge
edge ::= arrow " " (variable | name)
test ::= variable (comparison " " variable | " " "!"? "= " name)
comparison ::= " <" | " <=" | " >" | " >=" | " =" | " !="
"""

_RESTRICTIONS = rf"""
entities ::= "\nEntity Restrictions:" entity+
numerics ::= "\nNumeric Restrictions:" numeric+
strings ::= "\nString Restrictions:" string+
operator ::= " <= " | " >= " | " < " | " > " | " = "
value ::= operator "\"" [\-+0-9.:TZ]+ "\""
integer ::= operator [0-9]+
text ::= " = \"" [^\n]+ "\""
order ::= "\n  ORDER BY " ("DESC(" | "ASC(")
limit ::= ")\n  LIMIT " ({_any(map(str, range(1, MAX_LIMIT + 1)))})
"""

# The lines about a variable, by section.
_LINES = {
    "entity": r'"\n {name}" entity_end',
    "numeric": r'"\n {name}" numeric_end'
    r' | "\n  FILTER (" ("{name}" value | "xsd:integer({name})" integer) ")"'
    r' | order "{name}" limit',
    "string": r'"\n {name}" string_end | "\n  FILTER (" ("{name}" | "str({name})") text ")"',
}

_WORD = re.compile(" ?[^ ]+")


def write_ebnf(relations: Sequence[str], *, is_extended: bool = False) -> str:
    """Write the grammar; relations that cannot be written in words are left out."""
    nodes = " | ".join(rf'" {name}\n {name}"' for name in INNER)
    sections = "entities? numerics? strings?" + (" further?" if is_extended else "")
    rules = [
        _MAIN_PATH,
        f"restrictions ::= {sections}\n",
        f"node ::= {nodes}\n",
        _RESTRICTIONS,
        _NAMES,
    ]
    if is_extended:
        rules += [
            _FURTHER,
            f"after ::= {_any(map(str, range(1, MAX_LIMIT)))}\n",
            f"variable ::= {_any(_VARIABLES)}\n",
        ]
    rules += [_section(kind, "arrow" if is_extended else "forward") for kind in _LINES]
    return "".join([*rules, _one_of(relations)])


def decoding_grammar(decoding: Decoding, prompt: PromptFormat) -> str | None:
    """Return the grammar of level ``schema``; None for the other levels."""
    decoding.check(prompt)
    if decoding.level != "schema":
        return None
    return write_ebnf(decoding.relations, is_extended=prompt.crp_format == "extended")


def _section(kind: str, edge: str) -> str:
    """Write the rules of a section's lines; the next line must begin with a new variable."""
    ends = [f'" {name}" {kind}_{name[1:]}' for name in _VARIABLES if name != ANSWER]
    if kind == "entity":
        ends.append('" " name')
    rules = {
        kind: " | ".join(f"{kind}_{name[1:]}" for name in _VARIABLES),
        f"{kind}_end": f"{edge} ({' | '.join(ends)})",
        **{f"{kind}_{name[1:]}": _LINES[kind].format(name=name) for name in _VARIABLES},
    }
    return "".join(f"{rule} ::= {meaning}\n" for rule, meaning in rules.items())


def _one_of(relations: Sequence[str]) -> str:
    """Write the rules of some relations: a tree of words, in which each word is a rule.

    So xgrammar prepares each word once: 9,458 relations take 6 s instead of 30 s.
    """
    rules: dict[str, str] = {}  # by word

    def tree(texts: Iterable[Sequence[str]]) -> str:
        alternatives = []
        for word, group in groupby(texts, key=lambda text: text[0]):
            rule = rules.setdefault(word, f"w{len(rules)}")
            rests = [text[1:] for text in group]
            if longer := [rest for rest in rests if rest]:
                rule += f" ({tree(longer)})" + ("?" if len(longer) < len(rests) else "")
            alternatives.append(rule)
        return " | ".join(alternatives)

    texts = sorted(
        _WORD.findall(relation_text(relation)) for relation in relations if is_sayable(relation)
    )
    lines = [f"relation ::= {tree(texts)}\n"]
    lines += [f'{rule} ::= "{word}"\n' for word, rule in rules.items()]
    return "".join(lines)
