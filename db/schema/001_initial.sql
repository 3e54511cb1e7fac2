-- db/schema/001_initial.sql -- The tables of a vitune database, version 1.
--
-- Every table is STRICT, begins with its key columns and ends with `digest`: the SHA-256 of the
-- table's name and of all other columns in this order (docs/cache_format.md has the encoding). A row
-- whose digest does not match is treated as absent. The CHECKs say what a value may be; db/tables.h
-- repeats names, order and types for the code, and a test compares the two.
--
-- Identities: device_id is the first 16 bytes of the SHA-256 of device.key, problem_id the first 16
-- bytes of the SHA-256 of operator, a line feed and text. They depend on nothing but the content, so
-- rows keep their identity when they are merged, salvaged or copied.
-- SPDX-License-Identifier: Apache-2.0

-- What a GPU is. `key` spells the hard facts; name, memory_bytes and driver_version are labels, as
-- the last writer saw them.
CREATE TABLE device (
  device_id BLOB NOT NULL CHECK (length(device_id) = 16),
  key TEXT NOT NULL CHECK (length(key) BETWEEN 1 AND 512),
  cc_major INTEGER NOT NULL CHECK (cc_major BETWEEN 0 AND 1000),
  cc_minor INTEGER NOT NULL CHECK (cc_minor BETWEEN 0 AND 1000),
  sm_count INTEGER NOT NULL CHECK (sm_count BETWEEN 0 AND 1000000),
  shared_per_block INTEGER NOT NULL CHECK (shared_per_block >= 0),  -- bytes
  shared_per_sm INTEGER NOT NULL CHECK (shared_per_sm >= 0),        -- bytes
  registers_per_sm INTEGER NOT NULL CHECK (registers_per_sm >= 0),  -- 32-bit registers
  threads_per_sm INTEGER NOT NULL CHECK (threads_per_sm BETWEEN 0 AND 1000000),
  l2_bytes INTEGER NOT NULL CHECK (l2_bytes >= 0),
  memory_bus_bits INTEGER NOT NULL CHECK (memory_bus_bits BETWEEN 0 AND 2147483647),
  memory_clock_khz INTEGER NOT NULL CHECK (memory_clock_khz BETWEEN 0 AND 2147483647),
  clock_khz INTEGER NOT NULL CHECK (clock_khz BETWEEN 0 AND 2147483647),
  name TEXT NOT NULL CHECK (length(name) <= 256),
  memory_bytes INTEGER NOT NULL CHECK (memory_bytes >= 0),
  driver_version INTEGER NOT NULL CHECK (driver_version BETWEEN 0 AND 2147483647),
  digest BLOB NOT NULL CHECK (length(digest) = 32),
  PRIMARY KEY (device_id)
) STRICT, WITHOUT ROWID;

-- What was asked: an operator's name and the canonical text of the problem.
CREATE TABLE problem (
  problem_id BLOB NOT NULL CHECK (length(problem_id) = 16),
  operator TEXT NOT NULL CHECK (length(operator) BETWEEN 1 AND 64),
  text TEXT NOT NULL CHECK (length(text) BETWEEN 1 AND 4096),
  digest BLOB NOT NULL CHECK (length(digest) = 32),
  PRIMARY KEY (problem_id)
) STRICT, WITHOUT ROWID;

-- Every candidate that was tried, with how it ended. Times are microseconds of one call (median and
-- the bounds of its 95 % interval), cold with the L2 cache flushed, warm from graph replay. An error
-- figure is NULL where the output held NaN or infinity.
CREATE TABLE trial (
  device_id BLOB NOT NULL CHECK (length(device_id) = 16),
  problem_id BLOB NOT NULL CHECK (length(problem_id) = 16),
  config TEXT NOT NULL CHECK (length(config) <= 4096),  -- "kBlockM=64 kWarps=4"
  kernel_key BLOB NOT NULL CHECK (length(kernel_key) = 32),
  status TEXT NOT NULL CHECK (status IN ('ok', 'pruned', 'compile_error', 'compile_timeout',
    'compile_crash', 'invalid_launch', 'out_of_memory', 'wrong', 'timeout', 'crash')),
  reason TEXT NOT NULL CHECK (length(reason) <= 4096),  -- empty for 'ok'
  origin TEXT NOT NULL CHECK (origin IN ('measured', 'replayed', 'imported')),
  registers INTEGER NOT NULL CHECK (registers BETWEEN 0 AND 65536),             -- per thread
  spill_bytes INTEGER NOT NULL CHECK (spill_bytes BETWEEN 0 AND 2147483647),    -- per thread
  shared_bytes INTEGER NOT NULL CHECK (shared_bytes BETWEEN 0 AND 1073741824),  -- per CTA
  compile_ms REAL NOT NULL CHECK (compile_ms BETWEEN 0 AND 1e12),
  max_error REAL CHECK (max_error BETWEEN 0 AND 1e300),
  rms_error REAL CHECK (rms_error BETWEEN 0 AND 1e300),
  max_bound REAL CHECK (max_bound BETWEEN 0 AND 1e300),
  rms_bound REAL CHECK (rms_bound BETWEEN 0 AND 1e300),
  cold_us REAL NOT NULL CHECK (cold_us BETWEEN 0 AND 1e12),
  cold_low_us REAL NOT NULL CHECK (cold_low_us BETWEEN 0 AND 1e12),
  cold_high_us REAL NOT NULL CHECK (cold_high_us BETWEEN 0 AND 1e12),
  cold_samples INTEGER NOT NULL CHECK (cold_samples BETWEEN 0 AND 2147483647),
  warm_us REAL NOT NULL CHECK (warm_us BETWEEN 0 AND 1e12),
  warm_low_us REAL NOT NULL CHECK (warm_low_us BETWEEN 0 AND 1e12),
  warm_high_us REAL NOT NULL CHECK (warm_high_us BETWEEN 0 AND 1e12),
  warm_samples INTEGER NOT NULL CHECK (warm_samples BETWEEN 0 AND 2147483647),
  low_confidence INTEGER NOT NULL CHECK (low_confidence IN (0, 1)),
  digest BLOB NOT NULL CHECK (length(digest) = 32),
  PRIMARY KEY (device_id, problem_id, config)
) STRICT, WITHOUT ROWID;

-- Which config won, per device, problem and objective, and the evidence: the figures of the final
-- interleaved race, the runner-up, the lead over it in percent of the winner's time.
CREATE TABLE winner (
  device_id BLOB NOT NULL CHECK (length(device_id) = 16),
  problem_id BLOB NOT NULL CHECK (length(problem_id) = 16),
  objective TEXT NOT NULL CHECK (objective IN ('cold', 'warm')),
  config TEXT NOT NULL CHECK (length(config) <= 4096),
  kernel_key BLOB NOT NULL CHECK (length(kernel_key) = 32),
  origin TEXT NOT NULL CHECK (origin IN ('measured', 'replayed', 'imported')),
  verified INTEGER NOT NULL CHECK (verified IN (0, 1)),
  cold_us REAL NOT NULL CHECK (cold_us BETWEEN 0 AND 1e12),
  cold_low_us REAL NOT NULL CHECK (cold_low_us BETWEEN 0 AND 1e12),
  cold_high_us REAL NOT NULL CHECK (cold_high_us BETWEEN 0 AND 1e12),
  cold_samples INTEGER NOT NULL CHECK (cold_samples BETWEEN 0 AND 2147483647),
  warm_us REAL NOT NULL CHECK (warm_us BETWEEN 0 AND 1e12),
  warm_low_us REAL NOT NULL CHECK (warm_low_us BETWEEN 0 AND 1e12),
  warm_high_us REAL NOT NULL CHECK (warm_high_us BETWEEN 0 AND 1e12),
  warm_samples INTEGER NOT NULL CHECK (warm_samples BETWEEN 0 AND 2147483647),
  low_confidence INTEGER NOT NULL CHECK (low_confidence IN (0, 1)),
  max_error REAL CHECK (max_error BETWEEN 0 AND 1e300),
  rms_error REAL CHECK (rms_error BETWEEN 0 AND 1e300),
  max_bound REAL CHECK (max_bound BETWEEN 0 AND 1e300),
  rms_bound REAL CHECK (rms_bound BETWEEN 0 AND 1e300),
  runner_up TEXT CHECK (length(runner_up) <= 4096),  -- a config; NULL if it ran alone
  lead_percent REAL NOT NULL CHECK (lead_percent BETWEEN -1e12 AND 1e12),
  lead_low_percent REAL NOT NULL CHECK (lead_low_percent BETWEEN -1e12 AND 1e12),
  lead_high_percent REAL NOT NULL CHECK (lead_high_percent BETWEEN -1e12 AND 1e12),
  default_us REAL CHECK (default_us BETWEEN 0 AND 1e12),  -- NULL if the default did not run
  trials INTEGER NOT NULL CHECK (trials >= 0),
  driver_version INTEGER NOT NULL CHECK (driver_version BETWEEN 0 AND 2147483647),
  compiler_version TEXT NOT NULL CHECK (length(compiler_version) <= 256),
  tuned_at TEXT NOT NULL CHECK (length(tuned_at) <= 64),  -- UTC, ISO 8601
  digest BLOB NOT NULL CHECK (length(digest) = 32),
  PRIMARY KEY (device_id, problem_id, objective)
) STRICT, WITHOUT ROWID;

-- Compiled kernels. `image` is one Zstandard frame that unpacks to exactly image_bytes. The only
-- table with a rowid: its rows are large.
CREATE TABLE binary (
  kernel_key BLOB NOT NULL CHECK (length(kernel_key) = 32),
  arch TEXT NOT NULL CHECK (length(arch) <= 32),  -- "sm_90"
  compiler_version TEXT NOT NULL CHECK (length(compiler_version) <= 256),
  entry TEXT NOT NULL CHECK (length(entry) <= 1024),
  registers INTEGER NOT NULL CHECK (registers BETWEEN 0 AND 65536),
  spill_bytes INTEGER NOT NULL CHECK (spill_bytes BETWEEN 0 AND 2147483647),
  shared_bytes INTEGER NOT NULL CHECK (shared_bytes BETWEEN 0 AND 1073741824),
  compile_ms REAL NOT NULL CHECK (compile_ms BETWEEN 0 AND 1e12),
  image_bytes INTEGER NOT NULL CHECK (image_bytes BETWEEN 0 AND 67108864),  -- unpacked
  image BLOB NOT NULL CHECK (length(image) <= 67108864),
  digest BLOB NOT NULL CHECK (length(digest) = 32),
  PRIMARY KEY (kernel_key)
) STRICT;

-- Kernels that must not be launched again on a device under a driver.
CREATE TABLE block (
  kernel_key BLOB NOT NULL CHECK (length(kernel_key) = 32),
  device_key TEXT NOT NULL CHECK (length(device_key) BETWEEN 1 AND 512),
  driver_version INTEGER NOT NULL CHECK (driver_version BETWEEN 0 AND 2147483647),
  status TEXT NOT NULL CHECK (status IN ('ok', 'pruned', 'compile_error', 'compile_timeout',
    'compile_crash', 'invalid_launch', 'out_of_memory', 'wrong', 'timeout', 'crash')),
  reason TEXT NOT NULL CHECK (length(reason) <= 4096),
  created INTEGER NOT NULL,  -- seconds since 1970, UTC
  digest BLOB NOT NULL CHECK (length(digest) = 32),
  PRIMARY KEY (kernel_key, device_key, driver_version)
) STRICT, WITHOUT ROWID;

-- Candidates that were begun and not ended; the row goes when the trial is stored.
CREATE TABLE attempt (
  device_id BLOB NOT NULL CHECK (length(device_id) = 16),
  problem_id BLOB NOT NULL CHECK (length(problem_id) = 16),
  config TEXT NOT NULL CHECK (length(config) <= 4096),
  count INTEGER NOT NULL CHECK (count >= 1),  -- how often it was begun
  started INTEGER NOT NULL,                   -- the last time, seconds since 1970, UTC
  digest BLOB NOT NULL CHECK (length(digest) = 32),
  PRIMARY KEY (device_id, problem_id, config)
) STRICT, WITHOUT ROWID;

-- Problems that programs asked for at run time and that had no exact winner.
CREATE TABLE request (
  operator TEXT NOT NULL CHECK (length(operator) BETWEEN 1 AND 64),
  text TEXT NOT NULL CHECK (length(text) BETWEEN 1 AND 4096),
  calls INTEGER NOT NULL CHECK (calls >= 0),
  total_us REAL NOT NULL CHECK (total_us BETWEEN 0 AND 1e300),  -- 0: unknown
  digest BLOB NOT NULL CHECK (length(digest) = 32),
  PRIMARY KEY (operator, text)
) STRICT, WITHOUT ROWID;
