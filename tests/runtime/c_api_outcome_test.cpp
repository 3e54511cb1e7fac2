// tests/runtime/c_api_outcome_test.cpp -- Which stored kernel serves: exact, nearest, default,
// next.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <random>

#include "db/sqlite.h"
#include "generator/attention/operator.h"
#include "generator/config_family.h"
#include "tests/runtime/runtime_fixture.h"

namespace vitune::test {
namespace {

using testing::HasSubstr;

constexpr const char* kNeighbour = "bf16 b=2 h=12 n=257 d=64";

// A streaming config that is in the space of both problems and the default of neither.
Config shared_config(std::string_view one, std::string_view other) {
  const AttentionProblem a = AttentionProblem::parse(one), b = AttentionProblem::parse(other);
  const ParameterSpace space = attention_space(b, mock_device());
  for (const Config& config : attention_space(a, mock_device()).enumerate()) {
    if (config.at("kResident") != 0 || config.at("kConstantKeys") != 0) continue;
    if (config == default_attention_config(a, mock_device())) continue;
    if (config == default_attention_config(b, mock_device())) continue;
    if (!space.explain(config) && config.at("kWarps") == 4) return config;
  }
  throw std::runtime_error("no config fits both problems");
}

StoredKernel neighbour_kernel(unsigned seed) {
  return make_kernel(AttentionProblem::parse(kNeighbour), shared_config(kVitB, kNeighbour), seed);
}

class CApiOutcomeTest : public RuntimeTest {
 protected:
  // The image that a call of `text` runs.
  std::uint64_t image_run(const Context& context, const char* text) {
    mock_->clear_log();
    EXPECT_STATUS(VITUNE_OK, forward(context, desc_of(text), tensors_of(text)));
    const auto launches = mock_->launches();
    return launches.size() == 1 ? launches[0].image : 0;
  }
};

TEST_F(CApiOutcomeTest, AWinnerOfThisVeryProblemServesAndSaysWhy) {
  const StoredKernel kernel = make_kernel(kVitB, 1);
  promote(database(), kernel, 20.5);
  const Context context = make_context();
  const vitune_attention_desc desc = desc_of(kVitB);
  vitune_selection found = query(context, desc);
  EXPECT_EQ(found.loaded, 0);
  EXPECT_THAT(call_names(), testing::Not(testing::Contains("cuModuleLoadData")));
  ASSERT_STATUS(VITUNE_OK, vitune_prepare(context.get(), &desc));
  found = query(context, desc);
  EXPECT_EQ(found.loaded, 1);
  EXPECT_EQ(found.outcome, VITUNE_EXACT);
  EXPECT_EQ(found.compiled, 0);
  EXPECT_EQ(found.low_confidence, 1) << "as the sample row says";
  EXPECT_DOUBLE_EQ(found.cold_us, 20.5);
  EXPECT_DOUBLE_EQ(found.warm_us, 20.5 * 0.7);
  EXPECT_DOUBLE_EQ(found.max_error, 0.0071);
  EXPECT_DOUBLE_EQ(found.rms_error, 0.00023);
  EXPECT_EQ(std::string(found.problem), kernel.problem.canonical().text());
  EXPECT_EQ(std::string(found.row), kernel.problem.canonical().text());
  EXPECT_EQ(std::string(found.config), shown_text(attention(), kernel.config));
  EXPECT_EQ(std::string(found.kernel_key), kernel.binary.kernel_key.hex());
  EXPECT_STREQ(found.source, "user");
  EXPECT_STRNE(found.reason, "");
  EXPECT_EQ(image_run(context, kVitB), kernel.image_id());
  EXPECT_EQ(stats(context).exact_calls, 1u);
  EXPECT_EQ(stats(context).kernels_loaded, 1u);
}

TEST_F(CApiOutcomeTest, TheObjectiveChoosesTheWinner) {
  const StoredKernel cold = make_kernel(kVitB, 1);
  const StoredKernel warm = make_kernel(cold.problem, other_config(cold.problem, 2), 2);
  promote(database(), cold);
  {
    Winner winner = winner_of(warm, 20);
    winner.objective = Objective::kWarm;
    Store::open(database(), Access::kReadWrite)
        ->promote(mock_device(), key_of(warm.problem), winner, &warm.binary);
  }
  vitune_context_options chosen = options();
  EXPECT_EQ(image_run(Context(chosen), kVitB), cold.image_id());
  chosen.objective = VITUNE_WARM;
  EXPECT_EQ(image_run(Context(chosen), kVitB), warm.image_id());
}

TEST_F(CApiOutcomeTest, ANeighboursWinnerServesWithoutACompilerWhereItsKernelIsTheSame) {
  const StoredKernel kernel = neighbour_kernel(1);
  promote(database(), kernel);
  const Context context = make_context();
  EXPECT_EQ(image_run(context, kVitB), kernel.image_id());
  const vitune_selection found = query(context, desc_of(kVitB));
  EXPECT_EQ(found.outcome, VITUNE_NEAREST);
  EXPECT_EQ(std::string(found.row), kernel.problem.canonical().text());
  EXPECT_EQ(std::string(found.config), shown_text(attention(), kernel.config));
  EXPECT_GT(found.predicted_us, 0);
  EXPECT_EQ(stats(context).nearest_calls, 1u);
  // Its parameters are those of the problem that was asked.
  EXPECT_EQ(mock_->launches()[0].params.keys, 197);
}

TEST_F(CApiOutcomeTest, WithoutAnyRowTheDefaultServes) {
  const StoredKernel kernel = default_kernel(kVitB, 1);
  put_binary(database(), kernel);
  const Context context = make_context();
  EXPECT_EQ(image_run(context, kVitB), kernel.image_id());
  const vitune_selection found = query(context, desc_of(kVitB));
  EXPECT_EQ(found.outcome, VITUNE_DEFAULT);
  EXPECT_STREQ(found.row, "");
  EXPECT_STREQ(found.source, "");
  EXPECT_EQ(std::string(found.config), shown_text(attention(), kernel.config));
  EXPECT_EQ(found.cold_us, 0);
  EXPECT_LT(found.max_error, 0);
  EXPECT_EQ(stats(context).default_calls, 1u);
}

// Nothing is known of the default nearby: the other one's time is no reason to take it.
TEST_F(CApiOutcomeTest, ADefaultThatWasNotMeasuredNearbyServesBeforeAConfigThatWasOnlyTried) {
  const StoredKernel standard = default_kernel(kVitB, 1);
  const AttentionProblem neighbour = AttentionProblem::parse("bf16 b=2 h=12 n=198 d=64");
  const StoredKernel won = make_kernel(neighbour, other_config(neighbour, 0), 2);
  const StoredKernel tried = make_kernel(standard.problem, other_config(neighbour, 1), 3);
  {
    const auto store = Store::open(database(), Access::kReadWrite);
    Winner winner = winner_of(won, 20);
    winner.runner_up.reset();
    winner.default_us.reset();
    store->promote(mock_device(), key_of(neighbour), winner, nullptr);
    Trial trial;
    trial.config = tried.config;
    trial.measurement = sample_measurement(8);
    store->put_trial(mock_device(), key_of(neighbour), trial);
    store->put_binary(standard.binary);
    store->put_binary(tried.binary);
  }
  const Context context = make_context();
  EXPECT_EQ(image_run(context, kVitB), standard.image_id());
  EXPECT_EQ(query(context, desc_of(kVitB)).outcome, VITUNE_DEFAULT);
}

TEST_F(CApiOutcomeTest, AnUnverifiedWinnerIsNotExact) {
  const StoredKernel kernel = make_kernel(kVitB, 1), standard = default_kernel(kVitB, 2);
  {
    const auto store = Store::open(database(), Access::kReadWrite);
    Winner winner = winner_of(kernel, 5);
    winner.verified = false;
    winner.origin = Origin::kImported;
    store->promote(mock_device(), key_of(kernel.problem), winner, &kernel.binary);
    store->put_binary(standard.binary);
  }
  const Context context = make_context();
  EXPECT_EQ(image_run(context, kVitB), standard.image_id());
  EXPECT_NE(query(context, desc_of(kVitB)).outcome, VITUNE_EXACT);
}

TEST_F(CApiOutcomeTest, AWinnerOfAnotherGpuIsNotExact) {
  const StoredKernel kernel = make_kernel(kVitB, 1), standard = default_kernel(kVitB, 2);
  {
    const auto store = Store::open(database(), Access::kReadWrite);
    DeviceInfo smaller = mock_device();
    smaller.sm_count = 114;
    store->promote(smaller, key_of(kernel.problem), winner_of(kernel, 5), &kernel.binary);
    store->put_binary(standard.binary);
  }
  const Context context = make_context();
  EXPECT_EQ(image_run(context, kVitB), standard.image_id());
}

TEST_F(CApiOutcomeTest, TheShippedLayerServesBelowTheUsers) {
  const StoredKernel ours = make_kernel(kVitB, 1);
  const StoredKernel theirs = make_kernel(ours.problem, other_config(ours.problem, 2), 2);
  promote(shipped(), theirs);
  vitune_context_options layered = options();
  const std::string path = shipped().string();
  layered.shipped_database = path.c_str();
  {
    const Context context(layered);
    EXPECT_EQ(image_run(context, kVitB), theirs.image_id());
    EXPECT_STREQ(query(context, desc_of(kVitB)).source, "shipped");
  }
  promote(database(), ours);
  const Context context(layered);
  EXPECT_EQ(image_run(context, kVitB), ours.image_id());
  EXPECT_STREQ(query(context, desc_of(kVitB)).source, "user");
}

struct Policy {
  int32_t on_miss;
  const char* variable;  // VITUNE_MISS
  char serves;           // 'n'earest, 'd'efault, 'e'rror
};

TEST_F(CApiOutcomeTest, ThePolicySaysWhatServesAMiss) {
  const StoredKernel near = neighbour_kernel(1), standard = default_kernel(kVitB, 2);
  promote(database(), near);
  put_binary(database(), standard);
  constexpr std::array kPolicies = {
      Policy{VITUNE_ON_MISS_ENVIRONMENT, nullptr, 'n'},
      Policy{VITUNE_ON_MISS_ENVIRONMENT, "nearest", 'n'},
      Policy{VITUNE_ON_MISS_ENVIRONMENT, "default", 'd'},
      Policy{VITUNE_ON_MISS_ENVIRONMENT, "error", 'e'},
      Policy{VITUNE_ON_MISS_ENVIRONMENT, "nonsense", 'n'},
      Policy{VITUNE_ON_MISS_NEAREST, "error", 'n'},
      Policy{VITUNE_ON_MISS_DEFAULT, nullptr, 'd'},
      Policy{VITUNE_ON_MISS_ERROR, "nearest", 'e'},
  };
  for (const Policy& policy : kPolicies) {
    SCOPED_TRACE(policy.on_miss);
    SCOPED_TRACE(policy.variable == nullptr ? "unset" : policy.variable);
    unsetenv("VITUNE_MISS");
    if (policy.variable != nullptr) setenv("VITUNE_MISS", policy.variable, 1);
    vitune_context_options chosen = options();
    chosen.on_miss = policy.on_miss;
    const Context context(chosen);
    if (policy.serves == 'e') {
      const vitune_attention_desc desc = desc_of(kVitB);
      EXPECT_REFUSED(VITUNE_NOT_PREPARED, vitune_prepare(context.get(), &desc), "n(q|k)?=197");
      EXPECT_STATUS(VITUNE_NOT_PREPARED, forward(context, desc, tensors_of(kVitB)));
    } else {
      const StoredKernel& expected = policy.serves == 'n' ? near : standard;
      EXPECT_EQ(image_run(context, kVitB), expected.image_id());
    }
  }
}

TEST_F(CApiOutcomeTest, TheErrorPolicyServesWhatIsTuned) {
  const StoredKernel kernel = make_kernel(kVitB, 1);
  promote(database(), kernel);
  vitune_context_options strict = options();
  strict.on_miss = VITUNE_ON_MISS_ERROR;
  EXPECT_EQ(image_run(Context(strict), kVitB), kernel.image_id());
}

// A stored kernel that must not run: each is passed over for the default, once said, always
// counted.
struct Rejection {
  const char* what;
  void (*spoil)(StoredKernel&, Winner&);
  void (*driver)(MockCuda&);
};

const std::array kRejections = {
    Rejection{"no ELF", [](StoredKernel& k, Winner&) { k.binary.image[0] ^= std::byte{1}; },
              nullptr},
    Rejection{"cut short",
              [](StoredKernel& k, Winner&) { k.binary.image.resize(k.binary.image.size() / 2); },
              nullptr},
    Rejection{"sections outside the image",
              [](StoredKernel& k, Winner&) { k.binary.image[0x28 + 6] = std::byte{0x7f}; },
              nullptr},
    Rejection{"of another architecture", [](StoredKernel& k, Winner&) { k.binary.arch = "sm_80"; },
              nullptr},
    Rejection{"of other templates",
              [](StoredKernel& k, Winner& w) {
                k.binary.kernel_key = w.kernel_key = sha256("other templates");
              },
              nullptr},
    Rejection{"its image refused by the driver", nullptr,
              [](MockCuda& mock) { mock.fail("cuModuleLoadData", 1, 209); }},
    Rejection{"its image too new for the driver", nullptr,
              [](MockCuda& mock) { mock.fail("cuModuleLoadData", 1, 222); }},
    Rejection{"without the entry", nullptr,
              [](MockCuda& mock) { mock.fail("cuModuleGetFunction", 1, 500); }},
    Rejection{"its shared memory refused", nullptr,
              [](MockCuda& mock) { mock.fail("cuFuncSetAttribute", 1, 1); }},
};

TEST_F(CApiOutcomeTest, AStoredKernelThatMustNotRunIsPassedOverForTheNext) {
  unsigned seed = 1;
  for (const Rejection& c : kRejections) {
    SCOPED_TRACE(c.what);
    const TempDir folder;
    const fs::path path = folder / "user.db";
    StoredKernel kernel = make_kernel(kVitB, seed++);
    const StoredKernel standard = default_kernel(kVitB, seed++);
    Winner winner = winner_of(kernel, 20);
    if (c.spoil != nullptr) c.spoil(kernel, winner);
    {
      const auto store = Store::open(path, Access::kReadWrite);
      store->promote(mock_device(), key_of(kernel.problem), winner, &kernel.binary);
      store->put_binary(standard.binary);
    }
    vitune_context_options chosen = options();
    LogBook book;
    const std::string text = path.string();
    chosen.database = text.c_str();
    chosen.log_user = &book;
    const Context context(chosen);
    if (c.driver != nullptr) c.driver(*mock_);
    for (int call = 0; call < 3; ++call) {
      EXPECT_EQ(image_run(context, kVitB), standard.image_id());
    }
    EXPECT_GE(stats(context).rejected, 1u);
    EXPECT_EQ(stats(context).default_calls, 3u);
    const vitune_selection found = query(context, desc_of(kVitB));
    EXPECT_EQ(found.outcome, VITUNE_DEFAULT);
    EXPECT_THAT(std::string(found.reason), testing::ContainsRegex("passed over|rejected|refused"));
    EXPECT_EQ(book.count(VITUNE_LOG_WARNING, ""), 1) << "one warning, not one per call";
    mock_->clear_failures();
  }
}

TEST_F(CApiOutcomeTest, ABlockedKernelIsPassedOver) {
  const StoredKernel kernel = make_kernel(kVitB, 1), standard = default_kernel(kVitB, 2);
  promote(database(), kernel);
  put_binary(database(), standard);
  Store::open(database(), Access::kReadWrite)
      ->block({kernel.binary.kernel_key, mock_device().key(), mock_device().driver_version,
               TrialStatus::kTimeout, "did not end in 10 s"});
  const Context context = make_context();
  EXPECT_EQ(image_run(context, kVitB), standard.image_id());
  EXPECT_THAT(std::string(query(context, desc_of(kVitB)).reason), HasSubstr("block"))
      << "the reason says why the winner does not serve";
}

TEST_F(CApiOutcomeTest, ABlockThatWasLiftedHoldsNothingBackAndAForgedLiftDoes) {
  const StoredKernel kernel = make_kernel(kVitB, 1), standard = default_kernel(kVitB, 2);
  promote(database(), kernel);
  put_binary(database(), standard);
  const BlockEntry block{kernel.binary.kernel_key, mock_device().key(),
                         mock_device().driver_version, TrialStatus::kWrong, "max error 0.5"};
  Store::open(database(), Access::kReadWrite)->block(block);
  Connection(database(), Connection::Mode::kReadWrite).execute("UPDATE block SET status = 'ok'");
  EXPECT_EQ(image_run(make_context(), kVitB), standard.image_id());
  Connection(database(), Connection::Mode::kReadWrite).execute("UPDATE block SET status = 'wrong'");
  EXPECT_EQ(image_run(make_context(), kVitB), standard.image_id());
  Store::open(database(), Access::kReadWrite)->unblock_all({block});
  EXPECT_EQ(image_run(make_context(), kVitB), kernel.image_id());
}

TEST_F(CApiOutcomeTest, AKernelThatDidNotEndOnAProblemIsPassedOverForThatProblemAlone) {
  const StoredKernel kernel = make_kernel(kVitB, 1), standard = default_kernel(kVitB, 2);
  promote(database(), kernel);
  put_binary(database(), standard);
  Trial trial;
  trial.config = winner_of(kernel, 20).config;
  trial.kernel_key = kernel.binary.kernel_key;
  trial.status = TrialStatus::kTimeout;
  trial.reason = "did not finish";
  ProblemKey other = key_of(kernel.problem);
  other.text += " mask=causal";
  Store::open(database(), Access::kReadWrite)->put_trial(mock_device(), other, trial);
  EXPECT_EQ(image_run(make_context(), kVitB), kernel.image_id());
  Store::open(database(), Access::kReadWrite)
      ->put_trial(mock_device(), key_of(kernel.problem), trial);
  const Context context = make_context();
  EXPECT_EQ(image_run(context, kVitB), standard.image_id());
  EXPECT_THAT(std::string(query(context, desc_of(kVitB)).reason), HasSubstr("did not end"));
}

TEST_F(CApiOutcomeTest, AWinnerWithoutItsBinaryIsPassedOver) {
  const StoredKernel kernel = make_kernel(kVitB, 1), standard = default_kernel(kVitB, 2);
  {
    const auto store = Store::open(database(), Access::kReadWrite);
    store->promote(mock_device(), key_of(kernel.problem), winner_of(kernel, 20), nullptr);
    store->put_binary(standard.binary);
  }
  const Context context = make_context();
  EXPECT_EQ(image_run(context, kVitB), standard.image_id());
}

TEST_F(CApiOutcomeTest, NothingThatCouldServeIsAnErrorThatIsRemembered) {
  const std::uint64_t opens = nvrtc_opens();
  const Context context = make_context();
  const Tensors t = tensors_of(kVitB);
  const vitune_attention_desc desc = desc_of(kVitB);
  const vitune_status status = forward(context, desc, t);
  EXPECT_TRUE(status == VITUNE_NO_COMPILER || status == VITUNE_NOT_PREPARED)
      << vitune_status_name(status);
  const std::string sentence = vitune_last_error();
  EXPECT_THAT(sentence, HasSubstr("197"));
  mock_->clear_log();
  EXPECT_STATUS(status, forward(context, desc, t));
  EXPECT_EQ(vitune_last_error(), sentence);
  EXPECT_EQ(calls_of("cuModuleLoadData"), 0);
  EXPECT_EQ(stats(context).failed_calls, 2u);
  EXPECT_EQ(nvrtc_opens(), opens) << "no_compile never opens libnvrtc";
}

// Whatever becomes of the file, a wrong kernel never runs.
TEST_F(CApiOutcomeTest, ADamagedDatabaseServesTheRightKernelOrNone) {
  const StoredKernel kernel = make_kernel(kVitB, 1), standard = default_kernel(kVitB, 2);
  promote(database(), kernel);
  put_binary(database(), standard);
  const std::string whole = read_bytes(database());
  std::mt19937_64 random(11);
  int exact = 0, fallback = 0, none = 0;
  for (int i = 0; i < 150; ++i) {
    std::string damaged = whole;
    const int flips = i % 3 == 0 ? 1 : 200;
    for (int n = 0; n < flips; ++n) {
      damaged[random() % damaged.size()] ^= static_cast<char>(1 << random() % 8);
    }
    if (i % 10 == 0) damaged.resize(random() % damaged.size());
    write_bytes(database(), damaged);
    const Context context = make_context();
    mock_->clear_log();
    if (forward(context, desc_of(kVitB), tensors_of(kVitB)) != VITUNE_OK) {
      ++none;
      continue;
    }
    const std::uint64_t image = mock_->launches().at(0).image;
    (image == kernel.image_id() ? exact : fallback) += 1;
    EXPECT_TRUE(image == kernel.image_id() || image == standard.image_id()) << i;
  }
  EXPECT_GT(exact, 0);
  EXPECT_GT(none + fallback, 0);
}

}  // namespace
}  // namespace vitune::test
