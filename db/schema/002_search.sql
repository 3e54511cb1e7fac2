-- db/schema/002_search.sql -- How far the searches behind the winners went; version 2.
-- SPDX-License-Identifier: Apache-2.0

-- One row per winner: all searches of its problem on its kernels together. A winner without a row
-- was searched for by an older vitune, or elsewhere.
CREATE TABLE search (
  device_id BLOB NOT NULL CHECK (length(device_id) = 16),
  problem_id BLOB NOT NULL CHECK (length(problem_id) = 16),
  objective TEXT NOT NULL CHECK (objective IN ('cold', 'warm')),
  kernel_key BLOB NOT NULL CHECK (length(kernel_key) = 32),  -- the winner's
  seconds INTEGER NOT NULL CHECK (seconds >= 0),
  ended INTEGER NOT NULL CHECK (ended IN (0, 1)),  -- by itself, not by a budget
  digest BLOB NOT NULL CHECK (length(digest) = 32),
  PRIMARY KEY (device_id, problem_id, objective)
) STRICT, WITHOUT ROWID;
