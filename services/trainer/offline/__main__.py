"""`python -m services.trainer.offline`: the offline stages from a shell."""

import sys

from services.trainer.offline.commands import main

if __name__ == "__main__":
    sys.exit(main())
