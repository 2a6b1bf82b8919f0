"""A pass of one's own: what it sees, what it makes, where it runs, and that the model computes the same.

python examples/own_pass.py
"""

from __future__ import annotations

import numpy as np

import ingot
from ingot import ir


def a_model() -> ir.Module:
    """Distances of rows from a center: the root of the sum of (x - center) ** 2. Models write squares so."""
    n = ir.symbol("n")
    b = ir.GraphBuilder("main")
    x = b.input("x", (n, 64))
    center = b.constant(np.linspace(-1, 1, 64, dtype=np.float32), "center")
    squares = b.pow(b.sub(x, center), 2.0)
    distances = b.sqrt(b.reduce_sum(squares, np.array([1]), keepdims=0), name="distances")
    return ir.Module((b.function(distances),))


# 1. A rule looks at one node, and writes what takes its place; None leaves it. A pass applies rules wherever they fit.


def product(node: ir.Node, site: ir.Site) -> ir.Value | None:
    """x ** 2 -> x * x"""
    base, power = node.operands
    return site.node("Mul", base, base) if site.scalar(power) == 2 else None


@ir.function_pass("square-by-product", level=2, forbids=["grouped"])
def square_by_product(graph: ir.Graph) -> ir.Graph:
    return ir.rewrite(graph, [ir.rule("Pow", product)])


# 2. A pass may be anything that takes a graph, or a module, and gives one: this one only looks.


@ir.module_pass("count-operators")
def count_operators(module: ir.Module) -> ir.Module:
    found = [node.op for node in module.main.graph.nodes]
    print("operators:", ", ".join(f"{found.count(op)} {op}" for op in dict.fromkeys(found)))
    return module


def main() -> None:
    module = a_model()
    print(f"-- the model\n\n{module}")

    # 3. Passes are called alone, or in sequences, under a context that says which run and who watches.
    changed = square_by_product(module)
    print(f"-- after the pass\n\n{changed}")
    timing = ir.Timing()
    with ir.PassContext(opt_level=2, instruments=[timing]):
        ir.Sequential([count_operators, square_by_product, ir.passes.FoldConstants(), count_operators])(module)
    print(f"\n-- how long they took\n\n{timing}\n")

    # 4. The order is checked: behind fusion, every operator is in a group, where the rule would find nothing.
    try:
        ir.Sequential([ir.passes.Fuse(), square_by_product])
    except ingot.IngotError as error:
        print(f"-- where it cannot stand\n\n{error}\n")

    # 5. The compiler's own pipeline is a value, into which the pass is put.
    pipeline = ir.default_pipeline("host").before("fuse", square_by_product, count_operators)
    artifact = ingot.compile(module, pipeline=pipeline)

    # 6. Whatever it did: the interpreter says what the model means, and the code computes it.
    x = np.random.default_rng(0).standard_normal((5, 64), dtype=np.float32)
    (meant,) = module.interpret(x)
    found = ingot.load(artifact).run({"x": x})["distances"]
    np.testing.assert_allclose(found, meant, rtol=1e-5)
    print("-- compiled with it, and right:", found)


if __name__ == "__main__":
    main()
