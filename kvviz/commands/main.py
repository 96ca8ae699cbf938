"""The `kvviz` command. It parses, calls, and turns every `KvvizError` into one sentence and exit code 2."""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
import zipfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from kvviz.commands.terminal import LoadingLine, print_error, stderr
from kvviz.errors import KvvizError, RecordingError
from kvviz.messages import shown
from kvviz.version import __version__

if TYPE_CHECKING:
    from kvviz.web.app import ServerConfig

#: Options of the command itself; anything else that is no command's name belongs to `serve`.
_OWN_OPTIONS = ("--help", "-h", "--version", "--install-completion", "--show-completion")

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130
MAX_PORT = 65_535
#: On so many cores or fewer a browser beside the model leaves none idle.
FEW_CORES = 4

app = typer.Typer(
    help="Watch the KV cache of a real language model, step by step.",
    epilog="Without a command: serve, with the options of `kvviz serve`.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def whole_number(text: str) -> int:
    """What was typed as a whole number."""
    try:
        return int(text)
    except ValueError as error:
        raise typer.BadParameter(f"a whole number is expected, but {shown(text)} came.") from error


def number(text: str) -> float:
    """What was typed as a number."""
    try:
        return float(text)
    except ValueError as error:
        raise typer.BadParameter(f"a number is expected, but {shown(text)} came.") from error


def port_number(text: str) -> int:
    """What was typed as a port."""
    port = whole_number(text)
    if not 0 <= port <= MAX_PORT:
        raise typer.BadParameter(f"a port from 0 to {MAX_PORT} is expected, but {port} came.")
    return port


Host = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for the network.")]
Port = Annotated[int | None, typer.Option(parser=port_number, metavar="N", help="Port; default: a free one near 8000.")]
RootPath = Annotated[str, typer.Option(help="Path under which a proxy shows the page, such as /kvviz.")]
AllowHost = Annotated[
    list[str] | None, typer.Option(help="Name under which others reach this server; may be given several times.")
]
NoOpen = Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")]
Model = Annotated[
    str | None, typer.Option(help="Hub id, directory with safetensors, or .gguf file; default: SmolLM2-135M-Instruct.")
]
Dtype = Annotated[str, typer.Option(help="float32, bfloat16, float16 or float64.")]
RecordingFile = Annotated[Path, typer.Argument(metavar="FILE", help="A .kvviz recording.", show_default=False)]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kvviz {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options of the command itself."""


@app.command()
def serve(
    host: Host = "127.0.0.1",
    port: Port = None,
    root_path: RootPath = "",
    allow_host: AllowHost = None,
    model: Model = None,
    dtype: Dtype = "float32",
    no_open: NoOpen = False,
) -> None:
    """Show the page: a recording at once, the live model as soon as it is loaded."""
    from kvviz.model.loading import check_dtype
    from kvviz.web.app import ServerConfig

    _run_server(
        ServerConfig(
            host=host,
            port=port,
            root_path=root_path,
            allow_hosts=tuple(allow_host or ()),
            model=model,
            dtype=check_dtype(dtype),
            open_browser=not no_open and has_browser(),
        )
    )


@app.command()
def replay(
    file: RecordingFile,
    host: Host = "127.0.0.1",
    port: Port = None,
    root_path: RootPath = "",
    allow_host: AllowHost = None,
    no_open: NoOpen = False,
) -> None:
    """Show a recording on the page, without loading a model."""
    from kvviz.web.app import ServerConfig

    _check_recording(file)
    _run_server(
        ServerConfig(
            host=host,
            port=port,
            root_path=root_path,
            allow_hosts=tuple(allow_host or ()),
            replay_path=file,
            open_browser=not no_open and has_browser(),
        )
    )


@app.command()
def record(
    prompt: Annotated[str, typer.Argument(help="What to ask the model.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = Path("run.kvviz"),
    max_new_tokens: Annotated[
        int, typer.Option(parser=whole_number, metavar="N", help="Most tokens to generate.")
    ] = 64,
    temperature: Annotated[
        float, typer.Option(parser=number, metavar="X", help="0 always takes the most probable token.")
    ] = 0.0,
    top_k: Annotated[
        int, typer.Option(parser=whole_number, metavar="N", help="Sample among so many tokens; 0: all.")
    ] = 0,
    top_p: Annotated[
        float, typer.Option(parser=number, metavar="X", help="Sample among tokens of this joint probability.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(parser=whole_number, metavar="N", help="Seed of the sampling.")] = 0,
    no_template: Annotated[bool, typer.Option("--no-template", help="Give the prompt as it is, without chat.")] = False,
    model: Model = None,
    dtype: Dtype = "float32",
    block_size: Annotated[int, typer.Option(parser=whole_number, metavar="N", help="Tokens per block.")] = 16,
    num_blocks: Annotated[int, typer.Option(parser=whole_number, metavar="N", help="Blocks in the pool.")] = 128,
    prefill_chunk: Annotated[int, typer.Option(parser=whole_number, metavar="N", help="Prompt tokens per step.")] = 64,
) -> None:
    """Run a prompt and write everything that happened in the cache to a file."""
    from kvviz.api import record_loaded
    from kvviz.config import EngineConfig
    from kvviz.model.loading import load

    # Fail before the model is loaded.
    EngineConfig(block_size=block_size, num_blocks=num_blocks, prefill_chunk=prefill_chunk, seed=seed)
    _check_output(output)
    with LoadingLine() as line:
        loaded = load(model, dtype, line.update)
        line.update("loading", None, f"Checking {loaded.name} against its own plain forward")
        num_prompt = 0

        def on_prompt(num_tokens: int) -> None:
            nonlocal num_prompt
            num_prompt = num_tokens
            line.count("prompt tokens computed", 0, num_prompt)

        def on_step(num_computed: int, num_sampled: int) -> None:
            if num_computed < num_prompt:
                line.count("prompt tokens computed", num_computed, num_prompt)
            else:
                line.count("tokens made", num_sampled, max_new_tokens)

        recording = record_loaded(
            loaded,
            prompt,
            output,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            template=False if no_template else None,
            block_size=block_size,
            num_blocks=num_blocks,
            prefill_chunk=prefill_chunk,
            on_prompt=on_prompt,
            on_step=on_step,
        )
    with closing(recording):
        steps, size = recording.num_steps, output.stat().st_size
    typer.echo(f"{output}: {steps} steps, {len(recording.lines)} events, {size / 1e6:.1f} MB")
    typer.echo(f"Watch it: kvviz replay {output}")


@app.command()
def compare(
    prompt: Annotated[str, typer.Argument(help="What to ask the model.")] = "",
    lane: Annotated[
        list[str] | None,
        typer.Option(
            help="A way to keep the cache, such as int4, window=64, mqa, no-cache; up to four.", metavar="LANE"
        ),
    ] = None,
    max_new_tokens: Annotated[
        int, typer.Option(parser=whole_number, metavar="N", help="Most tokens to generate.")
    ] = 64,
    before: Annotated[
        list[str] | None, typer.Option(help="A prompt that is run first; may be given several times.", metavar="PROMPT")
    ] = None,
    needle: Annotated[bool, typer.Option("--needle", help="Hide a word in a prompt and ask for it, instead.")] = False,
    no_template: Annotated[bool, typer.Option("--no-template", help="Give the prompt as it is, without chat.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write a recording with all lanes.", metavar="FILE")
    ] = None,
    list_lanes: Annotated[bool, typer.Option("--list", help="Say which lanes there are, and stop.")] = False,
    model: Model = None,
    dtype: Dtype = "float32",
    block_size: Annotated[int, typer.Option(parser=whole_number, metavar="N", help="Tokens per block.")] = 16,
    num_blocks: Annotated[int, typer.Option(parser=whole_number, metavar="N", help="Blocks in the pool.")] = 128,
    seed: Annotated[int, typer.Option(parser=whole_number, metavar="N", help="Which word a needle is.")] = 0,
) -> None:
    """Run one prompt with several caches side by side, and measure what each costs and what harm it does."""
    from kvviz.commands import compare as comparing

    if list_lanes:
        comparing.print_lanes(as_json=as_json)
        return
    if output is not None:
        _check_output(output)
    comparing.main(
        prompt,
        tuple(lane or ()),
        max_new_tokens=max_new_tokens,
        before=tuple(before or ()),
        needle=needle,
        template=False if no_template else None,
        as_json=as_json,
        output=output,
        model=model,
        dtype=dtype,
        block_size=block_size,
        num_blocks=num_blocks,
        seed=seed,
    )


@app.command()
def events(file: RecordingFile) -> None:
    """Print the events of a recording, one JSON record a line: sequence number, microseconds, event."""
    from kvviz.log.recording import Recording

    with closing(Recording.open(file)) as recording:
        if sys.stdout is None:
            raise RecordingError("The standard output is closed; send the events to a file or a pipe.", code="no_file")
        out = sys.stdout.buffer
        try:
            for line in recording.lines:
                out.write(line + b"\n")
            out.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left goes nowhere, quietly
            if not isinstance(error, BrokenPipeError):  # a reader such as `head` has seen enough
                raise RecordingError(
                    f"The events cannot be written ({error.strerror}); send them where there is room.", code="no_file"
                ) from error


@app.command()
def blocks(
    workload: Annotated[Path, typer.Argument(help="A JSON file, see docs/workload.md.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print the answers as one JSON list.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write a recording for the Pages lens.", metavar="FILE")
    ] = None,
) -> None:
    """Replay starts, appends and frees of token sequences on the block pool, without a model."""
    from kvviz.engine.workload import print_answers, read_workload, replay_workload

    if output is not None:
        _check_output(output)
    print_answers(replay_workload(read_workload(workload), output, title=workload.name), as_json=as_json)
    if output is not None and not as_json:
        typer.echo(f"Watch it: kvviz replay {output}")


@app.command()
def calc(
    model: Annotated[
        str | None, typer.Argument(help="A model of --list; default: the model that kvviz runs.", show_default=False)
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE|MODEL", help="A config.json, - for standard input, or a model's id.")
    ] = None,
    context: Annotated[int, typer.Option(parser=whole_number, metavar="N", help="Tokens of each sequence.")] = 8_192,
    batch: Annotated[int, typer.Option(parser=whole_number, metavar="N", help="Sequences at once.")] = 1,
    dtype: Annotated[str, typer.Option(help="Of the cache: fp32, bf16, fp16, fp8, int8, int4, q8_0, q4_0.")] = "bf16",
    group_size: Annotated[
        int, typer.Option(parser=whole_number, metavar="N", help="Numbers that share a scale in int8 and int4.")
    ] = 32,
    block_size: Annotated[int, typer.Option(parser=whole_number, metavar="N", help="Tokens per block.")] = 16,
    prefix: Annotated[
        int, typer.Option(parser=whole_number, metavar="N", help="First tokens that all sequences share.")
    ] = 0,
    gpu: Annotated[str | None, typer.Option(metavar="CARD", help="A card of --list: also say what fits on it.")] = None,
    gpus: Annotated[int, typer.Option(parser=whole_number, metavar="N", help="How many of them.")] = 1,
    memory: Annotated[
        float | None, typer.Option(parser=number, metavar="GIB", help="Memory of a card, in place of its own.")
    ] = None,
    bandwidth: Annotated[
        float | None, typer.Option(parser=number, metavar="TB/S", help="Its bandwidth, in place of its own.")
    ] = None,
    price: Annotated[
        float | None, typer.Option(parser=number, metavar="USD", help="Its price an hour, in place of the list's.")
    ] = None,
    utilisation: Annotated[float, typer.Option(parser=number, metavar="X", help="Share of memory to use.")] = 0.9,
    weights_dtype: Annotated[str, typer.Option(help="Of the weights, as --dtype.")] = "bf16",
    overhead: Annotated[
        float, typer.Option(parser=number, metavar="GIB", help="Memory of each card that is used otherwise.")
    ] = 0.0,
    host: Annotated[
        float, typer.Option(parser=number, metavar="GIB", help="Host memory for caches that wait; 0: 256.")
    ] = 0.0,
    parameters: Annotated[
        int | None, typer.Option(parser=whole_number, metavar="N", help="Parameters, where they are not known.")
    ] = None,
    layers: Annotated[
        int | None, typer.Option(parser=whole_number, metavar="N", help="Typed geometry: layers that cache.")
    ] = None,
    kv_heads: Annotated[int | None, typer.Option(parser=whole_number, metavar="N", help="… K/V heads.")] = None,
    head_dim: Annotated[int | None, typer.Option(parser=whole_number, metavar="N", help="… numbers of a head.")] = None,
    query_heads: Annotated[int | None, typer.Option(parser=whole_number, metavar="N", help="… query heads.")] = None,
    window: Annotated[int | None, typer.Option(parser=whole_number, metavar="N", help="… window in tokens.")] = None,
    windowed_layers: Annotated[
        int | None, typer.Option(parser=whole_number, metavar="N", help="… layers that have it; default: all.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as one JSON object.")] = False,
    list_models: Annotated[
        bool, typer.Option("--list", help="Say which models and cards there are, and stop.")
    ] = False,
) -> None:
    """Say what the KV cache of a model takes, and what fits on a card."""
    from kvviz.calculator import Settings
    from kvviz.commands import calc as calculating
    from kvviz.commands import config_files

    if list_models:
        calculating.print_list(as_json=as_json)
        return
    settings = Settings(
        context=context,
        batch=batch,
        dtype=dtype,
        group_size=group_size,
        block_size=block_size,
        prefix=prefix,
        gpu=gpu,
        gpus=gpus,
        memory_bytes=None if memory is None else calculating.gib("memory", memory),
        bandwidth=None if bandwidth is None else bandwidth * 1e12,
        price_per_hour=price,
        utilisation=utilisation,
        weights_dtype=weights_dtype,
        overhead_bytes=calculating.gib("overhead", overhead),
        host_bytes=calculating.gib("host", host),
    )
    numbers = {
        "layers": layers,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "query_heads": query_heads,
        "window": window,
        "windowed_layers": windowed_layers,
    }
    calculating.main(config_files.subject_of(model, config, numbers, parameters), settings, as_json=as_json)


@app.command()
def simulate(
    trace: Annotated[Path, typer.Argument(help="A .jsonl or .jsonl.gz file, see docs/traces.md.", show_default=False)],
    blocks_: Annotated[
        int | None,
        typer.Option(
            "--blocks", parser=whole_number, metavar="N", help="Blocks of the cache; 0: no limit, the default."
        ),
    ] = None,
    sweep: Annotated[
        str | None, typer.Option(metavar="N,N,…", help="Several caches, one for each number of blocks.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="As many blocks of --model as fit, such as 40GiB.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="A model of `kvviz calc --list`, for --memory.")] = None,
    dtype: Annotated[str, typer.Option(help="How that model's cache is stored.")] = "bf16",
    policy: Annotated[str, typer.Option(help="lru, fifo, lfu, random or optimum: what leaves first.")] = "lru",
    seed: Annotated[int, typer.Option(parser=whole_number, metavar="N", help="Seed of the random policy.")] = 0,
    block_size: Annotated[
        int, typer.Option(parser=whole_number, metavar="N", help="Tokens per block where the trace does not say.")
    ] = 512,
    prefill: Annotated[
        float, typer.Option(parser=number, metavar="X", help="Tokens per second of a prefill, for the time saved.")
    ] = 10_000.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
) -> None:
    """Replay a trace of requests through a prefix cache, and say what it would have hit."""
    from kvviz.commands import simulate as simulating

    asked = simulating.Asked(blocks_, sweep, memory, model, dtype, policy, seed, block_size, prefill)
    simulating.main(trace, asked, as_json=as_json)


@app.command()
def bench(
    what: Annotated[str | None, typer.Argument(help="`simulate`: traces through caches, instead.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as one JSON object.")] = False,
    model: Annotated[str | None, typer.Option(help="A hub id, a directory or a .gguf file.")] = None,
    memory: Annotated[bool, typer.Option(help="Also fill all budgets and run 5,000 more steps (minutes).")] = False,
    page: Annotated[bool, typer.Option(help="Also watch the page in Chromium while the model decodes.")] = False,
) -> None:
    """Measure the speed of decoding, against the same model without kvviz."""
    if what == "simulate":
        from kvviz.bench import simulate as bench_simulate

        bench_simulate.main(as_json=as_json)
        return
    if what is not None:
        raise typer.BadParameter(f"nothing or simulate is expected, but {shown(what)} came.")
    from kvviz.bench import decode as benchmark

    benchmark.main(as_json=as_json, model=model, memory=memory, page=page)


@app.command()
def doctor() -> None:
    """Say what is installed and cached, and what to do about each problem."""
    from kvviz.commands import doctor as examination

    raise typer.Exit(examination.main())


def has_browser() -> bool:
    """Whether a window can be opened on this machine's screen."""
    import webbrowser

    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def with_default_command(arguments: Sequence[str]) -> list[str]:
    """The arguments with `serve` in front when they begin with none of the commands."""
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in _OWN_OPTIONS):
        return ["serve", *arguments]
    return list(arguments)


def main() -> None:
    """Entry point of the `kvviz` command."""
    gc.set_threshold(50_000, 20, 50)  # imports make hundreds of thousands of objects that stay
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without a sign shows another, not a traceback
    try:
        app(args=with_default_command(sys.argv[1:]), prog_name="kvviz")
    except KvvizError as error:
        print_error(error.message)
        sys.exit(EXIT_USER_ERROR)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        print_error("There is no space left where this writes to; free some, or write to another place.")
        os._exit(EXIT_USER_ERROR)  # what is still in the buffer cannot be written either


def _check_output(path: Path) -> None:
    writable = False
    try:
        writable = not path.is_dir() and os.access(path.absolute().parent, os.W_OK)
        if writable:
            os.lstat(path.with_name(f".{path.name}.partial"))  # the name under which it is written first
    except FileNotFoundError:
        pass
    except (OSError, ValueError):  # such as a name that is too long
        writable = False
    if not writable:
        raise RecordingError(
            f"{path} cannot be written; name a file in a folder that exists and is writable.", code="no_file"
        )


def _check_recording(path: Path) -> None:
    """Raise `RecordingError` when `path` is visibly no recording, without reading all of it."""
    try:
        with zipfile.ZipFile(path) as archive:
            archive.getinfo("header.json")
            archive.getinfo("events.ndjson")
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        from kvviz.log.recording import Recording

        Recording.open(path).close()


def _run_server(config: ServerConfig) -> None:
    if (os.cpu_count() or 1) <= FEW_CORES:
        # A thread that waits for another must not burn the core that the browser needs: with both busy on two cores a
        # step took 3-4 times as long without this. Alone it costs a third, so `record` and `bench` go without.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from kvviz.sources.loader import LoadStatus
    from kvviz.web.app import run

    console = stderr()
    line = LoadingLine(console)

    def on_url(url: str) -> None:
        typer.echo(f"kvviz is at {url}  (Ctrl-C ends it)")

    def on_model_status(status: LoadStatus) -> None:
        if status.state in ("ready", "failed"):
            line.close()
            style = "red" if status.state == "failed" else ""
            console.print(escape(status.message), style=style, soft_wrap=True)
        else:
            line.update(status.state, status.progress, status.message)

    with line:
        run(config, on_url=on_url, on_model_status=on_model_status)


if __name__ == "__main__":
    main()
