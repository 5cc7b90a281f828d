"""How `make docs` builds these pages."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

project = "tornado-stm"
author = "the authors of tornado-stm"
release = version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon"]
# The example's folder is no page.
exclude_patterns = ["examples"]
html_theme = "furo"
html_title = "tornado-stm"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_show_copyright = False
html_copy_source = False

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
napoleon_numpy_docstring = False
napoleon_use_rtype = False

# Literal blocks are commands, tables and Python; those that are Python say so.
highlight_language = "none"
pygments_style = "default"

# Where Python's own names are documented could only be asked over the network.
nitpick_ignore_regex = [
    (r"py:.*", r"(?!tornado\.stm).*"),
    (r"py:class", r"tornado\.stm\.(.*\.)?[A-Z]"),  # variables of types
]
