"""A schedule: steps one after the other."""

from __future__ import annotations

from typing import TypeAlias

from compiler_service.compiler.schedule.language.algorithm import AlgorithmStep, NestStep
from compiler_service.compiler.schedule.language.steps import PlainStep

Step: TypeAlias = PlainStep | AlgorithmStep | NestStep

Schedule: TypeAlias = tuple[Step, ...]
