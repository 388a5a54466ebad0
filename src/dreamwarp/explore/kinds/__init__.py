"""The kinds of samples that the page shows, one module each: how they are encoded and warped.

Positions are in the unit domain, row before column. ``page/kinds.js`` has a counterpart of every
class, which draws what is encoded here.
"""

from dreamwarp.augment.subject import Data, Subject
from dreamwarp.data.shapes import ShapeSet
from dreamwarp.explore.kinds.arrays import Arrays
from dreamwarp.explore.kinds.base import Kind, Landmarks, Pair, View
from dreamwarp.explore.kinds.images import Images
from dreamwarp.explore.kinds.meshes import Meshes
from dreamwarp.explore.kinds.signals import Signals
from dreamwarp.explore.kinds.volumes import Volumes
from dreamwarp.model import WarpModel

__all__ = ["Kind", "Landmarks", "Pair", "View", "kind_of"]

# By the number of axes.
ARRAYS: dict[int, type[Arrays]] = {1: Signals, 2: Images, 3: Volumes}


def kind_of(model: WarpModel, data: Data | ShapeSet) -> Kind:
    """A model and its signals, images, volumes or meshes."""
    if isinstance(data, ShapeSet):
        return Meshes(model, data)
    return ARRAYS[model.space.ndim](Subject.of(model, data))
