"""Metrics for Prometheus, in a registry of the server's own."""

import time

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

from kbqa.engine.serve.access.guard import App, Message, Receive, Scope, Send
from kbqa.engine.serve.asking.observer import CacheResult, Observer
from kbqa.engine.serve.asking.served import Served

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics(Observer):
    """Counts and measures what the server does."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "kbqa_requests", "Requests, by route.", ["route", "status"], registry=registry
        )
        self._request_seconds = Histogram(
            "kbqa_request_seconds",
            "Seconds until the end of the response.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._stage_seconds = Histogram(
            "kbqa_stage_seconds",
            "Seconds of each stage of a question; `queue` is all waiting.",
            ["stage"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.queue_depth = Gauge(
            "kbqa_queue_depth", "Questions that wait for the model.", registry=registry
        )
        self.loop_lag = Gauge(
            "kbqa_loop_lag_seconds", "How late the event loop was lately.", registry=registry
        )
        self._batch_size = Histogram(
            "kbqa_batch_size",
            "Questions that were written for at once.",
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=registry,
        )
        self._answers = Counter(
            "kbqa_answers",
            "Answers that were worked out, by status and relaxation.",
            ["status", "level"],
            registry=registry,
        )
        self._confidence = Histogram(
            "kbqa_confidence",
            "Confidence of answers.",
            buckets=[n / 10 for n in range(1, 11)],
            registry=registry,
        )
        self._cache = Counter(
            "kbqa_cache", "Where answers came from.", ["result"], registry=registry
        )
        self._rejected = Counter(
            "kbqa_rejected", "Requests that were turned away.", ["reason"], registry=registry
        )

    def text(self) -> bytes:
        """Return all metrics in the format of Prometheus."""
        return generate_latest(self._registry)

    def requested(self, route: str, status: int, seconds: float) -> None:
        """Count a request by the template of its route."""
        self._requests.labels(route, str(status)).inc()
        self._request_seconds.labels(route).observe(seconds)

    def answered(self, served: Served) -> None:
        """Count an answer that was worked out."""
        level = served.answer.trace.to_dict().get("level") or "none"
        self._answers.labels(served.status, level).inc()
        if served.answer.confidence is not None:
            self._confidence.observe(served.answer.confidence)
        for stage, seconds in served.seconds.items():
            self._stage_seconds.labels(stage).observe(seconds)

    def looked_in_cache(self, result: CacheResult) -> None:
        """Count where an answer comes from."""
        self._cache.labels(result).inc()

    def wrote(self, batch_size: int, seconds: float) -> None:
        """Measure a batch of the small model."""
        self._batch_size.observe(batch_size)

    def rejected(self, reason: str) -> None:
        """Count a request that was turned away."""
        self._rejected.labels(reason).inc()


class Metered:
    """Counts the requests of an application and times them; pure ASGI.

    Args:
        app: The application.
        metrics: Where they are counted.
    """

    def __init__(self, app: App, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 500

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_counted)
        finally:
            # Paths of no route are one label: anybody can make up any number of them.
            route = getattr(scope.get("route"), "path", "none")
            self._metrics.requested(route, status, time.monotonic() - began)
