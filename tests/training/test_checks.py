"""Unusual settings are warned of, and only those."""

from freeat.training.checks import setting_warnings


def test_usual_settings_give_no_warning() -> None:
    assert setting_warnings(batch_size=128, n=128, steps=[("step", None, 0.1), ("step", 0.2, 0.1)]) == ()


def test_a_batch_larger_than_the_sample_and_steps_across_the_ball_give_warnings() -> None:
    batch, step = setting_warnings(batch_size=129, n=128, steps=[("training step", 8.0, 8 / 255)])
    assert batch == "batch size 129 exceeds the 128 training images: every batch is the whole set."
    assert step.startswith("the training step α = 8 is more than twice its radius ε = 8/255")
