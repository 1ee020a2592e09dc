"""Tiny-ImageNet-200, its folder or its zip."""

from freeat.data.readers.arrays import Arrays
from freeat.data.readers.decoding import Frame, is_image
from freeat.data.readers.folder import Listing, read_listing
from freeat.data.readers.pixels import PixelStore
from freeat.data.readers.trees import Tree
from freeat.errors import InputError

ANNOTATIONS = "val/val_annotations.txt"
FRAME = Frame(height=64, width=64, grey=False)  # some images are grey; they are read as RGB like the rest


def read_tiny_imagenet(tree: Tree, store: PixelStore) -> Arrays:
    """Its test images have no published labels, so the validation images are the test split."""
    if ANNOTATIONS not in tree.files:
        raise InputError(f"{tree.path}: {ANNOTATIONS} is missing; unpack tiny-imagenet-200.zip as it is")
    train = tuple((name, name.split("/")[1]) for name in tree.files if _is_training_image(name))
    rows = (line.split("\t") for line in tree.read(ANNOTATIONS).decode().splitlines() if line.strip())
    test = tuple((f"val/images/{row[0]}", row[1]) for row in rows)
    for name, _ in test:
        if name not in tree.files:
            raise InputError(f"{tree.path}/{name} is missing, though {ANNOTATIONS} names it; unpack it again")
    return read_listing(tree, Listing(train=train, test=test), FRAME, store)


def _is_training_image(name: str) -> bool:
    parts = name.split("/")
    return len(parts) == 4 and parts[0] == "train" and parts[2] == "images" and is_image(name)
