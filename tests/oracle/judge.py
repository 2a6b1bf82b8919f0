"""What compiled code makes of a case, judged by onnx.reference and ONNX Runtime."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, shape_inference
from onnx.reference import ReferenceEvaluator

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.fallback import OptimisationFaultWarning
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.pipeline import CompileOptions, compile_model
from compiler_service.compiler.program.kernels import ScheduleFaultWarning
from runtime_service.loading.loader import ExecutorKind, load_model
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.errors import ErrorCode, IngotError
from tests.oracle.case import Array, Case
from tests.oracle.limits import limit_of, looser, unreliable
from tests.oracle.vote import TOLERANCES, agree, difference, each_agrees

FAULTS = (ErrorCode.COMPILER_FAULT, ErrorCode.INTERNAL)
Answer = list[Array] | None
REFERENCE, RUNTIME = "onnx.reference", "ONNX Runtime"


@dataclass(frozen=True)
class Finding:
    """Something that should not be. ``kind``: ``wrong`` (both oracles say otherwise), ``disputed`` (three answers), ``alone`` (the
    only oracle says otherwise), ``fault``, ``accepted`` (both oracles refuse) or ``refused`` (outside the stated limits)."""

    kind: str
    where: str
    detail: str

    @property
    def signature(self) -> str:
        """What findings of one cause have in common."""
        return f"{self.kind}: {plain(self.detail) if self.kind in ('fault', 'refused') else self.kind}"

    def __str__(self) -> str:
        return f"{self.kind} at {self.where}: {self.detail}"


@dataclass
class Verdict:
    """``answered``: runs with an answer by any oracle. ``refusals``: causes of refusals within the stated limits."""

    findings: list[Finding] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    answered: int = 0


def plain(message: str) -> str:
    """A message without what differs from model to model."""
    without = re.sub(r"'[^']*'|\"[^\"]*\"|\[[^\]]*\]|\([^)]*\)|-?\b\d+\b", "…", message)
    return re.sub(r"\b[a-z]\d+(_\d+)?\b|\b[a-z]_?…|\bk\d+_\w+", "…", without)[:140]


def judge(case: Case) -> Verdict:
    verdict = Verdict()
    opinions = [_opinions(case, run) for run in range(len(case.runs))]
    verdict.answered = sum(any(a is not None for a in o.values()) for o in opinions)
    for level in case.levels:
        _judge_level(case, level, opinions, verdict)
    return verdict


def _judge_level(case: Case, level: int, opinions: Sequence[dict[str, Answer]], verdict: Verdict) -> None:
    where = f"level {level}"
    try:
        artifact = _compiled(case, level)
    except IngotError as error:
        _refusal(case, error, where, set().union(*map(_answering, opinions)), verdict)
        return
    except Exception as error:  # whatever leaves the compiler beside its own errors is what is looked for
        verdict.findings.append(Finding("fault", where, f"{type(error).__name__}: {error}"))
        return
    for kind, threads in case.calls:
        _judge_calls(case, artifact, (kind, threads, f"{where}, {kind}, {threads} threads"), opinions, verdict)


def _judge_calls(
    case: Case,
    artifact: CompiledArtifact,
    call: tuple[ExecutorKind, int, str],
    opinions: Sequence[dict[str, Answer]],
    verdict: Verdict,
) -> None:
    kind, threads, where = call
    with load_model(artifact, threads=threads, executor=kind) as model:
        for run, opinion in enumerate(opinions):
            spot = f"{where}, run {run}"
            try:
                results = model.run(case.laid_out(run))
                own = [np.asarray(results[spec.name]) for spec in model.outputs]
            except IngotError as error:
                _refusal(case, error, spot, _answering(opinion), verdict)
            except Exception as error:
                verdict.findings.append(Finding("fault", spot, f"{type(error).__name__}: {error}"))
            else:
                _compare(case, own, opinion, spot, verdict)


def _compare(case: Case, own: list[Array], opinion: dict[str, Answer], where: str, verdict: Verdict) -> None:
    loosest = max(_loosest(case), looser(case.model))
    answers = {name: a for name, a in opinion.items() if a is not None}
    if not answers:
        if case.checked and list(opinion.values()) == [None, None] and all(a.size for a in own):
            verdict.findings.append(Finding("accepted", where, "both oracles refuse this run"))
        return
    if any(agree(own, other, case.pointwise, loosest) for other in answers.values()):
        return
    both = list(answers.values())
    kind = "alone" if len(both) < 2 else "wrong" if agree(both[0], both[1], case.pointwise, loosest) else "disputed"
    if kind == "disputed" and each_agrees(own, both, case.pointwise, loosest):
        return
    detail = "; ".join(f"{n}: {difference(own, a, case.pointwise, loosest)}" for n, a in answers.items())
    verdict.findings.append(Finding(kind, where, detail))


def _answering(opinion: Mapping[str, Answer]) -> set[str]:
    """The oracles that do not refuse a run."""
    return {name for name, answer in opinion.items() if answer is not None}


def _refusal(case: Case, error: IngotError, where: str, answering: set[str], verdict: Verdict) -> None:
    """``answering`` are the oracles that do not refuse."""
    if error.code in FAULTS:
        verdict.findings.append(Finding("fault", where, f"{error.code}: {error}"))
    elif answering:
        limit = limit_of(error, case.model, {REFERENCE, RUNTIME} - answering)
        if limit:
            verdict.refusals.append(limit)
        else:
            verdict.findings.append(Finding("refused", where, f"{error.code}: {error}"))


def _compiled(case: Case, level: int) -> CompiledArtifact:
    source = ModelSource.of(case.model.SerializeToString())
    with warnings.catch_warnings():
        warnings.simplefilter("error", ScheduleFaultWarning)
        warnings.simplefilter("error", OptimisationFaultWarning)
        return compile_model(source, host_target(), CompileOptions(opt_level=level), workers=0)


def _opinions(case: Case, run: int) -> dict[str, Answer]:
    """What each oracle answers; None where it refuses; nothing of one that does not know the model's operators."""
    feeds = {n: np.ascontiguousarray(a).reshape(a.shape) for n, a in case.runs[run].items()}
    opinions: dict[str, Answer] = {}
    if not unreliable(case.model, REFERENCE, feeds.values()):
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                opinions[REFERENCE] = _arrays(ReferenceEvaluator(case.model).run(None, feeds))
        except NotImplementedError:
            pass
        except Exception:  # what its numpy says of a model is its own affair
            opinions[REFERENCE] = None
    if not unreliable(case.model, RUNTIME, feeds.values()):
        session = _session(case)
        if session is not None:
            try:
                opinions[RUNTIME] = _arrays(session.run(None, feeds))
            except Exception:
                opinions[RUNTIME] = None
    told = _declared(case.model)
    return {n: a for n, a in opinions.items() if a is None or not any(map(_contradicts, a, told))}


def _declared(model: onnx.ModelProto) -> list[onnx.TypeProto.Tensor]:
    """The outputs as onnx's own inference types them."""
    try:
        return [o.type.tensor_type for o in shape_inference.infer_shapes(model).graph.output]
    except Exception:  # a model that it cannot type
        return []


def _contradicts(array: Array, told: onnx.TypeProto.Tensor) -> bool:
    """Whether an oracle's answer has another type or shape than the standard gives it: then the oracle is at fault."""
    if told.elem_type and helper.np_dtype_to_tensor_dtype(array.dtype) != told.elem_type:
        return True
    dims = told.shape.dim if told.HasField("shape") else None
    if dims is None:
        return False
    return len(dims) != array.ndim or any(
        d.HasField("dim_value") and d.dim_value != e for d, e in zip(dims, array.shape, strict=True)
    )


_options = onnxruntime.SessionOptions()
_options.intra_op_num_threads = _options.inter_op_num_threads = 1
_options.log_severity_level = 4
_options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC


def _session(case: Case) -> onnxruntime.InferenceSession | None:
    try:
        return onnxruntime.InferenceSession(
            case.model.SerializeToString(), _options, providers=["CPUExecutionProvider"]
        )
    except Exception:  # an operator or a type that it lacks, or a model that it calls invalid
        return None


def _arrays(results: Sequence[Array]) -> list[Array] | None:
    """None where an answer is no tensor."""
    if any(r is None or isinstance(r, list | dict) for r in results):
        return None
    return [np.asarray(r) for r in results]


def _loosest(case: Case) -> float:
    """The tolerance of the narrowest type that is computed with inside."""
    casts = [a.i for n in case.model.graph.node if n.op_type == "Cast" for a in n.attribute if a.name == "to"]
    inside = [i.type.tensor_type.elem_type for i in case.model.graph.input]
    narrow = {TensorProto.BFLOAT16: "bfloat16", TensorProto.FLOAT16: "float16", TensorProto.FLOAT: "float32"}
    return max((TOLERANCES[narrow[t]] for t in (*casts, *inside) if t in narrow), default=0.0)
