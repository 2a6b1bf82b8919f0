"""A hundred architectures with random weights, made small by their configurations: nothing is downloaded."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import timm
import torch
import torchvision.models as vision
import transformers as hf
from torch import Tensor, nn

from tests.exports.torch_export import Exported

_TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 97}
_BATCH = {0: "batch"}
_TOKENS = {0: "batch", 1: "length"}


class Tensors(nn.Module):
    """A model of transformers with plain tensors as arguments and one as its result."""

    def __init__(self, model: Any, argument: str) -> None:
        super().__init__()
        self.model, self.argument = model, argument

    def forward(self, x: Tensor) -> Tensor:
        takes = inspect.signature(self.model.forward).parameters
        more: dict[str, Any] = (
            {"attention_mask": torch.ones_like(x)} if "attention_mask" in takes and x.ndim == 2 else {}
        )
        if "decoder_input_ids" in takes:
            more["decoder_input_ids"] = x
        if "use_cache" in takes:
            more["use_cache"] = False
        found = self.model(**{self.argument: x}, **more, return_dict=False)
        return found[0] if isinstance(found, tuple | list) else found


_NOT_TRACED = (
    "gpt2", "gpt_neox", "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi", "phi3", "olmo", "olmo2", "granite", "cohere",
    "starcoder2", "smollm3",
)  # fmt: skip
"""What the exporter that traces cannot follow: how transformers makes their masks."""
_ONLY = {**dict.fromkeys(_NOT_TRACED, "dynamo"), "fnet": "dynamo"} | dict.fromkeys(
    ("funnel", "rwkv", "marian"), "trace"
)
"""By name the one exporter that can: the other lacks an operator, or takes a size for fixed or for decided by data."""


def _tokens(name: str, config: str, model: str, **more: Any) -> Exported:
    """A model of token ids."""

    def make() -> nn.Module:
        given = {**_TINY, "max_position_embeddings": 64, **more}
        settings = getattr(hf, config)(**{k: v for k, v in given.items() if v is not None})
        settings._attn_implementation = "eager"
        return Tensors(getattr(hf, model)(settings), "input_ids")

    def inputs(size: int) -> tuple[Tensor, ...]:
        return (torch.randint(3, 96, (size, 3 * size + 2)),)

    return Exported(name, make, inputs, [_TOKENS], exporter=_ONLY.get(name, ""))


def _pixels(name: str, config: str, model: str, side: int = 32, **more: Any) -> Exported:
    """A model of pictures of one size, in any number."""

    def make() -> nn.Module:
        settings = getattr(hf, config)(**{**_TINY, "image_size": side, "patch_size": 8, **more})
        settings._attn_implementation = "eager"
        return Tensors(getattr(hf, model)(settings), "pixel_values")

    return Exported(name, make, lambda size: (torch.randn(size, 3, side, side),), [_BATCH])


def _timm(name: str, side: int = 64, exporter: str = "", **more: Any) -> Exported:
    def make() -> nn.Module:
        return timm.create_model(name, pretrained=False, num_classes=7, exportable=True, **more)

    return Exported(f"timm-{name}", make, lambda size: (torch.randn(size, 3, side, side),), [_BATCH], exporter=exporter)


def _vision(name: str, make: Callable[..., nn.Module], side: int = 64, **more: Any) -> Exported:
    def made() -> nn.Module:
        return make(weights=None, num_classes=7, **more)

    return Exported(f"vision-{name}", made, lambda size: (torch.randn(size, 3, side, side),), [_BATCH])


def _densenet(weights: None, **more: Any) -> nn.Module:
    return vision.DenseNet(growth_rate=4, block_config=(2, 2), num_init_features=8, **more)


_GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 97}
_KV: Mapping[str, Any] = {"num_key_value_heads": 2}

LANGUAGE = (
    _tokens("bert", "BertConfig", "BertModel"), _tokens("roberta", "RobertaConfig", "RobertaModel"),
    _tokens("albert", "AlbertConfig", "AlbertModel", embedding_size=16), _tokens("electra", "ElectraConfig", "ElectraModel"),
    _tokens("distilbert", "DistilBertConfig", "DistilBertModel", dim=32, n_layers=2, n_heads=4, hidden_dim=48),
    _tokens("deberta_v2", "DebertaV2Config", "DebertaV2Model", relative_attention=True, pos_att_type=["p2c", "c2p"]),
    _tokens("mpnet", "MPNetConfig", "MPNetModel"), _tokens("xlm_roberta", "XLMRobertaConfig", "XLMRobertaModel"),
    _tokens("camembert", "CamembertConfig", "CamembertModel"), _tokens("convbert", "ConvBertConfig", "ConvBertModel", embedding_size=32),
    _tokens("squeezebert", "SqueezeBertConfig", "SqueezeBertModel", embedding_size=32),
    _tokens("mobilebert", "MobileBertConfig", "MobileBertModel", embedding_size=16, true_hidden_size=16, intra_bottleneck_size=16),
    _tokens("layoutlm", "LayoutLMConfig", "LayoutLMModel"), _tokens("nystromformer", "NystromformerConfig", "NystromformerModel"),
    _tokens("funnel", "FunnelConfig", "FunnelModel", d_model=32, n_head=4, d_head=8, d_inner=48, block_sizes=[1, 1],
            num_hidden_layers=None),
    _tokens("fnet", "FNetConfig", "FNetModel"), _tokens("roformer", "RoFormerConfig", "RoFormerModel", embedding_size=32),
    _tokens("modernbert", "ModernBertConfig", "ModernBertModel", pad_token_id=0, reference_compile=False),
    _tokens("ernie", "ErnieConfig", "ErnieModel"),
    _tokens("ibert", "IBertConfig", "IBertModel"), _tokens("rembert", "RemBertConfig", "RemBertModel", input_embedding_size=16),
    _tokens("gpt2", "GPT2Config", "GPT2Model", **_GPT), _tokens("gpt_neo", "GPTNeoConfig", "GPTNeoModel", num_layers=2, num_heads=4,
            attention_types=[[["global", "local"], 1]]),
    _tokens("gpt_neox", "GPTNeoXConfig", "GPTNeoXModel"), _tokens("gptj", "GPTJConfig", "GPTJModel", rotary_dim=4, **_GPT),
    _tokens("opt", "OPTConfig", "OPTModel", ffn_dim=48, word_embed_proj_dim=32),
    _tokens("bloom", "BloomConfig", "BloomModel", n_layer=2, n_head=4),
    _tokens("llama", "LlamaConfig", "LlamaModel", **_KV), _tokens("mistral", "MistralConfig", "MistralModel", **_KV),
    _tokens("qwen2", "Qwen2Config", "Qwen2Model", **_KV), _tokens("qwen3", "Qwen3Config", "Qwen3Model", head_dim=8, **_KV),
    _tokens("gemma", "GemmaConfig", "GemmaModel", head_dim=8, **_KV), _tokens("gemma2", "Gemma2Config", "Gemma2Model", head_dim=8, **_KV),
    _tokens("phi", "PhiConfig", "PhiModel"), _tokens("phi3", "Phi3Config", "Phi3Model", pad_token_id=0, **_KV),
    _tokens("falcon", "FalconConfig", "FalconModel"), _tokens("stablelm", "StableLmConfig", "StableLmModel", **_KV),
    _tokens("olmo", "OlmoConfig", "OlmoModel", **_KV), _tokens("olmo2", "Olmo2Config", "Olmo2Model", **_KV),
    _tokens("granite", "GraniteConfig", "GraniteModel", **_KV), _tokens("cohere", "CohereConfig", "CohereModel", **_KV),
    _tokens("starcoder2", "Starcoder2Config", "Starcoder2Model", **_KV),
    _tokens("smollm3", "SmolLM3Config", "SmolLM3Model", pad_token_id=0, **_KV),
    _tokens("codegen", "CodeGenConfig", "CodeGenModel", rotary_dim=4, **_GPT), _tokens("rwkv", "RwkvConfig", "RwkvModel"),
    _tokens("t5", "T5Config", "T5Model", d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4),
    _tokens("mt5", "MT5Config", "MT5Model", d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4),
    _tokens("bart", "BartConfig", "BartModel", d_model=32, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=48, decoder_ffn_dim=48,
            encoder_attention_heads=4, decoder_attention_heads=4),
    _tokens("marian", "MarianConfig", "MarianModel", d_model=32, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=48,
            decoder_ffn_dim=48, encoder_attention_heads=4, decoder_attention_heads=4, pad_token_id=1),
    _tokens("pegasus", "PegasusConfig", "PegasusModel", d_model=32, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=48,
            decoder_ffn_dim=48, encoder_attention_heads=4, decoder_attention_heads=4),
)  # fmt: skip

PICTURES = (
    _pixels("vit", "ViTConfig", "ViTModel"), _pixels("deit", "DeiTConfig", "DeiTModel"), _pixels("beit", "BeitConfig", "BeitModel"),
    _pixels("dinov2", "Dinov2Config", "Dinov2Model"), _pixels("clip", "CLIPVisionConfig", "CLIPVisionModel"),
    _pixels("siglip", "SiglipVisionConfig", "SiglipVisionModel"), _pixels("yolos", "YolosConfig", "YolosModel", image_size=[32, 32]),
    _pixels("segformer", "SegformerConfig", "SegformerModel", 64, hidden_sizes=[8, 16], num_encoder_blocks=2, depths=[1, 1],
            sr_ratios=[2, 1], num_attention_heads=[1, 2], patch_sizes=[7, 3], strides=[4, 2], mlp_ratios=[2, 2]),
    _pixels("convnext", "ConvNextConfig", "ConvNextModel", 64, hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, patch_size=4),
    _pixels("resnet", "ResNetConfig", "ResNetModel", 64, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]),
    _pixels("swin", "SwinConfig", "SwinModel", 64, embed_dim=8, depths=[1, 2], num_heads=[1, 2], window_size=4, patch_size=4),
    _pixels("poolformer", "PoolFormerConfig", "PoolFormerModel", 64, hidden_sizes=[8, 16], depths=[1, 1], num_encoder_blocks=2,
            patch_sizes=[7, 3], strides=[4, 2], padding=[2, 1]),
)  # fmt: skip

_TIMM = (
    "test_vit", "test_vit2", "test_vit3", "test_vit4", "test_resnet", "test_convnext", "test_convnext2", "test_convnext3",
    "test_efficientnet",
    "test_efficientnet_gn", "test_efficientnet_ln", "test_efficientnet_evos", "test_byobnet", "test_nfnet", "test_mambaout",
    "lcnet_035", "mobilenetv3_small_050", "tinynet_e", "semnasnet_050", "mnasnet_small", "mobilenetv2_035", "hardcorenas_a", "ghostnet_050",
    "fbnetc_100", "efficientvit_b0", "mobileone_s0", "repvgg_a0", "regnetx_002", "regnety_002", "mixer_s32_224",
)  # fmt: skip

_MORE: dict[str, dict[str, Any]] = {
    **{
        name: {"img_size": 64, "dynamic_img_size": False}
        for name in ("test_vit", "test_vit2", "test_vit3", "test_vit4")
    },
    "mixer_s32_224": {"img_size": 64},
}
CLASSIFIERS = (
    *(_timm(name, exporter="dynamo" if name == "test_vit4" else "", **_MORE.get(name, {})) for name in _TIMM),
    _timm("levit_128s", 224),
    _vision("squeezenet1_1", vision.squeezenet1_1), _vision("shufflenet_v2_x0_5", vision.shufflenet_v2_x0_5),
    _vision("mobilenet_v3_small", vision.mobilenet_v3_small), _vision("mnasnet0_5", vision.mnasnet0_5),
    _vision("densenet", _densenet),
    _vision("googlenet", vision.googlenet, init_weights=False, aux_logits=False), _vision("resnet18", vision.resnet18),
    _vision("mobilenet_v2", vision.mobilenet_v2, width_mult=0.25), _vision("efficientnet_b0", vision.efficientnet_b0),
)  # fmt: skip

ARCHITECTURES: tuple[Exported, ...] = (*LANGUAGE, *PICTURES, *CLASSIFIERS)
