"""Run in a process of its own, with the folder `outside` on its path: a prompt of a policy of another package's kind.

python -m tests.generator.ask_outside FOLDER      a Hugging Face folder; the kind is the settings'

Prints one JSON object: the policy's name, how it is shown a matrix, and the prompt as its model reads it.
"""

import json
import sys
from pathlib import Path

from transformers import AutoTokenizer

from services.generator.policy.engine import TokenPrompt
from services.generator.policy.folder import PolicyFolder
from services.generator.settings import GeneratorSettings
from tests.generator.orders import make_prompt, make_task


def main() -> None:
    folder = PolicyFolder(Path(sys.argv[1]), GeneratorSettings().policy_kind)
    writer, task = folder.prompt_writer(), make_task()
    written = writer.write(task.pattern, task.order.workload, make_prompt(encoder=writer.encoder))
    assert isinstance(written, TokenPrompt)
    prompt = AutoTokenizer.from_pretrained(folder.path).decode(list(written.token_ids))
    print(json.dumps({"name": folder.name, "encoder": writer.encoder, "prompt": prompt}))


if __name__ == "__main__":
    main()
