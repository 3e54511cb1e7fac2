// cli/verbs/compile_probes.cpp -- vitune compile --probes: the kernels that serve nobody.
// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/compile_probes.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/output/results.h"
#include "cli/output/text.h"
#include "core/error.h"
#include "core/format.h"
#include "probe/ceiling_probes.h"
#include "probe/ladder.h"

namespace vitune {
namespace {

using nlohmann::ordered_json;

struct Named {
  std::string name, arch;
  CompileRequest request;
};

std::vector<Named> requests(const std::vector<std::string>& architectures) {
  std::vector<Named> all;
  for (const std::string& arch : architectures) {
    all.push_back({"probes", arch, probe_compile_request(arch)});
    if (auto wgmma = wgmma_probe_compile_request(arch)) {
      all.push_back({"probe of wgmma", arch, std::move(*wgmma)});
    }
    for (auto& [name, request] : ladder_samples(arch)) {
      all.push_back({std::move(name), arch, std::move(request)});
    }
  }
  return all;
}

}  // namespace

CompilePoolOptions compile_pool_options(const Session& session) {
  CompilePoolOptions options;
  options.workers = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (session.has("jobs")) {
    options.workers = static_cast<int>(parse_integer(session.text("jobs"), 1, 256, "--jobs"));
  }
  options.worker_command = {session.program.string(), "--worker=compile"};
  return options;
}

int compile_probes(Session& session, const std::vector<std::string>& architectures,
                   CompilePool& pool) {
  const std::vector<Named> all = requests(architectures);
  for (std::size_t i = 0; i < all.size(); ++i) pool.submit(i, all[i].request);
  std::map<std::uint64_t, CompileResult> results;
  while (results.size() < all.size()) {
    if (session.stop) throw Error(ErrorCode::kInterrupted, "interrupted; nothing was listed");
    if (auto finished = pool.wait(std::chrono::milliseconds(100))) results.insert(*finished);
  }
  Table table;
  table.column("kernel").column("arch").column("status").column("registers", Align::kRight);
  table.column("ms", Align::kRight);
  ordered_json document = new_document("compile");
  document["compiler"] = pool.compiler_version();
  document["results"] = ordered_json::array();
  int failed = 0;
  for (const auto& [id, result] : results) {
    const Named& each = all[id];
    const bool ok = result.status == CompileStatus::kOk;
    failed += ok ? 0 : 1;
    table.row({each.name, each.arch, ok ? "ok" : "failed",
               ok ? formatted("{}", result.facts.registers) : "-",
               ok ? formatted("{:.0f}", result.facts.compile_ms) : "-"});
    document["results"].push_back({{"kernel", each.name},
                                   {"arch", each.arch},
                                   {"ok", ok},
                                   {"registers", result.facts.registers},
                                   {"log", result.log}});
    if (!ok) session.console.log(LogLevel::kError, each.name + " " + each.arch + ": " + result.log);
  }
  session.console.show(table, document, "nothing was compiled");
  return failed == 0 ? 0 : exit_status(ErrorCode::kFailure);
}

}  // namespace vitune
