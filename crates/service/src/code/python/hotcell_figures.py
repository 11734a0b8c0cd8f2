"""A Matplotlib backend that saves figures where Hotcell finds them.

Figures are drawn by Agg. Each is saved when it is shown, and those that are still open are saved when the
program ends. Nothing here runs in a program that does not plot.
"""

import atexit
import os

from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

FIGURES_MAX = 64

_process = os.getpid()
_count = 0
_shown = set()


def save(write):
    """Has `write` save the next picture to a path, if there may be one more."""
    global _count
    if _count >= FIGURES_MAX or os.getpid() != _process:
        return
    _count += 1
    directory = os.path.join(os.environ.get("HOME", "/workspace"), "artifacts")
    os.makedirs(directory, exist_ok=True)
    name = os.environ.get("HOTCELL_FIGURES", "figure")
    write(os.path.join(directory, f"{name}-{_count:02}.png"))


def _save_figure(manager):
    if manager not in _shown:
        _shown.add(manager)
        save(lambda path: manager.canvas.figure.savefig(path, format="png"))


def _save_open():
    for manager in Gcf.get_all_fig_managers():
        _save_figure(manager)
    Gcf.destroy_all()


class FigureManager(FigureManagerBase):
    def show(self):
        _save_figure(self)

    @classmethod
    def pyplot_show(cls, *arguments, **named):
        _save_open()


class FigureCanvas(FigureCanvasAgg):
    manager_class = FigureManager


def show(*arguments, **named):
    _save_open()


atexit.register(_save_open)
