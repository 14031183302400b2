"""How Sphinx builds the documentation; `../build_site.py` gives it the pages."""

import configparser
from pathlib import Path

_setup = configparser.ConfigParser(interpolation=None)
_setup.read(Path(__file__).parents[3] / "setup.cfg", encoding="utf-8")

project = "plughost"
version = release = _setup["metadata"]["version"]
copyright = "the contributors of plughost, Apache-2.0"  # noqa: A001 - Sphinx's name for it
extensions = ["myst_parser"]
myst_heading_anchors = 6
smartquotes = False  # it makes a dash of the hyphens of --dev
html_theme = "furo"
html_title = f"plughost {version}"
html_favicon = str(Path(__file__).parents[2] / "dev-console" / "src" / "plughost_dev_console" / "static" / "logo.svg")
html_static_path = ["static"]
html_css_files = ["plughost.css"]
html_js_files = [("versions.js", {"defer": "defer"})]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_use_index = False
html_domain_indices = False
