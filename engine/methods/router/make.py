"""Make RouterKGQA from its settings, which are checked against each other."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.linking.model import LinkingModel
from kbqa.engine.method import ChooserName
from kbqa.engine.methods.router.method import RouterKgqa
from kbqa.engine.methods.router.repair import Repairer, RepairSettings
from kbqa.engine.methods.router.routing import Routing
from kbqa.engine.methods.router.search.path_search import SearchWidths
from kbqa.engine.methods.router.search.pool import PathPool
from kbqa.engine.methods.router.settings import RepairedBy, RouterSettings
from kbqa.engine.resources import MethodMaker, Resources
from kbqa.engine.running.asker import Asker
from kbqa.engine.running.confidence import SHIPPED_CONFIDENCE, ConfidenceModel
from kbqa.engine.running.cross_encoder import CrossEncoder
from kbqa.engine.running.execute import Policy
from kbqa.engine.running.precedents import Precedents
from kbqa.engine.running.reading import READER_FOLDER, CandidateReader, confidence_file
from kbqa.engine.writing.generate import Generator, NoPaths
from kbqa.engine.writing.models.base_models import require_embedding_packages
from kbqa.kb.graph import Graph
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.errors import InputError, ModelError

if TYPE_CHECKING:
    from kbqa.engine.retrieval.suggesting import RelationSuggester

logger = logging.getLogger(__name__)

CALLS_A_REPAIR = 2.5
"""On average: a blueprint, and a choice for each of one or two steps."""


def _make(resources: Resources, settings: RouterSettings) -> RouterKgqa:
    """Make RouterKGQA ready to answer: first what is quick to check, the small model last.

    Raises:
        InputError: The settings contradict each other.
        ModelError: A model is missing or broken.
        GraphError: The graph's schema cannot be read.
    """
    repairs_by = _repairs_by(settings, resources)
    _check(settings, repairs_by, resources.chat is not None)
    missing = None
    try:
        reader = make_reader(settings, resources)
    except ModelError as error:
        if settings.judge is not None:
            raise
        reader, missing = None, error
    policy = _policy(settings, reader)
    routing = None
    if repairs_by != "off":
        search = RepairSettings(SearchWidths(beam=settings.width), settings.stop)
        embedder, asking = Embedder.load(settings.embedder), LinkingModel.load()
        repairer = Repairer(resources.graph, embedder, search, asking)
        chat = resources.chat if repairs_by == "llm" else None
        is_limited = chat is not None and settings.route == "confidence"
        general_calls = settings.general_calls if is_limited else None
        threshold = _threshold(settings, policy, resources.unsure_below, general_calls)
        chance_seed = settings.seed if repairs_by == "random" else None
        routing = Routing(repairer, chat, settings.route, threshold, general_calls, chance_seed)
    pool = None if reader is None else make_pool(settings, resources)
    generator: Generator = resources.generator if settings.write else NoPaths()
    if missing is not None:  # Without a model there is nothing to judge, and that is said instead.
        logger.warning("candidates are not read, and chosen by the confidence model: %s", missing)
    suggester = make_suggester(generator, resources.graph)
    return RouterKgqa(resources, generator, policy, routing, pool, reader, suggester)


def _repairs_by(settings: RouterSettings, resources: Resources) -> RepairedBy | ChooserName:
    """Return who repairs: as the setting says, or else `--chooser`, or else what there is."""
    chooser, repair = resources.chosen_chooser, settings.repair
    if chooser is not None:
        if repair is not None and repair != chooser:
            raise InputError(
                f"repair={repair} and --chooser {chooser} contradict each other: give one of them"
            )
        return chooser
    if repair is None:
        repair = "off" if resources.chat is None else "llm"
    return "embedder" if repair == "off" and not settings.write else repair


def _check(settings: RouterSettings, repairs_by: str, has_chat: bool) -> None:
    """Refuse settings that contradict each other, or that would do nothing."""
    if repairs_by == "llm" and not has_chat:
        raise InputError("repair=llm needs a general model: add --llm URL or --llm-model NAME")
    if settings.stop == "judge" and repairs_by != "llm":
        raise InputError("stop=judge needs a general model: add --llm URL or --llm-model NAME")
    if settings.route == "confidence" and settings.order != "confidence":
        raise InputError("route=confidence needs order=confidence")
    if settings.seed != RouterSettings().seed and repairs_by != "random":
        raise InputError("seed is about chance, and nothing is left to it: add --chooser random")
    if repairs_by == "off":
        default = RouterSettings()
        names = ["route", "general_calls", "stop", "width"]
        if settings.judge_folder is None:  # Its search uses the embedder, too.
            names.append("embedder")
        for name in names:
            if getattr(settings, name) != getattr(default, name):
                raise InputError(
                    f"{name} is about repair, and nothing is repaired: "
                    "add --set repair=embedder or --llm URL"
                )


def _policy(settings: RouterSettings, reader: CandidateReader | None) -> Policy:
    without = frozenset(settings.without)
    if settings.order == "confidence":
        path = settings.confidence or SHIPPED_CONFIDENCE
        if reader is not None and settings.judge_folder is not None:
            path = confidence_file(settings.judge_folder, is_asking=reader.is_asking)
        return Policy(ConfidenceModel.load(path), without=without)
    return Policy(order=settings.order, without=without)


def make_pool(settings: RouterSettings, resources: Resources) -> PathPool | None:
    """Return what finds further candidates; None if nothing does.

    Raises:
        ModelError: The embedder is missing or broken.
    """
    if settings.judge_folder is None or not settings.search:
        return None
    return PathPool(resources.graph, Embedder.load(settings.embedder), LinkingModel.load())


def make_reader(settings: RouterSettings, resources: Resources) -> CandidateReader | None:
    """Return what reads candidates; None if nothing does.

    Raises:
        ModelError: A package or a file is missing or broken.
    """
    if settings.judge_folder is None:
        return None
    encoder = CrossEncoder.load(settings.judge_folder / READER_FOLDER)
    precedents = Precedents.load(Embedder.load(), settings.judge_folder)
    asker = None
    if settings.asker:
        asker = _find_asker(settings.judge_folder, settings.judge is None, resources.threads)
    return CandidateReader(encoder, precedents, GraphSchema(resources.graph), asker)


def _find_asker(judge: Path, is_optional: bool, threads: int | None) -> Asker | None:
    """Return the asker of a judge, if it has one; if it is optional, a broken one is left out."""
    try:
        return Asker.of(judge, threads)
    except ModelError as error:
        if not is_optional:
            raise
        logger.warning("the judge does without its asker: %s", error)
        return None


def make_suggester(generator: Generator, graph: Graph) -> "RelationSuggester | None":
    """Return what suggests relations to a model; None if it was trained without.

    A model also writes without suggestions, though less well. So if the retriever, its embedder or
    a package is missing, there is a warning, and None.

    Raises:
        StoreError: The store's schema is missing or broken.
    """
    if not generator.suggested_relations:
        return None
    try:
        require_embedding_packages("suggesting relations")
        from kbqa.engine.retrieval.suggesting import RelationSuggester

        return RelationSuggester(graph, generator.suggested_relations)
    except ModelError as error:
        logger.warning("no relations are suggested to the small model: %s", error)
        return None


def _threshold(
    settings: RouterSettings, policy: Policy, unsure_below: float, general_calls: float | None
) -> float:
    """Return the confidence below which questions are repaired; 0 if confidence is not asked.

    Unsure answers are repaired: all of them, or the least sure, as many as the calls will do for.
    """
    if settings.route == "reachability" or policy.confidence is None:
        return 0.0
    if general_calls is None:
        return unsure_below
    return min(unsure_below, policy.confidence.threshold(general_calls / CALLS_A_REPAIR))


ROUTER = MethodMaker(RouterSettings, _make)
