"""The change of a setting: a form, a preview of the file's diff, then the change."""

from __future__ import annotations

import json
import tomllib
from functools import partial
from typing import TYPE_CHECKING, Any

import falcon

from plughost import CommandError
from plughost_dev_console.facts import is_secret
from plughost_dev_console.resources import start_job

if TYPE_CHECKING:
    from plughost import Value
    from plughost.http import Request
    from plughost_dev_console.console import Console


class Change:
    """Previews the change of one setting, and makes it after the preview."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def on_get(self, req: Request, resp: falcon.Response, key: str) -> None:
        """Show the form."""
        setting = self._find(key)
        self._write(req, resp, setting, format_value(setting.value))

    def on_post(self, req: Request, resp: falcon.Response) -> None:
        """Show the preview, or make the change after it."""
        form = req.context.form
        setting = self._find(form.get("key", ""))
        text = form.get("value", "")
        value = None if form.get("what") == "default" else parse_value(setting, text)
        if form.get("seen"):
            work = partial(self._console.control.change_setting, setting.key, value)
            what = "default" if setting.source == "default" else "value"
            before = {"key": setting.key, "value": format_value(setting.value), "what": what}
            start_job(self._console, req, resp, "set", work, setting.key, before=before)
            return
        try:
            change, problem = self._console.control.preview_setting(setting.key, value), ""
        except CommandError as error:
            change, problem = None, str(error)
        self._write(req, resp, setting, text, change=change, problem=problem, what=form.get("what", "value"))

    def _write(self, req: Request, resp: falcon.Response, setting: Value, text: str, **shown: Any) -> None:
        plugins = [each.name for each in self._console.host.plugins]
        self._console.send(
            req,
            resp,
            "change",
            setting.key,
            setting=setting,
            text=text,
            owner=next((each for each in plugins if setting.key.startswith(f"plugins.{each}.")), ""),
            **{"change": None, "problem": "", "what": "value", **shown},
        )

    def _find(self, key: str) -> Value:
        found = next((each for each in self._console.host.settings() if each.key == key), None)
        if found is None:
            raise falcon.HTTPNotFound(description=f"There is no setting {key}.")
        if is_secret(found):
            raise falcon.HTTPConflict(description=f"{key} is a secret. Change it in the settings file.")
        return found


def format_value(value: object) -> str:
    """Format a value for the form: as TOML, but strings without quotes."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_quoted(each) for each in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_quoted(key)} = {_quoted(each)}' for key, each in value.items())}}}"
    return str(value)


def parse_value(setting: Value, text: str) -> object:
    """Parse a value of the form: as TOML, or as a plain string if the setting is one or the text is not TOML."""
    if isinstance(setting.default, str):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # also a number of more than 4300 digits, or deep nesting
        return text


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else format_value(value)
