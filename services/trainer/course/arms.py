"""What is compared: settings of the trainer by name, each against the default."""

from collections.abc import Mapping

ARMS: Mapping[str, Mapping[str, str]] = {
    "ppo": {},
    "rloo": {"ALGORITHM": "rloo"},
    "expert": {"ALGORITHM": "expert"},
    "paper": {"REWARD": "paper"},
    "improvement": {"REWARD": "improvement"},
    "best-of-4": {"BEST_SHARE": "0.5"},
    "lambda-0.95": {
        "GAE_LAMBDA": "0.95",
        "VALUE_TARGETS": "bootstrapped",
        "ADVANTAGE_SCALE": "batch",
        "CRITIC_GATE": "0",
    },
    "groups-alone": {"GROUP_SHARE": "1"},
    "start": {},
}
"""Beyond what a course sets itself. `start` is judged and learns nothing."""
