// cli/report/gnuplot.cpp -- One script for all pictures, one supervised process, files read back.
// SPDX-License-Identifier: Apache-2.0
#include "cli/report/gnuplot.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>

#include "cli/output/table.h"
#include "core/child_process.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr std::chrono::seconds kDeadline{60};
// Of the names of the series above a figure.
constexpr int kKeyRow = 18, kKeyColumn = 200;
// A figure stands in a text, where a wide one would be made smaller and its words with it.
constexpr int kLeastFigure = 520, kMostFigure = 820;

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "vitune-report-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      throw Error(ErrorCode::kFailure,
                  formatted("no temporary folder can be made at {}: gnuplot needs one; set TMPDIR "
                            "to a folder that may be written",
                            pattern));
    }
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

enum class Form { kWide, kNarrow, kFigure };

fs::path drawing_path(const fs::path& folder, std::size_t panel, Form form) {
  return folder / formatted("{}-{}.svg", panel, static_cast<int>(form));
}

std::string single_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("''") : std::string(1, c);
  return quoted + "'";
}

int figure_width(const Panel& panel) {
  return std::clamp(panel.wide.width, kLeastFigure, kMostFigure);
}

int key_columns(const Panel& panel) { return std::max(figure_width(panel) / kKeyColumn, 1); }

int key_height(const Panel& panel) {
  const int rows = (panel.series + key_columns(panel) - 1) / key_columns(panel);
  return rows == 0 ? 0 : rows * kKeyRow + 10;
}

constexpr const char* kStyle =
    "set encoding utf8\nset border 3 lc rgb axis lw 1\nset tics nomirror out scale 0.4\n"
    "set tics textcolor rgb muted\nset grid lc rgb grid lt 1 dt solid lw 1\n"
    "set style fill solid noborder\nunset key\n";

std::string form_script(const Panel& panel, Form form, const fs::path& output) {
  View view = form == Form::kNarrow ? panel.narrow : panel.wide;
  if (form == Form::kFigure) {
    view.width = figure_width(panel);
    view.height += key_height(panel), view.top += key_height(panel);
  }
  const double width = view.width, height = view.height;
  std::string script = formatted(
      "reset\nset terminal svg size {},{} dynamic noenhanced font \"sans-serif,12\"\n"
      "set output {}\nnarrow = {}\nfigure = {}\nPW = {}.0\nPH = {}.0\n{}",
      view.width, view.height, single_quoted(output.string()), form == Form::kNarrow ? 1 : 0,
      form == Form::kFigure ? 1 : 0, view.width - view.left - view.right,
      view.height - view.bottom - view.top, kStyle);
  script += formatted(
      "set lmargin at screen {:.5f}\nset rmargin at screen {:.5f}\nset bmargin at screen {:.5f}\n"
      "set tmargin at screen {:.5f}\n",
      view.left / width, 1 - view.right / width, view.bottom / height, 1 - view.top / height);
  if (form == Form::kFigure && panel.series > 0) {
    script += formatted(
        "set key at screen 0.01, {:.5f} left top horizontal maxcols {} Left reverse samplen 1.5 "
        "textcolor rgb ink\n",
        1 - 4 / height, key_columns(panel));
  }
  return script + panel.script + "unset output\n";
}

std::string whole_script(const std::vector<Panel>& panels, const fs::path& folder) {
  std::string script = paint_script();
  for (std::size_t i = 0; i < panels.size(); ++i) {
    for (const Form form : {Form::kWide, Form::kNarrow, Form::kFigure}) {
      if (form == Form::kNarrow && panels[i].narrow == panels[i].wide) continue;
      script += form_script(panels[i], form, drawing_path(folder, i, form));
    }
  }
  return script;
}

void run_gnuplot(const fs::path& gnuplot, const fs::path& script, const std::atomic<bool>& stop) {
  ChildOptions options;
  options.command = {gnuplot.string(), "--default-settings", script.string()};
  ChildProcess child(options);
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  Frame ignored;
  while (child.receive(ignored, milliseconds(100)) == ChildProcess::Receive::kTimeout) {
    if (stop) throw Error(ErrorCode::kInterrupted, "interrupted while gnuplot was drawing");
    if (std::chrono::steady_clock::now() > deadline) break;
  }
  const std::string said = child.output();
  const auto end = child.kill();
  if (end && end->exited && end->code == 0) return;
  throw Error(ErrorCode::kFailure,
              formatted("{} could not draw the pictures ({}): {}", gnuplot.string(),
                        end ? end->text() : "it cannot be ended", terminal_safe(said, true)));
}

std::string read_drawing(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

}  // namespace

std::optional<fs::path> find_gnuplot(const std::optional<std::string>& search_path) {
  std::istringstream folders(search_path.value_or("/usr/local/bin:/usr/bin:/bin"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    // A relative folder would be another program in every working directory.
    if (folder.empty() || folder.front() != '/') continue;
    const fs::path candidate = fs::path(folder) / "gnuplot";
    std::error_code ignored;
    if (fs::is_regular_file(candidate, ignored) && access(candidate.c_str(), X_OK) == 0) {
      return candidate;
    }
  }
  return std::nullopt;
}

std::vector<Drawing> draw(const fs::path& gnuplot, const std::vector<Panel>& panels,
                          const std::atomic<bool>& stop) {
  const TemporaryFolder folder;
  const fs::path script = folder.path() / "report.gp";
  std::ofstream(script, std::ios::binary) << whole_script(panels, folder.path());
  run_gnuplot(gnuplot, script, stop);
  std::vector<Drawing> drawings;
  for (std::size_t i = 0; i < panels.size(); ++i) {
    Drawing drawing;
    drawing.wide = read_drawing(drawing_path(folder.path(), i, Form::kWide));
    if (panels[i].narrow != panels[i].wide) {
      drawing.narrow = read_drawing(drawing_path(folder.path(), i, Form::kNarrow));
    }
    drawing.figure = read_drawing(drawing_path(folder.path(), i, Form::kFigure));
    drawings.push_back(std::move(drawing));
  }
  return drawings;
}

}  // namespace vitune
