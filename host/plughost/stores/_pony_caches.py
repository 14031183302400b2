"""Pony's caches of decompiled code, which here forget code that a reload has replaced.

Pony never releases code that it has decompiled. For methods of entities it does worse: it caches their translation by
the address of the function, so that a new version's method at the address of an old one is translated as the old one.
"""

from __future__ import annotations

import weakref
from functools import partial
from types import CodeType
from typing import Any, Final

from pony.orm import asttranslation, core, decompiling, sqltranslation
from pony.utils import utils

_keep_forever: Final = utils.get_codeobject_id
_watched: Final[dict[int, weakref.ref[CodeType]]] = {}


def forget_replaced_code() -> None:
    """Make Pony use the functions below."""
    utils.get_codeobject_id = decompiling.get_codeobject_id = _code_key
    sqltranslation.create_extractors = _create_method_extractors


def _code_key(code: CodeType) -> int:
    """Return the key of code in Pony's caches: its address, which no other code gets while its database is open."""
    kept: dict[int, CodeType] | None = getattr(core.local.db_session, "decompiled", None)
    if kept is None:  # a plugin's own `orm.Database`
        return int(_keep_forever(code))
    key = id(code)
    kept[key] = code
    if key not in _watched:
        _watched[key] = weakref.ref(code, partial(_forget, key))
    return key


def _create_method_extractors(_: int, tree: Any, *args: Any, **kwargs: Any) -> Any:
    """Cache what is derived from a method by the tree of its code, not by the address of the function."""
    return asttranslation.create_extractors(id(tree), tree, *args, **kwargs)


def _forget(key: int, _: object) -> None:
    """Remove code that is gone from Pony's caches, before other code can get its address."""
    del _watched[key]
    utils.lambda_args_cache.pop(key, None)
    asttranslation.extractors_cache.pop(key, None)
    tree, _ = decompiling.ast_cache.pop(key, (None, None))
    asttranslation.extractors_cache.pop(id(tree), None)
