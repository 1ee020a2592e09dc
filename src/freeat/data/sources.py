"""The published data sets: where they come from, their checksums, and the folder they lie in."""

import gzip
import hashlib
import os
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from freeat.data.augmentation import CropFlip
from freeat.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Download:
    """A published file: its official address, and where it lies in the data folder."""

    url: str
    path: str
    md5: str


@dataclass(frozen=True, kw_only=True)
class FileLayout:
    """One layout in which a data set can lie in the data folder.

    ``path`` is a folder or an archive in the data folder; ``reader`` the name of the format; ``mark`` the file
    by which a folder is told; ``md5`` the checksums: of the archive itself (under an empty name), or of the
    unpacked content of each file of the folder, where they are known.
    """

    path: str
    reader: str
    mark: str = ""
    md5: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Source:
    """A published data set."""

    name: str
    title: str
    shape: tuple[int, int, int]
    n_classes: int
    n_train: int
    n_test: int
    licence: str
    layouts: tuple[FileLayout, ...] = ()
    downloads: tuple[Download, ...] = ()
    classes: tuple[str, ...] = ()
    augment: CropFlip | None = None

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes; their numbers where the names are known to the files only."""
        return self.classes or tuple(str(c) for c in range(self.n_classes))


VARIABLE = "FREEAT_DATA"


def data_folder(data_dir: Path | str | None = None) -> Path:
    """The folder asked for, else ``$FREEAT_DATA``, else ``freeat/data`` in the user's cache folder."""
    if data_dir is not None:
        return Path(data_dir).expanduser()
    if named := os.environ.get(VARIABLE):
        return Path(named).expanduser()
    return _user_cache() / "freeat" / "data"


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


BLOCK = 1 << 20


def md5_of(path: Path, *, unpacked: bool = False) -> str:
    """The MD5 of a file; with ``unpacked``, of what a gzipped file holds."""
    digest = hashlib.md5(usedforsecurity=False)
    opener = gzip.open if unpacked and path.suffix == ".gz" else open
    try:
        stream: BinaryIO
        with opener(path, "rb") as stream:  # type: ignore[assignment]
            while block := stream.read(BLOCK):
                digest.update(block)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error}); fetch it again") from None
    return digest.hexdigest()


def verify(path: Path, expected: str, *, unpacked: bool = False) -> None:
    """Refuse a file that is not there or not the published one."""
    if not path.is_file():
        raise InputError(f"{path} is missing; fetch the data set again")
    found = md5_of(path, unpacked=unpacked)
    if found != expected:
        raise InputError(
            f"{path}: MD5 {found}, but the published file has {expected}; delete it and fetch it "
            "again, or load it by its path if you mean another version"
        )


DIGITS = tuple("0123456789")


def _idx_layouts(folder: str, md5: dict[str, str]) -> tuple[FileLayout, ...]:
    return (FileLayout(path=folder, reader="idx", mark="train-images-idx3-ubyte", md5=tuple(md5.items())),)


def _idx_downloads(folder: str, base: str, md5: dict[str, str]) -> tuple[Download, ...]:
    return tuple(
        Download(url=f"{base}{name}.gz", path=f"{folder}/{name}.gz", md5=digest)
        for name, digest in md5.items()
    )


_TORONTO = "https://www.cs.toronto.edu/~kriz/"
_SVHN = "http://ufldl.stanford.edu/housenumbers/"
_CIFAR_LICENCE = (
    "no licence stated; cite Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009"
)

_CIFAR10 = Source(
    name="cifar10",
    title="CIFAR-10",
    shape=(3, 32, 32),
    n_classes=10,
    n_train=50_000,
    n_test=10_000,
    licence=_CIFAR_LICENCE,
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    augment=CropFlip(),
    layouts=(
        FileLayout(
            path="cifar-10-batches-py",
            reader="cifar10-python",
            mark="data_batch_1",
            md5=(
                ("data_batch_1", "c99cafc152244af753f735de768cd75f"),
                ("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
                ("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
                ("data_batch_4", "634d18415352ddfa80567beed471001a"),
                ("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
                ("test_batch", "40351d587109b95175f43aff81a1287e"),
                ("batches.meta", "5ff9c542aee3614f3951f8cda6e48888"),
            ),
        ),
        FileLayout(
            path="cifar-10-python.tar.gz",
            reader="cifar10-python",
            md5=(("", "c58f30108f718f92721af3d95e74349a"),),
        ),
        FileLayout(
            path="cifar-10-batches-bin",
            reader="cifar10-binary",
            mark="data_batch_1.bin",
            md5=(
                ("data_batch_1.bin", "5dd7e06a14cb22eb9f671a540d1b7c25"),
                ("data_batch_2.bin", "5ea93a67294ea407fff1d09f752e9692"),
                ("data_batch_3.bin", "942cd6a4bcdd0dd3c604fbe906cb4421"),
                ("data_batch_4.bin", "ae636b3ba5c66a11e91e8cb52e771fcb"),
                ("data_batch_5.bin", "53f37980c15c3d472c316c40844f3f0d"),
                ("test_batch.bin", "803d5f7f4d78ea53de84dbe85f74fb6d"),
            ),
        ),
        FileLayout(
            path="cifar-10-binary.tar.gz",
            reader="cifar10-binary",
            md5=(("", "c32a1d4ab5d03f1284b67883e8d87530"),),
        ),
    ),
    downloads=(
        Download(
            url=f"{_TORONTO}cifar-10-python.tar.gz",
            path="cifar-10-python.tar.gz",
            md5="c58f30108f718f92721af3d95e74349a",
        ),
    ),
)

_CIFAR100 = Source(
    name="cifar100",
    title="CIFAR-100",
    shape=(3, 32, 32),
    n_classes=100,
    n_train=50_000,
    n_test=10_000,
    licence=_CIFAR_LICENCE,
    augment=CropFlip(),
    layouts=(
        FileLayout(
            path="cifar-100-python",
            reader="cifar100-python",
            mark="meta",
            md5=(
                ("train", "16019d7e3df5f24257cddd939b257f8d"),
                ("test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),
                ("meta", "7973b15100ade9c7d40fb424638fde48"),
            ),
        ),
        FileLayout(
            path="cifar-100-python.tar.gz",
            reader="cifar100-python",
            md5=(("", "eb9058c3a382ffc7106e4002c42a8d85"),),
        ),
        FileLayout(
            path="cifar-100-binary",
            reader="cifar100-binary",
            mark="fine_label_names.txt",
            md5=(
                ("train.bin", "6172c7755cfe09b2fe270c85cebc1b15"),
                ("test.bin", "4499cfba6c016c1be1438163640a0898"),
            ),
        ),
        FileLayout(
            path="cifar-100-binary.tar.gz",
            reader="cifar100-binary",
            md5=(("", "03b5dce01913d631647c71ecec9e9cb8"),),
        ),
    ),
    downloads=(
        Download(
            url=f"{_TORONTO}cifar-100-python.tar.gz",
            path="cifar-100-python.tar.gz",
            md5="eb9058c3a382ffc7106e4002c42a8d85",
        ),
    ),
)

_SVHN_MD5 = {
    "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
}
_SVHN_SOURCE = Source(
    name="svhn",
    title="SVHN (cropped digits)",
    shape=(3, 32, 32),
    n_classes=10,
    n_train=73_257,
    n_test=26_032,
    licence="non-commercial use only; cite Netzer et al., Reading Digits in Natural Images, 2011",
    classes=DIGITS,
    augment=CropFlip(flip=False),  # a mirrored digit is no digit
    layouts=(FileLayout(path="svhn", reader="svhn", mark="train_32x32.mat", md5=tuple(_SVHN_MD5.items())),),
    downloads=tuple(
        Download(url=f"{_SVHN}{name}", path=f"svhn/{name}", md5=digest) for name, digest in _SVHN_MD5.items()
    ),
)

_TINY_IMAGENET = Source(
    name="tiny-imagenet",
    title="Tiny-ImageNet",
    shape=(3, 64, 64),
    n_classes=200,
    n_train=100_000,
    n_test=10_000,
    licence="ImageNet's terms: non-commercial research and education only",
    augment=CropFlip(),
    layouts=(
        FileLayout(path="tiny-imagenet-200", reader="tiny-imagenet", mark="val/val_annotations.txt"),
        FileLayout(
            path="tiny-imagenet-200.zip",
            reader="tiny-imagenet",
            md5=(("", "90528d7ca1a48142e341f4ef8d21d0de"),),
        ),
    ),
    downloads=(
        Download(
            url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
            path="tiny-imagenet-200.zip",
            md5="90528d7ca1a48142e341f4ef8d21d0de",
        ),
    ),
)

_MNIST = Source(
    name="mnist",
    title="MNIST",
    shape=(1, 28, 28),
    n_classes=10,
    n_train=60_000,
    n_test=10_000,
    licence="CC BY-SA 3.0; cite LeCun, Cortes and Burges, The MNIST Database of Handwritten Digits",
    classes=DIGITS,
    layouts=_idx_layouts(
        "mnist",
        {
            "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
            "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
            "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
            "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
        },
    ),
    downloads=_idx_downloads(
        "mnist",
        "http://yann.lecun.com/exdb/mnist/",
        {
            "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
)

_FASHION_MNIST = Source(
    name="fashion-mnist",
    title="Fashion-MNIST",
    shape=(1, 28, 28),
    n_classes=10,
    n_train=60_000,
    n_test=10_000,
    licence="MIT; cite Xiao, Rasul and Vollgraf, Fashion-MNIST, 2017",
    classes=(
        "T-shirt/top",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    ),
    layouts=_idx_layouts(
        "fashion-mnist",
        {
            "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
            "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
            "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
        },
    ),
    downloads=_idx_downloads(
        "fashion-mnist",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        {
            "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
)

_DIGITS = Source(
    name="digits",
    title="Handwritten digits, 8×8 (embedded)",
    shape=(1, 8, 8),
    n_classes=10,
    n_train=1200,
    n_test=597,
    licence="CC BY 4.0 (UCI Optical Recognition of Handwritten Digits, Alpaydin and Kaynak, 1998)",
    classes=DIGITS,
)

SOURCES: dict[str, Source] = {
    source.name: source
    for source in (_DIGITS, _CIFAR10, _CIFAR100, _SVHN_SOURCE, _TINY_IMAGENET, _MNIST, _FASHION_MNIST)
}


def find_source(name: str) -> Source | None:
    """The data set of this name, however written: ``CIFAR-10``, ``cifar_10`` and ``cifar10`` are one."""
    plain = _plain(name)
    return next((source for source in SOURCES.values() if _plain(source.name) == plain), None)


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")
