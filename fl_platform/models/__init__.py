"""Networks cut into named blocks. Importing the package registers every architecture in it."""

from fl_platform.models import char_gru, lenet5, mlp, resnet20, tanh_mlp, vgg11
from fl_platform.models.registry import architecture, build

__all__ = ["architecture", "build", "char_gru", "lenet5", "mlp", "resnet20", "tanh_mlp", "vgg11"]
