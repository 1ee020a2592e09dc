"""Settings that are seldom meant: said where they hold, and only there."""

from freeat.training.checks import cautions


def test_nothing_is_said_of_usual_settings() -> None:
    assert cautions(batch_size=128, n=128, steps=[("step", None, 0.1), ("step", 0.2, 0.1)]) == ()


def test_a_batch_larger_than_the_sample_and_steps_across_the_ball_are_said() -> None:
    batch, step = cautions(batch_size=129, n=128, steps=[("training step", 8.0, 8 / 255)])
    assert batch == "batch size 129 exceeds the 128 training images: every batch is the whole set."
    assert step.startswith("the training step α = 8 is more than twice its radius ε = 0.03137")


def test_settings_of_an_attack_that_there_is_not_are_said() -> None:
    (said,) = cautions(batch_size=8, n=8, unused={"alpha": 0.1, "warmup": 0.5})
    assert said == "erm trains without an adversary and makes no use of alpha = 0.1, warmup = 0.5."
