"""``ingot device``: the measuring server of a device, and what a tuner elsewhere needs of it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ingot.cli.arguments import add_common, add_credentials, credentials
from ingot.cli.output import SUCCESS, Output
from ingot.cli.values import checked, some_of, whole
from ingot.device.settings import DEFAULT_ADDRESS, DEFAULT_CACHE_BYTES, DeviceSettings
from ingot.home import home_directory
from ingot.server_address import device_address
from shared_ir.machine.target import ARCHITECTURES
from shared_ir.service_kit.access.secret_files import read_secret
from shared_ir.service_kit.starting import prepare_process
from shared_ir.service_kit.telemetry.log import start_log
from shared_ir.service_kit.tls import tls_files
from shared_ir.signals import StopSignals
from shared_ir.storage.files import write_atomically

_LEAST_BYTES, _MOST_BYTES = 1 << 20, 1 << 48


def add_parser(commands: Any) -> None:
    device = commands.add_parser("device", help="measure for a tuner on another machine")
    actions = device.add_subparsers(metavar="ACTION", required=True)
    serve = actions.add_parser("serve", help="run and time what a trusted tuner sends, until Ctrl-C")
    _add_serving(serve)
    status = actions.add_parser("status", help="what a device is, and whether it is free")
    status.add_argument("host", type=checked(device_address), help="host[:port] of its measuring server")
    add_credentials(status)
    key = actions.add_parser("key", help="the public key of tuners here, for --trust of a device")
    key.add_argument("--out", type=Path, metavar="FILE", help="write it to this file instead of the screen")
    for parser, run in ((serve, _serve), (status, _status), (key, _key)):
        parser.set_defaults(run=run)
    for parser in (serve, status):
        parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    add_common(key)


def _add_serving(serve: argparse.ArgumentParser) -> None:
    size = whole(_LEAST_BYTES, _MOST_BYTES)
    serve.add_argument(
        "--trust", type=Path, required=True, metavar="PATH", help="public key of a tuner, or a folder of them"
    )
    serve.add_argument("--listen", default=DEFAULT_ADDRESS, metavar="HOST:PORT", help=f"default: {DEFAULT_ADDRESS}")
    serve.add_argument("--token-file", type=Path, metavar="FILE", help="holds the token that calls must carry")
    serve.add_argument("--tls-certificate", default="", metavar="FILE", help="PEM file, turns TLS on")
    serve.add_argument("--tls-key", default="", metavar="FILE", help="its key")
    serve.add_argument(
        "--tls-client-ca", default="", metavar="FILE", help="clients must show a certificate of this authority"
    )
    serve.add_argument("--plain", action="store_true", help="let other machines reach it without TLS")
    serve.add_argument(
        "--emulate",
        type=some_of(*ARCHITECTURES),
        action="extend",
        default=[],
        metavar="ARCH",
        help=f"run code for {', '.join(ARCHITECTURES)} under qemu, whose times say little of real machines",
    )
    serve.add_argument("--core", type=whole(0), metavar="N", help="the core that trials run on (default: any)")
    serve.add_argument(
        "--cache-bytes", type=size, default=DEFAULT_CACHE_BYTES, metavar="N", help="of contents that it keeps in memory"
    )
    serve.add_argument(
        "--memory-bytes", type=size, default=0, metavar="N", help="of the trials of one order (default: half)"
    )
    serve.add_argument("--no-seccomp", action="store_true", help="do without what keeps trials from system calls")


def _serve(arguments: argparse.Namespace, output: Output) -> int:
    # NOTE: imported here because the server needs all of gRPC, which other commands should not wait for.
    from ingot.device.server import start_device

    token = read_secret(arguments.token_file, "--token-file") if arguments.token_file is not None else ""
    settings = DeviceSettings(
        trust=arguments.trust,
        listen=arguments.listen,
        token=token,
        tls=tls_files(arguments.tls_certificate, arguments.tls_key, arguments.tls_client_ca),
        is_plain=arguments.plain,
        emulates=tuple(dict.fromkeys(arguments.emulate)),
        core=arguments.core,
        cache_bytes=arguments.cache_bytes,
        memory_bytes=arguments.memory_bytes,
        locks=not arguments.no_seccomp,
    )
    prepare_process()
    start_log("device")
    running = start_device(settings)
    signals = StopSignals()
    output.line({"address": running.address})
    output.say(f"measuring for trusted tuners on {running.address}")
    output.note("Ctrl-C stops it.")
    signals.wait()
    running.stop()
    return SUCCESS


def _status(arguments: argparse.Namespace, output: Output) -> int:
    from ingot.devices import DeviceConnection

    connection = DeviceConnection(arguments.host, **credentials(arguments))
    try:
        info = connection.status()
    finally:
        connection.close()
    output.document(info)
    state = f"leased, for {info.lease_seconds:.0f} s if nobody renews it" if info.is_leased else "free"
    rows = [
        ("state", state),
        ("runs", f"{info.runs}, {info.failed_trials} trials crashed or were late"),
        ("machine", ", ".join(word for word in (info.architecture, info.processor, f"{info.cores} cores") if word)),
        ("emulates", ", ".join(info.emulates) or "nothing"),
        ("trusts", ", ".join(info.trusted_keys) or "nobody"),
        ("contents", f"up to {info.cache_bytes >> 20} MiB"),
        ("trials", f"up to {info.memory_bytes >> 20} MiB"),
        ("release", info.version),
    ]
    output.table((connection.name, ""), rows)
    return SUCCESS


def _key(arguments: argparse.Namespace, output: Output) -> int:
    # NOTE: imported here because signatures need `cryptography`, which other commands should not wait for.
    from ingot.devices import tuner_key
    from shared_ir.artifact.signature import fingerprint, public_pem

    key = tuner_key(home_directory(arguments.home)).public
    pem = public_pem(key)
    if arguments.out is not None:
        write_atomically(arguments.out, pem)
    output.document({"fingerprint": fingerprint(key), "public_key": pem.decode()})
    output.note(
        f"Who has the private half can run code on every device that trusts it. Fingerprint: {fingerprint(key)}"
    )
    output.say(str(arguments.out) if arguments.out is not None else pem.decode().strip())
    return SUCCESS
