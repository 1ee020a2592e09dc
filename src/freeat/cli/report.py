"""``freeat report``: one HTML page about the runs and results in some folders."""

from pathlib import Path

import click

from freeat.cli.options import json_option, print_result


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN_OR_FOLDER…")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    show_default=True,
    help="file of the page",
)
@click.option("--title", help="heading of the page  [default: the folders' names]")
@json_option
def report(folders: tuple[Path, ...], out: Path, title: str | None, as_json: bool) -> None:
    """Write one self-contained HTML page about the runs, comparisons, evaluations and studies in the folders.

    The page opens from disk and fetches nothing. It shows the headline, learning curves, robustness, stability, a bound
    explorer, and the provenance of every number. Nothing is trained or attacked for it.

    \b
    freeat report runs/free --out free.html
    freeat report demo --title "Six algorithms on digits"
    """
    from freeat.reports.html.page import write_report

    written = write_report(out, folders, title=title)
    for reason in written.left_out:
        click.echo(f"left out: {reason}", err=True)
    document = {
        "page": str(out),
        "bytes": written.size,
        "sections": written.sections,
        "left_out": written.left_out,
    }
    line = f"report: {out} ({written.size / 1e6:.1f} MB): open it in a browser"
    print_result(document, [line], as_json=as_json)
