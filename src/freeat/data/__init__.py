"""Data sets: images in memory, in a cache or decoded as they are needed; readers of published and of users' files."""

from freeat.data.augmentation import Augmentation, CropFlip, RandomResizedCrop, parse_augmentation
from freeat.data.catalogue import available
from freeat.data.dataset import DataSet, load_data
from freeat.data.images import Images
from freeat.files.published import KnownDataSet, data_folder

__all__ = [
    "Augmentation",
    "CropFlip",
    "DataSet",
    "Images",
    "KnownDataSet",
    "RandomResizedCrop",
    "available",
    "data_folder",
    "load_data",
    "parse_augmentation",
]
