"""The room of a supervisor between its commands, and the end of all that a command leaves there."""

from __future__ import annotations

import time

from flink_skills.execution.launcher.ending import Buried, end_children
from flink_skills.execution.launcher.protocol import Order
from flink_skills.execution.launcher.rooms import Room, open_room, view_of

__all__ = ["Lodging"]

_TREE_ENDS_WITHIN_SECONDS = 10.0


class Lodging:
    """Where the commands of a supervisor run: in a room, or outside.

    ``is_in_order`` says whether all processes of commands have ended.
    """

    def __init__(self, worker: int, children_changed: int) -> None:
        self._worker = worker
        self.children_changed = children_changed
        self._room: Room | None = None
        self.is_in_order = True

    def move(self, order: Order, buried: Buried) -> Room | None:
        """Return the room for ``order``, opened if the present one does not do. Return None for none.

        Raises :class:`OSError` if it cannot be opened; then :meth:`leave`.
        """
        confinement = order.confinement
        view = (confinement.user, *view_of(confinement.namespaces)) if confinement.namespaces else ()
        if self._room is not None and (self._room.view != view or not self._room.is_as_before()):
            self.leave(buried)
        if self._room is None and view:
            self._room = open_room(confinement.namespaces, view, confinement.user, self._worker, within=order.wall_time)
        return self._room

    def tidy(self, buried: Buried) -> None:
        """End all processes of the command, and the room if the command has changed it."""
        room = self._room
        spare = frozenset((room.program,)) if room is not None else frozenset[int]()
        self._end(buried, spare)
        if room is not None and (room.program in buried.statuses or not room.is_as_before()):
            self.leave(buried)

    def leave(self, buried: Buried) -> None:
        """End the room, if any, with all that is in it."""
        if self._room is not None:
            self._room.close()
            self._room = None
        self._end(buried)

    def _end(self, buried: Buried, spare: frozenset[int] = frozenset()) -> None:
        deadline = time.monotonic() + _TREE_ENDS_WITHIN_SECONDS
        self.is_in_order = end_children(buried, self.children_changed, deadline, spare)
