// tests/db/schema_test.cpp -- The schema, the list of columns that repeats it, and the row digest.
// SPDX-License-Identifier: Apache-2.0
#include "db/migrate.h"
#include "db/row.h"
#include "db/tables.h"
#include "tests/db/test_support.h"

namespace vitune {
namespace {

std::unique_ptr<Connection> empty_database() {
  auto connection = std::make_unique<Connection>("", Connection::Mode::kMemory);
  bring_up_to_date(*connection, built_in_steps(), {});
  return connection;
}

std::string type_name(ColumnType type) {
  switch (type) {
    case ColumnType::kInteger:
      return "INTEGER";
    case ColumnType::kReal:
      return "REAL";
    case ColumnType::kText:
      return "TEXT";
    case ColumnType::kBlob:
      return "BLOB";
  }
  return "";
}

TEST(Schema, TheColumnListsRepeatTheSchemaExactly) {
  const auto connection = empty_database();
  for (const TableSpec* table : kAllTables) {
    Query query = connection->query(std::string("PRAGMA table_info(") + table->name + ")");
    for (std::size_t i = 0; i < table->columns.size(); ++i) {
      const Column& column = table->columns[i];
      ASSERT_TRUE(query.step()) << table->name << " lacks " << column.name;
      EXPECT_EQ(std::get<std::string>(query.column(1)), column.name) << table->name;
      EXPECT_EQ(std::get<std::string>(query.column(2)), type_name(column.type)) << column.name;
      EXPECT_EQ(std::get<std::int64_t>(query.column(3)), column.nullable ? 0 : 1) << column.name;
      const auto key_place = static_cast<std::int64_t>(i < table->key_columns ? i + 1 : 0);
      EXPECT_EQ(std::get<std::int64_t>(query.column(5)), key_place) << column.name;
    }
    ASSERT_TRUE(query.step());
    EXPECT_EQ(std::get<std::string>(query.column(1)), "digest") << table->name;
    EXPECT_FALSE(query.step()) << table->name << " has more columns than db/tables.h says";
  }
}

TEST(Schema, TheListNamesEveryTableAndEveryTableIsStrict) {
  const auto connection = empty_database();
  const auto count = connection->integer("SELECT count(*) FROM sqlite_schema WHERE type = 'table'");
  const auto strict = connection->integer(
      "SELECT count(*) FROM pragma_table_list WHERE schema = 'main' AND strict = 1");
  EXPECT_EQ(count, static_cast<std::int64_t>(kAllTables.size()));
  EXPECT_EQ(strict, count);
}

TEST(Schema, TheApplicationIdSpellsVtunAndTheVersionIsTheNumberOfScripts) {
  const auto connection = empty_database();
  EXPECT_EQ(connection->integer("PRAGMA application_id"),
            ('V' << 24) + ('T' << 16) + ('U' << 8) + 'N');
  EXPECT_EQ(connection->integer("PRAGMA user_version"),
            static_cast<std::int64_t>(built_in_steps().size()));
}

TEST(Schema, TheRecordedDigestOfEachVersionIsThatOfItsScripts) {
  Connection connection("", Connection::Mode::kMemory);
  for (const MigrationStep& step : built_in_steps()) {
    connection.execute(std::string(step.script));
    if (step.after) step.after(connection);
    EXPECT_EQ(objects_digest(connection).hex(), step.objects)
        << "db/migrate.cpp has another digest for this version of the schema";
  }
}

TEST(Schema, AStepWithoutARecordedDigestIsComparedWithAModel) {
  Connection connection("", Connection::Mode::kMemory);
  std::vector<MigrationStep> steps = built_in_steps();
  bring_up_to_date(connection, steps, {});
  for (const std::string_view recorded : {std::string_view(), std::string_view("0123")}) {
    steps.back().objects = recorded;
    EXPECT_TRUE(has_schema(connection, steps)) << recorded;
  }
  connection.execute("CREATE INDEX foreign_one ON trial (status)");
  for (const std::string_view recorded : {std::string_view(), built_in_steps().back().objects}) {
    steps.back().objects = recorded;
    EXPECT_FALSE(has_schema(connection, steps)) << recorded;
  }
}

TEST(RowDigest, TheEncodingIsTheDocumentedOne) {
  const Row row{std::int64_t{258}, 1.5, std::string("ab"), Blob{std::byte{7}}, std::monostate{}};
  std::string expected;
  expected += std::string("t\x05\0\0\0\0\0\0\0table", 14);
  expected += std::string("i\x02\x01\0\0\0\0\0\0", 9);
  expected += std::string("r\0\0\0\0\0\0\xf8\x3f", 9);
  expected += std::string("t\x02\0\0\0\0\0\0\0ab", 11);
  expected += std::string("b\x01\0\0\0\0\0\0\0\x07", 10);
  expected += "n";
  EXPECT_EQ(row_encoding("table", row), expected);
  EXPECT_EQ(row_digest("table", row), sha256(expected));
}

TEST(RowDigest, NegativeZeroCountsAsZeroBecauseSqliteStoresItSo) {
  EXPECT_EQ(row_digest("t", Row{-0.0}), row_digest("t", Row{0.0}));
}

TEST(RowDigest, TableTypeAndOrderAllMatter) {
  const Digest base = row_digest("t", Row{std::string("a"), std::string("b")});
  EXPECT_NE(base, row_digest("u", Row{std::string("a"), std::string("b")}));
  EXPECT_NE(base, row_digest("t", Row{std::string("b"), std::string("a")}));
  EXPECT_NE(base, row_digest("t", Row{std::string("ab"), std::string("")}));
  EXPECT_NE(base, row_digest("t", Row{Blob{std::byte{'a'}}, std::string("b")}));
}

TEST(Sqlite, AFailedStatementThrowsAndTheConnectionGoesOn) {
  const auto connection = empty_database();
  EXPECT_THROW(connection->execute("SELECT * FROM nowhere"), DatabaseError);
  EXPECT_THROW(connection->query("SELECT * FROM nowhere"), DatabaseError);
  EXPECT_EQ(connection->integer("SELECT 41 + 1"), 42);
}

TEST(Sqlite, ATransactionThatIsNotCommittedLeavesNothing) {
  const auto connection = empty_database();
  {
    Transaction transaction(*connection);
    connection->execute("INSERT INTO request VALUES ('attention', 'x', 1, 0.0, zeroblob(32))");
  }
  EXPECT_EQ(connection->integer("SELECT count(*) FROM request"), 0);
  EXPECT_FALSE(connection->in_transaction());
}

TEST(Sqlite, AHandleInheritedOverForkRefusesToWork) {
  const auto connection = empty_database();
  const int status = test::in_child([&] {
    try {
      connection->integer("SELECT 1");
    } catch (const DatabaseError& error) {
      return std::string(error.what()).find("fork") != std::string::npos ? 0 : 2;
    }
    return 1;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(connection->integer("SELECT 1"), 1);
}

TEST(Sqlite, TheConnectionIsDefensive) {
  test::TempDir dir;
  { auto store = Store::open(dir / "a.db", Access::kReadWrite); }
  Connection connection(dir / "a.db", Connection::Mode::kReadWrite);
  connection.use_truncate_journal();
  EXPECT_EQ(connection.text("PRAGMA journal_mode"), "truncate");
  EXPECT_EQ(connection.integer("PRAGMA synchronous"), 2);
  EXPECT_EQ(connection.integer("PRAGMA cell_size_check"), 1);
  EXPECT_EQ(connection.integer("PRAGMA trusted_schema"), 0);
  EXPECT_EQ(connection.integer("PRAGMA secure_delete"), 1);
  EXPECT_THROW(connection.execute("ATTACH ':memory:' AS other"), DatabaseError);
  EXPECT_THROW(connection.execute("UPDATE sqlite_schema SET sql = ''"), DatabaseError);
  Connection reader(dir / "a.db", Connection::Mode::kReadOnly);
  EXPECT_THROW(reader.execute("BEGIN IMMEDIATE"), DatabaseError);
}

}  // namespace
}  // namespace vitune
