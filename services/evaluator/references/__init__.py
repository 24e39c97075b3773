"""References of imported tasks: somebody's Python code, run in processes of its own that the kernel holds.

    an evaluator's device process (or `sparsesmith tasks import`)
      └── `forks`: our own code alone, started before its parent is confined; forks and watches
            └── `runner`: one process a task; no files, network, processes; memory and time limited

What it does not protect against: a reference that is wrong, or that answers differently when it takes whoever asks for
a judge: what it says is what is right of its task. It sees the inputs of its own task and nothing of another's.
"""
