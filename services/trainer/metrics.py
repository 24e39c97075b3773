"""What Prometheus sees of the trainer; it travels through Redis (`sparsesmith.transport.metrics_channel`)."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge

FIGURES = (
    "mean_reward",
    "pass_share",
    "kl_reference",
    "policy_loss",
    "value_loss",
    "clip_fraction",
    "mean_staleness",
    "explained_variance_10",
    "critic_holds",
)
"""Of an update's measures, where it has them."""


class TrainerMetrics:
    """Counters of the trainer, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._updates = Counter("sparsesmith_trainer_updates", "Updates made", registry=self.registry)
        self._seconds = Counter("sparsesmith_trainer_update_seconds", "Seconds of them", registry=self.registry)
        self._skipped = Counter(
            "sparsesmith_trainer_records_skipped", "Records not learned from", ["reason"], registry=self.registry
        )
        self._version = Gauge("sparsesmith_trainer_version", "Newest version made", registry=self.registry)
        self._figures = Gauge(
            "sparsesmith_trainer_figure", "Of the last update, by name", ["figure"], registry=self.registry
        )

    def updated(self, entry: Mapping[str, object]) -> None:
        """Takes what the journal is given for an update."""
        self._updates.inc()
        self._seconds.inc(_number(entry.get("seconds")))
        self._version.set(_number(entry.get("version")))
        skipped = entry.get("skipped")
        for reason, count in (skipped if isinstance(skipped, Mapping) else {}).items():
            self._skipped.labels(str(reason)).inc(_number(count))
        for figure in FIGURES:
            if figure in entry:
                self._figures.labels(figure).set(_number(entry[figure]))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
