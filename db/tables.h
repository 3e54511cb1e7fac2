// db/tables.h -- The columns of every table, as db/schema/*.sql declares them, without the digest.
//
// Key columns come first. tests/db/schema_test.cpp compares this list with the schema.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace vitune {

enum class ColumnType { kInteger, kReal, kText, kBlob };

struct Column {
  const char* name;
  ColumnType type;
  bool nullable = false;
};

struct TableSpec {
  const char* name;
  std::size_t key_columns;  // the first so many columns are the primary key
  std::span<const Column> columns;
};

namespace columns {

inline constexpr ColumnType kI = ColumnType::kInteger, kR = ColumnType::kReal,
                            kT = ColumnType::kText, kB = ColumnType::kBlob;

inline constexpr Column kDevice[] = {
    {"device_id", kB},       {"key", kT},
    {"cc_major", kI},        {"cc_minor", kI},
    {"sm_count", kI},        {"shared_per_block", kI},
    {"shared_per_sm", kI},   {"registers_per_sm", kI},
    {"threads_per_sm", kI},  {"l2_bytes", kI},
    {"memory_bus_bits", kI}, {"memory_clock_khz", kI},
    {"clock_khz", kI},       {"name", kT},
    {"memory_bytes", kI},    {"driver_version", kI},
};

inline constexpr Column kProblem[] = {{"problem_id", kB}, {"operator", kT}, {"text", kT}};

inline constexpr Column kTrial[] = {
    {"device_id", kB},       {"problem_id", kB},      {"config", kT},
    {"kernel_key", kB},      {"status", kT},          {"reason", kT},
    {"origin", kT},          {"registers", kI},       {"spill_bytes", kI},
    {"shared_bytes", kI},    {"compile_ms", kR},      {"max_error", kR, true},
    {"rms_error", kR, true}, {"max_bound", kR, true}, {"rms_bound", kR, true},
    {"cold_us", kR},         {"cold_low_us", kR},     {"cold_high_us", kR},
    {"cold_samples", kI},    {"warm_us", kR},         {"warm_low_us", kR},
    {"warm_high_us", kR},    {"warm_samples", kI},    {"low_confidence", kI},
};

inline constexpr Column kWinner[] = {
    {"device_id", kB},
    {"problem_id", kB},
    {"objective", kT},
    {"config", kT},
    {"kernel_key", kB},
    {"image_digest", kB, true},
    {"origin", kT},
    {"verified", kI},
    {"cold_us", kR},
    {"cold_low_us", kR},
    {"cold_high_us", kR},
    {"cold_samples", kI},
    {"warm_us", kR},
    {"warm_low_us", kR},
    {"warm_high_us", kR},
    {"warm_samples", kI},
    {"low_confidence", kI},
    {"max_error", kR, true},
    {"rms_error", kR, true},
    {"max_bound", kR, true},
    {"rms_bound", kR, true},
    {"runner_up", kT, true},
    {"lead_percent", kR},
    {"lead_low_percent", kR},
    {"lead_high_percent", kR},
    {"default_us", kR, true},
    {"trials", kI},
    {"driver_version", kI},
    {"compiler_version", kT},
    {"tuned_at", kT},
};

inline constexpr Column kBinary[] = {
    {"kernel_key", kB}, {"image_digest", kB}, {"arch", kT},        {"compiler_version", kT},
    {"entry", kT},      {"registers", kI},    {"spill_bytes", kI}, {"shared_bytes", kI},
    {"compile_ms", kR}, {"image_bytes", kI},  {"image", kB, true},
};

inline constexpr Column kBlock[] = {{"kernel_key", kB}, {"device_key", kT}, {"driver_version", kI},
                                    {"status", kT},     {"reason", kT},     {"created", kI}};

inline constexpr Column kAttempt[] = {
    {"device_id", kB}, {"problem_id", kB}, {"config", kT}, {"count", kI}, {"started", kI}};

inline constexpr Column kRequest[] = {
    {"operator", kT}, {"text", kT}, {"calls", kI}, {"total_us", kR}};

inline constexpr Column kSearch[] = {{"device_id", kB},  {"problem_id", kB}, {"objective", kT},
                                     {"kernel_key", kB}, {"seconds", kI},    {"ended", kI}};

inline constexpr Column kSeal[] = {{"name", kT}, {"row_count", kI}, {"content", kB}};

}  // namespace columns

inline constexpr TableSpec kDeviceTable{"device", 1, columns::kDevice};
inline constexpr TableSpec kProblemTable{"problem", 1, columns::kProblem};
inline constexpr TableSpec kTrialTable{"trial", 3, columns::kTrial};
inline constexpr TableSpec kWinnerTable{"winner", 3, columns::kWinner};
inline constexpr TableSpec kBinaryTable{"binary", 2, columns::kBinary};
inline constexpr TableSpec kBlockTable{"block", 3, columns::kBlock};
inline constexpr TableSpec kAttemptTable{"attempt", 3, columns::kAttempt};
inline constexpr TableSpec kRequestTable{"request", 2, columns::kRequest};
inline constexpr TableSpec kSearchTable{"search", 3, columns::kSearch};
inline constexpr TableSpec kSealTable{"seal", 1, columns::kSeal};

inline constexpr std::array kAllTables{
    &kDeviceTable, &kProblemTable, &kTrialTable,   &kWinnerTable, &kBinaryTable,
    &kBlockTable,  &kAttemptTable, &kRequestTable, &kSearchTable, &kSealTable};

}  // namespace vitune
