# python/vitune/_compile/patterns/patches_train.py -- The pattern of patch embeddings that train: a convolution without overlap as a linear layer.
# SPDX-License-Identifier: Apache-2.0
"""As patches.py has them in inference: the images' patches are laid out as rows by a copy, and the weight's gradient is the product of
those rows with the gradient of the tokens, which gives the bias' gradient too. Images that want a gradient themselves keep their
convolution."""
from __future__ import annotations

from collections.abc import Iterator

from torch import fx

from ..._runtime.errors import Unsupported
from .match import FusionPattern, Match, NoMatch, value_of, wants_gradient
from .mutations import is_changed_between
from .tree import arguments_of
from .linear_train import Layer, Place
from .patches import as_tokens, patches_of

_CALL = "patch embedding in training"


class PatchesTrain(FusionPattern):
    name = "linear_train"
    wins = True
    only_if_timed = True
    races_defaults = True
    trains = True
    operations = ("conv2d",)

    def places(self, node: fx.Node) -> Iterator[Match | NoMatch]:
        if not wants_gradient(value_of(node)):
            return
        try:
            x, weight, bias, *rest = arguments_of(node).values()
        except Unsupported:
            return
        patches = patches_of(value_of(x), value_of(weight), *rest)
        if patches is None:
            return
        layer = Layer(node, x, weight, bias, patches.rows, patches.matrix)
        why_not = "a gradient of the images is wanted" if wants_gradient(value_of(x)) else layer.why_not()
        if why_not:
            yield NoMatch(_CALL, why_not)
            return
        tokens = as_tokens(node)
        place = Place(_CALL, layer if tokens else layer._replace(back=patches.pixels), (node, *tokens))
        if not is_changed_between(node, place.nodes[-1], place.nodes):
            yield place.match()


patches_train = PatchesTrain()
