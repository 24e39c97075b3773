"""Builders of what the trainer learns from: a pattern, reward records, deliveries."""

from typing import Any

import numpy as np
import scipy.sparse

from services.trainer.online.batch import BatchRules, Patterns, RecordReader, TrainingBatch, UsableRecord, assemble
from services.trainer.online.prompts import MatrixPrompts
from sparsesmith.errors import NotFound
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith_proto.kernel import (
    Candidate,
    DeviceDescription,
    EstimatedTiming,
    Mismatch,
    Passed,
    Prompt,
    Resources,
    Sampled,
    Workload,
)
from sparsesmith_proto.reward import RewardRecord
from tests.generator.tiny_policy import VOCABULARY_SIZE, make_tokenizer

DEVICE = DeviceDescription(
    kind="interpreter", name="PTX interpreter", architecture="sm_90", num_sms=132, copy_bandwidth_gbs=4000, versions={}
)
PASSED = Passed(
    timing=EstimatedTiming(median_us=1.0, traffic_model="test"),
    resources=Resources(registers=16, spill_bytes=0, shared_bytes=0, compile_ms=1),
    storage_format="csr",
    format_bytes=100,
    conversion_ms=0,
    worst_error=0,
    num_inputs=5,
)
MISMATCH = Mismatch(message="row 3 is wrong")


def make_pattern(seed: int = 0) -> Pattern:
    random = np.random.default_rng(seed)
    return pattern_from_scipy(scipy.sparse.random(60, 60, density=0.1, format="csr", rng=random))


PATTERN = make_pattern()


def make_sampled(prompt: dict[str, Any] | None = None, **changes: Any) -> Sampled:
    fields: dict[str, Any] = {
        "prompt": Prompt(**{"encoder": "structural", "sample_seed": 1, "architecture": "sm_90", **(prompt or {})}),
        "group": "group-1",
        "token_ids": (20, 21, 0),
        "temperature": 1.0,
        "first_version": 0,
        "last_version": changes.get("first_version", 0),
        **changes,
    }
    return Sampled(**{"logprobs": (-1.0,) * len(fields["token_ids"]), **fields})


def make_record(record_id: str = "job:1", reward: float = 1.0, **changes: Any) -> RewardRecord:
    """`origin` replaces how the program was sampled; other changes are fields of the record."""
    origin = changes.pop("origin", None) or make_sampled()
    fields: dict[str, Any] = {
        "record_id": record_id,
        "workload": Workload(pattern=PATTERN.digest, operation="spmv", element_type="float32"),
        "candidate": Candidate(candidate_id="candidate", program="text", origin=origin),
        "outcome": PASSED if reward > 0 else MISMATCH,
        "best_baseline_us": 2.0,
        "default_baseline_us": 3.0,
        "rewards": {"milestone": reward, "paper": 10 * reward},
        "device": DEVICE,
    }
    return RewardRecord(**{**fields, **changes})


class StoredPatterns:
    """A pattern store that holds what it is given."""

    def __init__(self, *patterns: Pattern) -> None:
        self._patterns = {pattern.digest: pattern for pattern in patterns}

    def get(self, digest: str) -> Pattern:
        if digest not in self._patterns:
            raise NotFound(f"no pattern {digest}", field="pattern", value=digest)
        return self._patterns[digest]


def make_reader(store: Patterns | None = None, **changes: Any) -> RecordReader:
    """A reader for the tiny policy; changes are fields of its rules."""
    rules: dict[str, Any] = {
        "encoder": "structural",
        "vocabulary": VOCABULARY_SIZE,
        "max_text_tokens": 512,
        "max_policy_age": 4,
        "reward": "milestone",
    }
    prompts = MatrixPrompts("structural", make_tokenizer())
    return RecordReader(store or StoredPatterns(PATTERN), prompts, BatchRules(**{**rules, **changes}))


def make_batch(*records: RewardRecord, version: int = 0) -> TrainingBatch:
    reader = make_reader()
    usable = [reader.read(record, version) for record in records]
    assert all(isinstance(each, UsableRecord) for each in usable), usable
    return assemble([each for each in usable if isinstance(each, UsableRecord)], version)
