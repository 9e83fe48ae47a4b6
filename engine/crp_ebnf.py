"""RouterKGQA's text form of a CRP as a context-free grammar, for back ends that take one.

The language is that of `kbqa.engine.crp_grammar`, but for what such a grammar cannot say, or not
briefly: variables are of a closed set here, a line may begin with any of them whether it is known
or not, a main path may come back to one, and names have no greatest length.

The grammar is EBNF as xgrammar reads it, with which vLLM constrains.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from string import ascii_lowercase

from kbqa.engine.crp_grammar import ANSWER, INNER, MAX_HOPS, MAX_LIMIT
from kbqa.engine.decoding import Decoding
from kbqa.engine.path_walk import is_sayable
from kbqa.engine.prompt import PromptFormat
from kbqa.sparql.errors import ModelError
from kbqa.sparql.routerkgqa_writer import relation_text

_VARIABLES = (
    *(f"?{letter}" for letter in ascii_lowercase),
    *(f"?sk{number}" for number in range(10)),
    *("?c2", "?k2", "?y2", "?k3", "?y3", "?num", "?num2", "?number", "?name", "?name2", "?st"),
)
"""What restrictions call nodes, in the published texts and as `render_routerkgqa` writes them."""

# What `str.strip` takes away, but the line break. In a name after such a space no "-[" may follow,
# since an arrow would begin there.
_SPACE = r"\t\x0b\x0c\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"

_NAMES = rf"""
name ::= [^\n\ufffd?{_SPACE}] within
within ::= ([^\n\ufffd{_SPACE}] within | [{_SPACE}] spaced)?
spaced ::= [{_SPACE}] spaced | "-" dashed | [^\n\ufffd\-{_SPACE}] within
dashed ::= ([^\n\ufffd\[{_SPACE}] within | [{_SPACE}] spaced)?
"""

_ANY_RELATION = """
relation ::= words (" , " words)+
words ::= word (" " word)*
word ::= [0-9A-Z_a-z]+
"""

_MAIN_PATH = rf"""
root ::= "Main Path:\n " name arrow (node arrow){{0,{MAX_HOPS - 1}}} " {ANSWER}" restrictions
arrow ::= forward | " -[R[" relation "]]->"
forward ::= " -[" relation "]->"
"""

_RESTRICTIONS = rf"""
restrictions ::= entities? numerics? strings?
entities ::= "\nEntity Restrictions:" entity+
numerics ::= "\nNumeric Restrictions:" numeric+
strings ::= "\nString Restrictions:" string+
operator ::= " <= " | " >= " | " < " | " > " | " = "
value ::= operator "\"" [\-+0-9.:TZ]+ "\""
integer ::= operator [0-9]+
text ::= " = \"" [^\n]+ "\""
order ::= "\n  ORDER BY " ("DESC(" | "ASC(")
limit ::= ")\n  LIMIT " ({" | ".join(f'"{n}"' for n in range(1, MAX_LIMIT + 1))})
"""

_LINES = {
    "entity": r'"\n {name}" entity_end',
    "numeric": r'"\n {name}" numeric_end'
    r' | "\n  FILTER (" ("{name}" value | "xsd:integer({name})" integer) ")"'
    r' | order "{name}" limit',
    "string": r'"\n {name}" string_end | "\n  FILTER (" ("{name}" | "str({name})") text ")"',
}
"""What a line of each section may be that is about a variable."""


_WORD = re.compile(" ?[^ ]+")


def write_ebnf(relations: Sequence[str] | None) -> str:
    """Write the grammar.

    Args:
        relations: Ids of those that paths may take; any where None. Those that cannot be written in
            words are left out.
    """
    relation = _ANY_RELATION if relations is None else _one_of(relations)
    nodes = " | ".join(rf'" {name}\n {name}"' for name in INNER)
    sections = map(_section, _LINES)
    return "".join([_MAIN_PATH, f"node ::= {nodes}\n", _RESTRICTIONS, *sections, _NAMES, relation])


def decoding_grammar(decoding: Decoding, prompt: PromptFormat) -> str | None:
    """Write the grammar that a level asks for; None where it asks for none.

    Raises:
        ModelError: No grammar says what the level asks for, or the model writes another form.
    """
    if decoding.level == "none":
        return None
    if decoding.level == "graph":
        raise ModelError(
            "only --backend transformers follows the graph while it writes. Use --decoding schema."
        )
    if prompt.crp_format != "routerkgqa":
        raise ModelError(
            f"the adapter writes paths in the form {prompt.crp_format!r}, and only those in "
            "RouterKGQA's can be constrained. Use --decoding none."
        )
    return write_ebnf(decoding.relations)


def _section(kind: str) -> str:
    """Write the rules of a section's lines; a new variable must be gone on from at once."""
    ends = [f'" {name}" {kind}_{name[1:]}' for name in _VARIABLES if name != ANSWER]
    if kind == "entity":
        ends.append('" " name')
    rules = {
        kind: " | ".join(f"{kind}_{name[1:]}" for name in _VARIABLES),
        f"{kind}_end": f"forward ({' | '.join(ends)})",
        **{f"{kind}_{name[1:]}": _LINES[kind].format(name=name) for name in _VARIABLES},
    }
    return "".join(f"{rule} ::= {meaning}\n" for rule, meaning in rules.items())


def _one_of(relations: Sequence[str]) -> str:
    """Write the rules of some relations: a tree of words, each of which is a rule of its own.

    So xgrammar prepares for each word once. For the 9,458 relations of a large graph that takes it
    6 s, and five times as long where the relations are written out.
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
