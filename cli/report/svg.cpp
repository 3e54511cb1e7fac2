// cli/report/svg.cpp -- Walks over gnuplot's tags once, keeping what draws.
// SPDX-License-Identifier: Apache-2.0
#include "cli/report/svg.h"

#include <cctype>
#include <charconv>
#include <optional>
#include <vector>

#include "cli/report/html.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

void replace_all(std::string& text, std::string_view from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

// The number in "rgb(  1,   1,  n)", that is in what paint_script() named; nothing for others.
std::optional<int> paint_number(std::string_view inside) {
  int parts[3] = {0, 0, 0};
  for (int& part : parts) {
    inside.remove_prefix(std::min(inside.find_first_not_of(" ,"), inside.size()));
    const auto [end, error] = std::from_chars(inside.data(), inside.data() + inside.size(), part);
    if (error != std::errc{}) return std::nullopt;
    inside.remove_prefix(static_cast<std::size_t>(end - inside.data()));
  }
  return parts[0] == 1 && parts[1] == 1 ? std::optional(parts[2]) : std::nullopt;
}

std::string with_variables(std::string tag) {
  for (std::size_t at = 0; (at = tag.find("rgb(", at)) != std::string::npos; ++at) {
    const std::size_t end = tag.find(')', at);
    if (end == std::string::npos) break;
    const auto number = paint_number(std::string_view(tag).substr(at + 4, end - at - 4));
    if (!number) continue;
    tag.replace(at, end + 1 - at, "var(--" + paint_name(paint_of(*number)) + ")");
  }
  replace_all(tag, "fill=\"black\"", "fill=\"var(--ink)\"");
  replace_all(tag, " color=\"black\"", "");
  return tag;
}

// "@7__@" -> the text of token 7; a token that is none is nothing.
std::string with_texts(std::string_view text, const Panel& panel) {
  std::string out;
  while (true) {
    const std::size_t begin = text.find('@');
    const std::size_t end = begin == std::string_view::npos ? begin : text.find('@', begin + 1);
    if (end == std::string_view::npos) return out.append(text);
    std::size_t number = panel.texts.size();
    std::from_chars(text.data() + begin + 1, text.data() + end, number);
    out.append(text.substr(0, begin));
    if (number < panel.texts.size()) out += html_text(panel.texts[number]);
    text.remove_prefix(end + 1);
  }
}

// The text that <g onmousemove="gnuplot_svg.showHypertext(evt,'@7@')" ...> would show.
std::optional<std::string_view> hypertext(std::string_view tag) {
  constexpr std::string_view kMark = "showHypertext(evt,'";
  const std::size_t found = tag.find(kMark);
  if (found == std::string_view::npos) return std::nullopt;
  const std::string_view rest = tag.substr(found + kMark.size());
  return rest.substr(0, rest.find('\''));
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

class Cleaner {
 public:
  Cleaner(const Panel& panel, std::string prefix) : panel_(panel), prefix_(std::move(prefix)) {}

  // The content of the <svg> element.
  std::string clean(std::string_view drawn) {
    while (!drawn.empty()) {
      const std::size_t open = drawn.find('<');
      add_text(drawn.substr(0, open));
      if (open == std::string_view::npos) break;
      const std::size_t close = drawn.find('>', open);
      if (close == std::string_view::npos) refuse();
      add_tag(drawn.substr(open, close + 1 - open));
      drawn.remove_prefix(close + 1);
    }
    if (!ended_) refuse();
    std::string out;
    for (const std::string& piece : pieces_) out += piece;
    return out;
  }

 private:
  [[noreturn]] static void refuse() {
    throw Error(ErrorCode::kFailure,
                "gnuplot wrote no whole picture; run it again, or try another version of gnuplot");
  }

  void add_text(std::string_view text) {
    if (skipping_ || !began_ || ended_ || is_blank(text)) return;
    pieces_.push_back(with_texts(text, panel_));
  }

  void add_tag(std::string_view tag) {
    if (tag.starts_with("<svg")) {
      began_ = true;
    } else if (tag.starts_with("</svg")) {
      ended_ = true;
    } else if (tag.starts_with("<title") || tag.starts_with("<desc")) {
      skipping_ = true;  // names of series and of gnuplot
    } else if (tag.starts_with("</title") || tag.starts_with("</desc")) {
      skipping_ = false;
    } else if (began_ && !ended_ && !skipping_ && !tag.starts_with("<tspan") &&
               !tag.starts_with("</tspan")) {
      add_element(tag);
    }
  }

  void add_element(std::string_view tag) {
    if (tag == "</g>" && !pieces_.empty() && pieces_.back().starts_with("<g ")) {
      pieces_.pop_back();
      return;
    }
    if (const auto text = hypertext(tag)) {
      // Two pieces, so that its end tag does not take it for an empty group.
      pieces_.insert(pieces_.end(),
                     {"<g class=\"point\">", "<title>" + with_texts(*text, panel_) + "</title>"});
      return;
    }
    std::string kept = tag.starts_with("<g id=") ? "<g >" : with_variables(std::string(tag));
    for (const char* attribute : {"id='", "href='#", "url(#"}) {
      replace_all(kept, std::string(attribute) + "gp", attribute + prefix_ + "gp");
    }
    pieces_.push_back(with_texts(kept, panel_));
    if (tag.starts_with("</")) pieces_.back() += "\n";
  }

  const Panel& panel_;
  std::string prefix_;
  std::vector<std::string> pieces_;
  bool began_ = false, ended_ = false, skipping_ = false;
};

// width and height of <svg viewBox="0 0 W H">.
std::string view_box(std::string_view drawn) {
  constexpr std::string_view kMark = "viewBox=\"";
  const std::size_t found = drawn.find(kMark);
  if (found == std::string_view::npos) return "0 0 1 1";
  const std::string_view rest = drawn.substr(found + kMark.size());
  std::string box;
  for (const char c : rest.substr(0, rest.find('"'))) {
    if (c == ' ' || std::isdigit(static_cast<unsigned char>(c)) != 0) box += c;
  }
  return box;
}

}  // namespace

std::string inline_svg(std::string_view drawn, const Panel& panel, const std::string& prefix,
                       const std::string& classes) {
  return formatted("<svg class=\"{}\" viewBox=\"{}\" role=\"img\" aria-label=\"{}\">{}</svg>\n",
                   classes, view_box(drawn), html_text(panel.summary),
                   Cleaner(panel, prefix).clean(drawn));
}

std::string standalone_svg(std::string_view drawn, const Panel& panel) {
  return formatted(
      "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\" "
      "viewBox=\"{}\" role=\"img\" aria-label=\"{}\">\n<style>\n"
      "svg{{{}color:var(--ink)}}\n@media (prefers-color-scheme:dark){{svg{{{}}}}}\n</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"var(--surface)\"/>\n{}</svg>\n",
      view_box(drawn), html_text(panel.summary), paint_css(false), paint_css(true),
      Cleaner(panel, "").clean(drawn));
}

}  // namespace vitune
