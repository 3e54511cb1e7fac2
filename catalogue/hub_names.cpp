// catalogue/hub_names.cpp -- Names of models on Hugging Face's hub whose timm names look otherwise.
// SPDX-License-Identifier: Apache-2.0
#include "catalogue/hub_names.h"

#include <algorithm>
#include <array>
#include <utility>

namespace vitune {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

// Names of the hub's most downloaded vision transformers. What differs by a dash or a letter is
// found by its spelling.
constexpr auto kNames = std::to_array<Pair>({
    {"facebook/dinov2-base", "vit_base_patch14_dinov2"},
    {"facebook/dinov2-giant", "vit_giant_patch14_dinov2"},
    {"facebook/dinov2-large", "vit_large_patch14_dinov2"},
    {"facebook/dinov2-small", "vit_small_patch14_dinov2"},
    {"facebook/dinov2-with-registers-giant", "vit_giant_patch14_reg4_dinov2"},
    {"facebook/dinov2-with-registers-large", "vit_large_patch14_reg4_dinov2"},
    {"facebook/dinov2-with-registers-small", "vit_small_patch14_reg4_dinov2"},
    {"facebook/dinov3-vit7b16-pretrain-lvd1689m", "vit_7b_patch16_dinov3"},
    {"facebook/dinov3-vitb16-pretrain-lvd1689m", "vit_base_patch16_dinov3"},
    {"facebook/dinov3-vith16plus-pretrain-lvd1689m", "vit_huge_plus_patch16_dinov3"},
    {"facebook/dinov3-vits16-pretrain-lvd1689m", "vit_small_patch16_dinov3"},
    {"facebook/dinov3-vits16plus-pretrain-lvd1689m", "vit_small_plus_patch16_dinov3"},
    {"facebook/sam-vit-base", "samvit_base_patch16"},
    {"facebook/sam-vit-large", "samvit_large_patch16"},
    {"facebook/vit-mae-base", "vit_base_patch16_224"},
    {"facebook/vit-mae-huge", "vit_huge_patch14_224"},
    {"facebook/vit-mae-large", "vit_large_patch16_224"},
    {"google/siglip-base-patch16-224", "vit_base_patch16_siglip_224"},
    {"google/siglip-base-patch16-384", "vit_base_patch16_siglip_384"},
    {"google/siglip-base-patch16-512", "vit_base_patch16_siglip_512"},
    {"google/siglip-large-patch16-256", "vit_large_patch16_siglip_256"},
    {"google/siglip-large-patch16-384", "vit_large_patch16_siglip_384"},
    {"google/siglip-so400m-patch14-224", "vit_so400m_patch14_siglip_224"},
    {"google/siglip-so400m-patch14-384", "vit_so400m_patch14_siglip_384"},
    {"google/siglip2-base-patch16-224", "vit_base_patch16_siglip_224"},
    {"google/siglip2-base-patch16-384", "vit_base_patch16_siglip_384"},
    {"google/siglip2-base-patch16-512", "vit_base_patch16_siglip_512"},
    {"google/siglip2-base-patch32-256", "vit_base_patch32_siglip_256"},
    {"google/siglip2-giant-opt-patch16-256", "vit_giantopt_patch16_siglip_256"},
    {"google/siglip2-giant-opt-patch16-384", "vit_giantopt_patch16_siglip_384"},
    {"google/siglip2-large-patch16-256", "vit_large_patch16_siglip_256"},
    {"google/siglip2-large-patch16-384", "vit_large_patch16_siglip_384"},
    {"google/siglip2-so400m-patch14-224", "vit_so400m_patch14_siglip_224"},
    {"google/siglip2-so400m-patch14-384", "vit_so400m_patch14_siglip_384"},
    {"google/siglip2-so400m-patch16-256", "vit_so400m_patch16_siglip_256"},
    {"google/siglip2-so400m-patch16-384", "vit_so400m_patch16_siglip_384"},
    {"google/siglip2-so400m-patch16-512", "vit_so400m_patch16_siglip_512"},
    {"google/vit-base-patch16-224-in21k", "vit_base_patch16_224"},
    {"laion/CLIP-ViT-B-32-laion2B-s34B-b79K", "vit_base_patch32_clip_224"},
    {"laion/CLIP-ViT-H-14-laion2B-s32B-b79K", "vit_huge_patch14_clip_224"},
    {"laion/CLIP-ViT-L-14-laion2B-s32B-b82K", "vit_large_patch14_clip_224"},
    {"laion/CLIP-ViT-bigG-14-laion2B-39B-b160k", "vit_gigantic_patch14_clip_224"},
    {"microsoft/beit-base-patch16-224-pt22k-ft22k", "beit_base_patch16_224"},
    {"microsoft/beit-large-patch16-224-pt22k-ft22k", "beit_large_patch16_224"},
    {"microsoft/swinv2-tiny-patch4-window8-256", "swinv2_tiny_window8_256"},
    {"openai/clip-vit-base-patch16", "vit_base_patch16_clip_224"},
    {"openai/clip-vit-base-patch32", "vit_base_patch32_clip_quickgelu_224"},
    {"openai/clip-vit-large-patch14", "vit_large_patch14_clip_quickgelu_224"},
    {"openai/clip-vit-large-patch14-336", "vit_large_patch14_clip_quickgelu_336"},
});

}  // namespace

std::string_view timm_name_of(std::string_view hub_name) {
  const auto found = std::ranges::find(kNames, hub_name, &Pair::first);
  return found == kNames.end() ? std::string_view() : found->second;
}

std::vector<std::string_view> hub_names() {
  std::vector<std::string_view> names;
  for (const Pair& pair : kNames) names.push_back(pair.first);
  return names;
}

}  // namespace vitune
