"""Changing a setting: a form, the difference it makes to the file, and then the change."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import falcon

from plughost import CommandError
from plughost_dev_console.html import MEDIA_TYPE
from plughost_dev_console.resources import begin
from plughost_dev_console.showing import MASK, unit_of, written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plughost import PluginView, ReloadReport, Value
    from plughost.http import Request
    from plughost_dev_console.html import Pages


class Change:
    """Shows what a change of one setting would do, and does it when that was seen."""

    def __init__(self, pages: Pages) -> None:
        """Change the settings of the host of the pages."""
        self._pages = pages

    def on_get(self, req: Request, resp: falcon.Response, key: str) -> None:
        """Write the form."""
        setting = self._find(key)
        self._write(req, resp, setting, as_written(setting.value))

    def on_post(self, req: Request, resp: falcon.Response) -> None:
        """Show the difference, or make the change where it was seen."""
        form = req.context.form
        setting = self._find(form.get("key", ""))
        text = form.get("value", "")
        value = None if form.get("what") == "default" else meant(setting, text)
        if form.get("seen"):

            def work(origin: Mapping[str, Any]) -> ReloadReport:
                return self._pages.control.change_setting(setting.key, value, origin=origin)

            what = "default" if setting.source == "default" else "value"
            before = {"key": setting.key, "value": as_written(setting.value), "what": what}
            begin(self._pages, req, resp, "set", work, setting.key, before=before)
            return
        try:
            change, problem = self._pages.control.preview_setting(setting.key, value), ""
        except CommandError as error:
            change, problem = None, str(error)
        self._write(req, resp, setting, text, change=change, problem=problem, what=form.get("what", "value"))

    def _write(self, req: Request, resp: falcon.Response, setting: Value, text: str, **shown: Any) -> None:
        resp.content_type = MEDIA_TYPE
        resp.text = self._pages.render(
            req,
            "change",
            setting.key,
            setting=setting,
            unit=unit_of(setting.description),
            default=written(setting.default),
            truth=isinstance(setting.default, bool),
            text=text,
            owner=next((each.name for each in self._pages.host.plugins if setting.key.startswith(_table(each))), ""),
            **{"change": None, "problem": "", "what": "value", **shown},
        )

    def _find(self, key: str) -> Value:
        found = next((each for each in self._pages.host.settings() if each.key == key), None)
        if found is None:
            raise falcon.HTTPNotFound(description=f"There is no setting {key}.")
        if MASK in str(found.value):
            raise falcon.HTTPConflict(description=f"{key} is a secret. Change it in the settings file.")
        return found


def _table(plugin: PluginView) -> str:
    return f"plugins.{plugin.name}."


def as_written(value: object) -> str:
    """Return a value as the form has it: as in TOML, but a text without quotes."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_quoted(each) for each in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_quoted(key)} = {_quoted(each)}' for key, each in value.items())}}}"
    return str(value)


def meant(setting: Value, text: str) -> object:
    """Return the value that a text means: as in TOML, but where the setting is a text, or it is no TOML, the text."""
    if isinstance(setting.default, str):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _quoted(value: object) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return as_written(value)
