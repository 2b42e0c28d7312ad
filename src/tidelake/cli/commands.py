"""The table of contents of the command line: first look, then write, then care. The rooms hold the commands.

Each command opens what it is told, calls one verb and prints the answer as a table or as JSON.
"""

from __future__ import annotations

import click

import tidelake
from tidelake.cli import caring, compacting, following, looking, refs, system, writing
from tidelake.cli.place import InOrder, Place, example, location, pass_place, with_place


@click.group(cls=InOrder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(tidelake.__version__, prog_name="tidelake")
@with_place
def cli() -> None:
    """Streaming lakehouse tables in the Apache Paimon format.

    Exit codes: 0 done, 1 your mistake, 2 the table's or the storage's fault, 3 a bug of ours.
    """


@click.command(epilog=example("demo --path my-lake"))
@click.option("--path", help="Where to put the demo lake; a temporary folder by default.")
@click.option("--no-spark", is_flag=True, help="Run in this process, not as jobs of a local Spark.")
@with_place
@pass_place
def demo(place: Place, path: str | None, no_spark: bool) -> None:
    """Make a small lake, write, change and read it, and show what is inside."""
    from tidelake.cli.demo import run_demo

    run_demo(path, as_json=place.as_json, spark=not no_spark)


@click.command(epilog=example("-w lake doctor"))
@with_place
@click.pass_context
def doctor(context: click.Context) -> None:
    """Check this machine and the storage of the lake."""
    from tidelake.cli.doctor import run_doctor

    place = context.ensure_object(Place)
    found, storage = location(place)
    if not run_doctor(found, storage, as_json=place.as_json):
        context.exit(2)


for _each in (
    demo,
    looking.ls,
    looking.show,
    looking.schema,
    looking.head,
    looking.explain,
    looking.why,
    following.diff,
    following.log,
    following.follow,
    *system.COMMANDS,
    writing.write,
    writing.delete,
    writing.update,
    compacting.compact,
    compacting.keep_compacted,
    compacting.rescale,
    caring.expire,
    caring.orphans,
    caring.rollback,
    refs.tag,
    refs.branch,
    refs.consumers,
    caring.check,
    doctor,
):
    cli.add_command(_each)
