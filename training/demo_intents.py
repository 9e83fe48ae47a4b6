"""What the demo questions ask: every intent by its name."""

from collections.abc import Mapping

from kbqa.training.demo_intent import Intent
from kbqa.training.demo_intents_entity import ENTITY
from kbqa.training.demo_intents_simple import SIMPLE
from kbqa.training.demo_intents_superlative import SUPERLATIVE
from kbqa.training.demo_intents_value import NUMERIC, STRING

INTENTS: Mapping[str, Intent] = {**SIMPLE, **ENTITY, **NUMERIC, **SUPERLATIVE, **STRING}
