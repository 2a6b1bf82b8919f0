"""A code generator of one's own: kernels as C99.

A kernel comes as a loop function: loops, conditions, variables, buffers, loads and stores, as ``print(function)`` would show them.
Here each becomes the line of C that means the same, and the C compiler that is installed beside Ingot makes an object of it. The
entry that launches the kernels, the linking and the runtime are left to Ingot's own code generator. What this one cannot write is an
error that names the kernel, and no model is compiled in half.

    python examples/c99_backend.py
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot import codegen as ir

TYPES = {
    "bool": "uint8_t",
    "float32": "float",
    "float64": "double",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}

PRELUDE = """\
#include <stdint.h>

typedef union { double number; uint64_t bits; } ingot_double;

/* e^x: x is k log 2 + r, and e^r a polynomial. */
static double exp_(double x) {
  if (x != x) return x;
  if (x > 709.0) return __builtin_inf();
  if (x < -708.0) return 0.0;
  int64_t k = (int64_t)(x * 1.4426950408889634 + (x < 0 ? -0.5 : 0.5));
  double r = x - k * 0.693147180369123816490 - k * 1.90821492927058770002e-10, sum = 1.0;
  for (int i = 13; i > 0; i--) sum = 1.0 + r / i * sum;
  ingot_double power = {.bits = (uint64_t)(k + 1023) << 52};
  return sum * power.number;
}
static double tanh_(double x) {
  double t = exp_(x < 0 ? 2.0 * x : -2.0 * x), y = (1.0 - t) / (1.0 + t);
  return x < 0 ? -y : y;
}
/* log x: x is m 2^k with m near 1, and log m = 2 atanh((m - 1) / (m + 1)), a series. */
static double log_(double x) {
  if (!(x > 0.0)) return x == 0.0 ? -__builtin_inf() : __builtin_nan("");
  if (x > 1.7976931348623157e308) return x;
  ingot_double m = {.number = x < 2.2250738585072014e-308 ? x * 18014398509481984.0 : x};
  int64_t k = (int64_t)(m.bits >> 52) - 1023 - (x < 2.2250738585072014e-308 ? 54 : 0);
  m.bits = (m.bits & 0xfffffffffffffULL) | 1023ULL << 52;
  if (m.number > 1.4142135623730951) m.number *= 0.5, k++;
  double t = (m.number - 1.0) / (m.number + 1.0), sum = 0.0;
  for (int i = 21; i > 0; i -= 2) sum = 1.0 / i + t * t * sum;
  return 2.0 * t * sum + k * 0.69314718055994530942;
}
/* A power whose base is negative is one of a whole exponent, or no number. */
static double pow_(double x, double y) {
  if (y == 0.0 || x == 1.0) return 1.0;
  if (x != x || y != y) return x + y;
  double whole = (double)(int64_t)y, size = exp_(y * log_(x < 0 ? -x : x));
  if (x >= 0.0) return size;
  return whole != y && y * y < 1e30 ? __builtin_nan("") : y * y < 1e30 && (int64_t)y % 2 ? -size : size;
}
/* A NaN in either operand is the result; of max_number only one on the left. */
#define ORDER(T) \\
  static T min_##T(T a, T b) { return a < b || a != a ? a : b; } \\
  static T max_##T(T a, T b) { return a > b || a != a ? a : b; } \\
  static T max_number_##T(T a, T b) { return a > b || b != b ? a : b; }
ORDER(int64_t) ORDER(uint64_t) ORDER(float) ORDER(double)
static int64_t floor_div_(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static int64_t floor_mod_(int64_t a, int64_t b) { return a - floor_div_(a, b) * b; }
"""

INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "trunc_div": "/",
    "trunc_mod": "%",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
    "shl": "<<",
    "shr": ">>",
    "xor": "^",
}
CALLS: Mapping[str, str] = {
    "neg": "-({0})",
    "abs": "({0} < 0 ? -({0}) : ({0}))",
    "sqrt": "__builtin_sqrt({0})",
    "rsqrt": "(1.0 / __builtin_sqrt({0}))",
    "reciprocal": "(1.0 / ({0}))",
    "exp": "exp_({0})",
    "log": "log_({0})",
    "tanh": "tanh_({0})",
    "sigmoid": "(1.0 / (1.0 + exp_(-({0}))))",
    "not": "!({0})",
    "is_nan": "(({0}) != ({0}))",
}
PASSES = ("skip",)
"""Of Ingot's passes over loops: the others make vectors and unrolled code, which the C compiler does itself."""
RULES = ("empty", "contraction", "head", "window", "column", "row", "reused", "elementwise")
"""Of the rules that choose schedules: the others use algorithms that need instructions C has no name for."""


class C99Backend(ir.LlvmBackend):
    """Kernels as C99; the entry as LLVM IR, as ever."""

    version = "c99-1"

    def __init__(self) -> None:
        self.written: dict[str, str] = {}

    @property
    def loop_passes(self) -> Sequence[ir.LoopPass]:
        return [one for one in ir.LOOP_PASSES if one.name in PASSES]

    def takes_rule(self, name: str) -> bool:
        return name in RULES

    def kernel(self, function: ir.Function, target: ir.Target, symbol: str) -> ir.SourceCode:
        self.written[symbol] = CWriter(function).text(symbol)
        return ir.SourceCode("c", self.written[symbol])

    @contextmanager
    def objects(self, target: ir.Target, workers: int) -> Iterator[ir.ObjectMaker]:
        with super().objects(target, workers) as llvm:
            yield CObjects(llvm, target)


@dataclass(frozen=True)
class CObjects:
    """C through the C compiler, everything else as before."""

    llvm: ir.ObjectMaker
    target: ir.Target

    def submit(self, name: str, source: ir.SourceCode) -> Future[bytes]:
        if source.language != "c":
            return self.llvm.submit(name, source)
        done: Future[bytes] = Future()
        done.set_result(ir.compile_c(source.text, self.target, ("-std=c99", "-O2", "-fwrapv", "-fno-math-errno")))
        return done


@dataclass
class CWriter:
    """The C of one loop function."""

    function: ir.Function
    names: dict[object, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    scratch: int = 0

    def text(self, symbol: str) -> str:
        self.line(0, f"void {symbol}(void *const *buffers, const int64_t *symbols, int64_t begin, int64_t end,")
        self.line(0, "    char *scratch, const volatile int32_t *stop) {")
        for i, buffer in enumerate(self.function.buffers):
            self.line(1, f"{self.type(buffer.dtype)} *const {self.name(buffer, buffer.name)} = buffers[{i}];")
        for i, var in enumerate(self.function.symbols):
            self.line(1, f"const int64_t {self.name(var.name, var.name)} = symbols[{i}];")
        task = self.name(self.function.task.name, "task")
        self.line(1, f"for (int64_t {task} = begin; {task} < end && !*stop; {task}++) {{")
        self.statement(self.function.body, 2)
        self.line(1, "}")
        self.line(0, "}")
        return PRELUDE + "\n" + "\n".join(self.lines) + "\n"

    def line(self, depth: int, text: str) -> None:
        self.lines.append("  " * depth + text)

    def name(self, key: object, wanted: str) -> str:
        """A name of C for what is bound now; inner bindings hide outer ones of the same name, as they do in C."""
        if key not in self.names:
            self.names[key] = f"{re.sub('[^A-Za-z0-9]', '_', wanted)}_{len(self.names)}"
        return self.names[key]

    def type(self, dtype: ir.DType) -> str:
        if dtype.value not in TYPES:
            raise self.lacking(f"the type {dtype}")
        return TYPES[dtype.value]

    def lacking(self, what: str) -> ingot.IngotError:
        return ingot.IngotError(
            ingot.ErrorCode.UNSUPPORTED_OPERATOR, f"this code generator has no C for {what}", node=self.function.name
        )

    # -- statements

    def statement(self, statement: ir.Statement, depth: int) -> None:
        match statement:
            case ir.Block(statements=statements):
                for each in statements:
                    self.statement(each, depth)
            case ir.For(var=var, extent=extent, body=body):
                i = self.name(var.name, var.name)
                self.line(depth, f"for (int64_t {i} = 0; {i} < {self.of(extent)}; {i}++) {{")
                self.statement(body, depth + 1)
                self.line(depth, "}")
            case ir.If():
                self.condition(statement, depth)
            case ir.Let():
                self.let(statement, depth)
            case ir.Allocate(buffer=buffer, body=body):
                self.allocate(buffer, body, depth)
            case ir.Store(buffer=buffer, indices=indices, value=value, mask=None):
                self.line(depth, f"{self.element(buffer, indices)} = {self.of(value)};")
            case ir.Prefetch() | ir.Checkpoint():
                self.line(depth, "if (*stop) return;" if isinstance(statement, ir.Checkpoint) else ";")
            case _:
                raise self.lacking(type(statement).__name__)

    def condition(self, statement: ir.If, depth: int) -> None:
        self.line(depth, f"if ({self.of(statement.cond)}) {{")
        self.statement(statement.then, depth + 1)
        if statement.otherwise is not None:
            self.line(depth, "} else {")
            self.statement(statement.otherwise, depth + 1)
        self.line(depth, "}")

    def let(self, statement: ir.Let, depth: int) -> None:
        var = statement.var
        self.line(depth, "{")
        value = self.of(statement.value)
        self.line(depth + 1, f"const {self.type(var.dtype)} {self.name(var.name, var.name)} = {value};")
        self.statement(statement.body, depth + 1)
        self.line(depth, "}")

    def allocate(self, buffer: ir.Buffer, body: ir.Statement, depth: int) -> None:
        """Memory of the stack, or of the thread's scratch, where each buffer begins at a line of the cache."""
        count = int(np.prod([int(d) for d in buffer.shape if isinstance(d, int)]))
        name, own = self.name(buffer, buffer.name), self.type(buffer.dtype)
        self.line(depth, "{")
        begin = self.scratch
        if buffer.scope is ir.BufferScope.STACK:
            self.line(depth + 1, f"{own} {name}[{count}];")
        else:
            self.line(depth + 1, f"{own} *const {name} = ({own} *)(scratch + {begin});")
            self.scratch += -(-count * buffer.dtype.itemsize // 64) * 64
        self.statement(body, depth + 1)
        self.line(depth, "}")
        self.scratch = begin

    # -- expressions

    def element(self, buffer: ir.Buffer, indices: Sequence[ir.Expr]) -> str:
        strides = ir.row_major(buffer.shape) if buffer.strides is None else buffer.strides
        offset = [f"{self.of(i)} * {self.of(ir.lift(s))}" for i, s in zip(indices, strides, strict=True)]
        return f"{self.names[buffer]}[{' + '.join(offset) or '0'}]"

    def of(self, expr: ir.Expr) -> str:
        match expr:
            case ir.Const(value=value):
                return self.constant(value, expr.dtype)
            case ir.Var(name=name):
                return self.names[name]
            case ir.BufferLoad(buffer=buffer, indices=indices, mask=None):
                return self.element(buffer, indices)
            case ir.Cast(x=x):
                number = f"({self.of(x)} != 0)" if expr.dtype is ir.DType.BOOL else self.of(x)
                return f"(({self.type(expr.dtype)})({number}))"
            case ir.Select(cond=cond, then=then, otherwise=otherwise):
                return f"({self.of(cond)} ? {self.of(then)} : {self.of(otherwise)})"
            case ir.Unary(op=op, x=x) if op.value in CALLS:
                return f"(({self.type(expr.dtype)}){CALLS[op.value].format(self.of(x))})"
            case ir.Binary(op=op, lhs=lhs, rhs=rhs):
                return self.binary(op.value, self.of(lhs), self.of(rhs), lhs.dtype, expr.dtype)
        raise self.lacking(str(expr)[:80])

    def binary(self, op: str, a: str, b: str, operand: ir.DType, result: ir.DType) -> str:
        match op:
            case "min" | "max" | "max_number":
                wide = self.type(operand) if operand.is_float else "int64_t" if operand.is_signed else "uint64_t"
                return f"(({self.type(result)}){op}_{wide}({a}, {b}))"
            case "floor_div" | "floor_mod" | "pow":
                return f"(({self.type(result)}){op}_({a}, {b}))"
            case "and" | "or":
                sign = {"and": "&", "or": "|"}[op]
                return f"({a} {sign * 2 if operand is ir.DType.BOOL else sign} {b})"
        if op not in INFIX or (op == "trunc_mod" and operand.is_float):
            raise self.lacking(op)
        return f"(({self.type(result)})({a} {INFIX[op]} {b}))"

    def constant(self, value: ir.Scalar, dtype: ir.DType) -> str:
        if not dtype.is_float:
            number = int(value)
            return "INT64_MIN" if number == -(1 << 63) else f"{number}{'ULL' if number >= 1 << 63 else 'LL'}"
        real = float(value)
        if np.isnan(real):
            return '__builtin_nan("")'
        return f"(({self.type(dtype)}){real!r})" if np.isfinite(real) else f"({'-' if real < 0 else ''}__builtin_inf())"


def small_network() -> onnx.ModelProto:
    """Convolution, ReLU, pooling, a product and softmax, of pictures of any number."""
    random = np.random.default_rng(0)
    weights = {
        "filters": random.standard_normal((8, 3, 3, 3)).astype(np.float32) / 5,
        "bias": random.standard_normal(8).astype(np.float32),
        "matrix": random.standard_normal((8 * 8 * 8, 10)).astype(np.float32) / 20,
    }
    nodes = [
        helper.make_node("Conv", ["picture", "filters", "bias"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "matrix"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("picture", TensorProto.FLOAT, ["n", 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def main() -> None:
    backend, model = C99Backend(), small_network()
    ingot.register_backend("c99", backend)
    by_c = ingot.load(ingot.compile(model, target=f"c99 -mtriple={platform.machine()}-linux-gnu"))
    by_llvm = ingot.load(ingot.compile(model))
    pictures = np.random.default_rng(1).standard_normal((5, 3, 16, 16)).astype(np.float32)
    print(
        f"{len(backend.written)} kernels; the last one:",
        next(reversed(backend.written.values())).removeprefix(PRELUDE),
        sep="\n",
    )
    ours, theirs = by_c.run({"picture": pictures})["y"], by_llvm.run({"picture": pictures})["y"]
    print(f"largest difference of two code generators: {np.abs(ours - theirs).max():.1e}")
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


if __name__ == "__main__":
    main()
