"""Per-class distributions over warps, and model files.

Steps from aligned pairs to a model file:

pairs                  θ, weights and edges of each class
empirical_bayes        covariances of highest marginal likelihood, and posteriors of pairs, or
selection              hyper-parameters of highest held-out likelihood
fitting                a ``gaussian`` or ``template`` distribution for each class
warpmodel              WarpModel: densities and draws (``draw_kernels``)
files, settings        what is saved and loaded, and which settings are valid
"""

from dreamwarp.core.labels import Label
from dreamwarp.core.listing import public_names
from dreamwarp.model.fitting import ClassFit
from dreamwarp.model.gaussian import Components
from dreamwarp.model.pairs import alignment_weights
from dreamwarp.model.warpmodel import WarpModel

__all__ = [
    "ClassFit",
    "Components",
    "Label",
    "WarpModel",
    "alignment_weights",
]


def __dir__() -> list[str]:
    return public_names(globals())
