"""How fast Ingot is: against its peers (:mod:`bench.peers`) and against the machine (:mod:`bench.roofline`).

Needs the extra ``bench`` and a checkout: none of this is installed with Ingot.
"""
