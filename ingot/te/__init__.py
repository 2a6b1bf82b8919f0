"""Tensor expressions: write a computation, schedule it by hand, look at every stage, build it, call it.

::

    from ingot import te

    n = te.var("n")
    A, B = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    C = te.compute((n,), lambda i: A[i] + B[i], name="C")
    s = te.schedule(C)
    outer, inner = s[C].split("i", 64)
    s[C].vectorize(inner, 16).parallel(outer)
    add = te.build(s, [A, B])
"""

from ingot.te import nn
from ingot.te.building import Function, build, lower
from ingot.te.expressions import *  # noqa: F403
from ingot.te.scheduling import Loop, Schedule, Stage, schedule
from ingot.te.tensors import Tensor, compute, max, min, placeholder, reduce, sum, text
