"""Read and write CRPs in RouterKGQA's text form, so that its data and adapters work unchanged.

    Main Path:
     Justin Bieber -[people , person , sibling s]-> ?y
     ?y -[people , sibling relationship , sibling]-> ?x
    Entity Restrictions:
     ?x -[people , person , gender]-> Male

Reading is lenient about spacing and case; what cannot be read is kept as a named problem. Writing
is canonical. The form says less than the model: no inverse hop outside the main path, nothing on
the topic, no alternatives, no ``IsNotEntity``, no negation, no node compared with another, no
language, no answer that may be any node; datatypes are left to a value's looks. Of references it
knows one: what is ordered by may be restricted as well, and is read as the label ``a``.
`render_routerkgqa` answers None where it would lose meaning.

Two habits of the published texts carry meaning and are kept. A ``?c`` on the main path is the node
that the answer must differ from (else it is the topic). A date compared with ``<=`` or ``>=`` is
one end of an interval, which a missing value satisfies.

Source: RouterKGQA, appendix B, and its published files.
"""

from kbqa.sparql.routerkgqa_reader import parse_routerkgqa
from kbqa.sparql.routerkgqa_writer import render_routerkgqa

__all__ = ["parse_routerkgqa", "render_routerkgqa"]
