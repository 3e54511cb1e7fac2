// tests/tuner/unordered_accesses.h -- Attention kernels that lack one of the waits and barriers
// that order their accesses to shared memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string_view>

namespace vitune {

// Words of a template's file that become others.
struct Edit {
  std::string_view file, words, others;
};

// Kernels without one of the things that order their accesses to shared memory.
struct UnorderedCase {
  const char* name;
  const char* feature;
  Edit edit;
};
inline void PrintTo(const UnorderedCase& unordered, std::ostream* out) {
  *out << unordered.edit.words;
}

inline constexpr std::string_view kPipelined = "attention/forward_sm90_pipelined.cuh";
inline constexpr UnorderedCase kUnordered[] = {
    {"ArrivalBeforeTheOtherLanes",
     "MappedLoneBiasStreaming",
     {"attention/shared_sm90.cuh", "{\n  __syncwarp();\n", "{\n"}},
    {"KeysNotWaitedFor",
     "MappedLoneBiasStreaming",
     {kPipelined, "  mbarrier_wait(shared.keys_full(at.index), at.phase);\n    order.wait();", ""}},
    {"ValuesNotWaitedFor",
     "MappedLoneBiasStreaming",
     {kPipelined, "mbarrier_wait(shared.values_full(at.index), at.phase);", ""}},
    {"QueriesNotWaitedFor",
     "PipelinedStreamingOddHead",
     {kPipelined, "mbarrier_wait(shared.queries_full(query_at.index), query_at.phase);", ""}},
    {"KeysStillRead",
     "PipelinedStreaming",
     {"attention/producer_sm90.cuh", "mbarrier_wait(shared.keys_empty(at.index), at.phase ^ 1);",
      ""}},
    {"ValuesStillRead",
     "PipelinedStreaming",
     {"attention/producer_sm90.cuh", "mbarrier_wait(shared.values_empty(at.index), at.phase ^ 1);",
      ""}},
    {"KeysStillReadByALoneWarpgroup",
     "MappedLoneStreaming",
     {"attention/producer_sm90.cuh", "mbarrier_wait(shared.keys_empty(at.index), at.phase ^ 1);",
      ""}},
    {"ValuesStillReadByALoneWarpgroup",
     "MappedLoneStreaming",
     {"attention/producer_sm90.cuh", "mbarrier_wait(shared.values_empty(at.index), at.phase ^ 1);",
      ""}},
    {"QueriesStillReadByALoneWarpgroup",
     "MappedLoneResident",
     {"attention/producer_sm90.cuh",
      "mbarrier_wait(shared.queries_empty(query_at.index), query_at.phase ^ 1);", ""}},
    {"QueriesStillRead",
     "PipelinedWindows",
     {"attention/producer_sm90.cuh",
      "mbarrier_wait(shared.queries_empty(query_at.index), query_at.phase ^ 1);", ""}},
    {"BarriersNotInitialised", "MappedLoneResident", {kPipelined, "__syncthreads();", ""}},
    {"BiasStillRead",
     "MappedBiasMatrices",
     {"attention/bias_producer_sm90.cuh",
      "mbarrier_wait(shared.bias_empty(slot), (phases >> slot & 1) ^ 1);", ""}},
    {"BiasNotWaitedFor",
     "MappedBiasSteps",
     {"attention/bias_sm90.cuh", "mbarrier_wait(full, parity);", ""}},
    {"StagingStillRead",
     "Resident",
     {"attention/epilogue.cuh", "__syncwarp();  // the staging rows", "// the staging rows"}},
    {"StagingNotWritten",
     "Resident",
     {"attention/epilogue.cuh", "__syncwarp();\n    copy_out", "copy_out"}},
    {"TileOfTheNextItem",
     "ResidentPersistent",
     {"attention/forward_sm80.cuh", "if (item != int(blockIdx.x)) __syncthreads();", ""}},
    {"RoundsOfASimpleKernel",
     "StreamingThreeStages",
     {"attention/forward_sm80.cuh", "__syncthreads();  // this round's", "// this round's"}},
    {"CopiesOfASimpleKernel",
     "StreamingThreeStages",
     {"attention/forward_sm80.cuh", "copy_wait<max_of(T::kStages - 2, 0)>();", ""}},
    {"RoundsOfAWarpgroupKernel",
     "WarpgroupStreaming",
     {"attention/forward_sm90.cuh", "__syncthreads();  // this step's", "// this step's"}},
    {"CopiesOfAWarpgroupKernel",
     "WarpgroupStreaming",
     {"attention/forward_sm90.cuh", "copy_wait<T::kStages - 2>();", ""}},
    {"SplitKeysNotRead",
     "SplitKeysOfBlocks",
     {"attention/key_split.cuh", "__syncthreads();  // the tiles", "// the tiles"}},
};

}  // namespace vitune
