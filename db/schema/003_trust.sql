-- db/schema/003_trust.sql -- Rows commit to the images that were verified, and the block list to all its rows; version 3.
--
-- db/upgrade.cpp then moves the rows into the new tables and gives these the names of the old ones.
-- SPDX-License-Identifier: Apache-2.0

-- As before, and which image of its kernel was verified: no other is loaded for it.
CREATE TABLE winner_3 (
  device_id BLOB NOT NULL CHECK (length(device_id) = 16),
  problem_id BLOB NOT NULL CHECK (length(problem_id) = 16),
  objective TEXT NOT NULL CHECK (objective IN ('cold', 'warm')),
  config TEXT NOT NULL CHECK (length(config) <= 4096),
  kernel_key BLOB NOT NULL CHECK (length(kernel_key) = 32),
  image_digest BLOB CHECK (length(image_digest) = 32),  -- of the image that was verified; NULL: none came along
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

-- As before, with the image's digest in the key: a row whose image is another one cannot be found.
CREATE TABLE binary_3 (
  kernel_key BLOB NOT NULL CHECK (length(kernel_key) = 32),
  image_digest BLOB NOT NULL CHECK (length(image_digest) = 32),  -- SHA-256 of the image, unpacked
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
  PRIMARY KEY (kernel_key, image_digest)
) STRICT;

-- What a table holds as a whole, so that a row that vanished is noticed. Only of `block`: a lost row there
-- would let a kernel run that is known to be wrong.
CREATE TABLE seal (
  name TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 64),       -- the table's
  row_count INTEGER NOT NULL CHECK (row_count >= 0),
  content BLOB NOT NULL CHECK (length(content) = 32),  -- SHA-256 of its rows' digests, in key order
  digest BLOB NOT NULL CHECK (length(digest) = 32),
  PRIMARY KEY (name)
) STRICT, WITHOUT ROWID;
