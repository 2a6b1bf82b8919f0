"""Which adapter brings which operator of com.microsoft to the standard ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from compiler_service.compiler.frontend.adapters.microsoft import (
    activations,
    attention,
    blockwise,
    grouped,
    normalization,
    products,
    quantized,
)
from compiler_service.compiler.frontend.adapters.operands import Operands
from compiler_service.compiler.frontend.importing.node import SourceNode

MICROSOFT: Mapping[str, Callable[[SourceNode, Operands], tuple[SourceNode, ...]]] = MappingProxyType(
    {
        "Attention": attention.attention,
        "BiasAdd": activations.bias_add,
        "BiasGelu": activations.gelu,
        "BiasSplitGelu": activations.bias_split_gelu,
        "DequantizeLinear": quantized.linear,
        "DynamicQuantizeLSTM": quantized.lstm,
        "DynamicQuantizeMatMul": quantized.dynamic_quantize_matmul,
        "EmbedLayerNormalization": normalization.embed_layer_normalization,
        "FastGelu": activations.fast_gelu,
        "FusedConv": products.fused_conv,
        "FusedGemm": products.fused_gemm,
        "FusedMatMul": products.fused_matmul,
        "GatherBlockQuantized": blockwise.gather_block_quantized,
        "Gelu": activations.gelu,
        "GroupQueryAttention": grouped.group_query_attention,
        "MatMulIntegerToFloat": quantized.matmul_integer_to_float,
        "MatMulNBits": blockwise.matmul_nbits,
        "MultiHeadAttention": attention.multi_head_attention,
        "NhwcConv": products.nhwc_conv,
        "NhwcFusedConv": products.nhwc_conv,
        "QAttention": quantized.attention,
        "QGemm": quantized.gemm,
        "QLinearAdd": quantized.binary,
        "QLinearAveragePool": quantized.unary,
        "QLinearConcat": quantized.concat,
        "QLinearConv": quantized.convolution,
        "QLinearGlobalAveragePool": quantized.unary,
        "QLinearLeakyRelu": quantized.unary,
        "QLinearMul": quantized.binary,
        "QLinearReduceMean": quantized.unary,
        "QLinearSigmoid": quantized.unary,
        "QLinearSoftmax": quantized.softmax,
        "QLinearWhere": quantized.where,
        "QuantizeLinear": quantized.linear,
        "QuickGelu": activations.quick_gelu,
        "RotaryEmbedding": attention.rotary_embedding,
        "SimplifiedLayerNormalization": normalization.simplified_layer_normalization,
        "SkipLayerNormalization": normalization.skip_layer_normalization,
        "SkipSimplifiedLayerNormalization": normalization.skip_simplified_layer_normalization,
        "TransposeMatMul": products.fused_matmul,
    }
)
"""Operator -> its adapter."""
