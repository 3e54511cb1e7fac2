// tests/runtime/library_gpu_test.cpp -- libvitune on a real GPU: right answers, graphs, no leaks.
//
// On the emulated device (tests/emulator) there are fewer graphs and only small problems.
// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <ostream>
#include <thread>

#include "tests/runtime/library_gpu_fixture.h"

namespace vitune::test {
namespace {

// --- answers

struct ProblemCase {
  const char* name;
  const char* text;
  bool on_emulator = true;
};
void PrintTo(const ProblemCase& problem, std::ostream* out) { *out << problem.text; }

constexpr ProblemCase kProblems[] = {
    {"Plain", "bf16 b=2 h=2 n=50 d=64"},
    {"Half", "fp16 b=2 h=2 nq=40 nk=77 d=40 layout=bhnd lse"},
    {"OneQuery", "bf16 b=4 h=3 nq=1 nk=129 d=72 layout=bnhd"},
    {"WindowBias", "bf16 b=8 h=3 n=49 d=32 bias=bf16:4x3x49x49"},
    {"Mask", "bf16 b=2 h=2 nq=40 nk=61 d=104 layout=bnhd mask=bool:2x1x40x61 lse"},
    {"Causal", "bf16 b=1 h=2 nq=70 nk=51 d=32 layout=bnhd causal lse"},
    {"GroupedHeads", "fp16 b=1 h=6 hkv=2 nq=30 nk=40 d=48 layout=bnhd lse"},
    {"OddStrides",
     "bf16 b=2 h=3 nq=33 nk=65 d=24 align=2 q=@2612,25,79 k=@5398,27,83 v=@5398,27,83 "
     "o=@2612,25,79"},
    {"AllAtOnce",
     "fp16 b=4 h=4 hkv=2 nq=40 nk=51 d=48 layout=bhnd causal lse scale=0.3 bias=fp32:1x4x40x51 "
     "mask=bool:2x1x40x51"},
    {"VitB", "bf16 b=32 h=12 n=197 d=64", false},
    {"VitBHalf", "fp16 b=32 h=12 n=197 d=64", false},
    {"PaddedKeys", "bf16 b=2 h=16 nq=1024 nk=300 d=72 bias=bf16:2x1x1x300", false},
    {"ShiftedWindows", "bf16 b=2048 h=3 n=49 d=32 bias=bf16:64x3x49x49", false},
    {"LongAndWide", "bf16 b=1 h=4 n=4099 d=128 lse", false},
    {"TextTower", "bf16 b=256 h=8 n=77 d=64 causal", false},
};

class LibraryAnswersGpuTest : public LibraryGpuTest,
                              public testing::WithParamInterface<ProblemCase> {};

TEST_P(LibraryAnswersGpuTest, MatchTheFormulaAndStayInTheirTensor) {
  if (emulated_ && !GetParam().on_emulator) GTEST_SKIP() << "takes too long on a CPU";
  const AttentionCall call(*driver_, GetParam().text, kSeed);
  const Context context = make_context();

  EXPECT_EQ(answer_of(context, call), "");
  EXPECT_EQ(stats(context).failed_calls, 0u);
  EXPECT_EQ(log_.count(VITUNE_LOG_WARNING, ""), 0);
}

INSTANTIATE_TEST_SUITE_P(AllProblems, LibraryAnswersGpuTest, testing::ValuesIn(kProblems),
                         [](const auto& test) { return std::string(test.param.name); });

// --- graphs

// One of the two streams of a thread, with tensors of its own.
struct Lane {
  CudaStream stream;
  AttentionCall call;
  std::optional<CudaGraph> graph;
  Lane(const CudaDriver& driver, const char* text) : stream(driver), call(driver, text, kSeed) {}
};

// Captures and replays on two streams in turns, so that one replay runs while the other stream is
// being captured. Empty if every replay gave the bits of a direct call, which are right.
std::string capture_and_replay(const std::shared_ptr<const CudaDriver>& driver,
                               vitune_context* context, const char* text, int graphs) {
  const CudaContext cuda(driver, 0);
  std::array<Lane, 2> lanes{Lane(*driver, text), Lane(*driver, text)};
  lanes[0].call.clear(lanes[0].stream);
  if (lanes[0].call.forward(context, lanes[0].stream) != VITUNE_OK) return vitune_last_error();
  const std::vector<std::byte> direct = lanes[0].call.output(lanes[0].stream);
  std::string wrong = lanes[0].call.what_is_wrong(direct, kSampledRows, kSeed);
  for (int i = 0; i < graphs + 2 && wrong.empty(); ++i) {  // the last two only settle
    Lane& lane = lanes[static_cast<std::size_t>(i % 2)];
    if (lane.graph && lane.call.output(lane.stream) != direct) {
      wrong = "replay " + std::to_string(i - 2) + " differs from a direct call";
    }
    lane.graph.reset();
    if (i >= graphs) continue;
    vitune_status status = VITUNE_OK;
    lane.graph.emplace(*driver, lane.stream,
                       [&] { status = lane.call.forward(context, lane.stream); });
    if (status != VITUNE_OK) wrong = vitune_last_error();
    lane.call.clear(lane.stream);  // also what the capture may have run already
    lane.graph->launch(lane.stream);
  }
  for (const Lane& lane : lanes) lane.stream.synchronize();
  return wrong;
}

TEST_F(LibraryGpuTest, AThousandGraphsOfEightThreadsReplayTheBitsOfDirectCalls) {
  constexpr int kThreads = 8;
  const int graphs = emulated_ ? 8 : 125;  // of each thread
  constexpr std::array kTexts = {"bf16 b=3 h=2 n=49 d=32",
                                 "bf16 b=2 h=3 nq=21 nk=50 d=32 causal lse"};
  const std::array contexts{make_context(), make_context()};
  for (const Context& context : contexts) {
    for (const char* text : kTexts) {
      const vitune_attention_desc desc = describe(AttentionProblem::parse(text));
      ASSERT_STATUS(VITUNE_OK, vitune_prepare(context.get(), &desc));
    }
  }

  std::array<std::string, kThreads> wrong;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      try {
        wrong[i] = capture_and_replay(driver_, contexts[i % 2].get(), kTexts[i / 2 % 2], graphs);
      } catch (const std::exception& error) {
        wrong[i] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_THAT(wrong, testing::Each(""));
  for (const Context& context : contexts) {
    const vitune_stats s = stats(context);
    EXPECT_EQ(s.exact_calls + s.nearest_calls + s.default_calls,
              static_cast<std::uint64_t>(kThreads / 2 * (graphs + 1)));
    EXPECT_EQ(s.failed_calls, 0u);
  }
}

// --- memory

struct MemoryInUse {
  long long heap = 0, resident = 0, device = 0;  // bytes
};

TEST_F(LibraryGpuTest, TenThousandLaunchesLeaveNoMoreMemoryInUse) {
  constexpr int kLaunches = 10'000;
  const Context context = make_context();
  std::vector<AttentionCall> calls;
  for (const char* text : {"bf16 b=2 h=2 n=30 d=32", "bf16 b=1 h=3 n=50 d=32"}) {
    calls.emplace_back(*driver_, text, kSeed);
  }
  const auto launch = [&](int count) {
    int failures = 0;
    for (int i = 0; i < count; ++i) {
      failures += calls[static_cast<std::size_t>(i) % 2].forward(context.get(), *stream_) != 0;
      if (i % 256 == 255) stream_->synchronize();
    }
    stream_->synchronize();
    EXPECT_EQ(failures, 0);
  };
  const auto in_use = [&] {
    const struct mallinfo2 heap = mallinfo2();
    const auto [free, total] = cuda_->free_and_total_memory();
    std::ifstream statm("/proc/self/statm");
    long long all_pages = 0, resident_pages = 0;
    statm >> all_pages >> resident_pages;
    return MemoryInUse{static_cast<long long>(heap.uordblks + heap.hblkhd),
                       resident_pages * sysconf(_SC_PAGESIZE),
                       static_cast<long long>(total - free)};
  };
  launch(1000);  // the driver's queues and the like
  const MemoryInUse before = in_use();

  launch(kLaunches);

  const MemoryInUse after = in_use();
  EXPECT_LE(after.heap - before.heap, 8 * kLaunches) << "the least that a launch can leave is 32";
  EXPECT_LE(after.resident - before.resident, 1 << 20);
  EXPECT_LE(after.device, before.device);
  EXPECT_EQ(answer_of(context, calls[0]), "");
}

}  // namespace
}  // namespace vitune::test
