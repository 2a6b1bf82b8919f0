"""Formulas in Python that write LLVM instructions: ``x * y + 1.0`` on :class:`FormulaTerm` appends an ``fmul`` and an ``fadd``.

A term is a vector (or scalar) of ``float``, ``double``, ``i16``, ``i32``, ``i64`` or ``i1``. Products may be contracted with sums
where the target has fused multiply-add; :func:`exact` switches that off for error-free transformations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler_service.compiler.codegen.llvm.builder import FunctionBuilder
from compiler_service.compiler.codegen.llvm.llvm_types import float_bits, splat, vector

Number = int | float
_INTEGER_OF = {"float": "i32", "double": "i64"}
_FLOAT_OF = {"i32": "float", "i64": "double"}


@dataclass(frozen=True, slots=True, eq=False)
class FormulaTerm:
    """An operand of a formula.

    Attributes:
        builder: where instructions go.
        text: name or literal.
        element: LLVM element type.
        lanes: 1 for a scalar.
        contract: whether sums of products may be fused.
    """

    builder: FunctionBuilder
    text: str
    element: str
    lanes: int
    contract: bool = True

    @property
    def type(self) -> str:
        return vector(self.element, self.lanes)

    @property
    def is_float(self) -> bool:
        return self.element in ("float", "double", "half")

    def lift(self, other: FormulaTerm | Number) -> FormulaTerm:
        """``other`` as a term of this type."""
        if isinstance(other, FormulaTerm):
            return other
        literal = float_bits(float(other), self.element) if self.is_float else str(int(other))
        return replace(self, text=splat(literal, self.element, self.lanes))

    def of(self, text: str, element: str | None = None) -> FormulaTerm:
        return replace(self, text=text, element=element or self.element)

    def _binary(
        self, float_op: str, integer_op: str, left: FormulaTerm | Number, right: FormulaTerm | Number
    ) -> FormulaTerm:
        a, b = self.lift(left), self.lift(right)
        op = float_op + (" contract" if self.contract else "") if self.is_float else integer_op
        return self.of(self.builder.emit(f"{op} {self.type} {a.text}, {b.text}"))

    def __add__(self, other: FormulaTerm | Number) -> FormulaTerm:
        return self._binary("fadd", "add", self, other)

    def __radd__(self, other: Number) -> FormulaTerm:
        return self._binary("fadd", "add", other, self)

    def __sub__(self, other: FormulaTerm | Number) -> FormulaTerm:
        return self._binary("fsub", "sub", self, other)

    def __rsub__(self, other: Number) -> FormulaTerm:
        return self._binary("fsub", "sub", other, self)

    def __mul__(self, other: FormulaTerm | Number) -> FormulaTerm:
        return self._binary("fmul", "mul", self, other)

    def __rmul__(self, other: Number) -> FormulaTerm:
        return self._binary("fmul", "mul", other, self)

    def __truediv__(self, other: FormulaTerm | Number) -> FormulaTerm:
        return self._binary("fdiv", "sdiv", self, other)

    def __rtruediv__(self, other: Number) -> FormulaTerm:
        return self._binary("fdiv", "sdiv", other, self)

    def __and__(self, other: FormulaTerm | Number) -> FormulaTerm:
        return self._binary("and", "and", self, other)

    def __or__(self, other: FormulaTerm | Number) -> FormulaTerm:
        return self._binary("or", "or", self, other)

    def __xor__(self, other: FormulaTerm | Number) -> FormulaTerm:
        return self._binary("xor", "xor", self, other)

    def __lshift__(self, other: FormulaTerm | Number) -> FormulaTerm:
        return self._binary("shl", "shl", self, other)

    def __rshift__(self, other: FormulaTerm | Number) -> FormulaTerm:
        """Arithmetic shift; see :meth:`logical_shift`."""
        return self._binary("ashr", "ashr", self, other)

    def logical_shift(self, other: FormulaTerm | Number) -> FormulaTerm:
        return self._binary("lshr", "lshr", self, other)

    def __neg__(self) -> FormulaTerm:
        if not self.is_float:
            return self.lift(0) - self
        return self.of(self.builder.emit(f"fneg {self.type} {self.text}"))

    def __lt__(self, other: FormulaTerm | Number) -> FormulaTerm:
        return self.compare("olt", "slt", other)

    def __le__(self, other: FormulaTerm | Number) -> FormulaTerm:
        return self.compare("ole", "sle", other)

    def __gt__(self, other: FormulaTerm | Number) -> FormulaTerm:
        return self.compare("ogt", "sgt", other)

    def __ge__(self, other: FormulaTerm | Number) -> FormulaTerm:
        return self.compare("oge", "sge", other)

    def equals(self, other: FormulaTerm | Number) -> FormulaTerm:
        return self.compare("oeq", "eq", other)

    def differs(self, other: FormulaTerm | Number) -> FormulaTerm:
        return self.compare("une", "ne", other)

    def compare(self, float_predicate: str, integer_predicate: str, other: FormulaTerm | Number) -> FormulaTerm:
        op = f"fcmp {float_predicate}" if self.is_float else f"icmp {integer_predicate}"
        return self.of(self.builder.emit(f"{op} {self.type} {self.text}, {self.lift(other).text}"), "i1")

    def convert(self, instruction: str, element: str) -> FormulaTerm:
        """``sitofp``, ``fpext``, ``trunc``, ... to another element type."""
        target = vector(element, self.lanes)
        return self.of(self.builder.emit(f"{instruction} {self.type} {self.text} to {target}"), element)


def is_nan(x: FormulaTerm) -> FormulaTerm:
    return x.compare("uno", "ne", x)


def exact(x: FormulaTerm) -> FormulaTerm:
    """``x`` whose sums and products are rounded one by one."""
    return replace(x, contract=False)


def fused(x: FormulaTerm) -> FormulaTerm:
    """``x`` whose products may be contracted with sums again."""
    return replace(x, contract=True)


def can_scale(x: FormulaTerm) -> bool:
    """Whether :func:`scaled` is an instruction for vectors like ``x``."""
    bits = 32 * x.lanes if x.element == "float" else 64 * x.lanes
    return x.is_float and x.builder.capabilities.scale and bits == 512


def scaled(x: FormulaTerm, exponent: FormulaTerm) -> FormulaTerm:
    """``x * 2^exponent`` for an integral ``exponent``, rounded once: VSCALEFPS, VSCALEFPD."""
    name = "llvm.x86.avx512.mask.scalef." + ("ps.512" if x.element == "float" else "pd.512")
    kind, mask = x.type, f"i{x.lanes}"
    function = x.builder.module.intrinsic(name, kind, f"{kind}, {kind}, {kind}, {mask}, i32")
    text = f"call {kind} {function}({kind} {x.text}, {kind} {exponent.text}, {kind} zeroinitializer, {mask} -1, i32 4)"
    return x.of(x.builder.emit(text))


def fraction(x: FormulaTerm) -> FormulaTerm:
    """``x - floor(x)``, 0 of infinities: VREDUCEPS; where :func:`can_scale`, for floats."""
    kind, mask = x.type, f"i{x.lanes}"
    function = x.builder.module.intrinsic(
        "llvm.x86.avx512.mask.reduce.ps.512", kind, f"{kind}, i32, {kind}, {mask}, i32"
    )
    down = 9  # towards minus infinity, without exceptions
    return x.of(
        x.builder.emit(f"call {kind} {function}({kind} {x.text}, i32 {down}, {kind} zeroinitializer, {mask} -1, i32 4)")
    )


def select(condition: FormulaTerm, then: FormulaTerm | Number, otherwise: FormulaTerm | Number) -> FormulaTerm:
    """``then`` where ``condition`` holds; one of the two must be a term."""
    model = then if isinstance(then, FormulaTerm) else otherwise
    assert isinstance(model, FormulaTerm)
    a, b = model.lift(then), model.lift(otherwise)
    kind = model.type
    text = f"select {condition.type} {condition.text}, {kind} {a.text}, {kind} {b.text}"
    return model.of(model.builder.emit(text))


def bits(x: FormulaTerm) -> FormulaTerm:
    """The bit pattern of a float."""
    return x.convert("bitcast", _INTEGER_OF[x.element])


def from_bits(x: FormulaTerm) -> FormulaTerm:
    """The float of a bit pattern."""
    return x.convert("bitcast", _FLOAT_OF[x.element])


def absolute(x: FormulaTerm) -> FormulaTerm:
    return x.of(x.builder.call("llvm.fabs", x.element, x.lanes, [x.text]))


def copysign(x: FormulaTerm, sign: FormulaTerm) -> FormulaTerm:
    """The magnitude of ``x`` with the sign of ``sign``."""
    return x.of(x.builder.call("llvm.copysign", x.element, x.lanes, [x.text, sign.text]))


def square_root(x: FormulaTerm) -> FormulaTerm:
    return x.of(x.builder.call("llvm.sqrt", x.element, x.lanes, [x.text]))


def polynomial(x: FormulaTerm, coefficients: tuple[float, ...]) -> FormulaTerm:
    """``c[0] + c[1] x + c[2] x^2 + ...`` by Horner's rule."""
    total = x.lift(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


def fused_product_error(x: FormulaTerm, y: FormulaTerm, product: FormulaTerm) -> FormulaTerm:
    """``x * y - product`` exactly, where ``product`` is ``x * y`` rounded (Dekker's splitting where there is no FMA)."""
    if x.builder.capabilities.fma:
        negated = -product
        return x.of(x.builder.call("llvm.fma", x.element, x.lanes, [x.text, y.text, negated.text]))
    (a, b), (c, d) = _halves(exact(x)), _halves(exact(y))
    p = exact(product)
    return ((a * c - p) + a * d + b * c) + b * d


def _halves(x: FormulaTerm) -> tuple[FormulaTerm, FormulaTerm]:
    """Veltkamp's splitting: ``x = high + low``, each with half of the bits."""
    scaled = x * (4097.0 if x.element == "float" else 134217729.0)
    high = scaled - (scaled - x)
    return high, x - high


def round_even(x: FormulaTerm) -> FormulaTerm:
    """The nearest integral float, ties to even, signs of zero and NaN kept."""
    if x.builder.capabilities.rounding:
        return x.of(x.builder.call("llvm.roundeven", x.element, x.lanes, [x.text]))
    magic = 8388608.0 if x.element == "float" else 4503599627370496.0  # 2^23, 2^52: no fraction bits above
    size = exact(absolute(x))
    return copysign(select(size < magic, (size + magic) - magic, size), x)


def floor(x: FormulaTerm) -> FormulaTerm:
    if x.builder.capabilities.rounding:
        return x.of(x.builder.call("llvm.floor", x.element, x.lanes, [x.text]))
    near = exact(round_even(x))
    return copysign(select(near > x, near - 1.0, near), x)


def ceiling(x: FormulaTerm) -> FormulaTerm:
    if x.builder.capabilities.rounding:
        return x.of(x.builder.call("llvm.ceil", x.element, x.lanes, [x.text]))
    return -floor(-x)


def truncate(x: FormulaTerm) -> FormulaTerm:
    if x.builder.capabilities.rounding:
        return x.of(x.builder.call("llvm.trunc", x.element, x.lanes, [x.text]))
    return copysign(floor(absolute(x)), x)
