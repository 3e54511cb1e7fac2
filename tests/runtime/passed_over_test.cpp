// tests/runtime/passed_over_test.cpp -- What is said of the choices that do not serve, in little
// room.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/dispatch/passed_over.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "runtime/context/texts.h"
#include "runtime/dispatch/selection.h"

namespace vitune {
namespace {

using testing::HasSubstr;

Choice choice_of(LookupOutcome outcome, int warps, std::string reason = {}) {
  Choice choice;
  choice.outcome = outcome;
  choice.config.set("kWarps", warps);
  choice.reason = std::move(reason);
  return choice;
}

TEST(PassedOver, TheSummaryCountsThemAndGivesTheFirstReason) {
  PassedOver passed;
  EXPECT_EQ(passed.summary(200), "");
  passed.add(choice_of(LookupOutcome::kExact, 4), "the stored kernel is damaged");
  passed.add(choice_of(LookupOutcome::kDefault, 8), "no kernel of it is stored");
  EXPECT_EQ(passed.summary(200), "passed over: 2 (exact: the stored kernel is damaged)");
  EXPECT_EQ(passed.details(),
            "exact kWarps=4: the stored kernel is damaged; default kWarps=8: no kernel of it is "
            "stored");
}

TEST(PassedOver, AChoiceIsCountedOnceWithTheLastThatWasSaidOfIt) {
  PassedOver passed;
  const Choice choice = choice_of(LookupOutcome::kNearest, 4);
  passed.add(choice, "no kernel of it is stored");
  passed.add(choice, "it spills");
  passed.extend(choice, " much");
  passed.extend(choice_of(LookupOutcome::kNearest, 8), "unknown");
  EXPECT_EQ(passed.summary(200), "passed over: 1 (nearest: it spills much)");
  passed.remove(choice);
  EXPECT_TRUE(passed.empty());
}

TEST(PassedOver, ALongReasonIsCutToTheRoomThereIs) {
  PassedOver passed;
  passed.add(choice_of(LookupOutcome::kDefault, 4), std::string(5000, 'x'));
  for (const std::size_t room : {64, 100, 200}) {
    const std::string summary = passed.summary(room);
    EXPECT_EQ(summary.size(), room);
    EXPECT_TRUE(summary.ends_with("xxx...)")) << summary;
  }
}

TEST(Texts, AShortenedTextEndsWithAWholeCharacter) {
  EXPECT_EQ(shortened("abc", 3), "abc");
  EXPECT_EQ(shortened("abcdef", 5), "ab...");
  EXPECT_EQ(shortened("ab\xC3\xA4"
                      "cd",
                      6),
            "ab\xC3\xA4"
            "cd");
  EXPECT_EQ(shortened("ab\xC3\xA4"
                      "cde",
                      6),
            "ab...")
      << "not half of a character";
}

// 512 bytes hold the essential, however long the reasons are.
TEST(Selection, AReasonSaysWhatServesThenHowManyDoNot) {
  const std::array<std::size_t, 3> lengths = {10, 600, 9000};
  for (const std::size_t serves : lengths) {
    for (const std::size_t passes : lengths) {
      SCOPED_TRACE(testing::Message() << serves << " and " << passes);
      Resolver::Preview preview;
      preview.choice = choice_of(LookupOutcome::kNearest, 2,
                                 "nearest: predicted 9.1 us " + std::string(serves, 's'));
      preview.key = Digest{};
      for (int i = 0; i < 40; ++i) {
        preview.passed_over.add(choice_of(LookupOutcome::kNearest, 100 + i),
                                "the first why " + std::string(passes, 'p'));
      }
      const std::string reason = describe(preview, "problem").reason;
      EXPECT_THAT(reason, testing::StartsWith("nearest: predicted 9.1 us sss"));
      EXPECT_THAT(reason, HasSubstr("; passed over: 40 (nearest: the first why ppp"));
      EXPECT_TRUE(reason.ends_with(")")) << reason;
      EXPECT_LT(reason.size(), sizeof(vitune_selection::reason));
    }
  }
}

}  // namespace
}  // namespace vitune
