"""How Sphinx makes the site of these pages: `make docs-site`. What it warns of is an error."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from mesos_gpu import __version__  # noqa: E402

project = "mesos_gpu"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.graphviz", "drawings"]
exclude_patterns = ["examples"]
nitpicky = True

html_theme = "furo"
html_title = f"mesos_gpu {__version__}"
html_show_copyright = False
html_static_path = ["site"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True}
graphviz_output_format = "svg"

myst_heading_anchors = 4  # links name headings as forges do
myst_fence_as_directive = ["mermaid"]
