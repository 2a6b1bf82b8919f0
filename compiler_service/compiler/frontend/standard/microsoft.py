"""The operators of com.microsoft that are read: their inputs and outputs, and what becomes of each attribute.

Names, kinds and defaults are those of ONNX Runtime's schemas, which a test compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from compiler_service.compiler.frontend.standard.forms import Form, form, hint, only, read, required

_DECODE = "Export with past and present tensors of their own."
_SHARED_BUFFER = only("INT", None, (0,), _DECODE)
_NO_ROTARY = only("INT", None, (0,), "Export with RotaryEmbedding before the attention.")
_CONV = {
    "auto_pad": read("STRING", "NOTSET"),
    "dilations": read("INTS"),
    "group": read("INT", 1),
    "kernel_shape": read("INTS"),
    "pads": read("INTS"),
    "strides": read("INTS"),
}
_ACTIVATED = {"activation": read("STRING"), "activation_params": read("FLOATS")}
_HEADS = {"num_heads": required("INT"), "scale": read("FLOAT"), "mask_filter_value": read("FLOAT")}
_TURNED = {"alpha": read("FLOAT", 1.0), "transA": read("INT", 0), "transB": read("INT", 0)}
_SAME_ELSEWHERE = "The other layouts are those of one GPU each; export without prepacked weights."

SIMPLIFIED = form(
    "X scale",
    "Y inv_std_var?",
    axis=read("INT", -1),
    epsilon=read("FLOAT", 1e-5),
    stash_type=hint("INT", 1, "means are computed in float32 at least"),
)
"""SimplifiedLayerNormalization, which ONNX Runtime has in the standard domain, and some exporters in this one."""

_ATTENTION: dict[str, Form] = {
    "Attention": form(
        "input weights bias? mask_index? past? attention_bias? past_sequence_length?",
        "output present?",
        **_HEADS,
        qkv_hidden_sizes=read("INTS"),
        unidirectional=read("INT", 0),
        do_rotary=_NO_ROTARY,
        rotary_embedding_dim=hint("INT", None, "read by do_rotary alone"),
        past_present_share_buffer=_SHARED_BUFFER,
    ),
    "GroupQueryAttention": form(
        "query key? value? past_key? past_value? seqlens_k total_sequence_length cos_cache? sin_cache? position_ids? "
        "attention_bias? head_sink? k_scale? v_scale? q_norm_weight? k_norm_weight? query_seqlens?",
        "output present_key? present_value? output_qk?",
        num_heads=required("INT"),
        kv_num_heads=required("INT"),
        causal=read("INT", 1),
        scale=read("FLOAT"),
        softcap=read("FLOAT"),
        smooth_softmax=read("INT", -1),
        local_window_size=read("INT", -1),
        sliding_window_cache=read("INT", 0),
        do_rotary=read("INT"),
        rotary_interleaved=read("INT"),
        qk_norm_epsilon=read("FLOAT", 1e-6),
        q_norm_epsilon=read("FLOAT"),
        k_norm_epsilon=read("FLOAT"),
        qk_output=read("INT", 0),
        k_quant_type=only("STRING", "NONE", ("NONE",), "Export with keys and values in float."),
        v_quant_type=only("STRING", "NONE", ("NONE",), "Export with keys and values in float."),
        kv_cache_bit_width=only("INT", None, (0,), "Export with keys and values in float."),
    ),
    "MultiHeadAttention": form(
        "query key? value? bias? key_padding_mask? attention_bias? past_key? past_value? past_sequence_length? "
        "cache_indirection?",
        "output present_key? present_value? qk?",
        **_HEADS,
        unidirectional=read("INT", 0),
    ),
    "QAttention": form(
        "input weight bias input_scale weight_scale mask_index? input_zero_point? weight_zero_point? past?",
        "output present?",
        **_HEADS,
        unidirectional=read("INT", 0),
        do_rotary=_NO_ROTARY,
        past_present_share_buffer=_SHARED_BUFFER,
    ),
    "RotaryEmbedding": form(
        "input position_ids cos_cache sin_cache",
        "output",
        interleaved=read("INT"),
        num_heads=read("INT"),
        rotary_embedding_dim=read("INT"),
        is_packed_batching=only("INT", None, (0,), "Export with rows of one length."),
        scale=only("FLOAT", None, (1.0,), "No kernel of ONNX Runtime reads it; export without it."),
    ),
}

_FUSED: dict[str, Form] = {
    "BiasAdd": form("X bias skip", "Y"),
    "BiasGelu": form("A B", "C"),
    "BiasSplitGelu": form("X bias", "Y"),
    "EmbedLayerNormalization": form(
        "input_ids segment_ids? word_embedding position_embedding segment_embedding? gamma beta mask? position_ids?",
        "output mask_index? embedding_sum?",
        epsilon=read("FLOAT", 1e-12),
        mask_index_type=hint("INT", None, "the kind of the second output, which its declaration tells"),
    ),
    "FastGelu": form("X bias?", "Y"),
    "FusedConv": form("X W B? Z?", "Y", **_CONV, **_ACTIVATED),
    "FusedGemm": form(
        "A B C?",
        "Y",
        **_TURNED,
        beta=read("FLOAT", 1.0),
        activation=read("STRING"),
        activation_alpha=read("FLOAT"),
        activation_beta=read("FLOAT"),
        activation_gamma=read("FLOAT"),
    ),
    "FusedMatMul": form("A B", "Y", **_TURNED, transBatchA=read("INT", 0), transBatchB=read("INT", 0)),
    "Gelu": form("X", "Y"),
    "NhwcConv": form("X W B?", "Y", **_CONV),
    "NhwcFusedConv": form("X W B? Z?", "Y", **_CONV, **_ACTIVATED),
    "QuickGelu": form("X", "Y", alpha=read("FLOAT", 1.702)),
    "SimplifiedLayerNormalization": SIMPLIFIED,
    "SkipLayerNormalization": form(
        "input skip gamma beta? bias?",
        "output mean? inv_std_var? input_skip_bias_sum?",
        epsilon=read("FLOAT", 1e-12),
    ),
    "SkipSimplifiedLayerNormalization": form(
        "input skip gamma bias?",
        "output mean? inv_std_var? input_skip_bias_sum?",
        epsilon=read("FLOAT", 1e-12),
    ),
    "Tokenizer": form(
        "X",
        "Y",
        mark=required("INT"),
        mincharnum=required("INT"),
        pad_value=required("STRING"),
        separators=read("STRINGS"),
        tokenexp=read("STRING"),
    ),
    "TransposeMatMul": form("A B", "Y", **_TURNED),
}

_QUANTIZED: dict[str, Form] = {
    "DequantizeLinear": form("x x_scale x_zero_point?", "y", axis=read("INT")),
    "DynamicQuantizeLSTM": form(
        "X W R B? sequence_lens? initial_h? initial_c? P? W_scale W_zero_point R_scale R_zero_point",
        "Y? Y_h? Y_c?",
        activation_alpha=read("FLOATS"),
        activation_beta=read("FLOATS"),
        activations=read("STRINGS"),
        clip=read("FLOAT"),
        direction=read("STRING", "forward"),
        hidden_size=read("INT"),
        input_forget=read("INT", 0),
    ),
    "DynamicQuantizeMatMul": form("A B b_scale b_zero_point? bias?", "Y"),
    "GatherBlockQuantized": form(
        "data indices scales zero_points?",
        "output",
        bits=read("INT", 4),
        block_size=read("INT", 128),
        gather_axis=read("INT", 0),
        quantize_axis=read("INT", 1),
    ),
    "MatMulIntegerToFloat": form("A B a_scale b_scale a_zero_point? b_zero_point? bias?", "Y"),
    "MatMulNBits": form(
        "A B scales zero_points? g_idx? bias?",
        "Y",
        K=required("INT"),
        N=required("INT"),
        block_size=required("INT"),
        bits=read("INT", 4),
        weight_prepacked=only("INT", 0, (0,), _SAME_ELSEWHERE),
        accuracy_level=hint("INT", 0, "how far an engine may round the first input; here it keeps its precision"),
    ),
    "QGemm": form("A a_scale a_zero_point B b_scale b_zero_point C? y_scale? y_zero_point?", "Y", **_TURNED),
    "QLinearAdd": form("A A_scale A_zero_point? B B_scale B_zero_point? C_scale C_zero_point?", "C"),
    "QLinearAveragePool": form(
        "X x_scale x_zero_point? y_scale y_zero_point?",
        "Y",
        auto_pad=read("STRING", "NOTSET"),
        ceil_mode=read("INT", 0),
        channels_last=read("INT", 0),
        count_include_pad=read("INT", 0),
        kernel_shape=required("INTS"),
        pads=read("INTS"),
        strides=read("INTS"),
    ),
    "QLinearConcat": form("Y_scale Y_zero_point inputs*", "Y", axis=required("INT")),
    "QLinearConv": form(
        "x x_scale x_zero_point w w_scale w_zero_point y_scale y_zero_point B?",
        "y",
        **_CONV,
        channels_last=read("INT", 0),
    ),
    "QLinearGlobalAveragePool": form("X x_scale x_zero_point y_scale y_zero_point", "Y", channels_last=read("INT", 0)),
    "QLinearLeakyRelu": form("X X_scale X_zero_point? Y_scale Y_zero_point?", "Y", alpha=read("FLOAT", 0.01)),
    "QLinearMul": form("A A_scale A_zero_point? B B_scale B_zero_point? C_scale C_zero_point?", "C"),
    "QLinearReduceMean": form(
        "data data_scale data_zero_point? reduced_scale reduced_zero_point?",
        "reduced",
        axes=required("INTS"),
        keepdims=required("INT"),
    ),
    "QLinearSigmoid": form("X X_scale X_zero_point? Y_scale Y_zero_point?", "Y"),
    "QLinearSoftmax": form(
        "X X_scale x_zero_point? y_scale y_zero_point", "Y", axis=read("INT", -1), opset=required("INT")
    ),
    "QLinearWhere": form("condition X x_scale x_zero_point Y y_scale y_zero_point z_scale z_zero_point", "Z"),
    "QuantizeLinear": form("x y_scale y_zero_point?", "y", axis=read("INT")),
}

MICROSOFT_FORMS: Mapping[str, Form] = MappingProxyType({**_ATTENTION, **_FUSED, **_QUANTIZED})
