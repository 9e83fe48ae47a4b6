"""The text forms of reasoning paths: kbqa's own, which says everything, RouterKGQA's, and between.

**kbqa's own form**, read by `parse_crp` and written by `render_crp`:

    Justin Bieber -> people.person.sibling_s -> people.sibling_relationship.sibling
    ?x -> people.person.gender = Male

The first line is the main path. Each further line is a constraint, or something about all answers.
``->`` follows a relation, ``<-`` follows it backwards. ``?0`` is the topic, ``?1``, ``?2``, … are
the nodes after it, and ``?x`` is the answer.

    text       = entity { step } { NL line }
    line       = ( node | entity ) branch                  an entity needs brackets or an id here
               | rank [ number ] [ "after" number ] [ "with ties" ] ( node | label ) { hop }
               | "distinct from" ( node | "none" )         by default: distinct from ?0
               | "any language" | "answers in" tag         by default: answers in en
               | "count" [ "bindings" ] | "ask"            by default: the answers themselves
    rank       = "largest" | "smallest"                    by the value at the end
               | "most" | "fewest"                         by how many ends there are
    step       = hop | "(" way "|" way { "|" way } ")"
    way        = [ held ] step { step [ held ] }           held: constraints on the node before it
    held       = "{" [ node | entity ] branch { "," … } "}"  its nodes: ?0 is where the way begins
    hop        = ( "->" | "<-" ) relation
    branch     = [ "no" ] { hop } [ end ] [ "or none" ]    no end: the branch only has to exist
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

    ns:location.country <- type.object.type
    ?x no -> location.country.currency_used = Euro
    count

    Kenya -> location.country.capital
    ?x = Nairobi
    ask

A name is written in square brackets if it could be mistaken for something else, or if more can
follow it: in braces, in parentheses, at the start of a line. So is a relation that is not just
words and dots. A backslash escapes in brackets and quotes. Reading is lenient about spacing and the
case of keywords; writing is canonical. At most 1,000 lines are read, and braces and parentheses
nested at most 32 deep.

**RouterKGQA's form**, read by `parse_routerkgqa` and written by `render_routerkgqa`, so that its
data and adapters work unchanged:

    Main Path:
     Justin Bieber -[people , person , sibling s]-> ?y
     ?y -[people , sibling relationship , sibling]-> ?x
    Entity Restrictions:
     ?x -[people , person , gender]-> Male

It can say less, and nothing about the topic; docs/crp.md lists what. The datatype of a value is
guessed from its text. The only reference is the ordering's: the node that orders the answers can
have constraints as well, and is read as the label ``a``.

Two habits of the published texts have a meaning. A ``?c`` on the main path is the node that the
answer must differ from (otherwise it is the topic). A date compared with ``<=`` or ``>=`` is one
end of an interval, and a missing value satisfies it.

**The extended form**, read by `parse_routerkgqa` too and written by `render_extended`, is what the
shipped model writes. It is RouterKGQA's text wherever that can say it, so a model that knows the
one learns the other quickly. Else a last section says the rest; docs/crp.md lists its lines:

    Further Restrictions:
      no ?x -[location , country , currency used]-> Euro
      after 2

Outside the main path, too, triples may be inverse. A class, at the ends of ``type.object.type``, is
written in words.

Source: RouterKGQA, appendix B, and its published files.
"""

from kbqa.sparql.crp import CrpReading
from kbqa.sparql.own_reader import parse_crp as parse_crp
from kbqa.sparql.own_writer import bracketed as bracketed
from kbqa.sparql.own_writer import render_crp as render_crp
from kbqa.sparql.routerkgqa_form import parse_routerkgqa as parse_routerkgqa
from kbqa.sparql.routerkgqa_form import relation_id as relation_id
from kbqa.sparql.routerkgqa_form import relation_text as relation_text
from kbqa.sparql.routerkgqa_form import render_extended as render_extended
from kbqa.sparql.routerkgqa_form import render_routerkgqa as render_routerkgqa


def read_crp(text: str) -> CrpReading:
    r"""Read a CRP in either form; RouterKGQA's begins with a line ``Main Path:``.

    >>> read_crp("Main Path:\n Kenya -[a , b]-> ?x") == read_crp("Kenya -> a.b")
    True

    Raises:
        CrpSyntaxError: The main path cannot be read, or the text is too long.
    """
    return (parse_routerkgqa if is_routerkgqa(text) else parse_crp)(text)


def is_routerkgqa(text: str) -> bool:
    """Return whether a text is in RouterKGQA's form, even if it cannot be read."""
    first = next(filter(None, map(str.strip, text.split("\n"))), "")
    return first.lower() == "main path:"
