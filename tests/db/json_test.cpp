// tests/db/json_test.cpp -- Export and import: what survives, and what is refused.
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "tests/db/test_support.h"

namespace vitune {
namespace {

using test::sample_device;
using test::sample_problem;
using test::sample_trial;
using test::sample_winner;

std::unique_ptr<Store> one_of_each() {
  auto store = Store::in_memory();
  store->put_trial(sample_device(), sample_problem(), sample_trial(1));
  store->promote(sample_device(), sample_problem(), sample_winner(1), nullptr);
  store->add_requests({{"attention", sample_problem(257).text, 3, 4.5}});
  return store;
}

// `text` with the first `from` replaced; the test fails if there is none.
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  if (at == std::string::npos) {
    ADD_FAILURE() << "no " << from;
    return text;
  }
  return text.replace(at, from.size(), to);
}

TEST(Export, IsSortedJsonWithASchemaVersionAndNoBinariesReasonsOrIdentifiers) {
  auto store = Store::in_memory();
  test::fill(*store);
  const std::string text = store->export_json();
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["format"], "vitune-export");
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["devices"].size(), 2U);
  EXPECT_EQ(json["problems"].size(), 3U);
  EXPECT_EQ(json["winners"].size(), 6U);
  EXPECT_EQ(json["trials"].size(), 60U);
  EXPECT_EQ(json["requests"].size(), 1U);
  for (const char* word : {"image", "reason", "entry", "uuid", "above its bound"}) {
    EXPECT_EQ(text.find(word), std::string::npos) << word;
  }
  EXPECT_FALSE(nlohmann::json::parse(store->export_json(false)).contains("trials"));
  EXPECT_EQ(store->export_json(), text);
}

TEST(Export, TheOrderOfWritingDoesNotShow) {
  auto a = Store::in_memory();
  auto b = Store::in_memory();
  for (const int n : {1, 2, 3}) a->put_trial(sample_device(n), sample_problem(n), sample_trial(n));
  for (const int n : {3, 1, 2}) b->put_trial(sample_device(n), sample_problem(n), sample_trial(n));
  EXPECT_EQ(a->export_json(), b->export_json());
}

TEST(Import, OfAnExportGivesTheSameUpToOriginVerifiedAndReasons) {
  auto from = Store::in_memory();
  test::fill(*from);
  Trial nan = sample_trial(50);
  nan.config.set_family("chain");
  nan.status = TrialStatus::kWrong;
  nan.error.max_error = std::nan("");
  nan.measurement.cold = {0.1 + 0.2, 0.1, 1, 40};
  from->put_trial(sample_device(), sample_problem(), nan);
  auto into = Store::in_memory();
  const MergeReport report = into->import_json(from->export_json());
  EXPECT_EQ(report.trials_added, 61);
  EXPECT_EQ(report.winners_added, 6);

  const auto winners = from->winners();
  const auto imported = into->winners();
  ASSERT_EQ(imported.size(), winners.size());
  for (std::size_t i = 0; i < winners.size(); ++i) {
    Winner expected = winners[i].winner;
    expected.origin = Origin::kImported;
    expected.verified = false;
    expected.image_digest.reset();  // images do not travel
    EXPECT_EQ(imported[i].winner, expected);
    EXPECT_EQ(imported[i].device, winners[i].device);
    EXPECT_EQ(imported[i].problem, winners[i].problem);
  }
  const auto trials = from->all_trials();
  const auto imported_trials = into->all_trials();
  ASSERT_EQ(imported_trials.size(), trials.size());
  for (std::size_t i = 0; i < trials.size(); ++i) {
    Trial expected = trials[i].trial;
    expected.origin = Origin::kImported;
    expected.reason = imported_trials[i].trial.reason;
    EXPECT_EQ(imported_trials[i].trial, expected);
  }
  EXPECT_EQ(into->requests()[0].calls, 17);
  EXPECT_EQ(into->stats().binaries, 0);
  EXPECT_EQ(into->stats().blocks, 0);
  EXPECT_EQ(into->stats().unverified_winners, 6);
  // Once imported, export and import change nothing more.
  auto third = Store::in_memory();
  third->import_json(into->export_json());
  EXPECT_EQ(third->export_json(), into->export_json());
}

TEST(Import, NeverTouchesWhatWasMeasuredAndVerifiedHere) {
  auto store = one_of_each();
  std::string text = store->export_json();
  text = replaced(text, "\"low_us\":10.", "\"low_us\":0.");
  text = replaced(text, "\"median_us\":11.0", "\"median_us\":0.9");
  const std::string before = store->export_json();
  const MergeReport report = store->import_json(text);
  EXPECT_EQ(report.winners_added + report.winners_replaced + report.trials_added, 0);
  EXPECT_EQ(store->export_json(), before);
}

TEST(Import, AnUnprintableLabelIsExportedAsUnderscoresAndStillImports) {
  DeviceInfo device = sample_device();
  device.name = "GPU \"\x1b[31m\xff\xfe";
  auto store = Store::in_memory();
  store->put_trial(device, sample_problem(), sample_trial(1));
  auto into = Store::in_memory();
  into->import_json(store->export_json());
  EXPECT_EQ(into->all_trials().at(0).device.name, "GPU __[31m__");
}

struct Hostile {
  const char* name;
  const char* from;  // what is replaced in a good export; "" replaces all of it
  std::string to;
  const char* reason;  // part of the message
};

std::vector<Hostile> hostile_imports() {
  const std::string deep = std::string(100000, '[');
  return {
      {"nothing", "", "", "not valid JSON"},
      {"a word", "", "nonsense", "not valid JSON"},
      {"null", "", "null", "must be an object"},
      {"a number", "", "1", "must be an object"},
      {"a list", "", "[]", "must be an object"},
      {"an empty object", "", "{}", "format: is missing"},
      {"deep lists", "", deep, "must be an object"},
      {"deep objects", "\"config\":{",
       "\"config\":{\"kA\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{}}}}}}}},",
       "nested more than 8"},
      {"a trailing comma", "\"schema\":1,", "\"schema\":1,,", "not valid JSON"},
      {"a comment", "\"schema\":1,", "/*x*/\"schema\":1,", "not valid JSON"},
      {"a second document", "]\n}", "]\n}{}", "not valid JSON"},
      {"a NaN", "\"lead_percent\":1.5", "\"lead_percent\":NaN", "not valid JSON"},
      {"an infinity", "\"lead_percent\":1.5", "\"lead_percent\":1e999", "out of range"},
      {"a byte that is not UTF-8", "Sample GPU", "Sample \xff", "not valid JSON"},
      {"an overlong UTF-8 sequence", "Sample GPU", "Sample \xc0\xaf", "not valid JSON"},
      {"a surrogate in UTF-8", "Sample GPU", "Sample \xed\xa0\x80", "not valid JSON"},
      {"a raw control character", "Sample GPU", "Sample \x01", "not valid JSON"},
      {"an escaped NUL", "Sample GPU", "Sample \\u0000", "devices[0].name"},
      {"a terminal escape", "Sample GPU", "Sample \\u001b[31m", "devices[0].name"},
      {"a letter outside ASCII", "Sample GPU", "Sample \xc3\xa4", "devices[0].name"},
      {"a lone surrogate", "Sample GPU", "Sample \\ud800", "not valid JSON"},
      {"another format", "vitune-export", "other-export", "format"},
      {"a newer schema", "\"schema\":1,", "\"schema\":2,", "newer"},
      {"a text as schema", "\"schema\":1,", "\"schema\":\"1\",", "schema"},
      {"a real schema", "\"schema\":1,", "\"schema\":1.0,", "schema"},
      {"no schema", "\"schema\":1,", "", "schema: is missing"},
      {"an unknown section", "\"schema\":1,", "\"schema\":1,\"code\":[],",
       "unknown field \"code\""},
      {"a section twice", "\"schema\":1,", "\"schema\":1,\"trials\":[],", "twice"},
      {"schema twice", "\"schema\":1,", "\"schema\":1,\"schema\":1,", "twice"},
      {"an object as section", "\"requests\":[", "\"requests\":{},\"requests\":[",
       "must be a list"},
      {"a null section", "\"requests\":[", "\"requests\":null,\"requests\":[", "must be a list"},
      {"a number as record", "\"requests\":[", "\"requests\":[1,", "must be an object"},
      {"a list as record", "\"requests\":[", "\"requests\":[[],", "must not hold lists"},
      {"a list in a record", "\"calls\":3", "\"calls\":[3]", "must not hold lists"},
      {"an unknown field", "\"calls\":3", "\"calls\":3,\"path\":\"x\"", "unknown field \"path\""},
      {"an unknown field with a hostile name", "\"calls\":3", "\"calls\":3,\"\\u001b[2J\":1",
       "has an unknown field"},
      {"a field twice", "\"calls\":3", "\"calls\":3,\"calls\":3", "twice"},
      {"a config entry twice", "\"kBlockM\":64", "\"kBlockM\":64,\"kBlockM\":64", "twice"},
      {"a missing field", "\"calls\":3,", "", "requests[0].calls: is missing"},
      {"a negative count", "\"calls\":3", "\"calls\":-3", "requests[0].calls"},
      {"a real count", "\"calls\":3", "\"calls\":3.5", "requests[0].calls"},
      {"a text count", "\"calls\":3", "\"calls\":\"3\"", "requests[0].calls"},
      {"a count of 2^63", "\"calls\":3", "\"calls\":9223372036854775808", "requests[0].calls"},
      {"a count beyond 2^64", "\"calls\":3", "\"calls\":99999999999999999999", "requests[0].calls"},
      {"a SM count beyond int", "\"sm_count\":132", "\"sm_count\":4294967296",
       "devices[0].sm_count"},
      {"a config value beyond int64", "\"kBlockM\":64", "\"kBlockM\":9223372036854775808",
       "kBlockM"},
      {"a real config value", "\"kBlockM\":64", "\"kBlockM\":64.0", "kBlockM"},
      {"a text config value", "\"kBlockM\":64", "\"kBlockM\":\"64\"", "kBlockM"},
      {"a boolean config value", "\"kBlockM\":64", "\"kBlockM\":true", "kBlockM"},
      {"a config name without k", "\"kBlockM\":64", "\"BlockM\":64", "name"},
      {"a config name of only k", "\"kBlockM\":64", "\"k\":64", "name"},
      {"code in a config name", "\"kBlockM\":64", "\"kX=1; asm(1);//\":64", "name"},
      {"an underscore in a config name", "\"kBlockM\":64", "\"k_M\":64", "name"},
      {"a config that is a text", "\"runner_up\":{", "\"runner_up\":\"kA=1\",\"x\":{", "runner_up"},
      {"a line feed in a problem", "b=32", "b=32\\n", "text"},
      {"a quote in a problem", "b=32", "b='32'", "text"},
      {"a semicolon in a problem", "b=32", "b=32;", "text"},
      {"an empty operator", "\"operator\":\"attention\"", "\"operator\":\"\"", "operator"},
      {"a problem of 5000 characters", "b=32", "b=" + std::string(5000, '3'), "text"},
      {"a short kernel key", "\"kernel_key\":\"", "\"kernel_key\":\"ab\",\"x\":\"", "kernel_key"},
      {"an unknown objective", "\"objective\":\"cold\"", "\"objective\":\"fast\"", "objective"},
      {"an unknown origin", "\"origin\":\"measured\"", "\"origin\":\"me\"", "origin"},
      {"an unknown status", "\"status\":\"ok\"", "\"status\":\"fine\"", "status"},
      {"verified as number", "\"verified\":true", "\"verified\":1", "verified"},
      {"a negative time", "\"median_us\":11.0", "\"median_us\":-11.0", "median_us"},
      {"an absurd time", "\"median_us\":11.0", "\"median_us\":1e300", "median_us"},
      {"an interval beside its median", "\"median_us\":11.0", "\"median_us\":99.0",
       "low_us <= median_us <= high_us"},
      {"a null time", "\"median_us\":11.0", "\"median_us\":null", "median_us"},
      {"a foreign field in a timing", "\"median_us\":11.0", "\"median_us\":11.0,\"p99\":1", "p99"},
      {"a device that is not there", "\"device\":0", "\"device\":1", "names place 1"},
      {"a negative place", "\"device\":0", "\"device\":-1", "device"},
      {"a problem that is not there", "\"problem\":0", "\"problem\":7", "names place 7"},
      {"an image",
       "\"kernel_key\":", "\"image\":\"AAAA\",\"kernel_key\":", "unknown field \"image\""},
  };
}

TEST(Import, RefusesEveryHostileFileAndChangesNothing) {
  const std::string good = one_of_each()->export_json();
  auto store = Store::in_memory();
  store->promote(sample_device(), sample_problem(577), sample_winner(9), nullptr);
  const std::string before = store->export_json();
  const auto cases = hostile_imports();
  EXPECT_GE(cases.size(), 60U);
  for (const Hostile& hostile : cases) {
    const std::string text =
        *hostile.from == '\0' ? hostile.to : replaced(good, hostile.from, hostile.to);
    try {
      store->import_json(text);
      ADD_FAILURE() << hostile.name << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage) << hostile.name << ": " << error.what();
      EXPECT_NE(std::string(error.what()).find(hostile.reason), std::string::npos)
          << hostile.name << ": " << error.what();
      EXPECT_NE(std::string(error.what()).find("nothing was imported"), std::string::npos);
      for (const char c : std::string(error.what())) {
        EXPECT_TRUE(c >= ' ' && c <= '~') << hostile.name << ": the message quotes raw bytes";
      }
    }
    EXPECT_EQ(store->export_json(), before) << hostile.name;
  }
  EXPECT_EQ(store->import_json(good).winners_added, 1);
}

TEST(Import, RefusesWhatIsTooLarge) {
  auto store = Store::in_memory();
  const std::string good = one_of_each()->export_json();
  const auto refusal = [&](const std::string& text) -> std::string {
    try {
      store->import_json(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(refusal(good + std::string(std::size_t{64} << 20, ' ')).find("64 MiB"),
            std::string::npos);
  std::string fields;
  for (int i = 0; i < 2000; ++i) fields += "\"kA" + std::to_string(i) + "\":1,";
  EXPECT_NE(refusal(replaced(good, "\"kBlockM\":64", fields + "\"kBlockM\":64")).find("too many"),
            std::string::npos);
  std::string records = "\"requests\":[";
  for (int i = 0; i < 1000001; ++i) records += "{},";
  // The first record already lacks its fields; a missing field must not hide behind the number.
  EXPECT_NE(refusal(replaced(good, "\"requests\":[", records)), "accepted");
  EXPECT_EQ(store->stats().winners, 0);
}

TEST(Import, EveryPrefixOfAnExportIsRefused) {
  const std::string good = one_of_each()->export_json();
  auto store = Store::in_memory();
  for (std::size_t size = 0; size + 2 < good.size(); size += 7) {
    EXPECT_THROW(store->import_json(good.substr(0, size)), Error) << size;
  }
  EXPECT_EQ(store->stats().winners, 0);
}

TEST(Import, RandomByteChangesNeverCrashAndNeverGiveVerifiedWinners) {
  const std::string good = one_of_each()->export_json();
  std::mt19937 random(5);
  for (int i = 0; i < 500; ++i) {
    std::string text = good;
    for (unsigned k = 0; k <= random() % 3; ++k) {
      text[random() % text.size()] = static_cast<char>(random() & 255);
    }
    auto store = Store::in_memory();
    try {
      store->import_json(text);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kUsage) << error.what();
      continue;
    }
    for (const WinnerEntry& entry : store->winners()) {
      EXPECT_FALSE(entry.winner.verified);
      EXPECT_EQ(entry.winner.origin, Origin::kImported);
    }
  }
}

}  // namespace
}  // namespace vitune
