"""The Python client: `tune(A)`, and `Client` / `AsyncClient` for everything else."""

from sparsesmith.client.clients import AsyncClient, Client, tune, tune_task
from sparsesmith.client.instant import InstantOperator
from sparsesmith.client.options import tuning_options
from sparsesmith.operator import Operator as TunedKernel  # As it was called before it was one.

__all__ = ["AsyncClient", "Client", "InstantOperator", "TunedKernel", "tune", "tune_task", "tuning_options"]
