"""The images of the paper, and two sets like them."""

from pathlib import Path

from fl_platform.data import locations, readers
from fl_platform.data.readers import Pair
from fl_platform.data.sets.base import Dataset
from fl_platform.data.tiny_imagenet import read_tiny_imagenet


class Digits(Dataset, name="digits", label="Digits"):
    """8x8 handwritten digits embedded in scikit-learn; needs no files."""

    num_classes = 10
    shape = (1, 8, 8)
    mean = (0.3053,)
    std = (0.3759,)
    num_rounds = 100
    targets = (0.9,)

    def load(self, folder: Path) -> Pair:
        return readers.read_digits()


class Mnist(Dataset, name="mnist", label="MNIST"):
    """28x28 handwritten digits."""

    num_classes = 10
    shape = (1, 28, 28)
    mean = (0.1307,)
    std = (0.3081,)
    folders = ("MNIST/raw",)
    targets = (0.4, 0.45, 0.5, 0.95)

    def load(self, folder: Path) -> Pair:
        return readers.read_idx_pair(folder, readers.MNIST_MD5)


class FashionMnist(Dataset, name="fashion_mnist", label="Fashion-MNIST"):
    """28x28 pieces of clothing; not in the paper."""

    num_classes = 10
    shape = (1, 28, 28)
    mean = (0.2860,)
    std = (0.3530,)
    folders = ("FashionMNIST/raw",)
    targets = (0.6, 0.7, 0.8)

    def load(self, folder: Path) -> Pair:
        return readers.read_idx_pair(folder, readers.FASHION_MNIST_MD5)


class Cifar10(Dataset, name="cifar10", label="CIFAR-10"):
    """32x32 colour images of 10 classes."""

    num_classes = 10
    shape = (3, 32, 32)
    mean = (0.4914, 0.4822, 0.4465)
    std = (0.2023, 0.1994, 0.2010)
    folders = ("cifar-10-batches-py", "cifar-10-batches-bin")
    crop_padding = 4
    flip = True
    default_model = "lenet5"
    num_rounds = 1000
    targets = (0.15, 0.45, 0.55)

    def load(self, folder: Path) -> Pair:
        if folder.name == "cifar-10-batches-bin":
            return readers.read_cifar10_binary(folder)
        return readers.read_cifar_pickles(folder, readers.CIFAR10_PICKLE_MD5, "labels")


class Cifar100(Dataset, name="cifar100", label="CIFAR-100"):
    """32x32 colour images of 100 classes."""

    num_classes = 100
    shape = (3, 32, 32)
    mean = (0.5071, 0.4865, 0.4409)
    std = (0.2673, 0.2564, 0.2762)
    folders = ("cifar-100-python",)
    crop_padding = 4
    flip = True
    default_model = "vgg11"
    num_rounds = 2000
    targets = (0.3, 0.4, 0.6)

    def load(self, folder: Path) -> Pair:
        return readers.read_cifar_pickles(folder, readers.CIFAR100_PICKLE_MD5, "fine_labels")


class TinyImagenet(Dataset, name="tiny_imagenet", label="Tiny-ImageNet"):
    """64x64 colour images of 200 classes; the validation images are the test set."""

    num_classes = 200
    shape = (3, 64, 64)
    mean = (0.4802, 0.4481, 0.3975)
    std = (0.2770, 0.2691, 0.2821)
    folders = ("tiny-imagenet-200",)
    crop_padding = 8
    flip = True
    default_model = "resnet20"
    num_rounds = 2000
    evaluation_every = 5
    targets = (0.05, 0.3, 0.35)

    def load(self, folder: Path) -> Pair:
        return read_tiny_imagenet(folder, locations.cache_directory() / "decoded")
