#!/usr/bin/env bash
# The version of a build: with the commit if it is built from git and is no release, and the same file as before
# if nothing changed, so that nothing is compiled anew.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"
command -v git >/dev/null && command -v cmake >/dev/null || exit 77

export GIT_CONFIG_NOSYSTEM=1 HOME=$PWD GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
# version: of the source in tree, version 1.2.3.
version() {
    cmake -DSOURCE="$PWD/tree" -DVERSION=1.2.3 -DTEMPLATE="$EXO_SOURCE/runtime/base/commit.c.in" -DOUT="$PWD/commit.c" \
        -P "$EXO_SOURCE/cmake/commit.cmake" || fail 'commit.cmake'
    sed -n 's/.*exo_version\[\] = "\(.*\)".*/\1/p' commit.c
}
git init -q . && mkdir tree && echo 1 >tree/file
[ "$(version)" = 1.2.3 ] || fail "in a folder of another repository: $(version)"
git init -q tree
[ "$(version)" = 1.2.3 ] || fail "without a commit: $(version)"
git -C tree add file && git -C tree commit -q -m 'tests: one'
commit=$(git -C tree rev-parse --short=12 HEAD)
[ "$(version)" = "1.2.3-dev.$commit" ] || fail "of a commit: $(version)"
touch -d '2 hours ago' commit.c
before=$(stat -c %Y commit.c)
version >out
[ "$(stat -c %Y commit.c)" = "$before" ] || fail 'the file is written although it is the same'
echo 2 >tree/file
[ "$(version)" = "1.2.3-dev.$commit.changed" ] || fail "with changes: $(version)"
git -C tree checkout -q file
git -C tree tag v1.2.2
[ "$(version)" = "1.2.3-dev.$commit" ] || fail "with the tag of another version: $(version)"
git -C tree tag v1.2.3
[ "$(version)" = 1.2.3 ] || fail "of a release: $(version)"
finish
