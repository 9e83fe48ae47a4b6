"""What reports call things, and what their numbers mean."""

from collections.abc import Mapping

METRIC_NAMES: Mapping[str, str] = {
    "hit": "hit",
    "hits_at_1": "Hits@1",
    "exact_match": "exact match",
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
}

BREAKDOWN_NAMES: Mapping[str, str] = {
    "kind": "kind of gold",
    "category": "category",
    "generalization": "level of generalization",
    "function": "function",
    "type": "type of composition",
    "depth": "hops of the gold path",
    "constraints": "constraints of the gold query",
    "stage": "stage that answered",
    "level": "relaxation of the path",
    "origin": "origin of the answers",
}

DEFINITIONS: Mapping[str, str] = {
    "hit": "a gold answer is among the predicted ones (some papers call this Hits@1)",
    "hits_at_1": "the first predicted answer, in the order of the row, is a gold one",
    "exact_match": "the predicted answers are exactly the gold ones",
    "precision": "share of the predicted answers that are gold",
    "recall": "share of the gold answers that are predicted",
    "f1": "harmonic mean of a question's precision and recall; averaged over questions (macro)",
    "empty": "if gold and prediction are both empty, each score is 1; if only one is, 0",
    "boolean, count": "right (1) or wrong (0); a list without its number is no count",
    "unanswerable": "right (1) without an answer, or with one whose status is unsure or none",
    "several gold sets": "a question with several parses (WebQSP) counts with the one of best F1",
    "failed": "a question that ended in an error scores 0",
    "not scored": "a question without gold answers is left out of all scores",
    "interval": "95 % percentile bootstrap over questions, 1,000 resamples, seed 42",
}

OFFICIAL_RULE = (
    "The rule of WebQSP's official script. Its F1 is ours. Its precision is 1 if nothing is "
    "predicted, and its recall is 1 if nothing is gold; ours are 0."
)

NAME_RULES = (
    "Names, not ids: two entities of one name are the same here. BPC: the names in lower case with "
    "single blanks; Hits@1 is of the first answer, F1 of the set. Contained, the rule of ToG, PoG "
    "and KnowPath: without blanks and capitals, the answers in one text contain a gold name or a "
    "gold name contains them; an empty answer is wrong here, and right in their code."
)

ORIGIN_RULE = (
    "graph: a query or walk of the graph found the answer. named: a language model named it, and "
    "the graph has an entity of that name. text: a language model wrote it, and the graph does not "
    "confirm it."
)

_HASH_SHOWN = 12
_TEXT_SHOWN = 160


def shorten_setting(label: str, text: str) -> str:
    """Cut a hash, or a text that is too long to read."""
    if label.endswith(("sha256", "git")):
        return text[:_HASH_SHOWN]
    return text if len(text) <= _TEXT_SHOWN else f"{text[:_TEXT_SHOWN]}…"
