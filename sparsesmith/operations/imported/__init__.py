"""Tasks of other people's suites: folders that `sparsesmith tasks import` writes, as operations.

Their reference is somebody's code. Nothing here runs it: an evaluator does, in a process of its own
(`services.evaluator.references`), and answers through `references.installed`.
"""
