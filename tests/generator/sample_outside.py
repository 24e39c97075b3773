"""Run in a process of its own, with the folder `outside` on its path: samples of a policy of another package's kind.

python -m tests.generator.sample_outside FOLDER      a Hugging Face folder; the kind is the settings'

Prints one JSON object: the policy's name, the prompt as its model reads it, and what was sampled.
"""

import asyncio
import json
import sys
from pathlib import Path

from transformers import AutoTokenizer

from services.generator.policy.engine import EngineOptions, TokenPrompt
from services.generator.policy.engine_host import EngineHost
from services.generator.policy.folder import PolicyFolder
from services.generator.policy.sampling import PolicySampler, SamplingOptions
from services.generator.settings import GeneratorSettings
from sparsesmith_proto.kernel import Sampled
from tests.generator.orders import make_prompt, make_task


async def told(folder: PolicyFolder) -> dict[str, object]:
    host = EngineHost(EngineOptions(folder.language_model_dir(), max_context_tokens=512, max_samples=4), restart_s=1)
    sampler = PolicySampler(host, folder.prompt_writer(), SamplingOptions("sm_90", 1.0, 24))
    serving = asyncio.create_task(host.run(nothing_newer))
    task = make_task()
    group = sampler.group(task, 0)
    candidates = await asyncio.gather(*(group.draw(number) for number in range(3)))
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    origins = [each.origin for each in candidates if isinstance(each.origin, Sampled)]
    written = sampler.writer.write(task.pattern, task.order.workload, make_prompt(encoder=sampler.writer.encoder))
    assert isinstance(written, TokenPrompt)
    return {
        "name": folder.name,
        "prompt": AutoTokenizer.from_pretrained(folder.path).decode(list(written.token_ids)),
        "encoders": [origin.prompt.encoder for origin in origins],
        "num_tokens": [len(origin.token_ids) for origin in origins],
    }


async def nothing_newer(engine: object) -> None:
    pass


def main() -> None:
    folder = PolicyFolder(Path(sys.argv[1]), GeneratorSettings().policy_kind)
    print(json.dumps(asyncio.run(told(folder))))


if __name__ == "__main__":
    main()
