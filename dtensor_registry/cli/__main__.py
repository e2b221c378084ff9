"""`python -m dtensor_registry.cli`, for an interpreter whose scripts are not on PATH."""

import sys

from dtensor_registry.cli.command_line import main

sys.exit(main())
