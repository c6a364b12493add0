/*
 * config.json of every architecture, in the spellings of transformers 4 and 5, field by field;
 * the defaults of each class; what is refused; what config_write.c writes, read back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "alloc_fail.h"
#include "base/buf.h"
#include "describe_config.h"
#include "format/config.h"

typedef struct config_case {
    const char *json, *expected;
} config_case;

#define SMALL                                                                                      \
    "\"vocab_size\":100,\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,"      \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"max_position_embeddings\":512"
#define LLAMA "{\"model_type\":\"llama\"," SMALL
#define COMPRESSED                                                                                 \
    ",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"dense\","
#define GRANITE_H                                                                                  \
    "{\"model_type\":\"granitemoehybrid\"," SMALL ",\"layer_types\":[\"mamba\",\"mamba\","         \
    "\"mamba\",\"attention\"],\"mamba_expand\":4"
#define NEMOTRON "{\"model_type\":\"nemotron_h\"," SMALL
#define FALCON_H1 "{\"model_type\":\"falcon_h1\"," SMALL
#define SMALL_LLAMA " D=64 Dh=16 V=100 ctx=512 eps=1e-06 scale=0.25"
#define SMALL_LAYERS " 4x(4/2 96)"

static const config_case accepted[] = {
    /* The defaults of each class. */
    {"{\"model_type\":\"llama\"}",
     "llama D=4096 Dh=128 V=32000 ctx=2048 eps=1e-06 scale=0.0883883 32x(32/32 11008) "
     "rope plain theta=10000 rot=128 bos=1 eos=2"},
    {"{\"model_type\":\"mistral\"}",
     "mistral D=4096 Dh=128 V=32000 ctx=131072 eps=1e-06 scale=0.0883883 "
     "32x(32/8 14336 window=4096) rope plain theta=10000 rot=128 bos=1 eos=2"},
    {"{\"model_type\":\"qwen2\"}",
     "qwen2 D=4096 Dh=128 V=151936 ctx=32768 eps=1e-06 scale=0.0883883 qkv_bias 32x(32/32 22016) "
     "rope plain theta=10000 rot=128 bos=-1 eos="},
    {"{\"model_type\":\"qwen3\"}",
     "qwen3 D=4096 Dh=128 V=151936 ctx=32768 eps=1e-06 scale=0.0883883 qk_norm 32x(32/32 22016) "
     "rope plain theta=10000 rot=128 bos=-1 eos="},
    {"{\"model_type\":\"qwen3_moe\"}",
     "qwen3_moe D=2048 Dh=64 V=151936 ctx=32768 eps=1e-06 scale=0.125 qk_norm "
     "24x(32/4 768 8 of 128) rope plain theta=10000 rot=64 bos=-1 eos="},
    {"{\"model_type\":\"qwen3_moe\",\"num_hidden_layers\":6,\"decoder_sparse_step\":2,"
     "\"mlp_only_layers\":[3],\"head_dim\":128,\"norm_topk_prob\":true,\"num_experts\":16}",
     "qwen3_moe D=2048 Dh=128 V=151936 ctx=32768 eps=1e-06 scale=0.0883883 qk_norm norm_topk "
     "1x(32/4 6144) 1x(32/4 768 8 of 16) 3x(32/4 6144) 1x(32/4 768 8 of 16) "
     "rope plain theta=10000 rot=128 bos=-1 eos="},
    {"{\"model_type\":\"mixtral\"}",
     "mixtral D=4096 Dh=128 V=32000 ctx=131072 eps=1e-05 scale=0.0883883 norm_topk "
     "32x(32/8 14336 2 of 8) rope plain theta=1000000 rot=128 bos=1 eos=2"},
    {"{\"model_type\":\"phi3\"}",
     "phi3 D=3072 Dh=96 V=32064 ctx=4096 eps=1e-05 scale=0.102062 32x(32/32 8192) "
     "rope plain theta=10000 rot=96 bos=1 eos=32000"},
    {"{\"model_type\":\"gemma2\",\"num_hidden_layers\":4}",
     "gemma2 D=2304 Dh=256 V=256000 ctx=8192 eps=1e-06 scale=0.0625 norm+1 post_norms tied gelu "
     "cap=50 final_cap=30 embed*48 1x(8/4 9216 window=4096) 1x(8/4 9216) "
     "1x(8/4 9216 window=4096) 1x(8/4 9216) rope plain theta=10000 rot=256 bos=2 eos=1"},
    {"{\"model_type\":\"gemma3_text\",\"num_hidden_layers\":7}",
     "gemma3_text D=2304 Dh=256 V=262208 ctx=131072 eps=1e-06 scale=0.0625 norm+1 qk_norm "
     "post_norms tied gelu embed*48 5x(8/4 9216 window=4096 local) 1x(8/4 9216) "
     "1x(8/4 9216 window=4096 local) rope plain theta=1000000 rot=256, local plain theta=10000 "
     "rot=256 bos=2 eos=1"},
    /* Llama: Llama 3.1's scaling in both spellings, biases, head_dim, lists of eos. */
    {LLAMA
     ",\"rope_theta\":500000.0,\"rope_scaling\":{\"factor\":8.0,\"high_freq_factor\":4.0,"
     "\"low_freq_factor\":1.0,\"original_max_position_embeddings\":256,\"rope_type\":"
     "\"llama3\"},\"eos_token_id\":[3,4,4,5],\"bos_token_id\":9,\"torch_dtype\":\"bfloat16\"}",
     "llama" SMALL_LLAMA SMALL_LAYERS
     " rope llama3 theta=500000 rot=16 factor=8 low=1 high=4 from=256 bos=9 eos=3,4,5"},
    {LLAMA ",\"rope_parameters\":{\"rope_theta\":500000.0,\"factor\":8.0,\"high_freq_factor\":4.0,"
           "\"low_freq_factor\":1.0,\"original_max_position_embeddings\":256,\"rope_type\":"
           "\"llama3\"},\"eos_token_id\":[3,4,5],\"bos_token_id\":9,\"dtype\":\"bfloat16\"}",
     "llama" SMALL_LLAMA SMALL_LAYERS
     " rope llama3 theta=500000 rot=16 factor=8 low=1 high=4 from=256 bos=9 eos=3,4,5"},
    {LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},\"attention_bias\":true,"
           "\"mlp_bias\":true,\"head_dim\":24,\"tie_word_embeddings\":true,\"eos_token_id\":null,"
           "\"bos_token_id\":null}",
     "llama D=64 Dh=24 V=100 ctx=512 eps=1e-06 scale=0.204124 qkv_bias o_bias mlp_bias "
     "tied" SMALL_LAYERS " rope linear theta=10000 rot=24 factor=2 bos=-1 eos="},
    {LLAMA ",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2.5,\"rope_theta\":20000}}",
     "llama" SMALL_LLAMA SMALL_LAYERS " rope linear theta=20000 rot=16 factor=2.5 bos=1 eos=2"},
    {LLAMA
     ",\"rope_scaling\":null,\"head_dim\":null,\"rms_norm_eps\":1e-05,\"hidden_act\":\"silu\","
     "\"pretraining_tp\":1,\"quantization_config\":null}",
     "llama D=64 Dh=16 V=100 ctx=512 eps=1e-05 scale=0.25" SMALL_LAYERS
     " rope plain theta=10000 rot=16 bos=1 eos=2"},
    {LLAMA ",\"num_key_value_heads_\":1,\"rope_scaling\":{\"rope_type\":\"default\"},"
           "\"eos_token_id\":128001}",
     "llama" SMALL_LLAMA SMALL_LAYERS " rope plain theta=10000 rot=16 bos=1 eos="},
    {"{\"model_type\":\"llama\",\"vocab_size\":100,\"hidden_size\":64,\"intermediate_size\":96,"
     "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":null}",
     "llama D=64 Dh=16 V=100 ctx=2048 eps=1e-06 scale=0.25 1x(4/4 96) rope plain theta=10000 "
     "rot=16 bos=1 eos=2"},
    /* Mistral: null is no window. */
    {"{\"model_type\":\"mistral\"," SMALL ",\"sliding_window\":null,\"rope_theta\":1000000.0}",
     "mistral" SMALL_LLAMA SMALL_LAYERS " rope plain theta=1000000 rot=16 bos=1 eos=2"},
    {"{\"model_type\":\"mistral\"," SMALL ",\"sliding_window\":128,\"head_dim\":32}",
     "mistral D=64 Dh=32 V=100 ctx=512 eps=1e-06 scale=0.176777 4x(4/2 96 window=128) "
     "rope plain theta=10000 rot=32 bos=1 eos=2"},
    /* Qwen: windows only when switched on, from a layer on or as listed. */
    {"{\"model_type\":\"qwen2\"," SMALL ",\"use_sliding_window\":false,\"sliding_window\":128,"
     "\"max_window_layers\":2,\"rope_theta\":1000000.0,\"eos_token_id\":7}",
     "qwen2" SMALL_LLAMA " qkv_bias" SMALL_LAYERS " rope plain theta=1000000 rot=16 bos=-1 eos=7"},
    {"{\"model_type\":\"qwen2\"," SMALL ",\"use_sliding_window\":true,\"sliding_window\":128,"
     "\"max_window_layers\":3}",
     "qwen2" SMALL_LLAMA " qkv_bias 3x(4/2 96) 1x(4/2 96 window=128) rope plain theta=10000 rot=16 "
     "bos=-1 eos="},
    {"{\"model_type\":\"qwen3\"," SMALL ",\"use_sliding_window\":true,\"sliding_window\":128,"
     "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\","
     "\"full_attention\"],\"head_dim\":16,\"attention_bias\":true}",
     "qwen3" SMALL_LLAMA " qkv_bias o_bias qk_norm 1x(4/2 96) 1x(4/2 96 window=128) 2x(4/2 96) "
     "rope plain theta=10000 rot=16 bos=-1 eos="},
    {"{\"model_type\":\"qwen3\"," SMALL ",\"head_dim\":16,\"rope_scaling\":{\"rope_type\":\"yarn\","
     "\"factor\":4,\"original_max_position_embeddings\":128,\"truncate\":false}}",
     "qwen3" SMALL_LLAMA " qk_norm" SMALL_LAYERS " rope yarn theta=10000 rot=16 factor=4 from=128 "
     "fast=32 slow=1 exact attention=1.13863 bos=-1 eos="},
    /* Ministral 3: a second rope for the queries; SmolLM3: a second one that stands still. */
    {"{\"model_type\":\"ministral3\"," SMALL
     ",\"head_dim\":16,\"rope_parameters\":{\"type\":\"yarn\","
     "\"rope_theta\":1000000,\"factor\":16,\"original_max_position_embeddings\":32,\"mscale\":1,"
     "\"mscale_all_dim\":1,\"llama_4_scaling_beta\":0.1}}",
     "ministral3 D=64 Dh=16 V=100 ctx=512 eps=1e-05 scale=0.25 4x(4/2 96 growing) "
     "rope yarn theta=1000000 rot=16 factor=16 from=32 fast=32 slow=1, "
     "local yarn theta=1000000 rot=16 factor=16 from=32 fast=32 slow=1 growth=0.1 bos=1 eos=2"},
    {"{\"model_type\":\"smollm3\"," SMALL "}",
     "smollm3" SMALL_LLAMA " tied 3x(4/2 96) 1x(4/2 96 local) rope plain theta=2000000 rot=16, "
     "local none theta=2000000 rot=16 bos=-1 eos="},
    {"{\"model_type\":\"granite\"," SMALL
     ",\"embedding_multiplier\":12,\"residual_multiplier\":0.5,"
     "\"attention_multiplier\":0.125,\"logits_scaling\":8}",
     "granite D=64 Dh=16 V=100 ctx=512 eps=4e-06 scale=0.125 embed*24 logits/8" SMALL_LAYERS
     " rope plain theta=10000 rot=16 bos=1 eos=2"},
    {"{\"model_type\":\"olmo3\"," SMALL ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8,"
     "\"original_max_position_embeddings\":64}}",
     "olmo3 D=64 Dh=16 V=100 ctx=512 eps=1e-05 scale=0.25 qk_norm post_norms "
     "3x(4/2 96 window=4096 local) 1x(4/2 96) rope yarn theta=500000 rot=16 factor=8 from=64 "
     "fast=32 "
     "slow=1 attention=1.20794, local plain theta=500000 rot=16 bos=-1 eos="},
    {"{\"model_type\":\"glm4\"," SMALL ",\"head_dim\":null}",
     "glm4 D=64 Dh=16 V=100 ctx=512 eps=1.5625e-07 scale=0.25 qkv_bias post_norms" SMALL_LAYERS
     " rope plain theta=10000 rot=8 bos=-1 eos="},
    /* Phi-3: longrope's factors, su and yarn as its old names, the original context beside it. */
    {"{\"model_type\":\"phi3\"," SMALL ",\"original_max_position_embeddings\":128,"
     "\"partial_rotary_factor\":0.5,\"sliding_window\":300,\"rope_scaling\":{\"type\":\"longrope\","
     "\"short_factor\":[1,1.5,2,2.5],\"long_factor\":[1,2,4,8]},\"eos_token_id\":[3]}",
     "phi3 D=64 Dh=16 V=100 ctx=512 eps=1e-05 scale=0.25 4x(4/2 96 window=300) "
     "rope longrope theta=10000 rot=8 factor=4 from=128 attention=1.13389 1/1 1.5/2 2/4 2.5/8 "
     "bos=1 eos=3"},
    {"{\"model_type\":\"phi3\"," SMALL ",\"original_max_position_embeddings\":128,"
     "\"sliding_window\":null,\"rope_parameters\":{\"rope_type\":\"longrope\",\"rope_theta\":10000,"
     "\"partial_rotary_factor\":0.5,\"original_max_position_embeddings\":128,"
     "\"short_factor\":[1,1.5,2,2.5],\"long_factor\":[1,2,4,8],\"attention_factor\":1.25}}",
     "phi3 D=64 Dh=16 V=100 ctx=512 eps=1e-05 scale=0.25" SMALL_LAYERS
     " rope longrope theta=10000 rot=8 factor=4 from=128 attention=1.25 1/1 1.5/2 2/4 2.5/8 "
     "bos=1 eos="},
    {"{\"model_type\":\"phi3\"," SMALL ",\"partial_rotary_factor\":0.125,\"rope_scaling\":"
     "{\"type\":\"su\",\"short_factor\":[1],\"long_factor\":[2]}}",
     "phi3 D=64 Dh=16 V=100 ctx=512 eps=1e-05 scale=0.25" SMALL_LAYERS
     " rope longrope theta=10000 rot=2 factor=0.125 from=4096 1/2 bos=1 eos="},
    {"{\"model_type\":\"phi3\"," SMALL ",\"partial_rotary_factor\":0.125,"
     "\"original_max_position_embeddings\":512,\"rope_scaling\":"
     "{\"type\":\"yarn\",\"short_factor\":[1],\"long_factor\":[2]}}",
     "phi3 D=64 Dh=16 V=100 ctx=512 eps=1e-05 scale=0.25" SMALL_LAYERS
     " rope longrope theta=10000 rot=2 from=512 1/2 bos=1 eos="},
    /* Gemma 2: sqrt(3584) = 59.87 rounds to 59.75 in bfloat16; caps may be null. */
    {"{\"model_type\":\"gemma2\"," SMALL ",\"head_dim\":16,\"query_pre_attn_scalar\":144,"
     "\"sliding_window\":32,\"torch_dtype\":\"bfloat16\",\"hidden_act\":\"gelu_pytorch_tanh\","
     "\"attn_logit_softcapping\":null,\"hidden_size_\":0}",
     "gemma2 D=64 Dh=16 V=100 ctx=512 eps=1e-06 scale=0.0833333 norm+1 post_norms tied gelu "
     "final_cap=30 embed*8 1x(4/2 96 window=32) 1x(4/2 96) 1x(4/2 96 window=32) 1x(4/2 96) "
     "rope plain theta=10000 rot=16 bos=2 eos=1"},
    {"{\"model_type\":\"gemma2\",\"vocab_size\":100,\"hidden_size\":3584,\"num_hidden_layers\":1,"
     "\"dtype\":\"bfloat16\",\"layer_types\":[\"full_attention\"]}",
     "gemma2 D=3584 Dh=256 V=100 ctx=8192 eps=1e-06 scale=0.0625 norm+1 post_norms tied gelu "
     "cap=50 final_cap=30 embed*59.75 1x(8/4 9216) rope plain theta=10000 rot=256 bos=2 eos=1"},
    {"{\"model_type\":\"gemma2\",\"vocab_size\":100,\"hidden_size\":3584,\"num_hidden_layers\":1,"
     "\"torch_dtype\":\"float16\",\"layer_types\":[\"full_attention\"]}",
     "gemma2 D=3584 Dh=256 V=100 ctx=8192 eps=1e-06 scale=0.0625 norm+1 post_norms tied gelu "
     "cap=50 final_cap=30 embed*59.875 1x(8/4 9216) rope plain theta=10000 rot=256 bos=2 eos=1"},
    /* Gemma 3: two rotations; a file with images holds its text part inside. */
    {"{\"model_type\":\"gemma3_text\"," SMALL ",\"head_dim\":16,\"sliding_window\":32,"
     "\"sliding_window_pattern\":2,\"rope_theta\":500000,\"rope_local_base_freq\":5000,"
     "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8.0},\"dtype\":\"float32\"}",
     "gemma3_text D=64 Dh=16 V=100 ctx=512 eps=1e-06 scale=0.0625 norm+1 qk_norm post_norms tied "
     "gelu embed*8 1x(4/2 96 window=32 local) 1x(4/2 96) 1x(4/2 96 window=32 local) 1x(4/2 96) "
     "rope linear theta=500000 rot=16 factor=8, local plain theta=5000 rot=16 bos=2 eos=1"},
    {"{\"model_type\":\"gemma3\",\"dtype\":\"bfloat16\",\"eos_token_id\":[1,106],\"text_config\":{"
     "\"model_type\":\"gemma3_text\"," SMALL ",\"head_dim\":16,\"sliding_window\":32,"
     "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\","
     "\"full_attention\"],\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\","
     "\"factor\":8.0,\"rope_theta\":500000},\"sliding_attention\":{\"rope_type\":\"default\","
     "\"rope_theta\":5000}}}}",
     "gemma3_text D=64 Dh=16 V=100 ctx=512 eps=1e-06 scale=0.0625 norm+1 qk_norm post_norms tied "
     "gelu embed*8 1x(4/2 96 window=32 local) 1x(4/2 96) 1x(4/2 96 window=32 local) 1x(4/2 96) "
     "rope linear theta=500000 rot=16 factor=8, local plain theta=5000 rot=16 bos=2 eos=1"},
    /* OpenELM: lists, and multipliers that reproduce the published 270M model's shapes. */
    {"{\"model_type\":\"openelm\",\"model_dim\":1280,\"head_dim\":64,\"num_transformer_layers\":16,"
     "\"num_gqa_groups\":4,\"qkv_multipliers\":[0.5,1.0],\"ffn_multipliers\":[0.5,4.0],"
     "\"normalize_qk_projections\":true,\"share_input_output_layers\":true}",
     "openelm D=1280 Dh=64 V=32000 ctx=2048 eps=1e-06 scale=0.125 qk_norm tied 1x(12/3 768) "
     "1x(12/3 1024) 1x(12/3 1280) 1x(12/3 1536) 1x(12/3 1792) 1x(16/4 2048) 1x(16/4 2560) "
     "1x(16/4 2816) 1x(16/4 3072) 1x(16/4 3328) 1x(16/4 3584) 1x(16/4 3840) 1x(20/5 4352) "
     "1x(20/5 4608) 1x(20/5 4864) 1x(20/5 5120) rope plain theta=10000 rot=64 bos=1 eos=2"},
    {"{\"model_type\":\"openelm\",\"model_dim\":64,\"head_dim\":16,\"num_transformer_layers\":3,"
     "\"num_query_heads\":[4,4,8],\"num_kv_heads\":[1,2,2],\"ffn_multipliers\":[1,1.5,2],"
     "\"ffn_dim_divisor\":32,\"vocab_size\":50,\"rope_freq_constant\":5000}",
     "openelm D=64 Dh=16 V=50 ctx=2048 eps=1e-06 scale=0.25 1x(4/1 64) 1x(4/2 96) 1x(8/2 128) "
     "rope plain theta=5000 rot=16 bos=1 eos=2"},
    /* Layers that read the keys and values of others. */
    {LLAMA ",\"num_kv_shared_layers\":3}",
     "llama" SMALL_LLAMA " shared=3" SMALL_LAYERS " rope plain theta=10000 rot=16 bos=1 eos=2"},
    {LLAMA ",\"num_kv_shared_layers\":null}",
     "llama" SMALL_LLAMA SMALL_LAYERS " rope plain theta=10000 rot=16 bos=1 eos=2"},
    /* SwiftKV. */
    {"{\"model_type\":\"llama_swiftkv\"," SMALL ",\"num_key_value_layers\":2,"
     "\"key_value_group_size\":2,\"swiftkv\":true}",
     "llama_swiftkv" SMALL_LLAMA " swiftkv=2/2" SMALL_LAYERS
     " rope plain theta=10000 rot=16 bos=1 eos=2"},
    {"{\"model_type\":\"qwen2_swiftkv\"," SMALL ",\"num_key_value_layers\":3,\"swiftkv\":false}",
     "qwen2_swiftkv" SMALL_LLAMA " qkv_bias swiftkv=3/1" SMALL_LAYERS
     " rope plain theta=10000 rot=16 bos=-1 eos="},
    {"{\"model_type\":\"qwen3_swiftkv\"," SMALL ",\"head_dim\":16,\"num_key_value_layers\":null,"
     "\"key_value_group_size\":null}",
     "qwen3_swiftkv" SMALL_LLAMA " qk_norm swiftkv=4/1" SMALL_LAYERS
     " rope plain theta=10000 rot=16 bos=-1 eos="},
};

/* Layers that keep a state, which are read and not written: the defaults, and files inside those of
 * models with images. */
static const config_case hybrids[] = {
    /* Widths: 2/3 of 900 by 1.5, in steps of 64; or as it stands. */
    {"{\"model_type\":\"lfm2\"," SMALL ",\"full_attn_idxs\":[1,3],\"block_ff_dim\":900,"
     "\"block_ffn_dim_multiplier\":1.5,\"block_multiple_of\":64,\"conv_L_cache\":5,"
     "\"norm_eps\":1e-4,\"tie_embedding\":false}",
     "lfm2 D=64 Dh=16 V=100 ctx=512 eps=0.0001 scale=0.25 qk_norm state=0/0 0x0 conv=5 "
     "1x(4/2 960 conv) 1x(4/2 960) 1x(4/2 960 conv) 1x(4/2 960) rope plain theta=1000000 rot=16 "
     "bos=1 eos=2"},
    {"{\"model_type\":\"lfm2\"," SMALL ",\"layer_types\":[\"conv\",\"conv\",\"full_attention\","
     "\"conv\"],\"block_auto_adjust_ff_dim\":false,\"rope_parameters\":{\"rope_theta\":10000.0}}",
     "lfm2 D=64 Dh=16 V=100 ctx=512 eps=1e-05 scale=0.25 qk_norm tied state=0/0 0x0 conv=3 "
     "2x(4/2 96 conv) 1x(4/2 96) 1x(4/2 96 conv) rope plain theta=10000 rot=16 bos=1 eos=2"},
    /* Granite 4 H: as published and as transformers 5 saves it; a limit that is none, in either. */
    {"{\"model_type\":\"granitemoehybrid\"," SMALL ",\"layer_types\":[\"mamba\",\"attention\","
     "\"mamba\",\"mamba\"],\"residual_multiplier\":0.5,\"attention_multiplier\":0.125,"
     "\"num_local_experts\":6,\"num_experts_per_tok\":3,\"shared_intermediate_size\":72,"
     "\"mamba_n_heads\":8,\"mamba_n_groups\":2,\"time_step_limit\":[0.001,Infinity]}",
     "granitemoehybrid D=64 Dh=16 V=100 ctx=512 eps=4e-06 scale=0.125 norm_topk shared_plain "
     "gate_first embed*2 state=8/2 256x16 conv=4 conv_bias dt=0.001..0 norm_eps=1e-06 "
     "1x(4/2 96 3 of 6 and 72 mamba) 1x(4/2 96 3 of 6 and 72) 2x(4/2 96 3 of 6 and 72 mamba) "
     "rope none theta=10000 rot=16 bos=1 eos=2"},
    {"{\"model_type\":\"granitemoehybrid\"," SMALL ",\"layers_block_type\":[\"linear_attention\","
     "\"linear_attention\",\"full_attention\",\"full_attention\"],\"num_local_experts\":0,"
     "\"shared_intermediate_size\":72,\"mamba_n_heads\":4,\"mamba_d_head\":\"auto\","
     "\"mamba_d_state\":32,\"mamba_d_conv\":3,\"mamba_conv_bias\":false,"
     "\"position_embedding_type\":\"rope\",\"mamba_expand\":3,"
     "\"time_step_limit\":[0.0,{\"__float__\":\"Infinity\"}]}",
     "granitemoehybrid D=64 Dh=16 V=100 ctx=512 eps=1e-06 scale=1 shared_plain gate_first "
     "state=4/1 32x48 "
     "conv=3 2x(4/2 72 mamba) 2x(4/2 72) rope plain theta=10000 rot=16 bos=1 eos=2"},
    /* A pattern of letters, and a list of words that stands for more layers than the number says.
     */
    {NEMOTRON
     ",\"head_dim\":16,\"hybrid_override_pattern\":\"M*-E\",\"n_routed_experts\":6,"
     "\"num_experts_per_tok\":3,\"moe_intermediate_size\":24,\"routed_scaling_factor\":2.5,"
     "\"moe_shared_expert_intermediate_size\":40,\"moe_latent_size\":32,\"norm_topk_prob\":false,"
     "\"time_step_min\":0.001,\"time_step_max\":0.1,\"time_step_limit\":[0.0, Infinity]}",
     "nemotron_h D=64 Dh=16 V=100 ctx=512 eps=1e-05 scale=0.25 shared_plain sigmoid choice_bias "
     "single gate_first relu2 routed*2.5 latent=32 state=128/8 128x64 conv=4 conv_bias 1x(4/2 0 "
     "mamba) 1x(4/2 0) 1x(4/2 96 none) 1x(4/2 24 3 of 6 and 40 none) rope none theta=10000 rot=16 "
     "bos=1 eos=2"},
    {NEMOTRON
     ",\"layers_block_type\":[\"mamba\",\"mlp\",\"attention\",\"linear_attention\","
     "\"full_attention\"],\"mamba_num_heads\":6,\"n_groups\":3,\"mamba_head_dim\":20,"
     "\"ssm_state_size\":48,\"conv_kernel\":3,\"use_conv_bias\":false,\"layer_norm_epsilon\":1e-6}",
     "nemotron_h D=64 Dh=128 V=100 ctx=512 eps=1e-06 scale=0.0883883 norm_topk shared_plain "
     "sigmoid choice_bias single gate_first relu2 routed*1 state=6/3 48x20 conv=3 1x(4/2 0 mamba) "
     "1x(4/2 96 none) 1x(4/2 0) 1x(4/2 0 mamba) 1x(4/2 0) rope none theta=10000 rot=128 bos=1 "
     "eos=2"},
    /* Every layer is both. Its multipliers go where they can. */
    {FALCON_H1
     ",\"ssm_multipliers\":[0.5,1,2,3,0.25],\"ssm_in_multiplier\":2,"
     "\"ssm_out_multiplier\":0.75,\"attention_in_multiplier\":0.5,\"attention_out_multiplier\":3,"
     "\"key_multiplier\":0.5,\"mlp_multipliers\":[1.5,1],\"embedding_multiplier\":4,"
     "\"lm_head_multiplier\":0.5,\"rope_theta\":1e11,\"mamba_d_ssm\":96,\"mamba_n_heads\":4}",
     "falcon_h1 D=64 Dh=16 V=100 ctx=512 eps=1e-05 scale=0.03125 no_norm embed*4 logits/2 part1*2 "
     "part2*4 part3*6 part4*0.5 part5*0.75 part6*1.5 part7*1.5 state=4/1 256x24 conv=4 conv_bias "
     "4x(4/2 96 both) rope plain theta=1e+11 rot=16 bos=1 eos=2"},
    {FALCON_H1 ",\"mamba_rms_norm\":true,\"mamba_norm_before_gate\":false,\"mamba_d_ssm\":null,"
               "\"mamba_n_heads\":8,\"mamba_expand\":3}",
     "falcon_h1 D=64 Dh=16 V=100 ctx=512 eps=1e-05 scale=0.25 gate_first state=8/1 256x24 conv=4 "
     "conv_bias 4x(4/2 96 both) rope plain theta=10000 rot=16 bos=1 eos=2"},
    /* No positions where theta is null; factors of 1 where none is to be negative. */
    {"{\"model_type\":\"olmo_hybrid\"," SMALL ",\"rope_parameters\":{\"rope_theta\":null}}",
     "olmo_hybrid D=64 Dh=16 V=100 ctx=512 eps=1e-06 scale=0.25 qk_norm post_norms state_pre_norms "
     "write=2 state=4/4 12x24 conv=4 norm_eps=1e-05 3x(4/2 96 delta) 1x(4/2 96) rope none "
     "theta=10000 rot=16 bos=-1 eos="},
    {"{\"model_type\":\"olmo_hybrid\"," SMALL ",\"linear_allow_neg_eigval\":false,"
     "\"linear_key_head_dim\":8,\"layer_types\":[\"full_attention\",\"linear_attention\","
     "\"full_attention\",\"full_attention\"]}",
     "olmo_hybrid D=64 Dh=16 V=100 ctx=512 eps=1e-06 scale=0.25 qk_norm post_norms state_pre_norms "
     "state=4/4 8x16 conv=4 norm_eps=1e-05 1x(4/2 96) 1x(4/2 96 delta) 2x(4/2 96) rope plain "
     "theta=10000 rot=16 bos=-1 eos="},
    {"{\"model_type\":\"lfm2_moe\"," SMALL ",\"layer_types\":[\"conv\",\"full_attention\",\"conv\","
     "\"conv\"],\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,"
     "\"num_dense_layers\":1,\"routed_scaling_factor\":2,\"use_expert_bias\":false}",
     "lfm2_moe D=64 Dh=16 V=100 ctx=512 eps=1e-05 scale=0.25 qk_norm tied norm_topk sigmoid "
     "routed*2 state=0/0 0x0 conv=3 1x(4/2 96 conv) 1x(4/2 32 2 of 8) 2x(4/2 32 2 of 8 conv) rope "
     "plain theta=1000000 rot=16 bos=1 eos=2"},
    {"{\"model_type\":\"qwen3_next\",\"num_hidden_layers\":5,\"mlp_only_layers\":[4]}",
     "qwen3_next D=2048 Dh=256 V=151936 ctx=32768 eps=1e-06 scale=0.0625 norm+1 qk_norm norm_topk "
     "state=32/16 128x128 conv=4 gate 3x(16/2 512 10 of 512 and 512 delta) "
     "1x(16/2 512 10 of 512 and 512) 1x(16/2 5632 delta) rope plain theta=10000 rot=64 bos=-1 "
     "eos="},
    {"{\"model_type\":\"qwen3_5\",\"tie_word_embeddings\":true,\"text_config\":{" SMALL
     ",\"head_dim\":16,\"linear_num_key_heads\":2,\"linear_num_value_heads\":6,"
     "\"linear_key_head_dim\":8,\"linear_value_head_dim\":24,\"linear_conv_kernel_dim\":3,"
     "\"full_attention_interval\":2,\"attn_output_gate\":false,\"rope_parameters\":{\"rope_type\":"
     "\"yarn\",\"factor\":4,\"original_max_position_embeddings\":128,\"rope_theta\":1e7,"
     "\"partial_rotary_factor\":0.5,\"mrope_section\":[2,1,1]}}}",
     "qwen3_5_text D=64 Dh=16 V=100 ctx=512 eps=1e-06 scale=0.25 norm+1 qk_norm tied "
     "state=6/2 8x24 conv=3 1x(4/2 96 delta) 1x(4/2 96) 1x(4/2 96 delta) 1x(4/2 96) "
     "rope yarn theta=10000000 rot=8 factor=4 from=128 fast=32 slow=1 attention=1.13863 bos=-1 "
     "eos="},
    {"{\"model_type\":\"qwen3_5_moe\",\"tie_word_embeddings\":true,\"text_config\":{\"model_type\":"
     "\"qwen3_5_moe_text\"," SMALL ",\"layer_types\":[\"linear_attention\",\"full_attention\","
     "\"full_attention\",\"linear_attention\"],\"tie_word_embeddings\":false,\"num_experts\":16,"
     "\"num_experts_per_tok\":3,\"moe_intermediate_size\":32,"
     "\"shared_expert_intermediate_size\":48}}",
     "qwen3_5_moe_text D=64 Dh=256 V=100 ctx=512 eps=1e-06 scale=0.0625 norm+1 qk_norm norm_topk "
     "state=32/16 128x128 conv=4 gate 1x(4/2 32 3 of 16 and 48 delta) 2x(4/2 32 3 of 16 and 48) "
     "1x(4/2 32 3 of 16 and 48 delta) rope plain theta=10000 rot=64 bos=-1 eos="},
};

static void check_cases(const config_case *cases, size_t n)
{
    skv_buf text;
    skv_buf_init(&text, 1 << 16);
    for (size_t i = 0; i < n; i++) {
        skv_config c = {0};
        skv_error err = {0};
        const char *json = cases[i].json;
        if (skv_config_parse(json, strlen(json), "config.json", &c, &err) != SKV_OK) {
            fail_msg("%s\n  %s", json, err.text);
        }
        describe_config(&c, &text);
        assert_string_equal(text.data, cases[i].expected);
        skv_config_release(&c);
    }
    skv_buf_release(&text);
}

static void reads_every_architecture(void **state)
{
    (void)state;
    check_cases(accepted, sizeof accepted / sizeof *accepted);
    check_cases(hybrids, sizeof hybrids / sizeof *hybrids);
}

static const config_case refused[] = {
    {"", "line 1"},
    {"[]", "an array of 0, expected a JSON object"},
    {"{\"a\":1,\"a\":2}", "duplicate"},
    {"{}", "model_type: missing"},
    {"{\"model_type\":7}", "model_type: 7, expected text"},
    {"{\"model_type\":\"mamba\"}", "model_type mamba is not supported"},
    {"{\"model_type\":\"mixtral\",\"num_local_experts\":0}",
     "num_local_experts 0, expected 1 or more"},
    {"{\"model_type\":\"mixtral\",\"num_local_experts\":2.5}", "num_local_experts: 2.5"},
    {"{\"model_type\":\"mixtral\",\"num_experts_per_tok\":9}",
     "num_experts_per_tok 9, expected 1 to the 8 experts"},
    {"{\"model_type\":\"qwen3_moe\",\"num_experts_per_tok\":0}", "num_experts_per_tok 0"},
    {"{\"model_type\":\"qwen3_moe\",\"num_experts\":100000}", "num_experts 100000"},
    {"{\"model_type\":\"mixtral\",\"num_local_experts\":100000}", "num_local_experts 100000"},
    {"{\"model_type\":\"qwen3_moe\",\"moe_intermediate_size\":0}", "moe_intermediate_size 0"},
    {"{\"model_type\":\"gpt_oss\",\"intermediate_size\":0}", ": intermediate_size 0"},
    {"{\"model_type\":\"qwen3_moe\",\"moe_intermediate_size\":0}", "intermediate_size 0"},
    {"{\"model_type\":\"qwen3_moe\",\"decoder_sparse_step\":0}", "decoder_sparse_step 0"},
    {"{\"model_type\":\"qwen3_moe\",\"mlp_only_layers\":[\"0\"]}", "mlp_only_layers: "},
    {"{\"model_type\":\"qwen3_moe\",\"mlp_only_layers\":3}", "mlp_only_layers: 3"},
    {"{\"model_type\":\"qwen2_moe\"}", "model_type qwen2_moe is not supported"},
    {"{\"model_type\":\"qwen4_exp\"}", "not supported: sparse attention with an indexer"},
    {"{\"model_type\":\"kimi_linear\"}", "kimi_linear is not supported: latent attention"},
    {"{\"model_type\":\"granitemoehybrid\"}", "layer_types: missing, expected one entry a layer"},
    {"{\"model_type\":\"granitemoehybrid\"," SMALL ",\"layer_types\":[\"mamba\",\"mamba\","
     "\"mamba\",\"conv\"]}",
     "layer_types: \"conv\", expected attention or mamba"},
    {GRANITE_H ",\"mamba_proj_bias\":true}", "mamba_proj_bias: true is not supported"},
    {GRANITE_H ",\"mamba_n_groups\":3}",
     "mamba_n_heads 128, expected a multiple of mamba_n_groups 3"},
    {GRANITE_H ",\"time_step_limit\":[2,1]}", "time_step_limit 2 to 1, expected"},
    {GRANITE_H ",\"time_step_limit\":[-Infinity,1]}", "line 1, column "},
    {GRANITE_H ",\"time_step_limit\":[1]}", "time_step_limit: an array of 1, expected two numbers"},
    {GRANITE_H ",\"mamba_d_state\":513}", "mamba_d_state 513, expected 1 to 512"},
    {GRANITE_H ",\"shared_intermediate_size\":0,\"num_local_experts\":0}",
     "shared_intermediate_size 0 (layer 0)"},
    {"{\"model_type\":\"lfm2_moe\"}", "layer_types: missing, expected one entry a layer"},
    {"{\"model_type\":\"lfm3\"}", "lfm3 is not supported: norms around its blocks"},
    {"{\"model_type\":\"bailing_hybrid\"}", "bailing_hybrid is not supported: latent attention"},
    {NEMOTRON ",\"hybrid_override_pattern\":\"M*-X\"}",
     "layers_block_type: X, expected M, *, -, E or"},
    {NEMOTRON ",\"layers_block_type\":[\"mamba\",\"attention\",3]}",
     "layers_block_type: , expected"},
    {NEMOTRON ",\"layers_block_type\":7}", "layers_block_type: 7, expected a list"},
    {NEMOTRON "}", "layers_block_type: missing, expected a list, or hybrid_override_pattern"},
    {NEMOTRON ",\"hybrid_override_pattern\":\"\"}", "num_hidden_layers 0, expected 1 to 512"},
    {NEMOTRON ",\"hybrid_override_pattern\":\"M-ME\"}", "no layer has attention"},
    {NEMOTRON ",\"hybrid_override_pattern\":\"*-*-\"}",
     "no layer keeps a state: nemotron_h without"},
    {NEMOTRON ",\"hybrid_override_pattern\":\"M*\",\"mlp_hidden_act\":\"silu\"}",
     "mlp_hidden_act: silu is not supported"},
    {NEMOTRON ",\"hybrid_override_pattern\":\"M*\",\"use_bias\":true}",
     "use_bias: true is not supported"},
    {NEMOTRON ",\"hybrid_override_pattern\":\"M*E\",\"n_group\":4}",
     "n_group: 4: experts in groups are not supported"},
    {NEMOTRON ",\"hybrid_override_pattern\":\"M*E\",\"routed_scaling_factor\":-1}",
     "routed_scaling_factor -1, expected a positive number"},
    {"{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"M*-\",\"intermediate_size\":"
     "16777217}",
     "intermediate_size 16777217 (layer 2)"},
    {FALCON_H1 ",\"ssm_multipliers\":[1,1,1,1]}",
     "ssm_multipliers: an array of 4, expected 5 numbers"},
    {FALCON_H1 ",\"mlp_multipliers\":[1,0]}", "mlp_multipliers: 0, expected a number other than 0"},
    {FALCON_H1 ",\"lm_head_multiplier\":-2}", "logits_scaling -0.5, expected a positive number"},
    {FALCON_H1 ",\"ssm_in_multiplier\":1e7}", "a multiplier 1e+07, expected at most 1e6"},
    {FALCON_H1 ",\"projectors_bias\":true}", "projectors_bias: true is not supported"},
    {FALCON_H1 ",\"mamba_n_heads\":0}", "mamba_n_heads 0, expected 1 to 4096"},
    {"{\"model_type\":\"lfm2\",\"conv_bias\":true}", "conv_bias: true is not supported"},
    {"{\"model_type\":\"lfm2\",\"full_attn_idxs\":[]}", "no layer has attention"},
    {"{\"model_type\":\"lfm2\",\"full_attn_idxs\":[1],\"conv_L_cache\":9}",
     "conv_L_cache 9, expected 2 to 8"},
    {"{\"model_type\":\"lfm2\",\"block_ffn_dim_multiplier\":-1}", "block_ffn_dim_multiplier -1"},
    {"{\"model_type\":\"qwen3_next\",\"full_attention_interval\":0}",
     "full_attention_interval: 0, expected 1 or more"},
    {"{\"model_type\":\"qwen3_next\",\"full_attention_interval\":100}",
     "no layer has attention: models without any are not supported"},
    {"{\"model_type\":\"qwen3_next\",\"layer_types\":[\"full_attention\"]}", "layer_types: "},
    {"{\"model_type\":\"qwen3_5_text\",\"num_hidden_layers\":2,\"layer_types\":[\"full_attention\","
     "\"mamba\"]}",
     "layer_types: \"mamba\", expected full_attention or linear_attention"},
    {"{\"model_type\":\"qwen3_5_text\",\"linear_num_value_heads\":24}",
     "linear_num_value_heads 24, expected a multiple of linear_num_key_heads 16"},
    {"{\"model_type\":\"qwen3_5_text\",\"linear_num_key_heads\":0}", "linear_num_key_heads 0"},
    {"{\"model_type\":\"qwen3_5_text\",\"linear_key_head_dim\":513}", "linear_key_head_dim 513"},
    {"{\"model_type\":\"qwen3_5_text\",\"linear_conv_kernel_dim\":1}",
     "linear_conv_kernel_dim 1, expected 2 to 8"},
    {"{\"model_type\":\"qwen3_5_moe_text\",\"shared_expert_intermediate_size\":16777217}",
     "shared_expert_intermediate_size 16777217"},
    {"{\"model_type\":\"qwen3_5_text_swiftkv\",\"key_value_group_size\":2}",
     "key_value_group_size 2: only 1 fits layers that keep a state"},
    {"{\"model_type\":\"qwen3_5_text_swiftkv\",\"swiftkv_early_exit\":true}",
     "swiftkv_early_exit: does not fit layers that keep a state"},
    {"{\"model_type\":\"lfm2_swiftkv\",\"full_attn_idxs\":[1]}",
     "layers that are a short convolution alone"},
    {"{\"model_type\":\"falcon_h1_swiftkv\"}", "layers with attention beside a state"},
    {"{\"model_type\":\"deepseek_v2_swiftkv\"}", "model_type deepseek_v2_swiftkv"},
    {"{\"model_type\":\"_swiftkv\"}", "model_type _swiftkv is not supported"},
    {LLAMA ",\"quantization_config\":{\"quant_method\":\"bitsandbytes\"}}",
     "quantization_config: quant_method bitsandbytes is not supported"},
    {LLAMA ",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"nvfp4-"
           "pack-quantized\"}}",
     "quant_method compressed-tensors, format nvfp4-pack-quantized is not"},
    {LLAMA ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":8}}",
     "quantization_config: bits 8 of gptq is not supported"},
    {LLAMA ",\"quantization_config\":{\"quant_method\":\"gptq\",\"checkpoint_format\":\"marlin\"}}",
     "checkpoint_format marlin is not supported"},
    {LLAMA ",\"quantization_config\":{\"quant_method\":\"awq\",\"version\":\"gemv\"}}",
     "version gemv of awq is not supported"},
    {LLAMA ",\"quantization_config\":{\"quant_method\":\"awq\",\"group_size\":-2}}",
     "group_size: -2, expected 0 to"},
    {LLAMA ",\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128]}}",
     "weight_block_size: an array of 1, expected two integers"},
    {LLAMA ",\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[0,128]}}",
     "weight_block_size: 0, expected 1 or more"},
    {LLAMA ",\"quantization_config\":{\"quant_method\":3}}", "quant_method: 3, expected text"},
    {LLAMA COMPRESSED "\"transform_config\":{\"config_groups\":{\"R1\":{}}}}}",
     "quantization_config: transform_config is not supported"},
    {LLAMA COMPRESSED "\"config_groups\":{\"a\":{\"weights\":{\"block_structure\":[128,0]}}}}}",
     "block_structure: 0, expected 1 or more"},
    {LLAMA COMPRESSED "\"config_groups\":{\"a\":{\"weights\":{\"block_structure\":[8,8]}},"
                      "\"b\":{\"weights\":{\"block_structure\":[8,16]}}}}}",
     "more than one block_structure is not supported"},
    {LLAMA COMPRESSED "\"config_groups\":{\"a\":{\"weights\":{\"num_bits\":-4}}}}}",
     "num_bits: -4, expected 0 to"},
    {LLAMA COMPRESSED "\"config_groups\":{\"a\":{\"weights\":4}}}}",
     "weights: 4, expected an object"},
    {LLAMA ",\"swiftkv_base\":\"../x\"}", "swiftkv_base: "},
    {LLAMA ",\"num_local_experts\":8}", "num_local_experts: 8: mixtures of experts"},
    {LLAMA ",\"hidden_act\":\"relu\"}", "hidden_act: relu is not supported"},
    {"{\"model_type\":\"gemma2\",\"hidden_activation\":\"gelu\"}",
     "hidden_activation: gelu is not"},
    {LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"beta_fast\":0.5}}",
     "beta_fast 0.5, expected beta_slow 1 or more"},
    {LLAMA ",\"rope_theta\":1,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4}}",
     "rope_theta 1, expected above 1"},
    {"{\"model_type\":\"ministral3\"," SMALL "}", "rope_parameters: missing"},
    {"{\"model_type\":\"ministral3\"," SMALL ",\"rope_parameters\":{\"llama_4_scaling_beta\":-1}}",
     "llama_4_scaling_beta -1, expected a positive number"},
    {"{\"model_type\":\"smollm3\"," SMALL ",\"no_rope_layers\":[1]}",
     "no_rope_layers: an array of 1, expected one entry a layer"},
    {"{\"model_type\":\"smollm3\"," SMALL ",\"no_rope_layers\":[1,0,2,0]}", "no_rope_layers: 2"},
    {"{\"model_type\":\"granite\"," SMALL ",\"residual_multiplier\":0}",
     "residual_multiplier: 0, expected a positive number"},
    {"{\"model_type\":\"olmo2_swiftkv\"," SMALL ",\"num_key_value_layers\":2}",
     "model_type olmo2_swiftkv: SwiftKV needs a norm before attention"},
    {LLAMA ",\"rope_scaling\":{\"type\":\"ntk\",\"factor\":4}}", "rope_type: not supported: ntk"},
    {LLAMA ",\"rope_scaling\":{\"type\":\"linear\"}}", "rope_scaling.factor 0"},
    {LLAMA ",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8}}", "low_freq_factor 0"},
    {LLAMA ",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
           "\"high_freq_factor\":4}}",
     "high_freq_factor 4, expected above"},
    {LLAMA ",\"rope_scaling\":[]}", "rope_scaling: an array of 0, expected an object"},
    {LLAMA ",\"rope_parameters\":7}", "rope_parameters: 7, expected an object"},
    {LLAMA ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[1]}}",
     "short_factor: 1 values, expected 8"},
    {LLAMA ",\"rope_scaling\":{\"type\":\"longrope\"}}", "short_factor: 0 values"},
    {"{\"model_type\":\"phi3\"," SMALL
     ",\"partial_rotary_factor\":0.125,\"rope_scaling\":{\"type\":"
     "\"longrope\",\"short_factor\":[0],\"long_factor\":[2]}}",
     "short_factor[0] 0"},
    {LLAMA ",\"rope_theta\":-1}", "rope_theta -1"},
    {LLAMA ",\"rope_theta\":\"big\"}", "rope_theta: \"big\", expected a number"},
    {LLAMA ",\"partial_rotary_factor\":2}", "partial_rotary_factor: 2, expected"},
    {LLAMA ",\"partial_rotary_factor\":0.07}", "partial_rotary_factor: 1 rotated dimensions of 16"},
    {LLAMA ",\"rms_norm_eps\":0}", "rms_norm_eps 0"},
    {LLAMA ",\"head_dim\":5000}", "head_dim 5000"},
    {LLAMA ",\"head_dim\":15}", "15 rotated dimensions"},
    {LLAMA ",\"head_dim\":-1}", "head_dim: -1, expected 0 to"},
    {LLAMA ",\"head_dim\":16.0}", "head_dim: 16.0000, expected an integer"},
    {LLAMA ",\"attention_bias\":1}", "attention_bias: 1, expected true or false"},
    {LLAMA ",\"bos_token_id\":[1]}", "bos_token_id: an array of 1, expected an integer"},
    {LLAMA ",\"eos_token_id\":[\"a\"]}", "eos_token_id: \"a\", expected integers"},
    {LLAMA ",\"eos_token_id\":\"a\"}", "eos_token_id: \"a\", expected an integer or a list"},
    {"{\"model_type\":\"llama\",\"num_attention_heads\":0}", "num_attention_heads: 0"},
    {"{\"model_type\":\"llama\",\"num_hidden_layers\":0}",
     "num_hidden_layers 0, expected 1 to 512"},
    {"{\"model_type\":\"llama\",\"num_hidden_layers\":1000000000}", "num_hidden_layers 1000000000"},
    {"{\"model_type\":\"llama\",\"num_key_value_heads\":5}",
     "num_key_value_heads 5 (layer 0), expected a divisor of num_attention_heads 32"},
    {"{\"model_type\":\"llama\",\"num_key_value_heads\":0}", "num_key_value_heads 0"},
    {"{\"model_type\":\"llama\",\"hidden_size\":0}", "hidden_size 0"},
    {"{\"model_type\":\"llama\",\"hidden_size\":9223372036854775807}",
     "hidden_size 9223372036854775807"},
    {"{\"model_type\":\"llama\",\"hidden_size\":99999999999999999999}", "too big integer"},
    {"{\"model_type\":\"llama\",\"vocab_size\":0}", "vocab_size 0"},
    {"{\"model_type\":\"llama\",\"intermediate_size\":0}", "intermediate_size 0"},
    {"{\"model_type\":\"llama\",\"max_position_embeddings\":0}", "max_position_embeddings 0"},
    {"{\"model_type\":\"qwen3\",\"layer_types\":[\"full_attention\"]}",
     "layer_types: an array of 1, expected one"},
    {"{\"model_type\":\"qwen3\",\"num_hidden_layers\":1,\"layer_types\":[\"linear_attention\"]}",
     "layer_types: not supported: \"linear_attention\""},
    {"{\"model_type\":\"gemma3_text\",\"sliding_window_pattern\":0}", "sliding_window_pattern: 0"},
    {"{\"model_type\":\"gemma3_text\",\"use_bidirectional_attention\":true}",
     "use_bidirectional_attention: true"},
    {"{\"model_type\":\"gemma2\",\"query_pre_attn_scalar\":0}", "query_pre_attn_scalar: 0"},
    {"{\"model_type\":\"gemma2\",\"attn_logit_softcapping\":-1}", "attn_logit_softcapping -1"},
    {"{\"model_type\":\"openelm\"}", "qkv_multipliers: missing"},
    {"{\"model_type\":\"openelm\",\"qkv_multipliers\":[1,1,1]}",
     "qkv_multipliers: an array of 3, expected"},
    {"{\"model_type\":\"openelm\",\"num_query_heads\":[1]}",
     "num_query_heads: an array of 1, expected one"},
    {"{\"model_type\":\"openelm\",\"head_dim\":0}", "head_dim: 0"},
    {"{\"model_type\":\"openelm\",\"ffn_with_glu\":false}", "ffn_with_glu: false"},
    {"{\"model_type\":\"openelm\",\"activation_fn_name\":\"gelu\"}",
     "activation_fn_name: \"gelu\", expected swish"},
    {"{\"model_type\":\"llama_swiftkv\"," SMALL ",\"num_key_value_layers\":0}",
     "num_key_value_layers 0"},
    {"{\"model_type\":\"llama_swiftkv\"," SMALL ",\"num_key_value_layers\":5}",
     "num_key_value_layers 5, expected 1 to 4"},
    {"{\"model_type\":\"llama_swiftkv\"," SMALL ",\"num_key_value_layers\":1,"
     "\"key_value_group_size\":2}",
     "key_value_group_size 2, expected a divisor of the 3 layers above num_key_value_layers 1"},
    {"{\"model_type\":\"llama_swiftkv\"," SMALL ",\"key_value_group_size\":0}",
     "key_value_group_size 0"},
    {"{\"model_type\":\"gemma3_text_swiftkv\",\"num_hidden_layers\":6,\"num_key_value_layers\":4,"
     "\"key_value_group_size\":2}",
     "layer 5 cannot share the keys"},
    {LLAMA ",\"num_kv_shared_layers\":4}",
     "num_kv_shared_layers 4, expected less than the 4 layers"},
    {"{\"model_type\":\"llama_swiftkv\"," SMALL ",\"num_kv_shared_layers\":1}",
     "num_kv_shared_layers 1: layers that share keys and values cannot take them from SwiftKV"},
    {"{\"model_type\":\"gemma3_text\",\"num_hidden_layers\":7,\"num_kv_shared_layers\":3}",
     "num_kv_shared_layers 3: layer 5 sees every row, no layer before the shared ones does"},
};

static void refuses_with_a_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        skv_config c = {0};
        skv_error err = {0};
        const char *json = refused[i].json;
        if (skv_config_parse(json, strlen(json), "config.json", &c, &err) == SKV_OK || c.layers) {
            fail_msg("accepted %s", json);
        }
        if (strncmp(err.text, "config.json: ", 13) != 0 || !strstr(err.text, refused[i].expected)) {
            fail_msg("%s\n  says %s\n  expected %s", json, err.text, refused[i].expected);
        }
    }
}

static void parse(const char *json, skv_config *c)
{
    skv_error err = {0};
    if (skv_config_parse(json, strlen(json), "config.json", c, &err) != SKV_OK) {
        fail_msg("%s\n  %s", json, err.text);
    }
}

static void reads_generation_config(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        bool sampling;
        double temperature, top_p, penalty;
        size_t top_k, n_eos;
    } cases[] = {
        {"{}", false, 1, 1, 1, 0, 1},
        {"{\"eos_token_id\":[2,3],\"do_sample\":true,\"temperature\":0.6,\"top_p\":0.9}", true, 0.6,
         0.9, 1, 0, 2},
        {"{\"do_sample\":false,\"temperature\":0.6}", false, 0.6, 1, 1, 0, 1},
        {"{\"top_k\":20,\"repetition_penalty\":1.05,\"eos_token_id\":5}", true, 1, 1, 1.05, 20, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        skv_config c;
        parse(LLAMA "}", &c);
        const char *json = cases[i].json;
        assert_int_equal(skv_config_parse_generation(json, strlen(json), "g", &c, NULL), SKV_OK);
        assert_true(c.has_sampling == cases[i].sampling && c.temperature == cases[i].temperature &&
                    c.top_p == cases[i].top_p && c.repetition_penalty == cases[i].penalty);
        assert_int_equal(c.top_k, cases[i].top_k);
        assert_int_equal(c.n_eos, cases[i].n_eos);
        skv_error err;
        assert_int_not_equal(skv_config_parse_generation("[1]", 3, "g", &c, &err), SKV_OK);
        assert_int_not_equal(skv_config_parse_generation("{\"top_k\":-1}", 12, "g", &c, &err),
                             SKV_OK);
        assert_string_equal(err.text, "g: top_k: -1, expected 0 to 9223372036854775807");
        assert_int_equal(c.top_k, cases[i].top_k);
        skv_config_release(&c);
    }
}

/* A configuration written out says the same when it is read again. */
static void writes_what_it_reads(void **state)
{
    (void)state;
    skv_buf json, first, second;
    skv_buf_init(&json, 1 << 16);
    skv_buf_init(&first, 1 << 16);
    skv_buf_init(&second, 1 << 16);
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        skv_config c, again;
        skv_error err = {0};
        parse(accepted[i].json, &c);
        skv_buf_clear(&json);
        if (skv_config_json_from_config(&c, &json, &err) != SKV_OK) fail_msg("%s", err.text);
        parse(json.data, &again);
        describe_config(&c, &first);
        describe_config(&again, &second);
        assert_string_equal(first.data, second.data);
        assert_string_equal(c.dtype, again.dtype);
        skv_config_release(&c);
        skv_config_release(&again);
    }
    skv_buf_release(&json);
    skv_buf_release(&first);
    skv_buf_release(&second);
}

static void factors_become_longrope(void **state)
{
    (void)state;
    skv_config c, again;
    parse(LLAMA "}", &c);
    c.ropes[0].scaling = SKV_ROPE_FACTORS;
    c.ropes[0].n_factors = 8;
    for (size_t i = 0; i < 8; i++) c.ropes[0].long_factor[i] = 1.0F + 0.1F * (float)i;
    skv_buf json;
    skv_buf_init(&json, 1 << 16);
    assert_int_equal(skv_config_json_from_config(&c, &json, NULL), SKV_OK);
    parse(json.data, &again);
    assert_int_equal(again.ropes[0].scaling, SKV_ROPE_LONGROPE);
    assert_memory_equal(again.ropes[0].short_factor, c.ropes[0].long_factor, 8 * sizeof(float));
    assert_memory_equal(again.ropes[0].long_factor, c.ropes[0].long_factor, 8 * sizeof(float));
    assert_true(again.ropes[0].attention_factor == 1.0);
    skv_config_release(&c);
    skv_config_release(&again);
    skv_buf_release(&json);
}

static void makes_a_swiftkv_config(void **state)
{
    (void)state;
    static const char original[] =
        "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":64,"
        "\"vocab_size\":100,\"intermediate_size\":96,\"num_hidden_layers\":4,"
        "\"num_attention_heads\":4,\"rms_norm_eps\":1e-05,\"rope_theta\":10000.0,"
        "\"torch_dtype\":\"float32\",\"custom\":{\"x\":[1,2.5,\"\\u00e9\"]}}";
    static const char expected[] =
        "{\n  \"architectures\": [\n    \"LlamaSwiftKVForCausalLM\"\n  ],\n"
        "  \"model_type\": \"llama_swiftkv\",\n  \"hidden_size\": 64,\n  \"vocab_size\": 100,\n"
        "  \"intermediate_size\": 96,\n  \"num_hidden_layers\": 4,\n"
        "  \"num_attention_heads\": 4,\n  \"rms_norm_eps\": 1e-05,\n"
        "  \"rope_theta\": 10000.0,\n  \"torch_dtype\": \"bfloat16\",\n  \"custom\": {\n"
        "    \"x\": [\n      1,\n      2.5,\n      \"\xc3\xa9\"\n    ]\n  },\n"
        "  \"tie_word_embeddings\": false,\n  \"swiftkv\": true,\n"
        "  \"num_key_value_layers\": 2,\n  \"key_value_group_size\": 2\n}\n";
    skv_config c, again;
    parse(original, &c);
    c.kv_layers = 2;
    c.kv_group = 2;
    memcpy(c.dtype, "bfloat16", 9);
    skv_buf json;
    skv_buf_init(&json, 1 << 16);
    skv_error err = {0};
    if (skv_config_json_for_swiftkv(original, strlen(original), "config.json", &c, &json, &err)) {
        fail_msg("%s", err.text);
    }
    assert_string_equal(json.data, expected);
    parse(json.data, &again);
    assert_true(again.swiftkv && again.kv_layers == 2 && again.kv_group == 2);
    skv_config_release(&c);
    skv_config_release(&again);
    skv_buf_release(&json);
}

static bool parse_and_write(void *arg)
{
    const config_case *kase = arg;
    skv_config c = {0};
    skv_buf json;
    skv_buf_init(&json, 1 << 16);
    bool ok = skv_config_parse(kase->json, strlen(kase->json), "c", &c, NULL) == SKV_OK &&
              skv_config_json_from_config(&c, &json, NULL) == SKV_OK;
    skv_config_release(&c);
    skv_buf_release(&json);
    return ok;
}

static void survives_every_failed_allocation(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i += 5) {
        config_case kase = accepted[i];
        size_t n = alloc_fail_each(parse_and_write, &kase, false);
        assert_true(n > 1 && n != SIZE_MAX);
    }
    /* jansson 2.14 does not notice every failure of its own: a name may lose its end. */
    json_set_alloc_funcs(alloc_fail_malloc, alloc_fail_free);
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i += 5) {
        config_case kase = accepted[i];
        size_t n = alloc_fail_each(parse_and_write, &kase, true);
        assert_true(n > 10 && n != SIZE_MAX);
    }
    json_set_alloc_funcs(malloc, free);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_architecture),
        cmocka_unit_test(refuses_with_a_reason),
        cmocka_unit_test(reads_generation_config),
        cmocka_unit_test(writes_what_it_reads),
        cmocka_unit_test(factors_become_longrope),
        cmocka_unit_test(makes_a_swiftkv_config),
        cmocka_unit_test(survives_every_failed_allocation),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
