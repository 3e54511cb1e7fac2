-- db/schema/004_families.sql -- A winner whose plan calls a library has a binary without an image; version 4.
--
-- As before, but for `image`: NULL where there is nothing to load, because the family's plan calls the library
-- that `entry` and `compiler_version` name. Its image_digest is that of no bytes. Rows stay as they are, their
-- digests too.
-- SPDX-License-Identifier: Apache-2.0
CREATE TABLE binary_4 (
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
  image BLOB CHECK (length(image) <= 67108864),
  digest BLOB NOT NULL CHECK (length(digest) = 32),
  PRIMARY KEY (kernel_key, image_digest),
  CHECK (image IS NOT NULL OR image_bytes = 0)
) STRICT;

INSERT INTO binary_4 SELECT * FROM binary;
DROP TABLE binary;
ALTER TABLE binary_4 RENAME TO binary;
