"""A model's configuration, what its layers are made of, and its account of work.

`tm.models()` lists the models: importing any module of this room makes `trnmodel.models` the room itself, so the room
answers the call.
"""

import sys
from types import ModuleType


class _Room(ModuleType):
    def __call__(self) -> list[str]:
        """Ids of the shipped models."""
        from trnmodel.models.transformer import models

        return models()


sys.modules[__name__].__class__ = _Room
