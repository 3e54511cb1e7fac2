#!/usr/bin/env python3
# tests/cli/browser/report_in_browser.py -- Opens a report in headless Chromium and looks at it.
#
# Usage: report_in_browser.py VITUNE FOLDER. Makes reports in FOLDER: of the committed results, and the first
# one of a user, of a tune and of one problem of it. Checks at 1280 and 400 pixels, light and dark: no message on the console, the colours of the scheme,
# no page wider than the window, no two words of a picture on top of each other, none cut off, none
# smaller than people can read, and that marks say their values under the pointer. Screenshots stay in
# FOLDER. Exit status 77 where no browser or no matplotlib is found. Only the standard library is used.
# SPDX-License-Identifier: Apache-2.0
import html
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import zlib

SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parents[3]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SIZES = ((1280, 5100), (400, 9000))
SCHEMES = {"light": (1, (246, 248, 250)), "dark": (0, (13, 17, 23))}
LEAST_PIXELS = 8.5  # of a font

# Runs in a copy of the page; its findings become the title.
PROBE = """
<script>
addEventListener('load', () => {
  const found = [];
  const inner = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > inner)
    found.push('the page is ' + document.documentElement.scrollWidth + ' wide in ' + inner);
  const height = document.body.scrollHeight;
  let words = 0, marks = 0;
  for (const chart of document.querySelectorAll('svg.chart')) {
    const box = chart.getBoundingClientRect();
    if (box.width === 0) continue;
    const scale = box.width / chart.viewBox.baseVal.width;
    if (scale > 1.01) found.push(chart.getAttribute('aria-label').slice(0, 60) + ': is blown up');
    const name = chart.getAttribute('aria-label').slice(0, 60);
    const texts = [...chart.querySelectorAll('text')].filter(t => t.textContent.trim());
    const rects = texts.map(t => t.getBoundingClientRect());
    words += texts.length;
    marks += [...chart.querySelectorAll('.point > title')].filter(t => t.textContent).length;
    const point = chart.querySelector('.point use, .point > path');
    if (point) {
      point.scrollIntoView({block: 'center', behavior: 'instant'});
      const p = point.getBoundingClientRect();
      const under = document.elementFromPoint(p.left + p.width / 2, p.top + p.height / 2);
      if (!under || !under.closest('.point')) found.push(name + ': a mark is not under the pointer');
      scrollTo({top: 0, behavior: 'instant'});
    }
    texts.forEach((text, i) => {
      const r = rects[i], say = JSON.stringify(text.textContent.trim());
      const letters = parseFloat(getComputedStyle(text).fontSize) * scale;
      if (letters < LEAST) found.push(name + ': ' + say + ' is too small');
      if (r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 1 ||
          r.bottom > box.bottom + 1) found.push(name + ': ' + say + ' is cut off');
      for (let j = 0; j < i; ++j) {
        const o = rects[j];
        const turned = text.closest('[transform*=rotate]') || texts[j].closest('[transform*=rotate]');
        const across = Math.min(r.right, o.right) - Math.max(r.left, o.left);
        const down = Math.min(r.bottom, o.bottom) - Math.max(r.top, o.top);
        if (!turned && across > 1 && down > 4)
          found.push(name + ': ' + say + ' lies on ' + JSON.stringify(texts[j].textContent.trim()));
      }
    });
  }
  const result = document.createElement('pre');
  result.id = 'probe';
  result.textContent = JSON.stringify({found: found.slice(0, 40), words, marks, height});
  document.body.append(result);
});
</script>
""".replace("LEAST", str(LEAST_PIXELS))


def first_pixel(png):
    """Red, green and blue of the first pixel of a PNG, and its size."""
    data = png.read_bytes()
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    assert depth == 8 and kind in (2, 6), f"{png}: not the PNG that was expected"
    packed, at = b"", 8
    while at < len(data):
        length = struct.unpack(">I", data[at:at + 4])[0]
        if data[at + 4:at + 8] == b"IDAT":
            packed += data[at + 8:at + 8 + length]
        at += 12 + length
    # Whatever the filter of the first row, its first pixel has nothing before or above it.
    return tuple(zlib.decompressobj().decompress(packed, 4)[1:4]), (width, height)


def run_browser(browser, folder, page, scheme, size, *options):
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
               "--no-first-run", "--disable-extensions", "--disable-background-networking",
               f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", "--v=0",
               f"--window-size={size[0]},{size[1]}",
               f"--blink-settings=preferredColorScheme={SCHEMES[scheme][0]}", *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def console_messages(errors):
    return [line for line in errors.splitlines() if "CONSOLE" in line]


def probed(browser, folder, page, scheme, size):
    """What the probe found in a copy of the page without its policy against scripts."""
    text = page.read_text(encoding="utf-8")
    text, policies = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>\n', "", text)
    assert policies == 1, "the page has no content security policy"
    copy = folder / "probed.html"
    copy.write_text(text.replace("</body>", PROBE + "</body>"), encoding="utf-8")
    done = run_browser(browser, folder, copy, scheme, (size[0], 900), "--dump-dom")
    match = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.S)
    assert match, f"the browser did not load the page: {done.stderr[-2000:]}"
    return json.loads(html.unescape(match.group(1)))


def look(browser, folder, page, scheme, size, words, marks, height):
    """Everything wrong with the page in one window, as sentences."""
    where = f"{page.name}, {size[0]} px, {scheme}"
    picture = folder / f"{page.stem}-{size[0]}-{scheme}.png"
    done = run_browser(browser, folder, page, scheme, size, f"--screenshot={picture}")
    if not picture.exists():
        return [f"{where}: no screenshot: {done.stderr[-2000:]}"]
    wrong = [f"{where}: {line}" for line in console_messages(done.stderr)]
    pixel, shot = first_pixel(picture)
    if pixel != SCHEMES[scheme][1]:
        wrong.append(f"{where}: the page begins with the colour {pixel}")
    if shot[0] != size[0]:
        wrong.append(f"{where}: the screenshot is {shot[0]} wide")
    result = probed(browser, folder, page, scheme, size)
    wrong += [f"{where}: {sentence}" for sentence in result["found"]]
    if size == SIZES[0] and result["height"] > height:
        wrong.append(f"{where}: the page is {result['height']} pixels high, more than {height}")
    if result["words"] < words or result["marks"] < marks:
        wrong.append(f"{where}: {result['words']} words and {result['marks']} marks are too few")
    return wrong


def first_report(vitune, folder):
    """The page that most users make first; without a GPU its times are replayed."""
    page, tuned = folder / "first.html", folder / "t.json"
    page.unlink(missing_ok=True)
    database = str(folder / "first.db")
    with open(tuned, "w", encoding="utf-8") as file:
        subprocess.run([vitune, "tune", "--db", database, "--device", "replay:h200", "--json", "-q"], check=True,
                       stdout=file, timeout=300)
    subprocess.run([vitune, "report", "--tune", str(tuned), "-o", str(page), "-q"], check=True, timeout=300)
    text = page.read_text(encoding="utf-8")
    assert text.count("replayed") > 6, "the page does not say that its times are replayed"
    return page


def one_problem(vitune, folder):
    """The same of a single problem."""
    page, tuned = folder / "one.html", folder / "one.json"
    document = json.loads((folder / "t.json").read_text(encoding="utf-8"))
    document["results"] = document["results"][:1]
    tuned.write_text(json.dumps(document), encoding="utf-8")
    subprocess.run([vitune, "report", "--tune", str(tuned), "-o", str(page), "-q"], check=True, timeout=300)
    return page


def of_results(vitune, folder):
    """The committed results."""
    page = folder / "report.html"
    page.unlink(missing_ok=True)
    results = str(ROOT / "benchmarks/results/h200")
    subprocess.run([vitune, "report", "--results", results, "-o", str(page), "-q"], check=True, timeout=300)
    return page


# Page -> the least words and marks that it must have, and its greatest height at the first width.
PAGES = ((of_results, 200, 200, 5000), (first_report, 20, 8, 1600), (one_problem, 12, 3, 1600))


def has_matplotlib():
    pythons = [pathlib.Path(folder) / "python3" for folder in os.environ.get("PATH", "").split(":") if folder]
    return any(subprocess.run([python, "-c", "import matplotlib"], capture_output=True, check=False).returncode == 0
               for python in pythons if python.is_file())


def main():
    vitune, folder = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None or not has_matplotlib():
        print("skipped: no Chromium, or no python3 with matplotlib on PATH")
        return SKIPPED
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["HOME"] = str(folder)  # a browser writes there
    wrong = []
    for make, *least in PAGES:
        page = make(vitune, folder)
        wrong += [sentence for size in SIZES for scheme in SCHEMES
                  for sentence in look(browser, folder, page, scheme, size, *least)]
    for sentence in wrong:
        print(sentence)
    print(f"{len(PAGES) * len(SIZES) * len(SCHEMES)} windows, {len(wrong)} faults; screenshots in {folder}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
