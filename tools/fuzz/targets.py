"""The parts of kbqa that can be fuzzed."""

from collections.abc import Mapping

from tools.fuzz import dumps, replies, served, texts
from tools.fuzz.files import files
from tools.fuzz.trying import Target

TARGETS: Mapping[str, Target] = {
    "paths": texts.paths,
    "sparql": texts.sparql,
    "questions": texts.questions,
    "dumps": dumps.dumps,
    "endpoints": replies.endpoint_replies,
    "models": replies.model_replies,
    "requests": served.requests,
    "files": files,
}
