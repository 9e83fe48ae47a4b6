"""Read and write CRPs in kbqa's own text form, which says all that the model can.

    Justin Bieber -> people.person.sibling_s -> people.sibling_relationship.sibling
    ?x -> people.person.gender = Male

The main path comes first, on one line; then one constraint a line; then what is asked of all
answers. ``->`` follows a relation, ``<-`` follows it backwards. ``?0`` is the topic, ``?1``, ``?2``
… are the nodes after it, and ``?x`` is the answer.

    text       = entity { step } { NL line }
    line       = ( node | entity ) branch                  an entity has marks of its own here
               | ( "largest" | "smallest" ) [ number ] [ "after" number ] ( node | label ) { hop }
               | "distinct from" ( node | "none" )         without it: distinct from ?0
               | "any language" | "answers in" tag         without it: answers in en
    step       = hop | "(" way "|" way { "|" way } ")"
    way        = [ held ] step { step [ held ] }           held: what hangs on the node before it
    held       = "{" [ node | entity ] branch { "," … } "}"  its nodes: ?0 is where the way begins
    hop        = ( "->" | "<-" ) relation
    branch     = [ "no" ] { hop } [ end ] [ "or none" ]    no end: it is enough that it exists
    end        = test | label | [ label ] "{" branch { "," branch } "}"
    test       = ( "=" | "!=" ) entity
               | ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) ( literal | node | label )
               | "is" [ "not" ] ( node | label )           two branches meet
               | "reads" string [ "@" tag | "untagged" ]   without a tag: in any language
               | "{" branches "|" branches { "|" … } "}"   at least one of them holds
    node       = "?x" | "?0" | "?1" | …                    label = "?end", "?a", …  (?_x for x)
    entity     = name | id | name "(" id ")"
    id         = "m.0abc" | "ns:location.country" | "<http://…>"
    literal    = ( 12 | 2010-12-31 | string ) [ "^^" datatype ]

    China (-> film.film.country <- film.actor.film | <- people.person.nationality)
    ?x -> people.person.date_of_birth ?born
    ?x no -> people.person.spouse_s
    ?x -> government.politician.offices {-> government.office.title = [Mayor], -> office.to > 2001}
    [World War II] -> time.event.end_date < ?born
    largest 3 ?born

A name stands without marks where it can be taken for nothing else, and in brackets where it could,
or where more can follow: in braces, in parentheses, at the beginning of a line. So does a relation
that is no row of words and dots. In brackets and quotes a backslash escapes.

Reading is lenient about spacing and about the case of words; a line that cannot be read is kept as
a named problem. Writing is canonical. Read are up to 1,000 lines, and braces and parentheses within
each other up to 32 deep.
"""

from kbqa.sparql.reading import CrpReading
from kbqa.sparql.routerkgqa import parse_routerkgqa
from kbqa.sparql.text_reader import parse_crp
from kbqa.sparql.text_writer import render_crp

__all__ = ["is_routerkgqa", "parse_crp", "read_crp", "render_crp"]


def read_crp(text: str) -> CrpReading:
    r"""Read a CRP in either form; RouterKGQA's begins with a line ``Main Path:``.

    >>> read_crp("Main Path:\n Kenya -[a , b]-> ?x") == read_crp("Kenya -> a.b")
    True

    Raises:
        CrpSyntaxError: There is no main path to be read, or the text is endless.
    """
    return (parse_routerkgqa if is_routerkgqa(text) else parse_crp)(text)


def is_routerkgqa(text: str) -> bool:
    """Tell whether a text is one in RouterKGQA's form, whether or not it can be read."""
    first = next(filter(None, map(str.strip, text.split("\n"))), "")
    return first.lower() == "main path:"
