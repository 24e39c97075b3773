"""A value model between sampling and grading: the best of several times as many samples go on."""

from pathlib import Path

import pytest
import torch

from services.generator.policy.value_filter import ValueFilter, value_filter
from sparsesmith.errors import InvalidOption
from sparsesmith.policy.checkpoint import save_tokenizer
from sparsesmith.policy.description import PolicyDescription
from sparsesmith.policy.value import ValueModel, load_judge, save_value_model
from sparsesmith.prompts.arrays import prompt_inputs
from sparsesmith_proto.kernel import Candidate, Sampled, UserWritten
from tests.generator.orders import make_pattern, make_prompt, make_workload
from tests.generator.tiny_policy import make_policy, make_tokenizer

PATTERN = make_pattern()
WORKLOAD = make_workload(PATTERN)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny value model that was trained on nothing: it has an opinion all the same."""
    path = tmp_path_factory.mktemp("value")
    policy = make_policy()
    torch.manual_seed(0)
    save_value_model(ValueModel(policy.model, policy.encoder), PolicyDescription("value"), path)
    save_tokenizer(make_tokenizer().to_str(), path)
    return path


def make_samples(*programs: str) -> list[Candidate]:
    return [
        Candidate(
            candidate_id=f"s{number}",
            program=program,
            origin=Sampled(
                prompt=make_prompt(),
                group="g",
                token_ids=(1,),
                logprobs=(-0.1,),
                temperature=1.0,
                first_version=0,
                last_version=0,
            ),
        )
        for number, program in enumerate(programs)
    ]


def test_the_best_by_the_value_model_go_on_the_most_promising_first(folder: Path) -> None:
    programs = [f"//@ format csr\nint a[{number}];" for number in range(8)]
    worth = load_judge(folder).worth(prompt_inputs(PATTERN, WORKLOAD, make_prompt()), programs)
    expected = sorted(range(8), key=lambda each: worth[each].log_time)[:3]
    best = ValueFilter(folder, 4).best(PATTERN, WORKLOAD, make_samples(*programs), 3)
    assert [each.candidate_id for each in best] == [f"s{number}" for number in expected]


def test_a_text_that_was_sampled_twice_is_graded_twice_only_where_others_do_not_fill_the_batch(folder: Path) -> None:
    samples = make_samples("int a;", "int a;", "int b;")
    keeping = ValueFilter(folder, 4)
    assert {each.program for each in keeping.best(PATTERN, WORKLOAD, samples, 2)} == {"int a;", "int b;"}
    assert len(keeping.best(PATTERN, WORKLOAD, samples, 3)) == 3


def test_what_no_policy_wrote_goes_on_as_it_came(folder: Path) -> None:
    own = Candidate(candidate_id="own", program="int a;", origin=UserWritten())
    assert ValueFilter(folder, 4).best(PATTERN, WORKLOAD, [own], 1) == [own]


def test_a_folder_without_a_value_model_is_refused_at_the_start(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(InvalidOption, match=r"value\.safetensors is missing"):
        value_filter(tmp_path, 4)
    assert value_filter(None, 4) is None
    assert value_filter(folder, 4) == ValueFilter(folder, 4)
