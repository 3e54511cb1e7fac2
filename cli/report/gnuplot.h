// cli/report/gnuplot.h -- Runs gnuplot, which draws every picture of the report.
//
// gnuplot (gnuplot-nox in Debian) is needed at run time only. One process draws all pictures, in a
// temporary folder that goes when it is done. One thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/report/panel.h"

namespace vitune {

// The gnuplot that PATH (as the environment gives it) finds first; nothing if there is none.
std::optional<std::filesystem::path> find_gnuplot(const std::optional<std::string>& search_path);

// A panel as SVG in each of its forms; `narrow` is empty where `wide` serves every screen. `figure`
// has the names of its series in the picture.
struct Drawing {
  std::string wide, narrow, figure;
};

// The drawings of `panels`, in their order, as gnuplot wrote them. Throws Error(kFailure) with what
// gnuplot said if it fails, Error(kInterrupted) once `stop` is set.
std::vector<Drawing> draw(const std::filesystem::path& gnuplot, const std::vector<Panel>& panels,
                          const std::atomic<bool>& stop);

}  // namespace vitune
