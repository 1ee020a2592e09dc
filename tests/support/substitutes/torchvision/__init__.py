"""A substitute for torchvision with the interface of its classifiers, for machines where it does not import."""

from torchvision import models as models

__version__ = "0.24.0"
