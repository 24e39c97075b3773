"""What a crash costs a batch, and what a spare device process has to do before it can take over.

    python -m benchmarks.measure.crash_costs [--candidates 42] [--spares 1:4 4:12] [--together 1 2 4 8] [--nnz 200000]

On the device that the settings name. **spare**: seconds (and the child's CPU seconds) of each step of one that is made warm:
start, opening the workload, formats, inputs. **together**: seconds until the first and the last of several begun at once
are up, which says how much of a start the driver does for one after another. **batches**: the same candidates checked with
no crash and with every seventh ending its process, for numbers of spares that wait as a rule and at most, twice behind one
another, because the second batch knows of the first. On the interpreter, where no kernel ends a process, the benchmark kills it while the candidate is checked.
"""
