"""Apart from the measurement: a child imports its parent's main module again, unless that is a package's own."""

from benchmarks.measure.crash_costs.costs import main

if __name__ == "__main__":
    main()
