"""Real architectures, small: transformers models built from a config, random weights, nothing downloaded.

`ZOO[name]()` gives `(model, inputs)`; `full=True` gives the size that benchmarks use.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

Inputs = dict[str, torch.Tensor]
Made = tuple[torch.nn.Module, Inputs]
ZOO: dict[str, Callable[..., Made]] = {}


def architecture(function: Callable[..., Made]) -> Callable[..., Made]:
    ZOO[function.__name__] = function
    return function


def tokens(batch: int = 2, length: int = 16, vocabulary: int = 200) -> torch.Tensor:
    return torch.randint(5, vocabulary - 10, (batch, length))


def encoder(layers: int = 2, width: int = 32) -> dict[str, int]:
    return {
        "vocab_size": 200,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "intermediate_size": 2 * width,
    }


@architecture
def bert(layers: int = 2, width: int = 32) -> Made:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(**encoder(layers, width))), {"input_ids": tokens()}


@architecture
def roberta() -> Made:
    from transformers import RobertaConfig, RobertaModel

    return RobertaModel(RobertaConfig(**encoder(), max_position_embeddings=64)), {"input_ids": tokens()}


@architecture
def albert() -> Made:
    from transformers import AlbertConfig, AlbertModel

    return AlbertModel(AlbertConfig(**encoder(), embedding_size=16)), {"input_ids": tokens()}


@architecture
def distilbert() -> Made:
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig(vocab_size=200, dim=32, n_layers=2, n_heads=4, hidden_dim=64)
    return DistilBertModel(config), {"input_ids": tokens()}


@architecture
def deberta_v2() -> Made:
    from transformers import DebertaV2Config, DebertaV2Model

    config = DebertaV2Config(
        **encoder(), relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8, max_relative_positions=16
    )
    return DebertaV2Model(config), {"input_ids": tokens()}


@architecture
def electra() -> Made:
    from transformers import ElectraConfig, ElectraModel

    return ElectraModel(ElectraConfig(**encoder(), embedding_size=16)), {"input_ids": tokens()}


@architecture
def gpt2() -> Made:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(vocab_size=200, n_embd=32, n_layer=2, n_head=4)), {"input_ids": tokens()}


@architecture
def opt() -> Made:
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(
        vocab_size=200,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=64,
        max_position_embeddings=64,
        word_embed_proj_dim=32,
    )
    return OPTForCausalLM(config), {"input_ids": tokens()}


@architecture
def llama() -> Made:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**encoder(), num_key_value_heads=2)), {"input_ids": tokens()}


@architecture
def mistral() -> Made:
    from transformers import MistralConfig, MistralForCausalLM

    return MistralForCausalLM(MistralConfig(**encoder(), num_key_value_heads=2)), {"input_ids": tokens()}


@architecture
def qwen3() -> Made:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(Qwen3Config(**encoder(), num_key_value_heads=2, head_dim=8)), {"input_ids": tokens()}


@architecture
def gemma() -> Made:
    from transformers import GemmaConfig, GemmaForCausalLM

    return GemmaForCausalLM(GemmaConfig(**encoder(), num_key_value_heads=2, head_dim=8)), {"input_ids": tokens()}


@architecture
def phi() -> Made:
    from transformers import PhiConfig, PhiForCausalLM

    return PhiForCausalLM(PhiConfig(**encoder())), {"input_ids": tokens()}


@architecture
def gpt_neox() -> Made:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    return GPTNeoXForCausalLM(GPTNeoXConfig(**encoder())), {"input_ids": tokens()}


@architecture
def bloom() -> Made:
    from transformers import BloomConfig, BloomForCausalLM

    return BloomForCausalLM(BloomConfig(vocab_size=200, hidden_size=32, n_layer=2, n_head=4)), {"input_ids": tokens()}


@architecture
def t5() -> Made:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=200, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
    return T5ForConditionalGeneration(config), {"input_ids": tokens(), "decoder_input_ids": tokens(2, 8)}


def _speech_or_text() -> dict[str, int]:
    return {
        "vocab_size": 200,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
    }


@architecture
def bart() -> Made:
    from transformers import BartConfig, BartForConditionalGeneration

    config = BartConfig(**_speech_or_text(), max_position_embeddings=64)
    return BartForConditionalGeneration(config), {"input_ids": tokens(), "decoder_input_ids": tokens(2, 8)}


@architecture
def whisper() -> Made:
    from transformers import WhisperConfig, WhisperModel

    config = WhisperConfig(
        **_speech_or_text(),
        max_source_positions=30,
        max_target_positions=40,
        num_mel_bins=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return WhisperModel(config), {"input_features": torch.randn(2, 16, 60), "decoder_input_ids": tokens(2, 8)}


def _vision() -> dict[str, int]:
    return {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "image_size": 32,
        "patch_size": 8,
    }


@architecture
def vit() -> Made:
    from transformers import ViTConfig, ViTModel

    return ViTModel(ViTConfig(**_vision())), {"pixel_values": torch.randn(2, 3, 32, 32)}


@architecture
def deit() -> Made:
    from transformers import DeiTConfig, DeiTModel

    return DeiTModel(DeiTConfig(**_vision())), {"pixel_values": torch.randn(2, 3, 32, 32)}


@architecture
def clip() -> Made:
    from transformers import CLIPConfig, CLIPModel

    text = {**encoder(), "max_position_embeddings": 32, "projection_dim": 16, "eos_token_id": 199}
    config = CLIPConfig(text_config=text, vision_config={**_vision(), "projection_dim": 16}, projection_dim=16)
    return CLIPModel(config), {"input_ids": tokens(), "pixel_values": torch.randn(2, 3, 32, 32)}


@architecture
def swin() -> Made:
    from transformers import SwinConfig, SwinModel

    config = SwinConfig(image_size=32, patch_size=2, embed_dim=16, depths=[1, 1], num_heads=[2, 4], window_size=4)
    return SwinModel(config), {"pixel_values": torch.randn(2, 3, 32, 32)}


@architecture
def convnext() -> Made:
    from transformers import ConvNextConfig, ConvNextModel

    config = ConvNextConfig(hidden_sizes=[8, 16, 32, 64], depths=[1, 1, 2, 1])
    return ConvNextModel(config), {"pixel_values": torch.randn(2, 3, 64, 64)}


@architecture
def resnet() -> Made:
    from transformers import ResNetConfig, ResNetModel

    config = ResNetConfig(embedding_size=16, hidden_sizes=[16, 32, 64, 128], depths=[1, 1, 1, 1])
    return ResNetModel(config), {"pixel_values": torch.randn(2, 3, 64, 64)}


@architecture
def mobilenet_v2() -> Made:
    from transformers import MobileNetV2Config, MobileNetV2Model

    config = MobileNetV2Config(image_size=32, depth_multiplier=0.25)
    return MobileNetV2Model(config), {"pixel_values": torch.randn(2, 3, 32, 32)}


@architecture
def segformer() -> Made:
    from transformers import SegformerConfig, SegformerModel

    config = SegformerConfig(hidden_sizes=[8, 16, 32, 64], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 4, 8])
    return SegformerModel(config), {"pixel_values": torch.randn(2, 3, 64, 64)}


@architecture
def wav2vec2() -> Made:
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    config = Wav2Vec2Config(
        **encoder(), conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3), num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2, mask_time_prob=0.0, layerdrop=0.0,
    )  # fmt: skip
    return Wav2Vec2Model(config), {"input_values": torch.randn(2, 400)}
