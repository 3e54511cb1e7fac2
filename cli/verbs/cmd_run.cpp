// cli/verbs/cmd_run.cpp -- vitune run: a model file's pass over images or arrays.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "cli/arguments/options.h"
#include "cli/arguments/session.h"
#include "cli/arguments/verb_options.h"
#include "cli/images/batch_source.h"
#include "cli/images/npy.h"
#include "cli/output/results.h"
#include "cli/output/text.h"
#include "cli/passes/opened_model.h"
#include "core/error.h"
#include "core/format.h"
#include "core/half.h"
#include "core/primary_context.h"
#include "model/check.h"
#include "runtime/api/last_error.h"
#include "runtime/session/model_session.h"

namespace vitune {
namespace {

namespace po = boost::program_options;
using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

void describe_run(po::options_description& options) {
  add_value(options, "batch", "N", "inputs of one pass", "32");
  add_value(options, "top", "K", "print the K largest numbers of each result", "5");
  add_value(options, "out", "FILE.npy",
            "write the results as float32 there, and the inputs' names beside it, a line each");
  add_value(options, "device", "N", "the GPU, as the driver counts", "0");
}

// Numbers of a type of model files, from fp32 and to it.
std::vector<std::byte> narrowed(const std::vector<float>& values, const std::string& type) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(model_type_bytes(type)));
  if (type == "fp32") {
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t bits = type == "bf16" ? rounded_bf16(values[i]) : rounded_fp16(values[i]);
    std::memcpy(bytes.data() + 2 * i, &bits, sizeof(bits));
  }
  return bytes;
}

std::vector<float> widened(const std::vector<std::byte>& bytes, const std::string& type) {
  std::vector<float> values(bytes.size() / static_cast<std::size_t>(model_type_bytes(type)));
  if (type == "fp32") {
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + 2 * i, sizeof(bits));
    values[i] = type == "bf16" ? widened_bf16(bits) : widened_fp16(bits);
  }
  return values;
}

// Seconds that this thread waited for inputs, for copies and for passes.
struct Spent {
  double decoding = 0, copying = 0, running = 0;
  double all() const { return std::max(decoding + copying + running, 1e-9); }
};

template <typename Body>
void add_seconds(double& seconds, const Body& body) {
  const auto start = Clock::now();
  body();
  seconds += std::chrono::duration<double>(Clock::now() - start).count();
}

// A model with one input of numbers and a result, and a session of one batch.
class Runner {
 public:
  Runner(Session& session, const std::string& path)
      : context_(library_settings(session, one_device(session))), model_(context_, path) {
    if (model_.graph().inputs.size() != 1) {
      throw Error(ErrorCode::kUnsupported, formatted("{} has {} inputs: run takes models of one",
                                                     path, model_.graph().inputs.size()));
    }
    const ModelOperand input = {model_.graph().inputs[0].name, true, {}, {}, {}};
    const ModelOperand& result = model_.graph().outputs[0].of;
    input_ = model_.view(input, 1);
    result_ = model_.view(result, 1);
    if (!counts_images(input_, model_.view(input, 2)) ||
        !counts_images(result_, model_.view(result, 2))) {
      throw Error(ErrorCode::kUnsupported,
                  formatted("{}: run takes models whose input and result have the images as their "
                            "first dimension, and only there",
                            path));
    }
    for (const BatchView* view : {&input_, &result_}) {
      if (view->type != "bf16" && view->type != "fp16" && view->type != "fp32") {
        throw Error(ErrorCode::kUnsupported,
                    formatted("{} takes or gives {}: run knows floating types", path, view->type));
      }
    }
  }

  std::vector<std::int64_t> input_shape() const { return behind_batch(input_); }
  std::vector<std::int64_t> result_shape() const { return behind_batch(result_); }
  const LoadedModel& model() const { return model_; }

  void prepare(std::int64_t batch) {
    const CurrentContext current(context_.primary());
    pass_ = std::make_unique<ModelSession>(model_, batch, false);
    stream_ = std::make_unique<CudaStream>(context_.driver());
    batch_ = batch;
  }

  // Runs up to as many inputs as the session's batch; the others are zeros. Adds the seconds that
  // copies and the pass took.
  std::vector<float> run(std::vector<float> values, Spent& spent) {
    const CurrentContext current(context_.primary());
    const CudaDriver& driver = context_.driver();
    const std::size_t count = values.size() / elements(input_);
    // The last ones may be fewer: where images mix, zeros beside them would change their results.
    if (static_cast<std::int64_t>(count) < batch_ && !model_.why_images_mix().empty()) {
      prepare(static_cast<std::int64_t>(count));
    }
    std::vector<float> rows;
    add_seconds(spent.copying, [&] {
      values.resize(static_cast<std::size_t>(batch_) * elements(input_));
      const std::vector<std::byte> given = narrowed(values, input_.type);
      driver.check(driver.api().memcpy_htod(pass_->address(0), given.data(), given.size()),
                   "cuMemcpyHtoD");
      // Its last piece may be on its way still, for which our stream does not wait.
      driver.check(driver.api().stream_synchronize(nullptr), "cuStreamSynchronize");
    });
    add_seconds(spent.running, [&] { launch(static_cast<std::int64_t>(count)); });
    add_seconds(spent.copying, [&] {
      std::vector<std::byte> taken(count * elements(result_) *
                                   static_cast<std::size_t>(model_type_bytes(result_.type)));
      driver.check(driver.api().memcpy_dtoh(taken.data(), pass_->address(1), taken.size()),
                   "cuMemcpyDtoH");
      rows = widened(taken, result_.type);
    });
    return rows;
  }

 private:
  void launch(std::int64_t count) {
    const void* inputs[] = {nullptr};
    std::vector<void*> outputs(pass_->places() - 1, nullptr);
    if (pass_->run(count, inputs, outputs, stream_->get()) != VITUNE_OK) {
      throw Error(ErrorCode::kFailure, last_error());
    }
    stream_->synchronize();
  }

  // `one` and `two` are a tensor in passes of one image and of two.
  static bool counts_images(const BatchView& one, const BatchView& two) {
    return !one.extents.empty() && one.extents[0] == 1 && two.extents[0] == 2 &&
           std::equal(one.extents.begin() + 1, one.extents.end(), two.extents.begin() + 1,
                      two.extents.end());
  }
  static std::vector<std::int64_t> behind_batch(const BatchView& view) {
    return {view.extents.begin() + 1, view.extents.end()};
  }
  static std::size_t elements(const BatchView& view) {
    return static_cast<std::size_t>(view.elements());
  }

  RuntimeContext context_;
  LoadedModel model_;
  BatchView input_, result_;
  std::unique_ptr<ModelSession> pass_;
  std::unique_ptr<CudaStream> stream_;
  std::int64_t batch_ = 0;
};

// The names of classes in a model file, if it has a sound list.
std::vector<std::string> labels_of(const LoadedModel& model) {
  const auto json = nlohmann::json::parse(model.file().text("vitune.labels"), nullptr, false);
  std::vector<std::string> labels;
  if (!json.is_array()) return labels;
  for (const auto& label : json)
    labels.push_back(label.is_string() ? label.get<std::string>() : "");
  return labels;
}

class Results {
 public:
  Results(Session& session, const Runner& runner)
      : session_(session), labels_(labels_of(runner.model())) {
    const std::vector<std::int64_t> shape = runner.result_shape();
    row_ = static_cast<std::size_t>(
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
    if (session.has("out")) open_files(shape);
    prints_ = !file_ || session.has("top");
    most_ = static_cast<std::size_t>(parse_integer(session.text("top"), 1, 1000, "--top"));
    table_.column("input").heading().column("place", Align::kRight).column("value", Align::kRight);
    table_.column("label");
    document_["results"] = ordered_json::array();
  }

  void add(const std::vector<std::string>& names, const std::vector<float>& rows) {
    count_ += names.size();
    if (file_) {
      file_->add(rows);
      for (const std::string& name : names) names_ << name << '\n';
      require_names();
    }
    if (!prints_) return;
    for (std::size_t i = 0; i < names.size(); ++i) add_largest(names[i], rows.data() + i * row_);
  }

  std::size_t count() const { return count_; }

  void finish(const Spent& spent) {
    if (file_) {
      file_->finish();
      names_.close();
      require_names();
      if (!session_.stop) {
        std::filesystem::rename(part_of(out_), out_);
        std::filesystem::rename(part_of(names_path_), names_path_);
        document_["out"] = session_.text("out");
      }
    }
    document_["interrupted"] = session_.stop.load();
    document_["inputs"] = count_;
    document_["seconds"] = {
        {"inputs", spent.decoding}, {"copies", spent.copying}, {"gpu", spent.running}};
    document_["images_s"] = static_cast<double>(count_) / spent.all();
    session_.console.show(table_, document_, formatted("{} results written", count_));
  }

 private:
  static std::filesystem::path part_of(std::filesystem::path path) { return path += ".part"; }

  // Under other names until they are complete, so that nothing is lost to a run that fails.
  void open_files(const std::vector<std::int64_t>& shape) {
    out_ = session_.text("out");
    if (out_.extension() != ".npy") {
      throw Error(ErrorCode::kUsage,
                  formatted("--out {}: the file's name must end in .npy", out_.string()));
    }
    names_path_ = std::filesystem::path(out_).replace_extension(".txt");
    for (const std::string& operand : session_.operands) {
      std::error_code ignored;
      if (std::filesystem::equivalent(operand, out_, ignored) ||
          std::filesystem::equivalent(operand, names_path_, ignored)) {
        throw Error(ErrorCode::kUsage,
                    formatted("--out {} would write over '{}': choose another name", out_.string(),
                              operand));
      }
    }
    file_.emplace(part_of(out_), shape);
    names_.open(part_of(names_path_), std::ios::trunc);
    require_names();
  }
  void require_names() const {
    if (!names_) {
      throw Error(ErrorCode::kFailure,
                  formatted("{} cannot be written: is there room, and may this user write there?",
                            part_of(names_path_).string()));
    }
  }

  // The file's, "" where it has none.
  std::string label_of(std::size_t place) const {
    return place < labels_.size() ? labels_[place] : "";
  }

  void add_largest(const std::string& name, const float* row) {
    std::vector<std::size_t> order(row_);
    std::iota(order.begin(), order.end(), std::size_t{0});
    const std::size_t kept = std::min(most_, row_);
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                      [&](std::size_t a, std::size_t b) {
                        // NaNs come last.
                        if (std::isnan(row[a])) return false;
                        return std::isnan(row[b]) || row[a] > row[b];
                      });
    ordered_json largest = ordered_json::array();
    for (std::size_t k = 0; k < kept; ++k) {
      const std::string label = label_of(order[k]);
      table_.row({name, formatted("{}", order[k]), formatted("{:.4f}", row[order[k]]),
                  label.empty() ? formatted("{}", order[k]) : label});
      largest.push_back({{"place", order[k]}, {"value", row[order[k]]}, {"label", label}});
    }
    document_["results"].push_back({{"input", name}, {"largest", std::move(largest)}});
  }

  Session& session_;
  const std::vector<std::string> labels_;
  std::size_t row_ = 0, most_ = 0, count_ = 0;
  bool prints_ = true;
  std::filesystem::path out_, names_path_;
  std::optional<NpyWriter> file_;
  std::ofstream names_;
  Table table_;
  ordered_json document_ = new_document("run");
};

// "12 of 40, 310 images/s; waited for inputs 92 %, copies 3 %, the GPU 5 %"
std::string rate_text(std::size_t done, std::int64_t all, const Spent& spent) {
  const auto percent = [&](double seconds) { return 100 * seconds / spent.all(); };
  return formatted(
      "{} of {}, {:.0f} images/s; waited for inputs {:.0f} %, copies {:.0f} %, the GPU {:.0f} %",
      done, all, static_cast<double>(done) / spent.all(), percent(spent.decoding),
      percent(spent.copying), percent(spent.running));
}

// The batches of a source, each of which is decoded while the one before it is run.
class BatchesAhead {
 public:
  BatchesAhead(BatchSource& source, std::int64_t most) : source_(source), most_(most) { begin(); }

  // Throws as BatchSource::next() does.
  InputBatch next() {
    InputBatch batch = coming_.get();
    if (!batch.names.empty()) begin();
    return batch;
  }
  // Waits for what was begun: the source is nobody's then.
  void end() {
    if (coming_.valid()) coming_.wait();
  }
  ~BatchesAhead() { end(); }

 private:
  void begin() {
    coming_ = std::async(std::launch::async, [this] { return source_.next(most_); });
  }
  BatchSource& source_;
  const std::int64_t most_;
  std::future<InputBatch> coming_;
};

// Runs all batches; returns where the time went.
Spent run_all(Session& session, Runner& runner, BatchSource& source, std::int64_t most,
              Results& results) {
  Spent spent;
  BatchesAhead batches(source, most);
  while (!session.stop) {
    InputBatch batch;
    add_seconds(spent.decoding, [&] { batch = batches.next(); });
    if (batch.names.empty()) break;
    results.add(batch.names, runner.run(std::move(batch.values), spent));
    session.console.progress(rate_text(results.count(), source.count(), spent));
  }
  return spent;
}

int run_run(Session& session) {
  if (session.operands.size() < 2) {
    throw Error(ErrorCode::kUsage,
                "name a model file and what to run it on: vitune run vit.safetensors photo.jpg");
  }
  const std::string& path = session.operands.front();
  const std::int64_t most = parse_integer(session.text("batch"), 1, kMaxModelBatch, "--batch");
  load_model_file(path);  // a file that is none is told before a GPU that is missing
  Runner runner(session, path);
  const auto source =
      open_inputs({session.operands.begin() + 1, session.operands.end()}, runner.input_shape(),
                  runner.model().file().text("vitune.preprocess"), path);
  runner.prepare(std::min(most, std::max<std::int64_t>(source->count(), 1)));
  Results results(session, runner);
  const Spent spent = run_all(session, runner, *source, most, results);
  session.console.end_progress();
  for (const std::string& why : source->skipped()) {
    session.console.log(LogLevel::kWarning, formatted("left out: {}", why));
  }
  results.finish(spent);
  if (session.stop) return exit_status(ErrorCode::kInterrupted);
  return source->skipped().empty() ? 0 : exit_status(ErrorCode::kFailure);
}

}  // namespace

Verb run_verb() {
  return {
      "run",
      "Run a model file on images or arrays",
      "FILE INPUT...",
      "FILE is what vitune.export() wrote. INPUT: .jpg and .ppm files, folders of them, or one\n"
      ".npy file of float32 rows. Without --out the largest numbers of each result are printed.\n"
      "A damaged file in a folder is left out, told of, and the exit code is 1.\n"
      "Examples:\n"
      "  vitune run vit_b.safetensors photo.jpg --top 5\n"
      "  vitune run dino.safetensors photos/ --batch 128 --out vectors.npy",
      describe_run,
      run_run};
}

}  // namespace vitune
