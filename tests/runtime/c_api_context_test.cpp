// tests/runtime/c_api_context_test.cpp -- Making and ending contexts: options, forks, what is left.
// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <set>
#include <thread>

#include "tests/patience.h"
#include "tests/runtime/runtime_fixture.h"

namespace vitune::test {
namespace {

using testing::HasSubstr;

class CApiContextTest : public RuntimeTest {};

// First in this file: later tests load the mock, which then stays for the life of the process.
TEST(CApiNoDriverTest, AMachineWithoutADriverGivesASentence) {
  if (void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
    dlclose(library);
    GTEST_SKIP() << "this process has a CUDA driver";
  }
  auto* context = reinterpret_cast<vitune_context*>(0x1);
  EXPECT_STATUS(VITUNE_NO_DEVICE, vitune_context_create(nullptr, &context));
  EXPECT_EQ(context, nullptr);
  EXPECT_THAT(vitune_last_error(), HasSubstr("libcuda.so.1"));
  EXPECT_THAT(vitune_last_error(), HasSubstr("install"));
  EXPECT_THAT(vitune_last_error(), testing::Not(HasSubstr("replay")))
      << "what the command can do without a GPU is no advice for a program";
}

TEST(CApiTest, TheVersionIsTheHeaders) {
  EXPECT_EQ(vitune_version(),
            VITUNE_VERSION_MAJOR * 10000 + VITUNE_VERSION_MINOR * 100 + VITUNE_VERSION_PATCH);
}

TEST(CApiTest, EveryStatusHasANameOfItsOwn) {
  std::set<std::string> names;
  for (vitune_status status = VITUNE_OK; status <= VITUNE_INTERNAL; ++status) {
    const std::string name = vitune_status_name(status);
    EXPECT_THAT(name, testing::StartsWith("VITUNE_"));
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_STREQ(vitune_status_name(VITUNE_OK), "VITUNE_OK");
  EXPECT_STREQ(vitune_status_name(VITUNE_NOT_PREPARED), "VITUNE_NOT_PREPARED");
  for (const vitune_status unknown : {-1, 12, 1 << 30, INT32_MIN}) {
    ASSERT_NE(vitune_status_name(unknown), nullptr);
    EXPECT_FALSE(names.contains(vitune_status_name(unknown))) << unknown;
  }
}

// The driver of an H200 takes 0.7 ms for the facts. The log holds the opening until it was asked.
TEST_F(CApiContextTest, TheDriverIsAskedForTheFactsWhileTheDatabasesAreOpened) {
  struct Opening {
    MockCuda* mock;
    bool asked = false;
  } opening{mock_};
  std::ofstream(database()) << "no database, which is worth a warning";
  vitune_context_options chosen = options();
  chosen.log_user = &opening;
  chosen.log = [](void* user, int32_t, const char*) {
    auto* const its = static_cast<Opening*>(user);
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!its->asked && std::chrono::steady_clock::now() < end) {
      for (const MockCall& call : its->mock->calls()) {
        its->asked |=
            call.name == "cuDeviceGetAttribute" && call.thread != std::this_thread::get_id();
      }
    }
  };
  const Context context(chosen);
  EXPECT_TRUE(opening.asked);
}

TEST_F(CApiContextTest, AFactThatTheDriverDoesNotTellIsToldToWhoMadeTheContext) {
  mock_->fail("cuDeviceGetAttribute", 3, 999);
  const vitune_context_options chosen = options();
  vitune_context* context = nullptr;
  EXPECT_REFUSED(VITUNE_DEVICE_ERROR, vitune_context_create(&chosen, &context),
                 "cuDeviceGetAttribute");
  EXPECT_EQ(context, nullptr);
}

TEST_F(CApiContextTest, AnErrorIsOfItsThreadAndStaysUntilTheNextOne) {
  EXPECT_EQ(vitune_context_destroy(nullptr), VITUNE_INVALID_CONTEXT);
  const std::string mine = vitune_last_error();
  EXPECT_FALSE(mine.empty());
  std::string other = "?";
  std::thread([&] { other = vitune_last_error(); }).join();
  EXPECT_EQ(other, "");
  const Context context = make_context();
  EXPECT_EQ(vitune_last_error(), mine) << "a call that succeeds clears nothing";
}

TEST_F(CApiContextTest, NullOptionsAreTheDefaults) {
  setenv("VITUNE_DB", database().c_str(), 1);
  vitune_context* context = nullptr;
  ASSERT_STATUS(VITUNE_OK, vitune_context_create(nullptr, &context));
  EXPECT_NE(context, nullptr);
  EXPECT_EQ(mock_->live().contexts, 1);
  EXPECT_STATUS(VITUNE_OK, vitune_context_destroy(context));
  EXPECT_EQ(mock_->live().total(), 0);
}

TEST_F(CApiContextTest, ANullResultIsRefused) {
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, vitune_context_create(nullptr, nullptr), "context");
}

TEST_F(CApiContextTest, BadOptionsAreRefusedAndNothingIsMade) {
  struct Case {
    const char* what;
    void (*spoil)(vitune_context_options&);
    vitune_status status;
    const char* words;
  };
  const std::array cases = {
      Case{"no size", [](auto& o) { o.size = 0; }, VITUNE_INVALID_ARGUMENT, "size"},
      Case{"a small size", [](auto& o) { o.size = 8; }, VITUNE_INVALID_ARGUMENT, "size"},
      Case{"no such device", [](auto& o) { o.device = 2; }, VITUNE_NO_DEVICE, "device 2"},
      Case{"a negative device", [](auto& o) { o.device = -1; }, VITUNE_INVALID_ARGUMENT, "device"},
      Case{"an objective", [](auto& o) { o.objective = 2; }, VITUNE_INVALID_ARGUMENT, "objective"},
      Case{"a policy", [](auto& o) { o.on_miss = 5; }, VITUNE_INVALID_ARGUMENT, "on_miss"},
      Case{"a negative policy", [](auto& o) { o.on_miss = -1; }, VITUNE_INVALID_ARGUMENT,
           "on_miss"},
      Case{"on_busy", [](auto& o) { o.on_busy = 2; }, VITUNE_INVALID_ARGUMENT, "on_busy"},
      Case{"read_only", [](auto& o) { o.read_only = 2; }, VITUNE_INVALID_ARGUMENT, "read_only"},
      Case{"no_compile", [](auto& o) { o.no_compile = -1; }, VITUNE_INVALID_ARGUMENT, "no_compile"},
      Case{"check_pointers", [](auto& o) { o.check_pointers = 7; }, VITUNE_INVALID_ARGUMENT,
           "check_pointers"},
      Case{"refresh_seconds", [](auto& o) { o.refresh_seconds = -1; }, VITUNE_INVALID_ARGUMENT,
           "refresh_seconds"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    vitune_context_options bad = options();
    c.spoil(bad);
    auto* context = reinterpret_cast<vitune_context*>(0x1);
    EXPECT_REFUSED(c.status, vitune_context_create(&bad, &context), c.words);
    EXPECT_EQ(context, nullptr);
    EXPECT_EQ(mock_->live().total(), 0);
  }
}

// Older programs hand over a shorter struct, newer ones a longer one.
TEST_F(CApiContextTest, OptionsOfANewerVersionAreTakenWhereTheirTailIsZero) {
  struct {
    vitune_context_options options;
    std::array<unsigned char, 32> tail;
  } longer{options(), {}};
  longer.options.size = sizeof(longer);
  vitune_context* context = nullptr;
  EXPECT_STATUS(VITUNE_OK, vitune_context_create(&longer.options, &context));
  EXPECT_EQ(vitune_context_destroy(context), VITUNE_OK);
  longer.tail[31] = 1;
  EXPECT_REFUSED(VITUNE_UNSUPPORTED, vitune_context_create(&longer.options, &context), "newer");
}

// A size that no struct has is garbage: nothing may be read on its word.
TEST_F(CApiContextTest, AHugeSizeIsRefusedWithoutReadingThatFar) {
  const long page = sysconf(_SC_PAGESIZE);
  auto* const memory = static_cast<char*>(
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(mprotect(memory + page, page, PROT_NONE), 0);
  auto* const at_end =
      reinterpret_cast<vitune_attention_desc*>(memory + page - sizeof(vitune_attention_desc));
  for (const std::size_t size : {std::size_t{1} << 20, std::size_t{1} << 40, SIZE_MAX}) {
    *at_end = desc_of(kVitB);
    at_end->size = size;
    std::array<char, 16> text{};
    const vitune_status status = vitune_problem_text(at_end, text.data(), text.size(), nullptr);
    EXPECT_TRUE(status == VITUNE_INVALID_ARGUMENT || status == VITUNE_UNSUPPORTED) << size;
  }
  munmap(memory, 2 * page);
}

TEST_F(CApiContextTest, EveryCallOnNoContextIsRefused) {
  const vitune_attention_desc desc = desc_of(kVitB);
  const Tensors t = tensors_of(kVitB);
  vitune_selection selection = VITUNE_SELECTION_INIT;
  vitune_stats some = VITUNE_STATS_INIT;
  const auto expect_refused = [&](vitune_context* context) {
    EXPECT_REFUSED(VITUNE_INVALID_CONTEXT, vitune_prepare(context, &desc), "context");
    EXPECT_REFUSED(VITUNE_INVALID_CONTEXT,
                   vitune_attention_forward(context, &desc, t.q, t.k, t.v, nullptr, nullptr, t.out,
                                            nullptr, nullptr, 0, nullptr),
                   "context");
    EXPECT_REFUSED(VITUNE_INVALID_CONTEXT, vitune_query(context, &desc, &selection), "context");
    EXPECT_REFUSED(VITUNE_INVALID_CONTEXT, vitune_context_stats(context, &some), "context");
    EXPECT_REFUSED(VITUNE_INVALID_CONTEXT, vitune_context_refresh(context, nullptr), "context");
    EXPECT_REFUSED(VITUNE_INVALID_CONTEXT, vitune_context_flush(context), "context");
    EXPECT_REFUSED(VITUNE_INVALID_CONTEXT, vitune_context_destroy(context), "context");
  };
  expect_refused(nullptr);
  vitune_context* context = nullptr;
  const vitune_context_options chosen = options();
  ASSERT_STATUS(VITUNE_OK, vitune_context_create(&chosen, &context));
  ASSERT_STATUS(VITUNE_OK, vitune_context_destroy(context));
  mock_->clear_log();
  expect_refused(context);
  EXPECT_THAT(vitune_last_error(), HasSubstr("destroyed"));
  EXPECT_THAT(call_names(), testing::IsEmpty()) << "nothing of the driver is left to call";
}

TEST_F(CApiContextTest, AForkedChildIsToldSoAndTouchesNeitherDriverNorDatabase) {
  promote(database(), make_kernel(kVitB, 1));
  const Context context = make_context();
  const vitune_attention_desc desc = desc_of(kVitB);
  const Tensors t = tensors_of(kVitB);
  ASSERT_STATUS(VITUNE_OK, forward(context, desc, t));
  const int status = in_child([&] {
    mock_->clear_log();
    if (forward(context, desc, t) != VITUNE_INVALID_CONTEXT) return 1;
    if (std::string(vitune_last_error()).find("fork") == std::string::npos) return 2;
    if (vitune_prepare(context.get(), &desc) != VITUNE_INVALID_CONTEXT) return 3;
    vitune_selection selection = VITUNE_SELECTION_INIT;
    if (vitune_query(context.get(), &desc, &selection) != VITUNE_INVALID_CONTEXT) return 4;
    if (vitune_context_refresh(context.get(), nullptr) != VITUNE_INVALID_CONTEXT) return 5;
    if (vitune_context_flush(context.get()) != VITUNE_INVALID_CONTEXT) return 6;
    vitune_stats some = VITUNE_STATS_INIT;
    if (vitune_context_stats(context.get(), &some) != VITUNE_INVALID_CONTEXT) return 7;
    if (vitune_context_destroy(context.get()) != VITUNE_INVALID_CONTEXT) return 8;
    return mock_->calls().empty() ? 0 : 9;
  });
  EXPECT_EQ(status, 0);
  EXPECT_STATUS(VITUNE_OK, forward(context, desc, t)) << "the parent goes on";
}

TEST_F(CApiContextTest, AForkWhileAnotherThreadLoadsLeavesTheChildAble) {
  put_binary(database(), default_kernel(kVitB, 1));
  const Context context = make_context();
  const vitune_attention_desc desc = desc_of(kVitB);
  mock_->hold_loads(true);
  std::thread loader([&] { EXPECT_EQ(vitune_prepare(context.get(), &desc), VITUNE_OK); });
  while (mock_->loads_waiting() == 0) std::this_thread::yield();
  // The child must neither wait for a lock that nobody holds any more nor crash.
  const int status = in_child([&] {
    alarm(60);
    return vitune_prepare(context.get(), &desc) == VITUNE_INVALID_CONTEXT ? 0 : 1;
  });
  mock_->hold_loads(false);
  loader.join();
  EXPECT_EQ(status, 0);
}

TEST_F(CApiContextTest, TheThreadsCurrentContextIsAsBefore) {
  promote(database(), make_kernel(kVitB, 1));
  const vitune_attention_desc desc = desc_of(kVitB);
  const Tensors t = tensors_of(kVitB);
  for (CuContextTag* mine : {static_cast<CuContextTag*>(nullptr), mock_->primary(1),
                             mock_->primary(0), reinterpret_cast<CuContextTag*>(0x1234)}) {
    mock_->set_current(mine);
    const int depth = mock_->depth();
    const auto expect_same = [&](const char* after) {
      EXPECT_EQ(mock_->current(), mine) << after;
      EXPECT_EQ(mock_->depth(), depth) << after;
    };
    {
      const Context context = make_context();
      expect_same("create");
      EXPECT_STATUS(VITUNE_OK, vitune_prepare(context.get(), &desc));
      expect_same("prepare");
      EXPECT_STATUS(VITUNE_OK, forward(context, desc, t));
      EXPECT_STATUS(VITUNE_OK, forward(context, desc, t));
      expect_same("forward");
      query(context, desc);
      EXPECT_STATUS(VITUNE_OK, vitune_context_refresh(context.get(), nullptr));
      EXPECT_STATUS(VITUNE_OK, vitune_context_flush(context.get()));
      expect_same("query, refresh, flush");
    }
    expect_same("destroy");
  }
}

TEST_F(CApiContextTest, EachDeviceHasItsOwnPrimaryContext) {
  promote(database(), make_kernel(kVitB, 1));
  vitune_context_options second = options();
  second.device = 1;
  const Context first_context = make_context();
  const Context second_context(second);
  const vitune_attention_desc desc = desc_of(kVitB);
  Tensors t = tensors_of(kVitB);
  EXPECT_STATUS(VITUNE_OK, forward(first_context, desc, t));
  for (const void** p : {&t.q, &t.k, &t.v}) *p = buffer(1 << 20, 1);
  t.out = buffer(1 << 20, 1);
  EXPECT_STATUS(VITUNE_OK, forward(second_context, desc, t));
  const auto launches = mock_->launches();
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(launches[0].device, 0);
  EXPECT_EQ(launches[1].device, 1);
}

TEST_F(CApiContextTest, ManyContextsComeAndGo) {
  promote(database(), make_kernel(kVitB, 1));
  const vitune_attention_desc desc = desc_of(kVitB);
  for (int i = 0; i < 50; ++i) {
    const Context one = make_context(), two = make_context();
    EXPECT_STATUS(VITUNE_OK, vitune_prepare(one.get(), &desc));
    EXPECT_STATUS(VITUNE_OK, vitune_prepare(two.get(), &desc));
  }
  EXPECT_EQ(mock_->live().total(), 0);
}

TEST_F(CApiContextTest, AnUnusableDatabaseIsOneWarningAndNoFailure) {
  write_bytes(database(), "this is no database, but long enough to be looked at as one");
  const Context context = make_context();
  EXPECT_EQ(log_.count(VITUNE_LOG_WARNING, database().filename().string()), 1);
  EXPECT_EQ(read_bytes(database()).substr(0, 10), "this is no") << "the file stays as it is";
}

TEST_F(CApiContextTest, AMissingDatabaseIsNoWarning) {
  const Context context = make_context();
  EXPECT_EQ(log_.count(VITUNE_LOG_WARNING, ""), 0);
  EXPECT_FALSE(fs::exists(database())) << "opening makes no file";
}

}  // namespace
}  // namespace vitune::test
