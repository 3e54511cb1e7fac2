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
     {"attention/pipeline.cuh", "{\n  __syncwarp();\n", "{\n"}},
    {"KeysNotWaitedFor",
     "MappedLoneBiasStreaming",
     {kPipelined, "  mbarrier_wait(pipe.keys_full(at.slot), at.parity);\n    turns.take();", ""}},
    {"ValuesNotWaitedFor",
     "MappedLoneBiasStreaming",
     {kPipelined, "mbarrier_wait(pipe.values_full(at.slot), at.parity);", ""}},
    {"QueriesNotWaitedFor",
     "PipelinedStreamingOddHead",
     {kPipelined, "mbarrier_wait(pipe.queries_full(query_at.slot), query_at.parity);", ""}},
    {"KeysStillRead",
     "PipelinedStreaming",
     {"attention/copying.cuh", "mbarrier_wait(pipe.keys_free(at.slot), at.parity ^ 1);", ""}},
    {"ValuesStillRead",
     "PipelinedStreaming",
     {"attention/copying.cuh", "mbarrier_wait(pipe.values_free(at.slot), at.parity ^ 1);", ""}},
    {"KeysStillReadByALoneWarpgroup",
     "MappedLoneStreaming",
     {"attention/copying.cuh", "mbarrier_wait(pipe.keys_free(at.slot), at.parity ^ 1);", ""}},
    {"ValuesStillReadByALoneWarpgroup",
     "MappedLoneStreaming",
     {"attention/copying.cuh", "mbarrier_wait(pipe.values_free(at.slot), at.parity ^ 1);", ""}},
    {"QueriesStillReadByALoneWarpgroup",
     "MappedLoneResident",
     {"attention/copying.cuh",
      "mbarrier_wait(pipe.queries_free(query_at.slot), query_at.parity ^ 1);", ""}},
    {"QueriesStillRead",
     "PipelinedWindows",
     {"attention/copying.cuh",
      "mbarrier_wait(pipe.queries_free(query_at.slot), query_at.parity ^ 1);", ""}},
    {"BarriersNotInitialised", "MappedLoneResident", {kPipelined, "__syncthreads();", ""}},
    {"BiasStillRead",
     "MappedBiasMatrices",
     {"attention/bias_copies.cuh", "mbarrier_wait(pipe.bias_free(slot), (phases >> slot & 1) ^ 1);",
      ""}},
    {"BiasNotWaitedFor",
     "MappedBiasSteps",
     {"attention/bias_tiles.cuh", "mbarrier_wait(full, parity);", ""}},
    {"StagingStillRead",
     "Resident",
     {"attention/epilogue.cuh", "__syncwarp();  // the staging rows", "// the staging rows"}},
    {"StagingNotWritten",
     "Resident",
     {"attention/epilogue.cuh", "__syncwarp();\n    copy_out", "copy_out"}},
    {"TileOfTheNextItem",
     "ResidentPersistent",
     {"attention/tile_scheduler.cuh", "__syncthreads();", ";"}},
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
