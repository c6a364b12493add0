#!/usr/bin/env python3
"""`swiftkv info` of a config.json alone counts the parameters that the published models have, to the last digit."""

import json
import math
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("SKV_BUILD", ROOT / "build")).resolve() / "swiftkv"


def of(kind, layers, hidden, ffn, heads, kv_heads, vocab, tied=False, **more):
    """config.json with what decides about parameters."""
    return {
        "model_type": kind, "num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": ffn,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocab,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": tied,
        "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", **more,
    }


GEMMA = {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256, "sliding_window": 512}
GEMMA4 = {
    "hidden_activation": "gelu_pytorch_tanh", "head_dim": 256, "global_head_dim": 512, "sliding_window": 512,
    "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144, "final_logit_softcapping": 30.0,
    "rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
                        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
}


def gemma4(*shape, pattern, **more):
    text = of("gemma4_text", *shape, 262144, True, **GEMMA4, **more)
    text["layer_types"] = [f"{'full' if (i + 1) % pattern == 0 else 'sliding'}_attention" for i in range(shape[0])]
    return {"model_type": "gemma4", "text_config": text}


def gemma4_large(*shape, full, **more):
    """Those without embeddings in every layer, whose full layers have K for V."""
    config = gemma4(*shape, pattern=6, num_kv_shared_layers=0, attention_k_eq_v=True, **more)
    config["text_config"] |= {"num_global_key_value_heads": full, "sliding_window": 1024,
                              "hidden_size_per_layer_input": 0}
    return config


# name -> (its published shape, parameters, those that a token meets)
MODELS = {
    "Llama-3.2-1B": (of("llama", 16, 2048, 8192, 32, 8, 128256, True, head_dim=64), 1235814400, None),
    "Llama-3.1-8B": (of("llama", 32, 4096, 14336, 32, 8, 128256), 8030261248, None),
    "Mistral-7B-v0.3": (of("mistral", 32, 4096, 14336, 32, 8, 32768), 7248023552, None),
    "Qwen2.5-0.5B": (of("qwen2", 24, 896, 4864, 14, 2, 151936, True), 494032768, None),
    "Qwen3-0.6B": (of("qwen3", 28, 1024, 3072, 16, 8, 151936, True, head_dim=128), 596049920, None),
    "Phi-3-mini-4k": (of("phi3", 32, 3072, 8192, 32, 32, 32064), 3821079552, None),
    "Phi-4-mini": (of("phi3", 32, 3072, 8192, 24, 8, 200064, True, partial_rotary_factor=0.75), 3836021760, None),
    "Gemma-2-2B": (of("gemma2", 26, 2304, 9216, 8, 4, 256000, True, head_dim=256, **GEMMA), 2614341888, None),
    "Gemma-3-1B": (of("gemma3_text", 26, 1152, 6912, 4, 1, 262144, True, head_dim=256, **GEMMA), 999885952, None),
    "Gemma-4-E2B, text": (gemma4(35, 1536, 6144, 8, 1, pattern=5, num_kv_shared_layers=20, use_double_wide_mlp=True),
                          4628569344, None),
    "Gemma-4-E4B, text": (gemma4(42, 2560, 10240, 8, 2, pattern=6, num_kv_shared_layers=18), 7463013376, None),
    "Gemma-4-12B, text": (gemma4_large(48, 3840, 15360, 16, 8, full=1), 11907350272, None),
    "Gemma-4-31B, text": (gemma4_large(60, 5376, 21504, 32, 16, full=4), 30697345280, None),
    "Gemma-4-26B-A4B, text": (gemma4_large(30, 2816, 2112, 16, 8, full=2, enable_moe_block=True, num_experts=128,
                                           top_k_experts=8, moe_intermediate_size=704), 25233141760, 3822530560),
    "SmolLM3-3B": (of("smollm3", 36, 2048, 11008, 16, 4, 128256, True, no_rope_layer_interval=4), 3075098624, None),
    "OLMo-2-7B": (of("olmo2", 32, 4096, 11008, 32, 32, 100352), 7298617344, None),
    "Mixtral-8x7B": (of("mixtral", 32, 4096, 14336, 32, 8, 32000, num_local_experts=8, num_experts_per_tok=2),
                     46702792704, 12879925248),
    "Qwen3-30B-A3B": (of("qwen3_moe", 48, 2048, 6144, 32, 4, 151936, head_dim=128, num_experts=128,
                         num_experts_per_tok=8, moe_intermediate_size=768, norm_topk_prob=True,
                         decoder_sparse_step=1, mlp_only_layers=[]), 30532122624, 3353032704),
    "gpt-oss-20b": (of("gpt_oss", 24, 2880, 2880, 64, 8, 201088, head_dim=64, num_local_experts=32,
                       num_experts_per_tok=4, sliding_window=128, attention_bias=True, swiglu_limit=7.0),
                    20914757184, 4187440704),  # published: 3.61e9 without the embedding's 0.58e9
    "gpt-oss-120b": (of("gpt_oss", 36, 2880, 2880, 64, 8, 201088, head_dim=64, num_local_experts=128,
                        num_experts_per_tok=4, sliding_window=128, attention_bias=True, swiglu_limit=7.0),
                     116829156672, 5711982912),
    "Qwen3-235B-A22B": (of("qwen3_moe", 94, 4096, 12288, 64, 4, 151936, head_dim=128, num_experts=128,
                           num_experts_per_tok=8, moe_intermediate_size=1536, norm_topk_prob=True,
                           decoder_sparse_step=1, mlp_only_layers=[]), 235093634560, 22190763520),
    "GLM-4-9B": (of("glm4", 40, 4096, 13696, 32, 2, 151552, head_dim=128, partial_rotary_factor=0.5,
                    attention_bias=True), 9400279040, None),
    "Granite-3.1-8B": (of("granite", 40, 4096, 12800, 32, 8, 49155, True, embedding_multiplier=12.0,
                          attention_multiplier=0.0078125, residual_multiplier=0.22, logits_scaling=16.0),
                       8170848256, None),
    "OLMo-3-7B": (of("olmo3", 32, 4096, 11008, 32, 32, 100278, sliding_window=4096), 7298011136, None),
    "Ministral-3-3B": (of("ministral3", 26, 3072, 9216, 32, 8, 131072, True, head_dim=128,
                          rope_parameters={"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0,
                                           "original_max_position_embeddings": 16384, "llama_4_scaling_beta": 0.1}),
                       3429006336, None),
}


# Without those inside models with images, whose files have more.
HYBRIDS = {"qwen3_5_text", "qwen3_5_moe_text", "qwen3_next", "lfm2", "lfm2_moe", "granitemoehybrid", "nemotron_h",
           "falcon_h1", "olmo_hybrid"}


def numbers(file):
    """The elements of all tensors of a safetensors file."""
    with open(file, "rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    return sum(math.prod(t["shape"]) for name, t in header.items() if name != "__metadata__")


class PublishedTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def info(self, config):
        (self.folder / "config.json").write_text(json.dumps(config))
        result = subprocess.run([PROGRAM, "info", self.folder, "--json"], capture_output=True, text=True, timeout=300)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return json.loads(result.stdout)

    def test_parameters(self):
        for name, (config, total, active) in MODELS.items():
            with self.subTest(model=name):
                said = self.info(config)
                self.assertEqual(said["parameters"], total)
                if active:
                    self.assertEqual(said["active_parameters"], active)

    def test_hybrid_folders(self):
        """As many numbers as the files of tiny models hold, whatever stands in their layers."""
        found = set()
        for config in (ROOT / "tests/data/models").glob("*/config.json"):
            said = json.loads(config.read_text())
            kind = said["model_type"]
            if kind not in HYBRIDS or "quantization_config" in said:  # codes are several to a number
                continue
            with self.subTest(model=config.parent.name):
                found.add(kind)
                result = subprocess.run([PROGRAM, "info", config.parent, "--json"], capture_output=True, text=True,
                                        timeout=300, check=True)
                self.assertEqual(json.loads(result.stdout)["parameters"], numbers(config.parent / "model.safetensors"))
        self.assertEqual(found, HYBRIDS)

    def test_without_weights(self):
        """The configuration is enough for info, and for nothing else."""
        self.info(MODELS["Llama-3.2-1B"][0])
        for words in (("score", self.folder, "--ids-file", self.folder / "ids.json"),
                      ("transform", self.folder, self.folder / "out", "--kv-layers", "2")):
            (self.folder / "ids.json").write_text("[1, 2, 3]")
            result = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=300)
            self.assertEqual(result.returncode, 1)
            self.assertIn("neither model.safetensors nor", result.stderr)


if __name__ == "__main__":
    unittest.main()
