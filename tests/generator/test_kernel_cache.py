"""What is found before serves again where it was made for the same: device, toolchain, question."""

import asyncio

from services.generator.orders import fingerprint
from services.generator.search.kernel_cache import TunedKernelCache, question
from sparsesmith.transport.connection import connect
from sparsesmith.transport.tuned_kernel_store import TunedKernelStore
from sparsesmith_proto.api import KernelReport
from tests.artifacts.answers import make_matrix
from tests.artifacts.answers import make_report as make_answer
from tests.generator.orders import make_order, make_pattern

NVRTC = {"nvrtc": "13.0", "ptxas": "13.0", "options": "-std=c++17"}


def compiled_by(report: KernelReport, **versions: str) -> KernelReport:
    return report.model_copy(update={"device": report.device.model_copy(update={"versions": versions})})


def test_an_answer_serves_until_another_toolchain_has_reported(redis_url: str) -> None:
    cache = TunedKernelCache(TunedKernelStore(connect(redis_url)), ttl_s=60)
    order, other = make_order(make_pattern()), make_order(make_pattern(seed=1))
    answer = compiled_by(make_answer(make_matrix()), **NVRTC)

    async def story() -> None:
        await cache.keep(order, answer)
        assert await cache.find(order, None) == answer
        await cache.keep(other, compiled_by(answer, **{**NVRTC, "driver": "580.1"}))
        assert await cache.find(order, None) == answer, "a driver compiles nothing"
        await cache.keep(other, compiled_by(answer, **{**NVRTC, "ptxas": "13.1"}))
        assert await cache.find(order, None) is None
        await cache.keep(order, compiled_by(answer, **{**NVRTC, "ptxas": "13.1"}))
        assert await cache.find(order, None) is not None

    asyncio.run(story())


def test_a_question_about_equal_bits_is_another_one_and_all_others_are_written_as_before() -> None:
    order = make_order(make_pattern(), search="families")
    workload = order.workload.model_copy(update={"deterministic": True})
    options = order.options.model_copy(update={"deterministic": True})
    deterministic = order.model_copy(update={"workload": workload, "options": options})
    assert question(order, None) != question(deterministic, None)
    assert fingerprint(order) != fingerprint(deterministic)
    assert "deterministic" not in order.model_dump_json()
