#!/bin/sh
# Builds the extension without torch for another interpreter and runs the hook's tests there.
# Usage: tests/unit/csrc/torch_free.sh ~/.pyenv/versions/3.12.1/bin/python
set -eu
python=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
space=$(mktemp -d)
trap 'rm -rf "$space"' EXIT
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
mkdir "$space/stoker" && touch "$space/stoker/__init__.py"
sources=$(ls "$root"/csrc/*.cpp | grep -v tensor_check)
g++ -std=c++20 -O1 -g -fPIC -shared -fvisibility=hidden -Wall -Wextra -Werror -Wno-unused-parameter \
  -I"$root/csrc" -I"$include" $sources "$here/torch_free.cpp" -o "$space/stoker/_C$suffix"
PYTHONPATH="$space" "$python" "$here/torch_free.py"
