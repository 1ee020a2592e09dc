"""Which images of a data set a spec trains on."""

from freeat.data import DataSet, Images
from freeat.errors import InputError
from freeat.runs.spec import TrainSpec


def training_images(data: DataSet, spec: TrainSpec) -> tuple[Images, Images | None]:
    """The images to train on, and those held out for validation."""
    train: Images = data.train
    validation: Images | None = None
    if spec.validation:
        held_out = int(spec.validation) if spec.validation >= 1 else spec.validation
        train, validation = train.split(held_out, seed=spec.seed)
    if spec.train_size is not None:
        if spec.train_size > len(train):
            raise InputError(
                f"--train-size {spec.train_size} exceeds the {len(train)} training images of {data.name}"
            )
        train = train.subset(spec.train_size)
    return train, validation
