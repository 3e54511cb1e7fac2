// tests/cli/doctor_test.cpp -- What vitune doctor says of the place of the database: as the
// database itself will judge it.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>

#include "tests/cli/command_fixture.h"

namespace vitune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class DoctorTest : public CommandTest {
 protected:
  // A folder of this mode and, as far as this user may choose one, of a group of others.
  fs::path make_folder(const std::string& name, mode_t mode) const {
    const fs::path folder = directory() / name;
    fs::create_directory(folder);
    if (geteuid() == 0 && chown(folder.c_str(), 0, 65534) != 0) perror("chown");
    chmod(folder.c_str(), mode);
    return folder;
  }
  nlohmann::json database_check(const fs::path& path) const {
    const CommandResult result = run({"doctor", "--json", "--db", path.string()});
    const auto document = result.json();
    for (const auto& check : document["checks"]) {
      if (check["check"] == "database") return check;
    }
    return {};
  }
  // Makes a database with the shipped winners; the exit status.
  int make_database(const fs::path& path) const {
    const std::string from = (fs::path(VITUNE_SOURCE_DIR) / "data" / "winners.db").string();
    return run({"db", "merge", from, "--db", path.string()}).status;
  }
};

TEST_F(DoctorTest, ALibraryThatIsNamedAndMissingIsSaidToBe) {
  CommandOptions options;
  const std::string library = absent("libcublasLt.so.13");
  options.environment["VITUNE_CUBLASLT"] = library;
  const auto document = run({"doctor", "--json"}, options).json();
  const auto found = std::ranges::find_if(
      document["checks"], [](const auto& check) { return check["check"] == "cuBLASLt"; });
  ASSERT_NE(found, document["checks"].end()) << document;
  EXPECT_EQ((*found)["verdict"], "warn");
  EXPECT_THAT((*found)["detail"].get<std::string>(), HasSubstr("VITUNE_CUBLASLT cannot be opened"));
  EXPECT_THAT((*found)["detail"].get<std::string>(), HasSubstr(library));
  EXPECT_THAT((*found)["advice"].get<std::string>(), HasSubstr("optional"));
}

TEST_F(DoctorTest, ARelativeNameOfALibraryIsRefusedInsteadOfPassedOver) {
  CommandOptions options;
  options.environment["VITUNE_CUBLASLT"] = "lib/libcublasLt.so.13";
  EXPECT_THAT(run({"doctor", "--csv"}, options).out,
              HasSubstr("VITUNE_CUBLASLT is 'lib/libcublasLt.so.13', which is no absolute path"));
}

TEST_F(DoctorTest, AFolderThatOthersMayWriteInIsAsGoodAsTheDatabaseSaysItIs) {
  const struct {
    const char* name;
    mode_t mode;
    bool safe;
  } cases[] = {
      {"private", 0700, true},         {"readable", 0755, true},     {"open", 0777, false},
      {"sticky", 01777, true},  // as /tmp: nobody can replace another's file
      {"group", 0770, geteuid() != 0}, {"stickygroup", 01770, true},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const fs::path folder = make_folder(c.name, c.mode);
    for (const fs::path& path : {folder / "x.db", folder / "deeper" / "x.db"}) {
      const auto check = database_check(path);
      EXPECT_EQ(check["verdict"], c.safe ? "ok" : "warn") << check;
      EXPECT_EQ(make_database(path) == 0, c.safe) << "doctor and the database agree";
      if (c.safe) {
        EXPECT_EQ(database_check(path)["verdict"], "ok");
      } else {
        EXPECT_THAT(check["detail"].get<std::string>(),
                    HasSubstr(folder.string() + ": other users may write to this directory"));
        EXPECT_THAT(check["advice"].get<std::string>(), HasSubstr("--db or VITUNE_DB"));
      }
    }
  }
}

TEST_F(DoctorTest, AFileThatOthersMayWriteFailsAndTheAdviceLeavesTheFolderAlone) {
  const fs::path path = make_folder("sticky", 01777) / "x.db";
  ASSERT_EQ(make_database(path), 0);
  chmod(path.c_str(), 0666);
  const auto open = database_check(path);
  EXPECT_EQ(open["verdict"], "fail");
  EXPECT_THAT(open["detail"].get<std::string>(), HasSubstr("may be written by other users"));
  EXPECT_THAT(open["detail"].get<std::string>(), HasSubstr("x.db"));

  // A group of the owner's own number is the owner alone.
  if (getegid() != geteuid()) GTEST_SKIP() << "this user's group has another number";
  chmod(path.c_str(), 0660);
  EXPECT_EQ(database_check(path)["verdict"], "ok");
}

TEST_F(DoctorTest, AFolderThatTakesNoFilesIsNotPromised) {
  const auto check = database_check("/proc/vitune.db");  // which root may write in
  EXPECT_EQ(check["verdict"], "warn");
  EXPECT_THAT(check["detail"].get<std::string>(), HasSubstr("/proc is not writable"));
}

TEST_F(DoctorTest, APathThatNamesNoFileIsNotPromised) {
  const auto check = database_check("");
  EXPECT_EQ(check["verdict"], "warn");
  EXPECT_THAT(check["detail"].get<std::string>(), HasSubstr("names no file"));
  EXPECT_THAT(check["advice"].get<std::string>(), Not(IsEmpty()));
}

}  // namespace
}  // namespace vitune::testing
