"""Networks cut into named blocks. Importing the package registers every architecture in it."""

from fl_platform.models import lenet5, mlp, resnet20, vgg11
from fl_platform.models.registry import architecture, build, check_name, names

__all__ = ["architecture", "build", "check_name", "lenet5", "mlp", "names", "resnet20", "vgg11"]
