"""Builders of what crosses the channels."""

from typing import Any

from sparsesmith.transport.gpu_kinds import GpuKind
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import (
    Baselines,
    BaselineTiming,
    Candidate,
    DeviceDescription,
    EstimatedTiming,
    Evaluation,
    ProbeWritten,
    Rejected,
    UserWritten,
    Workload,
)
from sparsesmith_proto.policy import PolicyAnnouncement
from sparsesmith_proto.reward import RewardRecord

CANDIDATE = Candidate(candidate_id="c0", program="//@ format csr", origin=UserWritten())
WORKLOAD = Workload(pattern="0" * 64, operation="spmv", element_type="float32")
DEVICE = DeviceDescription(
    kind="interpreter", name="PTX interpreter", architecture="sm_90", num_sms=132, copy_bandwidth_gbs=4000, versions={}
)
GPU = GpuKind.of(DEVICE)
OUTCOME = Rejected(message="no launch line")


PROBED = CANDIDATE.model_copy(update={"origin": ProbeWritten(version=3)})


def make_job(job_id: str = "job-1", **changes: Any) -> EvaluationJob:
    return EvaluationJob(**{"job_id": job_id, "workload": WORKLOAD, "candidates": (CANDIDATE,), **changes})


def device_named(name: str, architecture: str = "sm_90") -> DeviceDescription:
    """Of a GPU that is not here."""
    return DEVICE.model_copy(update={"kind": "cuda", "name": name, "architecture": architecture})


def report_for(job: EvaluationJob, device: DeviceDescription = DEVICE) -> EvaluationReport:
    timing = EstimatedTiming(median_us=10, traffic_model="test")
    return EvaluationReport(
        job_id=job.job_id,
        device=device,
        baselines=Baselines(
            default="plain", routines=(BaselineTiming(routine="plain", timing=timing, preparation_ms=0),)
        ),
        evaluations=tuple(Evaluation(candidate=candidate, outcome=OUTCOME) for candidate in job.candidates),
        csr_bytes=100,
        seconds=0.1,
    )


def make_record(record_id: str = "job-1:c0") -> RewardRecord:
    return RewardRecord(
        record_id=record_id,
        workload=WORKLOAD,
        candidate=CANDIDATE,
        outcome=OUTCOME,
        best_baseline_us=10,
        default_baseline_us=12,
        rewards={"milestone": -1.0},
        device=DEVICE,
    )


def make_announcement(version: int = 1, **changes: Any) -> PolicyAnnouncement:
    values = {"weights": f"policy-{version}.safetensors", "sha256": "0" * 64, "step": version, "metrics": {}}
    return PolicyAnnouncement(**{"version": version, "created_at": "2026-01-01T00:00:00Z", **values, **changes})
