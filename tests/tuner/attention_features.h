// tests/tuner/attention_features.h -- One problem and config for each feature of the attention
// kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>

#include "generator/attention/kernel_spec.h"

namespace vitune {

struct FeatureCase {
  const char* name;
  const char* problem;
  const char* changes;  // to the default config
};
inline void PrintTo(const FeatureCase& feature, std::ostream* out) { *out << feature.problem; }
inline constexpr FeatureCase kFeatures[] = {
    {"Resident", "bf16 b=2 h=3 n=197 d=64 layout=packed",
     "kResident=1 kConstantKeys=1 kBlockN=104 kStages=1"},
    {"ResidentTwoQueryTiles", "bf16 b=2 h=3 n=197 d=64 layout=packed",
     "kResident=1 kConstantKeys=1 kBlockN=104 kStages=2"},
    {"ResidentRowSplit", "fp16 b=2 h=3 nq=300 nk=77 d=40 layout=bnhd",
     "kResident=1 kConstantKeys=1 kBlockN=80 kStages=1 kRowSplit=4"},
    {"ResidentHeadsPerCta", "bf16 b=5 h=3 n=49 d=32 layout=packed",
     "kResident=1 kConstantKeys=1 kBlockN=56 kStages=1 kHeadsPerCta=4 kWarps=16"},
    {"ResidentPersistent", "bf16 b=200 h=3 n=49 d=32 layout=packed",
     "kResident=1 kConstantKeys=1 kBlockN=56 kStages=1 kPersistent=1"},
    {"StreamingOneStage", "bf16 b=2 h=3 n=300 d=72 layout=packed",
     "kResident=0 kConstantKeys=0 kBlockN=64 kStages=1"},
    {"StreamingThreeStages", "bf16 b=2 h=3 n=300 d=88 layout=packed",
     "kResident=0 kConstantKeys=1 kBlockN=64 kStages=3"},
    {"StreamingTwoRowTiles", "fp16 b=2 h=3 n=300 d=64 layout=bhnd",
     "kResident=0 kConstantKeys=1 kBlockN=48 kStages=2 kRowTiles=2"},
    {"QueriesFromShared", "bf16 b=2 h=3 n=300 d=128 layout=packed",
     "kResident=0 kBlockN=64 kStages=2 kQueryInRegisters=0"},
    {"Causal", "bf16 b=2 h=3 nq=150 nk=131 d=64 layout=bnhd causal lse",
     "kResident=0 kBlockN=64 kStages=2"},
    {"GroupedHeads", "fp16 b=2 h=6 hkv=2 nq=90 nk=70 d=96 layout=bnhd lse", ""},
    {"BiasByFour", "bf16 b=4 h=3 n=52 d=32 layout=bnhd bias=bf16:2x3x52x52 lse", ""},
    {"BiasByTwo", "bf16 b=4 h=3 n=50 d=32 layout=bnhd bias=fp32:1x3x50x50", ""},
    {"BiasByOne", "fp16 b=4 h=3 n=49 d=32 layout=bnhd bias=fp16:1x3x49x49", ""},
    {"BiasInRegisters", "bf16 b=300 h=3 n=49 d=32 layout=packed bias=bf16:1x3x49x49",
     "kResident=1 kConstantKeys=1 kBlockN=56 kStages=1 kPersistent=1 kBiasInRegisters=1"},
    {"BiasOfWindowsInRegisters", "bf16 b=300 h=3 n=49 d=32 layout=packed bias=bf16:4x3x49x49",
     "kResident=1 kConstantKeys=1 kBlockN=56 kStages=1 kPersistent=1 kBiasInRegisters=1"},
    {"BiasStridedKeys", "bf16 b=2 h=3 nq=60 nk=52 d=32 layout=bnhd bias=bf16:1x3x60x52@0,3120,1,60",
     ""},
    {"Mask", "bf16 b=2 h=3 nq=70 nk=99 d=104 layout=bnhd mask=bool:2x1x70x99 lse", ""},
    {"MaskBiasCausal",
     "bf16 b=2 h=3 n=98 d=64 layout=bnhd causal lse bias=bf16:1x1x98x98 mask=bool:1x3x98x98", ""},
    {"Align8", "bf16 b=2 h=3 n=98 d=64 layout=bnhd align=8", ""},
    {"Align4", "bf16 b=2 h=3 n=98 d=64 layout=bnhd align=4", ""},
    {"Align2", "fp16 b=2 h=3 n=98 d=24 layout=bnhd align=2", ""},
    {"WarpgroupResident", "bf16 b=2 h=3 n=197 d=64 layout=packed",
     "kSwizzle=128 kResident=1 kConstantKeys=1 kBlockN=200 kStages=1 kWarps=4"},
    {"WarpgroupResidentTwoSteps", "bf16 b=1 h=3 n=257 d=80 layout=packed lse",
     "kSwizzle=64 kResident=1 kConstantKeys=1 kBlockN=64 kStages=1 kWarps=8"},
    {"WarpgroupOddHead", "fp16 b=2 h=2 nq=90 nk=100 d=72 layout=bnhd",
     "kSwizzle=64 kResident=1 kConstantKeys=1 kBlockN=104 kStages=1 kWarps=4"},
    {"WarpgroupNarrowPanels", "bf16 b=2 h=2 n=130 d=24 layout=packed causal",
     "kSwizzle=32 kResident=1 kConstantKeys=1 kBlockN=64 kStages=2 kWarps=4 kRowSplit=2"},
    {"WarpgroupWindows", "bf16 b=5 h=3 n=49 d=32 layout=packed",
     "kSwizzle=64 kResident=1 kConstantKeys=1 kBlockN=56 kStages=1 kHeadsPerCta=2 kWarps=8"},
    {"WarpgroupBias", "bf16 b=30 h=3 n=49 d=32 layout=packed bias=bf16:1x3x49x49",
     "kSwizzle=64 kResident=1 kConstantKeys=1 kBlockN=56 kStages=1 kWarps=4 kPersistent=1 "
     "kBiasInRegisters=1"},
    {"WarpgroupMask", "bf16 b=2 h=3 nq=70 nk=100 d=40 layout=bnhd mask=bool:2x1x70x100 lse",
     "kSwizzle=32 kResident=1 kConstantKeys=1 kBlockN=64 kStages=1 kWarps=4"},
    {"WarpgroupStreaming", "bf16 b=1 h=2 n=300 d=64 layout=packed",
     "kSwizzle=128 kResident=0 kConstantKeys=1 kBlockN=64 kStages=2 kWarps=8"},
    {"WarpgroupStreamingCausal", "bf16 b=1 h=2 nq=150 nk=131 d=128 layout=bnhd causal lse",
     "kSwizzle=128 kResident=0 kConstantKeys=0 kBlockN=48 kStages=3 kWarps=12"},
    {"WarpgroupStreamingMaskBias",
     "fp16 b=2 h=2 n=98 d=88 layout=bnhd bias=fp32:1x1x98x98 mask=bool:1x2x98x98",
     "kSwizzle=64 kResident=0 kBlockN=48 kStages=2 kWarps=4"},
    // Rows of bias and mask that start anywhere (templates/attention/shifted_rows.cuh).
    {"BiasOddRows", "bf16 b=2 h=3 n=77 d=64 layout=bnhd bias=bf16:1x3x77x77 lse",
     "kResident=0 kConstantKeys=0 kBlockN=32 kStages=2"},
    {"BiasOddRowsTwoRowTiles", "fp16 b=2 h=2 n=95 d=64 layout=bnhd bias=fp16:2x1x95x95",
     "kResident=0 kConstantKeys=1 kBlockN=48 kStages=2 kRowTiles=2"},
    {"BiasOddRowsCausal", "bf16 b=1 h=2 n=131 d=32 layout=bnhd causal bias=fp16:1x2x131x131",
     "kResident=0 kBlockN=64 kStages=2"},
    {"BiasOfOneOddRow", "fp16 b=2 h=2 nq=40 nk=101 d=32 layout=bnhd bias=fp16:2x1x1x101", ""},
    {"BiasAtOddAddress", "bf16 b=2 h=2 n=64 d=64 layout=bnhd align=2 bias=bf16:1x2x64x64", ""},
    {"BiasRowsApart", "bf16 b=2 h=2 n=64 d=64 layout=bnhd bias=bf16:1x2x64x64@0,4160,65,1", ""},
    {"MaskOddRows", "bf16 b=2 h=3 n=77 d=64 layout=bnhd mask=bool:1x3x77x77",
     "kResident=0 kConstantKeys=0 kBlockN=32 kStages=2"},
    {"MaskEvenRows", "fp16 b=2 h=2 nq=50 nk=98 d=64 layout=bnhd mask=bool:2x2x50x98",
     "kResident=1 kConstantKeys=1 kBlockN=56 kStages=1"},
    {"MaskStridedKeys", "bf16 b=2 h=3 nq=60 nk=52 d=32 layout=bnhd mask=bool:1x3x60x52@0,3120,1,60",
     ""},
    {"WarpgroupBiasOddRows", "bf16 b=2 h=2 n=197 d=64 layout=bnhd bias=bf16:1x2x197x197",
     "kSwizzle=128 kResident=1 kConstantKeys=1 kBlockN=112 kStages=2 kWarps=4"},
    {"WarpgroupStreamingOddRows",
     "fp16 b=1 h=2 n=157 d=64 layout=bnhd bias=fp16:1x2x157x157 mask=bool:1x1x157x157",
     "kSwizzle=128 kResident=0 kConstantKeys=1 kBlockN=64 kStages=2 kWarps=8"},
    // Few steps in a row: ptxas sees them side by side (docs/lab/2026-11-20-copying-warps.md).
    {"WarpgroupTwoStepsInARow", "bf16 b=2 h=2 n=256 d=72 layout=bnhd",
     "kSwizzle=64 kResident=1 kConstantKeys=1 kBlockN=128 kStages=1 kWarps=4"},
    {"WarpgroupThreeStepsInARow", "bf16 b=2 h=2 n=197 d=64 layout=packed",
     "kSwizzle=128 kResident=1 kConstantKeys=1 kBlockN=80 kStages=2 kWarps=4"},
    {"WarpgroupThreeWideSteps", "bf16 b=1 h=2 nq=70 nk=541 d=56 layout=bnhd lse align=2",
     "kSwizzle=128 kResident=1 kConstantKeys=1 kBlockN=192 kStages=2 kRowSplit=2 kWarps=4"},
    // More work items than the device has SMs: what is prefetched is the next item's.
    {"PipelinedStreaming", "bf16 b=24 h=6 n=150 d=64 layout=packed",
     "kProducer=1 kSwizzle=128 kResident=0 kBlockN=64 kStages=2 kWarps=8"},
    {"PipelinedStreamingOddHead", "fp16 b=2 h=2 nq=90 nk=100 d=72 layout=bnhd lse",
     "kProducer=1 kSwizzle=64 kResident=0 kBlockN=48 kStages=3 kWarps=12"},
    {"PipelinedStreamingCausal", "bf16 b=30 h=5 nq=150 nk=131 d=128 layout=bnhd causal lse",
     "kProducer=1 kSwizzle=128 kResident=0 kBlockN=48 kStages=4 kWarps=8"},
    {"PipelinedStreamingMaskBias",
     "fp16 b=2 h=2 n=98 d=88 layout=bnhd bias=fp32:1x1x98x98 mask=bool:1x2x98x98",
     "kProducer=1 kSwizzle=64 kResident=0 kBlockN=48 kStages=2 kWarps=4"},
    {"PipelinedResident", "bf16 b=50 h=6 n=130 d=64 layout=packed",
     "kProducer=1 kSwizzle=128 kResident=1 kBlockN=136 kStages=2 kWarps=12"},
    {"PipelinedResidentTwoSteps", "bf16 b=40 h=4 n=150 d=80 layout=packed lse",
     "kProducer=1 kSwizzle=64 kResident=1 kBlockN=80 kStages=1 kWarps=8"},
    {"PipelinedResidentCausal", "bf16 b=40 h=4 n=150 d=24 layout=packed causal align=4",
     "kProducer=1 kSwizzle=32 kResident=1 kBlockN=64 kStages=2 kWarps=12"},
    {"PipelinedWindows", "bf16 b=150 h=4 n=49 d=32 layout=packed bias=bf16:3x4x49x49",
     "kProducer=1 kSwizzle=64 kResident=1 kBlockN=56 kStages=4 kWarps=12"},
    {"PipelinedOneGroup", "bf16 b=100 h=2 nq=70 nk=77 d=96 layout=bnhd",
     "kProducer=1 kSwizzle=64 kResident=1 kBlockN=80 kStages=2 kWarps=4"},
    // Both were wrong on an H200 once: fewer heads in flight than warpgroups, and keys of a last
    // step of an odd number of eights that were dealt out beyond it.
    {"PipelinedFewWindowsInFlight", "bf16 b=70 h=4 n=49 d=32 layout=packed bias=bf16:1x4x49x49",
     "kProducer=1 kSwizzle=64 kResident=1 kBlockN=56 kStages=2 kWarps=12"},
    {"PipelinedOddLastStep", "bf16 b=10 h=14 n=149 d=64 layout=bnhd bias=bf16:1x14x149x149",
     "kProducer=1 kSwizzle=128 kResident=0 kBlockN=112 kStages=2 kWarps=8"},
    // Tiles by tensor maps, and rows beyond a multiple of 64 by a warpgroup of their own.
    {"MappedResident", "bf16 b=70 h=2 n=130 d=64 layout=packed lse",
     "kProducer=2 kSwizzle=128 kResident=1 kBlockN=136 kStages=2 kWarps=12"},
    {"MappedResidentSpare", "bf16 b=70 h=2 n=197 d=64 layout=packed lse",
     "kProducer=2 kSpareRows=8 kSwizzle=128 kResident=1 kBlockN=200 kStages=2 kWarps=12"},
    {"MappedResidentSpareTwoSteps", "fp16 b=35 h=4 n=257 d=80 layout=packed",
     "kProducer=2 kSpareRows=8 kSwizzle=64 kResident=1 kBlockN=144 kStages=1 kWarps=8"},
    {"MappedStreamingSpare", "bf16 b=18 h=4 n=257 d=80 layout=packed lse",
     "kProducer=2 kSpareRows=8 kSwizzle=64 kResident=0 kBlockN=144 kStages=2 kWarps=8"},
    {"MappedStreamingSpareOddHead", "bf16 b=18 h=4 nq=200 nk=151 d=88 layout=bnhd",
     "kProducer=2 kSpareRows=8 kSwizzle=128 kResident=0 kBlockN=96 kStages=3 kWarps=8"},
    {"MappedSpareGrouped", "fp16 b=9 h=6 hkv=2 nq=133 nk=90 d=40 layout=bnhd lse",
     "kProducer=2 kSpareRows=8 kSwizzle=32 kResident=0 kBlockN=48 kStages=3 kWarps=8"},
    {"MappedNoRowsToSpare", "bf16 b=18 h=4 nq=140 nk=70 d=64 layout=bnhd",
     "kProducer=2 kSpareRows=8 kSwizzle=128 kResident=0 kBlockN=48 kStages=2 kWarps=8"},
    {"MappedStreamingCausal", "bf16 b=15 h=5 nq=150 nk=131 d=128 layout=bnhd causal lse",
     "kProducer=2 kSwizzle=128 kResident=0 kBlockN=48 kStages=4 kWarps=8"},
    {"MappedOneGroup", "bf16 b=70 h=2 nq=70 nk=77 d=72 layout=bnhd",
     "kProducer=2 kSpareRows=8 kSwizzle=64 kResident=1 kBlockN=80 kStages=2 kWarps=4"},
    // One warp brings all tiles of one computing warpgroup.
    {"MappedLoneStreaming", "bf16 b=70 h=3 nq=100 nk=133 d=64 layout=bnhd lse",
     "kProducer=2 kSwizzle=128 kResident=0 kBlockN=48 kStages=2 kWarps=4 kMinCtas=2"},
    {"MappedLoneCausal", "fp16 b=70 h=4 n=150 d=40 layout=packed causal",
     "kProducer=2 kSwizzle=32 kResident=0 kBlockN=48 kStages=3 kWarps=4"},
    {"MappedLoneResident", "bf16 b=140 h=4 nq=150 nk=77 d=64 layout=bnhd",
     "kProducer=2 kSwizzle=128 kResident=1 kBlockN=80 kStages=2 kWarps=4 kMinCtas=3"},
    {"MappedLoneBiasStreaming", "bf16 b=100 h=4 n=49 d=32 layout=packed bias=bf16:2x4x49x49",
     "kProducer=2 kSwizzle=64 kResident=0 kBlockN=32 kStages=3 kWarps=4"},
    {"MappedLoneBiasKeptStreaming",
     "fp16 b=150 h=3 n=49 d=32 layout=packed bias=fp16:1x3x49x49 lse",
     "kProducer=2 kSwizzle=64 kResident=0 kBlockN=32 kStages=2 kWarps=4 kBiasInRegisters=1"},
    {"MappedLoneBiasOneRow", "bf16 b=100 h=4 nq=120 nk=101 d=48 layout=bnhd bias=bf16:100x1x1x101",
     "kProducer=2 kSwizzle=32 kResident=0 kBlockN=64 kStages=2 kWarps=4"},
    {"MappedFewWindowsInFlight", "bf16 b=50 h=3 n=49 d=32 layout=packed",
     "kProducer=2 kSwizzle=64 kResident=1 kBlockN=56 kStages=1 kWarps=12"},
    // The accelerator's copies end in any order; 719 on an H200 once.
    {"MappedFewBlocksManySlots", "bf16 b=35 h=8 n=77 d=64 layout=bnhd",
     "kProducer=2 kSwizzle=128 kResident=1 kBlockN=64 kStages=4 kWarps=12"},
    {"MappedOneWideStep", "bf16 b=35 h=4 nq=130 nk=250 d=64 layout=bnhd lse",
     "kProducer=2 kSwizzle=128 kResident=0 kBlockN=256 kStages=2 kWarps=8"},
    {"MappedThreeWideSteps", "fp16 b=2 h=2 nq=70 nk=700 d=64 layout=bnhd",
     "kProducer=2 kSwizzle=128 kResident=0 kBlockN=240 kStages=2 kWarps=8"},
    {"MappedWideTile", "bf16 b=4 h=4 n=300 d=64 layout=bnhd",
     "kProducer=2 kSwizzle=128 kResident=1 kBlockN=160 kStages=1 kWarps=8"},
    // A bias by copying warps: whole rows that change or stay, steps of rows of any alignment.
    {"MappedBiasWindows", "bf16 b=150 h=4 n=49 d=32 layout=packed bias=bf16:3x4x49x49",
     "kProducer=2 kSwizzle=64 kResident=1 kBlockN=56 kStages=2 kWarps=4"},
    {"MappedBiasKept", "bf16 b=50 h=4 n=130 d=64 layout=packed bias=bf16:1x4x130x130 lse",
     "kProducer=2 kSpareRows=8 kSwizzle=128 kResident=1 kBlockN=136 kStages=2 kWarps=8 "
     "kBiasInRegisters=1"},
    {"MappedBiasKeptWindows", "bf16 b=150 h=3 n=49 d=32 layout=packed bias=bf16:1x3x49x49",
     "kProducer=2 kSwizzle=64 kResident=1 kBlockN=56 kStages=2 kWarps=4 kBiasInRegisters=1"},
    {"MappedBiasKeptStreaming", "fp16 b=50 h=4 n=133 d=40 layout=bnhd bias=fp16:1x4x133x133",
     "kProducer=2 kSpareRows=8 kSwizzle=32 kResident=0 kBlockN=80 kStages=2 kWarps=8 "
     "kBiasInRegisters=1"},
    {"MappedBiasWholeRows", "bf16 b=18 h=8 n=197 d=64 layout=packed bias=bf16:2x8x197x197 lse",
     "kProducer=2 kSpareRows=8 kSwizzle=128 kResident=0 kBlockN=112 kStages=2 kWarps=12"},
    {"MappedBiasOneRow", "bf16 b=30 h=5 nq=140 nk=150 d=72 layout=bnhd bias=bf16:30x1x1x150",
     "kProducer=2 kSwizzle=64 kResident=0 kBlockN=80 kStages=2 kWarps=8"},
    {"MappedBiasCausal", "bf16 b=30 h=5 n=150 d=64 layout=bnhd causal bias=bf16:1x5x150x150",
     "kProducer=2 kSwizzle=128 kResident=0 kBlockN=48 kStages=3 kWarps=8"},
    {"MappedBiasSteps", "bf16 b=18 h=8 nq=133 nk=301 d=64 layout=bnhd bias=bf16:1x8x133x301 lse",
     "kProducer=2 kSpareRows=8 kSwizzle=128 kResident=0 kBlockN=112 kStages=2 kWarps=8"},
    {"MappedBiasStepsCausal", "bf16 b=12 h=5 n=290 d=64 layout=bnhd causal bias=bf16:1x5x290x290",
     "kProducer=2 kSwizzle=128 kResident=0 kBlockN=96 kStages=2 kWarps=12"},
    {"MappedBiasMatrices", "bf16 b=35 h=4 nq=100 nk=264 d=88 layout=bnhd bias=bf16:1x4x100x264",
     "kProducer=2 kSwizzle=64 kResident=0 kBlockN=144 kStages=2 kWarps=8"},
    // A bias by tensor maps: rows of eight at a time beside spare rows, of batches and heads alike,
    // rows with gaps, heads that are resident.
    {"MappedBiasBoxes",
     "bf16 b=18 h=8 nq=133 nk=301 d=64 layout=bnhd "
     "bias=bf16:2x8x133x301@323456,40432,304,1 lse",
     "kProducer=2 kSpareRows=8 kSwizzle=128 kResident=0 kBlockN=112 kStages=2 kWarps=8"},
    {"MappedBiasBoxesOfShortRows", "fp16 b=18 h=8 n=144 d=32 layout=packed bias=fp16:18x1x144x144",
     "kProducer=2 kSwizzle=64 kResident=0 kBlockN=80 kStages=3 kWarps=8 kValuesFirst=1"},
    {"MappedBiasBoxesCausal", "bf16 b=12 h=5 n=288 d=64 layout=bnhd causal bias=bf16:1x5x288x288",
     "kProducer=2 kSwizzle=128 kResident=0 kBlockN=96 kStages=2 kWarps=12"},
    {"MappedBiasBoxesResident",
     "bf16 b=35 h=4 nq=140 nk=264 d=64 layout=bnhd bias=bf16:5x4x140x264",
     "kProducer=2 kSwizzle=128 kResident=1 kBlockN=96 kStages=1 kWarps=8"},
    {"MappedBiasResidentSpareRows",
     "bf16 b=35 h=4 nq=133 nk=264 d=64 layout=bnhd bias=bf16:1x4x133x264",
     "kProducer=2 kSpareRows=8 kSwizzle=128 kResident=1 kBlockN=96 kStages=1 kWarps=8"},
    // Three blocks of rows for two warpgroups, four steps: an H200 waited for ever once.
    {"MappedBiasResidentSteps",
     "fp16 b=35 h=4 nq=197 nk=261 d=64 layout=bnhd bias=fp16:5x4x197x261",
     "kProducer=2 kSpareRows=8 kSwizzle=128 kResident=1 kBlockN=80 kStages=1 kWarps=8"},
    // Items of fewer blocks at the end: four or five blocks of each head for three warpgroups.
    {"MappedEvenItems", "bf16 b=24 h=4 nq=290 nk=75 d=64 layout=bnhd lse",
     "kProducer=2 kSwizzle=128 kResident=0 kBlockN=48 kStages=2 kWarps=12 kEvenItems=1"},
    {"MappedEvenItemsSpareRows", "bf16 b=24 h=4 nq=261 nk=75 d=72 layout=bnhd",
     "kProducer=2 kSpareRows=8 kSwizzle=64 kResident=0 kBlockN=48 kStages=2 kWarps=12 "
     "kEvenItems=1"},
    {"MappedEvenItemsBias", "bf16 b=24 h=4 nq=260 nk=75 d=64 layout=bnhd bias=bf16:1x4x260x75",
     "kProducer=2 kSwizzle=128 kResident=0 kBlockN=48 kStages=2 kWarps=12 kEvenItems=1"},
    {"MappedEvenItemsBiasSteps",
     "fp16 b=24 h=4 nq=220 nk=261 d=64 layout=bnhd bias=fp16:1x4x220x261",
     "kProducer=2 kSwizzle=128 kResident=0 kBlockN=112 kStages=2 kWarps=12 kEvenItems=1"},
    {"PipelinedEvenItems", "bf16 b=24 h=4 nq=190 nk=75 d=64 layout=bnhd mask=bool:24x1x1x75",
     "kProducer=1 kSwizzle=128 kResident=0 kBlockN=48 kStages=2 kWarps=8 kEvenItems=1"},
    {"OneQuery", "bf16 b=4 h=3 nq=1 nk=729 d=72 layout=bnhd", ""},
    // Warps that share the keys of a row; the last ones may have none.
    {"SplitKeys", "bf16 b=2 h=3 nq=1 nk=785 d=48 layout=bnhd lse",
     "kResident=0 kConstantKeys=0 kBlockN=32 kStages=2 kWarps=4 kKeySplit=4"},
    {"SplitKeysOfBlocks", "fp16 b=2 h=3 nq=40 nk=197 d=64 layout=bnhd",
     "kResident=0 kConstantKeys=1 kBlockN=32 kStages=2 kWarps=8 kKeySplit=4"},
    {"SplitKeysUnevenly", "bf16 b=2 h=3 nq=70 nk=75 d=88 layout=bnhd",
     "kResident=0 kConstantKeys=1 kBlockN=32 kStages=2 kWarps=4 kKeySplit=2"},
    {"SplitKeysCausal", "bf16 b=2 h=2 nq=90 nk=131 d=128 layout=bnhd causal lse",
     "kResident=0 kConstantKeys=0 kBlockN=32 kStages=2 kWarps=8 kKeySplit=4"},
    {"SplitKeysMaskBias",
     "bf16 b=2 h=3 nq=33 nk=98 d=32 layout=bnhd lse bias=bf16:1x3x33x98 mask=bool:2x1x33x98",
     "kResident=0 kConstantKeys=0 kBlockN=32 kStages=2 kWarps=2 kKeySplit=2"},
    {"ManyWindows", "bf16 b=70000 h=1 n=16 d=32 layout=packed", ""},
    // All values of a head are the same, so that the sum of weights has to be that of the products.
    {"HeldReferenceSameValues", "bf16 b=3 h=2 nq=70 nk=200 d=88 layout=bnhd v=@176,88,0",
     "kResident=0 kConstantKeys=0 kBlockN=64 kStages=2"},
    {"HeldReferenceSameValuesWarpgroup", "bf16 b=3 h=2 nq=70 nk=200 d=64 layout=bnhd v=@128,64,0",
     "kSwizzle=128 kResident=0 kConstantKeys=1 kBlockN=64 kStages=2 kWarps=4"},
};

// Three steps of keys or more, without bias, mask and log-sum-exp: weights are relative to the
// first step's maximum.
inline constexpr FeatureCase kHoldingFeatures[] = {
    {"Resident", "bf16 b=2 h=3 n=197 d=64 layout=packed",
     "kResident=1 kConstantKeys=1 kBlockN=64 kStages=1"},
    {"ResidentTwoRowTiles", "bf16 b=2 h=3 n=150 d=40 layout=bnhd",
     "kResident=1 kConstantKeys=1 kBlockN=48 kStages=1 kRowTiles=2"},
    {"ResidentPersistent", "bf16 b=200 h=3 n=49 d=32 layout=packed",
     "kResident=1 kConstantKeys=1 kBlockN=16 kStages=1 kPersistent=1 kHeadsPerCta=2 kWarps=8"},
    {"StreamingAnyCount", "bf16 b=2 h=3 n=200 d=72 layout=bnhd align=2",
     "kResident=0 kConstantKeys=0 kBlockN=64 kStages=1"},
    {"StreamingCausal", "bf16 b=2 h=6 hkv=2 nq=150 nk=131 d=24 layout=bnhd causal",
     "kResident=0 kConstantKeys=1 kBlockN=32 kStages=2"},
    {"WarpgroupResident", "bf16 b=2 h=2 n=197 d=64 layout=packed",
     "kSwizzle=128 kResident=1 kConstantKeys=1 kBlockN=64 kStages=2 kWarps=8"},
    {"WarpgroupStreamingCausal", "bf16 b=1 h=2 nq=150 nk=131 d=128 layout=bnhd causal",
     "kSwizzle=128 kResident=0 kConstantKeys=0 kBlockN=48 kStages=3 kWarps=12"},
    {"PipelinedResident", "bf16 b=50 h=4 n=150 d=80 layout=packed",
     "kProducer=1 kSwizzle=64 kResident=1 kBlockN=48 kStages=1 kWarps=8"},
    {"PipelinedCausal", "bf16 b=30 h=5 nq=150 nk=131 d=128 layout=bnhd causal",
     "kProducer=1 kSwizzle=128 kResident=0 kBlockN=48 kStages=4 kWarps=8"},
    {"MappedSpareRows", "bf16 b=24 h=4 n=257 d=80 layout=packed",
     "kProducer=2 kSwizzle=64 kResident=0 kBlockN=96 kStages=2 kWarps=8 kSpareRows=8"},
    {"MappedEvenItems", "bf16 b=24 h=4 nq=290 nk=130 d=64 layout=bnhd",
     "kProducer=2 kSwizzle=128 kResident=0 kBlockN=48 kStages=2 kWarps=12 kEvenItems=1"},
};

// Tensors of more than 2^31 elements: batches, heads or rows that far apart, or as many windows.
inline constexpr FeatureCase kLargeFeatures[] = {
    {"FarBatches",
     "bf16 b=2 h=2 n=150 d=64 q=@2147483904,64,128 k=@2147483904,64,128 v=@2147483904,64,128 "
     "o=@2147483904,64,128",
     "kResident=0 kConstantKeys=0 kBlockN=64 kStages=2"},
    {"FarHeadsResident",
     "fp16 b=2 h=2 n=150 d=64 q=@9600,2147483904,64 k=@9600,2147483904,64 v=@9600,2147483904,64 "
     "o=@9600,2147483904,64 lse",
     "kResident=1 kConstantKeys=1 kBlockN=152 kStages=1"},
    {"FarRows",
     "bf16 b=1 h=2 n=20 d=64 q=@128,64,134217728 k=@128,64,134217728 v=@128,64,134217728 "
     "o=@128,64,134217728",
     "kResident=0 kConstantKeys=0 kBlockN=24 kStages=1"},
    {"FarBiasAndMask",
     "bf16 b=2 h=2 n=150 d=64 layout=bnhd bias=fp32:2x2x150x150@2147483904,22500,150,1 "
     "mask=bool:2x2x150x150@22500,2147483904,150,1",
     "kResident=0 kConstantKeys=0 kBlockN=64 kStages=2"},
    {"ManyElements", "bf16 b=480000 h=3 n=49 d=32 layout=packed",
     "kResident=1 kConstantKeys=1 kBlockN=56 kStages=1"},
    {"WarpgroupFarHeads",
     "bf16 b=2 h=2 n=150 d=64 q=@9600,2147483904,64 k=@9600,2147483904,64 v=@9600,2147483904,64 "
     "o=@9600,2147483904,64",
     "kSwizzle=128 kResident=0 kConstantKeys=1 kBlockN=80 kStages=2 kWarps=4"},
    {"PipelinedFarBatches",
     "bf16 b=2 h=2 n=150 d=64 q=@2147483904,64,128 k=@2147483904,64,128 v=@2147483904,64,128 "
     "o=@2147483904,64,128",
     "kProducer=1 kSwizzle=128 kResident=0 kBlockN=80 kStages=2 kWarps=8"},
    {"MappedFarHeads",
     "bf16 b=2 h=2 n=197 d=64 q=@12608,2147483904,64 k=@12608,2147483904,64 v=@12608,2147483904,64 "
     "o=@12608,2147483904,64",
     "kProducer=2 kSpareRows=8 kSwizzle=128 kResident=0 kBlockN=80 kStages=2 kWarps=8"},
    {"MappedFarRows",
     "bf16 b=1 h=2 nq=20 nk=70 d=64 q=@128,64,33554432 k=@128,64,33554432 v=@128,64,33554432 "
     "o=@128,64,33554432",
     "kProducer=2 kSwizzle=128 kResident=1 kBlockN=72 kStages=1 kWarps=4"},
    {"MappedFarBiasSteps",
     "bf16 b=2 h=2 nq=150 nk=301 d=64 layout=bnhd bias=bf16:2x2x150x301@2147483904,45150,301,1",
     "kProducer=2 kSwizzle=128 kResident=0 kBlockN=112 kStages=2 kWarps=8"},
    {"MappedFarBiasBoxes",
     "bf16 b=2 h=2 nq=150 nk=264 d=64 layout=bnhd bias=bf16:2x2x150x264@39600,2147483904,264,1",
     "kProducer=2 kSwizzle=128 kResident=0 kBlockN=112 kStages=2 kWarps=8"},
    {"MappedManyElements", "bf16 b=480000 h=3 n=49 d=32 layout=packed",
     "kProducer=2 kSwizzle=64 kResident=1 kBlockN=56 kStages=2 kWarps=4"},
};

// The config of a case for its problem. A case that says something says itself whether it is of
// the warpgroup kernels.
inline Config feature_config(const FeatureCase& feature, const AttentionProblem& problem,
                             DeviceInfo device) {
  const Config changes = Config::parse(feature.changes);
  if (!changes.empty()) device.cc_major = 8;
  Config config = default_attention_config(problem, device);
  for (const auto& [name, value] : changes) config.set(name, value);
  if (config.at("kSwizzle") != 0) {
    config.set("kQueryInRegisters", 0);
    config.set("kRowTiles", 1);
  }
  if (config.at("kProducer") != 0) {
    config.set("kConstantKeys", 1);
    config.set("kPersistent", 1);
  }
  // A changed config may leave less room per CTA than the default's cap asks for.
  config.set("kMinCtas", 1);
  return config;
}

}  // namespace vitune
