#!/usr/bin/env bash
# tests/package/check_package.sh -- Installs vitune and uses it as other projects do.
#
#   check_package.sh CASE SOURCE BUILD WORK
#
# SOURCE is the source tree, BUILD its build folder with everything built, WORK a folder of this case
# alone, which is emptied first. CC, CXX and FLAGS are the compilers and their flags. Status 0 if the
# case holds; else the last line says what does not.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
name=$1
source=$(realpath "$2")
build=$(realpath "$3")
CC=${CC:-cc}
CXX=${CXX:-c++}
FLAGS=${FLAGS:-}
rm -rf "$4"
mkdir -p "$4"
work=$(realpath "$4")
export VITUNE_DB=$work/vitune.db  # the user's own stays out of this
unset DESTDIR PKG_CONFIG_PATH CMAKE_PREFIX_PATH

fail() {
  echo "check_package.sh $name: $*" >&2
  exit 1
}

# Installs to a place and moves the tree away from there: nothing may remember where it was.
install_and_move() {
  cmake --install "$build" --prefix "$work/before" > "$work/install.log"
  mv "$work/before" "$work/moved"
  lib=$(dirname "$(find "$work/moved" -name libvitune.so)")
  [[ -n $lib ]] || fail "libvitune.so was not installed"
}

check_tree() {
  install_and_move
  local version
  version=$(sed -n 's/^Version: //p' "$lib/pkgconfig/vitune.pc")
  [[ $(readlink "$lib/libvitune.so") == "libvitune.so.${version%%.*}" ]] ||
    fail "libvitune.so is not a link to its soname"
  [[ $(readlink "$lib/libvitune.so.${version%%.*}") == "libvitune.so.$version" ]] ||
    fail "libvitune.so.${version%%.*} is not a link to the library"
  readelf -d "$lib/libvitune.so" > "$work/dynamic"
  grep -q "soname: \[libvitune.so.${version%%.*}\]" "$work/dynamic" || fail "it has another soname"
  ! grep -E 'RPATH|RUNPATH' "$work/dynamic" || fail "the library remembers folders"
  [[ $(cd "$work/moved/include" && find . -type f | sort | tr '\n' ' ') == \
     "./vitune/model.hpp ./vitune/vitune.h ./vitune/vitune.hpp " ]] || fail "other headers than the three were installed"
  [[ -f $work/moved/share/vitune/bench_problems.json ]] || fail "the data are not in share/vitune"
  [[ -f $work/moved/share/vitune/report/run.py ]] || fail "the report's program is not in share/vitune"
  ! grep -rIlE "$work/before|$source|$build" "$lib/cmake" "$lib/pkgconfig" ||
    fail "the files above name a folder of the build"
  "$work/moved/bin/vitune" --version | grep -qF "$version" || fail "the command has another version"
}

# make install with both of its variables, as a distribution's packager calls it.
check_destdir() {
  DESTDIR=$work/stage cmake --install "$build" --prefix /opt/vitune > "$work/install.log"
  [[ $(ls "$work/stage") == opt && $(ls "$work/stage/opt") == vitune ]] ||
    fail "something was installed outside DESTDIR/opt/vitune"
  [[ -x $work/stage/opt/vitune/bin/vitune ]] || fail "the command was not installed"
  # Without a build: make must hand both on to cmake.
  make -n -C "$source" install PREFIX=/opt/vitune DESTDIR="$work/stage" > "$work/make.log"
  grep -qF -- '--prefix /opt/vitune' "$work/make.log" || fail "make install ignores PREFIX"
}

check_pkg_config() {
  install_and_move
  export PKG_CONFIG_PATH=$lib/pkgconfig
  local words
  words=$(pkg-config --cflags --libs vitune)
  # shellcheck disable=SC2086  # words and flags are lists
  "$CC" -std=c99 -Wall -Wextra -pedantic -Werror $FLAGS "$source/tests/package/consumer.c" \
    $words -o "$work/consumer"
  LD_LIBRARY_PATH=$lib "$work/consumer"
  # A status that is dropped is a warning in every language.
  local drops=$work/drops language
  printf '#include <vitune/vitune.h>\nvoid drop(vitune_context* c) { vitune_prepare_text(c, ""); }\n' > "$drops.c"
  cp "$drops.c" "$drops.cpp"
  for language in "$CC -std=c99 $drops.c" "$CC -std=c2x $drops.c" "$CXX -std=c++11 $drops.cpp" "$CXX -std=c++17 $drops.cpp"; do
    # shellcheck disable=SC2086
    $language $words -c -o "$drops.o" 2> "$drops.log" || fail "$(cat "$drops.log")"
    grep -q 'unused-result\|unused-value' "$drops.log" || fail "'$language' lets a status be dropped: $(cat "$drops.log")"
  done
}

configure() { # configure PROJECT VARIABLE...: tests/package/PROJECT into $work/build
  local project=$1
  shift
  cmake -S "$source/tests/package/$project" -B "$work/build" -G Ninja \
    -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX" "$@" > "$work/configure.log" 2>&1 ||
    { cat "$work/configure.log" >&2; return 1; }
}

check_find_package() {
  install_and_move
  configure find_package -DCMAKE_PREFIX_PATH="$work/moved" -DCMAKE_CXX_FLAGS="$FLAGS" \
    -DVITUNE_WANTED=0.1 || fail "the project does not configure"
  cmake --build "$work/build"
  "$work/build/consumer"
  "$work/build/consumer_cpp17"
  grep -qF "$work/moved" "$work/build/CMakeCache.txt" || fail "another vitune was found"
  rm -rf "$work/build"
  if configure find_package -DCMAKE_PREFIX_PATH="$work/moved" -DVITUNE_WANTED=99.0 2> /dev/null; then
    fail "version 99 was asked for and this one was taken"
  fi
}

# The installed examples, by CMake and by the compiler alone, without anything of the source tree.
check_examples() {
  install_and_move
  local examples=$work/moved/share/doc/vitune/examples
  cmake -S "$examples" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/moved" -DCMAKE_C_COMPILER="$CC" \
    -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_C_FLAGS="$FLAGS" -DCMAKE_CXX_FLAGS="$FLAGS" > "$work/configure.log" 2>&1 ||
    { cat "$work/configure.log" >&2; fail "the examples do not configure"; }
  cmake --build "$work/build"
  # shellcheck disable=SC2046,SC2086  # words and flags are lists
  "$CC" $FLAGS "$examples/attention.c" $(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --cflags --libs vitune) \
    -ldl -lm -o "$work/build/by_hand"
  # model.cpp by itself: a copy in a folder without the others but for the two headers that it names.
  mkdir "$work/alone"
  cp "$examples"/{model.cpp,gpu.h,reference.h} "$work/alone"
  # shellcheck disable=SC2046,SC2086
  "$CXX" -std=c++17 -Wall -Wextra -Werror $FLAGS "$work/alone/model.cpp" \
    $(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --cflags --libs vitune) -ldl -o "$work/build/model_by_hand"
  # Either header may come first, or alone.
  for first in vitune model; do
    printf '#include <vitune/%s.hpp>\nvitune::Session open(vitune::Context& c) { return vitune::Model(c, "f").session(1); }\n' \
      "$first" > "$work/alone/$first.cpp"
    "$CXX" -std=c++17 -Wall -Wextra -Werror -I"$work/moved/include" -c "$work/alone/$first.cpp" -o "$work/alone/$first.o"
  done
  LD_LIBRARY_PATH=$lib "$work/build/model_by_hand" "$work/alone/absent.safetensors" > "$work/model.log" 2>&1 &&
    fail "a model file that is not there was run"
  grep -qE 'VITUNE_NO_DEVICE|absent.safetensors' "$work/model.log" || fail "model.cpp does not say why it ended"
  local program status
  for program in vitune_example_c vitune_example_cpp vitune_example_norm vitune_example_tune by_hand; do
    status=0
    PATH=$work/moved/bin:$PATH LD_LIBRARY_PATH=$lib "$work/build/$program" > "$work/$program.log" 2>&1 || status=$?
    # 77: there is no GPU, and it says so.
    if ((status == 77)); then grep -qF VITUNE_NO_DEVICE "$work/$program.log" || fail "$program does not say why"; fi
    ((status == 0 || status == 77)) || { cat "$work/$program.log" >&2; fail "$program ended with $status"; }
  done
  [[ -x $examples/ship_a_database/ship.sh ]] || fail "ship.sh cannot be run"
}

# The archive of cpack, unpacked somewhere: one folder with the installed tree, and not the Python package's files.
check_archive() {
  (cd "$build" && cpack -G TGZ -B "$work/made") > "$work/cpack.log" || { cat "$work/cpack.log" >&2; fail "cpack failed"; }
  local archive
  archive=$(find "$work/made" -maxdepth 1 -name 'vitune-*-linux-*.tar.gz')
  [[ -f $archive ]] || fail "there is no archive for this system"
  mkdir "$work/unpacked"
  tar -C "$work/unpacked" -xzf "$archive"
  local tree=$work/unpacked/$(basename "$archive" .tar.gz)
  [[ $(ls "$work/unpacked") == "$(basename "$tree")" ]] || fail "it does not unpack to one folder of its name"
  [[ ! -e $tree/vitune ]] || fail "the Python package's files are in it twice"
  [[ -f $tree/include/vitune/vitune.hpp && -f $tree/share/doc/vitune/LICENSE ]] || fail "headers or licence are missing"
  "$tree/bin/vitune" --version > /dev/null || fail "the command does not run from there"
  "$tree/bin/vitune" doctor --csv 2> /dev/null | grep -qF "$tree/share/vitune" || fail "it does not find its data there"
  readelf --sections "$tree/bin/vitune" > "$work/sections"
  ! grep -qF .symtab "$work/sections" || fail "the command is not stripped"
}

# What it adds to a project is known once that is configured; fetch_content builds the same targets.
check_add_subdirectory() {
  configure add_subdirectory -DVITUNE_SOURCE="$source" || fail "the project does not configure"
}

# The archive holds what a repository at this revision would. The library is built anew, of the archive alone; nothing is
# optimised: what is shown is that it builds.
check_fetch_content() {
  local list=(git -C "$source" ls-files -z --cached --others --exclude-standard)
  if ! "${list[@]}" > "$work/files" 2> /dev/null; then
    (cd "$source" && find . -path ./build -prune -o -type f -print0) > "$work/files"
  fi
  # A file that was deleted and not yet committed is listed all the same.
  (cd "$source" && while IFS= read -r -d '' file; do
    if [[ -e $file ]]; then printf '%s\0' "$file"; fi
  done < "$work/files" > "$work/there")
  tar -C "$source" --null -T "$work/there" --transform 's,^,vitune/,' -czf "$work/vitune.tar.gz"
  local launcher=()
  if command -v ccache > /dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  configure fetch_content -DVITUNE_ARCHIVE="$work/vitune.tar.gz" "${launcher[@]}" -DCMAKE_CXX_FLAGS=-O0 ||
    fail "the project does not configure"
  cmake --build "$work/build" > "$work/build.log" || { tail -n 40 "$work/build.log" >&2; fail "it does not build"; }
  "$work/build/consumer"
  "$work/build/consumer_c"
  cmake --install "$work/build" --prefix "$work/installed" > "$work/install.log"
  [[ $(cd "$work/installed" && find . ! -type d) == ./bin/consumer ]] ||
    fail "vitune installs files with a project that did not ask for it"
}

case $name in
  tree | destdir | pkg_config | find_package | examples | archive | add_subdirectory | fetch_content) "check_$name" ;;
  *) fail "there is no such case" ;;
esac
rm -rf "$work"
