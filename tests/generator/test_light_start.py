"""What the generator reads before it listens: a server without a policy needs no torch."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "vllm", "lightgbm")


def read_with(*modules: str) -> set[str]:
    """Of the heavy packages, those that are read with these modules, in a process of its own."""
    source = f"import sys, {', '.join(modules)}\nprint(*({set(HEAVY)!r} & sys.modules.keys()))"
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


@pytest.mark.parametrize("module", ["services.generator.service", "services.generator.http.app"])
def test_a_generator_without_a_policy_reads_no_torch(module: str) -> None:
    assert read_with(module) == set()


def test_prompts_of_a_policy_are_written_with_torch_alone() -> None:
    assert read_with("services.generator.policy.matrix_prompts") == {"torch"}
