"""Progress of a campaign: a bar per cell on a terminal, a line per cell elsewhere."""

from collections.abc import Callable

import click

from freeat.cli.progress import Bar


class CampaignProgress(Bar):
    """Watches the cells of a campaign, one after another."""

    def watch(self, title: str, images: int) -> Callable[[int], None]:
        """Begin a cell; returns what counts its images."""
        if self.bar is None:
            click.echo(title, err=True)
            return lambda done: None
        bar = self.bar
        for task in bar.task_ids:
            bar.remove_task(task)
        task = bar.add_task(title, total=images, unit="images", latest="")
        return lambda done: bar.advance(task, done)
