"""The models of bench/models.py: real architectures, 4 layers, hidden 256, batch 2 to 4, 96 to 128 tokens; images at 2 x 224 x 224."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Made = tuple[torch.nn.Module, dict[str, torch.Tensor]]
BATCH, LENGTH, WIDTH, LAYERS, HEADS, WORDS = 4, 128, 256, 4, 4, 5000
ENCODER: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "intermediate_size": 4 * WIDTH,
}  # fmt: skip


def tokens(length: int = LENGTH) -> torch.Tensor:
    return torch.randint(5, WORDS - 10, (BATCH, length))


def image(batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, 3, 224, 224)


def bert() -> Made:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(**ENCODER)), {"input_ids": tokens()}


def gpt2() -> Made:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=WORDS, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, bos_token_id=1, eos_token_id=2, use_cache=False
    )
    return GPT2LMHeadModel(config), {"input_ids": tokens()}


def llama() -> Made:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**ENCODER, num_key_value_heads=2, use_cache=False)), {"input_ids": tokens()}


def t5() -> Made:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=WORDS, d_model=WIDTH, d_kv=64, d_ff=1024, num_layers=LAYERS, num_heads=HEADS, use_cache=False
    )
    return T5ForConditionalGeneration(config), {"input_ids": tokens(96), "decoder_input_ids": tokens(96)}


def deberta_v2() -> Made:
    from transformers import DebertaV2Config, DebertaV2Model

    config = DebertaV2Config(**ENCODER, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=64)
    return DebertaV2Model(config), {"input_ids": tokens(96)}


def albert() -> Made:
    from transformers import AlbertConfig, AlbertModel

    return AlbertModel(AlbertConfig(**ENCODER, embedding_size=128)), {"input_ids": tokens()}


def vit() -> Made:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=4 * WIDTH
    )
    return ViTModel(config), {"pixel_values": image()}


def swin() -> Made:
    from transformers import SwinConfig, SwinModel

    return SwinModel(SwinConfig(embed_dim=48, depths=[2, 2, 2, 2], num_heads=[3, 6, 12, 24])), {"pixel_values": image()}


def whisper() -> Made:
    from transformers import WhisperConfig, WhisperModel

    config = WhisperConfig(
        vocab_size=WORDS, d_model=WIDTH, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS, encoder_ffn_dim=1024, decoder_ffn_dim=1024, max_source_positions=128,
        use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    inputs = {"input_features": torch.randn(2, 80, 256), "decoder_input_ids": tokens(96)[:2]}
    return WhisperModel(config), inputs


def convnext() -> Made:
    from transformers import ConvNextConfig, ConvNextModel

    return ConvNextModel(ConvNextConfig(depths=[2, 2, 4, 2])), {"pixel_values": image()}


def resnet50() -> Made:
    from transformers import ResNetConfig, ResNetModel

    return ResNetModel(ResNetConfig()), {"pixel_values": image()}


def mobilenet_v2() -> Made:
    from transformers import MobileNetV2Config, MobileNetV2Model

    return MobileNetV2Model(MobileNetV2Config()), {"pixel_values": image()}


def mlp() -> Made:
    layers = [torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.GELU()) for _ in range(4)]
    return torch.nn.Sequential(*layers), {"input": torch.randn(64, 1024)}


def timm_model(name: str, **settings: Any) -> Callable[[], Made]:
    def make() -> Made:
        import timm

        return timm.create_model(name, **settings), {"x": image()}

    make.__name__ = name
    return make


MODELS: dict[str, Callable[[], Made]] = {
    f.__name__: f
    for f in (
        bert, gpt2, llama, t5, deberta_v2, albert, vit, swin, whisper, convnext, resnet50, mobilenet_v2, mlp,
        timm_model("deit_tiny_patch16_224"), timm_model("mixer_s32_224"), timm_model("efficientnet_b0"),
        timm_model("mobilenetv3_large_100"),
    )
}  # fmt: skip
