"""How well a taught critic foretells rewards on matrices that it never saw, before anything is learned online.

    python -m benchmarks.learning.critic_worth POLICY_FOLDER --examples EXAMPLES.jsonl.xz --pack PATTERNS.pack
        [--suites benchmarks/results/h200/suite-*.json benchmarks/results/h200/held-out-*.json]

Programs that were measured on validation matrices (benchmarks/split.csv), drawn so that they lie as far apart as samples of the shipped
policy do, some more than once; rewards `milestone` of their warm times over the best routine, whose time on the same workload is read from suites that
were measured on the same kind of GPU; workloads without one are left out, and counted. Explained variance is 1 - Var(reward - value) / Var(reward),
over all programs of all workloads, at one token of each. Beside it: a line through the library's time alone, fitted to these very
rewards. Intervals are 95 % over matrices, by bootstrap.
"""

import argparse
import json
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.origin import RESULTS, command, source_commit, write_result
from benchmarks.report.intervals import resampled
from services.trainer.offline.critic_training import CriticSettings, States, read_states
from services.trainer.offline.example_file import read_examples
from services.trainer.offline.prompt_pool import Device, build_pool
from services.trainer.offline.sides import Patterns
from services.trainer.offline.targets import TargetRule, WorkloadKey
from services.trainer.offline.value_training import Programs, judged
from services.trainer.policy_model import CRITIC_TOKEN, PolicyNetworks
from services.trainer.time_critic import TimeCritic, load_time_critic
from services.trainer.tokenizer import load_tokenizer
from sparsesmith.policy.checkpoint import load_policy
from sparsesmith.reward import milestone_of_passed

FloatArray = npt.NDArray[np.float64]
TOKENS = (1, CRITIC_TOKEN, 24)
PROGRAMS = 32
"""Of each workload."""
TEMPERATURE = 0.12
"""At which a single program is 11 % slower than the best of 16, in the mean of workloads, as samples of the shipped
policy are."""


def main() -> None:
    options = _options()
    policy, settings = (
        load_policy(options.folder),
        CriticSettings(programs=PROGRAMS, temperature=TEMPERATURE, again=True),
    )
    critic = load_time_critic(options.folder, int(policy.model.config.hidden_size))
    if critic is None:
        raise SystemExit(f"{options.folder} holds no critic: the stage `critic` writes one")
    library_us = library_times(options.suites)
    workloads = read_examples(options.examples, TargetRule()).workloads["validation"]
    known = [each for each in workloads if each.key in library_us]
    patterns = Patterns(options.pack)
    named = {each.key.pattern: patterns.named(each.key.pattern) for each in known}
    pool = build_pool(named, policy.encoder.kind, 1, "cpu")
    programs = Programs(load_tokenizer(options.folder / "tokenizer.json"))
    networks = PolicyNetworks(policy.model, policy.encoder)
    states = read_states(networks, pool, [judged(each, Device()) for each in known], programs, settings)
    result = {
        "kind": "critic",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": options.commit or source_commit(),
        "command": command("benchmarks.learning.critic_worth"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "policy": options.folder.name,
        "workloads": len(known),
        "left_out": len(workloads) - len(known),
        "matrices": len(named),
        "rows": rows_of(states, critic, [each.key for each in known], library_us),
    }
    write_result(options.out, result)
    print(json.dumps(result["rows"], indent=1))


def library_times(suites: Sequence[Path]) -> dict[WorkloadKey, float]:
    """Of the best routine, microseconds, by workload; of several suites the last one's."""
    found = {}
    for path in suites:
        suite = json.loads(path.read_text(encoding="utf-8"))
        for row in suite["rows"]:
            key = WorkloadKey(row["name"], suite["operation"], suite["element_type"], suite["num_dense_cols"])
            found[key] = float(row["best_baseline"]["us"])
    return found


def rows_of(
    states: States, critic: TimeCritic, keys: Sequence[WorkloadKey], library_us: Mapping[WorkloadKey, float]
) -> list[dict[str, Any]]:
    """By token, over all workloads; at the judged token by kind of workload, too."""
    kinds = sorted({_kind(key) for key in keys})
    slices: list[tuple[int, str]] = [*((token, "all") for token in TOKENS), *((CRITIC_TOKEN, kind) for kind in kinds)]
    rows = []
    for token, kind in slices:
        part = states.at(token)
        kept = torch.tensor([kind in ("all", _kind(keys[number])) for number in part.workload_N.tolist()])
        numbers = part.workload_N[kept].tolist()
        library = torch.tensor([library_us[keys[number]] for number in numbers])
        with torch.no_grad():
            values = critic(part.hidden_NH[kept].float()[:, None], library)[:, 0].double().numpy()
        doublings = library.double().log2() - part.log2_us_N[kept].double()
        rewards = np.array([milestone_of_passed(each) for each in doublings.tolist()])
        matrices = [keys[number].pattern for number in numbers]
        rows.append(
            {
                "token": token,
                "workload": kind,
                "programs": len(numbers),
                "matrices": len(set(matrices)),
                "reward_variance": round(float(rewards.var()), 4),
                "explained": explained(rewards, values),
                "explained_interval": explained_interval(matrices, rewards, values),
                "library_alone": explained(rewards, _line(library.log2().double().numpy(), rewards)),
                "mean_error": round(float((rewards - values).mean()), 4),
            }
        )
    return rows


def explained(rewards: FloatArray, values: FloatArray) -> float:
    """Share of the variance of rewards."""
    return round(float(1 - (rewards - values).var() / rewards.var()), 4)


def explained_interval(matrices: Sequence[str], rewards: FloatArray, values: FloatArray) -> list[float]:
    """95 %, over matrices, each with all of its rows."""
    rows = [np.flatnonzero(np.array(matrices) == name) for name in sorted(set(matrices))]

    def shares(drawn: npt.NDArray[np.int64]) -> FloatArray:
        resamples = (np.concatenate([rows[matrix] for matrix in each]) for each in drawn)
        return np.array([explained(rewards[chosen], values[chosen]) for chosen in resamples])

    return [round(each, 4) for each in resampled(len(rows), shares)]


def _line(known: FloatArray, rewards: FloatArray) -> FloatArray:
    """Least squares through the rewards."""
    if np.ptp(known) == 0:
        return np.full_like(rewards, rewards.mean())
    return np.asarray(np.polyval(np.polyfit(known, rewards, 1), known), dtype=np.float64)


def _kind(key: WorkloadKey) -> str:
    return f"{key.operation} {key.element_type} {key.num_dense_cols}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a policy with its critic")
    parser.add_argument("--examples", type=Path, required=True, help="what the stage `examples` wrote")
    parser.add_argument("--pack", type=Path, nargs="+", required=True, help="of the patterns, or folders of .npz")
    parser.add_argument("--suites", type=Path, nargs="+", help="measured with the library, in their order")
    parser.add_argument("--commit", help="of the code, where there is no git")
    parser.add_argument("--out", type=Path, default=RESULTS / "cpu" / "critic.json")
    options = parser.parse_args()
    if options.suites is None:
        folder = RESULTS / "h200"
        options.suites = [*sorted(folder.glob("held-out-sp*.json")), *sorted(folder.glob("suite-sp*.json"))]
    return options


if __name__ == "__main__":
    main()
