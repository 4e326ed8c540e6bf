"""`python -m builder.guide [FOLDER]` writes the generated documents."""

from __future__ import annotations

import sys
from pathlib import Path

from builder.guide.write import write
from builder.project import Project

write(Project(), Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs"))
