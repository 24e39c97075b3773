"""Standard output and standard error as rich sees them."""

from rich.console import Console

console = Console()
errors = Console(stderr=True)
