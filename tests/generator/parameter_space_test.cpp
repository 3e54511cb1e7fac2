// tests/generator/parameter_space_test.cpp -- Enumeration and explanations against brute force.
// SPDX-License-Identifier: Apache-2.0
#include "generator/parameter_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "core/error.h"

namespace vitune {
namespace {

using ::testing::HasSubstr;

constexpr int kRandomSpaces = 500;

// a * wa + b * wb <= limit.
Constraint linear(const std::string& a, const std::string& b, std::int64_t wa, std::int64_t wb,
                  std::int64_t limit, bool declare_needs) {
  const auto sum = [=](const Config& c) { return c.at(a) * wa + c.at(b) * wb; };
  Constraint constraint;
  constraint.rule = "weight of " + a + " and " + b;
  constraint.violation = [=](const Config& c) -> std::optional<std::string> {
    if (sum(c) <= limit) return std::nullopt;
    return std::to_string(sum(c)) + " > " + std::to_string(limit);
  };
  if (declare_needs) constraint.needs = a == b ? std::vector{a} : std::vector{a, b};
  return constraint;
}

ParameterSpace random_space(std::mt19937_64& random) {
  std::vector<Parameter> parameters(1 + random() % 4);
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    parameters[p].name = "kP" + std::to_string(p);
    parameters[p].categorical = random() % 3 == 0;
    std::set<std::int64_t> values;
    while (values.size() < 1 + random() % 4) {
      values.insert(static_cast<std::int64_t>(random() % 20));
    }
    parameters[p].values.assign(values.begin(), values.end());
    auto& list = parameters[p].values;
    if (parameters[p].categorical) std::shuffle(list.begin(), list.end(), random);
  }
  std::vector<Constraint> constraints;
  for (std::uint64_t i = random() % 4; i > 0; --i) {
    const auto weight = [&] { return static_cast<std::int64_t>(random() % 7) - 3; };
    const std::string a = parameters[random() % parameters.size()].name;
    const std::string b = parameters[random() % parameters.size()].name;
    constraints.push_back(linear(a, b, weight(), weight(), weight() * 5, random() % 2 == 0));
  }
  return {parameters, constraints};
}

// Every config without regard to constraints, in order.
std::vector<Config> cartesian(const ParameterSpace& space) {
  std::vector<Config> all = {Config()};
  for (const Parameter& parameter : space.parameters()) {
    std::vector<Config> longer;
    for (const Config& prefix : all) {
      for (const std::int64_t value : parameter.values) {
        longer.push_back(prefix);
        longer.back().set(parameter.name, value);
      }
    }
    all = std::move(longer);
  }
  return all;
}

bool obeys(const ParameterSpace& space, const Config& config) {
  const auto broken = [&](const Constraint& c) { return c.violation(config).has_value(); };
  return std::ranges::none_of(space.families().front().constraints, broken);
}

TEST(ParameterSpace, EnumerationIsTheFilteredProductInOrder) {
  std::mt19937_64 random(7);
  for (int i = 0; i < kRandomSpaces; ++i) {
    const ParameterSpace space = random_space(random);
    std::vector<Config> expected = cartesian(space);
    EXPECT_EQ(space.cartesian_size(), expected.size());
    std::erase_if(expected, [&](const Config& config) { return !obeys(space, config); });
    EXPECT_EQ(space.enumerate(), expected) << "space " << i;
  }
}

TEST(ParameterSpace, AConfigIsExplainedExactlyIfItIsNotEnumerated) {
  std::mt19937_64 random(8);
  for (int i = 0; i < kRandomSpaces; ++i) {
    const ParameterSpace space = random_space(random);
    for (const Config& config : cartesian(space)) {
      EXPECT_EQ(space.explain(config).has_value(), !obeys(space, config)) << config.text();
    }
  }
}

TEST(ParameterSpace, ExplanationsSayWhatIsWrongWithFigures) {
  const ParameterSpace space({{"kBlockN", {32, 64}, ""}, {"kStages", {1, 2}, ""}},
                             {linear("kBlockN", "kStages", 1, 10, 80, true)});
  const struct {
    Config config;
    const char* part;
  } cases[] = {
      {{{"kBlockN", 48}, {"kStages", 1}}, "kBlockN = 48 is not one of 32, 64"},
      {{{"kBlockN", 32}}, "kStages is missing"},
      {{{"kBlockN", 32}, {"kStages", 1}, {"kOther", 1}}, "kOther is not a parameter"},
      {{{"kBlockN", 64}, {"kStages", 2}}, "weight of kBlockN and kStages: 84 > 80"},
  };
  for (const auto& [config, part] : cases) {
    EXPECT_THAT(space.explain(config).value_or("nothing"), HasSubstr(part)) << config.text();
  }
  EXPECT_EQ(space.explain({{"kBlockN", 64}, {"kStages", 1}}), std::nullopt);
}

TEST(ParameterSpace, MalformedSpacesAreRejected) {
  const Parameter good{"kA", {1, 2}, ""};
  const auto never = [](const Config&) -> std::optional<std::string> { return std::nullopt; };
  const struct {
    const char* what;
    std::vector<Parameter> parameters;
    std::vector<Constraint> constraints;
  } cases[] = {
      {"no parameters", {}, {}},
      {"no values", {{"kA", {}, ""}}, {}},
      {"twice", {good, good}, {}},
      {"descending", {{"kA", {2, 1}, ""}}, {}},
      {"repeated value", {{"kA", {1, 1}, ""}}, {}},
      {"repeated category", {{"kA", {2, 1, 2}, "", true}}, {}},
      {"unknown need", {good}, {{"rule", never, {"kB"}}}},
      {"repeated need", {good}, {{"rule", never, {"kA", "kA"}}}},
      {"no test", {good}, {{"rule", nullptr, {}}}},
  };
  for (const auto& [what, parameters, constraints] : cases) {
    EXPECT_THROW(ParameterSpace(parameters, constraints), Error) << what;
  }
  EXPECT_NO_THROW(ParameterSpace({{"kA", {2, 1}, "", true}}, {}));
}

TEST(ParameterSpace, ARuleThatReadsMoreThanItDeclaresFailsLoudly) {
  Constraint constraint = linear("kA", "kB", 1, 1, 100, true);
  constraint.needs = {"kA"};
  const ParameterSpace space({{"kA", {1, 2}, ""}, {"kB", {1, 2}, ""}}, {constraint});
  EXPECT_THROW(space.enumerate(), Error);
}

TEST(ParameterSpace, TheCheapestComeInTheirOrder) {
  const ParameterSpace space({{"kA", {1, 2, 3, 4}, ""}, {"kB", {0, 1}, ""}}, {});
  const std::vector<Config> all = space.enumerate();
  const auto cost = [](const Config& config) -> std::optional<double> {
    if (config.at("kA") == 3) return std::nullopt;
    return static_cast<double>((config.at("kA") - 2) * (config.at("kA") - 2));
  };
  const auto of = [](std::int64_t a, std::int64_t b) { return Config({{"kA", a}, {"kB", b}}); };
  EXPECT_EQ(cheapest(all, 3, cost), (std::vector<Config>{of(2, 0), of(2, 1), of(1, 0)}));
  EXPECT_EQ(cheapest(all, 99, cost).size(), 6u);
  EXPECT_TRUE(cheapest(all, 0, cost).empty());
  EXPECT_TRUE(cheapest(all, 2, [](const Config&) -> std::optional<double> { return {}; }).empty());
}

TEST(ParameterSpace, AnOpenParameterTakesAnyValueAndListsNone) {
  Parameter open{"kOpen", {0}, ""};
  open.open = true;
  const ParameterSpace space(
      {{"kA", {1, 2}, ""}, open},
      {{"kOpen with kA = 2 alone",
        [](const Config& config) -> std::optional<std::string> {
          if ((config.find("kOpen").value_or(0) != 0) == (config.at("kA") == 2))
            return std::nullopt;
          return "no";
        },
        {"kA", "kOpen"}}});
  EXPECT_EQ(space.enumerate(), std::vector<Config>{Config({{"kA", 1}})});
  EXPECT_FALSE(space.explain(Config{{"kA", 2}, {"kOpen", -77}}));
  EXPECT_TRUE(space.explain(Config{{"kA", 1}, {"kOpen", -77}}));
  EXPECT_TRUE(space.explain(Config{{"kA", 2}}));
  EXPECT_EQ(space.completed(Config{{"kA", 1}}), (Config{{"kA", 1}}));
  open.values = {0, 1};
  EXPECT_THROW(ParameterSpace({open}, {}), Error);
}

// A family whose configs have this value of kA, or none where that is 1.
FamilySpace family_of(const char* name, std::int64_t a, std::vector<Parameter> parameters) {
  FamilySpace family;
  family.name = name;
  family.parameters = std::move(parameters);
  family.parameters.insert(family.parameters.begin(), {"kA", {a}, ""});
  family.owns = [a](const Config& c) { return c.find("kA").value_or(1) == a; };
  return family;
}

TEST(ParameterSpace, ASpaceOfFamiliesIsTheUnionOfTheirs) {
  const Constraint small = {"small", [](const Config& c) -> std::optional<std::string> {
                              if (c.at("kB") < 3) return std::nullopt;
                              return "it is large";
                            }};
  Constraint own = small;
  own.rule = "own";
  FamilySpace first = family_of("first", 1, {{"kB", {1, 2, 3}, "b"}});
  FamilySpace second = family_of("second", 2, {{"kB", {0}, ""}, {"kC", {3, 4}, "c"}});
  FamilySpace third = family_of("third", 3, {{"kB", {5}, ""}});
  first.constraints = {small, own};
  second.constraints = {small};
  third.refusal = "not on Mondays";
  const ParameterSpace space({first, second, third});

  EXPECT_EQ(space.enumerate(), (std::vector<Config>{{{"kA", 1}, {"kB", 1}},
                                                    {{"kA", 1}, {"kB", 2}},
                                                    {{"kA", 2}, {"kB", 0}, {"kC", 3}},
                                                    {{"kA", 2}, {"kB", 0}, {"kC", 4}}}));
  EXPECT_EQ(space.enumerate("second").size(), 2u);
  EXPECT_TRUE(space.enumerate("third").empty());
  EXPECT_TRUE(space.enumerate("fourth").empty());
  EXPECT_EQ(space.cartesian_size(), 5u);
  EXPECT_EQ(space.rules(), (std::vector<std::string>{"small", "first: own"}));
  ASSERT_EQ(space.parameters().size(), 3u);
  EXPECT_EQ(space.parameters()[1].values, (std::vector<std::int64_t>{0, 1, 2, 3, 5}));
  EXPECT_EQ(space.parameters()[1].doc, "b");
  const std::pair<const char*, const char*> explained[] = {
      {"kA=1 kB=3", "small: it is large"},
      {"kA=1 kB=1 kC=3", "kC is not a parameter"},
      {"kA=2 kB=1 kC=3", "kB = 1 is not one of 0"},
      {"kA=3 kB=5", "third does not serve this: not on Mondays"},
      {"kA=4 kB=5", "of no family"}};
  for (const auto& [config, why] : explained) {
    EXPECT_THAT(space.explain(Config::parse(config)).value_or("fine"), testing::HasSubstr(why));
  }
  EXPECT_EQ(space.completed(Config{{"kA", 2}}), (Config{{"kA", 2}, {"kB", 0}, {"kC", 3}}));
  EXPECT_EQ(space.completed(Config()), (Config{{"kA", 1}, {"kB", 1}}));
  EXPECT_THROW(ParameterSpace(std::vector<FamilySpace>{}), Error);
}

TEST(ParameterSpace, TheSizeOfAnEndlessProductIsTheLargestNumber) {
  std::vector<Parameter> parameters;
  for (int i = 0; i < 70; ++i) parameters.push_back({"k" + std::to_string(i), {0, 1}, ""});
  EXPECT_EQ(ParameterSpace(parameters, {}).cartesian_size(),
            std::numeric_limits<std::size_t>::max());
}

// A space of the size and kind an attention problem has: 12 parameters, 760,320 raw points.
ParameterSpace large_space() {
  const auto shared_memory = [](const Config& c) -> std::optional<std::string> {
    const std::int64_t bytes = (c.at("kWarps") * c.at("kRows") * 16 * (1 - c.at("kQInRegisters")) +
                                2 * c.at("kStages") * c.at("kBlockN")) *
                               144;
    if (bytes * c.at("kMinCtas") <= 232448) return std::nullopt;
    return std::to_string(bytes) + " bytes of shared memory";
  };
  const auto registers = [](const Config& c) -> std::optional<std::string> {
    const std::int64_t count = c.at("kRows") * (c.at("kBlockN") / 2 + 32) + 40;
    if (count * c.at("kWarps") * 32 * c.at("kMinCtas") <= 65536) return std::nullopt;
    return std::to_string(count) + " registers per thread";
  };
  const auto one_pass = [](const Config& c) -> std::optional<std::string> {
    if (c.at("kOnePass") == 0 || c.at("kStages") == 1) return std::nullopt;
    return "one pass has one stage, not " + std::to_string(c.at("kStages"));
  };
  return {{{"kWarps", {1, 2, 4, 8, 12, 16}, ""},
           {"kRows", {1, 2}, ""},
           {"kBlockN", {16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 208}, ""},
           {"kStages", {1, 2, 3, 4}, ""},
           {"kQInRegisters", {0, 1}, "", true},
           {"kOnePass", {0, 1}, "", true},
           {"kHeadsPerCta", {1, 2, 4}, ""},
           {"kConstantKeys", {0, 1}, "", true},
           {"kMinCtas", {1, 2, 3, 4, 6}, ""},
           {"kPersistent", {0, 1}, "", true},
           {"kRescale", {0, 8}, "", true},
           {"kSplit", {1, 2, 4}, ""}},
          {{"shared memory",
            shared_memory,
            {"kWarps", "kRows", "kQInRegisters", "kStages", "kBlockN", "kMinCtas"}},
           {"registers", registers, {"kRows", "kBlockN", "kWarps", "kMinCtas"}},
           {"one pass", one_pass, {"kOnePass", "kStages"}}}};
}

TEST(ParameterSpace, LargeSpacesAreEnumeratedQuickly) {
  // Far from the times of an optimised build (see the report of the test), so that only a change of
  // complexity fails on a loaded machine or under a sanitizer.
  constexpr std::chrono::seconds kLimit{20};
  const ParameterSpace space = large_space();
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Config> all = space.enumerate();
  const auto enumerated = std::chrono::steady_clock::now();

  EXPECT_EQ(space.cartesian_size(), 760320u);
  EXPECT_GT(all.size(), 100000u);
  EXPECT_LT(enumerated - start, kLimit);
  const auto in_ms = [](auto duration) {
    return static_cast<int>(std::chrono::duration<double, std::milli>(duration).count());
  };
  RecordProperty("enumerate_ms", in_ms(enumerated - start));
  RecordProperty("configs", static_cast<int>(all.size()));
}

}  // namespace
}  // namespace vitune
