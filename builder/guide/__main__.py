"""`python -m builder.guide [FOLDER]`: write the generated documents; default: docs."""

from __future__ import annotations

import sys
from pathlib import Path

from builder.guide.pages import write
from builder.project import Project

write(Project(), Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs"))
