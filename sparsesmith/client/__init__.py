"""The Python client: `tune(A)`, and `Client` / `AsyncClient` for everything else."""

from sparsesmith.client.clients import AsyncClient, Client, tune
from sparsesmith.client.options import tuning_options
from sparsesmith.operator import Operator as TunedKernel  # As it was called before it was one.

__all__ = ["AsyncClient", "Client", "TunedKernel", "tune", "tuning_options"]
