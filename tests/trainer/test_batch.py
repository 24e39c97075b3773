import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from services.trainer.online.batch import KEPT_PROMPTS, UsableRecord, assemble
from sparsesmith.errors import Unavailable
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.policy.encoder import collate
from sparsesmith.prompts.arrays import prompt_inputs
from sparsesmith_proto.kernel import FromFamily, Parent, Workload
from sparsesmith_proto.reward import RewardRecord
from tests.generator.tiny_policy import VOCABULARY_SIZE, make_tokenizer
from tests.trainer.records import PATTERN, StoredPatterns, make_batch, make_reader, make_record, make_sampled

BOS = make_tokenizer().token_to_id("<bos>")
PARENT = {"parent": Parent(program="float y;", report="passed 2 us speedup 1")}


def make_usable(record: RewardRecord) -> UsableRecord:
    usable = make_reader().read(record, 0)
    assert isinstance(usable, UsableRecord), usable
    return usable


def test_token_ids_and_logprobs_come_from_the_record_and_stand_where_the_policy_wrote_them() -> None:
    short = make_sampled(token_ids=(20, 0), logprobs=(-0.5, -0.25))
    refined = make_sampled(PARENT, token_ids=(30, 31, 0), logprobs=(-1.0, -2.0, -3.0))
    batch = make_batch(make_record("a", origin=short), make_record("b", origin=refined))
    mask_BT = batch.text.sampled_mask_BT
    assert batch.text.token_ids_BT[mask_BT].tolist() == [20, 0, 30, 31, 0]
    assert batch.behaviour_BT[mask_BT].tolist() == [-0.5, -0.25, -1.0, -2.0, -3.0]
    assert not batch.behaviour_BT[~mask_BT].any()
    assert batch.text.token_ids_BT[0, :3].tolist() == [BOS, 20, 0]


def test_a_refinement_shows_its_parent_and_report_before_the_program() -> None:
    batch = make_batch(make_record(origin=make_sampled(PARENT, token_ids=(30, 0))))
    tokenizer = make_tokenizer()
    shown = tokenizer.decode(batch.text.token_ids_BT[0].tolist(), skip_special_tokens=False)
    assert shown.startswith("<parent>float y;<report>passed 2 us speedup 1<bos>")


def test_prompts_are_the_arrays_that_the_generator_made() -> None:
    record = make_record(origin=make_sampled({"sample_seed": 77}))
    expected = collate([prompt_inputs(PATTERN, record.workload, make_sampled({"sample_seed": 77}).prompt)])
    for ours, theirs in zip(vars(make_batch(record).prompts).values(), vars(expected).values(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_scheme_chosen_is_the_reward() -> None:
    for scheme, expected in (("milestone", 0.5), ("paper", 5.0)):
        usable = make_reader(reward=scheme).read(make_record(reward=0.5), 0)
        assert isinstance(usable, UsableRecord)
        assert usable.reward == expected


def test_samples_of_one_prompt_share_a_group_unless_their_devices_differ_in_kind() -> None:
    measured = make_record("c")
    measured = measured.model_copy(update={"device": measured.device.model_copy(update={"kind": "cuda"})})
    other = make_record("d", origin=make_sampled(group="group-2"))
    batch = make_batch(make_record("a"), make_record("b"), measured, other)
    assert batch.group_B.tolist() == [0, 0, 1, 2]


def test_staleness_counts_from_the_first_token_and_own_records_are_of_exactly_this_version() -> None:
    origins = [
        make_sampled(first_version=3),
        make_sampled(first_version=2, last_version=3),
        make_sampled(first_version=1),
    ]
    batch = make_batch(*(make_record(str(n), origin=origin) for n, origin in enumerate(origins)), version=3)
    assert batch.staleness_B.tolist() == [0, 1, 2]
    assert batch.own_B.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("reason", "origin"),
    [
        ("not_sampled", FromFamily(family="csr_vector", parameters={})),
        ("other_encoder", make_sampled({"encoder": "text"})),
        ("other_encoder", make_sampled({"encoder": "sinusoidal"})),
        ("stale", make_sampled(first_version=5, last_version=10)),
        ("unknown_version", make_sampled(first_version=10, last_version=11)),
        ("unknown_token", make_sampled(first_version=10, token_ids=(VOCABULARY_SIZE,))),
        ("unknown_token", make_sampled(first_version=10, token_ids=(-1,))),
        ("too_long", make_sampled(first_version=10, token_ids=(20,) * 512)),
    ],
)
def test_a_record_that_cannot_be_learned_from_is_skipped_with_the_reason(reason: str, origin: Any) -> None:
    assert make_reader().read(make_record(origin=origin), 10) == reason


def test_a_record_at_the_bound_of_staleness_is_used() -> None:
    origin = make_sampled(first_version=6, last_version=10)
    assert isinstance(make_reader().read(make_record(origin=origin), 10), UsableRecord)


def test_a_record_whose_pattern_is_gone_is_skipped() -> None:
    workload = Workload(pattern="0" * 64, operation="spmv", element_type="float32")
    assert make_reader().read(make_record(workload=workload), 0) == "pattern_gone"


def test_a_prompt_is_rebuilt_once_for_all_that_were_sampled_from_it() -> None:
    class Counted(StoredPatterns):
        num_asked = 0

        def get(self, digest: str) -> Pattern:
            self.num_asked += 1
            return super().get(digest)

    store = Counted(PATTERN)
    reader = make_reader(store)
    first, second, other = (
        reader.read(make_record(f"job:{number}", origin=make_sampled({"sample_seed": seed})), 0)
        for number, seed in enumerate((1, 1, 2))
    )
    assert isinstance(first, UsableRecord) and isinstance(second, UsableRecord) and isinstance(other, UsableRecord)
    assert store.num_asked == 2
    assert first.asked is second.asked
    assert other.asked is not first.asked
    for number in range(KEPT_PROMPTS):
        reader.read(make_record(origin=make_sampled({"sample_seed": 3 + number})), 0)
    again = reader.read(make_record(), 0)
    assert isinstance(again, UsableRecord) and again.asked is not first.asked, (
        "what was rebuilt long ago is kept no more"
    )


def test_a_record_without_the_scheme_in_use_is_skipped() -> None:
    assert make_reader(reward="paper").read(make_record(rewards={"milestone": 1.0}), 0) == "no_reward"


class BrokenPatterns:
    """A store that does not answer, or holds a damaged pattern."""

    def __init__(self, field: str) -> None:
        self._field = field

    def get(self, digest: str) -> Pattern:
        raise Unavailable("no", field=self._field)


def test_a_damaged_pattern_is_skipped_and_a_silent_store_is_not() -> None:
    assert make_reader(BrokenPatterns("pattern")).read(make_record(), 0) == "pattern_damaged"
    with pytest.raises(Unavailable):
        make_reader(BrokenPatterns("redis_url")).read(make_record(), 0)


def test_some_rows_of_a_batch_are_a_batch_without_needless_padding() -> None:
    lengths = (3, 9, 2, 5)
    origins = [make_sampled(group=f"g{n}", token_ids=(20 + n,) * n, temperature=n / 10) for n in lengths]
    batch = make_batch(*(make_record(str(n), reward=float(n), origin=o) for n, o in zip(lengths, origins, strict=True)))
    part = batch.rows([3, 0])
    assert part.text.token_ids_BT.shape == (2, 6)
    assert part.lengths_B.tolist() == [6, 4]
    assert part.reward_B.tolist() == [5, 3]
    np.testing.assert_allclose(part.temperature_B, [0.5, 0.3])
    assert part.prompts is not None and part.prompts.points.shape[0] == len(part) == 2
    assert {field.name for field in dataclasses.fields(part)} == set(vars(part))


def test_nothing_is_learned_from_matrices_that_the_policy_is_judged_by() -> None:
    record = make_record()
    assert make_reader(held_out=frozenset({PATTERN.digest})).read(record, 0) == "held_out"
    assert isinstance(make_reader(held_out=frozenset({"0" * 64})).read(record, 0), UsableRecord)


def test_versions_that_were_turned_down_do_not_count_in_the_age_of_a_batch() -> None:
    usable = make_usable(make_record(origin=make_sampled(first_version=0)))
    assert assemble([usable], 3).staleness_B.tolist() == [3]
    assert assemble([usable], 3, frozenset({1, 2})).staleness_B.tolist() == [1]


def test_nothing_is_learned_from_samples_without_unlikely_tokens() -> None:
    warm = make_record(origin=make_sampled(temperature=3.0, min_p=0.2))
    assert make_reader().read(warm, 0) == "truncated"
    assert isinstance(make_reader().read(make_record(origin=make_sampled(temperature=3.0)), 0), UsableRecord)
