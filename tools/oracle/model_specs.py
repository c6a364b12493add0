"""The tiny models: config.json of each, in the spelling of transformers 4 or 5, and how it is stored."""

LENGTHS = (1, 23, 61)


def v4(model_type, architecture, **fields):
    """config.json as transformers 4 writes it: rope_theta, rope_scaling, torch_dtype."""
    base = {
        "architectures": [architecture],
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "initializer_range": 0.02,
        "model_type": model_type,
        "num_hidden_layers": 4,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "transformers_version": "4.46.3",
        "use_cache": True,
    }
    return {**base, **fields}


def v5(model_type, architecture, **fields):
    """config.json as transformers 5 writes it: rope_parameters, dtype."""
    base = v4(model_type, architecture)
    for old in ("rope_theta", "torch_dtype"):
        del base[old]
    base |= {
        "dtype": "float32",
        "pad_token_id": None,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "transformers_version": "5.23.0",
    }
    return {**base, **fields}


def llama(make, **fields):
    base = {
        "hidden_act": "silu",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 101,
        "attention_bias": False,
        "mlp_bias": False,
    }
    return make("llama", "LlamaForCausalLM", **{**base, **fields})


def qwen(make, kind, **fields):
    base = {
        "hidden_act": "silu",
        "hidden_size": 32,
        "intermediate_size": 56,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 103,
    }
    return make(kind.lower(), f"{kind}ForCausalLM", **{**base, **fields})


def phi3(make, **fields):
    base = {
        "attention_bias": False,
        "hidden_act": "silu",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 3,
        "original_max_position_embeddings": 128,
        "pad_token_id": 0,
        "sliding_window": None,
        "vocab_size": 97,
    }
    return make("phi3", "Phi3ForCausalLM", **{**base, **fields})


def gemma(make, kind, **fields):
    base = {
        "attention_bias": False,
        "head_dim": 12,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "pad_token_id": 0,
        "query_pre_attn_scalar": 20,
        "sliding_window": 8,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "vocab_size": 107,
    }
    name = {"gemma2": "Gemma2ForCausalLM", "gemma3_text": "Gemma3ForCausalLM"}[kind]
    return make(kind, name, **{**base, **fields})


def qwen3_moe(make, **fields):
    base = {
        "attention_bias": False,
        "decoder_sparse_step": 1,
        "head_dim": 12,
        "hidden_act": "silu",
        "hidden_size": 32,
        "intermediate_size": 40,
        "mlp_only_layers": [],
        "moe_intermediate_size": 24,
        "norm_topk_prob": True,
        "num_attention_heads": 4,
        "num_experts": 7,
        "num_experts_per_tok": 3,
        "num_hidden_layers": 3,
        "num_key_value_heads": 2,
        "vocab_size": 103,
    }
    return make("qwen3_moe", "Qwen3MoeForCausalLM", **{**base, **fields})


def mixtral(make, **fields):
    base = {
        "hidden_act": "silu",
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_attention_heads": 4,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 3,
        "num_key_value_heads": 2,
        "num_local_experts": 5,
        "sliding_window": None,
        "vocab_size": 97,
    }
    return make("mixtral", "MixtralForCausalLM", **{**base, **fields})


def gemma4(kinds, **fields):
    base = {
        "attention_k_eq_v": False,
        "final_logit_softcapping": 30.0,
        "head_dim": 8,
        "global_head_dim": 16,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 32,
        "hidden_size_per_layer_input": 12,
        "intermediate_size": 48,
        "layer_types": [{"s": "sliding_attention", "f": "full_attention"}[k] for k in kinds],
        "num_attention_heads": 4,
        "num_hidden_layers": len(kinds),
        "num_key_value_heads": 2,
        "pad_token_id": 0,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0,
                               "rope_type": "proportional"},
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}},
        "sliding_window": 8,
        "tie_word_embeddings": True,
        "vocab_size": 107,
        "vocab_size_per_layer_input": 107,
    }
    return v5("gemma4_text", "Gemma4ForCausalLM", **{**base, **fields})


def gpt_oss(make, **fields):
    base = {
        "attention_bias": True,
        "head_dim": 16,
        "hidden_act": "silu",
        "hidden_size": 64,
        "intermediate_size": 32,
        "num_attention_heads": 4,
        "num_experts_per_tok": 3,
        "num_hidden_layers": 4,
        "num_key_value_heads": 2,
        "num_local_experts": 6,
        "sliding_window": 8,
        "swiglu_limit": 1.5,
        "vocab_size": 103,
    }
    return make("gpt_oss", "GptOssForCausalLM", **{**base, **fields})


LLAMA3_SCALING = {
    "factor": 8.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 64,
    "rope_type": "llama3",
}
SHORT_FACTOR = [1.0, 1.1, 1.35, 1.9]
LONG_FACTOR = [1.2, 2.5, 3.75, 4.5]


def ordinary_specs():
    """name -> {config, dtype of the file, shards, lengths of the cases, transform (l, g)}"""
    return {
        "llama-mha": {"config": llama(v4, num_key_value_heads=4, pretraining_tp=1, rope_scaling=None)},
        "llama3-v4": {
            "config": llama(v4, rope_theta=500000.0, rope_scaling=LLAMA3_SCALING, head_dim=16,
                            tie_word_embeddings=True, torch_dtype="bfloat16", eos_token_id=[2, 100]),
            "dtype": "bf16",
        },
        "llama3-v5": {
            "config": llama(v5, head_dim=12, num_hidden_layers=6, tie_word_embeddings=True,
                            rope_parameters={"rope_theta": 10000.0, **LLAMA3_SCALING}),
            "shards": 3,
            "transform": (2, 2),
            "simscore": True,
        },
        "llama-linear-v4": {
            "config": llama(v4, rope_scaling={"type": "linear", "factor": 4.0}, torch_dtype="float16"),
            "dtype": "f16",
        },
        "llama-linear-v5": {
            "config": llama(v5, num_hidden_layers=3, dtype="bfloat16", rope_parameters={
                "rope_theta": 20000.0, "rope_type": "linear", "factor": 2.0}),
            "dtype": "bf16",
        },
        "llama-bias": {
            "config": llama(v5, attention_bias=True, mlp_bias=True),
            "transform": (2, 2),
        },
        "mistral": {
            "config": llama(v4, sliding_window=8, head_dim=12, torch_dtype="bfloat16") | {
                "model_type": "mistral", "architectures": ["MistralForCausalLM"]},
            "dtype": "bf16",
        },
        "qwen2": {
            # The window is written but switched off, as in the published Qwen2.5 files.
            "config": qwen(v4, "Qwen2", sliding_window=8, use_sliding_window=False, max_window_layers=2,
                           rope_theta=1000000.0, rope_scaling=None),
        },
        "qwen2-window": {
            "config": qwen(v5, "Qwen2", sliding_window=8, use_sliding_window=True, max_window_layers=2,
                           dtype="bfloat16", tie_word_embeddings=True, layer_types=[
                               "full_attention", "full_attention", "sliding_attention",
                               "sliding_attention"]),
            "dtype": "bf16",
        },
        "qwen3-v4": {
            "config": qwen(v4, "Qwen3", head_dim=16, attention_bias=False, sliding_window=None,
                           use_sliding_window=False, max_window_layers=4, rope_theta=1000000.0,
                           rope_scaling=None, num_hidden_layers=3, torch_dtype="bfloat16"),
            "dtype": "bf16",
        },
        "qwen3-v5": {
            "config": qwen(v5, "Qwen3", head_dim=12, attention_bias=False, tie_word_embeddings=True,
                           dtype="bfloat16", rope_parameters={
                               "rope_theta": 1000000.0, "rope_type": "default"}),
            "dtype": "bf16",
        },
        "qwen3-moe-v4": {  # a tensor for each expert, as published; one layer is dense
            "config": qwen3_moe(v4, mlp_only_layers=[1], torch_dtype="bfloat16", rope_theta=1e6,
                                rope_scaling=None, use_sliding_window=False, sliding_window=None,
                                max_window_layers=3),
            "dtype": "bf16",
            "experts": "split",
        },
        "qwen3-moe-v5": {  # fused; weights that do not add up to 1
            "config": qwen3_moe(v5, norm_topk_prob=False, decoder_sparse_step=2, num_hidden_layers=4,
                                tie_word_embeddings=True, num_experts_per_tok=2),
            "transform": (2, 2),
        },
        "mixtral-v4": {
            "config": mixtral(v4, torch_dtype="bfloat16", rope_theta=1e6, head_dim=12),
            "dtype": "bf16",
            "experts": "split",
            "shards": 2,
        },
        "mixtral-v5": {"config": mixtral(v5, sliding_window=8)},
        "gpt-oss": {  # biases, sinks, windows by turns; experts transposed, gate and up by turns
            "config": gpt_oss(v5, dtype="bfloat16", layer_types=[
                "sliding_attention", "full_attention", "full_attention", "sliding_attention"]),
            "dtype": "bf16",
        },
        "gpt-oss-mxfp4": {
            "config": gpt_oss(v4, num_hidden_layers=3, rope_theta=150000.0, rope_scaling={
                                  "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
                                  "original_max_position_embeddings": 16, "rope_type": "yarn",
                                  "truncate": False},
                              torch_dtype="bfloat16", tie_word_embeddings=True, quantization_config={
                                  "modules_to_not_convert": ["model.layers.*.self_attn"],
                                  "quant_method": "mxfp4"}),
            "dtype": "bf16",
            "experts": "mxfp4",
        },
        "phi3": {"config": phi3(v4, sliding_window=8, rope_scaling=None)},
        "phi3-longrope-v4": {
            "config": phi3(v4, original_max_position_embeddings=32, torch_dtype="float16", rope_scaling={
                "type": "longrope", "short_factor": SHORT_FACTOR, "long_factor": LONG_FACTOR}),
            "lengths": (1, 20, 56),
            "dtype": "f16",
        },
        "phi3-longrope-v5": {
            "config": phi3(v5, original_max_position_embeddings=32, dtype="bfloat16", rope_parameters={
                "rope_theta": 10000.0, "rope_type": "longrope", "partial_rotary_factor": 1.0,
                "original_max_position_embeddings": 32,
                "short_factor": SHORT_FACTOR, "long_factor": LONG_FACTOR}),
            "lengths": (1, 20, 56),
            "dtype": "bf16",
        },
        "phi3-partial": {"config": phi3(v4, partial_rotary_factor=0.5, rope_scaling=None)},
        "gemma2": {
            "config": gemma(v4, "gemma2", attn_logit_softcapping=5.0, final_logit_softcapping=8.0,
                            cache_implementation="hybrid"),
        },
        "gemma3-v4": {
            "config": gemma(v4, "gemma3_text", attn_logit_softcapping=None,
                            final_logit_softcapping=None, rope_theta=1000000.0,
                            rope_local_base_freq=10000.0, sliding_window_pattern=3,
                            rope_scaling={"rope_type": "linear", "factor": 8.0},
                            num_hidden_layers=4),
        },
        "gemma3-v5": {
            "config": gemma(v5, "gemma3_text", attn_logit_softcapping=None, num_hidden_layers=5,
                            final_logit_softcapping=None, dtype="bfloat16", rope_parameters={
                                "full_attention": {"rope_theta": 1000000.0, "rope_type": "linear",
                                                   "factor": 4.0},
                                "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}},
                            layer_types=["sliding_attention", "full_attention", "sliding_attention",
                                         "sliding_attention", "full_attention"]),
            "dtype": "bf16",
        },
        "gemma4-e2b": {
            "config": gemma4("ssfsfssf", num_key_value_heads=1, num_kv_shared_layers=3,
                             use_double_wide_mlp=True, dtype="bfloat16"),
            "dtype": "bf16",
            "lengths": (1, 23, 80),  # more than a chunk of 64
        },
        "gemma4-e4b": {
            "config": gemma4("sssfsssf", num_kv_shared_layers=4),
            "parts": True,
        },
        "gemma4-dense": {
            "config": gemma4("sfssf", num_kv_shared_layers=0, hidden_size_per_layer_input=0,
                             attention_k_eq_v=True, num_global_key_value_heads=1, head_dim=12,
                             global_head_dim=24),
        },
        "gemma4-moe": {  # experts beside the dense block
            "config": gemma4("sfssf", num_kv_shared_layers=0, hidden_size_per_layer_input=0,
                             attention_k_eq_v=True, num_global_key_value_heads=1, dtype="bfloat16",
                             enable_moe_block=True, num_experts=7, top_k_experts=3,
                             moe_intermediate_size=24),
            "dtype": "bf16",
            "lengths": (1, 23, 80),
        },
    }


def small(make, kind, name, **fields):
    base = {
        "attention_bias": False,
        "hidden_act": "silu",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "pad_token_id": 0,
        "vocab_size": 101,
    }
    return make(kind, f"{name}ForCausalLM", **{**base, **fields})


def recent_specs():
    """The families of 2025 and 2026; see ordinary_specs. YaRN from 16 positions on: its ramp and
    Ministral's growing queries both show within a case."""
    yarn = {"factor": 4.0, "original_max_position_embeddings": 16, "rope_type": "yarn"}
    default = {"rope_theta": 10000.0, "rope_type": "default"}
    return {
        "smollm3": {
            "config": small(v5, "smollm3", "SmolLM3", no_rope_layer_interval=2, no_rope_layers=[
                1, 0, 1, 0, 1, 0], num_hidden_layers=6, tie_word_embeddings=True, mlp_bias=False),
            "transform": (2, 1),
        },
        "smollm3-window": {
            "config": small(v4, "smollm3", "SmolLM3", no_rope_layers=[1, 1, 0, 1], mlp_bias=False,
                            use_sliding_window=True, sliding_window=8, layer_types=[
                                "full_attention", "full_attention", "sliding_attention",
                                "full_attention"]),
        },
        "ministral3": {
            "config": small(v5, "ministral3", "Ministral3", head_dim=12, sliding_window=None,
                            rope_parameters={
                                "rope_theta": 10000.0, **yarn, "beta_fast": 4.0, "beta_slow": 0.5,
                                "llama_4_scaling_beta": 0.5, "mscale": 1.0, "mscale_all_dim": 1.0,
                                "max_position_embeddings": 128}),
            "transform": (2, 1),
        },
        "olmo2": {
            "config": small(v5, "olmo2", "Olmo2", rope_parameters={
                "rope_theta": 500000.0, "rope_type": "default"}),
        },
        "olmo3": {
            "config": small(v5, "olmo3", "Olmo3", num_hidden_layers=5, sliding_window=8, layer_types=[
                "sliding_attention", "sliding_attention", "full_attention", "sliding_attention",
                "full_attention"], rope_parameters={
                    "full_attention": {"rope_theta": 10000.0, **yarn, "beta_fast": 32.0,
                                       "beta_slow": 1.0, "attention_factor": 1.2079441541679836},
                    "sliding_attention": default}),
        },
        "granite": {
            "config": small(v4, "granite", "Granite", embedding_multiplier=3.0, mlp_bias=False,
                            attention_multiplier=0.25, residual_multiplier=0.5, logits_scaling=1.5,
                            tie_word_embeddings=True, rope_scaling=None),
            "transform": (2, 2),
        },
        "glm4": {
            "config": small(v5, "glm4", "Glm4", attention_bias=True, head_dim=16,
                            rope_parameters=default | {"partial_rotary_factor": 0.5}),
        },
        "phi4-mini": {
            "config": phi3(v4, hidden_size=64, original_max_position_embeddings=32,
                           partial_rotary_factor=0.5, tie_word_embeddings=True, rope_scaling={
                               "type": "longrope", "short_factor": SHORT_FACTOR,
                               "long_factor": LONG_FACTOR}),
            "lengths": (1, 20, 56),
        },
        "qwen3-yarn": {
            "config": qwen(v4, "Qwen3", head_dim=16, attention_bias=False, sliding_window=None,
                           use_sliding_window=False, max_window_layers=4,
                           rope_scaling={**yarn, "truncate": False}),
        },
    }


def shared_specs():
    """name -> {config, dtype, keep: whether dead k and v of the layers that share stay in the file}

    The pattern of Gemma 4 without its other parts: the last layers read what the last full and the
    last windowed layer before them have written.
    """
    kinds = {"s": "sliding_attention", "f": "full_attention"}
    return {
        "qwen3-shared": {
            "config": qwen(v5, "Qwen3", head_dim=12, attention_bias=False, num_hidden_layers=7,
                           num_kv_shared_layers=4, sliding_window=8, use_sliding_window=True,
                           max_window_layers=7, tie_word_embeddings=True,
                           layer_types=[kinds[k] for k in "ssfsfsf"]),
            "keep": False,
        },
        "llama-shared": {
            "config": llama(v4, num_hidden_layers=5, num_kv_shared_layers=2, torch_dtype="bfloat16",
                            attention_bias=True),
            "dtype": "bf16",
        },
    }


LINEAR, FULL = "linear_attention", "full_attention"


def delta(kind, name, **fields):
    """Qwen 3.5 and Qwen3-Next: value heads three to a key head, so that no order of them passes for another."""
    base = {
        "attention_bias": False,
        "head_dim": 16,
        "hidden_act": "silu",
        "hidden_size": 32,
        "intermediate_size": 48,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 6,
        "linear_value_head_dim": 12,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 10000.0, "rope_type": "default"},
        "vocab_size": 103,
    }
    return v5(kind, f"{name}ForCausalLM", **{**base, **fields})


def delta_experts(**fields):
    return {"moe_intermediate_size": 24, "num_experts": 7, "num_experts_per_tok": 3,
            "shared_expert_intermediate_size": 40, **fields}


def hybrid_specs():
    """Layers that keep a state beside layers with attention. 80 ids are more than a chunk of 64."""
    lengths = (1, 3, 23, 80)
    mrope = {"mrope_interleaved": True, "mrope_section": [1, 1, 0], "partial_rotary_factor": 0.25,
             "rope_theta": 10000.0, "rope_type": "default"}
    return {
        "qwen3-5": {  # a state in the last layer
            "config": delta("qwen3_5_text", "Qwen3_5", num_hidden_layers=6, tie_word_embeddings=True,
                            layer_types=[LINEAR, LINEAR, FULL, LINEAR, FULL, LINEAR]),
            "lengths": lengths,
            "hybrid_transform": 3,
        },
        "qwen3-5-wrapped": {  # as published: inside a model with images, with a head for further tokens
            "config": delta("qwen3_5_text", "Qwen3_5", full_attention_interval=4, dtype="bfloat16",
                            layer_types=[LINEAR, LINEAR, LINEAR, FULL], rope_parameters=mrope),
            "dtype": "bf16",
            "lengths": lengths,
            "wrapped": "qwen3_5",
        },
        "qwen3-5-moe": {
            "config": delta("qwen3_5_moe_text", "Qwen3_5Moe", num_hidden_layers=5, **delta_experts(),
                            layer_types=[LINEAR, FULL, LINEAR, LINEAR, FULL], dtype="bfloat16"),
            "dtype": "bf16",
            "lengths": lengths,
        },
        "qwen3-5-moe-wrapped": {
            "config": delta("qwen3_5_moe_text", "Qwen3_5Moe", layer_types=[LINEAR, LINEAR, LINEAR, FULL],
                            dtype="bfloat16", rope_parameters=mrope, **delta_experts()),
            "dtype": "bf16",
            "lengths": lengths,
            "wrapped": "qwen3_5_moe",
        },
        "qwen3-next": {  # rows by key head, a tensor for each expert, a dense layer
            "config": delta("qwen3_next", "Qwen3Next", num_hidden_layers=5, decoder_sparse_step=1,
                            mlp_only_layers=[1], norm_topk_prob=False, dtype="bfloat16",
                            layer_types=[LINEAR, FULL, LINEAR, LINEAR, FULL],
                            **delta_experts()),
            "dtype": "bf16",
            "experts": "split",
            "lengths": lengths,
        },
    }


def lfm2_moe(make, **fields):
    base = {"conv_L_cache": 3, "conv_bias": False, "hidden_size": 32, "intermediate_size": 48,
            "moe_intermediate_size": 24, "norm_eps": 1e-5, "norm_topk_prob": True, "num_attention_heads": 4,
            "num_dense_layers": 2, "num_experts": 7, "num_experts_per_tok": 3, "num_hidden_layers": 5,
            "num_key_value_heads": 2, "pad_token_id": 0, "routed_scaling_factor": 1.5, "tie_word_embeddings": True,
            "use_expert_bias": True, "vocab_size": 101}
    config = make("lfm2_moe", "Lfm2MoeForCausalLM", **{**base, **fields})
    return {k: v for k, v in config.items() if k != "rms_norm_eps"}


def lfm2(make, **fields):
    """A width of 83, rounded up to 96; a state in the last layer."""
    base = {
        "block_auto_adjust_ff_dim": True,
        "block_ff_dim": 96,
        "block_ffn_dim_multiplier": 1.3,
        "block_multiple_of": 16,
        "conv_L_cache": 3,
        "conv_bias": False,
        "hidden_size": 32,
        "norm_eps": 1e-5,
        "num_attention_heads": 4,
        "num_hidden_layers": 6,
        "num_key_value_heads": 2,
        "pad_token_id": 0,
        "tie_word_embeddings": True,
        "vocab_size": 101,
    }
    config = make("lfm2", "Lfm2ForCausalLM", **{**base, **fields})
    return {k: v for k, v in config.items() if k != "rms_norm_eps"}


def lfm2_specs():
    kinds = {"c": "conv", "f": FULL}
    return {
        "lfm2-v4": {
            "config": lfm2(v4, full_attn_idxs=[2, 4], torch_dtype="bfloat16", rope_theta=1000000.0),
            "dtype": "bf16",
            "lengths": (1, 3, 23, 80),
        },
        "lfm2-vl": {  # inside a model with images
            "config": lfm2(v5, layer_types=[kinds[k] for k in "cfc"], num_hidden_layers=3,
                           rope_parameters={"rope_theta": 10000.0, "rope_type": "default"}),
            "lengths": (1, 3, 23, 80),
            "wrapped": "lfm2_vl",
        },
        "lfm2-moe": {  # as published
            "config": lfm2_moe(v4, layer_types=[kinds[k] for k in "ccfcf"], torch_dtype="bfloat16",
                               rope_theta=1000000.0),
            "dtype": "bf16",
            "experts": "lfm2",
            "lengths": (1, 3, 23, 80),
        },
        "lfm2-moe-plain": {  # chosen by the sigmoids alone, whose sum stays as it is
            "config": lfm2_moe(v5, layer_types=[kinds[k] for k in "cfcc"], num_hidden_layers=4, num_dense_layers=0,
                               use_expert_bias=False, norm_topk_prob=False,
                               rope_parameters={"rope_theta": 10000.0, "rope_type": "default"}),
            "lengths": (1, 3, 23, 80),
        },
        "lfm2-v5": {
            "config": lfm2(v5, layer_types=[kinds[k] for k in "ccfcfc"], conv_L_cache=4,
                           rope_parameters={"rope_theta": 10000.0, "rope_type": "default"}),
            "lengths": (1, 3, 23, 80),
        },
    }


def mamba_specs():
    """Mamba-2 beside attention: Granite 4 H, dense and as a mixture. 80 ids are more than a chunk of 32 or 64."""
    lengths = (1, 3, 23, 80)
    granite = {"attention_multiplier": 0.25, "embedding_multiplier": 3.0, "hidden_act": "silu", "hidden_size": 32,
               "intermediate_size": 24, "logits_scaling": 1.5, "mamba_chunk_size": 32, "mamba_conv_bias": True,
               "mamba_d_conv": 4, "mamba_d_head": 16, "mamba_d_state": 12, "mamba_expand": 2, "mamba_n_groups": 2,
               "mamba_n_heads": 4, "mamba_proj_bias": False, "num_attention_heads": 4, "num_key_value_heads": 2,
               "residual_multiplier": 0.4, "rms_norm_eps": 1e-5, "shared_intermediate_size": 48,
               "tie_word_embeddings": True, "vocab_size": 103}
    name = "GraniteMoeHybridForCausalLM"
    return {
        "granite-h": {  # as transformers 5 saves it
            "config": v5("granitemoehybrid", name, **{**granite, "mamba_d_conv": 3, "mamba_n_groups": 1},
                         num_hidden_layers=5, num_local_experts=0,
                         layer_types=[LINEAR, LINEAR, FULL, LINEAR, LINEAR]),
            "lengths": lengths,
            "hybrid_transform": 1,
        },
        "granite-h-moe": {  # as published
            "config": v4("granitemoehybrid", name, **granite, num_hidden_layers=4, num_local_experts=6,
                         num_experts_per_tok=3, layer_types=["mamba", "mamba", "attention", "mamba"],
                         position_embedding_type="nope", torch_dtype="bfloat16"),
            "dtype": "bf16",
            "experts": "granite",
            "lengths": lengths,
        },
    }


def wide_hybrid_specs():
    """Heads of 16 numbers: GPUs have kernels for them."""
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    layers = {"num_hidden_layers": 3, "dtype": "bfloat16"}
    mixed = nemotron_and_falcon_specs()
    configs = {
        "granite-h-wide": mamba_specs()["granite-h"]["config"] | {"layer_types": [LINEAR, FULL, LINEAR]},
        "lfm2-wide": lfm2_specs()["lfm2-vl"]["config"],
        "nemotron-h-wide": mixed["nemotron-h-latent"]["config"] | {
            "head_dim": 16, "layers_block_type": [LINEAR, FULL, "mlp"]},
        "olmo-hybrid-wide": mixed["olmo-hybrid"]["config"] | {"layer_types": [LINEAR, FULL, LINEAR]},
    }
    return {name: {"config": config | heads | layers, "dtype": "bf16", "lengths": (1, 3, 80)}
            for name, config in configs.items()}


def nemotron(make, **fields):
    base = {"attention_bias": False, "chunk_size": 32, "conv_kernel": 4, "head_dim": 8, "hidden_size": 32,
            "intermediate_size": 48, "layer_norm_epsilon": 1e-5, "mamba_head_dim": 16, "mamba_hidden_act": "silu",
            "mamba_num_heads": 6, "mamba_proj_bias": False, "mlp_bias": False, "mlp_hidden_act": "relu2",
            "n_groups": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "ssm_state_size": 12,
            "use_bias": False, "use_conv_bias": True, "vocab_size": 103}
    config = make("nemotron_h", "NemotronHForCausalLM", **{**base, **fields})
    return {k: v for k, v in config.items() if not k.startswith(("rope_", "rms_norm"))}


def nemotron_experts(**fields):
    return {"moe_intermediate_size": 24, "moe_shared_expert_intermediate_size": 40, "n_group": 1,
            "n_routed_experts": 7, "n_shared_experts": 1, "norm_topk_prob": True, "num_experts_per_tok": 3,
            "routed_scaling_factor": 2.5, "topk_group": 1, **fields}


def falcon_h1(make, **fields):
    base = {"attention_bias": False, "attention_in_multiplier": 0.9, "attention_out_multiplier": 0.8,
            "embedding_multiplier": 2.5, "hidden_act": "silu", "hidden_size": 32, "intermediate_size": 48,
            "key_multiplier": 0.4, "lm_head_multiplier": 0.7, "mamba_chunk_size": 32, "mamba_conv_bias": True,
            "mamba_d_conv": 4, "mamba_d_head": 12, "mamba_d_ssm": 48, "mamba_d_state": 10, "mamba_n_groups": 2,
            "mamba_n_heads": 4, "mamba_norm_before_gate": False, "mamba_proj_bias": False, "mamba_rms_norm": False,
            "mlp_bias": False, "mlp_multipliers": [1.3, 0.6], "num_attention_heads": 4, "num_hidden_layers": 3,
            "num_key_value_heads": 2, "projectors_bias": False, "ssm_in_multiplier": 1.25,
            "ssm_multipliers": [0.6, 1.2, 0.7, 1.4, 0.5], "ssm_out_multiplier": 0.75, "vocab_size": 103}
    return make("falcon_h1", "FalconH1ForCausalLM", **{**base, **fields})


def nemotron_and_falcon_specs():
    lengths = (1, 3, 23, 80)
    olmo = {"hidden_act": "silu", "hidden_size": 32, "intermediate_size": 48, "linear_key_head_dim": 8,
            "linear_num_key_heads": 4, "linear_num_value_heads": 4, "linear_value_head_dim": 16,
            "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 5, "rms_norm_eps": 1e-6,
            "pad_token_id": 0, "vocab_size": 103}
    return {
        "nemotron-h": {  # as published; a layer that keeps something is the last but one
            "config": nemotron(v4, hybrid_override_pattern="M-M*-M-", num_hidden_layers=7, torch_dtype="bfloat16"),
            "dtype": "bf16",
            "backbone": True,
            "lengths": lengths,
        },
        "nemotron-h-moe": {
            "config": nemotron(v4, hybrid_override_pattern="MEM*EM", num_hidden_layers=6, torch_dtype="bfloat16",
                               **nemotron_experts()),
            "dtype": "bf16",
            "backbone": True,
            "experts": "nemotron",
            "lengths": lengths,
        },
        "nemotron-h-latent": {  # as transformers 5 saves it; experts in fewer columns
            "config": nemotron(v5, layers_block_type=[LINEAR, "moe", FULL, "moe", LINEAR, "mlp"],
                               **nemotron_experts(moe_latent_size=16, norm_topk_prob=False)),
            "lengths": lengths,
        },
        "falcon-h1": {"config": falcon_h1(v4), "lengths": lengths},
        "falcon-h1-norm": {  # a norm over groups, before the gate
            "config": falcon_h1(v5, mamba_rms_norm=True, mamba_norm_before_gate=True, tie_word_embeddings=True,
                                mamba_d_head="auto", dtype="bfloat16"),
            "dtype": "bf16",
            "lengths": lengths,
        },
        "falcon-h1-gate": {  # the same behind it
            "config": falcon_h1(v5, mamba_rms_norm=True, ssm_multipliers=[1.0] * 5, mlp_multipliers=[1.0, 1.0],
                                num_hidden_layers=2),
            "lengths": lengths,
        },
        "olmo-hybrid": {  # no positions
            "config": v5("olmo_hybrid", "OlmoHybridForCausalLM", **{**olmo, "rope_parameters": {"rope_theta": None, "rope_type": "default"}},
                         attention_bias=False, layer_types=[LINEAR, LINEAR, FULL, LINEAR, FULL]),
            "lengths": lengths,
        },
        "olmo-hybrid-published": {
            "config": v5("olmo_hybrid", "OlmoHybridForCausalLM", **olmo, attention_bias=False, dtype="bfloat16",
                         layer_types=[LINEAR, FULL, LINEAR, LINEAR, LINEAR], linear_allow_neg_eigval=False),
            "dtype": "bf16",
            "olmo": True,
            "lengths": lengths,
        },
    }


def openelm_spec():
    """As apple/OpenELM-* write it; widths are multiplier times model_dim, rounded to the divisor."""
    return {
        "activation_fn_name": "swish",
        "architectures": ["OpenELMForCausalLM"],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "ffn_dim_divisor": 16,
        "ffn_multipliers": [0.5, 1.0, 1.77, 2.5],
        "ffn_with_glu": True,
        "head_dim": 8,
        "initializer_range": 0.02,
        "max_context_length": 128,
        "model_dim": 32,
        "model_type": "openelm",
        "normalization_layer_name": "rms_norm",
        "normalize_qk_projections": True,
        "num_gqa_groups": 4,
        "num_kv_heads": [1, 2, 2, 3],
        "num_query_heads": [4, 8, 8, 12],
        "num_transformer_layers": 4,
        "qkv_multipliers": [0.5, 1.0],
        "rope_freq_constant": 10000,
        "rope_max_length": 256,
        "share_input_output_layers": True,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.39.3",
        "use_cache": True,
        "vocab_size": 109,
    }


def swiftkv(config, n_layers, kv_layers, group):
    base = config["model_type"]
    architecture = {"llama": "LlamaSwiftKVForCausalLM", "qwen2": "Qwen2SwiftKVForCausalLM",
                    "qwen3": "Qwen3SwiftKVForCausalLM", "smollm3": "SmolLM3SwiftKVForCausalLM",
                    "qwen3_moe": "Qwen3MoeSwiftKVForCausalLM",
                    "ministral3": "Ministral3SwiftKVForCausalLM",
                    "granite": "GraniteSwiftKVForCausalLM",
                    "qwen3_5_text": "Qwen3_5SwiftKVForCausalLM",
                    "granitemoehybrid": "GraniteMoeHybridSwiftKVForCausalLM"}[base]
    return config | {
        "architectures": [architecture],
        "key_value_group_size": group,
        "model_type": base + "_swiftkv",
        "num_hidden_layers": n_layers,
        "num_key_value_layers": kv_layers,
        "swiftkv": True,
    }


def swiftkv_specs():
    """name -> {config, dtype, keep: whether the teacher's q,k,v of the deep layers stay in the file}"""
    bf4, bf5 = {"torch_dtype": "bfloat16"}, {"dtype": "bfloat16"}
    llama3 = {"rope_theta": 10000.0, **LLAMA3_SCALING}
    q2 = {"rope_theta": 1000000.0, "rope_scaling": None, "use_sliding_window": False,
          "max_window_layers": 6, "sliding_window": None}
    return {
        "llama-swiftkv-g1": {
            "config": swiftkv(llama(v4, rope_scaling=LLAMA3_SCALING, **bf4), 6, 2, 1),
            "dtype": "bf16",
            "simscore": True,
        },
        "llama-swiftkv-g2": {
            "config": swiftkv(llama(v5, tie_word_embeddings=True, rope_parameters=llama3), 6, 2, 2),
            "keep": False,
        },
        "llama-swiftkv-g3": {
            "config": swiftkv(llama(v4, attention_bias=True, **bf4), 5, 2, 3),
            "dtype": "bf16",
        },
        "llama-swiftkv-g4": {
            "config": swiftkv(llama(v5, head_dim=16, **bf5), 6, 2, 4),
            "dtype": "bf16",
            "shards": 2,
        },
        "llama-swiftkv-off": {  # l = L: legal, the base model and a norm_swiftkv that nothing reads
            "config": swiftkv(llama(v4, **bf4), 2, 2, 1),
            "dtype": "bf16",
        },
        "qwen2-swiftkv-g1": {
            "config": swiftkv(qwen(v4, "Qwen2", **q2, **bf4), 6, 2, 1),
            "dtype": "bf16",
            "keep": False,
        },
        "qwen2-swiftkv-g2": {
            "config": swiftkv(qwen(v5, "Qwen2", tie_word_embeddings=True, **bf5), 6, 2, 2),
            "dtype": "bf16",
        },
        "qwen3-moe-swiftkv-g2": {
            "config": swiftkv(qwen3_moe(v5), 5, 1, 2),
        },
        "qwen3-swiftkv-g1": {
            "config": swiftkv(qwen(v5, "Qwen3", head_dim=12, attention_bias=False, **bf5), 6, 2, 1),
            "dtype": "bf16",
        },
        "qwen3-swiftkv-g2": {
            "config": swiftkv(qwen(v4, "Qwen3", head_dim=16, attention_bias=False, **q2, **bf4), 6, 2, 2),
            "dtype": "bf16",
            "keep": False,
        },
    }


def swiftkv_hybrid_specs():
    """Hybrids in SwiftKV form: boundaries below a state and below attention, the last layer of either kind."""
    qwen = hybrid_specs()["qwen3-5"]["config"]
    granite = mamba_specs()["granite-h"]["config"]
    deep = {**qwen, "layer_types": [LINEAR, LINEAR, FULL, LINEAR, LINEAR, FULL, LINEAR]}
    flat = {**qwen, "layer_types": [LINEAR, FULL, FULL, LINEAR, LINEAR, FULL], "linear_conv_kernel_dim": 2,
            "linear_key_head_dim": 20, "linear_num_value_heads": 2, "linear_value_head_dim": 8,
            "tie_word_embeddings": False}
    return {
        "qwen3-5-swiftkv": {"config": swiftkv(deep, 7, 3, 1), "gemma": True},
        "qwen3-5-swiftkv-wide-keys": {"config": swiftkv(flat, 6, 2, 1), "gemma": True, "dtype": "bf16"},
        "granite-h-swiftkv": {"config": swiftkv(granite, 5, 1, 1), "gemma": False},
    }
