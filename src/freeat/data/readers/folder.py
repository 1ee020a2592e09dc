"""Folders and archives with one folder per class, and Tiny-ImageNet's layout."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np

from freeat.data.augmentation import CropFlip
from freeat.data.readers import NAMED, Arrays, make_test_split
from freeat.data.readers.pixels import SUFFIXES, Frame, UnreadableImage, is_image
from freeat.data.readers.store import LabelledFiles, PixelStore, StoredSplit
from freeat.data.readers.trees import NestedTree, Tree, open_tree
from freeat.data.sources import Download, FileLayout, Source
from freeat.errors import InputError
from freeat.files.reading import refusing

TEST_FOLDERS = ("test", "val", "valid", "validation")
LARGEST_DEFAULT_SIZE = 64
LISTED = 100
"""The most unreadable images that a message lists."""
LARGEST_SIDE = 4096
LAYOUT = "expected CLASS/*.png, or train/CLASS/*.png with test/CLASS/*.png"


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The images of both splits by name, and the class of each."""

    train: tuple[tuple[str, str], ...]
    test: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes seen in training, in alphabetical order."""
        return tuple(sorted({label for _, label in self.train}))


def read_folder(
    tree: NestedTree,
    store: PixelStore,
    *,
    seed: int,
    test_fraction: float,
    image_size: int | None,
    skip_unreadable: bool = False,
) -> Arrays:
    """Both splits; without a test folder a stratified test split is made and noted.

    Images that cannot be read are refused, all at once, or left out and counted in a note.
    """
    images = [name for name in tree.files if is_image(name)]
    skipped = store.unreadable(tree, images) if skip_unreadable else {}
    listing = list_images(tree, seed=seed, test_fraction=test_fraction, leave_out=skipped)
    names = [name for name, _ in (*listing.train, *listing.test)]
    try:
        frame, resized = choose_frame(tree, names, image_size, store)
        arrays = read_listing(tree, replace(listing, notes=(*listing.notes, *resized)), frame, store)
    except UnreadableImage as error:
        reasons = list(store.unreadable(tree, names).values())
        if len(reasons) < 2:
            raise InputError(f"{error}, or leave it out with --skip-unreadable") from None
        raise InputError(
            f"{len(reasons)} of {len(names)} images cannot be read:\n{_some(reasons)}\n"
            "leave them out with --skip-unreadable"
        ) from None
    if not skipped:
        return arrays
    note = f"{tree.path.name}: {len(skipped)} of {len(images)} images cannot be read and were left out."
    return replace(arrays, notes=(*arrays.notes, note))


def _some(reasons: list[str]) -> str:
    """Reasons one below the other; of very many, the first."""
    more = [f"  and {len(reasons) - LISTED} more"] if len(reasons) > LISTED else []
    return "\n".join([*(f"  {reason}" for reason in reasons[:LISTED]), *more])


def read_listing(tree: Tree, listing: Listing, frame: Frame, store: PixelStore) -> Arrays:
    """Decode the images of a listing."""
    number = {label: i for i, label in enumerate(listing.classes)}
    for name, label in listing.test:
        if label not in number:
            raise InputError(
                f"{tree.path}/{name}: class {label!r} has no training images; add some or remove it"
            )
    splits = {
        split: LabelledFiles(
            names=[name for name, _ in files], y=np.array([number[label] for _, label in files], np.int64)
        )
        for split, files in (("train", listing.train), ("test", listing.test))
    }
    return stored_arrays(store.read(tree, splits, frame), splits, listing.classes, listing.notes)


def stored_arrays(
    stored: dict[str, StoredSplit],
    splits: dict[str, LabelledFiles],
    classes: tuple[str, ...],
    notes: tuple[str, ...],
) -> Arrays:
    """Both splits as a store has them."""
    return Arrays(
        x_train=stored["train"].x,
        y_train=splits["train"].y,
        x_test=stored["test"].x,
        y_test=splits["test"].y,
        classes=classes,
        notes=notes,
        digests={split: one.digest for split, one in stored.items()},
    )


def list_images(
    tree: NestedTree, *, seed: int, test_fraction: float, leave_out: Collection[str] = ()
) -> Listing:
    """Find the classes and the split of a folder."""
    images = [name for name in tree.files if is_image(name) and name not in leave_out]
    tops = {name.split("/", 1)[0] for name in images if "/" in name}
    test_folder = next((name for name in TEST_FOLDERS if name in tops), None)
    if "train" in tops and test_folder is not None:
        found = [_without_images(tree, images, f"{split}/") for split in ("train", test_folder)]
        return Listing(
            train=tuple(_labelled(tree, images, "train/")),
            test=tuple(_labelled(tree, images, f"{test_folder}/")),
            notes=tuple(chain(*found)),
        )
    prefix = "train/" if tops == {"train"} else ""
    labelled = list(_labelled(tree, images, prefix))
    if not labelled:
        raise InputError(f"{tree.path}: no images ({', '.join(SUFFIXES)}) in class folders; {LAYOUT}")
    classes, labels = np.unique([label for _, label in labelled], return_inverse=True)
    held_out, notes = make_test_split(tree.path, labels, test_fraction, seed, classes.tolist())
    return Listing(
        train=tuple(item for item, out in zip(labelled, held_out, strict=True) if not out),
        test=tuple(item for item, out in zip(labelled, held_out, strict=True) if out),
        notes=(*_without_images(tree, images, prefix), *notes),
    )


def _without_images(tree: NestedTree, images: Iterable[str], prefix: str) -> Iterator[str]:
    """Refuse an empty class folder; a note for one that holds other files only, which is no class."""

    def tops(names: Iterable[str]) -> set[str]:
        inside = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
        return {name.split("/", 1)[0] for name in inside if "/" in name}

    of_images, of_files = tops(images), tops(tree.files)
    without = tops(f"{folder}/" for folder in tree.folders) - of_images
    if empty := sorted(without - of_files):
        named = ", ".join(f"{tree.path}/{prefix}{label}" for label in empty[:NAMED])
        if len(empty) == 1:
            raise InputError(f"{named}: a class folder without images; add some or remove it")
        more = f" and {len(empty) - NAMED} more" if len(empty) > NAMED else ""
        raise InputError(f"{named}{more}: class folders without images; add some or remove them")
    for label in sorted(without):
        yield f"{tree.path.name}: the folder {prefix}{label} holds no images and was left out."


def _labelled(tree: Tree, images: Iterable[str], prefix: str) -> Iterable[tuple[str, str]]:
    for name in images:
        if name.startswith(prefix):
            label, slash, _ = name.removeprefix(prefix).partition("/")
            if not slash:
                raise InputError(f"{tree.path}/{name}: an image outside a class folder; {LAYOUT}")
            yield name, _checked_label(tree, label)


def _checked_label(tree: Tree, label: str) -> str:
    """Refuse a class folder whose name is not UTF-8: it cannot be written into a run's description."""
    if not label.isprintable():
        raise InputError(
            f"{tree.path}: the class folder {label!r} has a name that is not printable UTF-8 text; rename it"
        )
    return label


def choose_frame(
    tree: Tree, names: list[str], image_size: int | None, store: PixelStore
) -> tuple[Frame, tuple[str, ...]]:
    """The form of all images, with a note where they must be resized."""
    headers = store.headers(tree, names)
    grey = all(header.grey for header in headers)
    sizes = {(header.height, header.width) for header in headers}
    if image_size is None and len(sizes) == 1:
        ((height, width),) = sizes
        return Frame(height=height, width=width, grey=grey), ()
    # By default the smallest shorter side, so that nothing is enlarged, up to the size of small networks.
    smallest = min(min(header.height, header.width) for header in headers)
    side = image_size if image_size is not None else min(LARGEST_DEFAULT_SIZE, smallest)
    if not 1 <= side <= LARGEST_SIDE:
        raise InputError(f"image size {side}: must be between 1 and {LARGEST_SIDE} pixels")
    if sizes == {(side, side)}:
        return Frame(height=side, width=side, grey=grey), ()
    note = (
        f"{tree.path.name}: images were resized, shorter side to {side} pixels (bilinear), and cropped at their "
        f"centre to {side}×{side}."
    )
    return Frame(height=side, width=side, grey=grey), (note,)


ANNOTATIONS = "val/val_annotations.txt"
FRAME = Frame(height=64, width=64, grey=False)  # some images are grey; they are read as RGB like the rest


def read_tiny_imagenet(path: Path, store: PixelStore) -> Arrays:
    """Its test images have no published labels, so the validation images are the test split."""
    tree = open_tree(path)
    if ANNOTATIONS not in tree.files:
        raise InputError(f"{tree.path}: {ANNOTATIONS} is missing; unpack tiny-imagenet-200.zip as it is")
    train = tuple((name, name.split("/")[1]) for name in tree.files if _is_training_image(name))
    with refusing(f"{tree.path}/{ANNOTATIONS}", "list of images and classes", "unpack it again"):
        rows = [line.split("\t") for line in tree.read(ANNOTATIONS).decode().splitlines() if line.strip()]
        test = tuple((f"val/images/{row[0]}", row[1]) for row in rows)
    for name, _ in test:
        if name not in tree.files:
            raise InputError(f"{tree.path}/{name} is missing, though {ANNOTATIONS} names it; unpack it again")
    return read_listing(tree, Listing(train=train, test=test), FRAME, store)


def _is_training_image(name: str) -> bool:
    parts = name.split("/")
    return len(parts) == 4 and parts[0] == "train" and parts[2] == "images" and is_image(name)


TINY_IMAGENET = Source(
    name="tiny-imagenet",
    title="Tiny-ImageNet",
    shape=(3, 64, 64),
    n_classes=200,
    n_train=100_000,
    n_test=10_000,
    licence="ImageNet's terms: non-commercial research and education only",
    augment=CropFlip(),
    layouts=(
        FileLayout(path="tiny-imagenet-200", reader=read_tiny_imagenet, mark="val/val_annotations.txt"),
        FileLayout(
            path="tiny-imagenet-200.zip",
            reader=read_tiny_imagenet,
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
